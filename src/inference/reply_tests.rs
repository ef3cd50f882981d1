//! What a stream's events become.

use serde_json::json;

use super::*;
use crate::chat::{CallId, ToolCall};
use crate::inference::ToolChoice;

fn request(max_output: u32) -> Request {
    Request {
        system: "You answer.".into(),
        messages: vec![Message::user("hello there", Source::Customer)],
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        max_output,
    }
}

fn origin() -> Origin {
    Origin { provider: "p".into(), wire: "openai".into(), model: "m".into() }
}

fn call(arguments: &str) -> ModelEvent {
    ModelEvent::Call(ToolCall { id: CallId("c".into()), name: "look".into(), arguments: arguments.into() })
}

fn used(output: u64) -> ModelEvent {
    ModelEvent::Usage(Usage { input: 10, output, ..Usage::default() })
}

fn end(stop: StopReason) -> ModelEvent {
    ModelEvent::Finished { stop, raw_stop: Some("raw".into()) }
}

fn fold(events: Vec<ModelEvent>) -> Reply {
    let mut assembly = Assembly::default();
    for event in events {
        assembly.take(event);
    }
    assembly.finish(&request(100), &origin())
}

#[test]
fn harness_n2_order_of_blocks_is_kept_and_text_joined() {
    let reply = fold(vec![
        ModelEvent::Started { response_id: Some("r1".into()), headers: Map::new() },
        ModelEvent::Reasoning { text: "a".into(), opaque: None },
        ModelEvent::Reasoning { text: "b".into(), opaque: Some(json!({"signature": "s"})) },
        ModelEvent::Text("x".into()),
        ModelEvent::Text("y".into()),
        call("{}"),
        ModelEvent::Text("z".into()),
        used(3),
        end(StopReason::ToolUse),
    ]);
    let Message::Assistant { blocks, .. } = &reply.message else { panic!("an assistant message") };
    assert_eq!(blocks.len(), 4);
    assert_eq!(blocks[0], Block::Reasoning { text: "ab".into(), opaque: Some(json!({"signature": "s"})) });
    assert_eq!(blocks[1].as_text(), Some("xy"));
    assert_eq!(blocks[3].as_text(), Some("z"));
    assert_eq!(reply.raw_stop.as_deref(), Some("raw"), "harness S7");
    assert_eq!(reply.response_id.as_deref(), Some("r1"));
}

#[test]
fn harness_s1_complete_calls_run_whatever_the_stop_word() {
    for said in [StopReason::EndTurn, StopReason::Unknown, StopReason::StopSequence, StopReason::ToolUse] {
        assert_eq!(fold(vec![call("{}"), used(5), end(said)]).stop, StopReason::ToolUse);
    }
}

#[test]
fn harness_s2_tool_use_without_calls_is_an_end() {
    assert_eq!(fold(vec![ModelEvent::Text("hi".into()), end(StopReason::ToolUse)]).stop, StopReason::EndTurn);
}

#[test]
fn harness_s5_a_refusal_stays_one_even_with_calls() {
    assert_eq!(fold(vec![call("{}"), used(5), end(StopReason::Refusal)]).stop, StopReason::Refusal);
}

#[test]
fn harness_s8_disguised_truncation_is_found_by_its_evidence() {
    let cases = [
        ("{\"a\":1}", 100, StopReason::MaxTokens),
        ("{\"a\":1}", 99, StopReason::ToolUse),
        ("{\"a\":\"un", 95, StopReason::MaxTokens),
        ("{\"a\":\"un", 94, StopReason::ToolUse),
        ("{\"a\":} nonsense", 96, StopReason::ToolUse),
        ("", 96, StopReason::ToolUse),
    ];
    for (arguments, output, expected) in cases {
        let reply = fold(vec![call(arguments), used(output), end(StopReason::ToolUse)]);
        assert_eq!(reply.stop, expected, "{arguments} at {output}");
    }
}

#[test]
fn harness_u3_missing_usage_is_estimated_and_flagged() {
    let reply = fold(vec![ModelEvent::Text("12345678".into()), end(StopReason::EndTurn)]);
    assert!(reply.usage.estimated);
    assert_eq!(reply.usage.output, 2);
    assert_eq!(reply.usage.input, 6, "three for the system text, three for the letter");
    let zeros = fold(vec![ModelEvent::Usage(Usage::default()), ModelEvent::Text("12345678".into()), end(StopReason::EndTurn)]);
    assert_eq!(zeros.usage, reply.usage);
}

#[test]
fn harness_u1_the_last_snapshot_replaces_the_others() {
    let reply = fold(vec![used(3), used(7), end(StopReason::EndTurn)]);
    assert_eq!(reply.usage.output, 7);
    assert!(!reply.usage.estimated);
}

#[test]
fn harness_w8b_a_new_start_drops_the_first_part() {
    let reply = fold(vec![
        ModelEvent::Text("half".into()),
        call("{\"x"),
        ModelEvent::Started { response_id: Some("r2".into()), headers: Map::new() },
        ModelEvent::Text("whole".into()),
        end(StopReason::EndTurn),
    ]);
    assert_eq!(reply.message.text(), "whole");
    assert_eq!(reply.message.calls().len(), 0);
}
