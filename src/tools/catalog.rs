//! All tools that this daemon knows: built-in ones and the operator's.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Tool, Toolset};
use crate::chat::ToolName;
use crate::config::{Agent, Problem, Settings};
use crate::store::Store;

/// Every known tool by name.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
}

impl Catalog {
    /// Builds all tools of the settings and the built-in ones.
    ///
    /// # Errors
    /// Every definition that harness D1 forbids, by tool name.
    pub fn build(_settings: &Settings, _store: &Store) -> Result<Catalog, Vec<Problem>> {
        unimplemented!()
    }

    /// An agent's own set: what it was granted, frozen for a run (harness D3).
    pub fn toolset(&self, _agent: &Agent) -> Toolset {
        unimplemented!()
    }
}
