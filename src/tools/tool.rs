//! The contract of a tool.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::chat::ToolName;
use crate::config::Effect;
use crate::run::RunContext;
use crate::store::Store;

/// Something that a model may call.
pub trait Tool: Send + Sync + fmt::Debug {
    /// What it is.
    fn spec(&self) -> &ToolSpec;

    /// Does it. The arguments are valid against the schema. Dropping the future stops the work; programs
    /// are ended with their process group.
    fn call<'a>(&'a self, arguments: Value, invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// What a tool is, as the operator and the model see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// `[A-Za-z0-9_-]{1,64}` (harness D1).
    pub name: ToolName,
    /// For the model; its first line stands alone in directories.
    pub description: String,
    /// An object schema with `additionalProperties: false`.
    pub input: Value,
    /// What repeating a call would do.
    pub effect: Effect,
    /// Limit of one call.
    pub timeout: Duration,
    /// Refused once a third party's text is in the run.
    pub untainted: bool,
    /// A person approves each call first.
    pub approval: bool,
    /// Bytes of a result as sent; none for the limit of the settings.
    pub result_bytes: Option<u32>,
}

/// One call's surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// The run, immutable.
    pub context: &'a RunContext,
    /// The store, for what the run itself may read there.
    pub store: &'a Store,
    /// The same for a repeated call (harness J5).
    pub effect_key: &'a str,
}

/// What a call gave. The harness acts on this, never on a tool's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutput {
    /// A result, not yet bounded.
    Text(String),
    /// The run ends here and the thread goes to the operator.
    Escalate {
        /// Why, in the model's words.
        reason: String,
    },
}

/// A call that gave no result. The text is for the model: short, with a way on, without paths or secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The tool says no, or failed.
    #[error("{0}")]
    Failed(String),
    /// It took too long.
    #[error("timed out after {} s{}", .limit.as_secs(), if *.may_have_acted { "; it may or may not have taken effect" } else { "" })]
    TimedOut {
        /// Its limit.
        limit: Duration,
        /// It has effects.
        may_have_acted: bool,
    },
    /// Not allowed here: identity, taint, fence.
    #[error("{0}")]
    Refused(String),
}
