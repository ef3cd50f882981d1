//! Receiving, deduplication, threads, limits, claims, verdicts.

use std::collections::BTreeSet;

use super::*;

fn nobody() -> BTreeSet<ThreadId> {
    BTreeSet::new()
}

#[tokio::test]
async fn email_b1_a_known_place_is_received_once_and_moves_the_cursor() {
    let place = Place::new();
    let store = place.open();
    assert!(store.cursor("shop", "INBOX").await.unwrap().is_none());
    let letter = receive(&store, 5, "alice@example.com").await;
    assert_eq!(store.cursor("shop", "INBOX").await.unwrap(), Some(Cursor { uidvalidity: 7, uid: 5 }));
    let again = store.receive(incoming(5, "alice@example.com"), Box::new(|_| panic!("decided twice"))).await.unwrap();
    assert!(!again.new);
    assert_eq!(again.letters[0].0, letter);
    receive(&store, 3, "alice@example.com").await;
    assert_eq!(store.cursor("shop", "INBOX").await.unwrap().unwrap().uid, 5);
    assert_eq!(store.raw_letter(letter).await.unwrap().unwrap(), b"Subject: 5\r\n\r\nhello");
    assert_eq!(store.known_positions("shop", "INBOX").await.unwrap(), BTreeSet::from(["7:5".to_owned(), "7:3".to_owned()]));
}

#[tokio::test]
async fn email_b9_the_same_content_within_seven_days_is_a_duplicate() {
    let place = Place::new();
    let store = place.open();
    let first = receive(&store, 1, "alice@example.com").await;
    for (uid, days, expected) in [(2, 6, Some(first)), (3, 8, None)] {
        let mut copy = incoming(uid, "alice@example.com");
        copy.sha256 = incoming(1, "alice@example.com").sha256;
        copy.received_at += chrono::Duration::days(days);
        let (tell, told) = std::sync::mpsc::channel();
        let decide: Decide = Box::new(move |standing| {
            tell.send(standing.duplicate_of).unwrap();
            // The copy itself opens no new window.
            let verdict = Delivery { verdict: Verdict::Duplicate, ..delivery("alice@example.com", ThreadChoice::None) };
            Decision { identity: Identity::Verified, deliveries: vec![verdict] }
        });
        store.receive(copy, decide).await.unwrap();
        assert_eq!(told.recv().unwrap(), expected, "after {days} days");
    }
}

#[tokio::test]
async fn standing_names_our_echo_and_the_threads_of_referenced_ids() {
    let place = Place::new();
    let store = place.open();
    let (_, letter, thread) = running(&store, 1).await;
    store.queue(outgoing("reply-1", Some(thread))).await.unwrap();
    let mut follow = incoming(2, "alice1@example.com");
    let parsed = follow.parsed.as_mut().unwrap();
    parsed.in_reply_to = vec![MessageId::parse("reply-1@shop.example").unwrap()];
    parsed.references = vec![MessageId::parse("letter-1@example.com").unwrap(), MessageId::parse("unknown@x").unwrap()];
    let (tell, told) = std::sync::mpsc::channel();
    let decide: Decide = Box::new(move |standing| {
        tell.send(standing.clone()).unwrap();
        Decision {
            identity: Identity::Thread,
            deliveries: vec![delivery("alice1@example.com", ThreadChoice::Join(standing.related[0].thread))],
        }
    });
    let received = store.receive(follow, decide).await.unwrap();
    let standing = told.recv().unwrap();
    assert!(!standing.ours && standing.duplicate_of.is_none());
    assert_eq!(standing.related.len(), 2);
    assert_eq!(standing.related[0].mailed_to, Some(address("alice@example.com")));
    assert_eq!(standing.related[1].mailed_to, None);
    assert!(standing.related.iter().all(|related| related.thread == thread && related.agent == "sundae" && related.held.is_none()));
    assert_eq!(standing.related[0].participants, BTreeSet::from([address("alice1@example.com")]));
    assert_eq!(thread_of(&store, received.letters[0].0).await, thread_of(&store, letter).await);

    let mut echo = incoming(3, "sundae@shop.example");
    echo.parsed.as_mut().unwrap().message_id = MessageId::parse("reply-1@shop.example").unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let decide: Decide = Box::new(move |standing| {
        tell.send(standing.ours).unwrap();
        let nobody =
            Delivery { agent: None, verdict: Verdict::Ignored, reason: "our own echo".to_owned(), ..delivery("a@b.c", ThreadChoice::None) };
        Decision { identity: Identity::Machine, deliveries: vec![nobody] }
    });
    store.receive(echo, decide).await.unwrap();
    assert!(told.recv().unwrap());
}

