//! Nobody is answered who is a machine: each such letter is kept with its reason.

use crate::world::{Letter, ModelServer, RealShop, Said, Wire};

#[test]
fn email_f1_an_out_of_office_a_list_a_bounce_and_our_own_echo_get_no_answer_and_a_reason() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("An answer."));
    let Some(shop) = RealShop::open(&model) else { return };
    let agent = shop.agent.address();
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("human", "Hello?"));
    let answer = &shop.wait_for_answers(1)[0];

    shop.hand_in(&shop.letter("away", "I am away until Monday.").answering(answer).with("Auto-Submitted", "auto-replied"));
    shop.hand_in(&shop.letter("list", "News of the week.").with("List-Id", "<news.lists.example>").with("Precedence", "list"));
    // Alice's server sends our own letter back to us.
    shop.servers.send(&shop.alice.address(), &agent, &answer.text.replace("\r\n", "\n"));
    // Postfix takes the answer to this customer, and then has to say that nobody is there.
    let nobody = Letter::new("nobody@bounce.test", &agent, "bouncing@bounce.test", "Will you reach me?");
    shop.servers.send("nobody@bounce.test", &agent, &nobody.to_string());
    shop.world.wait_for_verdict("ignored", 4);
    // One more letter of a person shows that all before it is dealt with.
    shop.hand_in(&shop.letter("human-too", "Still there?"));
    shop.wait_for_answers(2);
    assert!(daemon.terminate().success());

    let letters = shop.world.letters();
    let reason_of = |part: &str| {
        let found = letters.iter().find(|(id, ..)| id.contains(part)).unwrap_or_else(|| panic!("{part}: {letters:?}"));
        assert_eq!((found.1.as_str(), found.2.as_str()), ("machine", "ignored"), "{found:?}");
        found.3.clone()
    };
    assert!(reason_of("away@").to_lowercase().contains("auto"), "{letters:?}");
    assert!(reason_of("list@").to_lowercase().contains("list"), "{letters:?}");
    assert_eq!(reason_of(answer.header("Message-ID").unwrap().trim_matches(['<', '>'])), "own echo");
    let bounced =
        letters.iter().filter(|(_, identity, verdict, reason)| identity == "machine" && verdict == "ignored" && reason.contains("bounce"));
    assert_eq!(bounced.count(), 1, "{letters:?}");

    assert_eq!(model.asked().len(), 3, "only people have runs");
    assert_eq!(shop.world.count("SELECT count(*) FROM audit_outgoing WHERE kind = 'reply'"), 3);
    assert_eq!(shop.answers().len(), 2);
}
