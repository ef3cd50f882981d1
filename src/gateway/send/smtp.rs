//! One SMTP connection, and for each letter the exact phase in which it ended: only after the final dot can
//! a letter be in doubt (email G9, G10, G12, G13, G16).

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Ehlo, Mail, Noop, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use lettre::transport::smtp::response::Response;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};

use super::starttls;
use crate::config::{Security, ServerAddress};
use crate::gateway::connect::{DialError, MailStream, dial};
use crate::gateway::login::Login;
use crate::mail::Address;
use crate::store::ClaimedOutgoing;

/// Within this time a connection is used again without asking whether it still lives.
const SURELY_ALIVE: Duration = Duration::from_secs(1);

/// How much of a message is written at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// How long each step may take (RFC 5321 section 4.5.3.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Greeting and EHLO.
    pub(super) greeting: Duration,
    /// The login.
    pub(super) login: Duration,
    /// MAIL and RCPT.
    pub(super) envelope: Duration,
    /// DATA.
    pub(super) data: Duration,
    /// The message, up to the final dot.
    pub(super) content: Duration,
    /// After the final dot. A short one makes duplicates.
    pub(super) after_dot: Duration,
    /// NOOP, RSET, QUIT.
    pub(super) small_talk: Duration,
    /// A connection that was idle for longer is not used again (email G13).
    pub(super) idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Patience {
            greeting: seconds(300),
            login: seconds(60),
            envelope: seconds(300),
            data: seconds(120),
            content: seconds(180),
            after_dot: seconds(600),
            small_talk: seconds(10),
            idle: seconds(30),
        }
    }
}

/// What became of a letter, or of the connection it needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server took responsibility.
    Accepted,
    /// The server said no to this letter.
    Refused(Refusal),
    /// The connection broke in the middle of the message: certainly not taken, and perhaps because of it.
    Broken(String),
    /// The server or the network, not the letter: nothing was taken.
    Unreachable(String),
    /// The server does not let us in.
    LoginRefused(String),
    /// The final dot was sent and no reply understood (email G9).
    Uncertain(String),
}

/// A negative reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The reply code; 0 when it was us who refused.
    pub(super) code: u16,
    /// The enhanced status code (RFC 3463).
    pub(super) enhanced: Option<String>,
    /// What the server said, bounded and printable.
    pub(super) text: String,
}

impl Refusal {
    fn from_text(code: u16, text: &str) -> Refusal {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
        let first = text.split_whitespace().next().unwrap_or_default();
        let is_enhanced = first.split('.').count() == 3 && first.chars().all(|c| c.is_ascii_digit() || c == '.');
        Refusal { code, enhanced: is_enhanced.then(|| first.to_owned()), text }
    }

    fn ours(text: &str) -> Refusal {
        Refusal { code: 0, enhanced: None, text: text.to_owned() }
    }

    /// Whether trying again is pointless.
    pub(super) fn is_permanent(&self) -> bool {
        self.code == 0 || self.code >= 500
    }

    /// 530, 534, 535: the operator's problem, not the letter's (email G10).
    pub(super) fn is_about_login(&self) -> bool {
        matches!(self.code, 530 | 534 | 535)
    }

    /// Some servers refuse for good when they mean "not today" (email G10).
    pub(super) fn is_about_quota(&self) -> bool {
        let said = ["daily user sending", "sending limit", "sending quota", "rate limit", "too many messages", "daily limit"];
        let text = self.text.to_ascii_lowercase();
        match self.enhanced.as_deref() {
            _ if self.code < 500 => false,
            Some("5.4.5") => true,
            // A full mailbox is the recipient's quota, not ours.
            Some("5.2.2") => false,
            _ => said.iter().any(|words| text.contains(words)),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.code == 0 { f.write_str(&self.text) } else { write!(f, "{} {}", self.code, self.text) }
    }
}

/// A connection that is logged in. Whatever leaves its state in doubt makes it unusable.
pub(super) struct Session {
    connection: AsyncSmtpConnection,
    patience: Patience,
    /// The largest message the server says it takes.
    size_limit: Option<usize>,
    offers_size: bool,
    /// A transaction was begun and not ended.
    open_transaction: bool,
    usable: bool,
    used_at: Instant,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("usable", &self.usable).finish_non_exhaustive()
    }
}

/// Where and how a session is opened.
#[derive(Debug)]
pub(super) struct Server<'a> {
    /// The server.
    pub(super) address: &'a ServerAddress,
    /// The TLS configuration.
    pub(super) tls: &'a Arc<ClientConfig>,
    /// How we name ourselves: the mailbox's domain.
    pub(super) hello: &'a str,
    /// How long to wait.
    pub(super) patience: Patience,
}

