//! A request in the words of the openai wire. Keys stand in a fixed order: two builds give the same bytes.

use serde_json::{Map, Value, json};

use crate::chat::{Block, Message, Origin, ToolResult};
use crate::config::{ModelSettings, Quirks};
use crate::inference::call_ids::{IdRule, WireIds, is_same_side};
use crate::inference::{Request, ToolChoice};

/// OpenAI takes ids of at most 40 characters.
const LONGEST_ID: usize = 40;

/// The body of the request.
pub(in crate::inference) fn body(settings: &ModelSettings, origin: &Origin, request: &Request) -> Value {
    let quirks = &settings.quirks;
    let mut body = Map::new();
    body.insert("model".into(), settings.model.clone().into());
    body.insert("messages".into(), messages(quirks, origin, request).into());
    let limit = if quirks.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    body.insert(limit.into(), request.max_output.into());
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
        if request.tool_choice == ToolChoice::None && quirks.tool_choice_none {
            body.insert("tool_choice".into(), "none".into());
        }
    }
    if let Some(temperature) = settings.temperature.filter(|_| !quirks.fixed_sampling) {
        body.insert("temperature".into(), temperature.into());
    }
    if let Some(level @ ("low" | "medium" | "high")) = settings.reasoning.as_deref() {
        body.insert("reasoning_effort".into(), level.into());
    }
    body.insert("stream".into(), true.into());
    if quirks.stream_usage {
        body.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    Value::Object(body)
}

fn tool(definition: &Value) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": definition.get("name"),
            "description": definition.get("description"),
            "parameters": definition.get("input"),
        },
    })
}

fn messages(quirks: &Quirks, origin: &Origin, request: &Request) -> Vec<Value> {
    let rule = if quirks.kimi_call_ids { IdRule::Kimi } else { IdRule::Plain { longest: LONGEST_ID } };
    let mut ids = WireIds::new(&request.messages, origin, rule);
    let mut out = Vec::new();
    if !request.system.is_empty() {
        let role = if quirks.developer_role { "developer" } else { "system" };
        out.push(json!({ "role": role, "content": request.system }));
    }
    for message in &request.messages {
        match message {
            Message::User { blocks } => {
                let texts: Vec<&str> = blocks.iter().filter_map(Block::as_text).collect();
                out.push(json!({ "role": "user", "content": texts.join("\n\n") }));
            }
            Message::Assistant { blocks, origin: author } => out.extend(assistant(quirks, origin, blocks, author, &mut ids)),
            Message::Results { results } => out.extend(results.iter().map(|result| tool_message(result, &ids))),
        }
    }
    out
}

/// `None` for an answer without text and calls: an empty message is refused by some servers.
fn assistant(quirks: &Quirks, target: &Origin, blocks: &[Block], author: &Origin, ids: &mut WireIds) -> Option<Value> {
    let text: String = blocks.iter().filter_map(Block::as_text).collect();
    let calls: Vec<_> = blocks.iter().filter_map(|block| if let Block::Call(call) = block { Some(call) } else { None }).collect();
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let content = match text.is_empty() {
        true if !quirks.empty_content => Value::Null,
        _ => Value::String(text),
    };
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), content);
    if quirks.replay_reasoning && !calls.is_empty() {
        message.insert("reasoning_content".into(), reasoning(target, blocks, author).into());
    }
    if !calls.is_empty() {
        ids.enter(&calls, author);
        let calls = calls.iter().map(|call| {
            // Exactly as received, so that caches hold; only nothing at all is no JSON for any server.
            let arguments = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.as_str() };
            let function = json!({ "name": call.name.as_str(), "arguments": arguments });
            json!({ "id": ids.id(&call.id), "type": "function", "function": function })
        });
        message.insert("tool_calls".into(), calls.collect());
    }
    Some(Value::Object(message))
}

/// Required even when empty (harness W6); another model's reasoning does not go over (harness N3).
fn reasoning(target: &Origin, blocks: &[Block], author: &Origin) -> String {
    if !is_same_side(author, target) {
        return String::new();
    }
    blocks.iter().filter_map(|block| if let Block::Reasoning { text, .. } = block { Some(text.as_str()) } else { None }).collect()
}

fn tool_message(result: &ToolResult, ids: &WireIds) -> Value {
    let marked = result.is_error && !result.text.starts_with("ERROR:");
    let content = if marked { format!("ERROR: {}", result.text) } else { result.text.clone() };
    json!({ "role": "tool", "tool_call_id": ids.id(&result.call), "content": content })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
