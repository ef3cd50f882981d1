//! Opening the store, its lock and epoch, the writer thread and the readers.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{Notify, oneshot};

use super::audit::Stamp;
use super::migrations;
use super::writer::{Order, Signals, Writer, Writing, submit};

/// Read connections that are kept open.
const READERS: usize = 4;

/// How long a command and a daemon wait for each other's transaction.
pub(super) const BUSY: Duration = Duration::from_secs(10);

/// A store of this size is checked at each start, since it costs nothing.
const CHEAP_CHECK: u64 = 16 * 1024 * 1024;

/// The store. Cloning is cheap; all clones share one writer.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// What all clones share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    epoch: i64,
    install_id: String,
    orders: Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
    readers: Mutex<Vec<Connection>>,
    signals: Arc<Signals>,
}

/// How a daemon opens the store.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// For crash tests: refuse every commit after the Nth.
    pub stop_at_commit: Option<CommitStop>,
}

/// Where a crash test stops the store (spec/crates.md, crash tests).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStop {
    /// Commit N is done, but nobody is told.
    Unacknowledged(u64),
    /// Commit N is done and told; N + 1 is refused.
    Acknowledged(u64),
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another daemon holds it.
    #[error("{path} is in use by another dutiful (process {pid}): one daemon per store")]
    Locked {
        /// The store.
        path: String,
        /// Its owner, as it wrote itself down.
        pid: String,
    },
    /// Written by a newer release.
    #[error("{path} was written by a newer release (schema {found}, this one knows {known}): install that release or restore a backup")]
    Newer {
        /// The store.
        path: String,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// No such store.
    #[error("{0} does not exist yet: start `dutiful serve` once")]
    Missing(String),
    /// Damaged, or not to be read.
    #[error("{path}: {reason}")]
    Broken {
        /// The store.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// Why a verb failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk is full or the file is busy: nothing was written, try again later.
    #[error("the store cannot be written at the moment: {0}")]
    Retry(String),
    /// Another epoch owns this run or letter: stop working on it.
    #[error("superseded by a later daemon")]
    Superseded,
    /// The disk failed (security R9), or the store is stopped: the daemon must end.
    #[error("the store failed: {0}")]
    Fatal(String),
    /// A query or a row is wrong: a fault of ours.
    #[error("store: {0}")]
    Fault(String),
}

impl Store {
    /// Opens the store for the daemon: lock, migrations, check, and a new epoch that voids every claim of
    /// earlier ones. Outgoing letters that were being sent become `uncertain`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Store, OpenError> {
        let broken = |reason: &dyn std::fmt::Display| OpenError::Broken { path: path.display().to_string(), reason: reason.to_string() };
        make_folder(path).map_err(|error| broken(&error))?;
        let lock = take_lock(path)?;
        make_private_file(path).map_err(|error| broken(&error))?;
        let mut connection = connect(path).map_err(|error| broken(&error))?;
        let found = refuse_newer(path, &connection)?;
        check(path, &connection, found)?;
        migrations::apply(&mut connection, found).map_err(|error| broken(&error))?;
        let minted = mint();
        let (epoch, install_id) = begin_epoch(&mut connection, &minted).map_err(|error| broken(&error))?;
        let signals = Arc::new(Signals::new());
        let writer = Writer { connection, lock: Some(lock), epoch, stop: options.stop_at_commit, signals };
        Store::start(path, writer, install_id).map_err(|error| broken(&error))
    }

    /// Opens an existing store beside a daemon, for a command: no lock, no epoch. Intents may be written.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn attach(path: &Path) -> Result<Store, OpenError> {
        let broken = |reason: &dyn std::fmt::Display| OpenError::Broken { path: path.display().to_string(), reason: reason.to_string() };
        if !path.try_exists().map_err(|error| broken(&error))? {
            return Err(OpenError::Missing(path.display().to_string()));
        }
        let connection = connect(path).map_err(|error| broken(&error))?;
        if refuse_newer(path, &connection)? < migrations::known() {
            return Err(broken(&"it was written by an older release: start `dutiful serve` once"));
        }
        let epoch: i64 = meta(&connection, "epoch").and_then(|text| text.parse().ok()).unwrap_or(0);
        let install_id = meta(&connection, "install_id").unwrap_or_default();
        let signals = Arc::new(Signals::new());
        let writer = Writer { connection, lock: None, epoch, stop: None, signals };
        Store::start(path, writer, install_id).map_err(|error| broken(&error))
    }

    fn start(path: &Path, writer: Writer, install_id: String) -> std::io::Result<Store> {
        let (epoch, signals) = (writer.epoch, Arc::clone(&writer.signals));
        let (orders, received) = channel();
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || writer.serve(&received))?;
        let (thread, readers) = (Mutex::new(Some(thread)), Mutex::new(Vec::new()));
        let path = path.to_owned();
        Ok(Store { shared: Arc::new(Shared { path, epoch, install_id, orders, thread, readers, signals }) })
    }

    /// This daemon's epoch.
    pub fn epoch(&self) -> i64 {
        self.shared.epoch
    }

    /// This installation's random id, minted with the store (email F9).
    pub fn install_id(&self) -> &str {
        &self.shared.install_id
    }

    /// Woken when a letter may be claimed. Take the `notified()` future before looking for letters, so that
    /// none slips in between.
    pub fn letters_waiting(&self) -> &Notify {
        &self.shared.signals.letters
    }

    /// Woken when an outgoing letter may be claimed; to be used like [`Store::letters_waiting`].
    pub fn outgoing_waiting(&self) -> &Notify {
        &self.shared.signals.outgoing
    }

    /// Resolves when the store has failed for good, with the reason: the daemon must end (security R9).
    pub async fn failed(&self) -> String {
        let mut failed = self.shared.signals.failed.subscribe();
        let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            // The sender lives as long as `self`: this is never reached.
            None => std::future::pending().await,
        }
    }

    /// Finishes what waits and closes the file.
    pub async fn close(&self) {
        self.shared.idle_readers().clear();
        let (reply, closed) = oneshot::channel();
        if self.shared.orders.send(Order::Close(reply)).is_ok() {
            // An error means that it was closed already.
            drop(closed.await);
        }
    }

    /// Queues a verb that writes, at once; the future resolves after its commit.
    pub(super) fn write<T, F>(&self, work: F) -> impl Future<Output = Result<T, StoreError>> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Writing<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        submit(&self.shared.orders, work)
    }

    /// Reads with a connection of its own, inside one snapshot.
    pub(super) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if let Some(reason) = self.shared.signals.failure() {
            return Err(StoreError::Fatal(reason));
        }
        let idle = self.shared.idle_readers().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => connect_reader(&self.shared.path)?,
        };
        let snapshot = connection.transaction().map_err(StoreError::from)?;
        let found = query(&snapshot);
        let ended = snapshot.finish().map_err(StoreError::from);
        match found.and_then(|found| ended.map(|()| found)) {
            Err(StoreError::Fatal(reason)) => {
                self.shared.signals.fail(&reason);
                Err(StoreError::Fatal(reason))
            }
            found => {
                let mut readers = self.shared.idle_readers();
                if readers.len() < READERS {
                    readers.push(connection);
                }
                found
            }
        }
    }
}

