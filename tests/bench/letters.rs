//! Letters in, answers out: written as strangers' servers do, seen where the senders' mail lands.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lettre::address::Envelope;
use lettre::transport::smtp::client::SmtpConnection;
use lettre::transport::smtp::extension::ClientId;

use super::servers::Servers;

const PATIENCE: Duration = Duration::from_secs(180);

/// People who write, each with a mailbox.
pub struct Senders {
    addresses: Vec<String>,
    mailboxes: Vec<PathBuf>,
}

/// What came of many letters.
pub struct Answered {
    /// To the last answer's arrival.
    pub took: Duration,
    /// Letters with exactly one answer that names them in In-Reply-To, in their sender's mailbox.
    pub once: usize,
}

impl Senders {
    /// So many, whose mailboxes do not exist yet.
    pub fn new(servers: &Servers, count: usize) -> Senders {
        let addresses: Vec<String> = (0..count).map(|_| servers.address("sender")).collect();
        let mailboxes = addresses.iter().map(|address| servers.mailbox(address)).collect();
        Senders { addresses, mailboxes }
    }

    /// One letter, and the time from its acceptance by the server to its answer in the sender's mailbox.
    pub fn ask(&self, server: &mut Server, to: &str, number: usize) -> Duration {
        let before = self.arrived();
        server.send(&self.addresses[0], to, number);
        let sent = Instant::now();
        while self.arrived() == before {
            assert!(sent.elapsed() < PATIENCE, "letter {number} to {to} got no answer");
            thread::sleep(Duration::from_millis(1));
        }
        sent.elapsed()
    }

    /// So many letters over ten connections at once, and their answers.
    pub fn ask_at_once(&self, servers: &Servers, to: &str, count: usize) -> Answered {
        let began = Instant::now();
        self.write(servers, to, count);
        self.answers(began, count)
    }

    /// So many letters that all lie in the mailbox before `go_on` is called, and their answers from then on.
    pub fn ask_beforehand(&self, servers: &Servers, to: &str, count: usize, go_on: impl FnOnce()) -> Answered {
        let mailbox = servers.mailbox(to);
        let before = waiting(&mailbox);
        let began = Instant::now();
        self.write(servers, to, count);
        while waiting(&mailbox) < before + count {
            assert!(began.elapsed() < PATIENCE, "the letters did not arrive");
            thread::sleep(Duration::from_millis(20));
        }
        let began = Instant::now();
        go_on();
        self.answers(began, count)
    }

    fn write(&self, servers: &Servers, to: &str, count: usize) {
        thread::scope(|scope| {
            for start in 0..10 {
                scope.spawn(move || {
                    let mut server = Server::connect(servers);
                    for number in (start..count).step_by(10) {
                        server.send(&self.addresses[number % self.addresses.len()], to, number);
                    }
                });
            }
        });
    }

    fn answers(&self, began: Instant, count: usize) -> Answered {
        while self.arrived() < count && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        let took = began.elapsed();
        // An answer too many would come right after.
        thread::sleep(Duration::from_secs(2));
        Answered { took, once: self.answered_once(count) }
    }

    fn arrived(&self) -> usize {
        self.mailboxes.iter().map(|mailbox| waiting(mailbox)).sum()
    }

    fn answered_once(&self, count: usize) -> usize {
        let mut answers: BTreeMap<(usize, String), usize> = BTreeMap::new();
        for (sender, mailbox) in self.mailboxes.iter().enumerate() {
            for entry in fs::read_dir(mailbox.join("new")).into_iter().flatten() {
                let letter = fs::read(entry.unwrap().path()).unwrap();
                let parsed = mail_parser::MessageParser::default().parse(&letter).unwrap();
                let about = parsed.in_reply_to().as_text().unwrap_or_default().to_owned();
                *answers.entry((sender, about)).or_default() += 1;
            }
        }
        let answers_to = |number: usize| {
            let sender = number % self.addresses.len();
            answers.get(&(sender, message_id(&self.addresses[sender], number))).copied().unwrap_or(0)
        };
        (0..count).filter(|number| answers_to(*number) == 1).count()
    }
}

/// Letters in a mailbox, whether its owner's program was told of them or not.
fn waiting(mailbox: &Path) -> usize {
    ["new", "cur"].iter().filter_map(|folder| fs::read_dir(mailbox.join(folder)).ok()).map(Iterator::count).sum()
}

/// A stranger's server's connection to ours.
pub struct Server {
    connection: SmtpConnection,
}

impl Server {
    /// Connects.
    pub fn connect(servers: &Servers) -> Server {
        let hello = ClientId::Domain("stranger.example".to_owned());
        let connection = SmtpConnection::connect(("127.0.0.1", servers.port("MX")), Some(PATIENCE), &hello, None, None).unwrap();
        Server { connection }
    }

    fn send(&mut self, from: &str, to: &str, number: usize) {
        let letter = format!(
            "From: Alice <{from}>\r\nTo: <{to}>\r\nSubject: Question {number}\r\nMessage-ID: <{}>\r\n\
             Date: Mon, 30 Nov 2026 12:00:00 +0000\r\n\r\nHello, do you have pistachio today?\r\nAlice\r\n",
            message_id(from, number)
        );
        let envelope = Envelope::new(Some(from.parse().unwrap()), vec![to.parse().unwrap()]).unwrap();
        self.connection.send(&envelope, letter.as_bytes()).unwrap();
    }
}

fn message_id(from: &str, number: usize) -> String {
    format!("question-{number}.{from}")
}
