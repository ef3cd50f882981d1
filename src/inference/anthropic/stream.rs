//! A response of the anthropic wire, event by event (harness W8, W8b, U1).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::chat::{CallId, StopReason, ToolCall, ToolName, Usage};
use crate::inference::call_ids::{CallIds, plain_id};
use crate::inference::http::{failure, in_band};
use crate::inference::{ErrorKind, ModelError, ModelEvent, Phase, Request};

/// Characters kept of what the vendor says about a stop.
const DETAILS: usize = 200;

/// The reader of one response.
#[derive(Debug)]
pub(in crate::inference) struct AnthropicStream {
    /// The ids of the conversation, without those of this response.
    ids_before: CallIds,
    part: Part,
    usage: Usage,
    finished: bool,
}

/// What came since the last `message_start`.
#[derive(Debug, Default)]
struct Part {
    started: bool,
    response_id: Option<String>,
    ids: CallIds,
    open: BTreeMap<u64, OpenBlock>,
    has_blocks: bool,
    stop_reason: Option<String>,
    stop_details: Option<String>,
}

/// A block whose end has not come.
#[derive(Debug)]
enum OpenBlock {
    Text,
    Thinking {
        signature: String,
    },
    Call {
        id: String,
        name: String,
        input: Value,
        json: String,
    },
    /// Not modelled: goes back as it came.
    Other {
        block: Value,
        json: String,
    },
}

type Events<'a> = &'a mut Vec<ModelEvent>;

impl AnthropicStream {
    /// A reader for the answer to `request`.
    pub(in crate::inference) fn new(request: &Request) -> AnthropicStream {
        let ids_before = CallIds::of(&request.messages);
        let part = Part { ids: ids_before.clone(), ..Part::default() };
        AnthropicStream { ids_before, part, usage: Usage::default(), finished: false }
    }

    /// Reads one server-sent event; says whether it carried meaning.
    pub(in crate::inference) fn event(&mut self, name: &str, data: &str, events: Events<'_>) -> Result<bool, ModelError> {
        let data = data.trim();
        if self.finished || data.is_empty() || data == "[DONE]" {
            return Ok(false);
        }
        let event: Value = serde_json::from_str(data)
            .map_err(|error| failure(ErrorKind::Protocol, Phase::MidStream, &format!("an event is no JSON: {error}")))?;
        let kind = event.get("type").and_then(Value::as_str).unwrap_or(name);
        match kind {
            "message_start" => self.message_start(event.get("message").unwrap_or(&Value::Null), events),
            "content_block_start" => return Ok(self.block_start(index(&event), event.get("content_block"), events)),
            "content_block_delta" => return Ok(self.block_delta(index(&event), event.get("delta"), events)),
            "content_block_stop" => self.block_stop(index(&event), events),
            "message_delta" => {
                self.stop(event.get("delta"));
                self.usage(event.get("usage"), events);
                return Ok(true);
            }
            "message_stop" => {
                self.finish(events);
                return Ok(true);
            }
            "error" => {
                let phase = if self.part.has_blocks { Phase::MidStream } else { Phase::BeforeFirstToken };
                return Err(in_band(&event, phase));
            }
            "ping" => events.push(ModelEvent::Heartbeat),
            unknown => tracing::debug!(event = unknown, "an event of the anthropic wire that is not known"),
        }
        Ok(false)
    }

    /// Reads a whole message, in the place of a stream (harness W3).
    pub(in crate::inference) fn whole(&mut self, body: &str, events: Events<'_>) -> Result<(), ModelError> {
        let message: Value = serde_json::from_str(body)
            .map_err(|error| failure(ErrorKind::Protocol, Phase::BeforeFirstToken, &format!("the answer is no JSON: {error}")))?;
        let Some(blocks) = message.get("content").and_then(Value::as_array) else {
            return Err(in_band(&message, Phase::BeforeFirstToken));
        };
        self.message_start(&message, events);
        for block in blocks {
            self.block_start(0, Some(block), events);
            self.block_stop(0, events);
        }
        self.stop(Some(&message));
        self.finish(events);
        Ok(())
    }

    /// The input is over: fine only when the model had said why it stopped (harness S3).
    pub(in crate::inference) fn end(&mut self, events: Events<'_>) -> Result<(), ModelError> {
        if self.finished {
            return Ok(());
        }
        if self.part.stop_reason.is_none() {
            return Err(failure(ErrorKind::Network, Phase::MidStream, "the stream ended before the answer did"));
        }
        self.finish(events);
        Ok(())
    }

    /// A proxy may send it twice: a mere repetition is ignored, anything else begins anew (harness W8b).
    fn message_start(&mut self, message: &Value, events: Events<'_>) {
        let response_id = message.get("id").and_then(Value::as_str).map(str::to_owned);
        let repeated = self.part.started && !self.part.has_blocks && self.part.response_id == response_id;
        if !repeated {
            self.part = Part { started: true, response_id: response_id.clone(), ids: self.ids_before.clone(), ..Part::default() };
            events.push(ModelEvent::Started { response_id, headers: Map::new() });
        }
        self.usage(message.get("usage"), events);
    }

