//! The real Dovecot and Postfix that `tests/run` starts, or a pair of its own for a test that stops them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::{Arrived, Maildir};

static ACCOUNTS: AtomicUsize = AtomicUsize::new(0);

/// A running pair of servers.
pub struct MailServers {
    settings: BTreeMap<String, String>,
    /// Set when they are this test's own.
    folder: Option<TempDir>,
}

/// A mailbox on them that no other test uses.
pub struct Account {
    local: String,
}

/// A domain elsewhere, whose mail lands on the same disk.
pub struct Domain {
    root: PathBuf,
}

impl Domain {
    /// Waits until each of these has a letter, and gives all that they have.
    #[track_caller]
    pub fn wait_for_each(&self, locals: impl Iterator<Item = String>) -> Vec<Arrived> {
        let inboxes: Vec<Maildir> = locals.map(|local| Maildir::of_server(self.root.join(local).join("Maildir"))).collect();
        for inbox in &inboxes {
            inbox.wait_for(1);
        }
        inboxes.iter().flat_map(Maildir::letters).collect()
    }
}

impl MailServers {
    /// The shared servers; none when the suite runs without them, which it then says.
    pub fn shared() -> Option<MailServers> {
        let Ok(path) = std::env::var("DUTIFUL_TEST_MAIL") else {
            eprintln!("skipped: DUTIFUL_TEST_MAIL names no running mail servers (bash tests/run starts them)");
            return None;
        };
        Some(MailServers { settings: read_settings(Path::new(&path)), folder: None })
    }

    /// A pair that this test may stop and start; none when there are no shared ones.
    pub fn own() -> Option<MailServers> {
        let shared = MailServers::shared()?;
        let folder = tempfile::Builder::new().prefix("dutiful-test.").tempdir_in("/tmp").unwrap();
        control(&shared.settings["CONTROL"], "up", folder.path(), None);
        Some(MailServers { settings: read_settings(&folder.path().join("settings")), folder: Some(folder) })
    }

    /// The port of `IMAP`, `IMAPS`, `MX`, `SUBMISSION` or `SUBMISSIONS`.
    pub fn port(&self, name: &str) -> u16 {
        self.settings[&format!("{name}_PORT")].parse().unwrap()
    }

    /// The certificate to trust.
    pub fn ca_file(&self) -> &str {
        &self.settings["CA_FILE"]
    }

    /// A mailbox for this test alone.
    pub fn account(&self, word: &str) -> Account {
        Account { local: format!("{word}-{}-{}", std::process::id(), ACCOUNTS.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Its folder on the server's disk.
    pub fn inbox(&self, account: &Account) -> Maildir {
        self.inbox_of(&account.address())
    }

    /// The folder of any address.
    pub fn inbox_of(&self, address: &str) -> Maildir {
        let (local, domain) = address.split_once('@').unwrap();
        Maildir::of_server(PathBuf::from(&self.settings["MAIL_ROOT"]).join(domain).join(local).join("Maildir"))
    }

    /// Another folder of it, by its name on the disk.
    pub fn folder(&self, account: &Account, name: &str) -> Maildir {
        Maildir::of_server(
            PathBuf::from(&self.settings["MAIL_ROOT"]).join("example.test").join(&account.local).join(format!("Maildir/.{name}")),
        )
    }

    /// Every mailbox of a domain elsewhere.
    pub fn domain(&self, name: &str) -> Domain {
        let root = PathBuf::from(&self.settings["MAIL_ROOT"]).join(name);
        Domain { root }
    }

    /// Hands a letter in as a stranger's server does.
    pub fn send(&self, from: &str, to: &str, letter: &str) {
        let mut session = Smtp::connect(self.port("MX"));
        session.expect("220");
        for command in ["EHLO stranger.example".to_owned(), format!("MAIL FROM:<{from}>"), format!("RCPT TO:<{to}>")] {
            session.say(&command);
            session.expect("250");
        }
        session.say("DATA");
        session.expect("354");
        let lines = letter.lines().map(|line| if line.starts_with('.') { format!(".{line}\r\n") } else { format!("{line}\r\n") });
        session.say(&(lines.collect::<String>() + "."));
        session.expect("250");
        session.say("QUIT");
        session.expect("221");
    }

    /// `stop-imap`, `start-imap`, `cut-imap`, `stop-smtp`, `start-smtp` or `flush`, of this test's own servers.
    pub fn control(&self, word: &str) {
        control(&self.settings["CONTROL"], word, self.own_folder(), None);
    }

    /// Gives the account's INBOX another UIDVALIDITY, while the IMAP server is stopped.
    pub fn change_uidvalidity(&self, account: &Account) {
        control(&self.settings["CONTROL"], "new-uidvalidity", self.own_folder(), Some(&account.local));
    }

    /// How many lines of the IMAP server's log hold all of these texts.
    pub fn imap_log_lines(&self, texts: &[&str]) -> usize {
        let log = fs::read(Path::new(&self.settings["DIR"]).join("log/dovecot.log")).unwrap();
        String::from_utf8_lossy(&log).lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
    }

    fn own_folder(&self) -> &Path {
        self.folder.as_ref().expect("only a test's own servers are stopped and started").path()
    }
}

impl Drop for MailServers {
    fn drop(&mut self) {
        if self.folder.is_some() {
            self.control("down");
        }
    }
}

impl Account {
    /// Its address, which is its login name too.
    pub fn address(&self) -> String {
        format!("{}@example.test", self.local)
    }
}

fn read_settings(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn control(script: &str, word: &str, folder: &Path, account: Option<&str>) {
    let mut words = script.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).arg(word).arg(folder).args(account).status().unwrap();
    assert!(status.success(), "{script} {word} {} ended with {status}", folder.display());
}

/// As much SMTP as a stranger's server needs to hand in one letter.
struct Smtp {
    stream: BufReader<TcpStream>,
}

impl Smtp {
    fn connect(port: u16) -> Smtp {
        Smtp { stream: BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()) }
    }

    fn say(&mut self, line: &str) {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    #[track_caller]
    fn expect(&mut self, code: &str) {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            assert!(line.starts_with(code), "the server said {line:?} where {code} was expected");
            if line.get(3..4) == Some(" ") {
                return;
            }
        }
    }
}
