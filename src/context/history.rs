//! `history`: the thread so far, as the model would have seen it: each letter, what was called and what came
//! of it, the answer that was mailed.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::chain::message_bytes;
use super::opening::letter_text;
use super::{Piece, Resolver};
use crate::chat::{Block, Message, Origin, Source, ToolCall, ToolResult, untrusted};
use crate::mail::Address;
use crate::run::RunContext;
use crate::store::{PastTurn, Step, Store};

/// Earlier letters at most, the newest ones.
const TURNS: usize = 20;
/// Bytes of all of it; whole turns are left out, the oldest first (harness C3).
const HISTORY: usize = 96 * 1024;
/// Bytes of one letter's text, and of one result of an earlier run.
const LETTER: usize = 16 * 1024;
const RESULT: usize = 4 * 1024;

/// The earlier turns of the run's own thread.
#[derive(Debug)]
pub(super) struct History {
    pub(super) store: Store,
}

impl Resolver for History {
    fn name(&self) -> &'static str {
        "history"
    }

    fn resolve<'a>(&'a self, context: &'a RunContext) -> BoxFuture<'a, anyhow::Result<Option<Piece>>> {
        async move {
            let (Some(thread), Some(letter)) = (context.thread, context.letter) else { return Ok(None) };
            let turns = self.store.past_turns(thread, letter, TURNS).await?;
            let messages = newest_within(&turns, context.party.address.as_ref(), HISTORY);
            Ok((!messages.is_empty()).then_some(Piece::History(messages)))
        }
        .boxed()
    }
}

/// The newest turns that fit, oldest first. A turn that does not fit goes without its tool use before it,
/// and everything older, is left out.
fn newest_within(turns: &[PastTurn], writer: Option<&Address>, bytes: usize) -> Vec<Message> {
    let mut left = bytes;
    let mut kept = Vec::new();
    for turn in turns.iter().rev() {
        let fits = |messages: &Vec<Message>| messages.iter().map(message_bytes).sum::<usize>() <= left;
        let Some(messages) = [true, false].into_iter().map(|with_tools| turn_messages(turn, writer, with_tools)).find(fits) else {
            break;
        };
        left -= messages.iter().map(message_bytes).sum::<usize>();
        kept.push(messages);
    }
    kept.into_iter().rev().flatten().collect()
}

/// What another participant wrote earlier is a third party's text to whoever writes now (security, construction 5).
fn turn_messages(turn: &PastTurn, writer: Option<&Address>, with_tools: bool) -> Vec<Message> {
    let letter = letter_text(&turn.inbound, &turn.nonce, turn.received_at, LETTER);
    let source = if writer == Some(&turn.inbound.from.address) { Source::Customer } else { Source::ThirdParty };
    let mut messages = vec![Message::user(letter, source)];
    if with_tools {
        messages.extend(tool_use(&turn.steps, &turn.nonce));
    }
    if let Some(reply) = &turn.reply {
        let blocks = vec![Block::Text { text: reply.clone(), source: Source::Model }];
        messages.push(Message::Assistant { blocks, origin: last_origin(&turn.steps) });
    }
    messages
}

/// Each response that called tools, followed by the results of its calls: exactly one each, in call order
/// (harness L8). Calls without a result are left out, and so is everything else of the run.
fn tool_use(steps: &[Step], nonce: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut steps = steps.iter().peekable();
    while let Some(step) = steps.next() {
        let Step::ModelResponded { reply, .. } = step else { continue };
        let mut finished: Vec<(&ToolCall, &ToolResult)> = Vec::new();
        while let Some(step) = steps.next_if(|step| !matches!(step, Step::ModelResponded { .. })) {
            if let Step::ToolFinished { call, result, .. } = step {
                finished.push((call, result));
            }
        }
        messages.extend(paired(&reply.message, finished, nonce).into_iter().flatten());
    }
    messages
}

/// The response with those of its calls that have a result, under their canonical names (harness R2), and
/// these results.
fn paired(response: &Message, mut finished: Vec<(&ToolCall, &ToolResult)>, nonce: &str) -> Option<[Message; 2]> {
    let Message::Assistant { blocks, origin } = response else { return None };
    let mut kept = Vec::new();
    let mut results = Vec::new();
    for block in blocks {
        let Block::Call(call) = block else {
            kept.push(block.clone());
            continue;
        };
        let Some(at) = finished.iter().position(|(_, result)| result.call == call.id) else { continue };
        let (ran, result) = finished.remove(at);
        kept.push(Block::Call(ToolCall { id: call.id.clone(), name: ran.name.clone(), arguments: ran.arguments.clone() }));
        let text = untrusted::wrap(nonce, &format!("tool {}", ran.name), &untrusted::shortened(&result.text, RESULT));
        results.push(ToolResult { text, ..result.clone() });
    }
    (!results.is_empty()).then(|| [Message::Assistant { blocks: kept, origin: origin.clone() }, Message::Results { results }])
}

/// Who answered last in the run; a text that no model wrote has no origin.
fn last_origin(steps: &[Step]) -> Origin {
    let origins = steps.iter().rev().filter_map(|step| match step {
        Step::ModelResponded { reply, .. } => Some(&reply.message),
        _ => None,
    });
    origins
        .filter_map(|message| if let Message::Assistant { origin, .. } = message { Some(origin.clone()) } else { None })
        .next()
        .unwrap_or_else(|| Origin { provider: String::new(), wire: String::new(), model: String::new() })
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
