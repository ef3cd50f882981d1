//! Retention: content goes at its age, the skeleton of ids, times, verdicts and costs later, what is unfinished never
//! (email B16, K3). Erased bytes are overwritten: the writer's `secure_delete` is on and the log is emptied afterwards.

mod content;
mod skeleton;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::audit::Stamp;
use super::writer::Writing;
use super::{Store, StoreError};
use crate::config::Retention;

/// Rows that one transaction erases at most: the writer is soon free for whoever waits behind it.
const ROWS: usize = 64;

/// Bytes that one transaction erases, but for the row that crosses the line.
const BYTES: i64 = 4 * 1024 * 1024;

/// How much was erased.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// Messages that lost their raw bytes.
    pub raw: u64,
    /// Messages that lost subject and text.
    pub letters: u64,
    /// Runs that lost prompt, answers, arguments and results.
    pub runs: u64,
    /// Outgoing letters that lost subject, text and bytes.
    pub outgoing: u64,
    /// Letters, runs, outgoing letters and events whose rows are gone.
    pub rows: u64,
}

impl Expired {
    /// That nothing was old enough.
    pub fn is_empty(&self) -> bool {
        *self == Expired::default()
    }
}

/// Before which instant each class goes. Content never outlives its row.
#[derive(Debug, Clone, Copy)]
struct Cuts {
    raw: Stamp,
    attached: Stamp,
    transcripts: Stamp,
    skeleton: Stamp,
}

impl Cuts {
    fn of(retention: &Retention, now: DateTime<Utc>) -> Cuts {
        let before = |age: Duration| {
            let then = TimeDelta::from_std(age).ok().and_then(|age| now.checked_sub_signed(age));
            Stamp(then.unwrap_or(DateTime::UNIX_EPOCH))
        };
        let skeleton = before(retention.audit.max(Retention::SHORTEST_AUDIT));
        let raw = before(retention.raw).max(skeleton);
        Cuts { raw, attached: before(retention.attachments).max(raw), transcripts: before(retention.transcripts).max(skeleton), skeleton }
    }
}

/// What one transaction did.
#[derive(Debug, Clone, Copy)]
struct Batch {
    /// How many things it erased.
    erased: u64,
    /// That there may be more of the kind.
    more: bool,
}

impl Store {
    /// Erases what is older than `retention` allows, in small transactions that others may come between; dropped
    /// half-way, it goes on where it was the next time. The keys that tell a letter known stay for ever.
    ///
    /// # Errors
    /// What the store says; what was erased until then stays so.
    pub async fn expire(&self, retention: &Retention, now: DateTime<Utc>) -> Result<Expired, StoreError> {
        let cuts = Cuts::of(retention, now);
        let plain = self.exhaust(move |writing| content::erase_raw(writing, "plain", cuts.raw)).await?;
        let attached = self.exhaust(move |writing| content::erase_raw(writing, "attached", cuts.attached)).await?;
        let runs = self.exhaust(move |writing| content::erase_runs(writing, cuts.transcripts, now)).await?;
        let letters = self.exhaust(move |writing| content::erase_letters(writing, cuts.transcripts)).await?;
        let outgoing = self.exhaust(move |writing| content::erase_outgoing(writing, cuts.transcripts)).await?;
        let mut rows = 0;
        for forget in [skeleton::forget_letters, skeleton::forget_runs, skeleton::forget_outgoing, skeleton::forget_events] {
            rows += self.exhaust(move |writing| forget(writing, cuts.skeleton)).await?;
        }
        let expired = Expired { raw: plain + attached, letters, runs, outgoing, rows };
        if !expired.is_empty() {
            self.write(|writing| {
                writing.empty_log();
                Ok(())
            })
            .await?;
        }
        Ok(expired)
    }

    /// One small transaction after the other until nothing is left to erase.
    async fn exhaust<F>(&self, batch: F) -> Result<u64, StoreError>
    where
        F: Fn(&Writing<'_>) -> Result<Batch, StoreError> + Clone + Send + 'static,
    {
        let mut erased = 0;
        loop {
            let done = self.write(batch.clone()).await?;
            erased += done.erased;
            if !done.more {
                return Ok(erased);
            }
        }
    }
}
