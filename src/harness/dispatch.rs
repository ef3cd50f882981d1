//! One round's calls: checked, journaled, run, their results put back in call order (harness part 4).
//!
//! Calls that only read, or know their effect key, run at once; one that has effects waits for those before
//! it and is waited for by those after it, so that effects happen in the order given (T1).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::job::{Job, Stop};
use super::journal::Journal;
use super::transcript::{Intent, Round, result_id};
use crate::chat::{ToolCall, ToolResult};
use crate::events::Events;
use crate::run::{EventKind, RunContext};
use crate::store::{Step, Store, StoreError, ToolStatus};
use crate::tools::{Invocation, Resolved, Tool, ToolError, ToolOutput, bound, permitted};

/// What dispatching needs.
pub(super) struct Dispatch<'a> {
    pub(super) job: &'a Job,
    pub(super) store: &'a Store,
    pub(super) events: &'a Events,
    pub(super) stop: &'a Stop,
    pub(super) deadline: Instant,
}

/// A call that may run.
struct Ready {
    position: u32,
    tool: Arc<dyn Tool>,
    call: ToolCall,
    arguments: Value,
    effect_key: String,
}

/// What a call's task takes along.
struct Surroundings {
    context: RunContext,
    store: Store,
    slots: Arc<Semaphore>,
    deadline: Instant,
}

/// What a call came to, before it is written down.
struct Done {
    position: u32,
    call: ToolCall,
    result: ToolResult,
    status: ToolStatus,
    escalate: Option<String>,
}

