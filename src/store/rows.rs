//! The audit views as rows, for lists and shows (DESIGN 2.3).

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::{Store, StoreError};

/// One row of an audit view: its columns in order.
pub type Row = Map<String, Value>;

/// An audit view, or a list made like one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// `audit_letters`.
    Letters,
    /// `audit_runs`.
    Runs,
    /// `audit_tool_calls`.
    ToolCalls,
    /// `audit_outgoing`.
    Outgoing,
    /// `audit_firings`.
    Firings,
    /// `audit_questions`.
    Questions,
    /// `audit_events`.
    Events,
    /// Threads: `id, agent, mailbox, subject, status, reason, participants, letters, created_at, last_at`.
    Threads,
}

/// What a list is narrowed to. Every given field must match.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// This row.
    pub id: Option<String>,
    /// This run.
    pub run: Option<String>,
    /// This agent.
    pub agent: Option<String>,
    /// This door.
    pub door: Option<String>,
    /// This status, or for letters this verdict.
    pub status: Option<String>,
    /// This sender, or for outgoing letters this recipient.
    pub sender: Option<String>,
    /// This thread.
    pub thread: Option<i64>,
    /// This duty.
    pub duty: Option<String>,
    /// Not older than this.
    pub since: Option<DateTime<Utc>>,
    /// Text in subject or, for runs, anywhere in the journal.
    pub text: Option<String>,
    /// At most so many, the newest.
    pub limit: Option<u32>,
}

impl Store {
    /// Rows of a view, oldest first.
    ///
    /// # Errors
    /// What the store says; a filter that the view has no column for is a fault.
    pub fn rows(&self, _view: View, _filter: &Filter) -> Result<Vec<Row>, StoreError> {
        unimplemented!()
    }

    /// The text of an outgoing letter, and its bytes.
    ///
    /// # Errors
    /// What the store says.
    pub fn outgoing_content(&self, _id: i64) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        unimplemented!()
    }
}
