//! From a letter to a job: who wrote, what the agent may do for them, what the model is shown.

use std::sync::Arc;

use anyhow::Context as _;
use chrono::{DateTime, Utc};

use super::Snapshot;
use crate::config::Agent;
use crate::context::{Chain, Opening, look_up};
use crate::harness::{Harness, Job};
use crate::random;
use crate::run::{Door, Party, RunContext, RunId};
use crate::store::{Step, Store, WaitingLetter};

/// Why a letter cannot be worked on; a person has to look. The text is the reason that `letters` shows.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unready {
    #[error("there is no agent \"{0}\" any more")]
    NoAgent(String),
    #[error("there is no model \"{0}\"")]
    NoModel(String),
    #[error("{0:#}")]
    Context(anyhow::Error),
}

/// The agent of a letter, as configured now.
pub(super) fn agent_of(snapshot: &Snapshot, name: &str) -> Result<Arc<Agent>, Unready> {
    snapshot.config.agents.get(name).cloned().ok_or_else(|| Unready::NoAgent(name.to_owned()))
}

/// Who is on the other side. The customer record is looked up only for an identity that may have it.
pub(super) async fn party_of(snapshot: &Snapshot, agent: &Agent, letter: &WaitingLetter) -> anyhow::Result<Party> {
    let sender = &letter.inbound.from;
    let customer = if letter.identity >= agent.identity {
        look_up(&snapshot.config.settings, &sender.address).await.context("the customer lookup failed")?
    } else {
        None
    };
    Ok(Party {
        address: Some(sender.address.clone()),
        name: sender.name.clone(),
        identity: letter.identity,
        participants: letter.participants.clone(),
        reply_to: Some(letter.reply_to.clone()),
        customer,
    })
}

/// A job for a run of this letter.
pub(super) fn job_of(snapshot: &Snapshot, agent: Arc<Agent>, letter: &WaitingLetter, run: RunId, party: Party) -> Result<Job, Unready> {
    let model = snapshot.models.get(&agent.model).ok_or_else(|| Unready::NoModel(agent.model.clone()))?;
    let tools = snapshot.catalog.toolset(&agent);
    let context = RunContext {
        run,
        door: Door::Reactive,
        agent,
        settings: Arc::clone(&snapshot.config.settings),
        party: Arc::new(party),
        thread: Some(letter.thread),
        letter: Some(letter.id),
        own_address: Some(letter.own_address.clone()),
        outbox: Arc::clone(&snapshot.outbox),
    };
    Ok(Job { context, tools, model })
}

/// The run's first steps: everything that the model will be shown, fixed.
pub(super) async fn opening_of(
    snapshot: &Snapshot,
    store: &Store,
    job: &Job,
    letter: &WaitingLetter,
    now: DateTime<Utc>,
) -> Result<Vec<Step>, Unready> {
    let opening =
        Opening::Letter { letter: Box::new(letter.inbound.clone()), nonce: letter.nonce.clone(), received_at: letter.received_at };
    let chain = Chain::reactive(&job.context.agent, store, opening, now);
    let assembled = chain.assemble(&job.context).await.map_err(|error| Unready::Context(error.into()))?;
    let hash = snapshot.config.hashes.get(&job.context.agent.name).cloned().unwrap_or_default();
    Ok(Harness::opening(job, assembled, hash, format!("{:016x}", u64::from_be_bytes(random::bytes()))))
}
