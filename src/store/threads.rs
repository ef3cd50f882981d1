//! Threads: conversations, their participants and what was said and done in them.

use chrono::{DateTime, Utc};

use super::{Step, Store, StoreError};
use crate::mail::Inbound;
use crate::run::{Identity, LetterId, RunId, ThreadId};

/// One earlier letter of a thread, with what was done about it.
#[derive(Debug, Clone)]
pub struct PastTurn {
    /// Its row.
    pub letter: LetterId,
    /// The letter.
    pub inbound: Inbound,
    /// How its sender was proven.
    pub identity: Identity,
    /// The wrapping's delimiter.
    pub nonce: String,
    /// When it came.
    pub received_at: DateTime<Utc>,
    /// Its run, when it had one.
    pub run: Option<RunId>,
    /// The run's steps.
    pub steps: Vec<Step>,
    /// The text that was mailed back, when one was.
    pub reply: Option<String>,
}

/// Whether a thread is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadState {
    /// Yes.
    Open,
    /// It waits for the operator.
    Held(String),
}

impl Store {
    /// The letters of a thread before this one that got a run, oldest first, at most the last `limit`.
    ///
    /// # Errors
    /// What the store says.
    pub async fn past_turns(&self, _thread: ThreadId, _before: LetterId, _limit: usize) -> Result<Vec<PastTurn>, StoreError> {
        unimplemented!()
    }

    /// Holds or opens a thread. Opening it accepts the letters that were held because of it. False when
    /// there is no such thread.
    ///
    /// # Errors
    /// What the store says.
    pub async fn set_thread(&self, _thread: ThreadId, _state: ThreadState) -> Result<bool, StoreError> {
        unimplemented!()
    }
}
