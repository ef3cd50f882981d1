//! A scripted model on loopback, in the OpenAI dialect; it keeps every request.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// One answer.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// A text and its finish reason.
    Text(String, &'static str),
    /// Calls (name, arguments as written) and their finish reason.
    Calls(Vec<(String, String)>, &'static str),
    /// A text beside calls without arguments.
    Both(&'static str, Vec<&'static str>),
    /// An HTTP error without a word.
    Status(u16),
    /// An HTTP error with its body.
    Error(u16, &'static str),
    /// Nothing, for as long as the connection is held.
    Silence,
}

/// The server; ends with the test.
pub(crate) struct ModelServer {
    pub(crate) base: String,
    requests: Arc<Mutex<Vec<Value>>>,
    /// One permit for each request that came.
    came: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

impl ModelServer {
    /// Gives the answers one after the other, the last one forever.
    pub(crate) async fn start(answers: Vec<Said>) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let (requests, came) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let (log, arrived) = (Arc::clone(&requests), Arc::clone(&came));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut held = Vec::new();
            for turn in 0.. {
                let (mut socket, _) = listener.accept().await.unwrap();
                let body = read_body(&mut socket).await;
                log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let bytes = bytes_of(&answers[turn.min(answers.len() - 1)], turn);
                arrived.add_permits(1);
                match bytes {
                    Some(bytes) => socket.write_all(bytes.as_bytes()).await.unwrap(),
                    None => held.push(socket),
                }
            }
        });
        ModelServer { base, requests, came, _tasks: tasks }
    }

    /// Every request's body so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// Resolves once for each request, when it has come whole.
    pub(crate) async fn asked(&self) {
        self.came.acquire().await.unwrap().forget();
    }
}

async fn read_body(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let fields = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length = fields.lines().find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned)).unwrap();
            if bytes.len() >= head + 4 + length.parse::<usize>().unwrap() {
                return bytes.split_off(head + 4);
            }
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the request was cut");
    }
}

fn bytes_of(said: &Said, turn: usize) -> Option<String> {
    let (text, calls, finish) = match said {
        Said::Text(text, finish) => (text.clone(), Vec::new(), *finish),
        Said::Calls(calls, finish) => (String::new(), calls.clone(), *finish),
        Said::Both(text, names) => {
            let calls = names.iter().map(|name| ((*name).to_owned(), "{}".to_owned())).collect();
            ((*text).to_owned(), calls, "tool_calls")
        }
        Said::Status(status) => return Some(format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")),
        Said::Error(status, body) => {
            return Some(format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}"));
        }
        Said::Silence => return None,
    };
    let calls: Vec<Value> = (0..)
        .zip(calls)
        .map(|(index, (name, arguments))| {
            let id = format!("call_{turn}_{index}");
            json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        })
        .collect();
    let mut delta = json!({ "content": text });
    if !calls.is_empty() {
        delta["tool_calls"] = json!(calls);
    }
    let said = json!({ "id": format!("r{turn}"), "choices": [{ "delta": delta }] });
    let end = json!({
        "choices": [{ "delta": {}, "finish_reason": finish }], "usage": { "prompt_tokens": 10, "completion_tokens": 5 }
    });
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    Some(format!("{head}data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
}
