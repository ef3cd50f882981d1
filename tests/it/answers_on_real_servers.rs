//! A letter gets its answer through a real Dovecot and a real Postfix.

use crate::world::{MailServers, ModelServer, Said, Wire, World};

fn letter(to: &str, from: &str, id: &str) -> String {
    format!(
        "From: Alice <{from}>\nTo: <{to}>\nSubject: Do you have pistachio?\nMessage-ID: <{id}@example.com>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\n\nDo you?\n"
    )
}

#[test]
fn a_letter_is_answered_over_imap_and_submission() {
    let Some(servers) = MailServers::shared() else { return };
    let (agent, alice) = (servers.account("agent"), servers.account("alice"));
    let model = ModelServer::start(Wire::Openai, |_| Said::text("Yes, we do."));
    let world = World::on_servers(&model, &servers, &agent);
    let daemon = world.start();
    servers.send(&alice.address(), &agent.address(), &letter(&agent.address(), &alice.address(), "real"));

    let answer = &servers.inbox(&alice).wait_for(1)[0];
    assert_eq!(answer.header("In-Reply-To").as_deref(), Some("<real@example.com>"));
    assert_eq!(answer.header("Auto-Submitted").as_deref(), Some("auto-replied"));
    assert!(answer.text.contains("Yes, we do."));
    assert!(daemon.terminate().success());
    assert_eq!(servers.inbox(&alice).letters().len(), 1);
}

#[test]
fn dovecot_and_postfix_go_down_and_come_back_and_nothing_is_lost_or_sent_twice() {
    let Some(servers) = MailServers::own() else { return };
    let (agent, alice) = (servers.account("agent"), servers.account("alice"));
    let model = ModelServer::start(Wire::Openai, |_| Said::text("Yes, we do."));
    let world = World::on_servers(&model, &servers, &agent);
    let daemon = world.start();

    servers.control("stop-imap");
    servers.send(&alice.address(), &agent.address(), &letter(&agent.address(), &alice.address(), "imap-down"));
    servers.control("start-imap");
    servers.control("flush");
    servers.inbox(&alice).wait_for(1);

    servers.send(&alice.address(), &agent.address(), &letter(&agent.address(), &alice.address(), "smtp-down"));
    servers.inbox(&agent).wait_for(2);
    servers.control("stop-smtp");
    servers.control("start-smtp");
    let answers = servers.inbox(&alice).wait_for(2);
    assert!(daemon.terminate().success());

    let mut answered: Vec<_> = answers.iter().map(|answer| answer.header("In-Reply-To").unwrap()).collect();
    answered.sort();
    assert_eq!(answered, ["<imap-down@example.com>", "<smtp-down@example.com>"]);
}
