//! Runs: begun together with the claim of their letter, closed together with their reply.

use chrono::{DateTime, Utc};

use rusqlite::{Row, named_params};
use serde_json::json;

use super::audit::{Stamp, count, record, short};
use super::journal::{append_steps, own};
use super::outgoing::insert;
use super::threads::hold;
use super::writer::Writing;
use super::{Close, QueueOutgoing, Step, Store, StoreError};
use crate::run::{Door, EventKind, LetterId, OutgoingId, RunId, RunStatus, ThreadId};

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
    /// Attempts since the last one that added a journal step (DESIGN 3).
    pub attempts: u32,
}

impl Store {
    /// Claims the letter, begins the run and writes its first steps, in one transaction. False when the
    /// letter was taken already, or may not be answered any more.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open_run(&self, run: NewRun, steps: Vec<Step>) -> Result<bool, StoreError> {
        self.write(move |writing| {
            if !may_begin(writing, &run)? {
                return Ok(false);
            }
            begin(writing, &run)?;
            let data = json!({ "agent": run.agent, "door": run.door, "letter": run.letter, "thread": run.thread });
            record(writing, Some(&run.id), EventKind::RunStarted, &data)?;
            append_steps(writing, &run.id, &steps)?;
            Ok(true)
        })
        .await
    }

    /// Takes over every run that earlier epochs left running, oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub async fn take_interrupted(&self) -> Result<Vec<InterruptedRun>, StoreError> {
        self.write(|writing| {
            let mut query = writing.sql.prepare_cached(
                "UPDATE runs SET epoch = ?1
                 WHERE status = 'running' AND epoch < ?1
                 RETURNING id, agent, thread_id, letter_id, started_at,
                     CASE WHEN EXISTS (
                         SELECT 1 FROM steps s
                         WHERE s.run_id = runs.id AND s.seq > runs.attempt_seq AND s.kind NOT IN ('opened', 'model_requested')
                     ) THEN 0 ELSE attempts END",
            )?;
            let taken = query.query_map([writing.epoch], interrupted)?;
            let mut taken: Vec<InterruptedRun> = taken.collect::<Result<_, _>>()?;
            taken.sort_by(|a, b| (a.started_at, &a.id).cmp(&(b.started_at, &b.id)));
            Ok(taken)
        })
        .await
    }

    /// The runs that this daemon began or took over and did not close, oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub fn runs_at_work(&self) -> Result<Vec<InterruptedRun>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT id, agent, thread_id, letter_id, started_at, attempts FROM runs
                 WHERE status = 'running' AND epoch = ?1 ORDER BY started_at, id",
            )?;
            let runs = query.query_map([self.epoch()], interrupted)?.collect::<Result<_, _>>()?;
            Ok(runs)
        })
    }

    /// An attempt ended in an orderly way, the run still open: it is not counted.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when another epoch owns the run; else what the store says.
    pub async fn uncount_attempt(&self, run: &RunId) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |writing| {
            own(writing, &run)?;
            writing.sql.prepare_cached("UPDATE runs SET attempts = max(0, attempts - 1) WHERE id = ?1")?.execute([run.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Notes that an interrupted run is about to be worked on, and gives the number of this attempt since the
    /// last one that wrote a step beyond those that lead up to a model call (DESIGN 3, poison). Runs that only
    /// wait for their turn are not counted.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when another epoch owns the run; else what the store says.
    pub async fn note_run_attempt(&self, run: &RunId) -> Result<u32, StoreError> {
        let run = run.clone();
        self.write(move |writing| {
            own(writing, &run)?;
            let mut query = writing.sql.prepare_cached(
                "UPDATE runs SET
                     attempts = CASE WHEN EXISTS (
                         SELECT 1 FROM steps s
                         WHERE s.run_id = runs.id AND s.seq > runs.attempt_seq AND s.kind NOT IN ('opened', 'model_requested')
                     ) THEN 1 ELSE attempts + 1 END,
                     attempt_seq = (SELECT coalesce(max(s.seq), 0) FROM steps s WHERE s.run_id = runs.id)
                 WHERE id = ?1
                 RETURNING attempts",
            )?;
            Ok(query.query_row([run.as_str()], |row| row.get(0))?)
        })
        .await
    }

    /// Writes the last steps, closes the run and queues its letters, in one transaction: durable hand-off 2.
    /// `hold_thread` holds the thread for the operator with this reason. The journal's last step is
    /// [`Step::Closed`], written here unless `steps` ends with it.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when another epoch owns the run; else what the store says.
    pub async fn close_run(
        &self,
        run: &RunId,
        steps: Vec<Step>,
        close: Close,
        outgoing: Vec<QueueOutgoing>,
        hold_thread: Option<String>,
    ) -> Result<Vec<OutgoingId>, StoreError> {
        let run = run.clone();
        self.write(move |writing| {
            own(writing, &run)?;
            append_steps(writing, &run, &steps)?;
            if !matches!(steps.last(), Some(Step::Closed(_))) {
                append_steps(writing, &run, &[Step::Closed(close.clone())])?;
            }
            end(writing, &run, &close)?;
            let mut ids = Vec::new();
            for letter in &outgoing {
                ids.extend(insert(writing, letter)?);
            }
            if let Some(reason) = &hold_thread {
                let mut query = writing.sql.prepare_cached("SELECT thread_id FROM runs WHERE id = ?1")?;
                if let Some(thread) = query.query_row([run.as_str()], |row| row.get::<_, Option<i64>>(0))? {
                    hold(writing, ThreadId(thread), reason)?;
                }
            }
            // The thread's next letter may be claimed.
            writing.wake_letters();
            Ok(ids)
        })
        .await
    }

    /// Writes down that a run is to end (harness K1); the daemon, once woken, ends it. False when it is not
    /// running any more, or never was.
    ///
    /// # Errors
    /// What the store says.
    pub async fn request_cancel(&self, run: &RunId) -> Result<bool, StoreError> {
        let run = run.clone();
        self.write(move |writing| {
            let mut query =
                writing.sql.prepare_cached("UPDATE runs SET cancel_at = coalesce(cancel_at, ?2) WHERE id = ?1 AND status = 'running'")?;
            let found = query.execute((run.as_str(), Stamp::now()))? > 0;
            if found {
                writing.wake_letters();
            }
            Ok(found)
        })
        .await
    }

    /// Running runs that are to end.
    ///
    /// # Errors
    /// What the store says.
    pub fn runs_to_cancel(&self) -> Result<Vec<RunId>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT id FROM runs INDEXED BY runs_to_cancel WHERE status = 'running' AND cancel_at IS NOT NULL ORDER BY id",
            )?;
            let runs = query.query_map([], |row| row.get(0).map(RunId))?.collect::<Result<_, _>>()?;
            Ok(runs)
        })
    }

    /// Money spent by an agent in the runs that began since an instant, in millionths; runs that still go on
    /// are counted as far as they have come.
    ///
    /// # Errors
    /// What the store says.
    pub async fn spent_since(&self, agent: &str, since: DateTime<Utc>) -> Result<u64, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT coalesce(sum(cost), 0) FROM runs WHERE agent = ?1 AND started_at >= ?2")?;
            let spent: i64 = query.query_row((agent, Stamp(since)), |row| row.get(0))?;
            Ok(u64::try_from(spent).unwrap_or(0))
        })
    }

    /// Whether the last two replies queued in this thread have this very text (email F7).
    ///
    /// # Errors
    /// What the store says.
    pub async fn repeats_reply(&self, thread: ThreadId, text: &str) -> Result<bool, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT coalesce(sum(same), 0) FROM (
                     SELECT max(text = ?2) AS same FROM outgoing WHERE thread_id = ?1 AND kind = 'reply'
                     GROUP BY message_id ORDER BY max(id) DESC LIMIT 2)",
            )?;
            Ok(query.query_row((thread.0, text), |row| row.get::<_, i64>(0))? == 2)
        })
    }
}

