//! The audit views as rows, for lists and shows (DESIGN 2.3).

use chrono::{DateTime, Utc};
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, ToSql, params_from_iter};
use serde_json::{Map, Value};

use super::audit::Stamp;
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

/// How a view is read: its rows, its order, and for each filter the condition that holds it. Each condition
/// has exactly one parameter.
struct Shape {
    select: &'static str,
    newest_first: &'static str,
    oldest_first: &'static str,
    id: Option<&'static str>,
    run: Option<&'static str>,
    agent: Option<&'static str>,
    door: Option<&'static str>,
    status: Option<&'static str>,
    sender: Option<&'static str>,
    thread: Option<&'static str>,
    duty: Option<&'static str>,
    since: Option<&'static str>,
    text: Option<&'static str>,
}

const BY_ID: Shape = Shape {
    select: "",
    newest_first: " ORDER BY id DESC",
    oldest_first: " ORDER BY id",
    id: Some("id = ?"),
    run: None,
    agent: None,
    door: None,
    status: Some("status = ?"),
    sender: None,
    thread: None,
    duty: None,
    since: None,
    text: None,
};

const LETTERS: Shape = Shape {
    select: "SELECT id, mailbox, agent, message_id, sender, identity, subject, received_at, verdict, reason, thread_id, run_id
             FROM audit_letters",
    run: Some("run_id = ?"),
    agent: Some("agent = ?"),
    status: Some("verdict = ?"),
    sender: Some("sender = ? COLLATE NOCASE"),
    thread: Some("thread_id = ?"),
    since: Some("received_at >= ?"),
    text: Some("instr(lower(subject), lower(?)) > 0"),
    ..BY_ID
};

const RUNS: Shape = Shape {
    select: "SELECT id, parent_id, door, agent, thread_id, letter_id, firing_id, status, outcome, model, rounds, input_tokens,
                 output_tokens, cost, started_at, ended_at, error
             FROM audit_runs",
    newest_first: " ORDER BY started_at DESC, id DESC",
    oldest_first: " ORDER BY started_at, id",
    run: Some("id = ?"),
    agent: Some("agent = ?"),
    door: Some("door = ?"),
    sender: Some("letter_id IN (SELECT l.id FROM audit_letters l WHERE l.sender = ? COLLATE NOCASE)"),
    thread: Some("thread_id = ?"),
    duty: Some("firing_id IN (SELECT f.id FROM audit_firings f WHERE f.duty = ?)"),
    since: Some("started_at >= ?"),
    text: Some("EXISTS (SELECT 1 FROM steps s WHERE s.run_id = audit_runs.id AND instr(lower(s.step), lower(?)) > 0)"),
    ..BY_ID
};

const TOOL_CALLS: Shape = Shape {
    select: "SELECT run_id, round, position, name, arguments, result, status, started_at, ended_at FROM audit_tool_calls",
    newest_first: " ORDER BY started_at DESC, run_id DESC, round DESC, position DESC",
    oldest_first: " ORDER BY started_at, run_id, round, position",
    id: None,
    run: Some("run_id = ?"),
    agent: Some("run_id IN (SELECT r.id FROM audit_runs r WHERE r.agent = ?)"),
    thread: Some("run_id IN (SELECT r.id FROM audit_runs r WHERE r.thread_id = ?)"),
    since: Some("started_at >= ?"),
    text: Some("instr(lower(name), lower(?)) > 0"),
    ..BY_ID
};

const OUTGOING: Shape = Shape {
    select: "SELECT id, run_id, thread_id, kind, recipient, subject, message_id, status, attempts, queued_at, sent_at, error
             FROM audit_outgoing",
    run: Some("run_id = ?"),
    agent: Some("id IN (SELECT o.id FROM outgoing o WHERE o.agent = ?)"),
    sender: Some("recipient = ? COLLATE NOCASE"),
    thread: Some("thread_id = ?"),
    since: Some("queued_at >= ?"),
    text: Some("instr(lower(subject), lower(?)) > 0"),
    ..BY_ID
};

const FIRINGS: Shape = Shape {
    select: "SELECT id, duty, due_at, claimed_at, run_id, status, reason FROM audit_firings",
    newest_first: " ORDER BY due_at DESC, id DESC",
    oldest_first: " ORDER BY due_at, id",
    run: Some("run_id = ?"),
    duty: Some("duty = ?"),
    since: Some("due_at >= ?"),
    ..BY_ID
};

const QUESTIONS: Shape = Shape {
    select: "SELECT id, run_id, kind, asked_of, questions, status, asked_at, expires_at, answer, answered_by, answered_at
             FROM audit_questions",
    run: Some("run_id = ?"),
    agent: Some("run_id IN (SELECT r.id FROM audit_runs r WHERE r.agent = ?)"),
    sender: Some("asked_of = ? COLLATE NOCASE"),
    since: Some("asked_at >= ?"),
    text: Some("instr(lower(questions), lower(?)) > 0"),
    ..BY_ID
};

