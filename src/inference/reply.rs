//! The one fold of a stream's events into a whole reply, and what the end of it means (harness, part 2).

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{ModelEvent, Request};
use crate::chat::{Block, Message, Origin, Reply, Source, StopReason, Usage};

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    blocks: Vec<Block>,
    usage: Option<Usage>,
    response_id: Option<String>,
    headers: Map<String, Value>,
    end: Option<(StopReason, Option<String>)>,
}

impl Assembly {
    /// Takes one event. A second `Started` begins anew: what came before is dropped (harness W8b).
    pub(super) fn take(&mut self, event: ModelEvent) {
        match event {
            ModelEvent::Started { response_id, headers } => {
                *self = Assembly { response_id, headers, usage: self.usage, ..Assembly::default() };
            }
            ModelEvent::Text(text) => self.text(text),
            ModelEvent::Reasoning { text, opaque } => self.reasoning(text, opaque),
            ModelEvent::Call(call) => self.blocks.push(Block::Call(call)),
            ModelEvent::Opaque(json) => self.blocks.push(Block::Opaque { json }),
            ModelEvent::Usage(usage) => self.usage = Some(usage),
            ModelEvent::Heartbeat => {}
            ModelEvent::Finished { stop, raw_stop } => self.end = Some((stop, raw_stop)),
        }
    }

    /// Whether the end was seen.
    pub(super) fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the response began at all: from then on it is billed.
    pub(super) fn has_begun(&self) -> bool {
        !self.blocks.is_empty() || self.usage.is_some()
    }

    /// Request ids and rate limits of the response.
    pub(super) fn headers(&self) -> &Map<String, Value> {
        &self.headers
    }

    /// What was used so far; estimated where the vendor has said nothing, or nothing but zeros (harness U3).
    pub(super) fn usage(&self, request: &Request) -> Usage {
        let reported = self.usage.filter(|usage| usage.input_total() > 0 || usage.output > 0);
        reported.unwrap_or_else(|| Usage {
            input: estimate_request(request),
            output: self.blocks.iter().map(estimate_block).sum(),
            estimated: true,
            ..Usage::default()
        })
    }

    /// The whole reply to `request`.
    pub(super) fn finish(self, request: &Request, origin: &Origin) -> Reply {
        let usage = self.usage(request);
        let (said, raw_stop) = self.end.unwrap_or((StopReason::Unknown, None));
        let stop = decide(said, &self.blocks, &usage, request.max_output);
        let message = Message::Assistant { blocks: self.blocks, origin: origin.clone() };
        Reply { message, stop, raw_stop, usage, response_id: self.response_id }
    }

    fn text(&mut self, more: String) {
        if let Some(Block::Text { text, .. }) = self.blocks.last_mut() {
            text.push_str(&more);
        } else if !more.is_empty() {
            self.blocks.push(Block::Text { text: more, source: Source::Model });
        }
    }

    /// Reasoning without its opaque part is still open; the opaque part closes the block.
    fn reasoning(&mut self, more: String, closing: Option<Value>) {
        if let Some(Block::Reasoning { text, opaque: opaque @ None }) = self.blocks.last_mut() {
            text.push_str(&more);
            *opaque = closing;
        } else {
            self.blocks.push(Block::Reasoning { text: more, opaque: closing });
        }
    }
}

/// What the end means, given what came (harness S1, S2, S8). A cut that the vendor disguised is found by its evidence.
fn decide(said: StopReason, blocks: &[Block], usage: &Usage, max_output: u32) -> StopReason {
    match said {
        StopReason::MaxTokens | StopReason::ContextFull | StopReason::PauseTurn | StopReason::Refusal => said,
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence | StopReason::Unknown => {
            let has_calls = blocks.iter().any(|block| matches!(block, Block::Call(_)));
            if is_cut(blocks, usage, max_output) {
                StopReason::MaxTokens
            } else if has_calls {
                StopReason::ToolUse
            } else if said == StopReason::ToolUse {
                StopReason::EndTurn
            } else {
                said
            }
        }
    }
}

fn is_cut(blocks: &[Block], usage: &Usage, max_output: u32) -> bool {
    let max = u64::from(max_output);
    if usage.estimated || max == 0 {
        return false;
    }
    let nearly_full = usage.output.saturating_mul(100) >= max.saturating_mul(95);
    usage.output >= max || (nearly_full && last_call_is_unterminated(blocks))
}

fn last_call_is_unterminated(blocks: &[Block]) -> bool {
    let last = blocks.iter().rev().find_map(|block| if let Block::Call(call) = block { Some(call) } else { None });
    last.is_some_and(|call| {
        !call.arguments.trim().is_empty() && serde_json::from_str::<IgnoredAny>(&call.arguments).is_err_and(|error| error.is_eof())
    })
}

/// Tokens of a text, roughly: four characters each. Deterministic, never zero for a text.
pub(super) fn estimate_tokens(text: &str) -> u64 {
    u64::try_from(text.chars().count().div_ceil(4)).unwrap_or(u64::MAX)
}

fn estimate_block(block: &Block) -> u64 {
    match block {
        Block::Text { text, .. } => estimate_tokens(text),
        Block::Reasoning { text, opaque } => {
            estimate_tokens(text).saturating_add(opaque.as_ref().map_or(0, |json| estimate_tokens(&json.to_string())))
        }
        Block::Call(call) => estimate_tokens(call.name.as_str()).saturating_add(estimate_tokens(&call.arguments)),
        Block::Opaque { json } => estimate_tokens(&json.to_string()),
    }
}

fn estimate_request(request: &Request) -> u64 {
    let messages: u64 = request
        .messages
        .iter()
        .map(|message| match message {
            Message::User { blocks } | Message::Assistant { blocks, .. } => blocks.iter().map(estimate_block).sum(),
            Message::Results { results } => results.iter().map(|result| estimate_tokens(&result.text)).sum::<u64>(),
        })
        .sum();
    let tools: u64 = request.tools.iter().map(|tool| estimate_tokens(&tool.to_string())).sum();
    messages.saturating_add(tools).saturating_add(estimate_tokens(&request.system))
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
