//! Requests in the words of the openai wire.

use expect_test::expect;

use super::*;
use crate::config::Wire;
use crate::inference::fixtures::{call, origin, quirks, request, result, settings, text, user};

fn conversation() -> Request {
    let thought = Block::Reasoning { text: "hm".into(), opaque: None };
    let mut request = request(vec![
        user("where is it?"),
        Message::Assistant {
            blocks: vec![thought, call("functions.look:0", "look", r#"{"b":1,"a":12345678901234567890}"#)],
            origin: origin("openai"),
        },
        result("functions.look:0", "no such order", true),
        Message::Assistant { blocks: vec![text("I cannot find it.")], origin: origin("openai") },
        user("thanks"),
    ]);
    request.tools = vec![json!({"name": "look", "description": "Looks", "input": {"type": "object"}})];
    request
}

fn build(quirks: Quirks, request: &Request) -> Value {
    let settings = ModelSettings { quirks, ..settings(Wire::Openai, "http://127.0.0.1") };
    body(&settings, &origin("openai"), request)
}

#[test]
fn harness_n4_a_whole_request_byte_for_byte() {
    let built = build(quirks(), &conversation());
    expect![[r#"{"model":"m","messages":[{"role":"system","content":"You answer."},{"role":"user","content":"where is it?"},{"role":"assistant","content":null,"tool_calls":[{"id":"functions.look:0","type":"function","function":{"name":"look","arguments":"{\"b\":1,\"a\":12345678901234567890}"}}]},{"role":"tool","tool_call_id":"functions.look:0","content":"ERROR: no such order"},{"role":"assistant","content":"I cannot find it."},{"role":"user","content":"thanks"}],"max_tokens":1000,"tools":[{"type":"function","function":{"name":"look","description":"Looks","parameters":{"type":"object"}}}],"stream":true,"stream_options":{"include_usage":true}}"#]]
    .assert_eq(&built.to_string());
    assert_eq!(built.to_string(), build(quirks(), &conversation()).to_string());
}

#[test]
fn harness_w7_each_quirk_changes_its_own_part() {
    let plain = quirks();
    let built = |quirks: Quirks| build(quirks, &conversation());
    assert_eq!(built(Quirks { max_completion_tokens: true, ..plain.clone() })["max_completion_tokens"], 1000);
    assert_eq!(built(Quirks { developer_role: true, ..plain.clone() })["messages"][0]["role"], "developer");
    assert_eq!(built(Quirks { empty_content: true, ..plain.clone() })["messages"][2]["content"], "");
    assert!(built(Quirks { stream_usage: false, ..plain.clone() }).get("stream_options").is_none());
    let closing = Request { tool_choice: ToolChoice::None, ..conversation() };
    assert_eq!(build(plain.clone(), &closing)["tool_choice"], "none");
    assert!(build(Quirks { tool_choice_none: false, ..plain.clone() }, &closing).get("tool_choice").is_none());
    let warm = |quirks| ModelSettings { temperature: Some(0.5), quirks, ..settings(Wire::Openai, "http://127.0.0.1") };
    assert_eq!(body(&warm(plain.clone()), &origin("openai"), &conversation())["temperature"], 0.5);
    let fixed = warm(Quirks { fixed_sampling: true, ..plain });
    assert!(body(&fixed, &origin("openai"), &conversation()).get("temperature").is_none());
}

#[test]
fn harness_w6_reasoning_of_calling_turns_goes_back_only_where_it_must() {
    let replaying = Quirks { replay_reasoning: true, ..quirks() };
    let built = build(replaying.clone(), &conversation());
    assert_eq!(built["messages"][2]["reasoning_content"], "hm");
    assert!(built["messages"][4].get("reasoning_content").is_none(), "it called nothing");
    assert!(build(quirks(), &conversation())["messages"][2].get("reasoning_content").is_none());
    let mut foreign = conversation();
    if let Message::Assistant { origin, .. } = &mut foreign.messages[1] {
        origin.provider = "another".into();
    }
    assert_eq!(build(replaying, &foreign)["messages"][2]["reasoning_content"], "", "required, though empty");
}

#[test]
fn harness_n3_a_foreign_conversation_leaves_nothing_of_its_own() {
    let long = format!("toolu|{}", "x".repeat(60));
    let blocks = vec![
        Block::Reasoning { text: "secret thought".into(), opaque: Some(json!({"signature": "sig"})) },
        Block::Opaque { json: json!({"type": "redacted_thinking", "data": "blob"}) },
        call(&long, "look", "{}"),
    ];
    let asked = Message::Assistant { blocks, origin: origin("anthropic") };
    let built = build(quirks(), &request(vec![user("a"), asked, result(&long, "x", false)]));
    let sent = built.to_string();
    for foreign in ["secret thought", "sig", "blob", "toolu"] {
        assert!(!sent.contains(foreign), "{foreign}");
    }
    assert_eq!(built["messages"][2]["tool_calls"][0]["id"], built["messages"][3]["tool_call_id"]);
}

#[test]
fn empty_turns_are_left_out_and_empty_arguments_are_an_object() {
    let empty = Message::Assistant { blocks: Vec::new(), origin: origin("openai") };
    let asked = Message::Assistant { blocks: vec![call("c", "look", " ")], origin: origin("openai") };
    let built = build(quirks(), &request(vec![user("a"), empty, user("b"), asked, result("c", "x", false)]));
    assert_eq!(built["messages"].as_array().unwrap().len(), 5, "system, a, b, call, result");
    assert_eq!(built["messages"][3]["tool_calls"][0]["function"]["arguments"], "{}");
}
