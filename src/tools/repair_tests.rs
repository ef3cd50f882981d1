use proptest::prelude::*;
use serde_json::json;

use super::*;

const KNOWN: [&str; 5] = ["order_status", "send_email", "a-b", "a_b", "crm__lookup"];

#[test]
fn names_are_put_right_in_order_and_never_guessed() {
    for (written, meant) in [
        ("order_status", Some("order_status")),
        (" order_status\n", Some("order_status")),
        ("order_status<|channel|>commentary", Some("order_status")),
        ("functions.order_status", Some("order_status")),
        ("functions.order_status:3", Some("order_status")),
        ("tool:order_status", Some("order_status")),
        ("Order-Status", Some("order_status")),
        ("ORDER STATUS", Some("order_status")),
        ("functions.Send-Email:0", Some("send_email")),
        ("a-b", Some("a-b")),
        ("a b", None),
        ("A_B", None),
        ("order_statu", None),
        ("orders_status", None),
        ("status", None),
        ("", None),
        ("<|", None),
    ] {
        assert_eq!(name(written, &KNOWN), meant, "{written:?}");
    }
}

#[test]
fn harness_r1_the_nearest_name_is_a_hint_only() {
    assert_eq!(nearest("order_statu", &KNOWN), Some("order_status"));
    assert_eq!(nearest("sendmail", &KNOWN), Some("send_email"));
    assert_eq!(nearest("weather", &KNOWN), None);
    assert_eq!(nearest("x", &[]), None);
}

fn object(raw: &str) -> (Value, bool, bool) {
    let found = arguments(raw).unwrap_or_else(|error| panic!("{raw}: {error}"));
    (Value::Object(found.object), !found.repairs.is_empty(), found.closed)
}

#[test]
fn harness_r4_nothing_is_an_empty_object() {
    for raw in ["", "  \n", "null", "{}"] {
        assert_eq!(object(raw), (json!({}), false, false), "{raw:?}");
    }
}

#[test]
fn harness_r5_an_object_inside_a_string_is_unwrapped_once() {
    assert_eq!(object(r#""{\"a\":1}""#), (json!({ "a": 1 }), true, false));
    assert!(arguments(r#""\"{}\"""#).is_err());
    assert!(arguments(r#""text""#).is_err());
}

#[test]
fn harness_r6_what_is_no_object_is_refused() {
    for raw in ["[1]", "5", "true", "\"\"", "[{\"a\":1}]"] {
        assert!(arguments(raw).unwrap_err().contains("an object is needed"), "{raw}");
    }
}

#[test]
fn harness_r7_only_identical_objects_collapse() {
    assert_eq!(object(r#"{"a":1}{"a":1}"#), (json!({ "a": 1 }), true, false));
    assert_eq!(object("{\"a\":1}\n{ \"a\": 1 }{\"a\":1}"), (json!({ "a": 1 }), true, false));
    for raw in [r#"{"a":1}{"a":2}"#, r#"{}{"a":1}"#, r#"{"a":1}{"a":1"#, r#"{"a":1} and {"b":2}"#] {
        assert!(arguments(raw).unwrap_err().contains("object"), "{raw}");
    }
}

#[test]
fn harness_r8_deterministic_repairs() {
    for (raw, meant) in [
        (r#"{"a":1}<|tool_call_end|>"#, json!({ "a": 1 })),
        (r#"{"a":1}}"#, json!({ "a": 1 })),
        ("```json\n{\"a\":1}\n```", json!({ "a": 1 })),
        (r#"{"a":[1,2,],}"#, json!({ "a": [1, 2] })),
        ("{\"a\":\"x\ny\tz\"}", json!({ "a": "x\ny\tz" })),
        (r#"{"a":True,"b":None,"c":[False]}"#, json!({ "a": true, "b": null, "c": [false] })),
        (r#"{"a":"True, None,}"}x"#, json!({ "a": "True, None,}" })),
    ] {
        assert_eq!(object(raw), (meant, true, false), "{raw}");
    }
}

#[test]
fn harness_r8_closing_brackets_are_added_and_marked() {
    assert_eq!(object(r#"{"a":{"b":[1,{"c":"x"}"#), (json!({ "a": { "b": [1, { "c": "x" }] } }), true, true));
    for raw in [r#"{"a":"x"#, r#"{"a":"#, r#"{"a":1,"#, r#"{"a""#, r#"{"a":tru"#, r#"{"a":[1}"#, r#"{"a":"\"#, r#"{"a":"\ud83d"}"#] {
        assert!(arguments(raw).is_err(), "{raw}");
    }
}

#[test]
fn security_s16_size_and_depth_are_bounded() {
    let long = json!({ "a": "x".repeat(ARGUMENT_BYTES) }).to_string();
    assert!(arguments(&long).unwrap_err().contains("at most 65536"));
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(arguments(&nested(DEPTH - 1)).is_ok());
    assert!(arguments(&nested(DEPTH)).unwrap_err().contains("nested"));
    assert!(arguments(&nested(20_000)).is_err());
}

proptest! {
    #[test]
    fn harness_r8_repair_never_panics(text in any::<String>(), parts in proptest::collection::vec(
        prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just("\""), Just("\\"), Just(","), Just(":"), Just("```"), Just("True"),
            Just("None"), Just("\u{1}"), Just("1"), Just("ä"), Just(" "),
        ],
        0..40,
    )) {
        drop(arguments(&text));
        for found in [name(&text, &KNOWN), nearest(&text, &KNOWN)] {
            prop_assert!(found.is_none_or(|found| KNOWN.contains(&found)));
        }
        drop(arguments(&format!("{{{}", parts.concat())));
    }

    #[test]
    fn valid_objects_are_taken_as_they_are(text in any::<String>(), number in any::<i64>()) {
        let value = json!({ "text": text, "list": [number, { "deep": null }] });
        let found = arguments(&value.to_string()).unwrap();
        prop_assert_eq!(Value::Object(found.object), value);
        prop_assert!(found.repairs.is_empty() && !found.closed);
    }
}
