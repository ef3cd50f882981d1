//! The suite's own ground: the scripted model refuses what it should, and the mail servers carry a letter.

use serde_json::{Value, json};

use crate::world::{MailServers, Wire, examine};

fn refused(wire: Wire, body: &Value) -> String {
    examine(wire, body).map_or_else(|refusal| refusal.message, |()| String::new())
}

fn openai(messages: &Value) -> Value {
    json!({ "model": "m", "stream": true, "messages": messages })
}

fn anthropic(messages: &Value) -> Value {
    json!({ "model": "m", "stream": true, "max_tokens": 100, "messages": messages })
}

#[test]
fn the_scripted_model_refuses_what_a_provider_of_the_openai_wire_refuses() {
    let call = |id: &str| json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": id, "type": "function", "function": { "name": "look", "arguments": "{}" } }] });
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "seen" });
    let user = json!({ "role": "user", "content": "hello" });
    let refused = |messages: Value| refused(Wire::Openai, &openai(&messages));

    assert_eq!(refused(json!([user, call("a"), result("a")])), "");
    assert!(refused(json!([])).contains("at least one"));
    assert!(refused(json!([user, call("a")])).contains("without a result"));
    assert!(refused(json!([user, call("a"), user])).contains("without a result"));
    assert!(refused(json!([user, result("a")])).contains("waits for none"));
    assert!(refused(json!([user, call("a"), result("a"), result("a")])).contains("waits for none"));
    assert!(refused(json!([user, call("a"), result("a"), call("a"), result("a")])).contains("used twice"));
    assert!(refused(json!([{ "role": "user", "content": " " }])).contains("is empty"));
    assert!(refused(json!([user, { "role": "assistant", "content": "hm" }])).contains("the last one"));
}

#[test]
fn the_scripted_model_refuses_what_a_provider_of_the_anthropic_wire_refuses() {
    let call = |id: &str| json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "look", "input": {} }] });
    let result = |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "seen" }] });
    let user = json!({ "role": "user", "content": "hello" });
    let refused = |messages: Value| refused(Wire::Anthropic, &anthropic(&messages));

    assert_eq!(refused(json!([user, call("a"), result("a")])), "");
    assert!(refused(json!([user, call("a"), user])).contains("without tool_result"));
    assert!(refused(json!([user, call("a"), result("b")])).contains("waits for none"));
    assert!(refused(json!([call("a"), result("a")])).contains("first one"));
    assert!(refused(json!([user, { "role": "assistant", "content": "hm" }])).contains("last one"));
    assert!(refused(json!([{ "role": "user", "content": [{ "type": "text", "text": "" }] }])).contains("non-empty"));
    let unlimited = json!({ "model": "m", "stream": true, "messages": [user] });
    assert!(examine(Wire::Anthropic, &unlimited).is_err_and(|refusal| refusal.message.contains("max_tokens")));
}

#[test]
fn the_scripted_model_refuses_bad_tools() {
    let with = |tools: Value| {
        let mut body = anthropic(&json!([{ "role": "user", "content": "hello" }]));
        body["tools"] = tools;
        refused(Wire::Anthropic, &body)
    };
    assert_eq!(with(json!([{ "name": "look", "input_schema": { "type": "object" } }])), "");
    assert!(with(json!([{ "name": "look at", "input_schema": { "type": "object" } }])).contains("no name"));
    assert!(with(json!([{ "name": "look", "input_schema": { "type": "string" } }])).contains("not an object"));
    let twice = json!({ "name": "look", "input_schema": { "type": "object" } });
    assert!(with(json!([twice, twice])).contains("twice"));
}

#[test]
fn a_letter_goes_from_a_stranger_through_postfix_into_dovecot_and_both_can_stop_and_start() {
    let Some(servers) = MailServers::own() else { return };
    let alice = servers.account("alice");
    let letter = "From: <bob@other.test>\nTo: <alice@example.test>\nSubject: One\nMessage-ID: <one@other.test>\n\n.a line with a dot\n";
    servers.send("bob@other.test", &alice.address(), letter);
    let arrived = &servers.inbox(&alice).wait_for(1)[0];
    assert_eq!(arrived.header("Message-ID").as_deref(), Some("<one@other.test>"));
    assert!(arrived.text.contains("\n.a line with a dot"));

    servers.control("stop-imap");
    servers.send("bob@other.test", &alice.address(), letter);
    servers.control("stop-smtp");
    servers.control("start-imap");
    servers.control("start-smtp");
    servers.control("flush");
    servers.inbox(&alice).wait_for(2);
}
