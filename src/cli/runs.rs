//! `runs` and `run`: what was done, why, and at what cost.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use serde_json::{Value, json};

use super::home::Home;
use super::print;
use crate::chat::{Block, Message};
use crate::run::RunId;
use crate::store::{Filter, Purpose, ReplySource, Row, Step, Store, View};

const COLUMNS: [&str; 10] = ["id", "started_at", "door", "agent", "thread_id", "status", "outcome", "rounds", "cost", "error"];

/// A point in the past: a time, or a span before now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since(pub(super) DateTime<Utc>);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Since, String> {
        if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            return Ok(Since(time.to_utc()));
        }
        let wrong = || format!("\"{text}\" is no time: write 30m, 2h, 3d or 2026-12-01T09:00:00Z");
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let number: i64 = digits.parse().map_err(|_| wrong())?;
        let span = match text.strip_prefix(&digits) {
            Some("m") => TimeDelta::try_minutes(number),
            Some("h") => TimeDelta::try_hours(number),
            Some("d") => TimeDelta::try_days(number),
            _ => None,
        };
        span.and_then(|span| crate::clock::now().checked_sub_signed(span)).map(Since).ok_or_else(wrong)
    }
}

/// A small runtime for a command that writes one intent.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Arguments of `runs`.
#[derive(Debug, Args)]
pub(super) struct Runs {
    /// Only this agent's.
    #[arg(long)]
    agent: Option<String>,
    /// Only through this door.
    #[arg(long, value_parser = ["reactive", "proactive", "console", "child"])]
    door: Option<String>,
    /// Only with this status.
    #[arg(long, value_parser = ["queued", "running", "needs_input", "done", "failed", "cancelled", "expired"])]
    status: Option<String>,
    /// Only for letters from this address.
    #[arg(long)]
    sender: Option<String>,
    /// Only in this thread.
    #[arg(long)]
    thread: Option<i64>,
    /// Only of this duty.
    #[arg(long)]
    duty: Option<String>,
    /// Only from then on: 2h, 3d, or a time like 2026-12-01T09:00:00Z.
    #[arg(long)]
    since: Option<Since>,
    /// Only with this text anywhere in them.
    #[arg(long)]
    text: Option<String>,
    /// At most so many, the newest.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Runs {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let filter = Filter {
            agent: self.agent,
            door: self.door,
            status: self.status,
            sender: self.sender,
            thread: self.thread,
            duty: self.duty,
            since: self.since.map(|since| since.0),
            text: self.text,
            limit: Some(self.limit),
            ..Filter::default()
        };
        print::rows(&home.store()?.rows(View::Runs, &filter)?, &COLUMNS, self.json);
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Its id in `runs`.
    id: String,
    /// Print its events as they happen, until it ends.
    #[arg(long, conflicts_with = "cancel")]
    follow: bool,
    /// End it: nothing more is done and no reply goes out.
    #[arg(long)]
    cancel: bool,
    /// One JSON object: the run's columns, and under steps, tool_calls and outgoing what it did. With --follow one
    /// object for each event.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let store = home.store()?;
        if self.follow {
            return self.follow(&store);
        }
        if self.cancel {
            row_of(&store, &self.id)?;
            let running = runtime()?.block_on(store.request_cancel(&RunId(self.id.clone())))?;
            anyhow::ensure!(running, "run {} has ended already: see `dutiful run {}`", self.id, self.id);
            print::line(&format!("run {} is to end: {}", self.id, home.wake()?));
            return Ok(ExitCode::SUCCESS);
        }
        show(&store, &self.id, self.json)?;
        Ok(ExitCode::SUCCESS)
    }

    fn follow(&self, store: &Store) -> anyhow::Result<ExitCode> {
        let filter = Filter { run: Some(self.id.clone()), ..Filter::default() };
        let mut shown = 0;
        loop {
            // The status first: the events of a run that has ended are then all there.
            let run = row_of(store, &self.id)?;
            let events = store.rows(View::Events, &filter)?;
            for event in events.iter().skip(shown) {
                show_event(event, self.json);
            }
            shown = events.len();
            if !matches!(run.get("status").and_then(Value::as_str), Some("queued" | "running")) {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(std::time::Duration::from_millis(250));
        }
    }
}

fn show_event(event: &Row, json: bool) {
    if json {
        print::record(event, true);
        return;
    }
    let text = |column: &str| event.get(column).and_then(Value::as_str).unwrap_or_default();
    print::line(&format!("{}  {:18}  {}", text("at"), text("kind"), print::visible(text("data"))));
}

fn row_of(store: &Store, id: &str) -> anyhow::Result<Row> {
    let filter = Filter { id: Some(id.to_owned()), ..Filter::default() };
    store.rows(View::Runs, &filter)?.into_iter().next().with_context(|| format!("there is no run {id}: see `dutiful runs`"))
}

