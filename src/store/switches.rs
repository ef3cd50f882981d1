//! The operator's switches: read again at each use, so that "off" also stops runs in flight.

use std::fmt;

use rusqlite::Connection;
use serde_json::json;

use super::audit::{Stamp, record};
use super::{Store, StoreError};
use crate::run::EventKind;

/// What can be switched off (DESIGN 2.2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Switch {
    /// `tool:NAME`, for one agent or for all.
    Tool {
        /// NAME.
        name: String,
        /// `--agent A`.
        agent: Option<String>,
    },
    /// `agent:NAME`.
    Agent(String),
    /// `duty:NAME`.
    Duty(String),
    /// `sending`.
    Sending,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Switch::Tool { name, agent: None } => write!(f, "tool:{name}"),
            Switch::Tool { name, agent: Some(agent) } => write!(f, "tool:{name}@{agent}"),
            Switch::Agent(name) => write!(f, "agent:{name}"),
            Switch::Duty(name) => write!(f, "duty:{name}"),
            Switch::Sending => f.write_str("sending"),
        }
    }
}

impl Store {
    /// Switches something; durable when it returns. Gives whether that changed anything.
    ///
    /// # Errors
    /// What the store says.
    pub async fn set_switch(&self, switch: &Switch, off: bool) -> Result<bool, StoreError> {
        let name = switch.to_string();
        self.write(move |writing| {
            let changed = if off {
                writing
                    .sql
                    .prepare_cached("INSERT INTO switches (name, at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING")?
                    .execute((&name, Stamp::now()))?
            } else {
                writing.sql.prepare_cached("DELETE FROM switches WHERE name = ?1")?.execute([&name])?
            };
            if changed > 0 {
                record(writing, None, EventKind::SwitchChanged, &json!({ "switch": name, "off": off }))?;
                writing.wake_letters();
                writing.wake_outgoing();
            }
            Ok(changed > 0)
        })
        .await
    }

    /// Whether the operator switched this off, now. A tool is off for an agent also when it is off for all.
    ///
    /// # Errors
    /// What the store says.
    pub fn is_off(&self, switch: &Switch) -> Result<bool, StoreError> {
        self.read(|sql| {
            let for_all = match switch {
                Switch::Tool { name, agent: Some(_) } => is_off(sql, &Switch::Tool { name: name.clone(), agent: None })?,
                Switch::Tool { agent: None, .. } | Switch::Agent(_) | Switch::Duty(_) | Switch::Sending => false,
            };
            Ok(for_all || is_off(sql, switch)?)
        })
    }

    /// All that is off.
    ///
    /// # Errors
    /// What the store says.
    pub fn switched_off(&self) -> Result<Vec<String>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT name FROM switches ORDER BY name")?;
            let names = query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(names)
        })
    }
}

fn is_off(sql: &Connection, switch: &Switch) -> Result<bool, StoreError> {
    Ok(sql.prepare_cached("SELECT 1 FROM switches WHERE name = ?1")?.exists([switch.to_string()])?)
}
