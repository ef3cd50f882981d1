//! Runs: begun together with the claim of their letter, closed together with their reply.

use chrono::{DateTime, Utc};

use super::{Close, QueueOutgoing, Step, Store, StoreError};
use crate::run::{Door, LetterId, OutgoingId, RunId, ThreadId};

/// A run about to begin.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// Which door.
    pub door: Door,
    /// The agent.
    pub agent: String,
    /// The thread.
    pub thread: Option<ThreadId>,
    /// The letter that it takes.
    pub letter: Option<LetterId>,
    /// The model's name.
    pub model: String,
    /// When it begins.
    pub started_at: DateTime<Utc>,
}

/// A run that an earlier daemon left unfinished; it now belongs to this one.
#[derive(Debug, Clone)]
pub struct InterruptedRun {
    /// Its id.
    pub id: RunId,
    /// The agent.
    pub agent: String,
    /// The thread.
    pub thread: Option<ThreadId>,
    /// The letter.
    pub letter: Option<LetterId>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// Attempts that added no journal step, this one included; 3 means: quarantine it (DESIGN 3).
    pub attempts: u32,
}

impl Store {
    /// Claims the letter, begins the run and writes its first steps, in one transaction. False when the
    /// letter was taken already, or may not be answered any more.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open_run(&self, _run: NewRun, _steps: Vec<Step>) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Takes over every run that earlier epochs left running, oldest first. Notes an attempt for each.
    ///
    /// # Errors
    /// What the store says.
    pub async fn take_interrupted(&self) -> Result<Vec<InterruptedRun>, StoreError> {
        unimplemented!()
    }

    /// Writes the last steps, closes the run and queues its letters, in one transaction: durable hand-off 2.
    /// `hold_thread` holds the thread for the operator with this reason.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when another epoch owns the run; else what the store says.
    pub async fn close_run(
        &self,
        _run: &RunId,
        _steps: Vec<Step>,
        _close: Close,
        _outgoing: Vec<QueueOutgoing>,
        _hold_thread: Option<String>,
    ) -> Result<Vec<OutgoingId>, StoreError> {
        unimplemented!()
    }

    /// Money spent by an agent since an instant, in millionths.
    ///
    /// # Errors
    /// What the store says.
    pub async fn spent_since(&self, _agent: &str, _since: DateTime<Utc>) -> Result<u64, StoreError> {
        unimplemented!()
    }

    /// Whether the last two replies queued in this thread have this very text (email F7).
    ///
    /// # Errors
    /// What the store says.
    pub async fn repeats_reply(&self, _thread: ThreadId, _text: &str) -> Result<bool, StoreError> {
        unimplemented!()
    }
}
