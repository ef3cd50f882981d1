//! Chunks as real servers send them.

#![expect(clippy::needless_pass_by_value, reason = "a `json!` value reads best in its place")]

use serde_json::json;

use super::*;
use crate::chat::Message;
use crate::inference::fixtures::{call, origin, quirks, request, result, user};

fn run(quirks: Quirks, chunks: &[Value]) -> Result<Vec<ModelEvent>, ModelError> {
    let mut stream = OpenaiStream::new(quirks, &request(vec![user("hello")]));
    let mut events = Vec::new();
    for chunk in chunks {
        let data = chunk.as_str().map_or_else(|| chunk.to_string(), str::to_owned);
        stream.event("", &data, &mut events)?;
    }
    stream.end(&mut events)?;
    Ok(events)
}

fn delta(delta: Value) -> Value {
    json!({"id": "r", "choices": [{"index": 0, "delta": delta}]})
}

fn ended(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn end(events: &[ModelEvent]) -> (StopReason, Option<String>) {
    match events.last() {
        Some(ModelEvent::Finished { stop, raw_stop }) => (stop.clone(), raw_stop.clone()),
        other => panic!("no end but {other:?}"),
    }
}

fn texts(events: &[ModelEvent]) -> (String, String) {
    let (mut thought, mut said) = (String::new(), String::new());
    for event in events {
        match event {
            ModelEvent::Reasoning { text, .. } => thought.push_str(text),
            ModelEvent::Text(text) => said.push_str(text),
            _ => {}
        }
    }
    (thought, said)
}

fn usage(events: &[ModelEvent]) -> Usage {
    events.iter().rev().find_map(|event| if let ModelEvent::Usage(usage) = event { Some(*usage) } else { None }).unwrap()
}

#[test]
fn harness_s7_stop_words_are_normalized_and_kept() {
    let cases = [
        ("stop", StopReason::EndTurn),
        ("eos", StopReason::EndTurn),
        ("tool_calls", StopReason::ToolUse),
        ("function_call", StopReason::ToolUse),
        ("length", StopReason::MaxTokens),
        ("model_length", StopReason::MaxTokens),
        ("model_context_window_exceeded", StopReason::ContextFull),
        ("content_filter", StopReason::Refusal),
        ("sensitive", StopReason::Refusal),
        ("banana", StopReason::Unknown),
    ];
    for (word, stop) in cases {
        let events = run(quirks(), &[delta(json!({"content": "x"})), ended(word)]).unwrap();
        assert_eq!(end(&events), (stop, Some(word.to_owned())));
    }
    for (word, kind) in
        [("error", ErrorKind::Server), ("network_error", ErrorKind::Network), ("insufficient_system_resource", ErrorKind::Server)]
    {
        assert_eq!(run(quirks(), &[delta(json!({"content": "x"})), ended(word)]).unwrap_err().kind, kind);
    }
}

#[test]
fn harness_s3_done_without_a_reason_only_by_quirk_and_without_calls() {
    let optional = Quirks { finish_reason_optional: true, ..quirks() };
    let text = delta(json!({"content": "x"}));
    let calls = delta(json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{}"}}]}));
    let done = json!("[DONE]");
    assert_eq!(end(&run(optional.clone(), &[text.clone(), done.clone()]).unwrap()), (StopReason::EndTurn, None));
    for (quirks, chunks) in [
        (quirks(), vec![text.clone(), done.clone()]),
        (optional.clone(), vec![calls, done.clone()]),
        (optional.clone(), vec![done]),
        (optional, vec![text]),
    ] {
        let error = run(quirks, &chunks).unwrap_err();
        assert_eq!((error.kind, error.phase), (ErrorKind::Network, Phase::MidStream));
    }
}

#[test]
fn harness_s4_content_after_the_reason_is_still_collected() {
    let with_reason = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]});
    let events = run(quirks(), &[with_reason, delta(json!({"content": "b"})), json!("[DONE]")]).unwrap();
    assert_eq!(texts(&events).1, "ab");
    let empty = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": ""}]});
    assert!(run(quirks(), &[empty]).is_err(), "an empty reason is none");
}

#[test]
fn harness_s8_the_native_reason_unmasks_a_cut() {
    for native in ["length", "max_output_tokens", "MAX_TOKENS"] {
        let masked = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls", "native_finish_reason": native}]});
        let events = run(quirks(), &[masked]).unwrap();
        assert_eq!(end(&events), (StopReason::MaxTokens, Some(format!("tool_calls ({native})"))));
    }
}

