//! `switch`: the operator's off, at once and durable.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::home::Home;
use super::print;
use super::runs::runtime;
use crate::store::Switch;

/// Arguments of `switch`.
#[derive(Debug, Args)]
pub(super) struct SwitchCommand {
    #[command(subcommand)]
    way: Way,
}

#[derive(Debug, Subcommand)]
enum Way {
    /// Switch something off: at once, also for runs in flight, and until it is switched on.
    Off(What),
    /// Switch it on again.
    On(What),
    /// List what is off.
    List {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

/// What is switched.
#[derive(Debug, Args)]
struct What {
    /// tool:NAME, agent:NAME, duty:NAME or sending (all letters of all agents).
    what: String,
    /// For this agent only; goes with tool:NAME.
    #[arg(long)]
    agent: Option<String>,
}

impl SwitchCommand {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let (what, off) = match self.way {
            Way::Off(what) => (what, true),
            Way::On(what) => (what, false),
            Way::List { json } => return list(home, json),
        };
        let switch = parsed(what)?;
        if let Some(doubt) = doubt(home, &switch) {
            print::remark(&format!("warning: {doubt}"));
        }
        let store = home.store_for_switch()?;
        let changed = runtime()?.block_on(store.set_switch(&switch, off))?;
        let word = if off { "off" } else { "on" };
        let effect = home.wake()?;
        print::line(&if changed { format!("{switch} is {word}: {effect}") } else { format!("{switch} was {word} already") });
        Ok(ExitCode::SUCCESS)
    }
}

fn list(home: &Home, json: bool) -> anyhow::Result<ExitCode> {
    for off in home.store()?.switched_off()? {
        print::line(&if json { serde_json::json!({ "off": off }).to_string() } else { off });
    }
    Ok(ExitCode::SUCCESS)
}

/// What speaks against this name, if the files can be read: it may be a slip, or the name of a tool that comes later.
fn doubt(home: &Home, switch: &Switch) -> Option<String> {
    let config = home.config().ok()?;
    let unknown_agent =
        |name: &String| (!config.agents.contains_key(name)).then(|| format!("there is no agent \"{name}\": see `dutiful agents`"));
    match switch {
        Switch::Tool { agent: Some(agent), .. } if !config.agents.contains_key(agent) => unknown_agent(agent),
        Switch::Tool { name, agent } => {
            let asked = config.agents.values().filter(|each| agent.as_ref().is_none_or(|agent| *agent == each.name));
            let granted = asked.flat_map(|agent| agent.tools.eager.iter().chain(&agent.tools.deferred));
            let whose = agent.as_ref().map_or("no agent has a tool".to_owned(), |agent| format!("the agent {agent} has no tool"));
            (!may_be_granted(granted, name)).then(|| format!("{whose} named \"{name}\": see `dutiful tools`"))
        }
        Switch::Agent(name) => unknown_agent(name),
        Switch::Duty(name) => {
            let file = home.folder().join("duties").join(format!("{name}.toml"));
            (!file.is_file()).then(|| format!("there is no duty \"{name}\" in {}", home.folder().join("duties").display()))
        }
        Switch::Sending => None,
    }
}

/// `read_result` comes by itself with any other tool; `SERVER__*` grants every tool of a server.
fn may_be_granted<'a>(mut granted: impl Iterator<Item = &'a String>, name: &str) -> bool {
    granted.any(|grant| grant == name || name == "read_result" || grant.strip_suffix('*').is_some_and(|start| name.starts_with(start)))
}

fn parsed(what: What) -> anyhow::Result<Switch> {
    let switch = match what.what.split_once(':') {
        Some(("tool", name)) if !name.is_empty() => return Ok(Switch::Tool { name: name.to_owned(), agent: what.agent }),
        Some(("agent", name)) if !name.is_empty() => Switch::Agent(name.to_owned()),
        Some(("duty", name)) if !name.is_empty() => Switch::Duty(name.to_owned()),
        None if what.what == "sending" => Switch::Sending,
        _ => anyhow::bail!("\"{}\" cannot be switched: write tool:NAME, agent:NAME, duty:NAME or sending", what.what),
    };
    anyhow::ensure!(what.agent.is_none(), "--agent goes with tool:NAME only");
    Ok(switch)
}