#[tokio::test]
async fn an_accepted_letter_that_nobody_can_answer_is_quarantined() {
    let place = Place::new();
    let store = place.open();
    let unparsed = Incoming { parsed: None, ..incoming(1, "alice@example.com") };
    let received = store.receive(unparsed, accept(delivery("alice@example.com", NEW))).await.unwrap();
    assert_eq!(received.letters[0].1, Verdict::Quarantined);
    assert!(store.letter(received.letters[0].0).await.unwrap().is_none());
}

#[tokio::test]
async fn waiting_letters_come_oldest_first_and_one_of_a_thread() {
    let place = Place::new();
    let store = place.open();
    let first = receive(&store, 1, "alice@example.com").await;
    let thread = thread_of(&store, first).await;
    let second = receive_in(&store, 2, "alice@example.com", ThreadChoice::Join(thread)).await;
    let other = receive(&store, 3, "bob@example.com").await;
    let ids =
        async |busy: &BTreeSet<ThreadId>| store.waiting_letters(10, busy).await.unwrap().iter().map(|letter| letter.id).collect::<Vec<_>>();
    assert_eq!(ids(&nobody()).await, [first, other]);
    assert_eq!(ids(&BTreeSet::from([thread])).await, [other]);
    assert!(store.open_run(run_for(&store, "r1", first).await, vec![]).await.unwrap());
    assert_eq!(ids(&nobody()).await, [other]);
    store.close_run(&RunId("r1".to_owned()), vec![], super::runs::done(), vec![], None).await.unwrap();
    assert_eq!(ids(&nobody()).await, [second, other]);
    assert!(store.set_switch(&Switch::Agent("sundae".to_owned()), true).await.unwrap());
    assert!(ids(&nobody()).await.is_empty());
    store.set_switch(&Switch::Agent("sundae".to_owned()), false).await.unwrap();
    assert!(store.set_thread(thread, ThreadState::Held("escalated".to_owned())).await.unwrap());
    assert_eq!(ids(&nobody()).await, [other]);
    let letter = &store.waiting_letters(1, &nobody()).await.unwrap()[0];
    assert_eq!((letter.agent.as_str(), letter.nonce.as_str(), letter.careful), ("sundae", "nonce3", false));
    assert_eq!(letter.participants, BTreeSet::from([address("BOB@example.com")]));
}

#[tokio::test]
async fn a_letter_of_a_held_thread_waits_until_it_is_opened() {
    let place = Place::new();
    let store = place.open();
    let first = receive(&store, 1, "alice@example.com").await;
    let thread = thread_of(&store, first).await;
    store.set_thread(thread, ThreadState::Held("escalated".to_owned())).await.unwrap();
    let received =
        store.receive(incoming(2, "alice@example.com"), accept(delivery("alice@example.com", ThreadChoice::Join(thread)))).await.unwrap();
    assert_eq!(received.letters[0].1, Verdict::Held);
    assert_eq!(received.letters[0].2, "the thread is held: escalated");
    let forged = Delivery {
        verdict: Verdict::Held,
        reason: "forged into an escalated thread".to_owned(),
        ..delivery("alice@example.com", ThreadChoice::Join(thread))
    };
    let decide: Decide = Box::new(|_| Decision { identity: Identity::Forged, deliveries: vec![forged] });
    store.receive(incoming(3, "alice@example.com"), decide).await.unwrap();
    let same_cause =
        Delivery { verdict: Verdict::Held, reason: "held: escalated".to_owned(), ..delivery("a@b.c", ThreadChoice::Join(thread)) };
    store.receive(incoming(4, "alice@example.com"), accept(same_cause)).await.unwrap();
    assert!(store.set_thread(thread, ThreadState::Open).await.unwrap());
    assert_eq!(place.text("SELECT group_concat(verdict, ' ' ORDER BY id) FROM letters"), "accepted accepted held accepted");
    assert!(!store.set_thread(ThreadId(99), ThreadState::Open).await.unwrap());
}

