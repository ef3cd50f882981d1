//! The one writer: a thread that commits groups. Each group is one IMMEDIATE transaction, each verb in it
//! one SAVEPOINT, and nobody is answered before the COMMIT.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, ffi};
use tokio::sync::{Notify, oneshot, watch};

use super::database::BUSY;
use super::{CommitStop, StoreError};

/// Verbs of one group at most; a group this large has long paid its fsync.
const GROUP: usize = 256;

/// Pages in the WAL that are worth a checkpoint (4 KiB each).
const CHECKPOINT_PAGES: i64 = 1000;

/// What a verb writes with.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    /// The writer's connection, inside a transaction.
    pub(super) sql: &'a Connection,
    /// This daemon's epoch.
    pub(super) epoch: i64,
    letters: Cell<bool>,
    outgoing: Cell<bool>,
    log: Cell<bool>,
}

impl Writing<'_> {
    /// After the commit, whoever claims letters is woken.
    pub(super) fn wake_letters(&self) {
        self.letters.set(true);
    }

    /// After the commit, whoever sends is woken.
    pub(super) fn wake_outgoing(&self) {
        self.outgoing.set(true);
    }

    /// After the commit, the WAL is moved into the database whole and emptied: what was erased is in neither.
    pub(super) fn empty_log(&self) {
        self.log.set(true);
    }
}

/// What the store tells of itself.
#[derive(Debug)]
pub(super) struct Signals {
    /// A letter may be claimed.
    pub(super) letters: Notify,
    /// An outgoing letter may be claimed.
    pub(super) outgoing: Notify,
    /// Why the store failed, once it has.
    pub(super) failed: watch::Sender<Option<String>>,
}

impl Signals {
    /// Nothing has happened yet.
    pub(super) fn new() -> Signals {
        Signals { letters: Notify::new(), outgoing: Notify::new(), failed: watch::Sender::new(None) }
    }

    /// Why the store failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    /// Notes a failure; the first one is kept.
    pub(super) fn fail(&self, reason: &str) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                tracing::error!(reason, "the store failed");
                *failed = Some(reason.to_owned());
            }
            first
        });
    }
}

/// One verb on its way: first it is run inside a transaction, later it answers its caller.
pub(super) type Job = Box<dyn FnMut(Phase<'_>) -> Result<(), StoreError> + Send>;

/// What a job is asked to do.
pub(super) enum Phase<'a> {
    /// Write.
    Run(&'a Writing<'a>),
    /// Tell the caller: its own result after a commit, or why the group failed.
    Answer(Option<StoreError>),
}

/// What the writer's thread is told.
pub(super) enum Order {
    /// A verb.
    Job(Job),
    /// End, after all that came before.
    Close(oneshot::Sender<()>),
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Job(_) => "Job",
            Order::Close(_) => "Close",
        })
    }
}

/// Queues a verb at once; the future resolves after its commit.
pub(super) fn submit<T, F>(orders: &Sender<Order>, work: F) -> impl Future<Output = Result<T, StoreError>> + Send + 'static + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Writing<'_>) -> Result<T, StoreError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let (mut work, mut result, mut reply) = (Some(work), None, Some(reply));
    let job: Job = Box::new(move |phase| match phase {
        Phase::Run(writing) => {
            let Some(work) = work.take() else { return Ok(()) };
            let done = catch_unwind(AssertUnwindSafe(|| work(writing)));
            let done = done.unwrap_or_else(|_| Err(StoreError::Fault("a verb of the store panicked".to_owned())));
            let told = done.as_ref().map(|_| ()).map_err(Clone::clone);
            result = Some(done);
            told
        }
        Phase::Answer(group) => {
            let own = result.take().unwrap_or_else(|| Err(StoreError::Fault("the verb was not run".to_owned())));
            // Nobody waits any more when the caller was dropped: what was written stays written.
            if let Some(reply) = reply.take() {
                drop(reply.send(group.map_or(own, Err)));
            }
            Ok(())
        }
    });
    let sent = orders.send(Order::Job(job));
    async move {
        if sent.is_err() {
            return Err(StoreError::Fatal("the store is closed".to_owned()));
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::Fatal("the store is stopped".to_owned())))
    }
}

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    /// The only connection that writes.
    pub(super) connection: Connection,
    /// Held while the daemon lives; none beside a daemon.
    pub(super) lock: Option<File>,
    /// This daemon's epoch.
    pub(super) epoch: i64,
    /// For crash tests.
    pub(super) stop: Option<CommitStop>,
    /// Where waiters are.
    pub(super) signals: Arc<Signals>,
}

impl Writer {
    /// Works until it is told to close, or until nobody is left who could tell it anything.
    pub(super) fn serve(self, orders: &Receiver<Order>) {
        let mut commits = 0;
        let mut closing = None;
        while closing.is_none() {
            let Ok(first) = orders.recv() else { break };
            let mut group = Vec::new();
            let mut next = Some(first);
            while let Some(order) = next {
                match order {
                    Order::Job(job) => group.push(job),
                    Order::Close(reply) => {
                        closing = Some(reply);
                        break;
                    }
                }
                next = if group.len() < GROUP { orders.try_recv().ok() } else { None };
            }
            if !group.is_empty() {
                self.commit(group, &mut commits);
            }
        }
        self.end();
        if closing.is_some_and(|reply| reply.send(()).is_err()) {
            tracing::debug!("nobody waits for the store to close");
        }
    }

