//! A response of the openai wire, event by event (harness S, U2, W2-W5).

use serde_json::{Map, Value};

use super::calls::Calls;
use super::think;
use crate::chat::{CallId, StopReason, ToolCall, ToolName, Usage};
use crate::config::Quirks;
use crate::inference::call_ids::{CallIds, plain_id};
use crate::inference::http::{failure, in_band};
use crate::inference::{ErrorKind, ModelError, ModelEvent, Phase, Request};

/// The reader of one response.
#[derive(Debug)]
pub(in crate::inference) struct OpenaiStream {
    quirks: Quirks,
    ids: CallIds,
    started: bool,
    finished: bool,
    calls: Calls,
    has_text: bool,
    /// The whole text, where think tags must be looked for once it is complete.
    held_text: String,
    refused: bool,
    finish_reason: Option<String>,
    native_reason: Option<String>,
    usage: Option<Usage>,
}

type Events<'a> = &'a mut Vec<ModelEvent>;

impl OpenaiStream {
    /// A reader for the answer to `request`.
    pub(in crate::inference) fn new(quirks: Quirks, request: &Request) -> OpenaiStream {
        OpenaiStream {
            quirks,
            ids: CallIds::of(&request.messages),
            started: false,
            finished: false,
            calls: Calls::default(),
            has_text: false,
            held_text: String::new(),
            refused: false,
            finish_reason: None,
            native_reason: None,
            usage: None,
        }
    }

    /// Reads one server-sent event; says whether it carried meaning.
    pub(in crate::inference) fn event(&mut self, name: &str, data: &str, events: Events<'_>) -> Result<bool, ModelError> {
        let data = data.trim();
        if self.finished || data.is_empty() {
            return Ok(false);
        }
        if data == "[DONE]" {
            self.done(events)?;
            return Ok(true);
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|error| failure(ErrorKind::Protocol, Phase::MidStream, &format!("a chunk is no JSON: {error}")))?;
        if name == "error" {
            return Err(in_band(&chunk, Phase::MidStream));
        }
        self.chunk(&chunk, "delta", events)
    }

    /// Reads a whole completion, in the place of a stream (harness W3).
    pub(in crate::inference) fn whole(&mut self, body: &str, events: Events<'_>) -> Result<(), ModelError> {
        let protocol = |message: &str| failure(ErrorKind::Protocol, Phase::BeforeFirstToken, message);
        let completion: Value = serde_json::from_str(body).map_err(|error| protocol(&format!("the answer is no JSON: {error}")))?;
        if completion.get("choices").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            return Err(in_band(&completion, Phase::BeforeFirstToken));
        }
        self.chunk(&completion, "message", events)?;
        self.end(events)
    }

    /// The input is over: fine only when the model had said that it was done (harness S3).
    pub(in crate::inference) fn end(&mut self, events: Events<'_>) -> Result<(), ModelError> {
        if self.finished {
            return Ok(());
        }
        if self.finish_reason.is_none() {
            return Err(failure(ErrorKind::Network, Phase::MidStream, "the stream ended before the answer did"));
        }
        self.finish(events)
    }

    fn done(&mut self, events: Events<'_>) -> Result<(), ModelError> {
        let may_lack_reason = self.quirks.finish_reason_optional && self.calls.is_empty() && self.has_text;
        if self.finish_reason.is_none() && !may_lack_reason {
            return Err(failure(ErrorKind::Network, Phase::MidStream, "the stream ended without a finish reason"));
        }
        self.finish(events)
    }

    fn chunk(&mut self, chunk: &Value, key: &str, events: Events<'_>) -> Result<bool, ModelError> {
        let choice = first_choice(chunk);
        for error in [chunk.get("error"), choice.and_then(|choice| choice.get("error"))].into_iter().flatten() {
            if !error.is_null() {
                let phase = if self.started { Phase::MidStream } else { Phase::BeforeFirstToken };
                return Err(in_band(error, phase));
            }
        }
        if !self.started {
            self.started = true;
            let response_id = chunk.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
            events.push(ModelEvent::Started { response_id, headers: Map::new() });
        }
        let mut said = false;
        if let Some(choice) = choice {
            if let Some(delta) = choice.get(key) {
                said = self.delta(delta, events);
            }
            said |= self.reasons(choice);
        }
        self.usage(chunk, choice, events);
        Ok(said)
    }

    /// One delta, or one whole message.
    fn delta(&mut self, delta: &Value, events: Events<'_>) -> bool {
        let mut said = false;
        for text in reasoning_texts(delta) {
            said = true;
            events.push(ModelEvent::Reasoning { text, opaque: None });
        }
        if let Some(content) = delta.get("content") {
            said |= self.content(content, events);
        }
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            said = true;
            self.refused = true;
            self.text(refusal, events);
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let legacy = delta.get("function_call").filter(|call| call.is_object());
        for fragments in [calls, legacy.map_or(&[][..], std::slice::from_ref)] {
            said |= !fragments.is_empty();
            self.calls.take(fragments, self.quirks.fragmented_names);
        }
        said
    }

    /// Content is a text, or a list of parts.
    fn content(&mut self, content: &Value, events: Events<'_>) -> bool {
        if let Some(text) = content.as_str() {
            return self.text(text, events);
        }
        let mut said = false;
        for part in content.as_array().into_iter().flatten() {
            if let Some(text) = part.get("text").and_then(Value::as_str) {
                said |= self.text(text, events);
            } else if let Some(thinking) = part.get("thinking") {
                let text = joined_text(thinking);
                said |= !text.is_empty();
                events.push(ModelEvent::Reasoning { text, opaque: None });
            }
        }
        said
    }

    fn text(&mut self, text: &str, events: Events<'_>) -> bool {
        if text.is_empty() {
            return false;
        }
        self.has_text = true;
        if self.quirks.think_tags {
            self.held_text.push_str(text);
        } else {
            events.push(ModelEvent::Text(text.to_owned()));
        }
        true
    }

    /// The first reason stays: it may be sent twice (harness S9), and an empty one is none (harness S4).
    fn reasons(&mut self, choice: &Value) -> bool {
        let reason = |key: &str| choice.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let (finish, native) = (reason("finish_reason"), reason("native_finish_reason"));
        let said = finish.is_some();
        self.finish_reason = self.finish_reason.take().or(finish);
        self.native_reason = self.native_reason.take().or(native);
        said
    }

    fn usage(&mut self, chunk: &Value, choice: Option<&Value>, events: Events<'_>) {
        let places = [chunk.get("usage"), choice.and_then(|choice| choice.get("usage")), chunk.pointer("/x_groq/usage")];
        let Some(usage) = places.into_iter().flatten().find_map(read_usage) else { return };
        if self.usage != Some(usage) {
            self.usage = Some(usage);
            events.push(ModelEvent::Usage(usage));
        }
    }

    fn finish(&mut self, events: Events<'_>) -> Result<(), ModelError> {
        let stop = self.stop()?;
        self.finished = true;
        if self.quirks.think_tags {
            let (reasoning, answer) = think::split(&self.held_text);
            if !reasoning.is_empty() {
                events.push(ModelEvent::Reasoning { text: reasoning.to_owned(), opaque: None });
            }
            if !answer.is_empty() {
                events.push(ModelEvent::Text(answer.to_owned()));
            }
        }
        for slot in std::mem::take(&mut self.calls).into_slots() {
            let kimi = self.quirks.kimi_call_ids;
            let made = |number| if kimi { format!("functions.{}:{number}", slot.name) } else { plain_id(number) };
            let id = CallId(self.ids.settle(&slot.id, made));
            events.push(ModelEvent::Call(ToolCall { id, name: ToolName(slot.name.clone()), arguments: slot.arguments.clone() }));
        }
        events.push(ModelEvent::Finished { stop, raw_stop: self.raw_stop() });
        Ok(())
    }

    /// Both words, since the gateway's may hide the vendor's (harness S7).
    fn raw_stop(&self) -> Option<String> {
        match (&self.finish_reason, &self.native_reason) {
            (Some(reason), Some(native)) if reason != native => Some(format!("{reason} ({native})")),
            (Some(reason), _) => Some(reason.clone()),
            (None, native) => native.clone(),
        }
    }

    fn stop(&self) -> Result<StopReason, ModelError> {
        if self.refused {
            return Ok(StopReason::Refusal);
        }
        let native = self.native_reason.as_deref().map(|word| word.to_lowercase());
        // A cut disguised by the gateway (harness S8).
        let disguised = native.as_deref().and_then(|word| known_stop(word).ok());
        if let Some(stop @ (StopReason::MaxTokens | StopReason::ContextFull)) = disguised {
            return Ok(stop);
        }
        let Some(word) = &self.finish_reason else { return Ok(StopReason::EndTurn) };
        known_stop(&word.to_lowercase()).map_err(|kind| failure(kind, Phase::MidStream, &format!("the model stopped with {word}")))
    }
}