/// Receives under caps and gives the verdict with its reason.
async fn capped(store: &Store, uid: u32, from: &str, thread: ThreadChoice, limits: &Limits) -> (Verdict, String) {
    let caps = Some(Caps { limits: limits.clone(), per_domain: true });
    let received = store.receive(incoming(uid, from), accept(Delivery { caps, ..delivery(from, thread) })).await.unwrap();
    (received.letters[0].1, received.letters[0].2.clone())
}

#[tokio::test]
async fn email_f7_each_limit_holds_under_its_own_name() {
    type Narrow = fn(&mut Limits);
    let cases: [(&str, Narrow, bool, &str); 5] = [
        ("limit:replies_per_thread_per_hour", |limits| limits.replies_per_thread_per_hour = 2, true, "alice@example.com"),
        ("limit:replies_per_thread_per_day", |limits| limits.replies_per_thread_per_day = 2, true, "alice@example.com"),
        ("limit:replies_per_sender_per_hour", |limits| limits.replies_per_sender_per_hour = 2, false, "ALICE@example.com"),
        ("limit:replies_per_domain_per_hour", |limits| limits.replies_per_domain_per_hour = 2, false, "bob@example.com"),
        ("limit:replies_per_day", |limits| limits.replies_per_day = 2, false, "carol@elsewhere.example"),
    ];
    for (reason, narrow, same_thread, third) in cases {
        let place = Place::new();
        let store = place.open();
        let mut narrowed = limits();
        narrow(&mut narrowed);
        assert_eq!(capped(&store, 1, "alice@example.com", NEW, &narrowed).await.0, Verdict::Accepted);
        let thread = if same_thread { ThreadChoice::Join(ThreadId(1)) } else { NEW };
        assert_eq!(capped(&store, 2, "alice@example.com", thread, &narrowed).await.0, Verdict::Accepted);
        assert_eq!(capped(&store, 3, third, thread, &narrowed).await, (Verdict::Held, reason.to_owned()));
    }
}

#[tokio::test]
async fn email_f7_tags_make_no_new_sender() {
    let place = Place::new();
    let store = place.open();
    let narrowed = Limits { replies_per_sender_per_hour: 2, ..limits() };
    for (uid, from, verdict) in [
        (1, "alice+1@example.com", Verdict::Accepted),
        (2, "Alice+2@example.com", Verdict::Accepted),
        (3, "alice+3@example.com", Verdict::Held),
        (4, "alice@example.com", Verdict::Held),
        (5, "alice+1@elsewhere.example", Verdict::Accepted),
        (6, "alice.b@example.com", Verdict::Accepted),
        (7, "alic@example.com", Verdict::Accepted),
        (8, "\"alice+4 \"@example.com", Verdict::Accepted),
        (9, "\"alice+4 \"@example.com", Verdict::Accepted),
        (10, "\"alice+4 \"@example.com", Verdict::Held),
    ] {
        assert_eq!(capped(&store, uid, from, NEW, &narrowed).await.0, verdict, "{from}");
    }
}

