//! A run's journal: append-only steps. Live loop and recovery fold the same steps (harness J1, J2).

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::audit::{Stamp, count, from_json, record, to_json};
use super::writer::Writing;
use super::{Store, StoreError};
use crate::chat::{Message, Reply, ToolCall, ToolResult, Usage};
use crate::config::Effect;
use crate::run::{EventKind, Outcome, Party, RunId, RunStatus};

/// Bytes of a kept result (harness B4).
const KEPT_RESULT: usize = 10 * 1024 * 1024;

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
        /// What they cost all the same, in millionths (harness U3).
        #[serde(default)]
        cost: u64,
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
    /// What the delimiters of tool results are derived from (harness UC1): random, and never shown.
    #[serde(default)]
    pub nonce: String,
    /// Bytes that all results of one round may have together (harness B7).
    #[serde(default = "round_result_bytes")]
    pub round_result_bytes: u64,
    /// SHA-256 of the agent file and the settings that the run began with.
    pub config_hash: String,
}

/// For a journal of before this was kept.
fn round_result_bytes() -> u64 {
    200 * 1024
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

    /// The one event that ends a call with this status (harness T8).
    pub fn event(self) -> EventKind {
        match self {
            ToolStatus::Completed => EventKind::ToolCompleted,
            ToolStatus::Failed | ToolStatus::Unknown => EventKind::ToolFailed,
            ToolStatus::Refused | ToolStatus::Skipped | ToolStatus::Held => EventKind::ToolSkipped,
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

impl Step {
    /// The word of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Step::Opened(_) => "opened",
            Step::ModelRequested { .. } => "model_requested",
            Step::ModelResponded { .. } => "model_responded",
            Step::ModelDiscarded { .. } => "model_discarded",
            Step::ModelFailed { .. } => "model_failed",
            Step::Noted { .. } => "noted",
            Step::ToolIntended { .. } => "tool_intended",
            Step::ToolFinished { .. } => "tool_finished",
            Step::Escalated { .. } => "escalated",
            Step::ReplyReady { .. } => "reply_ready",
            Step::Closed(_) => "closed",
        }
    }
}

impl Store {
    /// Appends steps to a run that this daemon owns, in one transaction. Tool calls and events for the
    /// audit are written with them.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when another epoch owns the run, or it is not running any more; else what
    /// the store says.
    pub async fn append(&self, run: &RunId, steps: Vec<Step>) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |writing| {
            own(writing, &run)?;
            append_steps(writing, &run, &steps)
        })
        .await
    }

    /// All steps of a run, in order.
    ///
    /// # Errors
    /// What the store says.
    pub async fn replay(&self, run: &RunId) -> Result<Vec<Step>, StoreError> {
        self.read(|sql| steps_of(sql, run))
    }

    /// Keeps a whole result that was cut for the model, at most 10 MB (harness B4). `id` is the caller's.
    ///
    /// # Errors
    /// What the store says.
    pub async fn keep_result(&self, run: &RunId, id: &str, mut text: String) -> Result<(), StoreError> {
        let (run, id) = (run.clone(), id.to_owned());
        text.truncate(text.floor_char_boundary(KEPT_RESULT));
        self.write(move |writing| {
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO results (run_id, id, text) VALUES (?1, ?2, ?3)
                     ON CONFLICT (run_id, id) DO UPDATE SET text = excluded.text",
                )?
                .execute((run.as_str(), &id, &text))?;
            Ok(())
        })
        .await
    }

    /// A kept result of this very run.
    ///
    /// # Errors
    /// What the store says.
    pub async fn kept_result(&self, run: &RunId, id: &str) -> Result<Option<String>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT text FROM results WHERE run_id = ?1 AND id = ?2")?;
            Ok(query.query_row((run.as_str(), id), |row| row.get(0)).optional()?)
        })
    }
}

/// That the run is running and belongs to this epoch.
pub(super) fn own(writing: &Writing<'_>, run: &RunId) -> Result<(), StoreError> {
    let mut query = writing.sql.prepare_cached("SELECT 1 FROM runs WHERE id = ?1 AND epoch = ?2 AND status = 'running'")?;
    if query.exists((run.as_str(), writing.epoch))? { Ok(()) } else { Err(StoreError::Superseded) }
}

/// The steps of a run, in order.
pub(super) fn steps_of(sql: &Connection, run: &RunId) -> Result<Vec<Step>, StoreError> {
    let mut query = sql.prepare_cached("SELECT step FROM steps WHERE run_id = ?1 ORDER BY seq")?;
    let mut rows = query.query([run.as_str()])?;
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(from_json(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?);
    }
    Ok(steps)
}