/// Prints one run whole.
pub(super) fn show(store: &Store, id: &str, json: bool) -> anyhow::Result<()> {
    let row = row_of(store, id)?;
    let ended = row.get("ended_at").is_some_and(|ended| !ended.is_null());
    let steps = runtime()?.block_on(store.replay(&RunId(id.to_owned())))?;
    let of_run = Filter { run: Some(id.to_owned()), ..Filter::default() };
    let outgoing = store.rows(View::Outgoing, &of_run)?;
    if json {
        let mut whole = row;
        whole.insert("steps".to_owned(), serde_json::to_value(&steps)?);
        whole.insert("tool_calls".to_owned(), json!(store.rows(View::ToolCalls, &of_run)?));
        whole.insert("outgoing".to_owned(), json!(outgoing));
        print::record(&whole, true);
        return Ok(());
    }
    print::record(&row, false);
    // A run begins with a step: an ended one without any has lost them.
    if steps.is_empty() && ended {
        print::line("\n[its prompt, answers and results are no longer kept, see [retention]]");
    }
    for step in &steps {
        print::line("");
        show_step(step);
    }
    if !outgoing.is_empty() {
        print::line("\n── letters");
        print::rows(&outgoing, &["id", "kind", "recipient", "subject", "status", "sent_at", "error"], false);
    }
    Ok(())
}

fn show_step(step: &Step) {
    match step {
        Step::Opened(opened) => {
            print::line("── prompt");
            for piece in &opened.contributions {
                print::line(&format!("   {:24} {:8} {:>7} bytes  ~{} tokens", piece.resolver, piece.place, piece.bytes, piece.tokens));
            }
            print::line(&format!("── system\n{}", print::visible(&opened.system)));
            for message in &opened.messages {
                show_message(message);
            }
        }
        Step::ModelRequested { purpose, request_hash } => {
            let short: String = request_hash.chars().take(12).collect();
            print::line(&format!("── model asked ({}, request {short})", purpose_word(*purpose)));
        }
        Step::ModelResponded { reply, cost, attempts, .. } => {
            let usage = reply.usage;
            print::line(&format!(
                "── model answered: {} in, {} out, cost {cost} millionths, {attempts} attempt(s), stop {}",
                usage.input_total(),
                usage.output,
                print::visible(reply.raw_stop.as_deref().unwrap_or("-"))
            ));
            show_message(&reply.message);
        }
        Step::ModelDiscarded { reason, reply, .. } => {
            print::line(&format!("── answer discarded: {reason}"));
            show_message(&reply.message);
        }
        Step::ModelFailed { error, message, .. } => print::line(&format!("── model failed: {error}: {}", print::visible(message))),
        Step::Noted { text } => print::line(&format!("── note to the model\n{text}")),
        Step::ToolIntended { round, position, call, repaired, .. } => {
            print::line(&format!("── round {round}.{position} calls {} {}", call.name, print::visible(&call.arguments)));
            if let Some(repaired) = repaired {
                print::line(&format!("   repaired: {repaired}"));
            }
        }
        Step::ToolFinished { round, position, call, result, status } => {
            print::line(&format!("── round {round}.{position} {} {}\n{}", call.name, status.as_str(), print::visible(&result.text)));
        }
        Step::Escalated { reason } => print::line(&format!("── escalated: {}", print::visible(reason))),
        Step::ReplyReady { body, outcome, source } => {
            print::line(&format!("── reply ({outcome}, {})\n{}", source_words(*source), print::visible(body)));
        }
        Step::Closed(close) => print::line(&format!("── closed: {} {}", close.status, close.outcome)),
    }
}

fn purpose_word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Round => "round",
        Purpose::Closing => "closing call",
    }
}

fn source_words(source: ReplySource) -> &'static str {
    match source {
        ReplySource::Final => "the model's last text",
        ReplySource::Closing => "the closing call's text",
        ReplySource::Earlier => "an earlier text without tool calls",
        ReplySource::Fallback => "the fallback reply",
    }
}

fn show_message(message: &Message) {
    match message {
        Message::User { .. } => print::line(&format!("── user\n{}", print::visible(&message.text()))),
        Message::Results { results } => {
            for result in results {
                print::line(&format!("── result of {}\n{}", print::visible(&result.call.0), print::visible(&result.text)));
            }
        }
        Message::Assistant { blocks, .. } => {
            for block in blocks {
                match block {
                    Block::Text { text, .. } => print::line(&format!("   {}", print::visible(text))),
                    Block::Reasoning { text, .. } => print::line(&format!("   (reasoning) {}", print::visible(text))),
                    Block::Call(call) => {
                        print::line(&format!("   → {} {}", print::visible(call.name.as_str()), print::visible(&call.arguments)))
                    }
                    Block::Opaque { .. } => print::line("   (opaque block)"),
                }
            }
        }
    }
}
