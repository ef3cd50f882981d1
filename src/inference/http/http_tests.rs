//! Errors, silences and cuts against a scripted server on loopback.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::config::Wire;
use crate::inference::fixtures::{KEY, request, settings, user};

/// One answer: bytes, then the connection is closed or held open in silence.
#[derive(Clone)]
struct Canned {
    bytes: String,
    hold: bool,
}

struct Server {
    base: String,
    /// Head and body of each request.
    seen: Arc<Mutex<Vec<String>>>,
    /// Aborted with the test.
    _tasks: JoinSet<()>,
}

fn canned(head: &str, body: &str) -> Canned {
    Canned { bytes: format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}"), hold: false }
}

fn streamed(body: &str) -> Canned {
    canned("200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: req-7\r\nx-ratelimit-remaining-requests: 3", body)
}

/// Gives the answers one after the other, the last one forever.
async fn serve(answers: Vec<Canned>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let log = seen.clone();
    tasks.spawn(async move {
        let mut held = Vec::new();
        for turn in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let request = read_request(&mut socket).await;
            log.lock().unwrap().push(request);
            let answer = &answers[turn.min(answers.len() - 1)];
            socket.write_all(answer.bytes.as_bytes()).await.unwrap();
            if answer.hold {
                held.push(socket);
            }
        }
    });
    Server { base, seen, _tasks: tasks }
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            if body.len() >= length.unwrap().parse().unwrap() {
                return text;
            }
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the request was cut");
    }
}

fn provider(dialect: Dialect, base: &str) -> HttpProvider {
    let brief = Duration::from_millis(150);
    let limits = Limits { connect: brief, headers: brief, silence: brief, idle: brief * 3, total: brief * 5, request: 4096 };
    let wire = if dialect == Dialect::Openai { Wire::Openai } else { Wire::Anthropic };
    HttpProvider::new(dialect, &settings(wire, base), &crate::tls::client_config(None).unwrap(), limits).unwrap()
}

async fn ask(dialect: Dialect, answer: Canned) -> Vec<Result<ModelEvent, ModelError>> {
    let server = serve(vec![answer]).await;
    provider(dialect, &server.base).stream(&request(vec![user("hello")])).collect().await
}

/// The one error that ends a stream.
async fn error(answer: Canned) -> ModelError {
    let events = ask(Dialect::Openai, answer).await;
    assert_eq!(events.iter().filter(|event| event.is_err()).count(), 1);
    events.into_iter().last().unwrap().unwrap_err()
}

