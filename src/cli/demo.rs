//! `demo`: the real daemon on the shipped shop, with nothing to set up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{print, runs, shop};
use crate::config::{Config, is_set};
use crate::store::{Filter, Store, View};
use crate::{daemon, telemetry};

/// How long `--once` waits for its answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Real models that the demo uses when their key is in the environment: variable, settings.
const REAL_MODELS: [(&str, &str); 3] = [
    (
        "ANTHROPIC_API_KEY",
        "wire = \"anthropic\"\nbase_url = \"https://api.anthropic.com\"\nmodel = \"claude-sonnet-4-5\"\ncontext_window = 200000\nmax_output = 32000\n",
    ),
    (
        "OPENAI_API_KEY",
        "wire = \"openai\"\nbase_url = \"https://api.openai.com/v1\"\nmodel = \"gpt-4.1-mini\"\ncontext_window = 1000000\nmax_output = 32000\n",
    ),
    (
        "HF_TOKEN",
        "wire = \"openai\"\nbase_url = \"https://router.huggingface.co/v1\"\nmodel = \"moonshotai/Kimi-K2-Instruct\"\ncontext_window = 262144\nmax_output = 32000\n",
    ),
];

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Where the shop is laid out; a temporary folder when left out.
    dir: Option<PathBuf>,
    /// Send one prepared letter, print it with the run and the answer, and end.
    #[arg(long)]
    once: bool,
}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let temporary = self.dir.is_none();
        let home = match self.dir {
            Some(dir) => dir,
            None => temporary_folder()?,
        };
        let done = lay_out(&home).and_then(|config| live(config, &home, self.once));
        if temporary && self.once {
            fs::remove_dir_all(&home).with_context(|| format!("{} could not be removed", home.display()))?;
        }
        done
    }
}

fn temporary_folder() -> anyhow::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    let home = std::env::temp_dir().join(format!("dutiful-demo-{:016x}", u64::from_be_bytes(random)));
    fs::create_dir_all(&home).with_context(|| format!("{} cannot be made", home.display()))?;
    Ok(home)
}

fn lay_out(home: &Path) -> anyhow::Result<Config> {
    fs::create_dir_all(home).with_context(|| format!("{} cannot be made", home.display()))?;
    shop::write(home, &settings())?;
    Config::load(home).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", lines.join("\n"))
    })
}

/// The shop's settings; with a real model in the place of the rules when the environment holds its key.
fn settings() -> String {
    let Some((variable, model)) = REAL_MODELS.iter().find(|(variable, _)| is_set(variable)) else {
        return shop::DEMO_SETTINGS.to_owned();
    };
    print::line(&format!("{variable} is set: the shop is answered by that model, at your cost."));
    let rules = "wire  = \"script\"\nmodel = \"shop-rules\"\nrules = \"rules.toml\"\n";
    shop::DEMO_SETTINGS.replace(rules, &format!("{model}api_key = {{ env = \"{variable}\" }}\n"))
}

fn live(config: Config, home: &Path, once: bool) -> anyhow::Result<ExitCode> {
    let log = config.settings.telemetry.clone();
    let quiet = if once { "warn" } else { log.log.as_str() };
    let guards = telemetry::start(quiet, Some(&log.log_dir))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let store = config.settings.store.clone();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let stop = CancellationToken::new();
    let options = daemon::Options { stop: stop.clone(), ready: Some(ready), ..daemon::Options::default() };
    let daemon = runtime.spawn(Box::pin(daemon::run(config, options)));
    let told = runtime.block_on(is_ready).is_ok();
    let shown = match (told, once) {
        (false, _) => Ok(()),
        (true, false) => {
            invite(home);
            Ok(())
        }
        (true, true) => one_letter(home, &store),
    };
    if once {
        stop.cancel();
    }
    let ended = runtime.block_on(daemon).context("the daemon crashed")?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(guards);
    ended.and(shown).map(|()| ExitCode::SUCCESS)
}

fn invite(home: &Path) {
    let home = home.display();
    print::line(&format!(
        "\nThe shop is open in {home}\n\n\
         Three things to try, in another terminal:\n  \
         1. cp {home}/letters/order.eml {home}/mail/new/      write as a customer\n  \
         2. cat {home}/sent/new/*                             read the answer\n  \
         3. dutiful --home {home} runs                        see what was done, and why\n\n\
         Ctrl-C closes it. Nothing is left outside this folder.\n"
    ));
}

/// Sends the prepared letter and shows what came of it.
fn one_letter(home: &Path, store: &Path) -> anyhow::Result<()> {
    let inbox = home.join("mail");
    let name = format!("{}.demo", std::process::id());
    let written = inbox.join("tmp").join(&name);
    fs::write(&written, shop::LETTER).context("the letter could not be written")?;
    fs::rename(&written, inbox.join("new").join(&name)).context("the letter could not be delivered")?;
    let store = Store::attach(store)?;
    let row = answered(&store)?;
    print::line(&format!("══ the letter ══\n\n{}", shop::LETTER.trim_end()));
    let run = row.get("run_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    print::line("\n══ the run ══\n");
    runs::show(&store, &run, false)?;
    let id = row.get("id").and_then(Value::as_i64).unwrap_or_default();
    let (text, _) = store.outgoing_content(id)?.context("the answer is gone")?;
    print::line(&format!("\n══ the answer ══\n\n{text}"));
    Ok(())
}

/// Waits for the first reply that was sent.
fn answered(store: &Store) -> anyhow::Result<crate::store::Row> {
    let began = Instant::now();
    let filter = Filter { status: Some("sent".to_owned()), ..Filter::default() };
    while began.elapsed() < PATIENCE {
        let rows = store.rows(View::Outgoing, &filter)?;
        if let Some(row) = rows.into_iter().rfind(|row| row.get("kind").and_then(Value::as_str) == Some("reply")) {
            return Ok(row);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("no answer within {} s: look at `dutiful letters`", PATIENCE.as_secs())
}
