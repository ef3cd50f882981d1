//! A scripted IMAP server on loopback for tests: it keeps a folder, tells of letters in IDLE, and cuts,
//! refuses or lies where it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Account, Login};
use crate::config::{Secret, Security, ServerAddress};
use crate::gateway::receive::Timing;

/// One letter of the folder.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Kept {
    pub(in crate::gateway) raw: Vec<u8>,
    pub(in crate::gateway) flags: BTreeSet<String>,
    pub(in crate::gateway) date: String,
}

/// The server's state and its faults.
#[derive(Debug)]
pub(in crate::gateway) struct State {
    pub(in crate::gateway) uidvalidity: u32,
    pub(in crate::gateway) uidnext: u32,
    pub(in crate::gateway) letters: BTreeMap<u32, Kept>,
    /// What was appended, folder and bytes.
    pub(in crate::gateway) appended: Vec<(String, Vec<u8>)>,
    /// Each command, without its tag.
    pub(in crate::gateway) commands: Vec<String>,
    pub(in crate::gateway) capabilities: &'static str,
    pub(in crate::gateway) greeting: &'static str,
    pub(in crate::gateway) hides_uidnext: bool,
    pub(in crate::gateway) refuses_login: bool,
    pub(in crate::gateway) refuses_idle: bool,
    pub(in crate::gateway) refuses_fetch: bool,
    /// A flag change of another client comes within each FETCH.
    pub(in crate::gateway) stray_fetches: bool,
    /// These UIDs are announced, but gone when they are fetched.
    pub(in crate::gateway) gone: BTreeSet<u32>,
    /// The body of this UID is sent as garbage.
    pub(in crate::gateway) garbage: Option<u32>,
    /// Comes between SELECT and the `+` of the next IDLE.
    pub(in crate::gateway) in_the_gap: Option<Vec<u8>>,
    /// The next connections are cut after so many bytes of ours.
    pub(in crate::gateway) cut_after: Vec<usize>,
    pub(in crate::gateway) idling: u32,
    pub(in crate::gateway) connections: u32,
}

impl State {
    /// Puts a letter into the folder.
    pub(in crate::gateway) fn put(&mut self, raw: &[u8]) -> u32 {
        let uid = self.uidnext;
        self.uidnext += 1;
        let date = crate::clock::now().format("%d-%b-%Y %H:%M:%S +0000").to_string();
        self.letters.insert(uid, Kept { raw: raw.to_vec(), flags: BTreeSet::new(), date });
        uid
    }
}

/// The server. Dropping it ends it.
#[derive(Debug)]
pub(in crate::gateway) struct Peer {
    pub(in crate::gateway) port: u16,
    state: Arc<watch::Sender<State>>,
    _tasks: JoinSet<()>,
}

impl Peer {
    pub(in crate::gateway) async fn start() -> Peer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(watch::Sender::new(State {
            uidvalidity: 7,
            uidnext: 1,
            letters: BTreeMap::new(),
            appended: Vec::new(),
            commands: Vec::new(),
            capabilities: "IMAP4rev1 IDLE MOVE UIDPLUS SPECIAL-USE",
            greeting: "* OK ready\r\n",
            hides_uidnext: false,
            refuses_login: false,
            refuses_idle: false,
            refuses_fetch: false,
            stray_fetches: false,
            gone: BTreeSet::new(),
            garbage: None,
            in_the_gap: None,
            cut_after: Vec::new(),
            idling: 0,
            connections: 0,
        }));
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                connections.spawn(Connection::serve(tcp, Arc::clone(&shared)));
            }
        });
        Peer { port, state, _tasks: tasks }
    }

    pub(in crate::gateway) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut result = None;
        self.state.send_modify(|state| result = Some(change(state)));
        result.unwrap()
    }

    pub(in crate::gateway) fn see<T>(&self, see: impl FnOnce(&State) -> T) -> T {
        see(&self.state.borrow())
    }

    /// Waits until the server is in some state.
    pub(in crate::gateway) async fn until(&self, holds: impl FnMut(&State) -> bool) {
        let mut changes = self.state.subscribe();
        tokio::time::timeout(Duration::from_secs(10), changes.wait_for(holds)).await.expect("in time").unwrap();
    }

    pub(in crate::gateway) fn server(&self) -> ServerAddress {
        ServerAddress { host: "127.0.0.1".to_owned(), port: self.port, security: Security::Plaintext }
    }

    pub(in crate::gateway) fn account(&self) -> Account {
        Account {
            server: self.server(),
            tls: Arc::new(crate::tls::client_config(None).unwrap()),
            username: "shop \"1\"".to_owned(),
            login: Login::Password(Secret::new("pass\\word".to_owned())),
            timing: quick(),
        }
    }
}

