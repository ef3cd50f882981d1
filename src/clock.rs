//! The one reader of the wall clock (harness DR1). What is decided by time takes `now` as a parameter;
//! durations are measured by tokio's clock, which tests may hold.

use chrono::{DateTime, Utc};

/// The time of this moment.
#[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}