impl Session {
    /// Connects, protects the connection, logs in.
    pub(super) async fn open(server: &Server<'_>, login: Option<&Login>) -> Result<Session, Outcome> {
        let (address, patience) = (server.address, server.patience);
        let stream = dial(address, server.tls, |tcp| starttls::agree(address, server.hello, tcp)).await;
        let stream = stream.map_err(|error: DialError| Outcome::Unreachable(error.to_string()))?;
        // After STARTTLS no second greeting comes, but lettre waits for one.
        let greeting: &[u8] = if address.security == Security::StartTls { b"220 x\r\n" } else { b"" };
        let peer = stream.peer_addr().map_err(|error| Outcome::Unreachable(error.to_string()))?;
        let stream = Box::new(SmtpStream { inner: stream, greeting, peer });
        let hello = ClientId::Domain(server.hello.to_owned());
        let connected = step(patience.greeting, AsyncSmtpConnection::connect_with_transport(stream, &hello)).await;
        let connection = connected.map_err(|failure| Outcome::Unreachable(failure.to_string()))?;
        let mut session = Session {
            connection,
            patience,
            size_limit: None,
            offers_size: false,
            open_transaction: false,
            usable: true,
            used_at: Instant::now(),
        };
        if let Some(login) = login {
            session.log_in(login).await?;
        }
        // lettre forgets SIZE; after a login servers may promise more than before.
        let offered = session.step(patience.greeting, Ehlo::new(hello)).await;
        session.note_size(&offered.map_err(|failure| Outcome::Unreachable(failure.to_string()))?);
        Ok(session)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), Outcome> {
        let credentials = Credentials::new(login.username.clone(), login.secret.reveal().to_owned());
        let mechanisms: &[Mechanism] = if login.token { &[Mechanism::Xoauth2] } else { &[Mechanism::Plain, Mechanism::Login] };
        if !mechanisms.iter().any(|mechanism| self.connection.server_info().supports_auth_mechanism(*mechanism)) {
            return Err(Outcome::LoginRefused("the server offers no way to log in that we know".to_owned()));
        }
        match step(self.patience.login, self.connection.auth(mechanisms, &credentials)).await {
            Ok(_) => Ok(()),
            // 4xx: the server cannot check it now. It says nothing about the password.
            Err(Failure::Replied(refusal)) if refusal.is_permanent() => Err(Outcome::LoginRefused(refusal.to_string())),
            Err(Failure::Odd(text)) => Err(Outcome::LoginRefused(text)),
            Err(failure) => Err(Outcome::Unreachable(failure.to_string())),
        }
    }

    fn note_size(&mut self, offered: &Response) {
        for line in offered.message() {
            let mut words = line.split_whitespace();
            if words.next().is_some_and(|word| word.eq_ignore_ascii_case("SIZE")) {
                self.offers_size = true;
                self.size_limit = words.next().and_then(|size| size.parse().ok()).filter(|size| *size > 0);
            }
        }
    }

    /// Whether another letter may be sent over it; asks the server where that is in doubt (email G13).
    pub(super) async fn is_ready(&mut self) -> bool {
        let idle = self.used_at.elapsed();
        if !self.usable || idle > self.patience.idle {
            return false;
        }
        let answered = if self.open_transaction {
            self.step(self.patience.small_talk, "RSET\r\n").await.is_ok()
        } else {
            idle <= SURELY_ALIVE || self.step(self.patience.small_talk, Noop).await.is_ok()
        };
        self.open_transaction = false;
        self.usable = answered;
        answered
    }

    /// When it should be closed if nothing more is sent.
    pub(super) fn expires_at(&self) -> Instant {
        self.used_at + self.patience.idle
    }

    /// Says goodbye, if anybody listens.
    pub(super) async fn quit(mut self) {
        if self.usable {
            drop(timeout(self.patience.small_talk, self.connection.quit()).await);
        }
    }

    /// Sends one letter to its one recipient (email G12).
    pub(super) async fn send(&mut self, letter: &ClaimedOutgoing) -> Outcome {
        let outcome = match self.transact(letter).await {
            Ok(()) => Outcome::Accepted,
            Err(outcome) => outcome,
        };
        self.used_at = Instant::now();
        self.open_transaction = matches!(outcome, Outcome::Refused(_));
        self.usable &= match &outcome {
            Outcome::Accepted => true,
            Outcome::Refused(refusal) => refusal.code != 421,
            _ => false,
        };
        outcome
    }

    async fn transact(&mut self, letter: &ClaimedOutgoing) -> Result<(), Outcome> {
        let parameters = self.parameters(letter)?;
        let (from, to) = (wire_address(&letter.envelope_from)?, wire_address(&letter.recipient)?);
        let patience = self.patience;
        self.step(patience.envelope, Mail::new(Some(from), parameters)).await.map_err(|failure| match failure {
            Failure::Replied(refusal) if refusal.code != 421 => Outcome::Refused(refusal),
            other => Outcome::Unreachable(other.to_string()),
        })?;
        self.step(patience.envelope, Rcpt::new(to, Vec::new())).await.map_err(|failure| match failure {
            Failure::Replied(refusal) => Outcome::Refused(refusal),
            other => Outcome::Unreachable(other.to_string()),
        })?;
        match self.step(patience.data, Data).await {
            Ok(go) if go.has_code(354) => {}
            Ok(_) => return Err(Outcome::Broken("the server answers DATA with something else than 354".to_owned())),
            Err(Failure::Replied(refusal)) => return Err(Outcome::Refused(refusal)),
            Err(other) => return Err(Outcome::Broken(other.to_string())),
        }
        self.content(&letter.bytes).await
    }