#[cfg(test)]
impl Store {
    /// As if the disk had room for so many pages more; none: for as many as may come.
    pub(crate) async fn allow_pages(&self, more: Option<i64>) {
        let allowed = self.write(move |writing| {
            let pages: i64 = writing.sql.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            Ok(writing.sql.pragma_update(None, "max_page_count", more.map_or(1_000_000_000, |more| pages + more))?)
        });
        allowed.await.unwrap();
    }

    /// As if what a trigger meets were wrong: `when` is its event, its table and its condition.
    pub(crate) async fn refuse(&self, when: &'static str) {
        let trigger = format!("CREATE TEMP TRIGGER refusing {when} BEGIN SELECT RAISE(ABORT, 'refused'); END");
        self.write(move |writing| Ok(writing.sql.execute_batch(&trigger)?)).await.unwrap();
    }
}

impl Shared {
    fn idle_readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    /// Waits for the writer, so that the lock is free when the last clone is gone.
    fn drop(&mut self) {
        self.idle_readers().clear();
        let (reply, _closed) = oneshot::channel();
        // An error means that it was closed already.
        drop(self.orders.send(Order::Close(reply)));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer's thread panicked");
        }
    }
}

/// Makes the store's folder, for its owner alone whatever the umask (security S41).
fn make_folder(path: &Path) -> std::io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Makes the file before SQLite does: its mode is then also that of the WAL (security S41).
fn make_private_file(path: &Path) -> std::io::Result<()> {
    let file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
    keep_private(&file)
}

