//! A letter that waits for a person: it is rewritten, and leaves only when the person says so.

use crate::answers_mail::letter;
use crate::world::{ModelServer, Said, Wire, World};

#[test]
fn email_g19_a_held_letter_leaves_with_the_operators_words_once_it_is_approved() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("The model's words."));
    let world = World::on_maildir(&model);
    world.append("agents/sundae.toml", "[outgoing]\nhold = \"always\"\n");
    let daemon = world.start();
    world.mailbox().deliver(&letter("held", "Do you have pistachio?"));
    world.wait_for_count("SELECT count(*) FROM audit_outgoing WHERE status = 'held'", 1);
    let id = world.count("SELECT id FROM audit_outgoing").to_string();

    world.write("answer.md", "A **person's** words.\n");
    let file = world.path("answer.md");
    world.done(&["outbox", &id, "--edit", file.to_str().unwrap()]);
    assert!(world.sent().letters().is_empty(), "an edited letter is still held");
    world.done(&["outbox", &id, "--approve"]);
    let sent = &world.sent().wait_for(1)[0];
    assert!(sent.text.contains("<strong>person's</strong>") && !sent.text.contains("model's words"), "{}", sent.text);
    assert_eq!(sent.header("In-Reply-To").as_deref(), Some("<held@example.com>"));
    assert_eq!(
        sent.header("Message-ID"),
        world.rows("SELECT message_id FROM audit_outgoing", |row| Ok(format!("<{}>", row.get::<_, String>(0)?))).pop()
    );

    let late = world.command(&["outbox", &id, "--edit", file.to_str().unwrap()]);
    assert!(!late.status.success() && String::from_utf8_lossy(&late.stderr).contains("not held"));
    assert!(daemon.terminate().success());
}