    /// MAIL's parameters, or why this server cannot take the letter at all (email G8, G16).
    fn parameters(&self, letter: &ClaimedOutgoing) -> Result<Vec<MailParameter>, Outcome> {
        let mut parameters = Vec::new();
        if self.size_limit.is_some_and(|limit| letter.bytes.len() > limit) {
            return Err(Outcome::Refused(Refusal::ours("the letter is larger than the server takes")));
        }
        if self.offers_size {
            parameters.push(MailParameter::Size(letter.bytes.len()));
        }
        let ascii = letter.recipient.as_str().is_ascii() && letter.envelope_from.as_str().is_ascii() && letter.bytes.is_ascii();
        if !ascii {
            if !self.connection.server_info().supports_feature(Extension::SmtpUtfEight) {
                let reason = "an address is not ASCII, and the server does not offer SMTPUTF8";
                return Err(Outcome::Refused(Refusal::ours(reason)));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        Ok(parameters)
    }

    /// The message and its final dot.
    async fn content(&mut self, bytes: &[u8]) -> Result<(), Outcome> {
        let dot_sent = AtomicBool::new(false);
        // The final CRLF is the first one of the CRLF.CRLF that ends the message.
        let blocks = bytes.strip_suffix(b"\r\n").unwrap_or(bytes).chunks(BLOCK_BYTES);
        let announce_dot = iter::from_fn(|| {
            dot_sent.store(true, Ordering::SeqCst);
            None
        });
        let mut sending = pin!(self.connection.message_iter(blocks.chain(announce_dot)));
        let mut replied = tokio::select! {
            replied = &mut sending => Some(replied),
            () = sleep_until(Instant::now() + self.patience.content) => None,
        };
        if replied.is_none() && dot_sent.load(Ordering::SeqCst) {
            replied = timeout(self.patience.after_dot, &mut sending).await.ok();
        }
        let in_doubt = |text: String| if dot_sent.load(Ordering::SeqCst) { Outcome::Uncertain(text) } else { Outcome::Broken(text) };
        match replied.map(|replied| replied.map_err(|error| Failure::from(&error))) {
            Some(Ok(reply)) if u16::from(reply.code()) / 100 == 2 => Ok(()),
            Some(Ok(reply)) => Err(in_doubt(format!("the server answers the message with {}", reply.code()))),
            // A 421 is a refusal too: the server did not take the message (RFC 5321 section 3.8).
            Some(Err(Failure::Replied(refusal))) => Err(Outcome::Refused(refusal)),
            Some(Err(other)) => Err(in_doubt(other.to_string())),
            None => Err(in_doubt(Failure::TimedOut.to_string())),
        }
    }

    async fn step(&mut self, limit: Duration, command: impl std::fmt::Display) -> Result<Response, Failure> {
        let result = step(limit, self.connection.command(command)).await;
        self.usable &= matches!(result, Ok(_) | Err(Failure::Replied(_)));
        result
    }
}

/// Why a step gave nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no answer in time")]
    TimedOut,
    #[error("{0}")]
    Replied(Refusal),
    #[error("{0}")]
    Odd(String),
    #[error("the connection was lost: {0}")]
    Lost(String),
}

impl From<&lettre::transport::smtp::Error> for Failure {
    fn from(error: &lettre::transport::smtp::Error) -> Self {
        let said = error.source().map(ToString::to_string).unwrap_or_default();
        let bounded = |text: String| text.chars().filter(|c| !c.is_control()).take(300).collect();
        match error.status() {
            Some(code) => Failure::Replied(Refusal::from_text(code.into(), &said)),
            None if error.is_client() => Failure::Odd(bounded(said)),
            None => Failure::Lost(bounded(said)),
        }
    }
}

async fn step<T>(limit: Duration, future: impl Future<Output = Result<T, lettre::transport::smtp::Error>>) -> Result<T, Failure> {
    match timeout(limit, future).await {
        Ok(result) => result.map_err(|error| Failure::from(&error)),
        Err(_) => Err(Failure::TimedOut),
    }
}

fn wire_address(address: &Address) -> Result<lettre::Address, Outcome> {
    let made = lettre::Address::new(address.local(), address.domain());
    made.map_err(|error| Outcome::Refused(Refusal::ours(&format!("an address that SMTP cannot say: {error}"))))
}

/// A mail connection as lettre wants one.
#[derive(Debug)]
struct SmtpStream {
    inner: MailStream,
    /// Read before anything else.
    greeting: &'static [u8],
    peer: SocketAddr,
}

impl AsyncTokioStream for SmtpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for SmtpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.greeting.is_empty() {
            let (now, rest) = self.greeting.split_at(self.greeting.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.greeting = rest;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        // A reply in another charset would be an I/O error to lettre, and a letter in doubt for nothing.
        for byte in buffer.filled_mut().iter_mut().skip(before).filter(|byte| !byte.is_ascii()) {
            *byte = b'?';
        }
        polled
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "smtp_tests.rs"]
mod tests;
