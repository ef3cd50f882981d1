//! Recorded streams, cut and dressed in every way, always say the same (harness DR4, N5).

use proptest::prelude::*;

use super::*;
use crate::chat::{Message, Reply, StopReason};
use crate::inference::fixtures::{origin, quirks, request, user};
use crate::inference::reply::Assembly;

const OPENAI_TEXT: &str = r#"data: {"id":"r1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"r1","choices":[{"index":0,"delta":{"content":"Grüße, "}}]}

data: {"id":"r1","choices":[{"index":0,"delta":{"content":"🍦!"},"finish_reason":""}]}

data: {"id":"r1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"r1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

"#;

const OPENAI_CALLS: &str = r#"data: {"id":"r2","choices":[{"index":0,"delta":{"reasoning_content":"hm ","reasoning":"hm "}}]}

data: {"id":"r2","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"functions.look:0","type":"function","function":{"name":"look","arguments":""}}]}}]}

data: {"id":"r2","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"q\":\"größe"}}]}}]}

data: {"id":"r2","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}},{"index":1,"id":"functions.look:1","function":{"name":"look","arguments":"{}"}}]}}]}

data: {"id":"r2","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":9}}

data: [DONE]

"#;

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":11,"output_tokens":1,"cache_read_input_tokens":3}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"let me see"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Grüße 🍦"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\": \"a"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":42}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn decoder(text: &str) -> Decoder {
    Decoder::new(if text.contains("message_start") {
        Dialected::Anthropic(AnthropicStream::new(&request(vec![user("hello")])))
    } else {
        Dialected::Openai(OpenaiStream::new(quirks(), &request(vec![user("hello")])))
    })
}

/// The events without signs of life, and how it ended.
fn run(fixture: &str, pieces: &[&[u8]]) -> (Vec<ModelEvent>, Option<ErrorKind>) {
    let mut decoder = decoder(fixture);
    let mut events = Vec::new();
    let pushed = pieces.iter().try_for_each(|piece| decoder.push(piece, &mut events).map(drop));
    let outcome = pushed.and_then(|()| if is_ended(&events) { Ok(()) } else { decoder.finish(&mut events) });
    events.retain(|event| *event != ModelEvent::Heartbeat);
    (events, outcome.err().map(|error| error.kind))
}

fn reply(fixture: &str) -> Reply {
    let (events, error) = run(fixture, &[fixture.as_bytes()]);
    assert_eq!(error, None);
    let mut assembly = Assembly::default();
    events.into_iter().for_each(|event| assembly.take(event));
    assembly.finish(&request(vec![user("hello")]), &origin("openai"))
}

#[test]
fn the_fixtures_mean_what_they_say() {
    let text = reply(OPENAI_TEXT);
    assert_eq!(text.message.text(), "Grüße, 🍦!");
    assert_eq!((text.stop, text.usage.input, text.usage.cache_read, text.usage.output), (StopReason::EndTurn, 8, 4, 5));
    let calls = reply(OPENAI_CALLS);
    let arguments: Vec<_> = calls.message.calls().iter().map(|call| call.arguments.clone()).collect();
    assert_eq!(arguments, [r#"{"q":"größe"}"#, "{}"]);
    assert_eq!(calls.stop, StopReason::ToolUse);
    let thought = reply(ANTHROPIC);
    let Message::Assistant { blocks, .. } = &thought.message else { panic!("an assistant message") };
    assert_eq!(blocks.len(), 3, "thought, text, call");
    assert_eq!(thought.message.calls()[0].arguments, r#"{"q": "a"}"#, "harness N4: as received");
    assert_eq!((thought.usage.input, thought.usage.cache_read, thought.usage.output), (11, 3, 42));
}

#[test]
fn harness_dr4_every_split_dress_and_ending_says_the_same() {
    for fixture in [OPENAI_TEXT, OPENAI_CALLS, ANTHROPIC] {
        let expected = run(fixture, &[fixture.as_bytes()]);
        let dresses = [
            fixture.to_owned(),
            fixture.replace('\n', "\r\n"),
            fixture.replace('\n', "\r"),
            format!("\u{feff}{fixture}"),
            fixture.replace("\n\n", "\n\n: OPENROUTER PROCESSING\n\n"),
            fixture.replace("data: ", "data:"),
            fixture.trim_end().to_owned(),
        ];
        for dress in &dresses {
            assert_eq!(run(fixture, &dress.as_bytes().chunks(1).collect::<Vec<_>>()), expected);
            assert_eq!(run(fixture, &[dress.as_bytes()]), expected);
        }
        for at in 0..fixture.len() {
            let (left, right) = fixture.as_bytes().split_at(at);
            assert_eq!(run(fixture, &[left, right]), expected, "split at {at}");
        }
    }
}

#[test]
fn harness_n5_every_truncation_has_exactly_one_end() {
    for fixture in [OPENAI_TEXT, OPENAI_CALLS, ANTHROPIC] {
        for length in 0..fixture.len() {
            let (events, error) = run(fixture, &[&fixture.as_bytes()[..length]]);
            let ends = events.iter().filter(|event| matches!(event, ModelEvent::Finished { .. })).count();
            assert_eq!(ends + usize::from(error.is_some()), 1, "cut at {length}");
            // A cut inside a line breaks its JSON, a cut between lines the stream: both are tried again.
            assert!(error.is_none_or(|kind| kind.is_retryable()), "cut at {length}: {error:?}");
        }
    }
}

proptest! {
    #[test]
    fn harness_dr4_random_splits_say_the_same(cuts in proptest::collection::vec(0_usize..2000, 0..12), which in 0_usize..3) {
        let fixture = [OPENAI_TEXT, OPENAI_CALLS, ANTHROPIC][which];
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % fixture.len()).collect();
        cuts.extend([0, fixture.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &fixture.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(run(fixture, &pieces), run(fixture, &[fixture.as_bytes()]));
    }

    #[test]
    fn any_bytes_end_once_and_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for fixture in [OPENAI_TEXT, ANTHROPIC] {
            let (events, error) = run(fixture, &[&bytes]);
            let ends = events.iter().filter(|event| matches!(event, ModelEvent::Finished { .. })).count();
            prop_assert_eq!(ends + usize::from(error.is_some()), 1);
        }
    }
}