/// A vendor's word, normalized; the error's kind where it tells of one (harness, part 2).
fn known_stop(word: &str) -> Result<StopReason, ErrorKind> {
    Ok(match word {
        "stop" | "eos" | "end_turn" => StopReason::EndTurn,
        "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
        "length" | "max_tokens" | "model_length" | "incomplete" | "max_output_tokens" => StopReason::MaxTokens,
        "model_context_window_exceeded" | "max_model_len" => StopReason::ContextFull,
        "stop_sequence" => StopReason::StopSequence,
        "content_filter" | "sensitive" | "safety" | "refusal" => StopReason::Refusal,
        "network_error" => return Err(ErrorKind::Network),
        "error" | "insufficient_system_resource" => return Err(ErrorKind::Server),
        _ => StopReason::Unknown,
    })
}

fn first_choice(chunk: &Value) -> Option<&Value> {
    let choices = chunk.get("choices")?.as_array()?;
    choices.iter().find(|choice| choice.get("index").and_then(Value::as_i64).unwrap_or(0) == 0)
}

/// Reasoning stands under several names; the same text under two of them counts once (harness W5).
fn reasoning_texts(delta: &Value) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for key in ["reasoning_content", "reasoning", "thinking"] {
        let text = delta.get(key).map(joined_text).unwrap_or_default();
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() {
        let details = delta.get("reasoning_details").map(joined_text).unwrap_or_default();
        texts.extend(Some(details).filter(|text| !text.is_empty()));
    }
    texts
}

/// The text of a string, of an object's `text`, `summary` or `content`, or of a list of such.
fn joined_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(joined_text).collect(),
        Value::Object(fields) => {
            ["text", "summary", "content"].iter().find_map(|key| fields.get(*key)?.as_str()).unwrap_or_default().to_owned()
        }
        _ => String::new(),
    }
}

/// Here the prompt's tokens include the cached ones (harness U2).
fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let prompt = count("/prompt_tokens");
    let output = count("/completion_tokens");
    if prompt.is_none() && output.is_none() {
        return None;
    }
    let places = ["/prompt_tokens_details/cached_tokens", "/cached_tokens", "/prompt_cache_hit_tokens"];
    let cache_read = places.into_iter().filter_map(count).max().unwrap_or(0);
    let cache_write = count("/prompt_tokens_details/cache_write_tokens").unwrap_or(0);
    Some(Usage {
        input: prompt.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
        cache_read,
        cache_write,
        output: output.unwrap_or(0),
        reasoning: count("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
        estimated: false,
    })
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
