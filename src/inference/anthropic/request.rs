//! A request in the words of the anthropic wire. Keys stand in a fixed order: two builds give the same bytes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::chat::{Block, Message, Origin, ToolCall, ToolResult};
use crate::config::ModelSettings;
use crate::inference::call_ids::{IdRule, WireIds, is_same_side};
use crate::inference::{Request, ToolChoice};

/// Characters of an id.
const LONGEST_ID: usize = 64;
/// The smallest budget of thinking that the wire takes.
const LEAST_THINKING: u32 = 1024;

/// The body of the request.
pub(in crate::inference) fn body(settings: &ModelSettings, origin: &Origin, request: &Request) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), settings.model.clone().into());
    body.insert("max_tokens".into(), request.max_output.into());
    if !request.system.trim().is_empty() {
        body.insert("system".into(), json!([{ "type": "text", "text": request.system, "cache_control": { "type": "ephemeral" } }]));
    }
    let tools = tools(request);
    if !tools.is_empty() {
        // Without definitions of its own, history alone needs them: nothing may then be called.
        let closed = request.tool_choice == ToolChoice::None || request.tools.is_empty();
        body.insert("tools".into(), tools.into());
        if closed && settings.quirks.tool_choice_none {
            body.insert("tool_choice".into(), json!({ "type": "none" }));
        }
    }
    body.insert("messages".into(), messages(origin, request).into());
    if let Some(budget) = thinking_budget(settings, origin, request) {
        body.insert("thinking".into(), json!({ "type": "enabled", "budget_tokens": budget }));
    } else if let Some(temperature) = settings.temperature.filter(|_| !settings.quirks.fixed_sampling) {
        body.insert("temperature".into(), temperature.into());
    }
    body.insert("stream".into(), true.into());
    Value::Object(body)
}

/// The definitions, the last one marked for the cache. `tools` must be there whenever history has tool blocks.
fn tools(request: &Request) -> Vec<Value> {
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.get("name"), "description": tool.get("description"), "input_schema": tool.get("input") }))
        .collect();
    if tools.is_empty() {
        let names: BTreeSet<&str> = request.messages.iter().flat_map(Message::calls).map(|call| call.name.as_str()).collect();
        let gone = |name: &&str| json!({ "name": name, "description": "No longer available.", "input_schema": { "type": "object" } });
        tools.extend(names.iter().map(gone));
    }
    if let Some(last) = tools.last_mut() {
        mark_for_cache(last);
    }
    tools
}

fn mark_for_cache(block: &mut Value) {
    if let Some(fields) = block.as_object_mut() {
        fields.insert("cache_control".into(), json!({ "type": "ephemeral" }));
    }
}

/// How much to think. Inside a round of tools the wire demands the thinking that led to the calls: where it is
/// missing, as after a switch of models, thinking is off (harness W6).
fn thinking_budget(settings: &ModelSettings, origin: &Origin, request: &Request) -> Option<u32> {
    let wanted = match settings.reasoning.as_deref()? {
        "low" => 2048,
        "medium" => 8192,
        "high" => 16384,
        number => number.parse().ok()?,
    };
    let budget = wanted.max(LEAST_THINKING).min(request.max_output / 2);
    let since_user = request.messages.rsplit(|message| matches!(message, Message::User { .. })).next().unwrap_or_default();
    let unthought = since_user.iter().any(|message| match message {
        Message::Assistant { blocks, origin: author } => !is_same_side(author, origin) || !blocks.iter().any(is_signed_thought),
        Message::User { .. } | Message::Results { .. } => false,
    });
    (budget >= LEAST_THINKING && !unthought).then_some(budget)
}

fn is_signed_thought(block: &Block) -> bool {
    match block {
        Block::Reasoning { opaque, .. } => opaque.is_some(),
        Block::Opaque { json } => json.get("type").and_then(Value::as_str) == Some("redacted_thinking"),
        Block::Text { .. } | Block::Call(_) => false,
    }
}

/// Messages of strictly alternating roles: neighbours of one role are merged, empty ones left out.
fn messages(origin: &Origin, request: &Request) -> Vec<Value> {
    let mut ids = WireIds::new(&request.messages, origin, IdRule::Plain { longest: LONGEST_ID });
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in &request.messages {
        let (role, blocks) = match message {
            Message::User { blocks } => ("user", blocks.iter().filter_map(Block::as_text).filter_map(text_block).collect()),
            Message::Results { results } => ("user", results.iter().map(|result| result_block(result, &ids)).collect()),
            Message::Assistant { blocks, origin: author } => {
                let calls: Vec<&ToolCall> = message.calls();
                ids.enter(&calls, author);
                let own = is_same_side(author, origin);
                ("assistant", blocks.iter().filter_map(|block| assistant_block(block, own, &ids)).collect::<Vec<_>>())
            }
        };
        if blocks.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some((last, merged)) if *last == role => merged.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    if let Some((role, blocks)) = turns.last_mut() {
        if *role == "assistant" {
            trim_last_text(blocks);
        }
        if let Some(last) = blocks.last_mut().filter(|block| !is_thinking(block)) {
            mark_for_cache(last);
        }
    }
    turns.into_iter().map(|(role, blocks)| json!({ "role": role, "content": blocks })).collect()
}

/// Blank text blocks are refused.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

fn result_block(result: &ToolResult, ids: &WireIds) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": ids.id(&result.call), "content": result.text });
    if let Some(fields) = block.as_object_mut().filter(|_| result.is_error) {
        fields.insert("is_error".into(), true.into());
    }
    block
}

/// Thoughts and opaque blocks go back to their own side only, signature and all (harness N3).
fn assistant_block(block: &Block, own: bool, ids: &WireIds) -> Option<Value> {
    match block {
        Block::Text { text, .. } => text_block(text),
        Block::Reasoning { text, opaque: Some(opaque) } if own => {
            let mut thought = Map::from_iter([("type".to_owned(), json!("thinking")), ("thinking".to_owned(), json!(text))]);
            thought.extend(opaque.as_object().cloned().unwrap_or_default());
            Some(Value::Object(thought))
        }
        Block::Opaque { json } if own => Some(json.clone()),
        Block::Reasoning { .. } | Block::Opaque { .. } => None,
        Block::Call(call) => {
            // An object is demanded here; arguments that are none never ran.
            let input = serde_json::from_str(&call.arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
            Some(json!({ "type": "tool_use", "id": ids.id(&call.id), "name": call.name.as_str(), "input": input }))
        }
    }
}

fn is_thinking(block: &Value) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"))
}

/// White space at the end of a last assistant message is refused.
fn trim_last_text(blocks: &mut [Value]) {
    if let Some(Value::String(text)) = blocks.last_mut().and_then(|block| block.get_mut("text")) {
        text.truncate(text.trim_end().len());
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
