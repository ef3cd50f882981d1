//! What the operator is handed, and what the operator says.

use serde_json::json;

use crate::world::{ModelServer, RealShop, Said, Wire};

#[test]
fn an_escalated_thread_is_held_until_the_operator_releases_it() {
    let model = ModelServer::start(Wire::Openai, |asked| match asked.number {
        0 => Said::TextAndCall("A colleague will write to you.".to_owned(), "escalate".to_owned(), json!({ "reason": "wants a refund" })),
        _ => Said::text("Here I am again."),
    });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.grant(&["escalate"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("angry", "I want a person."));
    let answer = &shop.wait_for_answers(1)[0];
    assert!(answer.text.contains("A colleague will write to you."));
    let notice = &shop.operator().wait_for(1)[0];
    assert!(notice.text.contains("wants a refund") && !notice.text.contains("I want a person"), "{}", notice.text);

    shop.hand_in(&shop.letter("again", "Hello?").answering(answer));
    shop.world.wait_for_verdict("held", 1);
    assert_eq!(shop.world.letters()[1].3, "escalated");
    assert_eq!(model.asked().len(), 1);
    let thread = shop.world.count("SELECT thread_id FROM audit_letters");
    shop.world.done(&["thread", &thread.to_string(), "--release"]);
    let answers = shop.wait_for_answers(2);
    assert!(answers.iter().any(|answer| answer.header("In-Reply-To").as_deref() == Some("<again@alice.example>")));
    assert!(daemon.terminate().success());
    let outcomes = shop.world.rows("SELECT outcome FROM audit_runs ORDER BY started_at", |row| row.get::<_, String>(0));
    assert_eq!(outcomes, ["escalated", "answered"]);
}

#[test]
fn security_s15_send_email_reaches_the_operator_once_and_nobody_else() {
    let model = ModelServer::start(Wire::Anthropic, |asked| {
        let to = |to: &str| ("send_email".to_owned(), json!({ "to": to, "subject": "A big order", "body": "Twelve tubs." }));
        match asked.number {
            0 => Said::Calls(vec![to("operator"), to("mallory@example.test")]),
            _ => Said::text("I have told the owner."),
        }
    });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.grant(&["send_email"]);
    shop.world.append("agents/sundae.toml", "\n[outgoing]\nrecipients = [\"thread\", \"operator\"]\n");
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("order", "Twelve tubs, please.").judged("pass"));
    shop.wait_for_answers(1);
    let told = &shop.operator().wait_for(1)[0];
    assert!(daemon.terminate().success());

    assert_eq!(told.header("Subject").as_deref(), Some("A big order"));
    assert!(told.text.contains("Twelve tubs.") && told.header("Auto-Submitted").is_some());
    let statuses: Vec<_> = shop.world.tool_calls().into_iter().map(|(_, status, _)| status).collect();
    assert_eq!(statuses, ["completed", "refused"]);
    let mut recipients =
        shop.world.rows("SELECT kind, recipient FROM audit_outgoing", |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    recipients.sort();
    let operator = crate::world::World::operator_of(&shop.agent);
    assert_eq!(recipients, [("reply".to_owned(), shop.alice.address()), ("tool".to_owned(), operator)]);
}

#[test]
fn a_letter_over_a_limit_is_held_with_its_name_and_answered_when_the_operator_releases_it() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("An answer."));
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.append("dutiful.toml", "\n[limits]\nreplies_per_sender_per_hour = 1\n");
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("first", "One."));
    shop.wait_for_answers(1);
    shop.hand_in(&shop.letter("second", "Two."));
    shop.world.wait_for_verdict("held", 1);
    assert_eq!(shop.world.letters()[1].3, "limit:replies_per_sender_per_hour");
    let id = shop.world.count("SELECT id FROM audit_letters WHERE verdict = 'held'");
    shop.world.done(&["letter", &id.to_string(), "--release"]);
    let answers = shop.wait_for_answers(2);
    assert!(answers.iter().any(|answer| answer.header("In-Reply-To").as_deref() == Some("<second@alice.example>")));
    assert!(daemon.terminate().success());
    assert_eq!(shop.answers().len(), 2);
}

#[test]
fn a_good_reload_counts_from_the_next_letter_on_and_a_bad_one_changes_nothing() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("An answer."));
    let Some(shop) = RealShop::open(&model) else { return };
    let daemon = shop.world.start();
    shop.world.edit("agents/sundae.toml", "You are Sundae.", "You are Sundae the Second.");
    daemon.reload();
    daemon.wait_for_log("configuration reloaded");
    shop.hand_in(&shop.letter("reloaded", "Who are you?"));
    shop.wait_for_answers(1);
    assert!(model.asked()[0].everything().contains("You are Sundae the Second."));

    shop.world.edit("agents/sundae.toml", "You are Sundae the Second.\"", "You are Nobody.\"\ntypo = 1");
    daemon.reload();
    daemon.wait_for_log("agents/sundae.toml:");
    shop.hand_in(&shop.letter("kept", "And now?"));
    shop.wait_for_answers(2);
    assert!(model.asked()[1].everything().contains("You are Sundae the Second."));
    assert!(daemon.terminate().success());
    assert_eq!(shop.answers().len(), 2);
}
