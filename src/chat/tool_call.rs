//! Tool calls and their results.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A call's id on the wire: the provider's own, kept verbatim (harness N6).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

/// A tool's name, `[A-Za-z0-9_-]{1,64}` once it was resolved (harness D1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolName(pub String);

impl ToolName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ToolName {
    fn from(name: &str) -> ToolName {
        ToolName(name.to_owned())
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// For the wire only; our own identity of a call is (run, round, position) (harness N7).
    pub id: CallId,
    /// As written by the model; the canonical name once it was repaired (harness R2).
    pub name: ToolName,
    /// The arguments exactly as received (harness N4); may be no valid JSON.
    pub arguments: String,
}

/// What became of one call, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that it answers.
    pub call: CallId,
    /// The text; never empty (harness T6).
    pub text: String,
    /// Whether it tells of a failure.
    pub is_error: bool,
}
