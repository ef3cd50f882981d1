//! The affordance by which a run causes mail: the law behind it is the gateway's.

use std::fmt;

use futures_util::future::BoxFuture;

use super::{OutgoingId, RunContext};
use crate::mail::{Address, Draft, MessageId, Sealed};

/// The one way out for a run's mail. Recipient fence, approval, caps, loop stamps and kill switch live
/// behind it (DESIGN claim 3).
pub trait Outbox: Send + Sync + fmt::Debug {
    /// Applies the law and builds the final bytes; writes nothing. The caller hands the result to the
    /// store together with what else belongs into the same transaction.
    ///
    /// # Errors
    /// When the law forbids the letter, or it cannot be built.
    fn seal(&self, context: &RunContext, draft: Draft) -> Result<Sealed, OutboxError>;

    /// Seals the draft and stores it. Asked again with the same effect key, it gives the same letter.
    fn post<'a>(&'a self, context: &'a RunContext, draft: Draft) -> BoxFuture<'a, Result<Posted, OutboxError>>;
}

/// A letter that now stands in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// Its first row.
    pub id: OutgoingId,
    /// Its id.
    pub message_id: MessageId,
    /// Why it waits for a person, when it does.
    pub held: Option<String>,
}

/// Why a letter was not taken. The texts are fit for a model: they name no other customer.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// Outside the agent's fence.
    #[error("{0} is not among the recipients that this agent may write to")]
    OutsideFence(Address),
    /// No recipient.
    #[error("the letter has no recipient")]
    NoRecipient,
    /// Nothing to send (email G18).
    #[error("the letter is empty")]
    Empty,
    /// A cap of DESIGN 2.7.
    #[error("the limit {0} is reached")]
    Limit(&'static str),
    /// The bytes could not be built.
    #[error("the letter could not be built: {0}")]
    Malformed(String),
    /// The store failed.
    #[error("the letter could not be stored")]
    Store(#[source] anyhow::Error),
}
