//! Which runs are at work in this daemon, so that the operator can end one of them (harness K1).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::harness::Stop;
use crate::run::RunId;

/// The runs and how each is ended.
#[derive(Debug, Clone, Default)]
pub(super) struct AtWork(Arc<Mutex<BTreeMap<RunId, CancellationToken>>>);

/// A run is at work as long as this lives.
#[derive(Debug)]
pub(super) struct Present {
    at_work: AtWork,
    run: RunId,
}

impl AtWork {
    /// From now on the run can be ended through `stop`.
    pub(super) fn enter(&self, run: &RunId, stop: &Stop) -> Present {
        self.runs().insert(run.clone(), stop.cancelled.clone());
        Present { at_work: self.clone(), run: run.clone() }
    }

    /// Ends a run, when it is at work.
    pub(super) fn end(&self, run: &RunId) {
        if let Some(cancelled) = self.runs().get(run) {
            cancelled.cancel();
        }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, CancellationToken>> {
        // Each change is one call: a holder that panicked left the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.at_work.runs().remove(&self.run);
    }
}
