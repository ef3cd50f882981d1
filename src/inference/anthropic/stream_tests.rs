//! Events as real servers and their proxies send them.

#![expect(clippy::needless_pass_by_value, reason = "a `json!` value reads best in its place")]

use super::*;
use crate::chat::{Block, Message, Reply};
use crate::inference::fixtures::{origin, request, user};
use crate::inference::reply::Assembly;

fn run(events: &[Value]) -> Result<Reply, ModelError> {
    let request = request(vec![user("hello")]);
    let mut stream = AnthropicStream::new(&request);
    let mut out = Vec::new();
    for event in events {
        stream.event("", &event.to_string(), &mut out)?;
    }
    stream.end(&mut out)?;
    let mut assembly = Assembly::default();
    out.into_iter().for_each(|event| assembly.take(event));
    Ok(assembly.finish(&request, &origin("anthropic")))
}

fn start(id: &str) -> Value {
    json!({"type": "message_start", "message": {"id": id, "usage": {"input_tokens": 10, "output_tokens": 1}}})
}

fn open(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn close(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}})
}

fn end() -> Value {
    json!({"type": "message_stop"})
}

fn text(text: &str) -> Vec<Value> {
    vec![open(0, json!({"type": "text", "text": ""})), delta(0, json!({"type": "text_delta", "text": text})), close(0)]
}

fn events(parts: &[&[Value]]) -> Vec<Value> {
    parts.concat()
}

#[test]
fn harness_w8_unknown_events_and_deltas_are_passed_over() {
    let odd = [json!({"type": "wonder"}), delta(0, json!({"type": "glow_delta", "glow": 1})), json!({"type": "ping"}), json!([])];
    let reply = run(&events(&[&[start("m")], &odd, &text("hi"), &odd, &[stop("end_turn"), end()]])).unwrap();
    assert_eq!((reply.message.text().as_str(), reply.stop), ("hi", StopReason::EndTurn));
}

#[test]
fn harness_w8_arguments_are_joined_and_nothing_is_an_object() {
    let tool = |index, name: &str| open(index, json!({"type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {}}));
    let piece = |index, json: &str| delta(index, json!({"type": "input_json_delta", "partial_json": json}));
    let given = open(2, json!({"type": "tool_use", "id": "toolu_2", "name": "c", "input": {"n": 1}}));
    let reply = run(&[
        start("m"),
        tool(0, "a"),
        tool(1, "b"),
        piece(0, "{\"x\""),
        piece(1, ""),
        piece(0, ": 1}"),
        close(0),
        close(1),
        given,
        stop("tool_use"),
        end(),
    ])
    .unwrap();
    let arguments: Vec<_> = reply.message.calls().iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, ["{\"x\": 1}", "{}", "{\"n\":1}"], "the last one was never closed");
}

#[test]
fn harness_w8_signatures_and_unmodelled_blocks_are_kept_verbatim() {
    let redacted = json!({"type": "redacted_thinking", "data": "blob"});
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}});
    let reply = run(&[
        start("m"),
        open(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "a"})),
        delta(0, json!({"type": "signature_delta", "signature": "b"})),
        close(0),
        open(1, redacted.clone()),
        close(1),
        open(2, search),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"q\":1}"})),
        close(2),
        stop("pause_turn"),
        end(),
    ])
    .unwrap();
    let Message::Assistant { blocks, .. } = &reply.message else { panic!("an assistant message") };
    assert_eq!(blocks[0], Block::Reasoning { text: "hm".into(), opaque: Some(json!({"signature": "ab"})) });
    assert_eq!(blocks[1], Block::Opaque { json: redacted });
    assert_eq!(blocks[2], Block::Opaque { json: json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {"q": 1}}) });
    assert_eq!(reply.stop, StopReason::PauseTurn);
}

#[test]
fn harness_w8b_a_repeated_start_is_ignored_and_a_spliced_one_begins_anew() {
    let repeated = run(&events(&[&[start("m"), start("m")], &text("hi"), &[stop("end_turn"), end()]])).unwrap();
    assert_eq!(repeated.message.text(), "hi");
    let half = [
        open(0, json!({"type": "text", "text": "half"})),
        open(1, json!({"type": "tool_use", "id": "toolu_1", "name": "a", "input": {}})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "{\"x"})),
    ];
    for second in ["m", "n"] {
        let spliced = run(&events(&[&[start("m")], &half, &[start(second)], &text("whole"), &[stop("end_turn"), end()]])).unwrap();
        assert_eq!(spliced.message.text(), "whole");
        assert!(spliced.message.calls().is_empty(), "the half call does not leak in");
        assert_eq!(spliced.response_id.as_deref(), Some(second));
    }
}

#[test]
fn harness_w8b_a_refusal_may_have_no_block_at_all() {
    let refused =
        json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "x"}}});
    let reply = run(&[start("m"), refused, end()]).unwrap();
    assert_eq!(reply.stop, StopReason::Refusal);
    assert!(reply.raw_stop.unwrap().starts_with("refusal {"));
}

#[test]
fn harness_s3_without_an_end_only_a_stop_reason_will_do() {
    let cut = run(&events(&[&[start("m")], &text("hi")])).unwrap_err();
    assert_eq!((cut.kind, cut.phase), (ErrorKind::Network, Phase::MidStream));
    assert!(run(&events(&[&[start("m")], &text("hi"), &[stop("end_turn")]])).is_ok());
}

#[test]
fn harness_w8_an_error_event_is_typed_by_its_words() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "m"}});
    for (word, kind) in [
        ("overloaded_error", ErrorKind::Overloaded),
        ("rate_limit_error", ErrorKind::RateLimited),
        ("api_error", ErrorKind::Server),
        ("authentication_error", ErrorKind::Auth),
        ("invalid_request_error", ErrorKind::InvalidRequest),
    ] {
        let found = run(&events(&[&[start("m")], &text("hi"), &[error(word)]])).unwrap_err();
        assert_eq!((found.kind, found.phase), (kind, Phase::MidStream));
    }
}

#[test]
fn harness_u1_the_latest_snapshot_with_a_field_wins_even_when_smaller() {
    let start = json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1000, "output_tokens": 0}}});
    let late = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 7}});
    let reply = run(&events(&[std::slice::from_ref(&start), &text("hi"), &[late, end()]])).unwrap();
    assert_eq!((reply.usage.input, reply.usage.cache_read, reply.usage.output), (100, 900, 7));
    let zeros = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 0, "output_tokens": 7}});
    let reply = run(&events(&[&[start], &text("hi"), &[zeros, end()]])).unwrap();
    assert_eq!(reply.usage.input, 1000, "zeros say nothing");
}

#[test]
fn harness_s_stop_words_of_the_anthropic_wire() {
    for (word, expected) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("model_context_window_exceeded", StopReason::ContextFull),
        ("stop_sequence", StopReason::StopSequence),
        ("pause_turn", StopReason::PauseTurn),
        ("refusal", StopReason::Refusal),
        ("tool_use", StopReason::EndTurn),
        ("banana", StopReason::Unknown),
    ] {
        let reply = run(&events(&[&[start("m")], &text("hi"), &[stop(word), end()]])).unwrap();
        assert_eq!((reply.stop, reply.raw_stop.as_deref()), (expected, Some(word)));
    }
}
