//! One whole answer of a model, after its stream has ended.

use serde::{Deserialize, Serialize};

use super::Message;

/// A finished model response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Always an assistant message; may be empty.
    pub message: Message,
    /// Why it ended, normalized.
    pub stop: StopReason,
    /// The vendor's own words for it (harness S7).
    pub raw_stop: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// The vendor's id of the response.
    pub response_id: Option<String>,
}

/// Why a response ended (harness, part 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had nothing more to say.
    EndTurn,
    /// It wants its tools run.
    ToolUse,
    /// It was cut at the output limit, as said or as proven (harness S8).
    MaxTokens,
    /// The context window was full.
    ContextFull,
    /// A stop sequence.
    StopSequence,
    /// The vendor wants the same content back to go on.
    PauseTurn,
    /// The model, or a filter, refused.
    Refusal,
    /// A word that we do not know.
    Unknown,
}

/// Tokens of one call (harness U1). Snapshots replace one another within a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were not read from a cache.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Of these, reasoning.
    pub reasoning: u64,
    /// Estimated by us, since the vendor said nothing (harness U3).
    pub estimated: bool,
}

impl Usage {
    /// All input tokens.
    pub fn input_total(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}
