//! A letter gets its answer through a real Dovecot and a real Postfix, and a conversation goes on.

use serde_json::json;

use crate::world::{ModelServer, RealShop, Said, Wire};

fn is_answered_in_its_thread(wire: Wire) {
    let model = ModelServer::start(wire, |_| Said::text("Yes, we **do**."));
    let Some(shop) = RealShop::open(&model) else { return };
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("first", "Do you?").with("References", "<before@alice.example>"));

    let answer = &shop.wait_for_answers(1)[0];
    assert_eq!(answer.header("In-Reply-To").as_deref(), Some("<first@alice.example>"));
    assert_eq!(answer.header("References").as_deref(), Some("<before@alice.example> <first@alice.example>"));
    assert_eq!(answer.header("Subject").as_deref(), Some("Re: Do you have pistachio?"));
    assert_eq!(answer.header("Auto-Submitted").as_deref(), Some("auto-replied"));
    assert_eq!(answer.header("From"), Some(format!("Sundae <{}>", shop.agent.address())));
    assert!(answer.header("Content-Type").is_some_and(|kind| kind.starts_with("multipart/alternative")));
    assert!(answer.text.contains("Yes, we **do**.") && answer.text.contains("<strong>do</strong>"), "{}", answer.text);
    assert!(daemon.terminate().success());
    assert_eq!(shop.answers().len(), 1);
    assert_eq!(model.asked().len(), 1);
}

#[test]
fn a_letter_is_answered_in_its_thread_over_the_openai_wire() {
    is_answered_in_its_thread(Wire::Openai);
}

#[test]
fn a_letter_is_answered_in_its_thread_over_the_anthropic_wire() {
    is_answered_in_its_thread(Wire::Anthropic);
}

fn a_follow_up_is_answered_from_what_was_said_and_looked_up(wire: Wire) {
    let model = ModelServer::start(wire, |asked| match asked.number {
        0 => Said::call("freezer", json!({})),
        1 => Said::text("We have seven tubs."),
        _ => Said::text("As I said, seven."),
    });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.tool("freezer", "pure", "5s", "echo tubs in the freezer: 7");
    shop.world.grant(&["freezer"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("first", "How many tubs are left?"));
    let answer = &shop.wait_for_answers(1)[0];
    shop.hand_in(&shop.letter("second", "How many, again?").answering(answer));
    let answers = shop.wait_for_answers(2);
    assert!(daemon.terminate().success());

    let followed = answers.iter().find(|answer| answer.text.contains("As I said")).expect("the follow-up is answered");
    assert_eq!(followed.header("In-Reply-To").as_deref(), Some("<second@alice.example>"));
    assert!(followed.header("References").unwrap().starts_with("<first@alice.example> "));
    let shown = &model.asked()[2];
    for part in ["How many tubs are left?", "tubs in the freezer: 7", "We have seven tubs.", "How many, again?"] {
        assert!(shown.everything().contains(part), "the model was not shown {part:?}: {}", shown.everything());
    }
    let calls = |key: &str| shown.body["messages"].to_string().matches(key).count();
    let (call, result) = if wire == Wire::Openai { ("tool_calls", "tool_call_id") } else { ("\"tool_use\"", "\"tool_result\"") };
    assert_eq!((calls(call), calls(result)), (1, 1), "the earlier tool use is shown as such");
    assert_eq!(shop.world.count("SELECT count(DISTINCT thread_id) FROM audit_letters"), 1);
    assert_eq!(shop.world.letters()[1].1, "thread", "whoever knows our Message-ID got our letter");
}

#[test]
fn a_follow_up_is_answered_from_the_thread_over_the_openai_wire() {
    a_follow_up_is_answered_from_what_was_said_and_looked_up(Wire::Openai);
}

#[test]
fn a_follow_up_is_answered_from_the_thread_over_the_anthropic_wire() {
    a_follow_up_is_answered_from_what_was_said_and_looked_up(Wire::Anthropic);
}

#[test]
fn the_audit_views_alone_say_what_was_not_answered_what_a_run_cost_and_what_each_tool_did() {
    let model = ModelServer::start(Wire::Openai, |asked| match asked.number {
        0 => Said::Calls(vec![("freezer".to_owned(), json!({})), ("oven".to_owned(), json!({}))]),
        _ => Said::text("Seven."),
    });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.edit("dutiful.toml", "max_output = 4096", "max_output = 4096\nprice = { input = \"2.00\", output = \"5.00\" }");
    shop.world.tool("freezer", "pure", "5s", "echo seven tubs");
    shop.world.tool("oven", "pure", "5s", "echo broken >&2; exit 3");
    shop.world.grant(&["freezer", "oven"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("away", "I am away.").with("Auto-Submitted", "auto-replied"));
    shop.hand_in(&shop.letter("asked", "How many?"));
    shop.wait_for_answers(1);
    shop.world.wait_for_verdict("ignored", 1);
    assert!(daemon.terminate().success());

    let unanswered = shop.world.rows(
        "SELECT message_id, verdict, reason FROM audit_letters
         WHERE received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 day')
             AND NOT EXISTS (SELECT 1 FROM audit_outgoing o WHERE o.run_id = audit_letters.run_id AND o.kind = 'reply' AND o.status = 'sent')",
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)),
    );
    let [(id, verdict, reason)] = unanswered.as_slice() else { panic!("{unanswered:?}") };
    assert!(id.contains("away@") && verdict == "ignored" && !reason.is_empty(), "{unanswered:?}");

    // Two calls of 100 tokens in and 20 out: 2 × (100 × 2 + 20 × 5) millionths.
    let costs = shop.world.rows("SELECT rounds, input_tokens, output_tokens, cost, outcome FROM audit_runs", |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?, row.get::<_, String>(4)?))
    });
    assert_eq!(costs, [(1, 200, 40, 600, "answered".to_owned())]);

    let calls = shop.world.tool_calls();
    let [(freezer, completed, tubs), (oven, failed, error)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((freezer.as_str(), completed.as_str(), tubs.trim()), ("freezer", "completed", "seven tubs"));
    assert_eq!((oven.as_str(), failed.as_str()), ("oven", "failed"));
    assert!(error.contains("broken"), "{error}");
}
