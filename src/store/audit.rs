//! How facts are written down: times, words, JSON, and the rows of `audit_events`.

use chrono::{DateTime, SecondsFormat, Utc};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::StoreError;
use super::writer::Writing;
use crate::run::{EventKind, RunId};

/// An instant as it stands in a column: RFC 3339, UTC, milliseconds, so that text order is time order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(pub(super) DateTime<Utc>);

impl Stamp {
    /// The instant at which something is recorded.
    pub(super) fn now() -> Stamp {
        Stamp(crate::clock::now())
    }
}

impl ToSql for Stamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.to_rfc3339_opts(SecondsFormat::Millis, true)))
    }
}

impl FromSql for Stamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let time = DateTime::parse_from_rfc3339(value.as_str()?).map_err(|error| FromSqlError::Other(Box::new(error)))?;
        Ok(Stamp(time.with_timezone(&Utc)))
    }
}

/// A value as JSON text.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Fault(error.to_string()))
}

/// A value from stored JSON text.
pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Fault(error.to_string()))
}

/// A value from a stored word.
pub(super) fn word<T>(text: &str, from_word: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
    from_word(text).ok_or_else(|| StoreError::Fault(format!("the word \"{text}\" is unknown")))
}

/// An address, an id: a stored text that was checked when it was made.
pub(super) fn checked<T, E: std::fmt::Display>(made: Result<T, E>) -> Result<T, StoreError> {
    made.map_err(|error| StoreError::Fault(error.to_string()))
}

/// A count as a column holds it.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// At most so many characters of a text that somebody else wrote.
pub(super) fn short(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Writes an event with what it tells of, in the same transaction. `data` holds ids, counts and states,
/// never a letter's text.
pub(super) fn record(writing: &Writing<'_>, run: Option<&RunId>, kind: EventKind, data: &Value) -> Result<(), StoreError> {
    writing.sql.prepare_cached("INSERT INTO events (at, run_id, kind, data) VALUES (?1, ?2, ?3, ?4)")?.execute((
        Stamp::now(),
        run.map(RunId::as_str),
        kind.as_str(),
        data.to_string(),
    ))?;
    Ok(())
}
