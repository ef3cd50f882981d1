//! A Message-ID (RFC 5322 section 3.6.4), kept without its angle brackets.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One Message-ID without brackets and white space; compared byte by byte (email E8).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(String);

impl MessageId {
    /// Takes an id as it stands in a header, with or without brackets; none when nothing usable is left.
    pub fn parse(text: &str) -> Option<MessageId> {
        let inner = text.trim().trim_start_matches('<').trim_end_matches('>');
        let kept: String = inner.chars().filter(|c| !c.is_whitespace() && !c.is_control() && !matches!(c, '<' | '>')).collect();
        (!kept.is_empty() && kept.len() <= 900).then_some(MessageId(kept))
    }

    /// Makes a new id of 128 random bits that says nothing else (email E4). `domain` is the mailbox's.
    pub fn mint(random: [u8; 16], domain: &str) -> MessageId {
        MessageId(format!("{:032x}@{domain}", u128::from_be_bytes(random)))
    }

    /// The id of a letter that brought none: stable over fetches (email B10). `sha256` is in hexadecimal.
    pub fn synthetic(sha256: &str) -> MessageId {
        MessageId(format!("sha256:{sha256}@missing.invalid"))
    }

    /// The id without brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id in angle brackets, as headers want it.
    pub fn bracketed(&self) -> String {
        format!("<{}>", self.0)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