#[test]
fn harness_s9_a_reason_may_come_twice() {
    let events = run(quirks(), &[delta(json!({"content": "x"})), ended("stop"), ended("stop"), json!("[DONE]")]).unwrap();
    assert_eq!(events.iter().filter(|event| matches!(event, ModelEvent::Finished { .. })).count(), 1);
}

#[test]
fn harness_s5_a_refusal_field_is_a_refusal() {
    let events = run(quirks(), &[delta(json!({"refusal": "I cannot"})), ended("stop")]).unwrap();
    assert_eq!(end(&events).0, StopReason::Refusal);
}

#[test]
fn harness_u2_usage_wherever_it_stands() {
    let expected = Usage { input: 6, cache_read: 4, output: 5, ..Usage::default() };
    let cases = [
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}),
        json!({"choices": [{"delta": {}, "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}}]}),
        json!({"choices": [], "x_groq": {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}}}),
    ];
    for chunk in cases {
        let events = run(quirks(), &[delta(json!({"content": "x"})), ended("stop"), chunk]).unwrap();
        assert_eq!(usage(&events), expected);
    }
    let growing = |output: u64| json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": output}});
    let events = run(quirks(), &[growing(1), growing(3), ended("stop"), json!({"choices": [], "usage": null})]).unwrap();
    assert_eq!(usage(&events).output, 3, "cumulative, not added");
}

#[test]
fn harness_w2_broken_json_is_an_error_and_blank_data_is_not() {
    assert_eq!(run(quirks(), &[json!("{\"choices\": [")]).unwrap_err().kind, ErrorKind::Protocol);
    assert!(run(quirks(), &[json!("  "), delta(json!({"content": "x"})), ended("stop"), json!(" [DONE] ")]).is_ok());
}

#[test]
fn harness_n8_an_error_in_the_stream_is_typed() {
    let error = json!({"id": "r", "error": {"code": 429, "message": "Provider returned error"}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]});
    let found = run(quirks(), &[delta(json!({"content": "x"})), error]).unwrap_err();
    assert_eq!((found.kind, found.phase), (ErrorKind::RateLimited, Phase::MidStream));
}

#[test]
fn harness_w5_reasoning_under_all_its_names() {
    let cases = [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"reasoning_content": "hm", "reasoning": "hm"}),
        json!({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
    ];
    for case in cases {
        let parts = delta(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}));
        let events = run(quirks(), &[delta(case.clone()), parts, ended("stop")]).unwrap();
        assert_eq!(texts(&events), ("hm".to_owned(), "ab".to_owned()), "{case}");
    }
}

#[test]
fn harness_r13_think_tags_over_chunks_only_by_quirk() {
    let chunks = [delta(json!({"content": "<thi"})), delta(json!({"content": "nk>hm</think>\n\nyes"})), ended("stop")];
    let tagged = Quirks { think_tags: true, ..quirks() };
    assert_eq!(texts(&run(tagged, &chunks).unwrap()), ("hm".to_owned(), "yes".to_owned()));
    assert_eq!(texts(&run(quirks(), &chunks).unwrap()).1, "<think>hm</think>\n\nyes");
}

#[test]
fn harness_n6_missing_and_repeated_ids_are_replaced_verbatim_ones_kept() {
    let asked = Message::Assistant { blocks: vec![call("call_0", "t", "{}")], origin: origin("openai") };
    let history = request(vec![user("a"), asked, result("call_0", "x", false)]);
    let fragment = |index: u64, id: &str| json!({"index": index, "id": id, "function": {"name": "t", "arguments": "{}"}});
    let chunk =
        delta(json!({"tool_calls": [fragment(0, ""), fragment(1, "functions.t:3"), fragment(2, "call_0"), fragment(3, "functions.t:3")]}));
    let ids = |quirks: Quirks| {
        let mut stream = OpenaiStream::new(quirks, &history);
        let mut events = Vec::new();
        stream.event("", &chunk.to_string(), &mut events).unwrap();
        stream.event("", &ended("tool_calls").to_string(), &mut events).unwrap();
        stream.end(&mut events).unwrap();
        let id = |event: ModelEvent| if let ModelEvent::Call(call) = event { Some(call.id.0) } else { None };
        events.into_iter().filter_map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(quirks()), ["call_1", "functions.t:3", "call_3", "call_4"]);
    assert_eq!(ids(Quirks { kimi_call_ids: true, ..quirks() }), ["functions.t:1", "functions.t:3", "functions.t:4", "functions.t:5"]);
}

#[test]
fn other_choices_and_unknown_fields_are_passed_over() {
    let second = json!({"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes", "odd": [1]}}]});
    let events = run(quirks(), &[second, json!([]), json!(5), ended("stop")]).unwrap();
    assert_eq!(texts(&events).1, "yes");
}
