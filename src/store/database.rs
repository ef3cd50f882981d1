//! Opening the store, its lock and epoch, the writer thread and the readers.

use std::path::Path;

use tokio::sync::Notify;

/// The store. Cloning is cheap; all clones share one writer.
#[derive(Debug, Clone)]
pub struct Store {}

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
    pub fn open(_path: &Path, _options: OpenOptions) -> Result<Store, OpenError> {
        unimplemented!()
    }

    /// Opens an existing store beside a daemon, for a command: no lock, no epoch. Intents may be written.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn attach(_path: &Path) -> Result<Store, OpenError> {
        unimplemented!()
    }

    /// This daemon's epoch.
    pub fn epoch(&self) -> i64 {
        unimplemented!()
    }

    /// This installation's random id, minted with the store (email F9).
    pub fn install_id(&self) -> &str {
        unimplemented!()
    }

    /// Woken when a letter may be claimed.
    pub fn letters_waiting(&self) -> &Notify {
        unimplemented!()
    }

    /// Woken when an outgoing letter may be claimed.
    pub fn outgoing_waiting(&self) -> &Notify {
        unimplemented!()
    }

    /// Resolves when the store has failed for good, with the reason: the daemon must end (security R9).
    pub async fn failed(&self) -> String {
        unimplemented!()
    }

    /// Finishes what waits and closes the file.
    pub async fn close(&self) {
        unimplemented!()
    }
}
