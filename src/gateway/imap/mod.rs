//! IMAP as a client: connecting, logging in, and the few commands that receiving needs. The parser and
//! the command tags are async-imap's; each command here is followed to its own tagged answer, since the
//! crate's streams take a refused FETCH, or a lost connection, for an empty result (email B6, B7).

mod connect;
mod names;
mod response;
mod session;
mod stream;

#[cfg(test)]
pub(super) mod peer;
#[cfg(test)]
mod tests;

pub use connect::{Account, Login, connect};
pub use names::{folder_argument, uid_set};
pub use session::{Body, Facts, Selected, Session, Woken};
pub use stream::Stream;

use std::time::Duration;

use super::connect::DialError;

/// What went wrong with a server. Texts never hold a letter's content (email K1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImapError {
    /// The connection could not be made, or broke.
    #[error("connection: {0}")]
    Lost(String),
    /// The server is not the one that was configured, or cannot be spoken to in secret (email A1).
    #[error("{0}")]
    Untrusted(String),
    /// A step took too long.
    #[error("no answer to {step} within {} s", .limit.as_secs())]
    Late {
        /// The step.
        step: &'static str,
        /// Its limit.
        limit: Duration,
    },
    /// The login was refused (email A12).
    #[error("login refused: {0}")]
    Login(String),
    /// The server said NO or BAD.
    #[error("{step} refused: {text}")]
    Refused {
        /// The command.
        step: &'static str,
        /// What the server said.
        text: String,
    },
    /// The server said what no client can understand (email A14).
    #[error("the server's answer to {0} cannot be understood")]
    Unparsable(&'static str),
    /// The server, or somebody before it, broke the rules: never go on.
    #[error("{0}")]
    Violation(&'static str),
}

impl From<DialError> for ImapError {
    fn from(error: DialError) -> ImapError {
        match error {
            DialError::Unreachable { .. } => ImapError::Lost(bounded(&error.to_string())),
            DialError::Untrusted { .. } => ImapError::Untrusted(bounded(&error.to_string())),
        }
    }
}

/// A server's words as they may stand in a log: one line, bounded.
fn bounded(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

fn lost(error: &std::io::Error) -> ImapError {
    ImapError::Lost(bounded(&error.to_string()))
}

/// An error of the crate, seen at a step. Its text may hold bytes of a letter, so only its kind is kept.
fn from_crate(step: &'static str, error: async_imap::error::Error) -> ImapError {
    use async_imap::error::Error;
    match error {
        Error::Io(error) => from_read(step, &error),
        Error::No(text) | Error::Bad(text) => ImapError::Refused { step, text: bounded(&text) },
        Error::ConnectionLost => ImapError::Lost("closed by the server".to_owned()),
        Error::Validate(_) => ImapError::Violation("a line break in a name or password"),
        _ => ImapError::Unparsable(step),
    }
}

fn from_read(step: &'static str, error: &std::io::Error) -> ImapError {
    if error.kind() == std::io::ErrorKind::Other {
        return ImapError::Unparsable(step);
    }
    lost(error)
}

/// Runs a step under its limit (email A4).
async fn within<T>(step: &'static str, limit: Duration, work: impl Future<Output = Result<T, ImapError>>) -> Result<T, ImapError> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(ImapError::Late { step, limit }))
}