    /// Runs a group and answers it.
    fn commit(&self, mut group: Vec<Job>, commits: &mut u64) {
        if let Some(reason) = self.signals.failure() {
            return answer(&mut group, Some(&StoreError::Fatal(reason)));
        }
        let writing = Writing {
            sql: &self.connection,
            epoch: self.epoch,
            letters: Cell::new(false),
            outgoing: Cell::new(false),
            log: Cell::new(false),
        };
        match self.transaction(&writing, &mut group, *commits) {
            Ok(changed) => {
                *commits += u64::from(changed);
                if changed && self.stop == Some(CommitStop::Unacknowledged(*commits)) {
                    // As if the process had died between its commit and its word of it.
                    self.signals.fail("stopped after a commit");
                    return;
                }
                if writing.log.get() {
                    // Whoever erased is told when it is gone, not before.
                    self.empty_log();
                }
                answer(&mut group, None);
                wake(&self.signals, &writing);
                if changed {
                    self.checkpoint();
                }
            }
            Err(error) => {
                if !self.connection.is_autocommit()
                    && let Err(failed) = self.connection.execute_batch("ROLLBACK")
                {
                    tracing::error!(error = %failed, "a transaction could not be rolled back");
                }
                if let StoreError::Fatal(reason) = &error {
                    self.signals.fail(reason);
                }
                answer(&mut group, Some(&error));
            }
        }
    }

    /// One transaction; gives whether anything was changed.
    fn transaction(&self, writing: &Writing<'_>, group: &mut [Job], commits: u64) -> Result<bool, StoreError> {
        let sql = &self.connection;
        let before = sql.total_changes();
        sql.execute_batch("BEGIN IMMEDIATE")?;
        for job in group {
            sql.execute_batch("SAVEPOINT verb")?;
            let done = job(Phase::Run(writing));
            if let Err(error @ StoreError::Fatal(_)) = done {
                return Err(error);
            }
            if sql.is_autocommit() {
                // A full disk takes the whole transaction with it: nothing of this group may go on.
                return Err(StoreError::Retry(done.err().map_or_else(|| "rolled back".to_owned(), |error| error.to_string())));
            }
            sql.execute_batch(if done.is_ok() { "RELEASE verb" } else { "ROLLBACK TO verb; RELEASE verb" })?;
        }
        let changed = sql.total_changes() != before;
        if changed
            && let Some(CommitStop::Acknowledged(last) | CommitStop::Unacknowledged(last)) = self.stop
            && commits >= last
        {
            return Err(StoreError::Fatal("stopped before a commit".to_owned()));
        }
        sql.execute_batch("COMMIT")?;
        Ok(changed)
    }

    /// Moves a grown WAL into the database. SQLite's own checkpoints would hide a disk that fails.
    fn checkpoint(&self) {
        let waiting = |sql: &Connection| -> rusqlite::Result<i64> {
            sql.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?))
        };
        let done = waiting(&self.connection).and_then(|pages| {
            if pages < CHECKPOINT_PAGES {
                return Ok(());
            }
            self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        });
        match done.map_err(StoreError::from) {
            Ok(()) => {}
            Err(StoreError::Fatal(reason)) => self.signals.fail(&reason),
            Err(error) => tracing::warn!(%error, "the WAL could not be moved into the store"),
        }
    }

    /// Moves the whole WAL into the database and cuts it to nothing, unless somebody reads just now: nobody is kept
    /// waiting for that, and the next daemon's end or the next erasure does it too.
    fn empty_log(&self) {
        let emptied = self.connection.busy_timeout(Duration::ZERO).and_then(|()| {
            let busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
            self.connection.busy_timeout(BUSY).and(busy)
        });
        match emptied.map_err(StoreError::from) {
            Ok(false) => {}
            Ok(true) => tracing::debug!("the WAL is being read and was not emptied"),
            Err(StoreError::Fatal(reason)) => self.signals.fail(&reason),
            Err(error) => tracing::warn!(%error, "the WAL could not be emptied"),
        }
    }

    /// Notes an orderly end and closes the file, then gives up the lock.
    fn end(self) {
        if self.lock.is_some()
            && self.signals.failure().is_none()
            && let Err(error) = self.connection.execute("UPDATE meta SET value = 'yes' WHERE key = 'clean'", [])
        {
            tracing::warn!(%error, "the store's orderly end could not be noted");
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the store was not closed cleanly");
        }
        drop(self.lock);
    }
}

fn answer(group: &mut [Job], error: Option<&StoreError>) {
    for job in group {
        // Answering cannot fail: a caller that is gone is no error.
        drop(job(Phase::Answer(error.cloned())));
    }
}

fn wake(signals: &Signals, writing: &Writing<'_>) {
    for (due, notify) in [(&writing.letters, &signals.letters), (&writing.outgoing, &signals.outgoing)] {
        if due.get() {
            // All who wait now, and the one who was just about to.
            notify.notify_waiters();
            notify.notify_one();
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        let text = error.to_string();
        let rusqlite::Error::SqliteFailure(failure, _) = error else { return StoreError::Fault(text) };
        match failure.code {
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::CannotOpen => StoreError::Retry(text),
            // The WAL's index could not grow: the disk is full, not broken.
            ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::Retry(text),
            ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ReadOnly => {
                StoreError::Fatal(text)
            }
            _ => StoreError::Fault(text),
        }
    }
}
