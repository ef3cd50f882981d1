//! The loop. It asks its transcript what comes next, does that, and writes down what came of it, until
//! there is a reply.

use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::accept::{Fate, fate, without_calls};
use super::cancel::{Cancelled, cancel};
use super::dispatch;
use super::job::{Job, Stop};
use super::journal::Journal;
use super::next::{Next, next};
use super::reply::choose;
use super::transcript::{Transcript, round_result_bytes};
use crate::chat::StopReason;
use crate::context::Assembled;
use crate::events::Events;
use crate::inference::{Completed, ErrorKind, ModelError, ModelEvent, Phase, Request, Unanswered};
use crate::run::{EventKind, Outcome, RunStatus};
use crate::store::{Close, Opened, Purpose, Step, Store, StoreError};

/// What the model is told when it repeats a failing call (harness L6).
const CIRCLING: &str =
    "The same call has failed the same way several times. Do not repeat it: try something else, or answer with what you know.";

/// What a model call may still take when the run's time is over: enough for a closing call.
const LAST_WORD: Duration = Duration::from_secs(60);

/// Runs jobs. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Harness {
    store: Store,
    events: Events,
}

/// How a run left the loop.
#[derive(Debug)]
pub enum Ended {
    /// The reply is decided. Nothing of the last steps is written yet: they belong into the transaction that
    /// queues the reply.
    Finished(Box<Finish>),
    /// No model answers at the moment: the run stays open and is to be resumed later.
    Unavailable(ModelError),
    /// Told to stop at a step boundary; the journal suffices to go on.
    Stopped,
    /// The operator ended it: there is no reply.
    Cancelled(Box<Cancelled>),
    /// The store took no more steps.
    Broken(StoreError),
}

/// A decided reply.
#[derive(Debug)]
pub struct Finish {
    /// Steps to be written with the close.
    pub steps: Vec<Step>,
    /// Markdown, never empty.
    pub body: String,
    /// How it ended.
    pub close: Close,
    /// Why the thread goes to the operator, when it does.
    pub escalated: Option<String>,
}

/// Why there are no more turns.
enum Left {
    Decided,
    Unavailable(ModelError),
    Stopped,
}

/// What one model call came to.
enum Asked {
    Answered,
    Failed(ModelError),
    Stopped,
}

impl Harness {
    /// A harness over this store.
    pub fn new(store: Store, events: Events) -> Harness {
        Harness { store, events }
    }

    /// The first steps of a run, to be committed together with the claim of what it works on.
    pub fn opening(job: &Job, assembled: Assembled, config_hash: String, nonce: String) -> Vec<Step> {
        let opened = Opened {
            system: assembled.system,
            messages: assembled.messages,
            tools: job.tools.definitions(),
            party: job.context.party.as_ref().clone(),
            contributions: assembled.contributions,
            nonce,
            round_result_bytes: round_result_bytes(job.model.context_window()),
            config_hash,
        };
        let opened = Step::Opened(Box::new(opened));
        let request = Transcript::fold(vec![opened.clone()]).map(|transcript| job.request(&transcript, Purpose::Round));
        let mut steps = vec![opened];
        steps.extend(request.map(|request| Step::ModelRequested { purpose: Purpose::Round, request_hash: hash(&request) }));
        steps
    }

    /// Runs a job whose opening steps were just committed.
    pub async fn run(&self, job: &Job, transcript: Transcript, stop: &Stop) -> Ended {
        let mut journal = Journal::new(&self.store, &job.context.run, transcript);
        match self.turns(job, &mut journal, stop).await {
            Ok(Left::Decided) => Ended::Finished(Box::new(finish(job, journal))),
            Ok(_) if stop.cancelled.is_cancelled() => Ended::Cancelled(Box::new(cancel(journal))),
            Ok(left) => match (journal.flush().await, left) {
                (Ok(()), Left::Unavailable(error)) => Ended::Unavailable(error),
                (Ok(()), _) => Ended::Stopped,
                (Err(error), _) => Ended::Broken(error),
            },
            Err(error) => Ended::Broken(error),
        }
    }

    /// Ends a run that only waits.
    pub fn cancel(&self, job: &Job, transcript: Transcript) -> Ended {
        Ended::Cancelled(Box::new(cancel(Journal::new(&self.store, &job.context.run, transcript))))
    }

    /// Goes on with a run that stopped anywhere: after a crash, or when a model answers again. The
    /// transcript is folded from its journal.
    pub async fn resume(&self, job: &Job, mut transcript: Transcript, stop: &Stop) -> Ended {
        transcript.forget_request();
        transcript.forget_failure();
        self.events.emit(Some(&job.context.run), EventKind::RunResumed, json!({}));
        self.run(job, transcript, stop).await
    }

    /// Ends a run whose model stayed away for too long: with what there is, at the least the fallback text.
    pub fn without_model(&self, job: &Job, transcript: Transcript) -> Ended {
        Ended::Finished(Box::new(finish(job, Journal::new(&self.store, &job.context.run, transcript))))
    }

    /// Rounds until the reply can be decided, or until there is a reason to leave.
    async fn turns(&self, job: &Job, journal: &mut Journal<'_>, stop: &Stop) -> Result<Left, StoreError> {
        let deadline = Instant::now() + job.run_time();
        loop {
            if stop.draining.is_cancelled() || stop.cancelled.is_cancelled() {
                return Ok(Left::Stopped);
            }
            match next(journal.transcript(), job.bounds(Instant::now() >= deadline)) {
                Next::Finish => return Ok(Left::Decided),
                Next::Notice => journal.push(Step::Noted { text: CIRCLING.to_owned() }),
                Next::Dispatch => {
                    let dispatch = dispatch::Dispatch { job, store: &self.store, events: &self.events, stop, deadline };
                    if !dispatch.run(journal).await? {
                        return Ok(Left::Stopped);
                    }
                }
                Next::Ask(purpose) => match self.ask(job, journal, purpose, (stop, deadline)).await? {
                    Asked::Stopped => return Ok(Left::Stopped),
                    Asked::Failed(error) if is_outage(error.kind) => return Ok(Left::Unavailable(error)),
                    Asked::Answered | Asked::Failed(_) => {}
                },
            }
        }
    }

