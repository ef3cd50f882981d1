//! `threads` and `thread`: conversations, held or released.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::home::Home;
use super::print;
use super::runs::runtime;
use crate::run::ThreadId;
use crate::store::{Filter, ThreadState, View};

const COLUMNS: [&str; 7] = ["id", "last_at", "agent", "status", "reason", "participants", "subject"];

/// Arguments of `threads`.
#[derive(Debug, Args)]
pub(super) struct Threads {
    /// Only this agent's.
    #[arg(long)]
    agent: Option<String>,
    /// Only open or held ones.
    #[arg(long, value_parser = ["open", "held"])]
    status: Option<String>,
    /// At most so many, the newest.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Threads {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let filter = Filter { agent: self.agent, status: self.status, limit: Some(self.limit), ..Filter::default() };
        print::rows(&home.store()?.rows(View::Threads, &filter)?, &COLUMNS, self.json);
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `thread`.
#[derive(Debug, Args)]
pub(super) struct Thread {
    /// Its number in `threads`.
    id: i64,
    /// Answer nothing in it until it is released.
    #[arg(long, group = "action")]
    hold: bool,
    /// Answer it again, the letters that waited included.
    #[arg(long, group = "action")]
    release: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Thread {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let store = home.store()?;
        if self.hold || self.release {
            let state = if self.hold { ThreadState::Held("held by the operator".to_owned()) } else { ThreadState::Open };
            let changed = runtime()?.block_on(store.set_thread(ThreadId(self.id), state))?;
            anyhow::ensure!(changed, "there is no thread {}: see `dutiful threads`", self.id);
            let word = if self.hold { "held" } else { "open" };
            print::line(&format!("thread {} is {word}: {}", self.id, home.wake()?));
            return Ok(ExitCode::SUCCESS);
        }
        let filter = Filter { id: Some(self.id.to_string()), ..Filter::default() };
        let rows = store.rows(View::Threads, &filter)?;
        let row = rows.first().with_context(|| format!("there is no thread {}: see `dutiful threads`", self.id))?;
        print::record(row, self.json);
        if self.json {
            return Ok(ExitCode::SUCCESS);
        }
        let of_thread = Filter { thread: Some(self.id), ..Filter::default() };
        print::line("\n── letters in");
        print::rows(
            &store.rows(View::Letters, &of_thread)?,
            &["id", "received_at", "sender", "identity", "verdict", "reason", "run_id"],
            false,
        );
        print::line("\n── letters out");
        print::rows(&store.rows(View::Outgoing, &of_thread)?, &["id", "queued_at", "kind", "recipient", "status", "sent_at"], false);
        Ok(ExitCode::SUCCESS)
    }
}
