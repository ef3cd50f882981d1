//! A letter that goes out: first a draft of values, then sealed bytes that never change again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Address, MessageId};

/// What an outgoing letter is for (DESIGN 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutgoingKind {
    /// The answer to a letter.
    Reply,
    /// A question to a person.
    Question,
    /// What a duty has to say.
    Report,
    /// Word to the operator.
    Notice,
    /// Mail that a tool asked for.
    Tool,
}

impl OutgoingKind {
    /// The word as it stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            OutgoingKind::Reply => "reply",
            OutgoingKind::Question => "question",
            OutgoingKind::Report => "report",
            OutgoingKind::Notice => "notice",
            OutgoingKind::Tool => "tool",
        }
    }
}

/// What is to be written, before the law for outgoing mail was applied. It names no recipient of its own
/// choosing: who may get it is decided by the one who seals it, from the run's context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// What it is for.
    pub kind: OutgoingKind,
    /// Whom it is meant for; each must stand inside the fence.
    pub to: Vec<Address>,
    /// The address it is sent from: the one the customer wrote to, or the agent's first.
    pub from: Address,
    /// The subject, already prefixed when it is a reply.
    pub subject: String,
    /// The text in Markdown.
    pub text: String,
    /// The letter that it answers.
    pub in_reply_to: Option<MessageId>,
    /// References to write, oldest first.
    pub references: Vec<MessageId>,
    /// What makes it the same letter when it is asked for again (harness J4).
    pub effect_key: String,
}

/// A letter as it will leave, byte for byte (email G1). Only the gateway makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// What it is for.
    pub kind: OutgoingKind,
    /// Minted before the first byte was written.
    pub message_id: MessageId,
    /// MAIL FROM.
    pub envelope_from: Address,
    /// RCPT TO, one row each.
    pub recipients: Vec<Address>,
    /// The subject, for lists.
    pub subject: String,
    /// The readable text, for lists and for the thread's history.
    pub text: String,
    /// The whole message, CRLF lines.
    pub bytes: Vec<u8>,
    /// Why it waits for a person, when it does.
    pub held: Option<String>,
    /// Not to leave before this instant.
    pub not_before: Option<DateTime<Utc>>,
    /// Unique with each recipient.
    pub effect_key: String,
}