    /// One model call: journaled, made, judged.
    async fn ask(
        &self,
        job: &Job,
        journal: &mut Journal<'_>,
        purpose: Purpose,
        (stop, deadline): (&Stop, Instant),
    ) -> Result<Asked, StoreError> {
        let run = &job.context.run;
        if journal.transcript().asked() != Some(purpose) {
            let request = job.request(journal.transcript(), purpose);
            journal.push(Step::ModelRequested { purpose, request_hash: hash(&request) });
            journal.flush().await?;
        }
        let request = job.request(journal.transcript(), purpose);
        self.events.emit(Some(run), EventKind::ModelCalled, json!({ "purpose": purpose, "model": job.model.name() }));
        let events = self.events.clone();
        let watch = |event: &ModelEvent| {
            if let ModelEvent::Text(text) = event {
                events.emit(Some(run), EventKind::TextDelta, json!({ "text": text }));
            }
        };
        let answer = tokio::select! {
            answer = Box::pin(job.model.complete(&request, &watch)) => answer,
            () = stop.aborting.cancelled() => {
                // Nothing happened yet: the call is simply made again (harness K2, J8).
                return Ok(Asked::Stopped);
            }
            () = stop.cancelled.cancelled() => return Ok(Asked::Stopped),
            () = tokio::time::sleep_until(deadline.max(Instant::now() + LAST_WORD)) => Err(out_of_time()),
        };
        match answer {
            Ok(completed) => {
                self.judge(journal, run, purpose, completed);
                Ok(Asked::Answered)
            }
            Err(Unanswered { error, attempts, cost }) => {
                self.events.emit(Some(run), EventKind::ModelFailed, json!({ "error": error.kind.as_str() }));
                tracing::warn!(run = run.as_str(), error = error.kind.as_str(), status = error.status, "the model gave no answer");
                journal.push(Step::ModelFailed {
                    purpose,
                    error: error.kind.as_str().to_owned(),
                    message: error.message.clone(),
                    attempts,
                    cost,
                });
                Ok(Asked::Failed(error))
            }
        }
    }

    fn judge(&self, journal: &mut Journal<'_>, run: &crate::run::RunId, purpose: Purpose, completed: Completed) {
        let Completed { reply, cost, attempts, headers } = completed;
        let reply = if reply.stop == StopReason::Refusal { without_calls(reply) } else { reply };
        let tokens = json!({ "input": reply.usage.input_total(), "output": reply.usage.output });
        match fate(purpose, &reply, journal.transcript().discards()) {
            Fate::Keep => {
                self.events.emit(Some(run), EventKind::ModelCompleted, tokens);
                journal.push(Step::ModelResponded { purpose, reply, cost, attempts, headers });
            }
            Fate::Discard { reason, note } => {
                self.events.emit(Some(run), EventKind::ModelFailed, json!({ "error": reason }));
                journal.push(Step::ModelDiscarded { purpose, reason: reason.to_owned(), reply, cost });
                if let Some(text) = note {
                    journal.push(Step::Noted { text: text.to_owned() });
                }
            }
        }
    }
}

fn out_of_time() -> Unanswered {
    let error = ModelError {
        kind: ErrorKind::Cancelled,
        status: None,
        message: "the run's time is over (limit run_time)".to_owned(),
        retry_after: None,
        request_id: None,
        phase: Phase::MidStream,
    };
    Unanswered { error, attempts: 1, cost: 0 }
}

/// Whether waiting helps: the letter stays queued, the customer hears nothing of it (harness F6, F9).
fn is_outage(kind: ErrorKind) -> bool {
    kind.is_retryable() || matches!(kind, ErrorKind::Auth | ErrorKind::Permission | ErrorKind::QuotaExhausted)
}

fn hash(request: &Request) -> String {
    let bytes = serde_json::to_vec(request).unwrap_or_default();
    format!("{:x}", Sha256::digest(&bytes))
}

/// Decides the reply and puts together what the closing transaction needs.
fn finish(job: &Job, mut journal: Journal<'_>) -> Finish {
    let ready = match journal.transcript().ready() {
        Some(ready) => ready.clone(),
        None => {
            let ready = choose(journal.transcript(), &job.context);
            journal.push(Step::ReplyReady { body: ready.body.clone(), outcome: ready.outcome, source: ready.source });
            ready
        }
    };
    let (transcript, mut steps) = journal.into_unwritten();
    let error = match ready.outcome {
        Outcome::Fallback => Some(
            transcript
                .failure()
                .map_or_else(|| "the model gave no usable answer".to_owned(), |failure| format!("{}: {}", failure.error, failure.message)),
        ),
        Outcome::Refused => Some("the model refused".to_owned()),
        _ => None,
    };
    let close = Close {
        status: RunStatus::Done,
        outcome: ready.outcome,
        error,
        rounds: transcript.rounds(),
        usage: transcript.usage(),
        cost: transcript.cost(),
    };
    steps.push(Step::Closed(close.clone()));
    Finish { steps, body: ready.body, close, escalated: transcript.escalated().map(ToOwned::to_owned) }
}
