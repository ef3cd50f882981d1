//! The operator's switches: read again at each use, so that "off" also stops runs in flight.

use std::fmt;

use super::{Store, StoreError};

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
    pub async fn set_switch(&self, _switch: &Switch, _off: bool) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Whether the operator switched this off, now.
    ///
    /// # Errors
    /// What the store says.
    pub fn is_off(&self, _switch: &Switch) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// All that is off.
    ///
    /// # Errors
    /// What the store says.
    pub fn switched_off(&self) -> Result<Vec<String>, StoreError> {
        unimplemented!()
    }
}
