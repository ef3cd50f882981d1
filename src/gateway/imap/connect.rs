//! Connecting and logging in: TCP, TLS from the first byte or STARTTLS, the greeting, the login.

use std::path::PathBuf;
use std::sync::Arc;

use async_imap::imap_proto::{Response, Status};
use async_imap::{Authenticator, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ImapError, Session, Stream, bounded, from_crate, from_read, lost, within};
use crate::config::{Mailbox, Secret, Security, ServerAddress};
use crate::gateway::connect::{reach, secure};
use crate::gateway::login::fresh_token;
use crate::gateway::receive::Timing;

/// Who logs in where.
#[derive(Debug, Clone)]
pub struct Account {
    /// The server.
    pub server: ServerAddress,
    /// Its TLS.
    pub tls: Arc<rustls::ClientConfig>,
    /// The login name.
    pub username: String,
    /// What proves it.
    pub login: Login,
    /// The limits.
    pub timing: Timing,
}

/// What proves a login name.
#[derive(Debug, Clone)]
pub enum Login {
    /// A password.
    Password(Secret),
    /// A program that prints an OAuth access token, asked on each connect (email A13).
    TokenCommand {
        /// Program and arguments.
        argv: Vec<String>,
        /// Where it runs.
        folder: PathBuf,
    },
    /// Nothing is configured.
    Missing,
}

impl Account {
    /// A mailbox's account at `server`.
    pub fn of(mailbox: &Mailbox, server: &ServerAddress, tls: Arc<rustls::ClientConfig>, home: PathBuf, timing: Timing) -> Account {
        let login = match (&mailbox.token_command, &mailbox.password) {
            (Some(argv), _) => Login::TokenCommand { argv: argv.clone(), folder: home },
            (None, Some(password)) => Login::Password(password.clone()),
            (None, None) => Login::Missing,
        };
        let username = mailbox.username.clone().unwrap_or_else(|| mailbox.address.as_str().to_owned());
        Account { server: server.clone(), tls, username, login, timing }
    }
}

/// Connects and logs in.
///
/// # Errors
/// See [`ImapError`].
pub async fn connect(account: &Account) -> Result<Session, ImapError> {
    let timing = &account.timing;
    let (server, tls) = (&account.server, &account.tls);
    let tcp = reach(server).await?;
    let client = match server.security {
        Security::Plaintext => greeted(Stream::plain(tcp), account).await?,
        Security::Implicit => greeted(Stream::tls(secure(server, tls, tcp).await?), account).await?,
        Security::StartTls => {
            let tcp = within("STARTTLS", timing.dial, start_tls(tcp)).await?;
            // No second greeting comes after STARTTLS.
            Client::new(Stream::tls(secure(server, tls, tcp).await?))
        }
    };
    let (inner, capabilities) = within("LOGIN", timing.command, login(client, account)).await?;
    Session::new(inner, capabilities, timing.clone()).await
}

/// Reads the greeting before anything else (email A3).
async fn greeted(stream: Stream, account: &Account) -> Result<Client<Stream>, ImapError> {
    let mut client = Client::new(stream);
    client.get_mut().allow(64 * 1024);
    within("the greeting", account.timing.dial, async {
        let greeting = client.read_response().await.map_err(|error| from_read("the greeting", &error))?;
        let Some(greeting) = greeting else { return Err(ImapError::Lost("closed instead of a greeting".to_owned())) };
        match greeting.parsed() {
            Response::Data { status: Status::Ok, .. } => Ok(()),
            Response::Data { status: Status::Bye, outcome } => {
                Err(ImapError::Lost(format!("turned away: {}", bounded(outcome.information.as_deref().unwrap_or_default()))))
            }
            Response::Data { status: Status::PreAuth, .. } => Err(ImapError::Violation("the server claims that we are logged in already")),
            _ => Err(ImapError::Violation("no greeting of an IMAP server")),
        }
    })
    .await?;
    Ok(client)
}