impl Dispatch<'_> {
    /// Gives every call of the round its result. False when told to stop before that.
    pub(super) async fn run(&self, journal: &mut Journal<'_>) -> Result<bool, StoreError> {
        let Some(round) = journal.transcript().round().cloned() else { return Ok(true) };
        let mut batch: Vec<Ready> = Vec::new();
        for (position, call) in (0u32..).zip(&round.calls) {
            if round.finished.contains_key(&position) {
                continue;
            }
            // Those before it are done before its intent is so much as pushed: a crash among them would else leave it
            // unknown though it never ran (J3).
            if self.has_effects(call) && !self.perform(journal, std::mem::take(&mut batch)).await? {
                return Ok(false);
            }
            let Some(ready) = self.admit(journal, &round, position, call) else { continue };
            batch.push(ready);
            if self.has_effects(call) && !self.perform(journal, std::mem::take(&mut batch)).await? {
                return Ok(false);
            }
        }
        self.perform(journal, batch).await
    }

    fn has_effects(&self, call: &ToolCall) -> bool {
        matches!(self.job.tools.resolve(call), Resolved::Ready { tool, .. } if !tool.spec().effect.is_repeatable())
    }

    /// Decides whether a call runs. If so its intent is pushed (and stands in the journal before the call
    /// does); if not, its error result is.
    fn admit(&self, journal: &mut Journal<'_>, round: &Round, position: u32, call: &ToolCall) -> Option<Ready> {
        if let Some(intent) = round.intended.get(&position) {
            return self.again(journal, round, position, intent);
        }
        if let Some(message) = self.over_a_limit(journal, round, position) {
            self.refuse(journal, round.number, position, call.clone(), (ToolStatus::Skipped, message));
            return None;
        }
        let (tool, call, arguments, repaired) = match self.job.tools.resolve(call) {
            Resolved::Ready { tool, call, arguments, repaired } => (tool, call, arguments, repaired),
            Resolved::Invalid { call, message } => {
                let known = self.job.tools.names().contains(&&call.name);
                let status = if known { ToolStatus::Failed } else { ToolStatus::Refused };
                self.refuse(journal, round.number, position, call, (status, message));
                return None;
            }
        };
        if let Err(error) = self.allowed(tool.as_ref(), journal) {
            self.refuse(journal, round.number, position, call, (ToolStatus::Refused, error.to_string()));
            return None;
        }
        let effect_key = effect_key(self.job, round.number, position, &call);
        journal.push(Step::ToolIntended {
            round: round.number,
            position,
            call: call.clone(),
            effect: tool.spec().effect,
            effect_key: effect_key.clone(),
            repaired,
        });
        Some(Ready { position, tool, call, arguments, effect_key })
    }

    /// A call whose intent an earlier daemon wrote: what may be repeated is, with the same key; what may
    /// not is reported as unknown (harness J3).
    fn again(&self, journal: &mut Journal<'_>, round: &Round, position: u32, intent: &Intent) -> Option<Ready> {
        let call = intent.call.clone();
        let refused = match self.job.tools.resolve(&call) {
            Resolved::Ready { tool, call, arguments, .. } if intent.repeatable => match self.allowed(tool.as_ref(), journal) {
                Ok(()) => return Some(Ready { position, tool, call, arguments, effect_key: intent.effect_key.clone() }),
                Err(error) => (ToolStatus::Refused, error.to_string()),
            },
            _ => (ToolStatus::Unknown, "outcome unknown: the daemon restarted while this was running; check before repeating".to_owned()),
        };
        self.refuse(journal, round.number, position, call, refused);
        None
    }

    /// More calls than a round or a run may have get an error, they are not silently dropped (harness L5).
    fn over_a_limit(&self, journal: &Journal<'_>, round: &Round, position: u32) -> Option<String> {
        let limits = &self.job.context.settings.limits;
        let size = u32::try_from(round.calls.len()).unwrap_or(u32::MAX);
        let earlier = journal.transcript().calls().saturating_sub(size);
        if position >= limits.tool_calls_per_round {
            return Some(format!("not run: too many calls in one turn; at most {} run", limits.tool_calls_per_round));
        }
        (earlier.saturating_add(position) >= limits.tool_calls_per_run)
            .then(|| format!("not run: too many calls in this run; at most {} run", limits.tool_calls_per_run))
    }

    /// Identity, taint and the operator's switches, as they are at this moment (security, construction 3).
    fn allowed(&self, tool: &dyn Tool, journal: &Journal<'_>) -> Result<(), ToolError> {
        permitted(tool.spec(), &self.job.context, self.store, journal.transcript().tainted())
    }

    fn refuse(&self, journal: &mut Journal<'_>, round: u32, position: u32, call: ToolCall, (status, text): (ToolStatus, String)) {
        self.events.emit(Some(&self.job.context.run), status.event(), json!({ "tool": call.name.0, "status": status.as_str() }));
        let result = ToolResult { call: call.id.clone(), text, is_error: true };
        journal.push(Step::ToolFinished { round, position, call, result, status });
    }

    /// Runs calls at once, at most `parallel_tools`, after their intents are committed. False when stopped.
    async fn perform(&self, journal: &mut Journal<'_>, batch: Vec<Ready>) -> Result<bool, StoreError> {
        if batch.is_empty() {
            return Ok(true);
        }
        journal.flush().await?;
        let round = journal.transcript().round().map_or(0, |round| round.number);
        let slots = Arc::new(Semaphore::new(self.job.context.settings.limits.parallel_tools.max(1) as usize));
        let mut running = JoinSet::new();
        let mut positions = std::collections::BTreeMap::new();
        let effects = batch.iter().any(|ready| !ready.tool.spec().effect.is_repeatable());
        for ready in batch {
            self.events.emit(Some(&self.job.context.run), EventKind::ToolCalled, json!({ "tool": ready.call.name.0, "round": round }));
            let (call, position) = (ready.call.clone(), ready.position);
            let surroundings = Surroundings {
                context: self.job.context.clone(),
                store: self.store.clone(),
                slots: Arc::clone(&slots),
                deadline: self.deadline,
            };
            let work = one_call(surroundings, ready);
            positions.insert(running.spawn(work).id(), (position, call));
        }
        while !running.is_empty() {
            let joined = tokio::select! {
                joined = running.join_next_with_id() => joined,
                // What may be run again is dropped at once; what has effects is awaited (harness K2).
                () = self.stop.aborting.cancelled(), if !effects => return Ok(false),
                () = self.stop.cancelled.cancelled() => return Ok(false),
            };
            let done = match joined {
                Some(Ok((_, done))) => done,
                Some(Err(error)) => match positions.get(&error.id()) {
                    Some((position, call)) => Done::failed(*position, call.clone(), "the tool crashed".to_owned()),
                    None => continue,
                },
                None => break,
            };
            self.write_down(journal, round, done).await?;
        }
        if effects {
            journal.flush().await?;
        }
        Ok(true)
    }

    async fn write_down(&self, journal: &mut Journal<'_>, round: u32, mut done: Done) -> Result<(), StoreError> {
        let run = &self.job.context.run;
        let name = done.call.name.0.clone();
        let id = result_id(round, done.position);
        let bounded = bound(&done.result.text, self.limit_of(&done.call), &id);
        // What the sum over the round may still cut must be readable too (harness B4, B7).
        let calls = journal.transcript().round().map_or(1, |round| round.calls.len().max(1));
        let share = usize::try_from(journal.transcript().round_result_bytes()).unwrap_or(usize::MAX) / calls;
        if bounded.cut || bounded.text.len() > share {
            let whole = std::mem::take(&mut done.result.text);
            self.store.keep_result(run, &id, whole).await?;
        }
        done.result.text = bounded.text;
        self.events.emit(Some(run), done.status.event(), json!({ "tool": name, "bytes": done.result.text.len() }));
        journal.push(Step::ToolFinished { round, position: done.position, call: done.call, result: done.result, status: done.status });
        if let Some(reason) = done.escalate {
            journal.push(Step::Escalated { reason });
        }
        Ok(())
    }

    fn limit_of(&self, call: &ToolCall) -> usize {
        let own = match self.job.tools.resolve(call) {
            Resolved::Ready { tool, .. } => tool.spec().result_bytes,
            Resolved::Invalid { .. } => None,
        };
        own.unwrap_or(self.job.context.settings.limits.tool_result_bytes) as usize
    }
}

