//! The operator ends a run: every open call gets its result, and there is no reply (harness K1, K4).

use super::journal::Journal;
use crate::chat::ToolResult;
use crate::run::{Outcome, RunStatus};
use crate::store::{Close, Step, ToolStatus};

/// The reason, as the lists show it.
const WHY: &str = "cancelled by the operator";

/// A run that was ended; nothing of its last steps is written yet.
#[derive(Debug)]
pub struct Cancelled {
    /// Steps to be written with the close.
    pub steps: Vec<Step>,
    /// How it ended.
    pub close: Close,
}

/// Closes what is open.
pub(super) fn cancel(mut journal: Journal<'_>) -> Cancelled {
    if let Some(round) = journal.transcript().round().cloned() {
        for (position, call) in (0u32..).zip(&round.calls) {
            if round.finished.contains_key(&position) {
                continue;
            }
            let (call, status, text) = match round.intended.get(&position) {
                None => (call, ToolStatus::Skipped, format!("not run: {WHY}")),
                Some(intent) if intent.repeatable => (&intent.call, ToolStatus::Failed, format!("not completed: {WHY}")),
                Some(intent) => (&intent.call, ToolStatus::Unknown, format!("{WHY} while it ran; it may or may not have taken effect")),
            };
            let result = ToolResult { call: call.id.clone(), text, is_error: true };
            journal.push(Step::ToolFinished { round: round.number, position, call: call.clone(), result, status });
        }
    }
    let (transcript, mut steps) = journal.into_unwritten();
    let close = Close {
        status: RunStatus::Cancelled,
        outcome: Outcome::Failed,
        error: Some(WHY.to_owned()),
        rounds: transcript.rounds(),
        usage: transcript.usage(),
        cost: transcript.cost(),
    };
    steps.push(Step::Closed(close.clone()));
    Cancelled { steps, close }
}