/// Greeting and STARTTLS on the bare connection. Bytes after the server's consent were put there by
/// somebody who hopes that they are believed after the handshake: refused (email A2).
async fn start_tls(mut tcp: TcpStream) -> Result<TcpStream, ImapError> {
    let mut pending = Vec::new();
    let greeting = line(&mut tcp, &mut pending).await?;
    if !starts_with_word(&greeting, "* OK") {
        return Err(ImapError::Violation("no greeting that allows STARTTLS"));
    }
    if !pending.is_empty() {
        return Err(ImapError::Violation("bytes before they were asked for"));
    }
    tcp.write_all(b"s1 STARTTLS\r\n").await.map_err(|error| lost(&error))?;
    loop {
        let answer = line(&mut tcp, &mut pending).await?;
        if starts_with_word(&answer, "s1 OK") {
            break;
        }
        if !answer.starts_with("* ") {
            return Err(ImapError::Violation("the server does not offer STARTTLS"));
        }
    }
    if !pending.is_empty() {
        return Err(ImapError::Violation("bytes between STARTTLS and the handshake"));
    }
    Ok(tcp)
}

fn starts_with_word(line: &str, words: &str) -> bool {
    line.get(..words.len()).is_some_and(|start| start.eq_ignore_ascii_case(words))
}

/// One line of at most 8 KiB; what came after it stays in `pending`.
async fn line(tcp: &mut TcpStream, pending: &mut Vec<u8>) -> Result<String, ImapError> {
    loop {
        if let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        if pending.len() > 8192 {
            return Err(ImapError::Violation("a line without end"));
        }
        let read = tcp.read_buf(pending).await.map_err(|error| lost(&error))?;
        if read == 0 {
            return Err(ImapError::Lost("closed before TLS".to_owned()));
        }
    }
}

type LoggedIn = (async_imap::Session<Stream>, Option<Vec<String>>);

async fn login(mut client: Client<Stream>, account: &Account) -> Result<LoggedIn, ImapError> {
    client.get_mut().allow(256 * 1024);
    let user = &account.username;
    let refused = |(error, _): (async_imap::error::Error, Client<Stream>)| as_login(from_crate("LOGIN", error));
    match &account.login {
        Login::Missing => Err(ImapError::Login("no password is configured".to_owned())),
        Login::Password(password) if user.is_ascii() && password.reveal().is_ascii() => {
            let (session, capabilities) = client.login_with_capabilities(user, password.reveal()).await.map_err(refused)?;
            let capabilities = capabilities.map(|found| found.iter().map(super::response::capability_word).collect());
            Ok((session, capabilities))
        }
        Login::Password(password) => {
            // A quoted string cannot hold it, AUTHENTICATE can.
            let plain = Once(Some(format!("\0{user}\0{}", password.reveal())));
            Ok((client.authenticate("PLAIN", plain).await.map_err(refused)?, None))
        }
        Login::TokenCommand { argv, folder } => {
            let token = fresh_token(argv, folder).await.map_err(|reason| ImapError::Login(bounded(&reason)))?;
            let bearer = Once(Some(format!("user={user}\x01auth=Bearer {}\x01\x01", token.reveal())));
            Ok((client.authenticate("XOAUTH2", bearer).await.map_err(refused)?, None))
        }
    }
}

/// Answers the first challenge with its text, and any further one (XOAUTH2's error report) with nothing.
struct Once(Option<String>);

impl Authenticator for Once {
    type Response = String;

    fn process(&mut self, _challenge: &[u8]) -> String {
        self.0.take().unwrap_or_default()
    }
}

/// A refused login is the account's trouble, save when the server says that it is its own (RFC 5530).
fn as_login(error: ImapError) -> ImapError {
    match error {
        ImapError::Refused { text, .. } if ["[UNAVAILABLE]", "[INUSE]", "[LIMIT]"].iter().any(|code| text.contains(code)) => {
            ImapError::Lost(text)
        }
        ImapError::Refused { text, .. } => ImapError::Login(text),
        other => other,
    }
}
