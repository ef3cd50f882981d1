//! Fragments as real servers send them.

use serde_json::json;

use super::*;

/// Feeds deltas; gives id, name and arguments of each call.
fn calls(deltas: &[Value], fragmented_names: bool) -> Vec<(String, String, String)> {
    let mut calls = Calls::default();
    for delta in deltas {
        calls.take(delta.as_array().unwrap(), fragmented_names);
    }
    calls.into_slots().map(|slot| (slot.id, slot.name, slot.arguments)).collect()
}

fn expect(deltas: &[Value], expected: &[(&str, &str, &str)]) {
    let found = calls(deltas, false);
    let found: Vec<_> = found.iter().map(|(id, name, arguments)| (id.as_str(), name.as_str(), arguments.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn harness_w4_index_keeps_a_call_together() {
    expect(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": ""}}]),
            json!([{"index": 1, "id": "b", "function": {"name": "y", "arguments": "{\"k\""}}]),
            json!([{"index": 0, "function": {"arguments": "{}"}}, {"index": 1, "function": {"arguments": ":1}"}}]),
        ],
        &[("a", "x", "{}"), ("b", "y", "{\"k\":1}")],
    );
}

#[test]
fn harness_w4_same_index_with_new_id_and_name_is_a_new_call() {
    expect(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]),
            json!([{"index": 0, "id": "b", "function": {"name": "x", "arguments": "{\"n\":"}}]),
            json!([{"index": 0, "function": {"arguments": "2}"}}]),
        ],
        &[("a", "x", "{}"), ("b", "x", "{\"n\":2}")],
    );
}

#[test]
fn harness_w4_an_id_in_every_chunk_is_one_call() {
    expect(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"n\""}}]),
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": ":1}"}}]),
        ],
        &[("a", "x", "{\"n\":1}")],
    );
    // Without a name, even another id belongs to the call of that index.
    expect(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{"}}]),
            json!([{"index": 0, "id": "other", "function": {"arguments": "}"}}]),
        ],
        &[("a", "x", "{}")],
    );
}

#[test]
fn harness_w4_without_index_the_id_decides() {
    expect(
        &[
            json!([{"id": "a", "function": {"name": "x", "arguments": "{"}}]),
            json!([{"id": "b", "function": {"name": "x", "arguments": "{}"}}]),
            json!([{"id": "a", "function": {"arguments": "}"}}]),
        ],
        &[("a", "x", "{}"), ("b", "x", "{}")],
    );
}

#[test]
fn harness_w4_without_index_and_id_a_name_after_complete_json_begins() {
    expect(
        &[
            json!([{"function": {"name": "x", "arguments": "{\"n\":1}"}}]),
            json!([{"function": {"name": "x", "arguments": "{\"n\""}}]),
            json!([{"function": {"arguments": ":2}"}}]),
        ],
        &[("", "x", "{\"n\":1}"), ("", "x", "{\"n\":2}")],
    );
}

#[test]
fn harness_w4_several_in_one_delta_go_by_position() {
    expect(
        &[
            json!([{"function": {"name": "x", "arguments": "{"}}, {"function": {"name": "x", "arguments": "["}}]),
            json!([{"function": {"arguments": "}"}}, {"function": {"arguments": "]"}}]),
        ],
        &[("", "x", "{}"), ("", "x", "[]")],
    );
}

#[test]
fn harness_w4_odd_indexes_are_keys() {
    for index in [-1_i64, 1, 7, i64::MAX] {
        expect(
            &[
                json!([{"index": index, "id": "a", "function": {"name": "x", "arguments": "{"}}]),
                json!([{"index": index, "function": {"arguments": "}"}}]),
            ],
            &[("a", "x", "{}")],
        );
    }
}

#[test]
fn harness_w4_empty_strings_never_overwrite() {
    expect(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]),
            json!([{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}]),
            json!([{"index": 0, "id": null, "function": {"name": null, "arguments": null}}]),
        ],
        &[("a", "x", "{}")],
    );
}

#[test]
fn harness_w4_an_object_replaces_and_a_repetition_is_dropped() {
    expect(
        &[
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"n\":"}}]),
            json!([{"index": 0, "function": {"arguments": {"n": 5}}}]),
            json!([{"index": 0, "function": {"arguments": "{\"n\":5}"}}]),
        ],
        &[("a", "x", "{\"n\":5}")],
    );
}

#[test]
fn harness_w4_names_in_pieces_only_by_quirk() {
    let deltas = [
        json!([{"index": 0, "id": "a", "function": {"name": "look"}}]),
        json!([{"index": 0, "function": {"name": "_up", "arguments": "{}"}}]),
    ];
    assert_eq!(calls(&deltas, true)[0].1, "look_up");
    assert_eq!(calls(&deltas, false)[0].1, "look");
    let repeated = [deltas[0].clone(), deltas[0].clone()];
    assert_eq!(calls(&repeated, true)[0].1, "look", "an equal name is a repetition");
}

#[test]
fn harness_w4_shells_and_nonsense_are_no_calls() {
    expect(&[json!([{"index": 0}, 5, null, "x", {"function": []}])], &[]);
}
