//! A letter gets its answer: dropped into a Maildir, answered into another.

use serde_json::json;

use crate::world::{ModelServer, Said, Wire, World};

/// A customer's letter with this id and text.
pub fn letter(id: &str, text: &str) -> String {
    format!(
        "From: Alice Example <alice@example.com>\nTo: Sundae <sundae@shop.example>\nSubject: Do you have pistachio?\n\
         Message-ID: <{id}@example.com>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\n\n{text}\n"
    )
}

fn answers_once_in_the_thread(wire: Wire) {
    let model = ModelServer::start(wire, |_| Said::text("Yes, pistachio is here **today**."));
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("first", "Do you have pistachio today?"));

    let answer = &world.sent().wait_for(1)[0];
    assert_eq!(answer.header("In-Reply-To").as_deref(), Some("<first@example.com>"));
    assert_eq!(answer.header("References").as_deref(), Some("<first@example.com>"));
    assert_eq!(answer.header("Subject").as_deref(), Some("Re: Do you have pistachio?"));
    assert_eq!(answer.header("Auto-Submitted").as_deref(), Some("auto-replied"));
    assert!(answer.header("From").is_some_and(|from| from.contains("Sundae") && from.contains("<sundae@shop.example>")));
    assert!(answer.header("To").is_some_and(|to| to.contains("alice@example.com")));
    assert!(answer.header("Content-Type").is_some_and(|kind| kind.starts_with("multipart/alternative")));
    assert!(answer.text.contains("pistachio is here") && answer.text.contains("<strong>today</strong>"), "{}", answer.text);

    assert!(daemon.terminate().success());
    assert_eq!(world.sent().letters().len(), 1);
    assert_eq!(model.asked().len(), 1);
    assert!(model.asked()[0].everything().contains("Do you have pistachio today?"));
}

#[test]
fn a_letter_is_answered_once_in_its_thread_over_the_openai_wire() {
    answers_once_in_the_thread(Wire::Openai);
}

#[test]
fn a_letter_is_answered_once_in_its_thread_over_the_anthropic_wire() {
    answers_once_in_the_thread(Wire::Anthropic);
}

#[test]
fn every_letter_stands_in_the_audit_views_with_its_verdict_and_its_run() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("Yes."));
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("asked", "Open today?"));
    world.mailbox().deliver(&letter("away", "I am away.").replace("Subject:", "Auto-Submitted: auto-replied\nSubject:"));
    world.sent().wait_for(1);
    world.wait_for_verdict("ignored", 1);
    assert!(daemon.terminate().success());

    let letters = world.rows("SELECT message_id, verdict, reason, run_id FROM audit_letters ORDER BY message_id", |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?, row.get::<_, Option<String>>(3)?))
    });
    assert_eq!(letters.len(), 2);
    let [(asked, accepted, _, run), (away, ignored, reason, no_run)] = letters.as_slice() else { panic!("{letters:?}") };
    assert!(asked.contains("asked@") && accepted == "accepted" && run.is_some(), "{letters:?}");
    assert!(away.contains("away@") && ignored == "ignored" && reason.is_some() && no_run.is_none(), "{letters:?}");
    let runs = world.rows("SELECT outcome FROM audit_runs", |row| row.get::<_, String>(0));
    assert_eq!(runs, ["answered"]);
    assert_eq!(world.sent().letters().len(), 1, "an automatic letter gets no answer");
}

#[test]
fn an_answer_is_made_from_what_a_tool_said() {
    let model = ModelServer::start(Wire::Anthropic, |asked| match asked.number {
        0 => Said::call("freezer", json!({ "flavour": "pistachio" })),
        _ if asked.everything().contains("three tubs") => Said::text("We have three tubs."),
        _ => Said::text("The tool said nothing."),
    });
    let world = World::on_maildir(&model);
    world.append(
        "dutiful.toml",
        "\n[tools.freezer]\ndescription = \"Looks into the freezer\"\ncommand = [\"/bin/sh\", \"-c\", \"cat >/dev/null; echo three tubs\"]\n\
         effect = \"pure\"\ninput = { type = \"object\", properties = { flavour = { type = \"string\" } }, required = [\"flavour\"] }\n",
    );
    world.append("agents/sundae.toml", "\n[tools]\neager = [\"freezer\"]\n");
    let daemon = world.start();
    world.mailbox().deliver(&letter("tool", "How much pistachio is left?"));
    let answer = &world.sent().wait_for(1)[0];
    assert!(answer.text.contains("three tubs"), "{}", answer.text);
    assert!(daemon.terminate().success());

    let calls = world.rows("SELECT name, status, round FROM audit_tool_calls", |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
    });
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].0.as_str(), calls[0].1.as_str()), ("freezer", "completed"));
}

#[test]
fn a_provider_that_is_down_for_a_moment_delays_the_answer_only() {
    let model = ModelServer::start(Wire::Openai, |asked| if asked.number == 0 { Said::Status(503) } else { Said::text("Here I am.") });
    let world = World::on_maildir(&model);
    let _daemon = world.start();
    world.mailbox().deliver(&letter("busy", "Hello?"));
    assert!(world.sent().wait_for(1)[0].text.contains("Here I am."));
}

#[test]
fn a_home_with_a_problem_is_refused_with_file_line_and_way_out() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("never asked"));
    let world = World::on_maildir(&model);
    world.append("agents/sundae.toml", "\n[budget]\nrun_tokens = \"many\"\n");
    world.append("dutiful.toml", "\n[limits]\nconcurent_runs = 3\n");
    let checked = world.command(&["check"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success());
    assert!(said.contains("agents/sundae.toml:") && said.contains("dutiful.toml:") && said.contains("concurrent_runs"), "{said}");
}
