//! What the daemon does on a real server besides reading: it marks letters, and keeps one copy of what it sent.

use crate::world::{Account, MailServers, ModelServer, Said, Wire, World};

fn letter(agent: &Account, alice: &Account, id: &str) -> String {
    format!(
        "From: Alice <{}>\nTo: <{}>\nSubject: Do you have pistachio?\nMessage-ID: <{id}@example.com>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\n\nDo you?\n",
        alice.address(),
        agent.address()
    )
}

#[test]
fn email_b13_letters_are_marked_with_our_keyword_and_stay_unread() {
    let Some(servers) = MailServers::shared() else { return };
    let (agent, alice) = (servers.account("agent"), servers.account("alice"));
    let model = ModelServer::start(Wire::Openai, |_| Said::text("Yes."));
    let world = World::on_servers(&model, &servers, &agent);
    let daemon = world.start();
    servers.send(&alice.address(), &agent.address(), &letter(&agent, &alice, "marked"));
    servers.inbox(&alice).wait_for(1);
    // Maildir flags are the letters after ":2,": S would be seen, a is the first keyword of the folder.
    servers.inbox(&agent).wait_for_name("its mark", |name| name.ends_with(":2,a"));
    let keywords = servers.inbox(&agent).read("dovecot-keywords");
    assert_eq!(keywords.trim(), "0 $Dutiful");
    assert!(daemon.terminate().success());
}

#[test]
fn email_b14_letters_are_moved_into_a_folder_that_is_made_for_them() {
    let Some(servers) = MailServers::shared() else { return };
    let (agent, alice) = (servers.account("agent"), servers.account("alice"));
    let model = ModelServer::start(Wire::Openai, |_| Said::text("Yes."));
    let world = World::on_servers(&model, &servers, &agent);
    world.edit("dutiful.toml", "agent = \"sundae\"\n", "agent = \"sundae\"\nafter_processing = \"move:Done & filed\"\n");
    let daemon = world.start();
    servers.send(&alice.address(), &agent.address(), &letter(&agent, &alice, "moved"));
    servers.inbox(&alice).wait_for(1);
    // Modified UTF-7, as it stands on the disk (email A18).
    let filed = servers.folder(&agent, "Done &- filed").wait_for(1);
    assert_eq!(filed[0].header("Message-ID").as_deref(), Some("<moved@example.com>"));
    assert!(servers.inbox(&agent).letters().is_empty());
    assert!(daemon.terminate().success());
}

#[test]
fn email_g14_one_copy_of_each_sent_letter_lies_in_sent_also_after_a_kill() {
    let Some(servers) = MailServers::shared() else { return };
    let (agent, alice) = (servers.account("agent"), servers.account("alice"));
    let model = ModelServer::start(Wire::Openai, |_| Said::text("Yes."));
    let world = World::on_servers(&model, &servers, &agent);
    let daemon = world.start();
    servers.send(&alice.address(), &agent.address(), &letter(&agent, &alice, "first"));
    servers.inbox(&alice).wait_for(1);
    // At once after the answer: its copy may be made, half made, or not begun.
    daemon.kill();
    let daemon = world.start();
    let sent = servers.folder(&agent, "Sent");
    sent.wait_for(1);
    servers.send(&alice.address(), &agent.address(), &letter(&agent, &alice, "second"));
    servers.inbox(&alice).wait_for(2);
    sent.wait_for(2);
    assert!(daemon.terminate().success());
    // A last start looks once more for what has no copy.
    assert!(world.start().terminate().success());
    let mut copies: Vec<_> = sent.letters().iter().map(|copy| copy.header("In-Reply-To").unwrap()).collect();
    copies.sort();
    assert_eq!(copies, ["<first@example.com>", "<second@example.com>"]);
    assert!(sent.names().iter().all(|name| name.ends_with('S')), "copies are read: {:?}", sent.names());
    assert_eq!(servers.inbox(&alice).letters().len(), 2);
}
