//! Runs that do not go on by themselves: ended by the operator, or waiting for a model that cannot be asked.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::answers_mail::letter;
use crate::world::{ModelServer, Said, Wire, World};

/// A model that thinks about its first letter until it is released.
fn thinking() -> (ModelServer, Receiver<()>, Sender<()>) {
    let (reached, asked) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let model = ModelServer::start(Wire::Openai, move |asked| {
        if asked.number == 0 {
            reached.send(()).expect("the test waits for this");
            released.lock().unwrap().recv().expect("the test releases it");
        }
        Said::text("An answer.")
    });
    (model, asked, release)
}

/// A model that does not know our key, for so many requests.
fn refusing(times: usize) -> ModelServer {
    ModelServer::start(Wire::Openai, move |asked| if asked.number < times { Said::Status(401) } else { Said::text("An answer.") })
}

fn only_run(world: &World) -> String {
    let mut runs = world.rows("SELECT id FROM audit_runs", |row| row.get(0));
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

/// The run ended without a reply, and the letter says why.
#[track_caller]
fn is_cancelled(world: &World) {
    world.wait_for_count("SELECT count(*) FROM audit_runs WHERE status = 'cancelled' AND outcome = 'failed'", 1);
    assert_eq!(world.rows("SELECT reason FROM audit_letters", |row| row.get::<_, String>(0)), ["cancelled by the operator"]);
    assert_eq!(world.count("SELECT count(*) FROM audit_events WHERE kind = 'run.cancelled'"), 1);
    assert_eq!(world.count("SELECT count(*) FROM audit_outgoing WHERE kind = 'reply'"), 0);
}

#[test]
fn harness_k1_the_operator_ends_a_run_and_the_next_letter_is_answered() {
    let (model, asked, release) = thinking();
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("first", "Write me a very long story."));
    asked.recv().unwrap();
    let run = only_run(&world);
    assert!(world.command(&["run", &run, "--cancel"]).status.success());
    is_cancelled(&world);
    let again = world.command(&["run", &run, "--cancel"]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("has ended already"));

    world.mailbox().deliver(&letter("second", "Do you have pistachio?"));
    assert_eq!(world.sent().wait_for(1)[0].header("In-Reply-To").as_deref(), Some("<second@example.com>"));
    assert!(daemon.terminate().success());
    assert_eq!(world.sent().letters().len(), 1);
    release.send(()).unwrap();
}

#[test]
fn harness_k1_a_run_ended_while_no_daemon_runs_ends_at_the_next_start() {
    let (model, asked, release) = thinking();
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("first", "Write me a very long story."));
    asked.recv().unwrap();
    daemon.kill();
    release.send(()).unwrap();
    let told = world.command(&["run", &only_run(&world), "--cancel"]);
    assert!(told.status.success() && String::from_utf8_lossy(&told.stdout).contains("no daemon is running"));
    let daemon = world.start();
    is_cancelled(&world);
    assert!(daemon.terminate().success());
    assert_eq!(model.asked().len(), 1, "the model is not asked again");
    assert!(world.sent().letters().is_empty());
}

#[test]
fn harness_k1_a_run_that_waits_for_its_model_is_ended_too() {
    let model = refusing(usize::MAX);
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("first", "Do you have pistachio?"));
    world.sent().wait_for(1);
    assert!(world.command(&["run", &only_run(&world), "--cancel"]).status.success());
    is_cancelled(&world);
    assert!(daemon.terminate().success());
}

#[test]
fn harness_f9_a_wrong_key_is_told_at_once_and_the_letter_is_answered_when_it_is_right() {
    let model = refusing(1);
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("first", "Do you have pistachio?"));
    let told = &world.sent().wait_for(1)[0];
    assert!(told.header("To").is_some_and(|to| to.contains("owner@shop.example")));
    assert!(told.header("Subject").is_some_and(|subject| subject.contains("the model scripted does not answer")));
    assert_eq!(world.rows("SELECT status FROM audit_runs", |row| row.get::<_, String>(0)), ["running"], "the customer hears nothing of it");

    daemon.reload();
    let sent = world.sent().wait_for(2);
    assert!(sent.iter().any(|letter| letter.header("In-Reply-To").as_deref() == Some("<first@example.com>")));
    assert!(daemon.terminate().success());
    assert_eq!(model.asked().len(), 2);
}

#[test]
fn harness_f9_after_queue_age_the_fallback_reply_goes_out() {
    let model = refusing(usize::MAX);
    let world = World::on_maildir(&model);
    world.append("dutiful.toml", "\n[limits]\nqueue_age = \"1s\"\n");
    let daemon = world.start();
    world.mailbox().deliver(&letter("first", "Do you have pistachio?"));
    world.wait_for_count("SELECT count(*) FROM audit_runs WHERE status = 'done' AND outcome = 'fallback'", 1);
    world.wait_for_count("SELECT count(*) FROM audit_outgoing WHERE kind = 'reply' AND status = 'sent'", 1);
    let letters = world.sent().letters();
    let reply = letters.iter().find(|letter| letter.header("In-Reply-To").is_some()).unwrap();
    assert!(reply.text.contains("A person will answer you soon."));
    assert!(daemon.terminate().success());
}