#[tokio::test]
async fn email_f7_sender_limits_release_by_themselves_oldest_first_and_thread_limits_do_not() {
    let place = Place::new();
    let store = place.open();
    let narrowed = Limits { replies_per_sender_per_hour: 1, ..limits() };
    for uid in 1..4 {
        capped(&store, uid, "alice@example.com", NEW, &narrowed).await;
    }
    let verdicts = || place.text("SELECT group_concat(verdict, ' ' ORDER BY id) FROM letters");
    assert_eq!(store.release_limited(&narrowed, crate::clock::now()).await.unwrap(), 0);
    assert_eq!(verdicts(), "accepted held held");
    let later = crate::clock::now() + chrono::Duration::minutes(61);
    assert_eq!(store.release_limited(&narrowed, later).await.unwrap(), 1);
    assert_eq!(verdicts(), "accepted accepted held");
    // A released letter counts from its release.
    assert_eq!(store.release_limited(&narrowed, later + chrono::Duration::minutes(30)).await.unwrap(), 0);
    assert_eq!(store.release_limited(&narrowed, later + chrono::Duration::minutes(61)).await.unwrap(), 1);
    assert_eq!(store.waiting_letters(10, &nobody()).await.unwrap().len(), 3);

    let narrowed = Limits { replies_per_thread_per_hour: 0, ..limits() };
    capped(&store, 9, "alice@example.com", ThreadChoice::Join(ThreadId(1)), &narrowed).await;
    assert_eq!(store.release_limited(&narrowed, later + chrono::Duration::days(3)).await.unwrap(), 0);
    store.set_thread(ThreadId(1), ThreadState::Open).await.unwrap();
    assert_eq!(verdicts(), "accepted accepted accepted accepted");
}

#[tokio::test]
async fn a_verdict_is_changed_only_while_no_run_has_finished() {
    let place = Place::new();
    let store = place.open();
    let held =
        Delivery { verdict: Verdict::Held, reason: "outside the audience".to_owned(), ..delivery("alice@example.com", ThreadChoice::None) };
    let letter = store.receive(incoming(1, "alice@example.com"), accept(held)).await.unwrap().letters[0].0;
    assert!(store.letter(letter).await.unwrap().is_none());
    assert!(store.judge_letter(letter, Verdict::Accepted, "released by the operator").await.unwrap());
    assert_eq!(store.waiting_letters(10, &nobody()).await.unwrap()[0].participants, BTreeSet::from([address("alice@example.com")]));
    assert!(!store.judge_letter(letter, Verdict::Accepted, "released by the operator").await.unwrap());
    assert!(!store.judge_letter(LetterId(99), Verdict::Ignored, "dropped").await.unwrap());

    assert!(!store.retry_letter(letter).await.unwrap());
    let run = run_for(&store, "r1", letter).await;
    assert!(store.open_run(run, vec![]).await.unwrap());
    store.close_run(&RunId("r1".to_owned()), vec![], super::runs::done(), vec![], None).await.unwrap();
    assert!(!store.judge_letter(letter, Verdict::Ignored, "dropped").await.unwrap());
    assert!(store.retry_letter(letter).await.unwrap());
    assert_eq!(store.waiting_letters(10, &nobody()).await.unwrap()[0].id, letter);
    assert_eq!(place.number("SELECT count(*) FROM audit_runs"), 1);
}

#[tokio::test]
async fn a_quarantined_letter_can_be_released_after_its_run_failed() {
    let place = Place::new();
    let store = place.open();
    let (run, letter, _) = running(&store, 1).await;
    assert!(store.judge_letter(letter, Verdict::Quarantined, "three attempts without progress").await.unwrap());
    assert!(!store.judge_letter(letter, Verdict::Accepted, "released").await.unwrap(), "its run still goes on");
    let failed = Close { status: crate::run::RunStatus::Failed, ..super::runs::done() };
    store.close_run(&run, vec![], failed, vec![], None).await.unwrap();
    assert_eq!(place.text("SELECT reason FROM audit_letters"), "three attempts without progress");
    assert!(store.judge_letter(letter, Verdict::Accepted, "released").await.unwrap());
    assert_eq!(store.waiting_letters(10, &nobody()).await.unwrap()[0].id, letter);
}