fn interrupted(row: &Row<'_>) -> rusqlite::Result<InterruptedRun> {
    Ok(InterruptedRun {
        id: RunId(row.get(0)?),
        agent: row.get(1)?,
        thread: row.get::<_, Option<i64>>(2)?.map(ThreadId),
        letter: row.get::<_, Option<i64>>(3)?.map(LetterId),
        started_at: row.get::<_, Stamp>(4)?.0,
        attempts: row.get(5)?,
    })
}

/// The letter is accepted and free, its thread is answered, and no other run works in it (security R18).
fn may_begin(writing: &Writing<'_>, run: &NewRun) -> Result<bool, StoreError> {
    if let Some(letter) = run.letter {
        let mut query = writing.sql.prepare_cached("SELECT 1 FROM letters WHERE id = ?1 AND verdict = 'accepted' AND run_id IS NULL")?;
        if !query.exists([letter.0])? {
            return Ok(false);
        }
    }
    let Some(thread) = run.thread else { return Ok(true) };
    let mut query = writing.sql.prepare_cached(
        "SELECT 1 FROM threads t WHERE t.id = ?1 AND t.status = 'open'
             AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.thread_id = t.id AND r.status = 'running')",
    )?;
    Ok(query.exists([thread.0])?)
}

fn begin(writing: &Writing<'_>, run: &NewRun) -> Result<(), StoreError> {
    writing
        .sql
        .prepare_cached(
            "INSERT INTO runs (id, door, agent, thread_id, letter_id, status, model, started_at, epoch, attempts)
             VALUES (:id, :door, :agent, :thread, :letter, 'running', :model, :started, :epoch,
                 max(1, coalesce((SELECT attempts FROM letters WHERE id = :letter), 1)))",
        )?
        .execute(named_params! {
            ":id": run.id.as_str(),
            ":door": run.door.as_str(),
            ":agent": run.agent,
            ":thread": run.thread.map(|thread| thread.0),
            ":letter": run.letter.map(|letter| letter.0),
            ":model": run.model,
            ":started": Stamp(run.started_at),
            ":epoch": writing.epoch,
        })?;
    if let Some(letter) = run.letter {
        writing
            .sql
            .prepare_cached("UPDATE letters SET run_id = ?2, reason = 'being answered' WHERE id = ?1")?
            .execute((letter.0, run.id.as_str()))?;
    }
    Ok(())
}

