//! `letters` and `letter`: what came in, and why it was or was not answered.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use super::home::Home;
use super::print;
use super::runs::{Since, runtime};
use crate::gateway::{ParseCaps, parse};
use crate::run::LetterId;
use crate::store::{Filter, Row, Store, Verdict, View};

const COLUMNS: [&str; 9] = ["id", "received_at", "agent", "sender", "identity", "verdict", "reason", "subject", "run_id"];

/// Arguments of `letters`.
#[derive(Debug, Args)]
pub(super) struct Letters {
    /// Only this agent's.
    #[arg(long)]
    agent: Option<String>,
    /// Only with this verdict.
    #[arg(long, value_parser = ["accepted", "ignored", "held", "quarantined", "duplicate"])]
    verdict: Option<String>,
    /// Only from this address.
    #[arg(long)]
    sender: Option<String>,
    /// Only in this thread.
    #[arg(long)]
    thread: Option<i64>,
    /// Only from then on: 2h, 3d, or a time like 2026-12-01T09:00:00Z.
    #[arg(long)]
    since: Option<Since>,
    /// Only with this text in the subject.
    #[arg(long)]
    text: Option<String>,
    /// At most so many, the newest.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Letters {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let filter = Filter {
            agent: self.agent,
            status: self.verdict,
            sender: self.sender,
            thread: self.thread,
            since: self.since.map(|since| since.0),
            text: self.text,
            limit: Some(self.limit),
            ..Filter::default()
        };
        print::rows(&home.store()?.rows(View::Letters, &filter)?, &COLUMNS, self.json);
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `letter`.
#[derive(Debug, Args)]
pub(super) struct Letter {
    /// Its number in `letters`.
    id: i64,
    /// Let a held or quarantined letter be answered.
    #[arg(long, group = "action")]
    release: bool,
    /// Work on an accepted letter again, with a fresh run; its ended run stays for the record.
    #[arg(long, group = "action")]
    retry: bool,
    /// Never answer it; what was answered already stays so.
    #[arg(long, group = "action")]
    drop: bool,
    /// Print the letter as it came, byte for byte.
    #[arg(long, group = "action")]
    raw: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Letter {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let store = home.store()?;
        let id = LetterId(self.id);
        if self.release || self.retry || self.drop {
            return self.act(home, &store);
        }
        let row = self.row(&store)?;
        let raw = runtime()?.block_on(store.raw_letter(id))?;
        if self.raw {
            print::raw(&raw.with_context(|| format!("letter {id}: its bytes are no longer kept, see [retention]"))?);
            return Ok(ExitCode::SUCCESS);
        }
        self.show(&store, &row, raw.as_deref())
    }

    fn row(&self, store: &Store) -> anyhow::Result<Row> {
        let filter = Filter { id: Some(self.id.to_string()), ..Filter::default() };
        let row = store.rows(View::Letters, &filter)?.into_iter().next();
        row.with_context(|| format!("there is no letter {}: see `dutiful letters`", self.id))
    }

    /// Writes what the operator wants of it. A letter that is in no state for that is told with its state.
    fn act(&self, home: &Home, store: &Store) -> anyhow::Result<ExitCode> {
        let id = LetterId(self.id);
        let row = self.row(store)?;
        let (changed, refusal) = runtime()?.block_on(async {
            anyhow::Ok(if self.release {
                let released = store.judge_letter(id, Verdict::Accepted, "released by the operator").await?;
                (
                    released,
                    "only one that is held, quarantined or ignored, that an agent can answer and whose text is kept, can be released",
                )
            } else if self.retry {
                (store.retry_letter(id).await?, "only an accepted one whose run has ended and whose text is kept can be worked on again")
            } else {
                let dropped = store.judge_letter(id, Verdict::Ignored, "dropped by the operator").await?;
                (dropped, "only one that was not answered yet can be dropped")
            })
        })?;
        let word = |column: &str| row.get(column).and_then(Value::as_str).unwrap_or("-").to_owned();
        anyhow::ensure!(changed, "letter {id} is {} ({}): {refusal}", word("verdict"), word("reason"));
        let now = self.row(store)?;
        let verdict = now.get("verdict").and_then(Value::as_str).unwrap_or("-");
        print::line(&format!("letter {id} is {verdict}: {}", home.wake()?));
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, store: &Store, row: &Row, raw: Option<&[u8]>) -> anyhow::Result<ExitCode> {
        print::record(row, self.json);
        if self.json {
            return Ok(ExitCode::SUCCESS);
        }
        let letter = match raw {
            Some(raw) => parse(raw, &ParseCaps::default()).ok().map(|parsed| parsed.inbound),
            None => store.kept_letter(LetterId(self.id))?,
        };
        if raw.is_none() {
            let gone = if letter.is_some() { "its bytes and attachments are" } else { "its content is" };
            print::line(&format!("\n[{gone} no longer kept, see [retention]]"));
        }
        if let Some(letter) = letter {
            print::line("");
            print::line(&print::visible(&letter.text));
            for attachment in &letter.attachments {
                print::line(&format!(
                    "[attached: {} {} {} bytes]",
                    print::visible(&attachment.name),
                    attachment.media_type,
                    attachment.bytes
                ));
            }
        }
        if let Some(run) = row.get("run_id").and_then(|run| run.as_str()) {
            print::line(&format!("\nmore: dutiful run {run}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}
