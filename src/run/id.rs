//! Ids, each a type of its own.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// A run's id: sortable by its start, unique over every store there will be, since effect keys are made
/// from it and outlive a restored backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

impl RunId {
    /// Makes an id of the millisecond `now` and 64 random bits: `r` and 26 hexadecimal digits.
    pub fn mint(now: DateTime<Utc>, random: u64) -> RunId {
        RunId(format!("r{:010x}{random:016x}", now.timestamp_millis()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! row_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

row_id!(
    /// One letter as one agent got it: a row of `audit_letters`.
    LetterId
);
row_id!(
    /// One conversation.
    ThreadId
);
row_id!(
    /// One outgoing letter to one recipient: a row of `audit_outgoing`.
    OutgoingId
);
