//! Retention: what goes at which age, and what never does.

use super::*;
use crate::chat::{CallId, ToolCall, ToolName, ToolResult, Usage};
use crate::config::{Effect, Retention};
use crate::mail::Attachment;
use crate::run::{Outcome, OutgoingId, RunStatus};

/// Stands in each place that holds content.
const CANARY: &str = "pistachio-canary";

fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 3600)
}

fn usual() -> Retention {
    Retention { raw: days(90), transcripts: days(90), attachments: days(30), audit: days(744) }
}

fn after(count: i64) -> DateTime<Utc> {
    crate::clock::now() + chrono::Duration::days(count)
}

fn done() -> Close {
    Close { status: RunStatus::Done, outcome: Outcome::Answered, error: None, rounds: 1, usage: Usage::default(), cost: 12 }
}

/// How often a letter says it: some letters fit into a page of the file, some need many.
fn length(uid: u32) -> usize {
    usize::try_from(uid * uid * 7 % 2000 + 1).unwrap()
}

/// A letter that says the word wherever a letter can.
fn telling(uid: u32) -> Incoming {
    let mut letter = incoming(uid, "alice@example.com");
    let text = format!("{CANARY} ").repeat(length(uid));
    letter.raw = format!("Subject: {CANARY}\r\n\r\n{text}").into_bytes();
    let parsed = letter.parsed.as_mut().unwrap();
    parsed.subject = format!("About {CANARY}");
    parsed.text = text;
    letter
}

fn calling(length: usize) -> Vec<Step> {
    let call = ToolCall { id: CallId("c1".to_owned()), name: ToolName("lookup".to_owned()), arguments: format!("{{\"q\":\"{CANARY}\"}}") };
    let result = ToolResult { call: call.id.clone(), text: CANARY.repeat(length), is_error: false };
    vec![
        Step::ToolIntended { round: 1, position: 0, call: call.clone(), effect: Effect::Pure, effect_key: "e".to_owned(), repaired: None },
        Step::ToolFinished { round: 1, position: 0, call, result, status: ToolStatus::Completed },
    ]
}

fn answer(run: &RunId, thread: ThreadId) -> QueueOutgoing {
    let mut reply = QueueOutgoing { run: Some(run.clone()), ..outgoing(&format!("reply-{run}"), Some(thread)) };
    reply.sealed.subject = format!("Re: About {CANARY}");
    reply.sealed.text = CANARY.repeat(1000);
    reply.sealed.bytes = CANARY.repeat(2000).into_bytes();
    reply
}

/// A letter with its run, a tool call and a kept result in it, as far as to the run's end.
async fn worked_on(store: &Store, uid: u32) -> (RunId, LetterId, ThreadId) {
    let letter = store.receive(telling(uid), accept(delivery("alice@example.com", NEW))).await.unwrap().letters[0].0;
    let run = run_for(store, &format!("r{uid}"), letter).await;
    let (id, thread) = (run.id.clone(), run.thread.unwrap());
    assert!(store.open_run(run, vec![noted(&CANARY.repeat(length(uid)))]).await.unwrap());
    store.append(&id, calling(length(uid))).await.unwrap();
    store.keep_result(&id, "1.0", CANARY.repeat(25 * length(uid))).await.unwrap();
    (id, letter, thread)
}

/// The same, answered, its answer sent.
async fn answered(store: &Store, uid: u32) -> (RunId, LetterId, ThreadId) {
    let (run, letter, thread) = worked_on(store, uid).await;
    let sent = store.close_run(&run, vec![], done(), vec![answer(&run, thread)], None).await.unwrap();
    store.claim_outgoing("shop", after(1), 10).await.unwrap();
    store.settle(sent[0], Sent::Accepted, crate::clock::now()).await.unwrap();
    (run, letter, thread)
}

/// How often the word stands in the store's files, just as they are.
fn canaries(place: &Place) -> usize {
    let folder = place.path.parent().unwrap();
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    files.map(|bytes| bytes.windows(CANARY.len()).filter(|window| *window == CANARY.as_bytes()).count()).sum()
}

