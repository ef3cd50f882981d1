//! Requests in the words of the anthropic wire.

use expect_test::expect;

use super::*;
use crate::chat::Source;
use crate::config::Wire;
use crate::inference::fixtures::{call, origin, request, result, settings, text, user};

fn thought(signature: &str) -> Block {
    Block::Reasoning { text: "hm".into(), opaque: Some(json!({ "signature": signature })) }
}

fn build(request: &Request) -> Value {
    body(&settings(Wire::Anthropic, "http://127.0.0.1"), &origin("anthropic"), request)
}

fn conversation() -> Request {
    let redacted = Block::Opaque { json: json!({"type": "redacted_thinking", "data": "blob"}) };
    let asked = vec![thought("c2ln"), redacted, text("Let me look."), call("toolu_1", "look", r#"{"b":1,"a":2}"#)];
    let mut request = request(vec![
        user("where is it?"),
        Message::Assistant { blocks: asked, origin: origin("anthropic") },
        result("toolu_1", "no such order", true),
        user("and hurry"),
    ]);
    request.tools = vec![json!({"name": "look", "description": "Looks", "input": {"type": "object"}})];
    request
}

#[test]
fn harness_pc2_a_whole_request_byte_for_byte() {
    let built = build(&conversation()).to_string();
    expect![[r#"{"model":"m","max_tokens":1000,"system":[{"type":"text","text":"You answer.","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"look","description":"Looks","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"where is it?"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"redacted_thinking","data":"blob"},{"type":"text","text":"Let me look."},{"type":"tool_use","id":"toolu_1","name":"look","input":{"b":1,"a":2}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"no such order","is_error":true},{"type":"text","text":"and hurry","cache_control":{"type":"ephemeral"}}]}],"stream":true}"#]]
    .assert_eq(&built);
    assert_eq!(built, build(&conversation()).to_string());
}

#[test]
fn harness_n3_foreign_thoughts_stay_away_and_ids_are_made_fit() {
    let blocks = vec![thought("sig"), call("functions.look:0", "look", "[1]")];
    let author = Origin { provider: "other".into(), ..origin("openai") };
    let built = build(&request(vec![user("a"), Message::Assistant { blocks, origin: author }, result("functions.look:0", "x", false)]));
    let asked = &built["messages"][1]["content"];
    assert_eq!(asked.as_array().unwrap().len(), 1);
    assert_eq!(asked[0]["id"], "functions_look_0");
    assert_eq!(asked[0]["input"], json!({}), "an object is demanded");
    assert_eq!(built["messages"][2]["content"][0]["tool_use_id"], "functions_look_0");
}

#[test]
fn harness_w8_roles_alternate_and_blank_texts_are_left_out() {
    let blank = Message::Assistant { blocks: vec![text(" \n")], origin: origin("anthropic") };
    let unsigned = Message::Assistant { blocks: vec![Block::Reasoning { text: "cut".into(), opaque: None }], origin: origin("anthropic") };
    let last = Message::Assistant { blocks: vec![text("so far \n")], origin: origin("anthropic") };
    let built = build(&request(vec![user("a"), blank, unsigned, Message::user("", Source::Operator), user("b"), last]));
    let roles: Vec<_> = built["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(built["messages"][0]["content"].as_array().unwrap().len(), 2);
    assert_eq!(built["messages"][1]["content"][0]["text"], "so far", "no white space at the end");
}

#[test]
fn tools_are_there_whenever_history_has_calls() {
    let mut closed = conversation();
    closed.tools.clear();
    let built = build(&closed);
    assert_eq!(built["tools"][0]["name"], "look");
    assert_eq!(built["tool_choice"], json!({"type": "none"}));
    closed.messages.truncate(1);
    assert!(build(&closed).get("tools").is_none());
}

#[test]
fn thinking_is_off_where_the_thought_behind_a_call_is_missing() {
    let thinking =
        ModelSettings { reasoning: Some("high".into()), temperature: Some(0.3), ..settings(Wire::Anthropic, "http://127.0.0.1") };
    let roomy = |messages| Request { max_output: 8000, ..request(messages) };
    let asked = |author: Origin| {
        let blocks = vec![thought("sig"), call("toolu_1", "look", "{}")];
        roomy(vec![user("a"), Message::Assistant { blocks, origin: author }, result("toolu_1", "x", false)])
    };
    let built = |request: &Request| body(&thinking, &origin("anthropic"), request);
    let own = built(&asked(origin("anthropic")));
    assert_eq!(own["thinking"], json!({"type": "enabled", "budget_tokens": 4000}), "half of the output at most");
    assert!(own.get("temperature").is_none());
    let foreign = built(&asked(Origin { provider: "other".into(), ..origin("anthropic") }));
    assert!(foreign.get("thinking").is_none());
    assert_eq!(foreign["temperature"], 0.3);
    assert!(built(&Request { max_output: 1000, ..roomy(vec![user("a")]) }).get("thinking").is_none(), "no room for it");
}
