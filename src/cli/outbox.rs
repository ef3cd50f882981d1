//! `outbox`: all that goes out, and what an operator may do to it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::home::Home;
use super::print;
use super::runs::{Since, runtime};
use crate::events::Events;
use crate::gateway::GatewayOutbox;
use crate::run::OutgoingId;
use crate::store::{Filter, OutgoingChange, Row, Store, View};

const COLUMNS: [&str; 9] = ["id", "queued_at", "kind", "recipient", "status", "attempts", "sent_at", "subject", "error"];

/// Arguments of `outbox`.
#[derive(Debug, Args)]
pub(super) struct Outbox {
    /// One letter's number; all letters when left out.
    id: Option<i64>,
    /// Let a held or uncertain letter leave.
    #[arg(long, group = "action", requires = "id")]
    approve: bool,
    /// Never send a held letter.
    #[arg(long, group = "action", requires = "id")]
    reject: bool,
    /// Try a failed or uncertain letter again.
    #[arg(long, group = "action", requires = "id")]
    retry: bool,
    /// Take back a queued letter: it is held until you approve or reject it.
    #[arg(long, group = "action", requires = "id")]
    undo: bool,
    /// Replace the text of a held letter by this file, in Markdown; "-" reads standard input.
    #[arg(long, group = "action", requires = "id", value_name = "FILE")]
    edit: Option<PathBuf>,
    /// Print the letter as it leaves, byte for byte.
    #[arg(long, group = "action", requires = "id")]
    raw: bool,
    /// Only with this status.
    #[arg(long, value_parser = ["held", "queued", "sending", "sent", "uncertain", "failed", "rejected", "bounced"])]
    status: Option<String>,
    /// Only to this address.
    #[arg(long)]
    recipient: Option<String>,
    /// Only in this thread.
    #[arg(long)]
    thread: Option<i64>,
    /// Only from then on: 2h, 3d, or a time like 2026-12-01T09:00:00Z.
    #[arg(long)]
    since: Option<Since>,
    /// At most so many, the newest.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Outbox {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        match self.id {
            Some(id) => self.one(home, id),
            None => self.list(home),
        }
    }

    fn list(self, home: &Home) -> anyhow::Result<ExitCode> {
        let filter = Filter {
            status: self.status,
            sender: self.recipient,
            thread: self.thread,
            since: self.since.map(|since| since.0),
            limit: Some(self.limit),
            ..Filter::default()
        };
        print::rows(&home.store()?.rows(View::Outgoing, &filter)?, &COLUMNS, self.json);
        Ok(ExitCode::SUCCESS)
    }

    fn change(&self) -> Option<OutgoingChange> {
        match (self.approve, self.reject, self.retry, self.undo) {
            (true, ..) => Some(OutgoingChange::Approve),
            (_, true, ..) => Some(OutgoingChange::Reject),
            (_, _, true, _) => Some(OutgoingChange::Retry),
            (_, _, _, true) => Some(OutgoingChange::Undo),
            _ => None,
        }
    }

    fn one(&self, home: &Home, id: i64) -> anyhow::Result<ExitCode> {
        let store = home.store()?;
        let row = row_of(&store, id)?;
        if let Some(change) = self.change() {
            let refusal = wanted(&change);
            let changed = runtime()?.block_on(store.change_outgoing(OutgoingId(id), change))?;
            anyhow::ensure!(changed, "letter {id} is {}: {refusal}", status(&row));
            print::line(&format!("letter {id} is {}: {}", status(&row_of(&store, id)?), home.wake()?));
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(file) = &self.edit {
            return edit(home, &store, OutgoingId(id), file);
        }
        let content = store.outgoing_content(id)?;
        if self.raw {
            print::raw(&content.with_context(|| format!("letter {id}: its bytes are no longer kept, see [retention]"))?.1);
            return Ok(ExitCode::SUCCESS);
        }
        print::record(&row, self.json);
        match content {
            _ if self.json => {}
            Some((text, _)) => print::line(&format!("\n{}", print::visible(&text))),
            None => print::line("\n[its text is no longer kept, see [retention]]"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row_of(store: &Store, id: i64) -> anyhow::Result<Row> {
    let filter = Filter { id: Some(id.to_string()), ..Filter::default() };
    let row = store.rows(View::Outgoing, &filter)?.into_iter().next();
    row.with_context(|| format!("there is no letter {id} in the outbox: see `dutiful outbox`"))
}

fn status(row: &Row) -> &str {
    row.get("status").and_then(serde_json::Value::as_str).unwrap_or("-")
}

/// The state in which a letter can be changed so.
fn wanted(change: &OutgoingChange) -> &'static str {
    match change {
        OutgoingChange::Approve => "only a held or uncertain one can be approved",
        OutgoingChange::Reject => "only a held one can be rejected",
        OutgoingChange::Retry => "only a failed or uncertain one whose text is kept can be tried again",
        OutgoingChange::Undo => "only a queued one, which has not left yet, can be taken back",
    }
}

/// Gives a held letter another text. It stays held.
fn edit(home: &Home, store: &Store, id: OutgoingId, file: &Path) -> anyhow::Result<ExitCode> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| file.display().to_string())?
    };
    let held = store.held_outgoing(id)?;
    let held = held.with_context(|| format!("letter {id} is not held: only a held letter can be edited"))?;
    let config = home.checked()?;
    let agent = held.agent.and_then(|agent| config.agents.get(&agent));
    let outbox = GatewayOutbox::new(store.clone(), Events::default());
    let (text, bytes) = outbox.rewrite(agent.map(AsRef::as_ref), held.kind, &held.bytes, &text, crate::clock::now())?;
    let changed = runtime()?.block_on(store.edit_outgoing(id, text, bytes))?;
    anyhow::ensure!(changed, "letter {id} is not held any more");
    print::line(&format!("letter {id}: its text is replaced; `dutiful outbox {id} --approve` lets it leave"));
    Ok(ExitCode::SUCCESS)
}