#[tokio::test]
async fn email_k3_expired_content_is_gone_byte_for_byte_and_its_skeleton_stays() {
    let place = Place::new();
    let store = place.open();
    let (run, letter, thread) = answered(&store, 1).await;
    for uid in 2..20 {
        answered(&store, uid).await;
    }
    assert_eq!(store.expire(&usual(), after(89)).await.unwrap(), Expired::default());
    assert!(canaries(&place) > 10_000);
    let expired = store.expire(&usual(), after(91)).await.unwrap();
    assert_eq!(expired, Expired { raw: 19, letters: 19, runs: 19, outgoing: 19, rows: 0 });
    assert_eq!(canaries(&place), 0);
    let skeleton = "SELECT sender || ' ' || verdict || ' ' || reason || ' ' || run_id FROM audit_letters WHERE id = 1";
    assert_eq!(place.text(skeleton), "alice@example.com accepted answered r1");
    assert_eq!(place.number("SELECT sum(cost) FROM audit_runs WHERE status = 'done' AND ended_at IS NOT NULL"), 19 * 12);
    assert_eq!(place.text("SELECT name || ' ' || status FROM audit_tool_calls WHERE run_id = 'r1'"), "lookup completed");
    assert_eq!(place.text("SELECT recipient || ' ' || status FROM audit_outgoing WHERE run_id = 'r1'"), "alice@example.com sent");
    assert!(store.raw_letter(letter).await.unwrap().is_none());
    assert!(store.kept_letter(letter).unwrap().is_none());
    assert!(store.replay(&run).await.unwrap().is_empty());
    assert!(store.outgoing_content(1).unwrap().is_none());
    assert!(store.past_turns(thread, LetterId(1000), 10).await.unwrap().is_empty());
    assert!(store.without_copy("shop", 10).await.unwrap().is_empty(), "an empty letter must not be put into Sent");
    assert_eq!(store.expire(&usual(), after(91)).await.unwrap(), Expired::default());
}

#[tokio::test]
async fn email_b16_a_letter_is_known_again_after_its_bytes_and_its_row_are_gone() {
    let place = Place::new();
    let store = place.open();
    answered(&store, 1).await;
    answered(&store, 2).await;
    store.expire(&usual(), after(91)).await.unwrap();
    let sent_back = MessageId::parse("reply-r1@shop.example").unwrap();
    let mut echo = incoming(9, "alice@example.com");
    echo.parsed.as_mut().unwrap().message_id = sent_back;
    let decide: Decide = Box::new(|standing| {
        assert!(standing.ours);
        Decision { identity: Identity::Verified, deliveries: vec![delivery("alice@example.com", NEW)] }
    });
    store.receive(echo, decide).await.unwrap();
    for day in [91, 800] {
        store.expire(&usual(), after(day)).await.unwrap();
        let again = store.receive(telling(1), accept(delivery("alice@example.com", NEW))).await.unwrap();
        assert!(!again.new, "after {day} days");
        let elsewhere = Position::Imap { uidvalidity: 8, uid: 1 };
        assert!(store.relink("shop", "INBOX", &elsewhere, &telling(1).sha256).await.unwrap(), "after {day} days");
        assert!(store.known_positions("shop", "INBOX").await.unwrap().contains("7:1"));
    }
    assert_eq!(place.number("SELECT count(*) FROM audit_letters"), 1, "what waits for its run stays");
}

#[tokio::test]
async fn email_b16_what_is_unfinished_is_never_touched() {
    let place = Place::new();
    let store = place.open();
    let waiting = store.receive(telling(1), accept(delivery("alice@example.com", NEW))).await.unwrap().letters[0].0;
    let held = Delivery { verdict: Verdict::Held, ..delivery("alice@example.com", NEW) };
    let held = store.receive(telling(2), accept(held)).await.unwrap().letters[0].0;
    let (running, under_work, _) = worked_on(&store, 3).await;
    let (asking, asked, thread) = worked_on(&store, 4).await;
    let mut reply = answer(&asking, thread);
    reply.sealed.held = Some("a person approves".to_owned());
    let reply = store.close_run(&asking, vec![], done(), vec![reply], None).await.unwrap()[0];
    let notice = store.queue(outgoing("notice", None)).await.unwrap()[0];
    assert_eq!(store.expire(&usual(), after(5000)).await.unwrap().rows, erased_events(&place));
    for letter in [waiting, held, under_work, asked] {
        assert_eq!(store.raw_letter(letter).await.unwrap().unwrap(), telling(u32::try_from(letter.0).unwrap()).raw);
        assert!(store.letter(letter).await.unwrap().is_some());
    }
    assert_eq!(store.replay(&running).await.unwrap().len(), 3);
    assert!(store.kept_result(&running, "1.0").await.unwrap().is_some());
    assert_eq!(store.replay(&asking).await.unwrap().len(), 4);
    assert_eq!(store.outgoing_content(reply.0).unwrap().unwrap().1, CANARY.repeat(2000).into_bytes());
    assert!(store.outgoing_content(notice.0).unwrap().is_some());
    // And goes on as if nothing had been.
    assert!(store.change_outgoing(reply, OutgoingChange::Approve).await.unwrap());
    assert!(store.judge_letter(held, Verdict::Accepted, "released").await.unwrap());
    assert_eq!(store.waiting_letters(10, &std::collections::BTreeSet::new()).await.unwrap().len(), 2);
}

/// Events of no run go at their age; those of unfinished runs stay.
fn erased_events(place: &Place) -> u64 {
    assert_eq!(place.number("SELECT count(*) FROM audit_events WHERE run_id IS NULL AND kind LIKE 'letter.%'"), 0);
    assert!(place.number("SELECT count(*) FROM audit_events WHERE run_id = 'r3'") > 0);
    8
}

