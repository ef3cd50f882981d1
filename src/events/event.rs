//! One lifecycle event.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::run::{EventKind, RunId};

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    /// When.
    pub at: DateTime<Utc>,
    /// The run, when there is one.
    pub run: Option<RunId>,
    /// What.
    pub kind: EventKind,
    /// Ids, counts and states; no text of a letter.
    pub data: Value,
}
