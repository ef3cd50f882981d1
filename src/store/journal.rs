//! A run's journal: append-only steps. Live loop and recovery fold the same steps (harness J1, J2).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Store, StoreError};
use crate::chat::{Message, Reply, ToolCall, ToolResult, Usage};
use crate::config::Effect;
use crate::run::{Outcome, Party, RunId, RunStatus};

/// One step. The order of the variants is the order in which a run meets them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Step {
    /// The run began: everything that the model will be shown, fixed.
    Opened(Box<Opened>),
    /// A model call is about to be made.
    ModelRequested {
        /// What the call is for.
        purpose: Purpose,
        /// SHA-256 of the canonical request.
        request_hash: String,
    },
    /// The model answered, whole.
    ModelResponded {
        /// What the call was for.
        purpose: Purpose,
        /// The answer.
        reply: Reply,
        /// What it cost, in millionths.
        cost: u64,
        /// How many attempts it took.
        attempts: u32,
        /// Ids and rate-limit headers worth keeping (harness N9).
        headers: Map<String, Value>,
    },
    /// An answer came but may not be used (cut off, empty, refused).
    ModelDiscarded {
        /// What the call was for.
        purpose: Purpose,
        /// Why.
        reason: String,
        /// The answer, for the record only.
        reply: Reply,
        /// What it cost, in millionths.
        cost: u64,
    },
    /// No answer came, after every attempt.
    ModelFailed {
        /// What the call was for.
        purpose: Purpose,
        /// The kind of error.
        error: String,
        /// What was said, redacted.
        message: String,
        /// How many attempts were made.
        attempts: u32,
    },
    /// The harness said something to the model (a nudge, a notice). Not part of the thread's history.
    Noted {
        /// The text of the user message.
        text: String,
    },
    /// A call is about to run. Committed before its effect.
    ToolIntended {
        /// The round, from 1.
        round: u32,
        /// The call's place in the response, from 0.
        position: u32,
        /// The call under its canonical name, its arguments as they will be used.
        call: ToolCall,
        /// What repeating it would do.
        effect: Effect,
        /// The key that makes a repeated call the same call (harness J5).
        effect_key: String,
        /// What was repaired in name or arguments, when anything was (harness R2, R9).
        repaired: Option<String>,
    },
    /// What became of a call. A refused call has no intent.
    ToolFinished {
        /// The round, from 1.
        round: u32,
        /// The call's place in the response, from 0.
        position: u32,
        /// The call, as audited when there was no intent.
        call: ToolCall,
        /// As the model is told.
        result: ToolResult,
        /// For the audit.
        status: ToolStatus,
    },
    /// The thread goes to the operator; the run ends with the text it has.
    Escalated {
        /// Why, in the model's words.
        reason: String,
    },
    /// The customer's text is decided.
    ReplyReady {
        /// Markdown.
        body: String,
        /// What the run came to.
        outcome: Outcome,
        /// Where the text is from (harness L4).
        source: ReplySource,
    },
    /// The run ended.
    Closed(Close),
}

/// Everything that is fixed when a run begins; a recovered run goes on from it (D3, J2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The system text.
    pub system: String,
    /// History and the opening user message, in order.
    pub messages: Vec<Message>,
    /// The tools as shown to the model: name, description, schema; the same bytes in each request.
    pub tools: Vec<Value>,
    /// Who wrote, and how proven.
    pub party: Party,
    /// What each resolver gave.
    pub contributions: Vec<Contribution>,
    /// SHA-256 of the agent file and the settings that the run began with.
    pub config_hash: String,
}

/// What one resolver gave to the prompt (DESIGN claim 5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// As written in the chain.
    pub resolver: String,
    /// Where its piece stands: `system`, `history`, `head`, or `none`.
    pub place: String,
    /// Bytes of text.
    pub bytes: u64,
    /// Tokens, estimated.
    pub tokens: u64,
}

/// What a model call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A round, or the answer.
    Round,
    /// The answer after the last allowed round, tools forbidden (harness L2).
    Closing,
}

/// Status of one call (DESIGN 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It gave a result.
    Completed,
    /// It gave an error.
    Failed,
    /// Not allowed.
    Refused,
    /// Not run for another reason.
    Skipped,
    /// Waits for a person.
    Held,
    /// The daemon stopped while it ran (harness J3).
    Unknown,
}

impl ToolStatus {
    /// The word as it stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            ToolStatus::Completed => "completed",
            ToolStatus::Failed => "failed",
            ToolStatus::Refused => "refused",
            ToolStatus::Skipped => "skipped",
            ToolStatus::Held => "held",
            ToolStatus::Unknown => "unknown",
        }
    }
}

/// Which of the candidates became the reply (harness L4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplySource {
    /// The final response's text.
    Final,
    /// The closing call's text.
    Closing,
    /// The last text that came without calls.
    Earlier,
    /// The agent's `fallback_reply`, or the built-in text.
    Fallback,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// Done, failed, cancelled, expired.
    pub status: RunStatus,
    /// What it came to.
    pub outcome: Outcome,
    /// What went wrong, for the operator.
    pub error: Option<String>,
    /// Rounds used.
    pub rounds: u32,
    /// All tokens and money of the run, discarded answers included (harness U3).
    pub usage: Usage,
    /// Millionths.
    pub cost: u64,
}

impl Store {
    /// Appends steps to a run that this daemon owns, in one transaction. Tool calls and events for the
    /// audit are written with them.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when another epoch owns the run; else what the store says.
    pub async fn append(&self, _run: &RunId, _steps: Vec<Step>) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// All steps of a run, in order.
    ///
    /// # Errors
    /// What the store says.
    pub async fn replay(&self, _run: &RunId) -> Result<Vec<Step>, StoreError> {
        unimplemented!()
    }

    /// Keeps a whole result that was cut for the model, at most 10 MB (harness B4). `id` is the caller's.
    ///
    /// # Errors
    /// What the store says.
    pub async fn keep_result(&self, _run: &RunId, _id: &str, _text: String) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// A kept result of this very run.
    ///
    /// # Errors
    /// What the store says.
    pub async fn kept_result(&self, _run: &RunId, _id: &str) -> Result<Option<String>, StoreError> {
        unimplemented!()
    }
}
