//! Threads: conversations, their participants and what was said and done in them.

use chrono::{DateTime, Utc};

use rusqlite::{Connection, OptionalExtension, Row};

use super::audit::{Stamp, from_json, short, word};
use super::journal::steps_of;
use super::writer::Writing;
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
    /// The letters of a thread before this one that got a run, oldest first, at most the last `limit`. A turn whose
    /// content is no longer kept is left out whole.
    ///
    /// # Errors
    /// What the store says.
    pub async fn past_turns(&self, thread: ThreadId, before: LetterId, limit: usize) -> Result<Vec<PastTurn>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT l.id, r.inbound, l.identity, r.nonce, l.received_at, l.run_id
                 FROM letters l JOIN received r ON r.id = l.received_id JOIN runs n ON n.id = l.run_id
                 WHERE l.thread_id = ?1 AND l.id < ?2 AND r.inbound IS NOT NULL AND n.expired_at IS NULL
                 ORDER BY l.id DESC LIMIT ?3",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = query.query((thread.0, before.0, limit))?;
            let mut turns = Vec::new();
            while let Some(row) = rows.next()? {
                turns.push(past_turn(sql, row)?);
            }
            turns.reverse();
            Ok(turns)
        })
    }

    /// Holds or opens a thread. Opening it accepts the letters that were held because of it, or because of
    /// a limit of the thread. False when there is no such thread.
    ///
    /// # Errors
    /// What the store says.
    pub async fn set_thread(&self, thread: ThreadId, state: ThreadState) -> Result<bool, StoreError> {
        self.write(move |writing| match &state {
            ThreadState::Held(reason) => hold(writing, thread, reason),
            ThreadState::Open => open(writing, thread),
        })
        .await
    }
}

fn past_turn(sql: &Connection, row: &Row<'_>) -> Result<PastTurn, StoreError> {
    let run = row.get::<_, Option<String>>(5)?.map(RunId);
    let steps = run.as_ref().map(|run| steps_of(sql, run)).transpose()?.unwrap_or_default();
    let reply = match &run {
        Some(run) => sql
            .prepare_cached("SELECT text FROM outgoing WHERE run_id = ?1 AND kind = 'reply' AND bytes <> x'' ORDER BY id LIMIT 1")?
            .query_row([run.as_str()], |row| row.get(0))
            .optional()?,
        None => None,
    };
    Ok(PastTurn {
        letter: LetterId(row.get(0)?),
        inbound: from_json(&row.get::<_, String>(1)?)?,
        identity: word(&row.get::<_, String>(2)?, Identity::from_word)?,
        nonce: row.get(3)?,
        received_at: row.get::<_, Stamp>(4)?.0,
        run,
        steps,
        reply,
    })
}

/// Holds a thread; false when there is none.
pub(super) fn hold(writing: &Writing<'_>, thread: ThreadId, reason: &str) -> Result<bool, StoreError> {
    let changed = writing
        .sql
        .prepare_cached("UPDATE threads SET status = 'held', reason = ?2 WHERE id = ?1")?
        .execute((thread.0, short(reason, 500)))?;
    Ok(changed > 0)
}

fn open(writing: &Writing<'_>, thread: ThreadId) -> Result<bool, StoreError> {
    let known = writing.sql.prepare_cached("UPDATE threads SET status = 'open', reason = NULL WHERE id = ?1")?.execute([thread.0])? > 0;
    if known {
        writing
            .sql
            .prepare_cached(
                "UPDATE letters SET verdict = 'accepted', reason = 'the thread was released', accepted_at = ?2, epoch = ?3,
                     attempts = 0, held_by_thread = 0
                 WHERE thread_id = ?1 AND verdict = 'held' AND run_id IS NULL
                     AND (held_by_thread = 1 OR reason IN ('limit:replies_per_thread_per_hour', 'limit:replies_per_thread_per_day'))",
            )?
            .execute((thread.0, Stamp::now(), writing.epoch))?;
        writing.wake_letters();
    }
    Ok(known)
}