/// Writes steps after the last one, and what they mean for the audit.
pub(super) fn append_steps(writing: &Writing<'_>, run: &RunId, steps: &[Step]) -> Result<(), StoreError> {
    for step in steps {
        writing
            .sql
            .prepare_cached(
                "INSERT INTO steps (run_id, seq, at, kind, step)
                 SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4 FROM steps WHERE run_id = ?1",
            )?
            .execute((run.as_str(), Stamp::now(), step.kind(), to_json(step)?))?;
        audit(writing, run, step)?;
    }
    Ok(())
}

fn audit(writing: &Writing<'_>, run: &RunId, step: &Step) -> Result<(), StoreError> {
    match step {
        Step::Opened(_) | Step::Noted { .. } | Step::Escalated { .. } | Step::ReplyReady { .. } | Step::Closed(_) => Ok(()),
        Step::ModelRequested { purpose, .. } => record(writing, Some(run), EventKind::ModelCalled, &json!({ "purpose": purpose })),
        Step::ModelResponded { purpose, reply, cost, attempts, .. } => {
            let calls = reply.message.calls().len();
            spend(writing, run, reply.usage, *cost, *purpose == Purpose::Round && calls > 0)?;
            let data = json!({ "purpose": purpose, "stop": reply.stop, "calls": calls, "attempts": attempts,
                "input_tokens": reply.usage.input_total(), "output_tokens": reply.usage.output, "cost": cost });
            record(writing, Some(run), EventKind::ModelCompleted, &data)
        }
        Step::ModelDiscarded { purpose, reply, cost, .. } => {
            spend(writing, run, reply.usage, *cost, false)?;
            let data = json!({ "purpose": purpose, "discarded": true, "stop": reply.stop, "cost": cost });
            record(writing, Some(run), EventKind::ModelFailed, &data)
        }
        Step::ModelFailed { purpose, error, attempts, cost, .. } => {
            spend(writing, run, Usage::default(), *cost, false)?;
            record(writing, Some(run), EventKind::ModelFailed, &json!({ "purpose": purpose, "error": error, "attempts": attempts }))
        }
        Step::ToolIntended { round, position, call, .. } => intend(writing, run, (*round, *position), call),
        Step::ToolFinished { round, position, call, result, status } => {
            finish(writing, run, (*round, *position), call, (&result.text, *status))
        }
    }
}

/// Adds one answer to the run's totals, so that a running run shows what it has cost so far.
fn spend(writing: &Writing<'_>, run: &RunId, usage: Usage, cost: u64, round: bool) -> Result<(), StoreError> {
    writing
        .sql
        .prepare_cached(
            "UPDATE runs SET input_tokens = input_tokens + ?2, output_tokens = output_tokens + ?3, cost = cost + ?4, rounds = rounds + ?5
             WHERE id = ?1",
        )?
        .execute((run.as_str(), count(usage.input_total()), count(usage.output), count(cost), round))?;
    Ok(())
}

/// A call whose end is not known yet: that is what it stays if the daemon stops here (harness J3).
fn intend(writing: &Writing<'_>, run: &RunId, (round, position): (u32, u32), call: &ToolCall) -> Result<(), StoreError> {
    writing
        .sql
        .prepare_cached(
            "INSERT INTO tool_calls (run_id, round, position, name, arguments, status, started_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 'unknown', ?6)
             ON CONFLICT (run_id, round, position)
             DO UPDATE SET name = excluded.name, arguments = excluded.arguments, started_at = excluded.started_at",
        )?
        .execute((run.as_str(), round, position, call.name.as_str(), &call.arguments, Stamp::now()))?;
    let data = json!({ "round": round, "position": position, "tool": call.name });
    record(writing, Some(run), EventKind::ToolCalled, &data)
}

fn finish(
    writing: &Writing<'_>,
    run: &RunId,
    (round, position): (u32, u32),
    call: &ToolCall,
    (result, status): (&str, ToolStatus),
) -> Result<(), StoreError> {
    writing
        .sql
        .prepare_cached(
            "INSERT INTO tool_calls (run_id, round, position, name, arguments, result, status, started_at, ended_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
             ON CONFLICT (run_id, round, position)
             DO UPDATE SET result = excluded.result, status = excluded.status, ended_at = excluded.ended_at",
        )?
        .execute((run.as_str(), round, position, call.name.as_str(), &call.arguments, result, status.as_str(), Stamp::now()))?;
    let kind = status.event();
    let data = json!({ "round": round, "position": position, "tool": call.name, "status": status });
    record(writing, Some(run), kind, &data)
}
