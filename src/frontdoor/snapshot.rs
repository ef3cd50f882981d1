//! One configuration and all that was built from it. A run keeps the snapshot that it began with.

use std::sync::{Arc, RwLock};

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
pub struct CurrentSnapshot(Arc<RwLock<Arc<Snapshot>>>);

impl CurrentSnapshot {
    /// Begins with this one.
    pub fn new(snapshot: Arc<Snapshot>) -> CurrentSnapshot {
        CurrentSnapshot(Arc::new(RwLock::new(snapshot)))
    }

    /// The snapshot of this moment.
    pub fn load(&self) -> Arc<Snapshot> {
        // The lock guards one pointer: a holder that panicked left it whole.
        Arc::clone(&self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// From now on.
    pub fn replace(&self, snapshot: Arc<Snapshot>) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = snapshot;
    }
}
