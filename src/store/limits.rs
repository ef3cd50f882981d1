//! Limits on replies, counted in sliding windows over accepted letters: each of them is a reply to come
//! (email F7, DESIGN 2.7).

use chrono::{DateTime, Duration, Utc};
use serde_json::json;

use super::StoreError;
use super::audit::{Stamp, record};
use super::writer::Writing;
use crate::config::Limits;
use crate::mail::Address;
use crate::run::{EventKind, ThreadId};

/// A letter about to be accepted, as the limits see it.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    /// Its thread; none while it would begin one.
    pub(super) thread: Option<ThreadId>,
    /// Who would get the reply.
    pub(super) reply_to: &'a Address,
    /// The domain's limit counts.
    pub(super) per_domain: bool,
}

/// The reason of the first limit that is reached.
pub(super) fn reached(
    writing: &Writing<'_>,
    limits: &Limits,
    candidate: &Candidate<'_>,
    now: DateTime<Utc>,
) -> Result<Option<&'static str>, StoreError> {
    let (hour, day) = (Stamp(now - Duration::hours(1)), Stamp(now - Duration::days(1)));
    let sql = writing.sql;
    if let Some(thread) = candidate.thread {
        let in_thread = |since: Stamp| -> rusqlite::Result<u32> {
            sql.prepare_cached("SELECT count(*) FROM letters WHERE thread_id = ?1 AND accepted_at > ?2 AND verdict = 'accepted'")?
                .query_row((thread.0, since), |row| row.get(0))
        };
        if in_thread(hour)? >= limits.replies_per_thread_per_hour {
            return Ok(Some("limit:replies_per_thread_per_hour"));
        }
        if in_thread(day)? >= limits.replies_per_thread_per_day {
            return Ok(Some("limit:replies_per_thread_per_day"));
        }
    }
    if from_sender(writing, candidate.reply_to, hour)? >= limits.replies_per_sender_per_hour {
        return Ok(Some("limit:replies_per_sender_per_hour"));
    }
    if candidate.per_domain {
        let from_domain: u32 = sql
            .prepare_cached(
                "SELECT count(*) FROM letters WHERE reply_domain = ?1 AND per_domain = 1 AND accepted_at > ?2 AND verdict = 'accepted'",
            )?
            .query_row((candidate.reply_to.domain(), hour), |row| row.get(0))?;
        if from_domain >= limits.replies_per_domain_per_hour {
            return Ok(Some("limit:replies_per_domain_per_hour"));
        }
    }
    let today: u32 = sql
        .prepare_cached("SELECT count(*) FROM letters WHERE accepted_at > ?1 AND verdict = 'accepted'")?
        .query_row([day], |row| row.get(0))?;
    Ok((today >= limits.replies_per_day).then_some("limit:replies_per_day"))
}

/// Letters of a sender, under whatever tag: who writes as `alice+1@` and as `alice+2@` is one sender.
fn from_sender(writing: &Writing<'_>, sender: &Address, since: Stamp) -> Result<u32, StoreError> {
    let base = sender.without_tag();
    // A comma is what follows a plus sign in the order of texts: the range is served by the index.
    let (first_tag, past_tags) = (format!("{}+", base.local()), format!("{},", base.local()));
    let mut query = writing.sql.prepare_cached(
        "SELECT (SELECT count(*) FROM letters WHERE reply_to = ?1 AND accepted_at > ?2 AND verdict = 'accepted')
             + (SELECT count(*) FROM letters
                WHERE reply_to > ?3 AND reply_to < ?4 AND reply_domain = ?5 AND accepted_at > ?2 AND verdict = 'accepted')",
    )?;
    Ok(query.query_row((base.as_str(), since, first_tag, past_tags, base.domain()), |row| row.get(0))?)
}

/// Accepts held letters for which there is room again, oldest first. A letter that meanwhile meets another
/// limit waits on, under the reason of that one.
pub(super) fn release(writing: &Writing<'_>, limits: &Limits, now: DateTime<Utc>) -> Result<u32, StoreError> {
    let mut released = 0;
    let mut held = writing.sql.prepare_cached(
        "SELECT id, thread_id, reply_to, per_domain, reason FROM letters INDEXED BY letters_held
         WHERE verdict = 'held'
             AND reason IN ('limit:replies_per_sender_per_hour', 'limit:replies_per_domain_per_hour', 'limit:replies_per_day')
             AND reply_to IS NOT NULL
         ORDER BY id",
    )?;
    let held: Vec<(i64, Option<i64>, String, bool, String)> =
        held.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?.collect::<Result<_, _>>()?;
    for (id, thread, reply_to, per_domain, reason) in held {
        let Ok(reply_to) = reply_to.parse::<Address>() else { continue };
        let candidate = Candidate { thread: thread.map(ThreadId), reply_to: &reply_to, per_domain };
        match reached(writing, limits, &candidate, now)? {
            None => {
                accept(writing, id, now)?;
                released += 1;
            }
            Some("limit:replies_per_day") => break,
            Some(other) if other != reason => {
                writing.sql.prepare_cached("UPDATE letters SET reason = ?2 WHERE id = ?1")?.execute((id, other))?;
            }
            Some(_) => {}
        }
    }
    Ok(released)
}

fn accept(writing: &Writing<'_>, id: i64, now: DateTime<Utc>) -> Result<(), StoreError> {
    writing
        .sql
        .prepare_cached(
            "UPDATE letters SET verdict = 'accepted', reason = 'accepted after ' || reason, accepted_at = ?2, epoch = ?3, attempts = 0
             WHERE id = ?1",
        )?
        .execute((id, Stamp(now), writing.epoch))?;
    writing.wake_letters();
    record(writing, None, EventKind::LetterAccepted, &json!({ "letter": id, "verdict": "accepted" }))
}