const HELLO: &str = "data: {\"id\":\"r\",\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const COMPLETION: &str = r#"{"id":"r","choices":[{"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;

fn said(events: &[Result<ModelEvent, ModelError>]) -> String {
    events.iter().filter_map(|event| if let Ok(ModelEvent::Text(text)) = event { Some(text.as_str()) } else { None }).collect()
}

fn is_finished(events: &[Result<ModelEvent, ModelError>]) -> bool {
    matches!(events.last(), Some(Ok(ModelEvent::Finished { .. })))
}

#[tokio::test]
async fn harness_n9_ids_and_limits_come_with_the_start() {
    let events = ask(Dialect::Openai, streamed(&format!("{HELLO}{STOP}data: [DONE]\n\n"))).await;
    let Some(Ok(ModelEvent::Started { response_id, headers })) = events.first() else { panic!("a start") };
    assert_eq!(response_id.as_deref(), Some("r"));
    assert_eq!(headers["x-request-id"], "req-7");
    assert_eq!(headers["x-ratelimit-remaining-requests"], "3");
    assert!(is_finished(&events));
}

#[tokio::test]
async fn harness_n10_the_key_goes_into_its_header_only_and_never_into_an_error() {
    let echo = format!("{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY}\"}}}}");
    let server = serve(vec![canned("401 Unauthorized", &echo)]).await;
    let provider = provider(Dialect::Openai, &server.base);
    let request = request(vec![user("hello")]);
    let events: Vec<_> = provider.stream(&request).collect().await;
    let error = events[0].as_ref().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Auth, "Incorrect API key provided: [secret]"));
    assert!(!format!("{provider:?}").contains(KEY));
    let seen = server.seen.lock().unwrap().concat();
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions"));
    assert_eq!(seen.matches(KEY).count(), 1);
    assert!(head.contains(&format!("authorization: Bearer {KEY}")) && !body.contains(KEY));
}

#[tokio::test]
async fn the_anthropic_address_key_and_version() {
    let server =
        serve(vec![canned("529 Overloaded", r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#)]).await;
    let provider = provider(Dialect::Anthropic, &server.base);
    let events: Vec<_> = provider.stream(&request(vec![user("hello")])).collect().await;
    assert_eq!(events[0].as_ref().unwrap_err().kind, ErrorKind::Overloaded);
    let seen = server.seen.lock().unwrap().concat();
    assert!(seen.starts_with("POST /v1/messages "), "a base that ends with /v1 is not doubled");
    assert!(seen.contains("anthropic-version: 2023-06-01") && seen.contains(&format!("x-api-key: {KEY}")));
}

#[tokio::test]
async fn harness_f3_the_wait_that_a_server_asks_for_is_told() {
    let answer = canned("429 Too Many Requests\r\nretry-after: 400\r\nrequest-id: req-9", r#"{"error":{"message":"slow down"}}"#);
    let error = error(answer).await;
    assert_eq!((error.kind, error.retry_after, error.phase), (ErrorKind::RateLimited, Some(Duration::from_secs(400)), Phase::Headers));
    assert_eq!(error.request_id.as_deref(), Some("req-9"));
}

#[tokio::test]
async fn harness_w3_a_whole_completion_in_place_of_a_stream() {
    let events = ask(Dialect::Openai, canned("200 OK\r\ncontent-type: application/json", COMPLETION)).await;
    assert_eq!(said(&events), "whole");
    assert!(is_finished(&events));
    let message = r#"{"id":"m","type":"message","content":[{"type":"text","text":"whole"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}"#;
    let events = ask(Dialect::Anthropic, canned("200 OK\r\ncontent-type: application/json", message)).await;
    assert_eq!(said(&events), "whole");
    assert!(is_finished(&events));
    let stream = format!("{HELLO}{STOP}data: [DONE]");
    let events = ask(Dialect::Openai, canned("200 OK\r\ncontent-type: application/json", &stream)).await;
    assert!(said(&events) == "hello" && is_finished(&events), "a stream under a false name");
}

#[tokio::test]
async fn harness_w3_an_error_object_or_a_page_with_status_200() {
    let json = canned("200 OK\r\ncontent-type: application/json", r#"{"error":{"code":502,"message":"bad upstream"}}"#);
    assert_eq!(error(json).await.kind, ErrorKind::Server);
    let page = error(canned("200 OK\r\ncontent-type: text/html", "<html><title>Log in</title></html>")).await;
    assert_eq!(page.kind, ErrorKind::Protocol);
    assert!(page.message.contains("Log in"));
}

#[tokio::test]
async fn harness_s3_a_cut_is_an_error_unless_all_was_said() {
    let cut = error(streamed(HELLO)).await;
    assert_eq!((cut.kind, cut.phase), (ErrorKind::Network, Phase::MidStream));
    let unmarked = ask(Dialect::Openai, streamed(&format!("{HELLO}{STOP}"))).await;
    assert!(is_finished(&unmarked));
}

#[tokio::test]
async fn harness_w10_a_cut_chunked_body_is_a_cut() {
    let head = "200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
    let body = format!("{:x}\r\n{HELLO}\r\nff\r\ndata: {{", HELLO.len());
    let cut = error(canned(head, &body)).await;
    assert_eq!((cut.kind, cut.phase), (ErrorKind::Network, Phase::MidStream));
}

#[tokio::test]
async fn harness_f1_silence_before_headers_before_and_within_the_answer() {
    let held = |bytes: &str| Canned { bytes: bytes.into(), hold: true };
    let headers = error(held("")).await;
    assert_eq!((headers.kind, headers.phase), (ErrorKind::Timeout, Phase::Headers));
    let head = streamed("").bytes.replace("connection: close\r\n", "");
    let first = error(held(&head)).await;
    assert_eq!((first.kind, first.phase), (ErrorKind::Timeout, Phase::BeforeFirstToken));
    let middle = error(held(&format!("{head}{HELLO}"))).await;
    assert_eq!((middle.kind, middle.phase), (ErrorKind::Timeout, Phase::MidStream));
    let done = ask(Dialect::Openai, held(&format!("{head}{HELLO}{STOP}"))).await;
    assert!(is_finished(&done), "all was said; only the marker is missing");
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let events: Vec<_> = provider(Dialect::Openai, &base).stream(&request(vec![user("hello")])).collect().await;
    let error = events[0].as_ref().unwrap_err();
    assert_eq!((error.kind, error.phase), (ErrorKind::Network, Phase::Connect));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = serve(vec![canned("307 Moved\r\nlocation: /elsewhere", "")]).await;
    let provider = provider(Dialect::Openai, &server.base);
    let events: Vec<_> = provider.stream(&request(vec![user("hello")])).collect().await;
    assert_eq!(events[0].as_ref().unwrap_err().status, Some(307));
    assert_eq!(server.seen.lock().unwrap().len(), 1, "the key goes nowhere else");
}

#[tokio::test]
async fn harness_w9_a_request_that_is_too_large_is_not_sent() {
    let server = serve(vec![streamed("")]).await;
    let provider = provider(Dialect::Openai, &server.base);
    let events: Vec<_> = provider.stream(&request(vec![user(&"x".repeat(4096))])).collect().await;
    assert_eq!(events[0].as_ref().unwrap_err().kind, ErrorKind::ContextTooLong);
    assert!(server.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn harness_k3_dropping_a_stream_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = provider(Dialect::Openai, &format!("http://{}/v1", listener.local_addr().unwrap()));
    let request = request(vec![user("hello")]);
    let mut stream = provider.stream(&request);
    let answering = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        let said = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
        socket.write_all(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{said}").as_bytes()).await.unwrap();
        socket
    };
    let (mut socket, first) = tokio::join!(answering, futures_util::StreamExt::next(&mut stream));
    first.unwrap().unwrap();
    drop(stream);
    assert!(matches!(socket.read(&mut [0; 64]).await, Ok(0) | Err(_)));
}
