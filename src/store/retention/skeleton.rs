//! Rows that go whole, long after their content. The newest row of each table stays whatever its age, so that no id is
//! ever given twice.

use rusqlite::OptionalExtension;

use super::super::StoreError;
use super::super::audit::Stamp;
use super::super::writer::Writing;
use super::{Batch, ROWS};

/// Letters that came before `cut`, with their runs and, when nothing else is in it, their thread. What tells the same
/// letter known again (`received`, `places`) stays.
pub(super) fn forget_letters(writing: &Writing<'_>, cut: Stamp) -> Result<Batch, StoreError> {
    let mut query = writing.sql.prepare_cached(
        "SELECT l.id, l.thread_id FROM letters l INDEXED BY letters_by_age
         WHERE l.received_at < ?1 AND l.id < (SELECT max(id) FROM letters)
             AND NOT EXISTS (SELECT 1 FROM unfinished_letters u WHERE u.id = l.id)
             AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.letter_id = l.id AND r.ended_at >= ?1)
         ORDER BY l.received_at LIMIT ?2",
    )?;
    let due = query.query_map((cut, limit(ROWS)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let due: Vec<(i64, Option<i64>)> = due.collect::<Result<_, _>>()?;
    for (letter, thread) in &due {
        writing.sql.prepare_cached("UPDATE letters SET run_id = NULL WHERE id = ?1")?.execute([letter])?;
        let mut query = writing.sql.prepare_cached("SELECT id FROM runs WHERE letter_id = ?1")?;
        let runs: Vec<String> = query.query_map([letter], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for run in &runs {
            forget_run(writing, run)?;
        }
        writing.sql.prepare_cached("DELETE FROM letters WHERE id = ?1")?.execute([letter])?;
        forget_thread(writing, *thread)?;
    }
    Ok(batch(due.len(), ROWS))
}

/// Runs that no letter began and that ended before `cut`.
pub(super) fn forget_runs(writing: &Writing<'_>, cut: Stamp) -> Result<Batch, StoreError> {
    let mut query = writing.sql.prepare_cached(
        "SELECT r.id, r.thread_id FROM runs r INDEXED BY runs_without_letter
         WHERE r.letter_id IS NULL AND r.ended_at < ?1
             AND NOT EXISTS (SELECT 1 FROM unfinished_runs u WHERE u.id = r.id)
         ORDER BY r.ended_at LIMIT ?2",
    )?;
    let due = query.query_map((cut, limit(ROWS)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let due: Vec<(String, Option<i64>)> = due.collect::<Result<_, _>>()?;
    for (run, thread) in &due {
        forget_run(writing, run)?;
        forget_thread(writing, *thread)?;
    }
    Ok(batch(due.len(), ROWS))
}

/// Outgoing letters that were settled before `cut`, as was their run.
pub(super) fn forget_outgoing(writing: &Writing<'_>, cut: Stamp) -> Result<Batch, StoreError> {
    let gone = writing
        .sql
        .prepare_cached(
            "DELETE FROM outgoing WHERE id IN (
                 SELECT o.id FROM outgoing o INDEXED BY outgoing_by_age
                 WHERE o.queued_at < ?1 AND coalesce(o.sent_at, o.queued_at) < ?1 AND o.id < (SELECT max(id) FROM outgoing)
                     AND o.status IN ('sent', 'failed', 'rejected', 'bounced')
                     AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = o.run_id AND (r.ended_at IS NULL OR r.ended_at >= ?1))
                 ORDER BY o.queued_at LIMIT ?2)",
        )?
        .execute((cut, limit(ROWS)))?;
    Ok(batch(gone, ROWS))
}

/// Events of before `cut`, but for those of a run that still goes on.
pub(super) fn forget_events(writing: &Writing<'_>, cut: Stamp) -> Result<Batch, StoreError> {
    // They are small.
    let rows = 8 * ROWS;
    let gone = writing
        .sql
        .prepare_cached(
            "DELETE FROM events WHERE seq IN (
                 SELECT e.seq FROM events e INDEXED BY events_by_age
                 WHERE e.at < ?1 AND e.seq < (SELECT max(seq) FROM events)
                     AND NOT EXISTS (SELECT 1 FROM unfinished_runs u WHERE u.id = e.run_id)
                 ORDER BY e.at LIMIT ?2)",
        )?
        .execute((cut, limit(rows)))?;
    Ok(batch(gone, rows))
}

fn forget_run(writing: &Writing<'_>, run: &str) -> Result<(), StoreError> {
    for sql in [
        "DELETE FROM steps WHERE run_id = ?1",
        "DELETE FROM results WHERE run_id = ?1",
        "DELETE FROM tool_calls WHERE run_id = ?1",
        "DELETE FROM runs WHERE id = ?1",
    ] {
        writing.sql.prepare_cached(sql)?.execute([run])?;
    }
    Ok(())
}

/// A thread in which nothing is left.
fn forget_thread(writing: &Writing<'_>, thread: Option<i64>) -> Result<(), StoreError> {
    let mut query = writing.sql.prepare_cached(
        "SELECT t.id FROM threads t
         WHERE t.id = ?1 AND t.id < (SELECT max(id) FROM threads)
             AND NOT EXISTS (SELECT 1 FROM letters l WHERE l.thread_id = t.id)
             AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.thread_id = t.id)",
    )?;
    let Some(empty) = query.query_row([thread], |row| row.get::<_, i64>(0)).optional()? else { return Ok(()) };
    writing.sql.prepare_cached("DELETE FROM participants WHERE thread_id = ?1")?.execute([empty])?;
    writing.sql.prepare_cached("DELETE FROM threads WHERE id = ?1")?.execute([empty])?;
    Ok(())
}

fn batch(erased: usize, rows: usize) -> Batch {
    Batch { erased: u64::try_from(erased).unwrap_or(u64::MAX), more: erased == rows }
}

fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
