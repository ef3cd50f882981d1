//! `agents` and `tools`: what is configured, what is effective, and why something is off.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::home::Home;
use super::print;
use crate::config::{Agent, Config};
use crate::store::Row;
use crate::tools::Catalog;

/// Arguments of `agents`.
#[derive(Debug, Args)]
pub(super) struct Agents {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Agents {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let config = home.checked()?;
        let off = switched_off(home);
        let rows: Vec<Row> = config.agents.values().map(|agent| row_of(agent, &off)).collect();
        print::rows(&rows, &["name", "state", "mailbox", "model", "addresses", "tools", "description"], self.json);
        Ok(ExitCode::SUCCESS)
    }
}

fn row_of(agent: &Agent, off: &[String]) -> Row {
    let state = if off.contains(&format!("agent:{}", agent.name)) { "off" } else { "on" };
    let addresses: Vec<&str> = agent.addresses.iter().map(crate::mail::Address::as_str).collect();
    let tools: Vec<&String> = agent.tools.eager.iter().chain(&agent.tools.deferred).collect();
    let row = json!({
        "name": agent.name,
        "state": state,
        "mailbox": agent.mailbox,
        "model": agent.model,
        "addresses": addresses,
        "max_tool_turns": agent.max_tool_turns,
        "identity": agent.identity.as_str(),
        "tools": tools,
        "description": agent.description,
    });
    match row {
        Value::Object(row) => row,
        _ => Row::new(),
    }
}

/// Arguments of `tools`.
#[derive(Debug, Args)]
pub(super) struct Tools {
    /// Only this agent's.
    #[arg(long)]
    agent: Option<String>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Tools {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let config = home.checked()?;
        if let Some(name) = &self.agent {
            let names: Vec<&String> = config.agents.keys().collect();
            anyhow::ensure!(config.agents.contains_key(name), "there is no agent \"{name}\"; there are: {names:?}");
        }
        let rows = effective(&config, &switched_off(home), self.agent.as_deref())?;
        print::rows(&rows, &["agent", "tool", "effect", "state", "reason"], self.json);
        Ok(ExitCode::SUCCESS)
    }
}

/// Each granted tool of each agent, whether it may be called, and if not why.
fn effective(config: &Config, off: &[String], only: Option<&str>) -> anyhow::Result<Vec<Row>> {
    let catalog = Catalog::build(&config.settings)
        .map_err(|problems| anyhow::anyhow!(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
    let mut rows = Vec::new();
    for agent in config.agents.values().filter(|agent| only.is_none_or(|name| name == agent.name)) {
        for granted in catalog.explain(agent) {
            let name = &granted.name;
            let switched = off.contains(&format!("tool:{name}")) || off.contains(&format!("tool:{name}@{}", agent.name));
            let reason = granted.off.or_else(|| switched.then(|| "switched off by the operator".to_owned()));
            let mut row = Row::new();
            row.insert("agent".to_owned(), json!(agent.name));
            row.insert("tool".to_owned(), json!(name));
            row.insert("effect".to_owned(), json!(granted.effect));
            row.insert("state".to_owned(), json!(if reason.is_some() { "off" } else { "on" }));
            row.insert("reason".to_owned(), json!(reason));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// What is off, as far as there is a store yet.
fn switched_off(home: &Home) -> Vec<String> {
    home.store().and_then(|store| Ok(store.switched_off()?)).unwrap_or_default()
}
