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
    /// Switch something off, now and until it is switched on.
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
    /// tool:NAME, agent:NAME, duty:NAME or sending.
    what: String,
    /// For this agent only (tools).
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
        let store = home.store()?;
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
