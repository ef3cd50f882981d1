//! All tools that this daemon knows: built-in ones and the operator's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::builtin::{self, READ_RESULT};
use super::command::Command;
use super::toolset::Known;
use super::{Tool, Toolset, definition};
use crate::chat::ToolName;
use crate::config::{Agent, Effect, LATER_TOOLS, Problem, Settings, ToolKind};

/// Why a granted tool is off.
const NOT_IN_THIS_VERSION: &str = "not in this version";
const NEEDS_APPROVAL: &str = "needs approval, which this version cannot ask for yet";
const NO_SUCH_TOOL: &str = "no such tool";

/// A tool that an agent was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Its name.
    pub name: String,
    /// What repeating it would do; none when there is no such tool.
    pub effect: Option<Effect>,
    /// Why it may not be called, if so.
    pub off: Option<String>,
}

/// Every known tool by name.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: BTreeMap<ToolName, Known>,
    /// The operator's tools that this version cannot call.
    uncallable: Vec<String>,
}

impl Catalog {
    /// Builds all tools of the settings and the built-in ones.
    ///
    /// # Errors
    /// Every definition that harness D1 forbids, by tool name.
    pub fn build(settings: &Settings) -> Result<Catalog, Vec<Problem>> {
        let mut catalog = Catalog::default();
        let mut problems = Vec::new();
        for tool in builtin::tools() {
            catalog.add(tool, &mut problems);
        }
        for (name, tool) in &settings.tools {
            if LATER_TOOLS.contains(&name.as_str()) {
                problems.push(problem(name, "this is the name of a built-in tool; choose another"));
            }
            match &tool.kind {
                ToolKind::Command(command) => catalog.add(Arc::new(Command::new(tool, command, settings)), &mut problems),
                ToolKind::Http(_) => catalog.uncallable.push(name.clone()),
            }
        }
        if problems.is_empty() { Ok(catalog) } else { Err(problems) }
    }

    fn add(&mut self, tool: Arc<dyn Tool>, problems: &mut Vec<Problem>) {
        let spec = tool.spec();
        let name = spec.name.as_str();
        if let Some(other) = self.tools.keys().find(|other| other.as_str().eq_ignore_ascii_case(name)) {
            let what = format!("another tool is named \"{other}\"; names must differ in more than case");
            return problems.push(problem(name, &what));
        }
        match definition::check(name, &spec.description, &spec.input) {
            Ok(schema) => {
                let name = spec.name.clone();
                self.tools.insert(name, Known { tool, schema: Arc::new(schema) });
            }
            Err(found) => problems.extend(found.iter().map(|what| problem(name, what))),
        }
    }

    /// An agent's own set: what it was granted, frozen for a run (harness D3). Deferred tools are shown
    /// like eager ones; `read_result` comes with any other tool (harness B4, TS8).
    pub fn toolset(&self, agent: &Agent) -> Toolset {
        let mut tools: BTreeMap<ToolName, Known> = granted(agent)
            .filter(|name| self.why_off(name).is_none())
            .filter_map(|name| self.tools.get_key_value(name))
            .map(|(name, known)| (name.clone(), known.clone()))
            .collect();
        if !tools.is_empty()
            && let Some((name, known)) = self.tools.get_key_value(READ_RESULT)
        {
            tools.insert(name.clone(), known.clone());
        }
        Toolset::of(tools)
    }

    /// Each granted name in the order of the agent's file, with the reason why it is off, if it is; then
    /// `read_result` when it comes by itself. The operator's switches are not looked at.
    pub fn explain(&self, agent: &Agent) -> Vec<Granted> {
        let mut names: Vec<Granted> = Vec::new();
        for name in granted(agent) {
            if !names.iter().any(|seen| seen.name == name) {
                names.push(self.granted(name));
            }
        }
        if names.iter().any(|granted| granted.off.is_none()) && !names.iter().any(|granted| granted.name == READ_RESULT) {
            names.push(self.granted(READ_RESULT));
        }
        names
    }

    fn granted(&self, name: &str) -> Granted {
        let effect = self.tools.get(name).map(|known| known.tool.spec().effect);
        Granted { name: name.to_owned(), effect, off: self.why_off(name).map(str::to_owned) }
    }

    fn why_off(&self, name: &str) -> Option<&'static str> {
        match self.tools.get(name) {
            Some(known) => known.tool.spec().approval.then_some(NEEDS_APPROVAL),
            None if LATER_TOOLS.contains(&name) || self.uncallable.iter().any(|other| other == name) => Some(NOT_IN_THIS_VERSION),
            // A tool of an MCP server is named SERVER__NAME.
            None if name.contains("__") => Some(NOT_IN_THIS_VERSION),
            None => Some(NO_SUCH_TOOL),
        }
    }
}

fn granted(agent: &Agent) -> impl Iterator<Item = &str> {
    agent.tools.eager.iter().chain(&agent.tools.deferred).map(String::as_str)
}

fn problem(name: &str, what: &str) -> Problem {
    Problem { path: PathBuf::from("dutiful.toml"), line: 0, message: format!("tools.{name}: {what}") }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
