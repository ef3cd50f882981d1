//! What the scripted model's two dialects refuse, and how they stream a reply.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::model_server::{Asked, Said, Wire};

/// Characters of one streamed piece: small, so that every reply comes in several.
const PIECE: usize = 12;

/// Why a real provider would not have answered.
#[derive(Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// In the provider's words.
    pub message: String,
}

impl Refusal {
    /// A request that is wrong in itself.
    pub fn bad(message: &str) -> Refusal {
        Refusal { status: 400, message: message.to_owned() }
    }
}

/// An error's body; both dialects read `error.message`.
pub fn error(message: &str) -> String {
    json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } }).to_string()
}

/// Looks at a request as the dialect's providers do.
pub fn examine(wire: Wire, body: &Value) -> Result<(), Refusal> {
    demand(body["model"].as_str().is_some_and(|model| !model.is_empty()), "model: is required")?;
    demand(body["stream"] == true, "stream: only streaming is served here")?;
    let messages = list(&body["messages"]);
    demand(!messages.is_empty(), "messages: at least one is required")?;
    match wire {
        Wire::Openai => {
            openai_messages(messages)?;
            tools(list(&body["tools"]).iter().map(|tool| &tool["function"]), "parameters")
        }
        Wire::Anthropic => {
            demand(body["max_tokens"].as_u64().is_some_and(|most| most > 0), "max_tokens: is required")?;
            anthropic_messages(messages)?;
            tools(list(&body["tools"]).iter(), "input_schema")
        }
    }
}

fn demand(holds: bool, message: &str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::bad(message)) }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_name(name: &Value) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.as_str().is_some_and(|name| !name.is_empty() && name.len() <= 64 && name.chars().all(good))
}

fn says_something(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn tools<'a>(tools: impl Iterator<Item = &'a Value>, schema: &str) -> Result<(), Refusal> {
    let mut names = BTreeSet::new();
    for tool in tools {
        demand(is_name(&tool["name"]), &format!("tools: {} is no name of a tool", tool["name"]))?;
        demand(names.insert(tool["name"].to_string()), &format!("tools: {} appears twice", tool["name"]))?;
        demand(tool[schema]["type"] == "object", &format!("tools: the schema of {} is not an object", tool["name"]))?;
    }
    Ok(())
}

fn openai_messages(messages: &[Value]) -> Result<(), Refusal> {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        demand(role == "tool" || open.is_empty(), &format!("messages: tool calls without a result: {open:?}"))?;
        match role {
            "system" | "developer" | "user" => {
                let parts = list(&message["content"]);
                let filled = says_something(&message["content"]) || parts.iter().any(|part| says_something(&part["text"]));
                demand(filled, &format!("messages: the content of a {role} message is empty"))?;
            }
            "assistant" => {
                let calls = list(&message["tool_calls"]);
                demand(!calls.is_empty() || says_something(&message["content"]), "messages: an assistant message is empty")?;
                for call in calls {
                    let id = call["id"].as_str().unwrap_or_default().to_owned();
                    demand(!id.is_empty() && seen.insert(id.clone()), &format!("messages: the call id {id:?} is empty or used twice"))?;
                    demand(is_name(&call["function"]["name"]), "messages: a call's name is no name of a tool")?;
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    demand(
                        serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()),
                        "messages: arguments are not JSON",
                    )?;
                    open.insert(id);
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                demand(open.remove(id), &format!("messages: a result for {id:?}, which waits for none"))?;
                demand(message["content"].is_string() || message["content"].is_array(), "messages: a result without content")?;
            }
            other => return Err(Refusal::bad(&format!("messages: no such role: {other}"))),
        }
    }
    demand(open.is_empty(), &format!("messages: tool calls without a result: {open:?}"))?;
    let last = &messages[messages.len() - 1]["role"];
    demand(last == "user" || last == "tool", "messages: the last one is not the user's or a tool's")
}

