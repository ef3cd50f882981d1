//! Exactly one answer, whatever happens to the process.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::json;

use crate::answers_mail::letter;
use crate::world::{ModelServer, Said, Wire, World};

#[test]
fn email_a9_the_first_start_answers_nothing_old_and_a_restart_answers_what_came_while_down() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("An answer."));
    let world = World::on_maildir(&model);
    world.mailbox().deliver(&letter("long-ago", "I wrote before there was an agent."));
    assert!(world.start().terminate().success());

    world.mailbox().deliver(&letter("while-down", "I wrote while it was down."));
    let daemon = world.start();
    let answer = &world.sent().wait_for(1)[0];
    assert_eq!(answer.header("In-Reply-To").as_deref(), Some("<while-down@example.com>"));
    // A last letter proves that everything before it has been looked at.
    world.mailbox().deliver(&letter("last", "And one more."));
    world.sent().wait_for(2);
    assert!(daemon.terminate().success());

    assert_eq!(world.sent().letters().len(), 2);
    assert!(model.asked().iter().all(|asked| !asked.everything().contains("before there was an agent")));
}

#[test]
fn a_kill_in_the_middle_of_a_run_leaves_one_answer() {
    let (reached, kill_now) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let model = ModelServer::start(Wire::Openai, move |asked| {
        if asked.number == 0 {
            reached.send(()).expect("the test waits for this");
            // Answers only after the daemon that asked is dead.
            released.lock().unwrap().recv().expect("the test releases it");
        }
        Said::text("The one answer.")
    });
    let world = World::on_maildir(&model);
    let daemon = world.start();
    world.mailbox().deliver(&letter("killed", "Are you there?"));
    kill_now.recv().unwrap();
    daemon.kill();
    release.send(()).unwrap();

    let daemon = world.start();
    world.sent().wait_for(1);
    world.mailbox().deliver(&letter("afterwards", "A second letter."));
    world.sent().wait_for(2);
    assert!(daemon.terminate().success());

    let mut answered: Vec<_> = world.sent().letters().iter().map(|answer| answer.header("In-Reply-To").unwrap()).collect();
    answered.sort();
    assert_eq!(answered, ["<afterwards@example.com>", "<killed@example.com>"]);
}

#[test]
fn harness_k2_told_to_end_in_the_middle_of_a_run_it_goes_on_after_the_restart_and_answers_once() {
    let (reached, end_now) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let model = ModelServer::start(Wire::Anthropic, move |asked| match asked.number {
        0 => Said::call("stamp", json!({})),
        1 => {
            reached.send(()).expect("the test waits for this");
            // Answers only after the daemon was told to end: that answer is kept, or asked for again.
            released.lock().unwrap().recv().expect("the test releases it");
            Said::text("The one answer.")
        }
        _ => Said::text("The one answer."),
    });
    let world = World::on_maildir(&model);
    world.tool("stamp", "effectful", "5s", "echo stamped >> stamps; echo stamped");
    world.grant(&["stamp"]);
    let daemon = world.start();
    world.mailbox().deliver(&letter("ended", "Are you there?"));
    end_now.recv().unwrap();
    daemon.ask_to_end();
    release.send(()).unwrap();
    assert!(daemon.wait_for_its_end().success());

    let daemon = world.start();
    world.mailbox().deliver(&letter("afterwards", "A second letter."));
    world.sent().wait_for(2);
    assert!(daemon.terminate().success());
    let mut answered: Vec<_> = world.sent().letters().iter().map(|answer| answer.header("In-Reply-To").unwrap()).collect();
    answered.sort();
    assert_eq!(answered, ["<afterwards@example.com>", "<ended@example.com>"]);
    assert_eq!(world.read("stamps").lines().count(), 1);
    assert_eq!(world.count("SELECT count(*) FROM audit_runs WHERE outcome = 'answered'"), 2);
}

#[test]
fn a_second_daemon_on_the_same_store_is_refused() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("An answer."));
    let world = World::on_maildir(&model);
    let _daemon = world.start();
    let second = world.command(&["serve"]);
    assert!(!second.status.success());
}