fn end(writing: &Writing<'_>, run: &RunId, close: &Close) -> Result<(), StoreError> {
    let error = close.error.as_deref().map(|error| short(error, 2000));
    // Who gives a run up does not read its journal: what its answers have cost stands there already.
    writing
        .sql
        .prepare_cached(
            "UPDATE runs SET status = :status, outcome = :outcome, error = :error, rounds = max(rounds, :rounds),
                 input_tokens = max(input_tokens, :input), output_tokens = max(output_tokens, :output), cost = max(cost, :cost),
                 ended_at = :ended
             WHERE id = :id",
        )?
        .execute(named_params! {
            ":id": run.as_str(),
            ":status": close.status.as_str(),
            ":outcome": close.outcome.as_str(),
            ":error": error,
            ":rounds": close.rounds,
            ":input": count(close.usage.input_total()),
            ":output": count(close.usage.output),
            ":cost": count(close.cost),
            ":ended": Stamp::now(),
        })?;
    // The list of letters says by itself what became of each.
    let reason = match &error {
        Some(error) if close.status == RunStatus::Cancelled => error.clone(),
        Some(error) => format!("{}: {error}", close.outcome),
        None => close.outcome.as_str().to_owned(),
    };
    writing
        .sql
        .prepare_cached("UPDATE letters SET reason = ?2 WHERE run_id = ?1 AND verdict = 'accepted'")?
        .execute((run.as_str(), short(&reason, 500)))?;
    let kind = match close.status {
        RunStatus::Failed | RunStatus::Expired => EventKind::RunFailed,
        RunStatus::Cancelled => EventKind::RunCancelled,
        RunStatus::Queued | RunStatus::Running | RunStatus::NeedsInput | RunStatus::Done => EventKind::RunCompleted,
    };
    let data = json!({ "status": close.status, "outcome": close.outcome, "rounds": close.rounds, "cost": close.cost });
    record(writing, Some(run), kind, &data)
}
