//! A scripted model at the wire: it speaks both dialects over plain HTTP on loopback, and refuses what a real provider
//! would refuse. A refusal fails the test that caused it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::model_wires::{self, Refusal};

const KEY: &str = "test-key";

/// The dialect that a server's requests come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// `/v1/chat/completions`.
    Openai,
    /// `/v1/messages`.
    Anthropic,
}

/// What the scripted model does with one request.
#[derive(Debug, Clone)]
pub enum Said {
    /// Ends its turn with a text.
    Text(String),
    /// Asks for tools: names and arguments.
    Calls(Vec<(String, Value)>),
    /// Says something and asks for one tool.
    TextAndCall(String, String, Value),
    /// Fails at the wire, with this status.
    Status(u16),
}

/// One accepted request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its place among the requests to this server, from 0.
    pub number: usize,
    /// The request's body.
    pub body: Value,
}

type Brain = dyn Fn(&Asked) -> Said + Send + Sync;

/// A running server; ends when dropped.
pub struct ModelServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    wire: Wire,
    brain: Box<Brain>,
    asked: Mutex<Vec<Asked>>,
    refused: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Wire {
    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Wire::Openai => "openai",
            Wire::Anthropic => "anthropic",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Wire::Openai => "/v1/chat/completions",
            Wire::Anthropic => "/v1/messages",
        }
    }
}

impl Said {
    /// Ends the turn with a text.
    pub fn text(text: impl Into<String>) -> Said {
        Said::Text(text.into())
    }

    /// Asks for one tool.
    pub fn call(name: &str, arguments: Value) -> Said {
        Said::Calls(vec![(name.to_owned(), arguments)])
    }
}

impl Asked {
    /// Whether it may not ask for tools this time.
    pub fn is_closing(&self) -> bool {
        self.body["tool_choice"] == "none" || self.body["tool_choice"]["type"] == "none"
    }

    /// Everything that the model was shown, as one text.
    pub fn everything(&self) -> String {
        self.body.to_string()
    }
}

impl ModelServer {
    /// Starts one whose every reply is what `brain` says to the request. The brain may block.
    pub fn start(wire: Wire, brain: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> ModelServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            wire,
            brain: Box::new(brain),
            asked: Mutex::default(),
            refused: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        ModelServer { shared, address, accepting: Some(accepting) }
    }

    /// Its dialect.
    pub fn wire(&self) -> Wire {
        self.shared.wire
    }

    /// The `base_url` of a model's settings.
    pub fn base_url(&self) -> String {
        match self.shared.wire {
            Wire::Openai => format!("http://{}/v1", self.address),
            Wire::Anthropic => format!("http://{}", self.address),
        }
    }

    /// The key that it wants to see.
    pub fn key(&self) -> &'static str {
        KEY
    }

    /// The accepted requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then sees that it has ended.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            accepting.join().expect("the accepting thread does not panic");
        }
        let refused = self.shared.refused.lock().unwrap();
        assert!(refused.is_empty() || thread::panicking(), "a real provider would have refused:\n{}", refused.join("\n"));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(stream), shared) = (stream, Arc::clone(shared)) else { continue };
        // A client that is killed in the middle of a reply is what some tests are about.
        thread::spawn(move || serve(stream, &shared).unwrap_or_else(|error| eprintln!("model server: {error}")));
    }
}

struct Request {
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        let stream = reader.get_mut();
        match examine(&request, shared) {
            Err(refusal) => {
                shared.refused.lock().unwrap().push(refusal.message.clone());
                respond(stream, refusal.status, "application/json", &model_wires::error(&refusal.message))?;
            }
            Ok(asked) => match (shared.brain)(&asked) {
                Said::Status(status) => respond(stream, status, "application/json", &model_wires::error("scripted failure"))?,
                said => stream_reply(stream, &model_wires::reply(shared.wire, &asked, &said))?,
            },
        }
    }
    reader.get_ref().shutdown(Shutdown::Both)
}

fn examine(request: &Request, shared: &Shared) -> Result<Asked, Refusal> {
    let (wire, headers) = (shared.wire, &request.headers);
    if request.path != wire.path() {
        return Err(Refusal { status: 404, message: format!("no such path: {}", request.path) });
    }
    let key = match wire {
        Wire::Openai => headers.get("authorization").and_then(|value| value.strip_prefix("Bearer ")),
        Wire::Anthropic => headers.get("x-api-key").map(String::as_str),
    };
    if key != Some(KEY) {
        return Err(Refusal { status: 401, message: "the key is wrong or missing".to_owned() });
    }
    if wire == Wire::Anthropic && !headers.contains_key("anthropic-version") {
        return Err(Refusal::bad("anthropic-version: header is required"));
    }
    let body = serde_json::from_slice(&request.body).map_err(|error| Refusal::bad(&format!("the body is not JSON: {error}")))?;
    model_wires::examine(wire, &body)?;
    let mut all = shared.asked.lock().unwrap();
    let asked = Asked { number: all.len(), body };
    all.push(asked.clone());
    Ok(asked)
}

fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { path, headers, body }))
}

fn respond(stream: &mut TcpStream, status: u16, kind: &str, body: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Each event a chunk of its own, as a provider sends them.
fn stream_reply(stream: &mut TcpStream, events: &[String]) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for event in events {
        write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
    }
    stream.write_all(b"0\r\n\r\n")
}