fn anthropic_messages(messages: &[Value]) -> Result<(), Refusal> {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    demand(messages[0]["role"] == "user", "messages: the first one must be the user's")?;
    demand(messages[messages.len() - 1]["role"] == "user", "messages: the last one must be the user's")?;
    for message in messages {
        let of_user = message["role"] == "user";
        demand(of_user || message["role"] == "assistant", &format!("messages: no such role: {}", message["role"]))?;
        let content = &message["content"];
        demand(says_something(content) || !list(content).is_empty(), "messages: the content is empty")?;
        let mut texts_before = false;
        for block in list(content) {
            match block["type"].as_str().unwrap_or_default() {
                "text" => {
                    demand(says_something(&block["text"]), "messages: text content blocks must be non-empty")?;
                    texts_before = true;
                }
                "tool_use" => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    demand(!of_user, "messages: tool_use belongs to the assistant")?;
                    demand(!id.is_empty() && seen.insert(id.clone()), &format!("messages: the id {id:?} is empty or used twice"))?;
                    demand(is_name(&block["name"]) && block["input"].is_object(), "messages: a tool_use without a good name and input")?;
                    open.insert(id);
                }
                "tool_result" => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    demand(of_user && !texts_before, "messages: tool_result comes first in the user's message")?;
                    demand(open.remove(id), &format!("messages: a result for {id:?}, which waits for none"))?;
                }
                "thinking" | "redacted_thinking" => demand(!of_user, "messages: thinking belongs to the assistant")?,
                other => return Err(Refusal::bad(&format!("messages: no such content: {other}"))),
            }
        }
        demand(!of_user || open.is_empty(), &format!("messages: tool_use ids without tool_result right after: {open:?}"))?;
    }
    Ok(())
}

/// The events of a streamed reply, each with its framing.
pub fn reply(wire: Wire, asked: &Asked, said: &Said) -> Vec<String> {
    match wire {
        Wire::Openai => openai_reply(asked, said),
        Wire::Anthropic => anthropic_reply(asked, said),
    }
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

/// What is said and what is asked for.
fn parts(said: &Said) -> (&str, Vec<(&str, &Value)>) {
    match said {
        Said::Text(text) => (text, Vec::new()),
        Said::Calls(calls) => ("", calls.iter().map(|(name, arguments)| (name.as_str(), arguments)).collect()),
        Said::TextAndCall(text, name, arguments) => (text, vec![(name, arguments)]),
        Said::Status(_) => unreachable!("a status is no stream"),
    }
}

fn openai_reply(asked: &Asked, said: &Said) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        json!({ "id": format!("chatcmpl-{}", asked.number), "object": "chat.completion.chunk", "created": 1_700_000_000, "model": asked.body["model"],
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
    };
    let mut chunks = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    let (text, calls) = parts(said);
    chunks.extend(pieces(text).into_iter().map(|piece| chunk(json!({ "content": piece }), Value::Null)));
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let id = format!("call_{}_{index}", asked.number);
        let head = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
        chunks.push(chunk(json!({ "tool_calls": [head] }), Value::Null));
        for piece in pieces(&arguments.to_string()) {
            chunks.push(chunk(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }), Value::Null));
        }
    }
    chunks.push(chunk(json!({}), json!(if calls.is_empty() { "stop" } else { "tool_calls" })));
    if asked.body["stream_options"]["include_usage"] == true {
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 });
        chunks
            .push(json!({ "id": format!("chatcmpl-{}", asked.number), "object": "chat.completion.chunk", "choices": [], "usage": usage }));
    }
    let mut events: Vec<String> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn anthropic_reply(asked: &Asked, said: &Said) -> Vec<String> {
    let message = json!({ "id": format!("msg_{}", asked.number), "type": "message", "role": "assistant", "content": [], "model": asked.body["model"],
                          "stop_reason": null, "usage": { "input_tokens": 100, "output_tokens": 1 } });
    let mut events = vec![json!({ "type": "message_start", "message": message }), json!({ "type": "ping" })];
    let mut block = |index: usize, start: Value, deltas: Vec<Value>| {
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.extend(deltas.into_iter().map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    };
    let (text, calls) = parts(said);
    if !text.is_empty() {
        let deltas = pieces(text).into_iter().map(|piece| json!({ "type": "text_delta", "text": piece }));
        block(0, json!({ "type": "text", "text": "" }), deltas.collect());
    }
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let index = index + usize::from(!text.is_empty());
        let start = json!({ "type": "tool_use", "id": format!("toolu_{}_{index}", asked.number), "name": name, "input": {} });
        let deltas = pieces(&arguments.to_string()).into_iter().map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
        block(index, start, deltas.collect());
    }
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(
        json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": { "output_tokens": 20 } }),
    );
    events.push(json!({ "type": "message_stop" }));
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())).collect()
}