#[tokio::test]
async fn email_b16_raw_letters_go_at_the_age_of_their_kind() {
    let place = Place::new();
    let store = place.open();
    let ignored = |letter| {
        let unanswered = Delivery { verdict: Verdict::Ignored, thread: ThreadChoice::None, ..delivery("alice@example.com", NEW) };
        store.receive(letter, accept(unanswered))
    };
    let plain = ignored(telling(1)).await.unwrap().letters[0].0;
    let mut with = telling(2);
    let attachment =
        Attachment { name: "cone.jpg".to_owned(), media_type: "image/jpeg".to_owned(), bytes: 9, sha256: "00".repeat(32), inline: false };
    with.parsed.as_mut().unwrap().attachments.push(attachment);
    let attached = ignored(with).await.unwrap().letters[0].0;
    let unread = ignored(Incoming { parsed: None, ..telling(3) }).await.unwrap().letters[0].0;
    assert_eq!(store.expire(&usual(), after(29)).await.unwrap(), Expired::default());
    assert_eq!(store.expire(&usual(), after(31)).await.unwrap(), Expired { raw: 2, ..Expired::default() });
    assert!(store.raw_letter(plain).await.unwrap().is_some());
    for letter in [attached, unread] {
        assert!(store.raw_letter(letter).await.unwrap().is_none());
    }
    assert_eq!(store.kept_letter(attached).unwrap().unwrap().attachments.len(), 1, "its text is still to be read");
    let short = Retention { raw: days(10), ..usual() };
    assert_eq!(store.expire(&short, after(31)).await.unwrap(), Expired { raw: 1, ..Expired::default() });
}

#[tokio::test]
async fn email_k3_rows_go_whole_at_the_age_of_the_audit() {
    let place = Place::new();
    let store = place.open();
    // More than one transaction erases.
    for uid in 1..70 {
        let (run, letter, thread) = running(&store, uid).await;
        let sent = store.close_run(&run, calling(1), done(), vec![answer(&run, thread)], None).await.unwrap();
        assert_eq!(sent, [OutgoingId(letter.0)]);
    }
    for letter in store.claim_outgoing("shop", after(1), 100).await.unwrap() {
        store.settle(letter.id, Sent::Accepted, crate::clock::now()).await.unwrap();
    }
    store.expire(&usual(), after(743)).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM audit_letters"), 69);
    store.expire(&usual(), after(745)).await.unwrap();
    for table in ["letters", "outgoing", "events", "threads", "runs", "tool_calls"] {
        // The newest letter keeps its run and its thread.
        let newest = place.number(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(newest, 1, "{table}");
    }
    assert_eq!(place.number("SELECT count(*) FROM participants"), 1);
    assert_eq!(place.number("SELECT count(*) FROM received"), 69);
    assert_eq!(place.text("SELECT group_concat(integrity_check) FROM pragma_integrity_check"), "ok");
    assert_eq!(place.number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // No id is given twice: what is known of an old one must not be taken for the new one's.
    assert_eq!(receive(&store, 500, "bob@example.com").await, LetterId(70));
}

#[tokio::test]
async fn email_b16_limits_are_counted_however_short_the_audit_is() {
    let place = Place::new();
    let store = place.open();
    answered(&store, 1).await;
    answered(&store, 2).await;
    let nothing = Duration::ZERO;
    let shortest = Retention { raw: nothing, transcripts: nothing, attachments: nothing, audit: nothing };
    let expired = store.expire(&shortest, after(1)).await.unwrap();
    assert_eq!(expired, Expired { raw: 2, letters: 2, runs: 2, outgoing: 2, rows: 0 });
    let again = Incoming { position: Position::Imap { uidvalidity: 7, uid: 3 }, ..telling(1) };
    let decide: Decide = Box::new(|standing| {
        assert_eq!(standing.duplicate_of, Some(LetterId(1)));
        Decision { identity: Identity::Verified, deliveries: vec![delivery("alice@example.com", NEW)] }
    });
    store.receive(again, decide).await.unwrap();
}

#[tokio::test]
async fn email_b16_what_has_lost_its_content_is_not_worked_on_again() {
    let place = Place::new();
    let store = place.open();
    let (run, letter, thread) = worked_on(&store, 1).await;
    let failed = Close { status: RunStatus::Failed, outcome: Outcome::Failed, ..done() };
    let reply = store.close_run(&run, vec![], failed, vec![answer(&run, thread)], None).await.unwrap()[0];
    store.claim_outgoing("shop", after(1), 10).await.unwrap();
    store.settle(reply, Sent::Failed { error: "550".to_owned() }, crate::clock::now()).await.unwrap();
    let ignored = Delivery { verdict: Verdict::Ignored, ..delivery("alice@example.com", NEW) };
    let ignored = store.receive(telling(2), accept(ignored)).await.unwrap().letters[0].0;
    store.expire(&usual(), after(91)).await.unwrap();
    assert!(!store.retry_letter(letter).await.unwrap());
    assert!(!store.judge_letter(ignored, Verdict::Accepted, "released").await.unwrap());
    assert!(!store.change_outgoing(reply, OutgoingChange::Retry).await.unwrap());
    drop(store);
    assert!(place.open().take_interrupted().await.unwrap().is_empty());
}
