//! A model that answers every request with the same stream, at once or after a fixed time, and counts. It looks at no
//! content: what it costs is taken from the programs that are measured.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Each piece of the streamed answer.
const PIECES: [&str; 8] = [
    "Hello,\\n\\n",
    "thank you for writing. ",
    "Yes, we do have **pistachio** today, ",
    "and three more kinds with nuts: ",
    "hazelnut, walnut and almond. ",
    "The shop is open until six, ",
    "and you can order a tub by replying to this letter.\\n\\n",
    "See you soon!",
];

/// A running model; it ends with the process.
pub struct Model {
    address: SocketAddr,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    requests: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
    smallest: Mutex<Option<Vec<u8>>>,
}

impl Model {
    /// Starts one that thinks so long about each answer.
    pub fn start(thinks: Duration) -> Model {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let counted = Arc::new(Counted::default());
        let counts = Arc::clone(&counted);
        let answer = Arc::new(answer());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, counts, answer) = (stream.unwrap(), Arc::clone(&counts), Arc::clone(&answer));
                // A program that ends closes its connection, in the middle of an answer or not.
                thread::spawn(move || serve(stream, &counts, &answer, thinks).unwrap_or_default());
            }
        });
        Model { address, counted }
    }

    /// `base_url` of the settings.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.counted.requests.load(Ordering::Relaxed)
    }

    /// The most requests that waited for their answers at one time.
    pub fn most_in_flight(&self) -> u64 {
        self.counted.most_in_flight.load(Ordering::Relaxed)
    }

    /// The smallest request body so far: a thread's first letter, without a history.
    pub fn smallest_request(&self) -> Vec<u8> {
        self.counted.smallest.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }
}

fn answer() -> Vec<u8> {
    let chunk = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"scripted-1\",\
             \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let mut events = chunk("{\"role\":\"assistant\",\"content\":\"\"}", "null");
    for piece in PIECES {
        events += &chunk(&format!("{{\"content\":\"{piece}\"}}"), "null");
    }
    events += &chunk("{}", "\"stop\"");
    events += "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[],\
               \"usage\":{\"prompt_tokens\":100,\"completion_tokens\":40,\"total_tokens\":140}}\n\ndata: [DONE]\n\n";
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{events}", events.len()).into_bytes()
}

fn serve(stream: TcpStream, counts: &Counted, answer: &[u8], thinks: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(body) = read_request(&mut reader)? {
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let waiting = counts.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most_in_flight.fetch_max(waiting, Ordering::SeqCst);
        {
            let mut smallest = counts.smallest.lock().unwrap_or_else(PoisonError::into_inner);
            if smallest.as_ref().is_none_or(|found| body.len() < found.len()) {
                *smallest = Some(body);
            }
        }
        if !thinks.is_zero() {
            thread::sleep(thinks);
        }
        counts.in_flight.fetch_sub(1, Ordering::SeqCst);
        reader.get_mut().write_all(answer)?;
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<u8>>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().unwrap_or(0),
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}
