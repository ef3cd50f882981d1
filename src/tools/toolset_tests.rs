use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::super::command::Command;
use super::super::definition;
use super::*;
use crate::chat::CallId;
use crate::config::{CommandTool, OperatorTool, ToolKind};
use crate::run::testing;

fn known(name: &str, effect: Effect) -> (ToolName, Known) {
    let command = CommandTool { command: vec!["bin/none".to_owned()], env: BTreeMap::new() };
    let tool = OperatorTool {
        name: name.to_owned(),
        description: format!("Does {name}"),
        input: json!({ "type": "object", "properties": { "order": { "type": "integer" } }, "required": ["order"] }),
        effect,
        timeout: Duration::from_secs(1),
        approval: false,
        untainted: false,
        kind: ToolKind::Command(command.clone()),
    };
    let schema = definition::check(name, &tool.description, &tool.input).unwrap();
    let tool = Command::new(&tool, &command, &testing::settings(Path::new("/nowhere")));
    (name.into(), Known { tool: Arc::new(tool), schema: Arc::new(schema) })
}

fn toolset() -> Toolset {
    Toolset::of(BTreeMap::from([
        known("refund", Effect::Effectful),
        known("order_status", Effect::Pure),
        known("cancel", Effect::Idempotent),
    ]))
}

fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: CallId("functions.x:3".to_owned()), name: name.into(), arguments: arguments.to_owned() }
}

fn ready(name: &str, arguments: &str) -> (ToolCall, Value, Option<String>) {
    match toolset().resolve(&call(name, arguments)) {
        Resolved::Ready { tool, call, arguments, repaired } => {
            assert_eq!(tool.spec().name, call.name);
            assert_eq!(serde_json::from_str::<Value>(&call.arguments).unwrap(), arguments);
            (call, arguments, repaired)
        }
        Resolved::Invalid { message, .. } => panic!("{message}"),
    }
}

fn invalid(name: &str, arguments: &str) -> (ToolCall, String) {
    match toolset().resolve(&call(name, arguments)) {
        Resolved::Invalid { call, message } => (call, message),
        Resolved::Ready { call, .. } => panic!("{call:?} is ready"),
    }
}

#[test]
fn harness_d2_two_builds_give_the_same_bytes_sorted_by_name() {
    let (one, two) = (toolset().definitions(), toolset().definitions());
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&two).unwrap());
    let names: Vec<&str> = one.iter().map(|definition| definition["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cancel", "order_status", "refund"]);
    assert_eq!(
        one[0].to_string(),
        r#"{"name":"cancel","description":"Does cancel","input":{"type":"object","properties":{"order":{"type":"integer"}},"required":["order"],"additionalProperties":false}}"#
    );
}

#[test]
fn harness_t9_unknown_and_ungranted_names_meet_the_same_words() {
    let (_, nowhere) = invalid("zzz_nothing", "{}");
    let (_, elsewhere) = invalid("send_email", "{}");
    assert_eq!(nowhere.replace("zzz_nothing", "X"), elsewhere.replace("send_email", "X"));
    assert!(elsewhere.ends_with("The tools are: cancel, order_status, refund."), "{elsewhere}");
    let (written, hinted) = invalid("order_statuses", "{\"order\":1}");
    assert_eq!(written.name.as_str(), "order_statuses");
    assert!(hinted.contains("Did you mean \"order_status\"?"), "{hinted}");
    let (_, long) = invalid(&"x\n".repeat(5000), "{}");
    assert!(long.len() < 300, "{long}");
}

#[test]
fn harness_r2_the_canonical_name_is_kept_and_the_repair_recorded() {
    let (call, _, repaired) = ready("functions.Order-Status:0", r#"{"order":1}"#);
    assert_eq!((call.name.as_str(), call.id.0.as_str()), ("order_status", "functions.x:3"));
    assert_eq!(repaired.unwrap(), "the name was written \"functions.Order-Status:0\"");
    assert_eq!(ready("refund", r#"{"order": 1}"#), (self::call("refund", r#"{"order": 1}"#), json!({ "order": 1 }), None));
}

#[test]
fn harness_r8_closing_brackets_only_for_tools_without_effects_and_a_schema_that_holds() {
    assert_eq!(ready("order_status", r#"{"order":1"#).1, json!({ "order": 1 }));
    assert_eq!(ready("order_status", r#"{"order":1"#).0.arguments, r#"{"order":1}"#);
    invalid("order_status", r#"{"order":"1""#);
    invalid("refund", r#"{"order":1"#);
}

#[test]
fn harness_r9_values_are_read_as_wanted_save_for_effectful_tools() {
    let (call, arguments, repaired) = ready("order_status", r#"{"order":"5"}"#);
    assert_eq!((call.arguments.as_str(), arguments), (r#"{"order":5}"#, json!({ "order": 5 })));
    assert_eq!(repaired.unwrap(), "/order read as integer");
    let (_, message) = invalid("refund", r#"{"order":"5"}"#);
    assert!(message.contains("/order: \"5\" is not of type \"integer\""), "{message}");
}

#[test]
fn harness_r9_the_error_holds_all_problems_and_the_schema() {
    let (call, message) = invalid("Refund", r#"{"orders":1,"note":"x"}"#);
    assert_eq!(call.name.as_str(), "refund");
    for part in ["refund was not run", "'orders'", "'note'", "\"order\" is a required property", r#""required":["order"]"#] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn harness_r10_a_huge_bad_call_is_not_echoed() {
    let (_, message) = invalid("refund", &json!({ "note": "x".repeat(50_000), "order": ["y".repeat(9000)] }).to_string());
    assert!(message.len() < 2500, "{}", message.len());
}

#[test]
fn security_s16_unknown_fields_are_refused_and_nothing_becomes_an_empty_object() {
    for arguments in ["[]", "7", "{\"order\":", r#"{"order":1,"customer":"bob@example.com"}"#, "not json", ""] {
        invalid("order_status", arguments);
    }
}

proptest! {
    #[test]
    fn security_s16_whatever_is_sent_only_valid_arguments_are_ready(
        name in prop_oneof![Just("refund".to_owned()), Just("Order-Status".to_owned()), Just("cancel:1".to_owned()), any::<String>()],
        parts in proptest::collection::vec(
            prop_oneof![
                Just("{".to_owned()), Just("}".to_owned()), Just("\"order\":".to_owned()), Just("1".to_owned()), Just("\"2\"".to_owned()),
                Just(",".to_owned()), Just("None".to_owned()), Just("[".to_owned()), Just("]".to_owned()), any::<String>(),
            ],
            0..12,
        ),
        whole in any::<bool>(),
    ) {
        let arguments = if whole { format!("{{\"order\":{}", parts.concat()) } else { parts.concat() };
        let toolset = toolset();
        match toolset.resolve(&call(&name, &arguments)) {
            Resolved::Ready { tool, call, arguments, .. } => {
                let known = toolset.tools.get(&call.name).unwrap();
                prop_assert_eq!(&tool.spec().name, &call.name);
                prop_assert!(known.schema.problems(&arguments).is_empty());
            }
            Resolved::Invalid { message, .. } => prop_assert!(!message.is_empty() && message.len() < 16_384),
        }
    }
}
