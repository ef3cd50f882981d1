//! One configuration and all that was built from it. A run keeps the snapshot that it began with.

use std::sync::{Arc, RwLock};

use tokio::sync::Notify;

use crate::config::Config;
use crate::inference::Models;
use crate::run::Outbox;
use crate::tools::Catalog;

/// A configuration, its models, its tools and its way out for mail.
#[derive(Debug)]
pub struct Snapshot {
    /// The files, checked.
    pub config: Config,
    /// Every model.
    pub models: Models,
    /// Every tool.
    pub catalog: Catalog,
    /// The one law for outgoing mail.
    pub outbox: Arc<dyn Outbox>,
}

/// The snapshot that new runs begin with; a reload replaces it whole.
#[derive(Debug, Clone)]
pub struct CurrentSnapshot {
    now: Arc<RwLock<Arc<Snapshot>>>,
    changed: Arc<Notify>,
}

impl CurrentSnapshot {
    /// Begins with this one.
    pub fn new(snapshot: Arc<Snapshot>) -> CurrentSnapshot {
        CurrentSnapshot { now: Arc::new(RwLock::new(snapshot)), changed: Arc::new(Notify::new()) }
    }

    /// The snapshot of this moment.
    pub fn load(&self) -> Arc<Snapshot> {
        // The lock guards one pointer: a holder that panicked left it whole.
        Arc::clone(&self.now.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// From now on.
    pub fn replace(&self, snapshot: Arc<Snapshot>) {
        *self.now.write().unwrap_or_else(std::sync::PoisonError::into_inner) = snapshot;
        self.changed.notify_waiters();
    }

    /// Resolves with the next replacement; calls to [`CurrentSnapshot::replace`] count from this call on.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        Arc::clone(&self.changed).notified_owned()
    }
}