/// Waits short enough for tests.
pub(in crate::gateway) fn quick() -> Timing {
    let milliseconds = Duration::from_millis;
    Timing {
        reconnect: (milliseconds(5), milliseconds(20)),
        after_refused_login: (milliseconds(5), milliseconds(20)),
        logins: (100, milliseconds(10)),
        dial: milliseconds(2000),
        ..Timing::default()
    }
}

struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    state: Arc<watch::Sender<State>>,
    left: Option<usize>,
    known: usize,
}

impl Connection {
    async fn serve(tcp: TcpStream, state: Arc<watch::Sender<State>>) {
        tcp.set_nodelay(true).unwrap();
        let (reader, writer) = tcp.into_split();
        let mut left = None;
        state.send_modify(|state| {
            state.connections += 1;
            left = (!state.cut_after.is_empty()).then(|| state.cut_after.remove(0));
        });
        let mut connection = Connection { reader: BufReader::new(reader), writer, state, left, known: 0 };
        // The end of a connection, for whatever reason, is nothing to tell.
        drop(connection.talk().await);
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        let bytes = bytes.as_ref();
        if let Some(left) = &mut self.left {
            let now = bytes.len().min(*left);
            self.writer.write_all(&bytes[..now]).await?;
            *left -= now;
            if *left == 0 {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            return Ok(());
        }
        self.writer.write_all(bytes).await
    }

    async fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// An answer to a challenge; kept with the commands.
    async fn answer(&mut self) -> std::io::Result<()> {
        let line = self.line().await?;
        self.state.send_modify(|state| state.commands.push(line));
        Ok(())
    }

    async fn talk(&mut self) -> std::io::Result<()> {
        let greeting = self.state.borrow().greeting;
        self.send(greeting).await?;
        loop {
            let line = self.line().await?;
            let (tag, command) = line.split_once(' ').unwrap_or((&line, ""));
            self.state.send_modify(|state| state.commands.push(command.to_owned()));
            self.obey(tag, command).await?;
        }
    }

    async fn obey(&mut self, tag: &str, command: &str) -> std::io::Result<()> {
        let upper = command.to_ascii_uppercase();
        let verb = upper.strip_prefix("UID ").unwrap_or(&upper).split(' ').next().unwrap_or_default().to_owned();
        match verb.as_str() {
            "LOGIN" if self.state.borrow().refuses_login => {
                return self.send(format!("{tag} NO [AUTHENTICATIONFAILED] no\r\n")).await;
            }
            "AUTHENTICATE" => {
                self.send("+ \r\n").await?;
                self.answer().await?;
                if self.state.borrow().refuses_login {
                    // XOAUTH2 says why, and waits for an empty line (email A13).
                    self.send("+ eyJzdGF0dXMiOiI0MDAifQ==\r\n").await?;
                    self.answer().await?;
                    return self.send(format!("{tag} NO [AUTHENTICATIONFAILED] expired\r\n")).await;
                }
            }
            "CAPABILITY" => {
                let capabilities = self.state.borrow().capabilities;
                self.send(format!("* CAPABILITY {capabilities}\r\n")).await?;
            }
            "SELECT" | "EXAMINE" => self.select().await?,
            "STATUS" => {
                let uidnext = self.state.borrow().uidnext;
                self.send(format!("* STATUS \"INBOX\" (UIDNEXT {uidnext})\r\n")).await?;
            }
            "LIST" => self.send("* LIST (\\HasNoChildren) \".\" INBOX\r\n* LIST (\\Sent) \".\" \"Sent Items\"\r\n").await?,
            "SEARCH" => self.search(&upper).await?,
            "FETCH" if self.state.borrow().refuses_fetch => return self.send(format!("{tag} NO not now\r\n")).await,
            "FETCH" => self.fetch(&upper).await?,
            "STORE" => self.store(command),
            "MOVE" => {
                let set = command.split(' ').nth(2).unwrap_or_default().to_owned();
                self.state.send_modify(|state| state.letters.retain(|uid, _| !holds(&set, *uid, state.uidnext)));
            }
            "APPEND" => return self.append(tag, command).await,
            "IDLE" => return self.idle(tag).await,
            "LOGOUT" => self.send("* BYE see you\r\n").await?,
            _ => {}
        }
        self.send(format!("{tag} OK done\r\n")).await
    }

    async fn select(&mut self) -> std::io::Result<()> {
        let text = {
            let state = self.state.borrow();
            self.known = state.letters.len();
            let next = if state.hides_uidnext { String::new() } else { format!("* OK [UIDNEXT {}] next\r\n", state.uidnext) };
            format!(
                "* FLAGS (\\Seen \\Deleted)\r\n* OK [PERMANENTFLAGS (\\Seen \\Deleted \\*)] ok\r\n* {} EXISTS\r\n* 0 RECENT\r\n\
                 * OK [UIDVALIDITY {}] ok\r\n{next}",
                self.known, state.uidvalidity
            )
        };
        self.send(text).await
    }

    async fn search(&mut self, upper: &str) -> std::io::Result<()> {
        let text = {
            let state = self.state.borrow();
            let found: Vec<String> = if let Some(id) = upper.strip_prefix("UID SEARCH HEADER MESSAGE-ID ") {
                let id = id.trim_matches('"').to_ascii_lowercase();
                let appended = state.appended.iter().filter(|(_, raw)| String::from_utf8_lossy(raw).to_ascii_lowercase().contains(&id));
                appended.map(|_| "1".to_owned()).collect()
            } else {
                let set = upper.strip_prefix("UID SEARCH UID ").unwrap_or("1:*");
                state.letters.keys().filter(|uid| holds(set, **uid, state.uidnext)).map(u32::to_string).collect()
            };
            format!("* SEARCH {}\r\n", found.join(" ")).replace("SEARCH \r", "SEARCH\r")
        };
        self.send(text).await
    }

    async fn fetch(&mut self, upper: &str) -> std::io::Result<()> {
        let set = upper.split(' ').nth(2).unwrap_or_default().to_owned();
        let mut out: Vec<u8> = Vec::new();
        {
            let state = self.state.borrow();
            for (at, (uid, letter)) in state.letters.iter().enumerate() {
                let whole = upper.contains("BODY.PEEK[]");
                if !holds(&set, *uid, state.uidnext) || (state.gone.contains(uid) && upper.contains("BODY")) {
                    continue;
                }
                if state.stray_fetches {
                    out.extend(format!("* {} FETCH (FLAGS (\\Seen))\r\n* {} FETCH (UID {uid} FLAGS (\\Seen))\r\n", at + 1, at + 1).bytes());
                }
                if whole && state.garbage == Some(*uid) {
                    out.extend(b"* FETCH ((((\r\n");
                } else if whole {
                    out.extend(format!("* {} FETCH (UID {uid} BODY[] {{{}}}\r\n", at + 1, letter.raw.len()).bytes());
                    out.extend(&letter.raw);
                    out.extend(b")\r\n");
                } else if upper.contains("BODY.PEEK[HEADER]") {
                    let head = "Subject: large\r\n\r\n";
                    out.extend(
                        format!(
                            "* {} FETCH (UID {uid} BODY[HEADER]<0> {{{}}}\r\n{head} BODY[TEXT]<0> {{4}}\r\nbody)\r\n",
                            at + 1,
                            head.len()
                        )
                        .bytes(),
                    );
                } else {
                    let flags: Vec<&str> = letter.flags.iter().map(String::as_str).collect();
                    let (size, date) = (letter.raw.len(), &letter.date);
                    out.extend(
                        format!(
                            "* {} FETCH (UID {uid} RFC822.SIZE {size} INTERNALDATE \"{date}\" FLAGS ({}))\r\n",
                            at + 1,
                            flags.join(" ")
                        )
                        .bytes(),
                    );
                }
            }
        }
        let gone = self.state.borrow().gone.clone();
        if !gone.is_empty() && upper.contains("BODY") {
            self.state.send_modify(|state| state.letters.retain(|uid, _| !gone.contains(uid)));
        }
        self.send(out).await
    }

    fn store(&self, command: &str) {
        let mut words = command.split(' ').skip(2);
        let set = words.next().unwrap_or_default().to_owned();
        let flag = command.rsplit_once('(').map(|(_, flag)| flag.trim_end_matches(')').to_owned()).unwrap_or_default();
        self.state.send_modify(|state| {
            let next = state.uidnext;
            for (_, letter) in state.letters.iter_mut().filter(|(uid, _)| holds(&set, **uid, next)) {
                letter.flags.insert(flag.clone());
            }
        });
    }

    async fn append(&mut self, tag: &str, command: &str) -> std::io::Result<()> {
        let bytes: usize = command.rsplit_once('{').unwrap().1.trim_end_matches('}').parse().unwrap();
        self.send("+ go on\r\n").await?;
        let mut raw = vec![0; bytes];
        self.reader.read_exact(&mut raw).await?;
        self.line().await?;
        let folder = command.split('"').nth(1).unwrap_or_default().to_owned();
        self.state.send_modify(|state| state.appended.push((folder, raw)));
        self.send(format!("{tag} OK appended\r\n")).await
    }

    async fn idle(&mut self, tag: &str) -> std::io::Result<()> {
        if self.state.borrow().refuses_idle {
            return self.send(format!("{tag} NO not here\r\n")).await;
        }
        if let Some(raw) = self.change(|state| state.in_the_gap.take()) {
            let count = self.change(|state| {
                state.put(&raw);
                state.letters.len()
            });
            self.known = count;
            self.send(format!("* {count} EXISTS\r\n")).await?;
        }
        self.send("+ idling\r\n").await?;
        self.change(|state| state.idling += 1);
        let mut changes = self.state.subscribe();
        let done = loop {
            let known = self.known;
            let mut line = String::new();
            let count = tokio::select! {
                read = self.reader.read_line(&mut line) => break read.map(|_| ()),
                changed = changes.wait_for(|state| state.letters.len() != known) => changed.unwrap().letters.len(),
            };
            self.known = count;
            self.send(format!("* {count} EXISTS\r\n")).await?;
        };
        self.change(|state| state.idling -= 1);
        done?;
        self.send(format!("{tag} OK idle ended\r\n")).await
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut result = None;
        self.state.send_modify(|state| result = Some(change(state)));
        result.unwrap()
    }
}

/// Whether a sequence set holds a UID; `n:*` always holds the last one, as the law has it.
fn holds(set: &str, uid: u32, uidnext: u32) -> bool {
    set.split(',').any(|part| {
        let last = uidnext - 1;
        let (first, end) = part.split_once(':').unwrap_or((part, part));
        let end = if end == "*" { last } else { end.parse().unwrap_or(0) };
        let first: u32 = first.parse().unwrap_or(0);
        (first.min(end)..=first.max(end)).contains(&uid)
    })
}
