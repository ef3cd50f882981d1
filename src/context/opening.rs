//! The letter that opens a run, as the model reads it: header lines and text, all inside one wrapping.

use chrono::{DateTime, Utc};

use super::Opening;
use crate::chat::untrusted;
use crate::mail::Inbound;

/// Bytes of the newest letter's text.
const NEWEST: usize = 100 * 1024;

impl Opening {
    /// The newest user message's last block.
    pub(super) fn text(&self) -> String {
        match self {
            Opening::Letter { letter, nonce, received_at } => letter_text(letter, nonce, *received_at, NEWEST),
        }
    }

    /// The delimiter of what the run's sender wrote.
    pub(super) fn nonce(&self) -> &str {
        match self {
            Opening::Letter { nonce, .. } => nonce,
        }
    }
}

/// A letter between its delimiters: the same bytes each time it is shown (harness UC1, UC3).
pub(super) fn letter_text(letter: &Inbound, nonce: &str, received_at: DateTime<Utc>, text_bytes: usize) -> String {
    untrusted::wrap(nonce, &format!("email from={}", letter.from.address), &letter.readable(received_at, text_bytes))
}
