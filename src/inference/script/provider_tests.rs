//! Rule files, and what they answer.

use std::collections::BTreeSet;

use serde_json::json;

use super::rules::{Rules, Scene};
use super::*;
use crate::chat::Message;
use crate::inference::fixtures::{call, origin, request, result, text, user};
use crate::inference::{ErrorKind, ToolChoice};

const SHOP: &str = r#"
[[rule]]
match = { closing = true }
text  = "I stop here."

[[rule]]
match = { tool_result = '"state"' }
text  = "Order {{tool_result.order}} is {{ tool_result.state }}; item {{tool_result.items.1}}."

[[rule]]
match = { last = ['order (?<number>\d+)', 'please'], turn = 0, tools = ["order_status"], last_role = "user" }
text  = "Let me look."
calls = [{ name = "order_status", arguments = { order = "{{number}}", note = ["said: {{last}}"], deep = true } }]

[[rule]]
match = { system = "scout" }
text  = "I am the scout."
"#;

fn answer(rules: &str, request: &Request) -> Answer {
    Rules::parse(rules).unwrap().answer(&Scene::of(request))
}

fn letter(inside: &str) -> Message {
    user(&format!("<untrusted id=\"ab12\" source=\"letter\">\n{inside}\n</untrusted id=ab12>"))
}

fn with_tools(mut request: Request) -> Request {
    request.tools = vec![json!({"name": "order_status", "description": "", "input": {}})];
    request
}

#[test]
fn the_first_rule_that_matches_answers_with_what_it_captured() {
    let request = with_tools(request(vec![letter("Where is Order 42, PLEASE?")]));
    let found = answer(SHOP, &request);
    assert_eq!(found.text, "Let me look.");
    let arguments = json!({"order": "42", "note": ["said: Where is Order 42, PLEASE?"], "deep": true});
    assert_eq!(found.calls, [("order_status".to_owned(), arguments)], "the wrapper is not part of what was said");
}

#[test]
fn every_condition_must_hold() {
    let unmatched = "No rule of the script matches this request.";
    assert_eq!(answer(SHOP, &request(vec![letter("order 42 please")])).text, unmatched, "the tool is not offered");
    assert_eq!(answer(SHOP, &with_tools(request(vec![letter("order 42")]))).text, unmatched, "one of two patterns");
    let later = Message::Assistant { blocks: vec![text("hm")], origin: origin("script") };
    assert_eq!(answer(SHOP, &with_tools(request(vec![letter("order 42 please"), later]))).text, unmatched, "turn 1");
    let mut scout = request(vec![letter("hi")]);
    scout.system = "You are Scout.".into();
    assert_eq!(answer(SHOP, &scout).text, "I am the scout.");
    scout.tool_choice = ToolChoice::None;
    assert_eq!(answer(SHOP, &scout).text, "I stop here.");
}

fn after_call(text: &str) -> Request {
    let asked = Message::Assistant { blocks: vec![call("call_0", "order_status", "{}")], origin: origin("script") };
    request(vec![letter("order 42 please"), asked, result("call_0", text, false)])
}

#[test]
fn fields_of_a_result_are_read_also_inside_a_wrapper() {
    let json = r#"{"order":"42","state":"baked","items":["cake",{"n":1}]}"#;
    let expected = "Order 42 is baked; item {\"n\":1}.";
    assert_eq!(answer(SHOP, &after_call(json)).text, expected);
    let wrapped = format!("<untrusted id=\"x\" source=\"tool\">\n{json}\n</untrusted id=x>");
    assert_eq!(answer(SHOP, &after_call(&wrapped)).text, expected);
    assert_eq!(answer(SHOP, &after_call("\"state\" of no JSON")).text, "Order  is ; item .", "what is missing is empty");
}

#[test]
fn a_lone_field_keeps_its_type() {
    let rules = r#"
[[rule]]
match = { tool_result = "total" }
calls = [{ name = "refund", arguments = { amount = "{{tool_result.total}}", text = "{{tool_result.total}} EUR" } }]
"#;
    let found = answer(rules, &after_call(r#"{"total": 12.5}"#));
    assert_eq!(found.calls[0].1, json!({"amount": 12.5, "text": "12.5 EUR"}));
}

#[test]
fn a_wrong_file_is_refused_with_the_rule_named() {
    let cases = [
        ("[[rule]]\nmatch = { last = 'a' }", "answers nothing"),
        ("[[rule]]\ntext = '{{nobody}}'", "unknown slot"),
        ("[[rule]]\ntext = '{{last'", "without `}}`"),
        ("[[rule]]\ntext = 'x'\nmatch = { last = '(' }", "pattern"),
        ("[[rule]]\ntext = 'x'\ndelay = '5 hours'", "delay"),
        ("[[rule]]\ntext = 'x'\nsays = 'y'", "unknown field"),
        ("[[rule]]\ntext = 'x'\nmatch = { lsat = 'y' }", "unknown field"),
        ("[[rule]]\ntext = 'x'\nfinish = 'tired'", "unknown variant"),
    ];
    for (text, expected) in cases {
        let error = format!("{:#}", Rules::parse(text).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn provider(rules: &str) -> ScriptProvider {
    ScriptProvider { origin: origin("script"), rules: Rules::parse(rules).unwrap() }
}

async fn stream(rules: &str, request: &Request) -> Vec<Result<ModelEvent, ModelError>> {
    provider(rules).stream(request).collect().await
}

#[tokio::test]
async fn text_comes_in_pieces_and_the_end_once() {
    let long = "é".repeat(100);
    let events = stream(&format!("[[rule]]\ntext = '{long}'"), &request(vec![user("hi")])).await;
    let texts: Vec<_> = events.iter().filter_map(|event| if let Ok(ModelEvent::Text(text)) = event { Some(text) } else { None }).collect();
    assert_eq!(texts.len(), 3);
    assert_eq!(texts.into_iter().cloned().collect::<String>(), long);
    assert_eq!(events.last(), Some(&Ok(ModelEvent::Finished { stop: StopReason::EndTurn, raw_stop: None })));
}

#[tokio::test]
async fn harness_n6_calls_get_ids_that_the_thread_has_not_seen() {
    let rules = "[[rule]]\ncalls = [{ name = 'a' }, { name = 'b', arguments = { x = 1 } }]";
    let events = stream(rules, &after_call("done")).await;
    let ids: BTreeSet<_> = events
        .iter()
        .filter_map(|event| if let Ok(ModelEvent::Call(call)) = event { Some((call.id.0.as_str(), call.arguments.as_str())) } else { None })
        .collect();
    assert_eq!(ids, BTreeSet::from([("call_1", "{}"), ("call_2", "{\"x\":1}")]));
    assert_eq!(events.last(), Some(&Ok(ModelEvent::Finished { stop: StopReason::ToolUse, raw_stop: None })));
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_waited_once_and_an_error_is_all_there_is() {
    let begun = tokio::time::Instant::now();
    let events = stream("[[rule]]\ntext = 'x'\ndelay = '2s'", &request(vec![user("hi")])).await;
    assert_eq!((events.len(), begun.elapsed().as_secs()), (3, 2));
    let failed = stream("[[rule]]\nerror = 529", &request(vec![user("hi")])).await;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].as_ref().unwrap_err().kind, ErrorKind::Overloaded);
}

#[test]
fn the_same_request_gives_the_same_answer() {
    let rules = Rules::parse(SHOP).unwrap();
    let request = with_tools(request(vec![letter("order 7 please")]));
    assert_eq!(rules.answer(&Scene::of(&request)), rules.answer(&Scene::of(&request)));
}