impl Done {
    fn failed(position: u32, call: ToolCall, text: String) -> Done {
        let result = ToolResult { call: call.id.clone(), text, is_error: true };
        Done { position, call, result, status: ToolStatus::Failed, escalate: None }
    }
}

/// One call under its time limit. A panic in it ends this task alone (harness T4).
async fn one_call(surroundings: Surroundings, ready: Ready) -> Done {
    let Surroundings { context, store, slots, deadline } = surroundings;
    let Ready { position, tool, call, arguments, effect_key } = ready;
    let _slot = slots.acquire_owned().await;
    let spec = tool.spec();
    let limit = spec.timeout.min(deadline.saturating_duration_since(Instant::now())).max(Duration::from_secs(1));
    let invocation = Invocation { context: &context, store: &store, effect_key: &effect_key };
    let outcome = match tokio::time::timeout(limit, tool.call(arguments, invocation)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ToolError::TimedOut { limit, may_have_acted: !spec.effect.is_pure() }),
    };
    let result = |text, is_error| ToolResult { call: call.id.clone(), text, is_error };
    let (result, status, escalate) = match outcome {
        Ok(ToolOutput::Text(text)) => (result(text, false), ToolStatus::Completed, None),
        Ok(ToolOutput::Escalate { reason }) => {
            (result("The thread is with the operator now.".to_owned(), false), ToolStatus::Completed, Some(reason))
        }
        Err(error @ ToolError::Refused(_)) => (result(error.to_string(), true), ToolStatus::Refused, None),
        Err(error) => (result(error.to_string(), true), ToolStatus::Failed, None),
    };
    Done { position, call, result, status, escalate }
}

/// The key under which this very call is known outside, whenever it is made again (harness J5).
fn effect_key(job: &Job, round: u32, position: u32, call: &ToolCall) -> String {
    let mut digest = Sha256::new();
    for part in [job.context.run.as_str(), &round.to_string(), &position.to_string(), call.name.as_str(), &call.arguments] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    format!("{:x}", digest.finalize())
}
