//! `read_thread`: the earlier letters and answers of the run's own thread (security S11).

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::spec;
use crate::chat::untrusted;
use crate::config::Effect;
use crate::run::RunContext;
use crate::store::{PastTurn, Store};
use crate::tools::{Invocation, Tool, ToolError, ToolOutput, ToolSpec};

/// Earlier letters at most, the newest ones.
const LETTERS: usize = 50;
/// Bytes of one letter's text.
const LETTER_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct ReadThread {
    spec: ToolSpec,
}

impl ReadThread {
    pub(super) fn new() -> ReadThread {
        let input = json!({ "type": "object", "properties": {} });
        let spec = spec("read_thread", "Shows the earlier letters of this conversation and what was answered.", input, Effect::Pure);
        ReadThread { spec }
    }

    async fn read(context: &RunContext, store: &Store) -> Result<ToolOutput, ToolError> {
        let turns = match (context.thread, context.letter) {
            (Some(thread), Some(letter)) => store.past_turns(thread, letter, LETTERS).await.map_err(|error| {
                tracing::error!(run = context.run.as_str(), %error, "a thread could not be read");
                ToolError::Failed("The conversation could not be read.".to_owned())
            })?,
            _ => Vec::new(),
        };
        if turns.is_empty() {
            return Ok(ToolOutput::Text("There is no earlier letter in this conversation.".to_owned()));
        }
        Ok(ToolOutput::Text(turns.iter().map(turn_text).collect::<Vec<_>>().join("\n\n")))
    }
}

fn turn_text(turn: &PastTurn) -> String {
    let letter = untrusted::wrap(&turn.nonce, "email", &turn.inbound.readable(turn.received_at, LETTER_BYTES));
    match &turn.reply {
        Some(reply) => format!("{letter}\nYou answered:\n{}", untrusted::wrap(&turn.nonce, "your answer", reply)),
        None => format!("{letter}\n(It was not answered.)"),
    }
}

impl Tool for ReadThread {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, _arguments: Value, invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        ReadThread::read(invocation.context, invocation.store).boxed()
    }
}
