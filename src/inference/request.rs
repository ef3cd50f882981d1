//! What is asked of a model, in no vendor's words (harness N1).

use serde::Serialize;
use serde_json::Value;

use crate::chat::Message;

/// One model call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// The system text; may be empty.
    pub system: String,
    /// The conversation: begins with a user message; every call has its result right after (harness L8).
    pub messages: Vec<Message>,
    /// `{"name", "description", "input"}` each, sorted by name: the same bytes through a whole run.
    pub tools: Vec<Value>,
    /// Whether tools may be called.
    pub tool_choice: ToolChoice,
    /// Tokens of output at most.
    pub max_output: u32,
}

/// Whether tools may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As the model likes.
    Auto,
    /// Not in this call (harness L2).
    None,
}
