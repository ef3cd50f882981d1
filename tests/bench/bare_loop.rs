//! The least that answers mail: waits by IDLE, fetches, asks the model, sends over one kept connection. No memory, no
//! tools, no retries, no record; a crash loses or repeats. What a feature costs is what stands over this.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_imap::Session;
use async_imap::types::UnsolicitedResponse;
use futures_util::StreamExt as _;
use lettre::Message;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::extension::ClientId;
use mail_parser::MessageParser;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The argument that makes this program the bare loop.
pub const WORD: &str = "bare-loop";

/// Runs until it is killed.
pub fn run(words: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Box::pin(answer_mail(words)));
}

async fn answer_mail(words: &[String]) {
    let [address, imaps, submissions, ca_file, base_url] = words else { panic!("address, two ports, certificate, base url") };
    let ca = std::fs::read(ca_file).unwrap();
    let tls = Arc::new(dutiful::tls::client_config(Some(&ca)).unwrap());
    let model = reqwest::Client::builder().tls_backend_preconfigured(tls.as_ref().clone()).build().unwrap();
    let mut sending = log_in_to_send(address, secured(submissions, &tls).await).await;
    let mut client = async_imap::Client::new(secured(imaps, &tls).await);
    client.read_response().await.unwrap();
    let mut session = client.login(address, "secret").await.map_err(|(error, _)| error).unwrap();
    let mut next = session.select("INBOX").await.unwrap().uid_next.unwrap_or(1);
    sd_notify::notify(&[sd_notify::NotifyState::Ready]).unwrap();
    loop {
        for letter in fetch(&mut session, &mut next).await {
            let parsed = MessageParser::default().parse(&letter).unwrap();
            let question = parsed.body_text(0).unwrap_or_default();
            let reply = ask(&model, base_url, &question).await;
            let to = parsed.from().and_then(|from| from.first()).and_then(|from| from.address()).unwrap();
            let about = format!("<{}>", parsed.message_id().unwrap());
            let answer = Message::builder()
                .from(address.parse().unwrap())
                .to(to.parse().unwrap())
                .subject(format!("Re: {}", parsed.subject().unwrap_or_default()))
                .in_reply_to(about.clone())
                .references(about)
                .message_id(None)
                .body(reply)
                .unwrap();
            sending.send(answer.envelope(), &answer.formatted()).await.unwrap();
        }
        if !has_news(&session) {
            session = wait(session).await;
        }
    }
}

async fn secured(port: &str, tls: &Arc<rustls::ClientConfig>) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    TlsConnector::from(Arc::clone(tls)).connect("localhost".try_into().unwrap(), tcp).await.unwrap()
}

async fn log_in_to_send(address: &str, stream: TlsStream<TcpStream>) -> AsyncSmtpConnection {
    let hello = ClientId::Domain("example.test".to_owned());
    let mut connection = AsyncSmtpConnection::connect_with_transport(Box::new(Stream(stream)), &hello).await.unwrap();
    let credentials = Credentials::new(address.to_owned(), "secret".to_owned());
    connection.auth(&[Mechanism::Plain], &credentials).await.unwrap();
    connection
}

async fn fetch(session: &mut Session<TlsStream<TcpStream>>, next: &mut u32) -> Vec<Vec<u8>> {
    let mut fetched = session.uid_fetch(format!("{next}:*"), "(UID BODY.PEEK[])").await.unwrap();
    let mut letters = Vec::new();
    let mut last = *next;
    while let Some(letter) = fetched.next().await {
        let letter = letter.unwrap();
        // `n:*` gives the last letter when n is beyond it.
        if let Some((uid, body)) = letter.uid.filter(|uid| *uid >= *next).zip(letter.body()) {
            letters.push(body.to_vec());
            last = last.max(uid + 1);
        }
    }
    *next = last;
    letters
}

/// Whether the server told of a new letter while something else was asked.
fn has_news(session: &Session<TlsStream<TcpStream>>) -> bool {
    let mut news = false;
    while let Ok(said) = session.unsolicited_responses.try_recv() {
        news |= matches!(said, UnsolicitedResponse::Exists(_));
    }
    news
}

async fn wait(session: Session<TlsStream<TcpStream>>) -> Session<TlsStream<TcpStream>> {
    let mut idle = session.idle();
    idle.init().await.unwrap();
    let (woken, _stop) = idle.wait_with_timeout(Duration::from_secs(29 * 60));
    woken.await.unwrap();
    idle.done().await.unwrap()
}

async fn ask(model: &reqwest::Client, base_url: &str, question: &str) -> String {
    let request = json!({ "model": "scripted-1", "stream": true, "messages": [
        { "role": "system", "content": "You answer the letters of an ice cream shop. Be brief and friendly." },
        { "role": "user", "content": question },
    ] });
    let asked = model.post(format!("{base_url}/chat/completions")).header("content-type", "application/json");
    let mut response = asked.body(request.to_string()).send().await.unwrap();
    let mut stream = Vec::new();
    while let Some(part) = response.chunk().await.unwrap() {
        stream.extend_from_slice(&part);
    }
    let stream = String::from_utf8(stream).unwrap();
    let events = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    events
        .filter_map(|data| serde_json::from_str::<Value>(data).unwrap()["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect()
}

/// A TLS connection as lettre wants one.
#[derive(Debug)]
struct Stream(TlsStream<TcpStream>);

impl AsyncTokioStream for Stream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.peer_addr()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
