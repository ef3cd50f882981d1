//! `kill -9` at random moments under load: nobody is left without an answer, nobody gets two.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::world::{Arrived, MailServers, ModelServer, Said, Wire, World, is_long};

const LETTERS_A_KILL: usize = 4;

fn kills() -> usize {
    if is_long() { 200 } else { 6 }
}

/// Every letter from another customer: caps on one sender are not what is tested here.
fn letter(number: usize, to: &str) -> String {
    format!(
        "From: Customer {number} <customer{number}@customers.example>\nTo: <{to}>\nSubject: Letter {number}\nMessage-ID: <letter-{number}@customers.example>\n\
         Date: Mon, 30 Nov 2026 12:00:00 +0000\n\nIs there pistachio for {number} people today?\n"
    )
}

fn model() -> (ModelServer, Receiver<()>) {
    let (asked, requests) = channel();
    let model = ModelServer::start(Wire::Openai, move |request| {
        // Nobody listens any more once the last kill is done.
        asked.send(()).ok();
        Said::text(format!("Yes, and this is answer {}.", request.number))
    });
    (model, requests)
}

/// Starts, loads and kills the daemon again and again: each time after the model was asked some times, and a few
/// milliseconds more.
fn load_and_kill(world: &World, requests: &Receiver<()>, hand_in: impl Fn(usize)) -> usize {
    let mut number = 0;
    for kill in 0..kills() {
        let daemon = world.start();
        for _ in 0..LETTERS_A_KILL {
            hand_in(number);
            number += 1;
        }
        for _ in 0..=kill % LETTERS_A_KILL {
            requests.recv_timeout(Duration::from_secs(30)).expect("the model is asked");
        }
        // A wait for something that need not come: the moment of the kill moves through what follows a request.
        requests.recv_timeout(Duration::from_millis((kill * 7 % 40) as u64)).ok();
        daemon.kill();
    }
    number
}

fn answers_for_each_letter(answers: &[Arrived]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.header("In-Reply-To").unwrap_or_default()).or_default() += 1;
    }
    counts
}

/// How the letters ended, for the message of a failed test.
fn verdicts(world: &World) -> Vec<(String, String, i64)> {
    let query = "SELECT verdict, coalesce(reason, ''), count(*) FROM audit_letters GROUP BY 1, 2";
    world.rows(query, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

#[test]
fn killed_at_random_moments_on_maildirs_each_letter_is_answered_once() {
    let (model, requests) = model();
    let world = World::on_maildir(&model);
    // The first start stores where the mailbox ends; what comes after it is to be answered.
    assert!(world.start().terminate().success());
    let mailbox = world.mailbox();
    let letters = load_and_kill(&world, &requests, |number| mailbox.deliver(&letter(number, "sundae@shop.example")));
    let daemon = world.start();
    world.sent().wait_for(letters);
    assert!(daemon.terminate().success());

    let counts = answers_for_each_letter(&world.sent().letters());
    assert_eq!(counts.len(), letters, "letters without an answer; answers: {counts:?}, letters: {:?}", verdicts(&world));
    assert!(counts.values().all(|count| *count == 1), "a letter with two answers: {counts:?}");
}

#[test]
fn killed_at_random_moments_on_real_servers_each_letter_is_answered_and_twice_only_when_the_acknowledgement_was_lost() {
    let Some(servers) = MailServers::shared() else { return };
    let (agent, customers) = (servers.account("agent"), servers.domain("customers.example"));
    let (model, requests) = model();
    let world = World::on_servers(&model, &servers, &agent);
    world.append("dutiful.toml", "\n[limits]\nreplies_per_domain_per_hour = 100000\n");
    assert!(world.start().terminate().success());
    let letters = load_and_kill(&world, &requests, |number| {
        servers.send(&format!("customer{number}@customers.example"), &agent.address(), &letter(number, &agent.address()));
    });
    let daemon = world.start();
    let answers = customers.wait_for_each((0..letters).map(|number| format!("customer{number}")));
    assert!(daemon.terminate().success());

    let counts = answers_for_each_letter(&answers);
    assert_eq!(counts.len(), letters, "letters without an answer; answers: {counts:?}, letters: {:?}", verdicts(&world));
    let twice = counts.values().map(|count| i64::from(*count > 1)).sum::<i64>();
    let repeated = world.rows("SELECT count(*) FROM audit_outgoing WHERE attempts > 1", |row| row.get::<_, i64>(0))[0];
    assert!(
        counts.values().all(|count| *count <= 2) && twice <= repeated,
        "{twice} letters with two answers, {repeated} sent again: {counts:?}"
    );
}
