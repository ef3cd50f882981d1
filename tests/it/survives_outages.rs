//! Mail servers that stop, cut, forget or refuse: nothing is lost, nothing comes twice, and nobody spins.

use std::time::{Duration, Instant};

use crate::world::{Arrived, Daemon, ModelServer, RealShop, Said, Wire};

fn answering() -> ModelServer {
    ModelServer::start(Wire::Openai, |_| Said::text("Yes, we do."))
}

/// The letters that were answered, in order.
fn answered(answers: &[Arrived]) -> Vec<String> {
    let mut ids: Vec<String> =
        answers.iter().map(|answer| answer.header("In-Reply-To").unwrap().trim_matches(['<', '>']).replace("@alice.example", "")).collect();
    ids.sort();
    ids
}

/// Watches over a stretch of work: how much of a processor the daemon took.
struct Effort<'a> {
    daemon: &'a Daemon,
    before: u64,
    began: Instant,
}

impl<'a> Effort<'a> {
    fn of(daemon: &'a Daemon) -> Effort<'a> {
        Effort { daemon, before: daemon.processor_time(), began: Instant::now() }
    }

    /// A busy loop takes all of one.
    #[track_caller]
    fn was_small(&self) {
        let (used, took) = (self.daemon.processor_time() - self.before, self.began.elapsed());
        assert!(u128::from(used) * 10 < took.as_millis() / 3 + 200, "{used} hundredths of a second of processor time in {took:?}");
    }
}

#[test]
fn dovecot_stops_starts_and_cuts_and_every_letter_is_answered_once() {
    let model = answering();
    let Some(shop) = RealShop::open_with_own_servers(&model) else { return };
    let daemon = shop.world.start();
    let effort = Effort::of(&daemon);

    shop.servers.control("stop-imap");
    shop.hand_in(&shop.letter("imap-down", "Do you?"));
    shop.servers.control("start-imap");
    shop.servers.control("flush");
    shop.wait_for_answers(1);

    let logins = shop.servers.imap_log_lines(&["Login: "]);
    for _ in 0..2 {
        shop.servers.control("cut-imap");
    }
    shop.hand_in(&shop.letter("cut", "And you?"));
    shop.wait_for_answers(2);
    let logins = shop.servers.imap_log_lines(&["Login: "]) - logins;
    effort.was_small();
    assert!(daemon.terminate().success());

    assert_eq!(answered(&shop.answers()), ["cut", "imap-down"]);
    assert!(logins <= 6, "{logins} logins after two cuts");
}

#[test]
fn email_b4_a_changed_uidvalidity_answers_nothing_old_and_loses_nothing_new() {
    let model = answering();
    let Some(shop) = RealShop::open_with_own_servers(&model) else { return };
    shop.hand_in(&shop.letter("long-ago", "Before there was an agent."));
    shop.servers.inbox(&shop.agent).wait_for(1);
    shop.servers.inbox(&shop.agent).make_older("10 minutes ago");
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("before", "Do you?"));
    shop.wait_for_answers(1);

    shop.servers.control("stop-imap");
    shop.servers.change_uidvalidity(&shop.agent);
    shop.hand_in(&shop.letter("meanwhile", "And you?"));
    shop.servers.control("start-imap");
    shop.servers.control("flush");
    shop.wait_for_answers(2);
    shop.hand_in(&shop.letter("after", "And now?"));
    shop.wait_for_answers(3);
    assert!(daemon.terminate().success());

    assert_eq!(answered(&shop.answers()), ["after", "before", "meanwhile"]);
}

#[test]
fn postfix_is_down_for_a_while_and_the_answer_leaves_once_when_it_is_back() {
    let model = answering();
    let Some(shop) = RealShop::open_with_own_servers(&model) else { return };
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("first", "Do you?"));
    shop.servers.inbox(&shop.agent).wait_for(1);
    shop.servers.control("stop-smtp");
    let effort = Effort::of(&daemon);
    // Its answer has left, or waits; a second letter lies in the mailbox already, as if it had come by another way.
    let copied = shop.letter("second", "And you?").to_string();
    shop.servers.inbox(&shop.agent).deliver(&copied);
    shop.world.wait_for_count("SELECT count(*) FROM audit_outgoing WHERE kind = 'reply'", 2);
    shop.world.wait_for_count("SELECT count(*) FROM audit_outgoing WHERE error IS NOT NULL AND status = 'queued'", 1);
    effort.was_small();
    shop.servers.control("start-smtp");
    shop.wait_for_answers(2);
    assert!(daemon.terminate().success());

    assert_eq!(answered(&shop.answers()), ["first", "second"]);
    assert_eq!(shop.world.count("SELECT count(*) FROM audit_outgoing WHERE status = 'sent'"), 2);
}

#[test]
fn a_refused_password_is_tried_calmly_and_a_right_one_counts_from_the_reload_on() {
    let model = answering();
    let Some(shop) = RealShop::open(&model) else { return };
    assert!(shop.world.start().terminate().success());
    shop.world.edit("password", "secret", "wrong");
    let daemon = shop.world.start_unready();
    let effort = Effort::of(&daemon);
    daemon.wait_for_log("login");
    shop.hand_in(&shop.letter("waiting", "Do you?"));
    shop.servers.inbox(&shop.agent).wait_for(1);
    let refused = format!("user=<{}>", shop.agent.address());
    // Nothing tells of what does not happen: two seconds would hold thousands of tries.
    std::thread::sleep(Duration::from_secs(1));
    let tries = shop.servers.imap_log_lines(&["auth failed", &refused]);
    assert!((1..=2).contains(&tries), "{tries} logins with a refused password");
    effort.was_small();

    shop.world.edit("password", "wrong", "secret");
    daemon.reload();
    shop.wait_for_answers(1);
    assert!(daemon.terminate().success());
    assert_eq!(answered(&shop.answers()), ["waiting"]);
}