#[tokio::test]
async fn security_r16_attempts_are_noted_before_they_are_made() {
    let place = Place::new();
    let store = place.open();
    let letter = receive(&store, 1, "alice@example.com").await;
    assert_eq!(store.note_attempt(letter).await.unwrap(), 1);
    drop(store);
    let store = place.open();
    assert_eq!(store.note_attempt(letter).await.unwrap(), 2);
    let waiting = &store.waiting_letters(1, &nobody()).await.unwrap()[0];
    assert_eq!((waiting.attempts, waiting.careful), (2, true));
}

#[tokio::test]
async fn email_b12_a_parse_that_is_never_finished_is_counted() {
    let place = Place::new();
    let store = place.open();
    let position = Position::Imap { uidvalidity: 7, uid: 1 };
    assert_eq!(store.note_parse("shop", "INBOX", &position).await.unwrap(), 1);
    assert_eq!(store.note_parse("shop", "INBOX", &position).await.unwrap(), 2);
    receive(&store, 1, "alice@example.com").await;
    assert_eq!(store.note_parse("shop", "INBOX", &position).await.unwrap(), 1);
}

#[tokio::test]
async fn email_b4_a_known_letter_is_linked_to_its_new_place() {
    let place = Place::new();
    let store = place.open();
    receive(&store, 1, "alice@example.com").await;
    let moved = Position::Imap { uidvalidity: 8, uid: 40 };
    assert!(store.relink("shop", "INBOX", &moved, &incoming(1, "a@b.c").sha256).await.unwrap());
    assert!(!store.relink("shop", "INBOX", &Position::Imap { uidvalidity: 8, uid: 41 }, "unknown").await.unwrap());
    assert_eq!(store.cursor("shop", "INBOX").await.unwrap().unwrap().uidvalidity, 7);
    let again = Incoming { position: moved, ..incoming(1, "alice@example.com") };
    assert!(!store.receive(again, Box::new(|_| panic!("decided twice"))).await.unwrap().new);
    store.skip_positions("shop", "cur", vec!["a".to_owned(), "a".to_owned()]).await.unwrap();
    assert_eq!(store.known_positions("shop", "cur").await.unwrap().len(), 1);
}

#[tokio::test]
async fn whoever_claims_letters_is_woken_after_the_commit() {
    let place = Place::new();
    let store = place.open();
    let woken = store.letters_waiting().notified();
    let letter = receive(&store, 1, "alice@example.com").await;
    woken.await;
    let woken = store.outgoing_waiting().notified();
    store.queue(outgoing("k", Some(thread_of(&store, letter).await))).await.unwrap();
    woken.await;
}

#[tokio::test]
async fn email_b6_j4_the_cursor_never_passes_a_letter_that_could_not_be_stored() {
    let place = Place::new();
    let store = place.open();
    store.set_cursor("shop", "INBOX", Cursor { uidvalidity: 7, uid: 4 }).await.unwrap();
    let after = |uid: u32, before| Incoming { follows: before, ..incoming(uid, "alice@example.com") };
    let accepted = || accept(delivery("alice@example.com", NEW));
    // All are queued at once, as the intake does; the second one fails.
    let fifth = store.receive(after(5, None), accepted());
    let sixth = store.receive(after(6, Some(5)), Box::new(|_| panic!("a fault while storing")));
    let seventh = store.receive(after(7, Some(6)), accepted());
    let eighth = store.receive(after(8, Some(7)), accepted());
    assert!(fifth.await.unwrap().new);
    assert!(matches!(sixth.await, Err(StoreError::Fault(_))));
    for late in [seventh.await, eighth.await] {
        assert!(matches!(late, Err(StoreError::Retry(_))), "{late:?}");
    }
    assert_eq!(store.cursor("shop", "INBOX").await.unwrap().unwrap().uid, 5);
    assert_eq!(place.number("SELECT count(*) FROM received"), 1);
    for (uid, before) in [(6, 5), (7, 6), (8, 7)] {
        assert!(store.receive(after(uid, Some(before)), accepted()).await.unwrap().new);
    }
    assert_eq!(store.cursor("shop", "INBOX").await.unwrap().unwrap().uid, 8);
}