fn keep_private(file: &File) -> std::io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o777 == 0o600 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(0o600))
}

/// Takes the lock beside the store (security R11); locking the database itself would meet SQLite's own locks.
fn take_lock(path: &Path) -> Result<File, OpenError> {
    let broken = |reason: &dyn std::fmt::Display| OpenError::Broken { path: path.display().to_string(), reason: reason.to_string() };
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(PathBuf::from(name))
        .map_err(|error| broken(&error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(std::io::Error::from) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let mut pid = String::new();
            let read = (&mut file).take(20).read_to_string(&mut pid);
            let pid = if read.is_ok() && !pid.trim().is_empty() { pid.trim().to_owned() } else { "unknown".to_owned() };
            return Err(OpenError::Locked { path: path.display().to_string(), pid });
        }
        Err(error) => return Err(broken(&error)),
    }
    keep_private(&file)
        .and_then(|()| file.set_len(0))
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| broken(&error))?;
    Ok(file)
}

/// Opens the connection that writes.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 0;
         -- Savepoint journals stay in memory: no letter's text in a temporary folder, and no file made for each write.
         PRAGMA temp_store = MEMORY;
         -- What is erased is overwritten, also in pages that become free (email K3).
         PRAGMA secure_delete = ON;
         PRAGMA trusted_schema = OFF;",
    )?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// The store's schema, unless a newer release wrote it (security R21).
fn refuse_newer(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    let found =
        migrations::found(connection).map_err(|error| OpenError::Broken { path: path.display().to_string(), reason: error.to_string() })?;
    let known = migrations::known();
    if found > known {
        return Err(OpenError::Newer { path: path.display().to_string(), found, known });
    }
    Ok(found)
}

/// Looks for damage when the last daemon did not end in order, or when looking is cheap (security R9, R10).
fn check(path: &Path, connection: &Connection, found: i64) -> Result<(), OpenError> {
    let broken = |reason: String| OpenError::Broken { path: path.display().to_string(), reason };
    let small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= CHEAP_CHECK);
    if found == 0 || (!small && meta(connection, "clean").as_deref() == Some("yes")) {
        return Ok(());
    }
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(|error| broken(error.to_string()))?;
    if said == "ok" { Ok(()) } else { Err(broken(format!("it is damaged ({said}): restore a backup"))) }
}

fn meta(connection: &Connection, key: &str) -> Option<String> {
    connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional().ok().flatten()
}

/// 128 random bits for a new installation's id.
fn mint() -> String {
    format!("{:032x}", u128::from_be_bytes(crate::random::bytes()))
}

/// Begins a new epoch: what an earlier daemon claimed is free again, what it was sending is uncertain
/// (email G9). Gives the epoch and the installation's id.
fn begin_epoch(connection: &mut Connection, minted: &str) -> rusqlite::Result<(i64, String)> {
    let now = Stamp::now();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO meta (key, value) VALUES ('install_id', ?1) ON CONFLICT (key) DO NOTHING", [minted])?;
    transaction.execute_batch(
        "INSERT INTO meta (key, value) VALUES ('clean', 'no') ON CONFLICT (key) DO UPDATE SET value = 'no';
         INSERT INTO meta (key, value) VALUES ('epoch', '1')
         ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT);",
    )?;
    transaction.execute(
        "INSERT INTO events (at, run_id, kind, data)
         SELECT ?1, run_id, 'outgoing.uncertain', json_object('outgoing', id) FROM outgoing WHERE status = 'sending' ORDER BY id",
        [now],
    )?;
    transaction.execute(
        "UPDATE outgoing SET status = 'uncertain', check_at = ?1, error = 'the daemon stopped while it was being sent'
         WHERE status = 'sending'",
        [now],
    )?;
    let epoch: String = transaction.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| row.get(0))?;
    let install_id = transaction.query_row("SELECT value FROM meta WHERE key = 'install_id'", [], |row| row.get(0))?;
    transaction.commit()?;
    Ok((epoch.parse().unwrap_or(1), install_id))
}
