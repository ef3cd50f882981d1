//! An agent's tools: granted ones only. Switches are read when a call is executed, not here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Tool;
use super::repair::{self, Arguments};
use super::validate::{InputSchema, excerpt};
use crate::chat::{ToolCall, ToolName};
use crate::config::Effect;

/// Bytes of a model's own words inside an error (harness R10).
const ECHO: usize = 800;

/// The tools of one agent.
#[derive(Debug, Clone, Default)]
pub struct Toolset {
    tools: BTreeMap<ToolName, Known>,
}

/// A tool and its compiled schema.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) schema: Arc<InputSchema>,
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
    pub(super) fn of(tools: BTreeMap<ToolName, Known>) -> Toolset {
        Toolset { tools }
    }

    /// Also this tool, which no catalog knows: what a crash or a count in the process itself has to show.
    #[cfg(test)]
    pub(crate) fn and(mut self, tool: Arc<dyn Tool>) -> Toolset {
        let spec = tool.spec();
        let schema = Arc::new(super::definition::check(spec.name.as_str(), &spec.description, &spec.input).unwrap());
        self.tools.insert(spec.name.clone(), Known { tool, schema });
        self
    }

    /// `{"name", "description", "input"}` of each tool, sorted by name: the same bytes each time (D2).
    pub fn definitions(&self) -> Vec<Value> {
        self.tools
            .values()
            .map(|known| {
                let spec = known.tool.spec();
                json!({ "name": spec.name, "description": spec.description, "input": known.schema.schema() })
            })
            .collect()
    }

    /// Repairs the name and the arguments as harness R1 to R9 allow, and validates them. Only calls of a
    /// response that ended as it should may come here.
    pub fn resolve(&self, call: &ToolCall) -> Resolved {
        let names: Vec<&str> = self.tools.keys().map(ToolName::as_str).collect();
        let Some(known) = repair::name(call.name.as_str(), &names).and_then(|name| self.tools.get(name)) else {
            return Resolved::Invalid { call: call.clone(), message: unknown(call.name.as_str(), &names) };
        };
        let spec = known.tool.spec();
        let mut repairs = Vec::new();
        if spec.name != call.name {
            repairs.push(format!("the name was written \"{}\"", excerpt(call.name.as_str(), 100)));
        }
        let mut call = ToolCall { name: spec.name.clone(), ..call.clone() };
        match known.fit(&call.arguments) {
            Ok((arguments, repaired)) => {
                if !repaired.is_empty() || call.arguments.trim().is_empty() {
                    call.arguments = arguments.to_string();
                }
                repairs.extend(repaired);
                let repaired = (!repairs.is_empty()).then(|| repairs.join("; "));
                Resolved::Ready { tool: Arc::clone(&known.tool), call, arguments, repaired }
            }
            Err(problems) => {
                let message = known.invalid(&problems, &call.arguments);
                Resolved::Invalid { call, message }
            }
        }
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<&ToolName> {
        self.tools.keys().collect()
    }
}

impl Known {
    /// The arguments as the schema wants them and what was put right, or all that is wrong.
    fn fit(&self, raw: &str) -> Result<(Value, Vec<String>), Vec<String>> {
        let Arguments { mut object, repairs, closed } = repair::arguments(raw).map_err(|reason| vec![reason])?;
        let mut repairs: Vec<String> = repairs.into_iter().map(str::to_owned).collect();
        let effectful = self.tool.spec().effect == Effect::Effectful;
        if closed && effectful {
            return Err(vec!["the arguments are no valid JSON: closing brackets are missing".to_owned()]);
        }
        let problems = self.schema.problems(&Value::Object(object.clone()));
        if problems.is_empty() {
            return Ok((Value::Object(object), repairs));
        }
        if !closed && !effectful {
            repairs.extend(self.schema.coerce(&mut object));
            let arguments = Value::Object(object);
            if self.schema.accepts(&arguments) {
                return Ok((arguments, repairs));
            }
        }
        Err(problems)
    }

    fn invalid(&self, problems: &[String], written: &str) -> String {
        let name = &self.tool.spec().name;
        let list: String = problems.iter().map(|problem| format!("\n- {problem}")).collect();
        format!(
            "{name} was not run: its arguments are not valid.{list}\nYou wrote: {}\nIts schema: {}\nCall it again with arguments that fit.",
            excerpt(written.trim(), ECHO),
            self.schema.shown()
        )
    }
}

/// The same words for a name that does not exist and for one that is not granted (harness T9).
fn unknown(written: &str, names: &[&str]) -> String {
    let written = excerpt(&written.replace(char::is_control, " "), 100);
    let hint = repair::nearest(&written, names).map(|name| format!(" Did you mean \"{name}\"?")).unwrap_or_default();
    match names {
        [] => format!("There is no tool \"{written}\", and no other tool either: answer without."),
        names => format!("There is no tool \"{written}\".{hint} The tools are: {}.", excerpt(&names.join(", "), 4096)),
    }
}

#[cfg(test)]
#[path = "toolset_tests.rs"]
mod tests;
