//! Content that goes while its row stays: raw bytes, texts, prompts, arguments and results.

use chrono::{DateTime, Utc};
use rusqlite::ToSql;

use super::super::StoreError;
use super::super::audit::Stamp;
use super::super::writer::Writing;
use super::{BYTES, Batch, ROWS};

/// Raw bytes of messages of one kind (`raw_kept`) that came before `cut`. Their hash and their places stay.
pub(super) fn erase_raw(writing: &Writing<'_>, kind: &str, cut: Stamp) -> Result<Batch, StoreError> {
    let due = due(
        writing,
        "SELECT r.id, (SELECT octet_length(w.raw) FROM raw_letters w WHERE w.received_id = r.id)
         FROM received r INDEXED BY received_with_raw
         WHERE r.raw_kept = ?1 AND r.received_at < ?2
             AND NOT EXISTS (SELECT 1 FROM unfinished_letters u WHERE u.received_id = r.id)
         ORDER BY r.received_at LIMIT ?3",
        (kind, cut, rows()),
    )?;
    erase(&due, |id| {
        writing.sql.prepare_cached("DELETE FROM raw_letters WHERE received_id = ?1")?.execute([id])?;
        writing.sql.prepare_cached("UPDATE received SET raw_kept = NULL WHERE id = ?1")?.execute([id])?;
        Ok(())
    })
}

/// Subject and text of messages that came before `cut`, and whose last run ended before it. A thread loses its subject
/// with its last letter.
pub(super) fn erase_letters(writing: &Writing<'_>, cut: Stamp) -> Result<Batch, StoreError> {
    let due = due(
        writing,
        "SELECT r.id, octet_length(r.inbound)
         FROM received r INDEXED BY received_with_text
         WHERE r.inbound IS NOT NULL AND r.received_at < ?1
             AND NOT EXISTS (SELECT 1 FROM unfinished_letters u WHERE u.received_id = r.id)
             AND NOT EXISTS (
                 SELECT 1 FROM letters l JOIN runs n ON n.letter_id = l.id WHERE l.received_id = r.id AND n.ended_at >= ?1)
         ORDER BY r.received_at LIMIT ?2",
        (cut, rows()),
    )?;
    erase(&due, |id| {
        writing.sql.prepare_cached("UPDATE received SET inbound = NULL WHERE id = ?1")?.execute([id])?;
        writing.sql.prepare_cached("UPDATE letters SET subject = '' WHERE received_id = ?1")?.execute([id])?;
        writing
            .sql
            .prepare_cached(
                "UPDATE threads SET subject = ''
                 WHERE id IN (SELECT l.thread_id FROM letters l WHERE l.received_id = ?1) AND last_at < ?2",
            )?
            .execute((id, cut))?;
        Ok(())
    })
}

/// Journal, kept results, arguments and results of runs that ended before `cut`.
pub(super) fn erase_runs(writing: &Writing<'_>, cut: Stamp, now: DateTime<Utc>) -> Result<Batch, StoreError> {
    let mut query = writing.sql.prepare_cached(
        "SELECT r.id FROM runs r INDEXED BY runs_with_content
         WHERE r.expired_at IS NULL AND r.ended_at IS NOT NULL AND r.ended_at < ?1
             AND NOT EXISTS (SELECT 1 FROM unfinished_runs u WHERE u.id = r.id)
         ORDER BY r.ended_at LIMIT ?2",
    )?;
    let due: Vec<String> = query.query_map((cut, rows()), |row| row.get(0))?.collect::<Result<_, _>>()?;
    let (mut erased, mut bytes) = (0, 0);
    for run in &due {
        bytes += erase_results(writing, run, BYTES - bytes)?;
        if bytes >= BYTES {
            // Its journal goes with the next transaction.
            return Ok(Batch { erased, more: true });
        }
        let mut journal = writing.sql.prepare_cached("SELECT coalesce(sum(octet_length(step)), 0) FROM steps WHERE run_id = ?1")?;
        bytes += journal.query_row([run], |row| row.get::<_, i64>(0))?;
        writing.sql.prepare_cached("DELETE FROM steps WHERE run_id = ?1")?.execute([run])?;
        writing.sql.prepare_cached("UPDATE tool_calls SET arguments = '', result = NULL WHERE run_id = ?1")?.execute([run])?;
        writing.sql.prepare_cached("UPDATE runs SET expired_at = ?2 WHERE id = ?1")?.execute((run, Stamp(now)))?;
        erased += 1;
        if bytes >= BYTES {
            return Ok(Batch { erased, more: true });
        }
    }
    Ok(Batch { erased, more: due.len() == ROWS })
}

/// Kept results of a run until `room` is used up; gives how many bytes they had.
fn erase_results(writing: &Writing<'_>, run: &str, room: i64) -> Result<i64, StoreError> {
    let mut query = writing.sql.prepare_cached("SELECT rowid, octet_length(text) FROM results WHERE run_id = ?1")?;
    let kept: Vec<(i64, i64)> = query.query_map([run], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut bytes = 0;
    for (row, length) in kept {
        writing.sql.prepare_cached("DELETE FROM results WHERE rowid = ?1")?.execute([row])?;
        bytes += length;
        if bytes >= room {
            break;
        }
    }
    Ok(bytes)
}

/// Subject, text and bytes of outgoing letters that were settled before `cut`, as was their run. A copy for the Sent
/// folder that could not be made in all that time is not made any more.
pub(super) fn erase_outgoing(writing: &Writing<'_>, cut: Stamp) -> Result<Batch, StoreError> {
    let due = due(
        writing,
        "SELECT o.id, octet_length(o.bytes) + octet_length(o.text)
         FROM outgoing o INDEXED BY outgoing_with_content
         WHERE o.bytes <> x'' AND o.queued_at < ?1 AND coalesce(o.sent_at, o.queued_at) < ?1
             AND o.status IN ('sent', 'failed', 'rejected', 'bounced')
             AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = o.run_id AND (r.ended_at IS NULL OR r.ended_at >= ?1))
         ORDER BY o.queued_at LIMIT ?2",
        (cut, rows()),
    )?;
    erase(&due, |id| {
        writing.sql.prepare_cached("UPDATE outgoing SET subject = '', text = '', bytes = x'', copied = 1 WHERE id = ?1")?.execute([id])?;
        Ok(())
    })
}

/// The ids that a query finds, each with its bytes.
fn due<P: rusqlite::Params>(writing: &Writing<'_>, query: &str, parameters: P) -> Result<Vec<(i64, i64)>, StoreError> {
    let mut query = writing.sql.prepare_cached(query)?;
    let due = query.query_map(parameters, |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.unwrap_or(0))))?;
    Ok(due.collect::<Result<_, _>>()?)
}

/// Erases one after the other until enough bytes are gone for one transaction.
fn erase(due: &[(i64, i64)], each: impl Fn(i64) -> Result<(), StoreError>) -> Result<Batch, StoreError> {
    let (mut erased, mut bytes) = (0, 0);
    for (id, length) in due {
        each(*id)?;
        erased += 1;
        bytes += length;
        if bytes >= BYTES {
            return Ok(Batch { erased, more: true });
        }
    }
    Ok(Batch { erased, more: due.len() == ROWS })
}

fn rows() -> impl ToSql {
    i64::try_from(ROWS).unwrap_or(i64::MAX)
}
