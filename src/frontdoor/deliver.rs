//! From an outcome to letters: the reply to the customer and word to the operator, queued in the very
//! transaction that closes the run (durable hand-off 2).

use crate::harness::{Finish, Job};
use crate::mail::{Draft, OutgoingKind, Sealed, reply_references, reply_subject};
use crate::run::{OutboxError, Outcome, RunContext, RunStatus};
use crate::store::{QueueOutgoing, Store, StoreError, WaitingLetter};

/// Closes the run and queues what it has to say.
pub(super) async fn deliver(store: &Store, job: &Job, letter: &WaitingLetter, finish: Finish) -> Result<Outcome, StoreError> {
    let context = &job.context;
    let Finish { steps, body, mut close, escalated } = finish;
    let mut outgoing = Vec::new();
    match reply(store, context, letter, body).await? {
        Ok(sealed) => outgoing.push(queued(context, letter, sealed)),
        Err(error) => {
            tracing::error!(run = context.run.as_str(), error = %error, "the reply may not leave");
            close.status = RunStatus::Failed;
            close.outcome = Outcome::Failed;
            close.error = Some(format!("the reply may not leave: {error}"));
        }
    }
    if let Some(text) = word_to_the_operator(context, letter, &close.outcome, close.error.as_deref(), escalated.as_deref()) {
        match context.outbox.seal(context, text) {
            Ok(sealed) => outgoing.push(queued(context, letter, sealed)),
            Err(error) => tracing::warn!(run = context.run.as_str(), error = %error, "the operator could not be told"),
        }
    }
    let hold = escalated.map(|_| "escalated".to_owned());
    let ids = store.close_run(&context.run, steps, close.clone(), outgoing, hold).await?;
    tracing::info!(
        run = context.run.as_str(),
        letter = letter.id.0,
        outcome = close.outcome.as_str(),
        rounds = close.rounds,
        letters = ids.len(),
        "run closed"
    );
    Ok(close.outcome)
}

async fn reply(
    store: &Store,
    context: &RunContext,
    letter: &WaitingLetter,
    body: String,
) -> Result<Result<Sealed, OutboxError>, StoreError> {
    let draft = Draft {
        kind: OutgoingKind::Reply,
        to: vec![letter.reply_to.clone()],
        from: letter.own_address.clone(),
        subject: reply_subject(&letter.inbound.subject),
        text: body,
        in_reply_to: Some(letter.inbound.message_id.clone()),
        references: reply_references(&letter.inbound),
        effect_key: format!("{}:reply", context.run),
    };
    let sealed = context.outbox.seal(context, draft);
    let Ok(mut sealed) = sealed else { return Ok(sealed) };
    // The same words twice in a row: two machines are talking (email F7, security S22).
    if store.repeats_reply(letter.thread, &sealed.text).await? {
        sealed.held = Some("limit:identical_bodies".to_owned());
    }
    Ok(Ok(sealed))
}

fn queued(context: &RunContext, letter: &WaitingLetter, sealed: Sealed) -> QueueOutgoing {
    let thread = (sealed.kind != OutgoingKind::Notice).then_some(letter.thread);
    QueueOutgoing {
        run: Some(context.run.clone()),
        thread,
        agent: Some(context.agent.name.clone()),
        mailbox: letter.mailbox.clone(),
        sealed,
    }
}

/// What the operator has to know of this outcome; ids only, the way to the rest is named.
fn word_to_the_operator(
    context: &RunContext,
    letter: &WaitingLetter,
    outcome: &Outcome,
    error: Option<&str>,
    escalated: Option<&str>,
) -> Option<Draft> {
    let (what, why) = match outcome {
        Outcome::Escalated => ("handed a thread to you", escalated.unwrap_or_default()),
        Outcome::Fallback => ("could only send its fallback reply", error.unwrap_or_default()),
        Outcome::Refused => ("got a refusal from its model and sent its fallback reply", error.unwrap_or_default()),
        Outcome::Failed => ("could not answer a letter", error.unwrap_or_default()),
        Outcome::Answered | Outcome::LimitReached | Outcome::Quiet => return None,
    };
    let agent = &context.agent.name;
    let mut text = format!(
        "The agent {agent} {what}.\n\nReason: {why}\n\nLetter: `dutiful letter {}`\nRun: `dutiful run {}`\n",
        letter.id, context.run
    );
    if *outcome == Outcome::Escalated {
        text.push_str(&format!("\nThe thread is held until you say `dutiful thread {} --release`.\n", letter.thread));
    }
    Some(Draft {
        kind: OutgoingKind::Notice,
        to: vec![context.settings.operator.clone()],
        from: letter.own_address.clone(),
        subject: format!("[dutiful] {agent} {what}"),
        text,
        in_reply_to: None,
        references: Vec::new(),
        effect_key: format!("{}:notice", context.run),
    })
}
