//! `demo`: the real daemon on the shipped shop, with nothing to set up.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::home::refused;
use super::{print, runs, shop};
use crate::config::{Config, is_set};
use crate::store::{Filter, Row, Store, View};
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
        if let Some(dir) = &self.dir {
            refuse_foreign(dir)?;
        }
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

/// A home that somebody made for themselves is not turned into a shop.
fn refuse_foreign(dir: &Path) -> anyhow::Result<()> {
    let ours = shop::DEMO_SETTINGS.lines().next().unwrap_or_default();
    match fs::read_to_string(dir.join("dutiful.toml")) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(text) if text.starts_with(ours) => Ok(()),
        _ => anyhow::bail!("{} is a home of its own: name a new folder for the demo, or none; this one runs with `serve`", dir.display()),
    }
}

fn temporary_folder() -> anyhow::Result<PathBuf> {
    let home = std::env::temp_dir().join(format!("dutiful-demo-{}", random_word()));
    fs::create_dir_all(&home).with_context(|| format!("{} cannot be made", home.display()))?;
    Ok(home)
}

fn random_word() -> String {
    format!("{:016x}", u64::from_be_bytes(crate::random::bytes()))
}

fn lay_out(home: &Path) -> anyhow::Result<Config> {
    fs::create_dir_all(home).with_context(|| format!("{} cannot be made", home.display()))?;
    shop::write(home, &settings())?;
    Config::load(home).map_err(|problems| refused(&problems, home))
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
    let (home, dutiful) = (home.display(), print::program());
    print::line(&format!(
        "\nThe shop is open in {home}\n\n\
         Three things to try, in another terminal:\n  \
         1. cp {home}/letters/order.eml {home}/mail/new/      # write as a customer; more letters lie beside it\n  \
         2. cat {home}/sent/new/*                             # read the answers\n  \
         3. {dutiful} --home {home} letters                     # see which were answered and why, then `run ID`\n\n\
         Ctrl-C closes it. Nothing is left outside this folder.\n"
    ));
}

/// Sends the prepared letter and shows what came of it.
fn one_letter(home: &Path, store: &Path) -> anyhow::Result<()> {
    let inbox = home.join("mail");
    // Each time a letter of its own: the same Message-ID again would be a duplicate of the first.
    let message_id = format!("{}-{}", shop::LETTER_ID, random_word());
    let letter = shop::LETTER.replacen(shop::LETTER_ID, &message_id, 1);
    let name = format!("{message_id}.demo");
    let written = inbox.join("tmp").join(&name);
    fs::write(&written, &letter).context("the letter could not be written")?;
    fs::rename(&written, inbox.join("new").join(&name)).context("the letter could not be delivered")?;
    let store = Store::attach(store)?;
    let answer = answer_to(&store, &message_id)?;
    print::line(&format!("══ the letter ══\n\n{}", letter.replace('\r', "").trim_end()));
    print::line("\n══ the run ══\n");
    runs::show(&store, text(&answer, "run_id"), false)?;
    let id = answer.get("id").and_then(Value::as_i64).unwrap_or_default();
    let (text, _) = store.outgoing_content(id)?.context("the answer is gone")?;
    print::line(&format!("\n══ the answer ══\n\n{text}"));
    Ok(())
}

/// Waits until the letter was answered; ends early when it will not be.
fn answer_to(store: &Store, message_id: &str) -> anyhow::Result<Row> {
    let began = Instant::now();
    let newest = Filter { limit: Some(20), ..Filter::default() };
    while began.elapsed() < PATIENCE {
        let letters = store.rows(View::Letters, &newest)?;
        if let Some(letter) = letters.iter().find(|letter| text(letter, "message_id").starts_with(message_id)) {
            anyhow::ensure!(text(letter, "verdict") == "accepted", "the letter is {}: {}", text(letter, "verdict"), text(letter, "reason"));
            let of_run = Filter { run: Some(text(letter, "run_id").to_owned()), ..Filter::default() };
            let outgoing = store.rows(View::Outgoing, &of_run)?;
            if let Some(reply) = outgoing.into_iter().find(|row| text(row, "kind") == "reply" && text(row, "status") == "sent") {
                return Ok(reply);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("no answer within {} s: look at `dutiful letters`", PATIENCE.as_secs())
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).and_then(Value::as_str).unwrap_or_default()
}