const EVENTS: Shape = Shape {
    select: "SELECT seq, at, run_id, kind, data FROM audit_events",
    newest_first: " ORDER BY seq DESC",
    oldest_first: " ORDER BY seq",
    id: Some("seq = ?"),
    run: Some("run_id = ?"),
    agent: Some("run_id IN (SELECT r.id FROM audit_runs r WHERE r.agent = ?)"),
    status: Some("kind = ?"),
    since: Some("at >= ?"),
    ..BY_ID
};

const THREADS: Shape = Shape {
    select: "SELECT t.id, t.agent, t.mailbox, t.subject, t.status, t.reason,
                 (SELECT group_concat(p.address, ', ' ORDER BY p.address) FROM participants p WHERE p.thread_id = t.id) AS participants,
                 (SELECT count(*) FROM letters l WHERE l.thread_id = t.id) AS letters,
                 t.created_at, t.last_at
             FROM threads t",
    agent: Some("agent = ?"),
    sender: Some("EXISTS (SELECT 1 FROM participants p WHERE p.thread_id = t.id AND p.address = ?)"),
    thread: Some("id = ?"),
    since: Some("last_at >= ?"),
    text: Some("instr(lower(subject), lower(?)) > 0"),
    ..BY_ID
};

impl View {
    fn shape(self) -> &'static Shape {
        match self {
            View::Letters => &LETTERS,
            View::Runs => &RUNS,
            View::ToolCalls => &TOOL_CALLS,
            View::Outgoing => &OUTGOING,
            View::Firings => &FIRINGS,
            View::Questions => &QUESTIONS,
            View::Events => &EVENTS,
            View::Threads => &THREADS,
        }
    }
}

impl Store {
    /// Rows of a view, oldest first.
    ///
    /// # Errors
    /// What the store says; a filter that the view has no column for is a fault.
    pub fn rows(&self, view: View, filter: &Filter) -> Result<Vec<Row>, StoreError> {
        let (text, values) = query(view.shape(), filter)?;
        let mut found = self.read(|sql| {
            let mut statement = sql.prepare_cached(&text)?;
            let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
            let mut rows = statement.query(params_from_iter(values))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let mut columns = Row::new();
                for (index, name) in names.iter().enumerate() {
                    columns.insert(name.clone(), to_value(row.get_ref(index)?));
                }
                found.push(columns);
            }
            Ok(found)
        })?;
        if filter.limit.is_some() {
            found.reverse();
        }
        Ok(found)
    }

    /// The text of an outgoing letter, and its bytes; none when they are no longer kept.
    ///
    /// # Errors
    /// What the store says.
    pub fn outgoing_content(&self, id: i64) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT text, bytes FROM outgoing WHERE id = ?1 AND bytes <> x''")?;
            Ok(query.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
        })
    }
}

type Values = Vec<Box<dyn ToSql>>;

/// The query's text, put together from the fixed pieces above, and its parameters. With a limit the newest
/// rows come first.
fn query(shape: &Shape, filter: &Filter) -> Result<(String, Values), StoreError> {
    let text = |value: &Option<String>| value.clone().map(|value| Box::new(value) as Box<dyn ToSql>);
    let wanted = [
        ("id", shape.id, text(&filter.id)),
        ("run", shape.run, text(&filter.run)),
        ("agent", shape.agent, text(&filter.agent)),
        ("door", shape.door, text(&filter.door)),
        ("status", shape.status, text(&filter.status)),
        ("sender", shape.sender, text(&filter.sender)),
        ("thread", shape.thread, filter.thread.map(|thread| Box::new(thread) as Box<dyn ToSql>)),
        ("duty", shape.duty, text(&filter.duty)),
        ("since", shape.since, filter.since.map(|since| Box::new(Stamp(since)) as Box<dyn ToSql>)),
        ("text", shape.text, text(&filter.text)),
    ];
    let (mut sql, mut values) = (shape.select.to_owned(), Values::new());
    for (name, condition, value) in wanted {
        let Some(value) = value else { continue };
        let condition = condition.ok_or_else(|| StoreError::Fault(format!("this list cannot be narrowed by {name}")))?;
        sql.push_str(if values.is_empty() { " WHERE " } else { " AND " });
        sql.push_str(condition);
        values.push(value);
    }
    if let Some(limit) = filter.limit {
        sql.push_str(shape.newest_first);
        sql.push_str(" LIMIT ?");
        values.push(Box::new(limit));
    } else {
        sql.push_str(shape.oldest_first);
    }
    Ok((sql, values))
}

fn to_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) | ValueRef::Blob(text) => Value::from(String::from_utf8_lossy(text)),
    }
}