    fn block_start(&mut self, index: u64, block: Option<&Value>, events: Events<'_>) -> bool {
        let Some(block) = block.filter(|block| block.is_object()) else { return false };
        // A block without its end, whose index comes again.
        self.block_stop(index, events);
        self.part.has_blocks = true;
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (open, said) = match text("type").as_str() {
            "text" => (OpenBlock::Text, push_text(text("text"), events)),
            "thinking" => {
                let said = push_thought(text("thinking"), events);
                (OpenBlock::Thinking { signature: text("signature") }, said)
            }
            "tool_use" => {
                let input = block.get("input").cloned().unwrap_or_default();
                (OpenBlock::Call { id: text("id"), name: text("name"), input, json: String::new() }, true)
            }
            _ => (OpenBlock::Other { block: block.clone(), json: String::new() }, true),
        };
        self.part.open.insert(index, open);
        said
    }

    fn block_delta(&mut self, index: u64, delta: Option<&Value>, events: Events<'_>) -> bool {
        let Some(delta) = delta else { return false };
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        match (text("type"), self.part.open.get_mut(&index)) {
            ("text_delta", _) => {
                self.part.has_blocks = true;
                push_text(text("text").to_owned(), events)
            }
            ("thinking_delta", _) => {
                self.part.has_blocks = true;
                push_thought(text("thinking").to_owned(), events)
            }
            ("signature_delta", Some(OpenBlock::Thinking { signature })) => {
                signature.push_str(text("signature"));
                true
            }
            ("input_json_delta", Some(OpenBlock::Call { json, .. } | OpenBlock::Other { json, .. })) => {
                json.push_str(text("partial_json"));
                true
            }
            (unknown, _) => {
                tracing::debug!(delta = unknown, "a delta of the anthropic wire that is not known");
                false
            }
        }
    }

    fn block_stop(&mut self, index: u64, events: Events<'_>) {
        match self.part.open.remove(&index) {
            None | Some(OpenBlock::Text) => {}
            Some(OpenBlock::Thinking { signature }) if signature.is_empty() => {}
            Some(OpenBlock::Thinking { signature }) => {
                events.push(ModelEvent::Reasoning { text: String::new(), opaque: Some(json!({ "signature": signature })) });
            }
            Some(OpenBlock::Call { id, name, input, json }) => {
                let id = CallId(self.part.ids.settle(&id, plain_id));
                events.push(ModelEvent::Call(ToolCall { id, name: ToolName(name), arguments: arguments(&input, json) }));
            }
            Some(OpenBlock::Other { mut block, json }) => {
                if let (Some(fields), Ok(input)) = (block.as_object_mut(), serde_json::from_str::<Value>(&json)) {
                    fields.insert("input".into(), input);
                }
                events.push(ModelEvent::Opaque(block));
            }
        }
    }

    fn stop(&mut self, delta: Option<&Value>) {
        let Some(delta) = delta else { return };
        if let Some(reason) = delta.get("stop_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.part.stop_reason = Some(reason.to_owned());
        }
        if let Some(details) = delta.get("stop_details").filter(|details| !details.is_null()) {
            self.part.stop_details = Some(details.to_string().chars().take(DETAILS).collect());
        }
    }

    /// The latest snapshot that has a field gives it, larger or smaller; a snapshot of nothing but zeros says
    /// nothing about the input (harness U1).
    fn usage(&mut self, usage: Option<&Value>, events: Events<'_>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let count = |key: &str| usage.get(key).and_then(Value::as_u64);
        let input = [count("input_tokens"), count("cache_read_input_tokens"), count("cache_creation_input_tokens")];
        if input.iter().flatten().any(|tokens| *tokens > 0) {
            let [fresh, read, written] = input;
            self.usage.input = fresh.unwrap_or(self.usage.input);
            self.usage.cache_read = read.unwrap_or(self.usage.cache_read);
            self.usage.cache_write = written.unwrap_or(self.usage.cache_write);
        }
        self.usage.output = count("output_tokens").unwrap_or(self.usage.output);
        events.push(ModelEvent::Usage(self.usage));
    }

    fn finish(&mut self, events: Events<'_>) {
        self.finished = true;
        let left: Vec<u64> = self.part.open.keys().copied().collect();
        for index in left {
            self.block_stop(index, events);
        }
        let reason = self.part.stop_reason.take();
        let stop = reason.as_deref().map_or(StopReason::Unknown, known_stop);
        let raw_stop = match (reason, self.part.stop_details.take()) {
            (Some(reason), Some(details)) => Some(format!("{reason} {details}")),
            (reason, details) => reason.or(details),
        };
        events.push(ModelEvent::Finished { stop, raw_stop });
    }
}

fn known_stop(word: &str) -> StopReason {
    match word {
        "end_turn" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "model_context_window_exceeded" => StopReason::ContextFull,
        "stop_sequence" => StopReason::StopSequence,
        "pause_turn" => StopReason::PauseTurn,
        "refusal" => StopReason::Refusal,
        _ => StopReason::Unknown,
    }
}

/// The pieces as they came; without any, the input that stood in the block's start; without that, nothing.
fn arguments(input: &Value, pieces: String) -> String {
    if !pieces.is_empty() {
        return pieces;
    }
    if input.is_object() { input.to_string() } else { "{}".to_owned() }
}

fn index(event: &Value) -> u64 {
    event.get("index").and_then(Value::as_u64).unwrap_or(0)
}

fn push_text(text: String, events: Events<'_>) -> bool {
    let said = !text.is_empty();
    if said {
        events.push(ModelEvent::Text(text));
    }
    said
}

fn push_thought(text: String, events: Events<'_>) -> bool {
    let said = !text.is_empty();
    if said {
        events.push(ModelEvent::Reasoning { text, opaque: None });
    }
    said
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
