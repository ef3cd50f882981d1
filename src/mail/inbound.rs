//! A letter that came in, after parsing: typed values, every one of them untrusted.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Address, MessageId, NamedAddress};

/// A parsed letter. Control characters and bidi overrides are already gone from every text (email C4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbound {
    /// Its Message-ID, or a synthetic one (email B10).
    pub message_id: MessageId,
    /// Ids named by In-Reply-To, in order.
    pub in_reply_to: Vec<MessageId>,
    /// Ids named by References, oldest first, at most 100.
    pub references: Vec<MessageId>,
    /// The one From mailbox.
    pub from: NamedAddress,
    /// Reply-To; believed only for the shop's own forms.
    pub reply_to: Vec<Address>,
    /// To.
    pub to: Vec<Address>,
    /// Cc.
    pub cc: Vec<Address>,
    /// Delivered-To and X-Original-To, as our own server wrote them.
    pub delivered_to: Vec<Address>,
    /// The decoded subject; empty when there was none.
    pub subject: String,
    /// The readable text: text/plain, else HTML turned into text (email C6).
    pub text: String,
    /// What was noticed while parsing: hidden text removed, a name that looks like another address.
    pub remarks: Vec<String>,
    /// What was attached, named but not opened.
    pub attachments: Vec<Attachment>,
    /// The Date header: the sender's claim, for display only (email C17).
    pub date: Option<DateTime<Utc>>,
}

/// One attachment's description. Its bytes stay in the raw letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// A safe base name (email C11).
    pub name: String,
    /// The declared media type, lower case.
    pub media_type: String,
    /// Decoded size in bytes.
    pub bytes: u64,
    /// SHA-256 of the decoded bytes, hexadecimal.
    pub sha256: String,
    /// Shown inside the text (Content-ID) rather than attached.
    pub inline: bool,
}
