//! An agent's tools: granted ones only. Switches are read when a call is executed, not here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Tool;
use crate::chat::{ToolCall, ToolName};

/// The tools of one agent.
#[derive(Debug, Clone, Default)]
pub struct Toolset {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
}

/// What a model's call comes down to (harness part 6).
#[derive(Debug, Clone)]
pub enum Resolved {
    /// A granted tool with valid arguments.
    Ready {
        /// The tool.
        tool: Arc<dyn Tool>,
        /// The call under its canonical name, arguments as they will be used.
        call: ToolCall,
        /// The same arguments, parsed.
        arguments: Value,
        /// What was repaired, when anything was.
        repaired: Option<String>,
    },
    /// No such tool, or arguments that no repair makes valid; the text is the error result for the model.
    Invalid {
        /// The call, under its canonical name when that is known.
        call: ToolCall,
        /// For the model.
        message: String,
    },
}

impl Toolset {
    /// `{"name", "description", "input"}` of each tool, sorted by name: the same bytes each time (D2).
    pub fn definitions(&self) -> Vec<Value> {
        unimplemented!()
    }

    /// Repairs the name and the arguments as harness R1 to R9 allow, and validates them.
    pub fn resolve(&self, _call: &ToolCall) -> Resolved {
        unimplemented!()
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<&ToolName> {
        self.tools.keys().collect()
    }
}
