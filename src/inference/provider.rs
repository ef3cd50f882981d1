//! The contract of a provider: a stream of events that ends with exactly one `Finished` or one error.

use std::fmt;
use std::time::Duration;

use futures_util::stream::BoxStream;
use serde_json::{Map, Value};

use super::Request;
use crate::chat::{Origin, StopReason, ToolCall, Usage};

/// One model behind one wire.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Who answers.
    fn origin(&self) -> &Origin;

    /// Makes one attempt. The stream ends with exactly one [`ModelEvent::Finished`] or one error (harness
    /// N5); dropping it closes the connection (harness K3).
    fn stream<'a>(&'a self, request: &'a Request) -> BoxStream<'a, Result<ModelEvent, ModelError>>;
}

/// What a stream yields.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The response began.
    Started {
        /// The vendor's id of it.
        response_id: Option<String>,
        /// Request ids and rate-limit headers worth keeping (harness N9).
        headers: Map<String, Value>,
    },
    /// Text of the answer.
    Text(String),
    /// Reasoning.
    Reasoning {
        /// The readable part.
        text: String,
        /// What must go back verbatim with the block, once known.
        opaque: Option<Value>,
    },
    /// A whole call, complete as far as the wire can tell. Emitted in call order, before `Finished`.
    Call(ToolCall),
    /// A block to be sent back verbatim.
    Opaque(Value),
    /// Tokens so far; replaces the last one.
    Usage(Usage),
    /// The connection lives, nothing was said.
    Heartbeat,
    /// The end.
    Finished {
        /// Normalized, S8 applied.
        stop: StopReason,
        /// The vendor's words.
        raw_stop: Option<String>,
    },
}

/// Why an attempt failed (harness N8).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind} ({phase:?}): {message}")]
pub struct ModelError {
    /// What kind.
    pub kind: ErrorKind,
    /// HTTP status.
    pub status: Option<u16>,
    /// What was said, without secrets, at most 500 characters.
    pub message: String,
    /// When to try again, as the server said.
    pub retry_after: Option<Duration>,
    /// The vendor's id of the request.
    pub request_id: Option<String>,
    /// How far the attempt came.
    pub phase: Phase,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// 401.
    Auth,
    /// 403.
    Permission,
    /// 404.
    NotFound,
    /// 429.
    RateLimited,
    /// 529 and the like.
    Overloaded,
    /// 5xx.
    Server,
    /// The connection broke.
    Network,
    /// A limit of F1 passed.
    Timeout,
    /// The prompt does not fit.
    ContextTooLong,
    /// `max_output` does not fit.
    OutputTooBig,
    /// 400 otherwise.
    InvalidRequest,
    /// A filter took the answer.
    ContentFiltered,
    /// Out of money, even when sent as 429.
    QuotaExhausted,
    /// What came is no valid stream.
    Protocol,
    /// We stopped it.
    Cancelled,
    /// Anything else.
    Unknown,
}

impl ErrorKind {
    /// The word for the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Auth => "auth",
            ErrorKind::Permission => "permission",
            ErrorKind::NotFound => "not_found",
            ErrorKind::RateLimited => "rate_limited",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Server => "server",
            ErrorKind::Network => "network",
            ErrorKind::Timeout => "timeout",
            ErrorKind::ContextTooLong => "context_too_long",
            ErrorKind::OutputTooBig => "output_too_big",
            ErrorKind::InvalidRequest => "invalid_request",
            ErrorKind::ContentFiltered => "content_filtered",
            ErrorKind::QuotaExhausted => "quota_exhausted",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Unknown => "unknown",
        }
    }

    /// Whether another attempt may help (harness F2).
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            ErrorKind::RateLimited
                | ErrorKind::Overloaded
                | ErrorKind::Server
                | ErrorKind::Network
                | ErrorKind::Timeout
                | ErrorKind::Protocol
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far an attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No connection.
    Connect,
    /// No response headers.
    Headers,
    /// Headers, but nothing said.
    BeforeFirstToken,
    /// In the middle.
    MidStream,
}
