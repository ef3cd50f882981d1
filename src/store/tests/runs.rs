//! Runs, their journal, recovery, closing.

use futures_util::future::join_all;
use serde_json::json;

use super::*;
use crate::chat::{Block, CallId, Message, Origin, Reply, StopReason, ToolCall, ToolName, ToolResult, Usage};
use crate::config::Effect;
use crate::run::{Outcome, RunStatus};

pub(super) fn done() -> Close {
    Close {
        status: RunStatus::Done,
        outcome: Outcome::Answered,
        error: None,
        rounds: 1,
        usage: Usage { input: 30, output: 4, ..Usage::default() },
        cost: 12,
    }
}

fn call() -> ToolCall {
    ToolCall { id: CallId("c1".to_owned()), name: ToolName::from("order_status"), arguments: "{\"order\": 1}".to_owned() }
}

fn responded() -> Step {
    let origin = Origin { provider: "kimi".to_owned(), wire: "openai".to_owned(), model: "k".to_owned() };
    let message = Message::Assistant { blocks: vec![Block::Call(call())], origin };
    let usage = Usage { input: 10, cache_read: 5, output: 3, ..Usage::default() };
    let reply = Reply { message, stop: StopReason::ToolUse, raw_stop: None, usage, response_id: None };
    Step::ModelResponded { purpose: Purpose::Round, reply, cost: 7, attempts: 1, headers: serde_json::Map::new() }
}

fn intended() -> Step {
    Step::ToolIntended { round: 1, position: 0, call: call(), effect: Effect::Pure, effect_key: "k".to_owned(), repaired: None }
}

fn finished(status: ToolStatus) -> Step {
    let result = ToolResult { call: CallId("c1".to_owned()), text: "shipped".to_owned(), is_error: false };
    Step::ToolFinished { round: 1, position: 0, call: call(), result, status }
}

fn requested() -> Step {
    Step::ModelRequested { purpose: Purpose::Round, request_hash: "h".to_owned() }
}

#[tokio::test]
async fn security_r18_many_claims_of_one_letter_begin_one_run() {
    let place = Place::new();
    let store = place.open();
    let letter = receive(&store, 1, "alice@example.com").await;
    let base = run_for(&store, "r", letter).await;
    let claims = (0..50).map(|n| store.open_run(NewRun { id: RunId(format!("r{n}")), ..base.clone() }, vec![requested()]));
    let won = join_all(claims).await.into_iter().filter(|won| *won.as_ref().unwrap()).count();
    assert_eq!(won, 1);
    assert_eq!(place.number("SELECT count(*) FROM runs"), 1);
    assert_eq!(place.number("SELECT count(*) FROM steps"), 1);
    let second = receive_in(&store, 2, "alice@example.com", ThreadChoice::Join(base.thread.unwrap())).await;
    assert!(!store.open_run(run_for(&store, "r99", second).await, vec![]).await.unwrap());
}

#[tokio::test]
async fn a_letter_that_may_not_be_answered_gets_no_run() {
    let place = Place::new();
    let store = place.open();
    let letter = receive(&store, 1, "alice@example.com").await;
    let run = run_for(&store, "r1", letter).await;
    store.judge_letter(letter, Verdict::Held, "by hand").await.unwrap();
    assert!(!store.open_run(run.clone(), vec![]).await.unwrap());
    store.judge_letter(letter, Verdict::Accepted, "released").await.unwrap();
    store.set_thread(run.thread.unwrap(), ThreadState::Held("escalated".to_owned())).await.unwrap();
    assert!(!store.open_run(run.clone(), vec![]).await.unwrap());
    store.set_thread(run.thread.unwrap(), ThreadState::Open).await.unwrap();
    assert!(store.open_run(run, vec![]).await.unwrap());
}

#[tokio::test]
async fn the_journal_gives_back_what_it_was_given_and_tells_the_audit() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    let steps = vec![requested(), responded(), intended()];
    store.append(&run, steps.clone()).await.unwrap();
    assert_eq!(place.text("SELECT status || ' ' || coalesce(ended_at, 'open') FROM audit_tool_calls"), "unknown open");
    assert_eq!(place.text("SELECT rounds || ' ' || input_tokens || ' ' || output_tokens || ' ' || cost FROM audit_runs"), "1 15 3 7");
    store.append(&run, vec![finished(ToolStatus::Completed)]).await.unwrap();
    assert_eq!(store.replay(&run).await.unwrap(), [steps, vec![finished(ToolStatus::Completed)]].concat());
    assert_eq!(
        place.text("SELECT name || arguments || result || status FROM audit_tool_calls"),
        "order_status{\"order\": 1}shippedcompleted"
    );
    let kinds = place.text("SELECT group_concat(kind, ' ' ORDER BY seq) FROM audit_events WHERE run_id = 'r1'");
    assert_eq!(kinds, "run.started model.called model.completed tool.called tool.completed");
    assert_eq!(store.spent_since("sundae", noon()).await.unwrap(), 7);
    assert_eq!(store.spent_since("sundae", noon() + chrono::Duration::seconds(1)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_refused_call_without_intent_stands_in_the_audit() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.append(&run, vec![finished(ToolStatus::Refused)]).await.unwrap();
    assert_eq!(place.text("SELECT status FROM audit_tool_calls"), "refused");
    assert_eq!(place.number("SELECT count(*) FROM audit_events WHERE kind = 'tool.skipped'"), 1);
}

#[tokio::test]
async fn harness_k1_a_wish_to_cancel_is_kept_until_the_run_has_ended() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    assert_eq!(store.runs_to_cancel().unwrap(), []);
    assert!(store.request_cancel(&run).await.unwrap());
    drop(store);
    let store = place.open();
    assert_eq!(store.runs_to_cancel().unwrap(), std::slice::from_ref(&run), "also over a restart");
    store.take_interrupted().await.unwrap();
    let why = Some("cancelled by the operator".to_owned());
    let close = Close { status: RunStatus::Cancelled, outcome: Outcome::Failed, error: why, ..done() };
    store.close_run(&run, vec![], close, vec![], None).await.unwrap();
    assert_eq!(store.runs_to_cancel().unwrap(), []);
    assert!(!store.request_cancel(&run).await.unwrap(), "it has ended");
    assert!(!store.request_cancel(&RunId("r-none".to_owned())).await.unwrap());
    assert_eq!(place.text("SELECT reason FROM audit_letters"), "cancelled by the operator");
}

#[tokio::test]
async fn harness_u3_a_call_without_an_answer_is_billed_to_its_run() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    let failed = Step::ModelFailed { purpose: Purpose::Round, error: "server".to_owned(), message: "no".to_owned(), attempts: 5, cost: 9 };
    store.append(&run, vec![failed]).await.unwrap();
    assert_eq!(place.number("SELECT cost FROM audit_runs"), 9);
    assert!(place.text("SELECT data FROM audit_events WHERE kind = 'model.failed'").contains("\"attempts\":5"));
}

#[tokio::test]
async fn harness_j4_closing_a_run_and_queueing_its_letter_is_one_commit() {
    let place = Place::new();
    let store = place.open_stopping(CommitStop::Acknowledged(2));
    let (run, ..) = running(&store, 1).await;
    let refused = store.close_run(&run, vec![], done(), vec![outgoing("k", None)], None).await;
    assert!(matches!(refused, Err(StoreError::Fatal(_))));
    drop(store);
    let store = place.open();
    assert_eq!(place.number("SELECT count(*) FROM outgoing"), 0);
    assert_eq!(place.text("SELECT status FROM runs"), "running");
    assert_eq!(store.take_interrupted().await.unwrap().len(), 1);
    let queued = store.close_run(&run, vec![noted("last")], done(), vec![outgoing("k", None)], Some("escalated".to_owned())).await.unwrap();
    assert_eq!(queued.len(), 1);
    assert_eq!(store.replay(&run).await.unwrap(), [noted("last"), Step::Closed(done())]);
    assert_eq!(place.text("SELECT status || ' ' || outcome || ' ' || input_tokens || ' ' || cost FROM audit_runs"), "done answered 30 12");
    assert_eq!(place.text("SELECT verdict || ' ' || reason FROM audit_letters"), "accepted answered");
    assert_eq!(place.text("SELECT status || ' ' || reason FROM threads"), "held escalated");
    let again = store.close_run(&run, vec![], done(), vec![outgoing("k2", None)], None).await;
    assert!(matches!(again, Err(StoreError::Superseded)));
    assert_eq!(place.number("SELECT count(*) FROM outgoing"), 1);
}

#[tokio::test]
async fn a_failed_close_writes_nothing_of_it() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.queue(outgoing("k", None)).await.unwrap();
    // The same Message-ID under another key: the outbox refuses it, and with it all that was to be closed.
    let mut clash = outgoing("k", None);
    clash.sealed.effect_key = "other".to_owned();
    assert!(store.close_run(&run, vec![noted("last")], done(), vec![clash], None).await.is_err());
    assert!(store.replay(&run).await.unwrap().is_empty());
    assert_eq!(place.text("SELECT status FROM runs"), "running");
}

#[tokio::test]
async fn harness_u3_a_run_that_is_given_up_keeps_what_its_answers_cost() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.append(&run, vec![responded()]).await.unwrap();
    let spent = "SELECT rounds || ' ' || input_tokens || ' ' || output_tokens || ' ' || cost FROM audit_runs";
    let before = place.text(spent);
    let given_up = Close { status: RunStatus::Failed, outcome: Outcome::Failed, rounds: 0, usage: Usage::default(), cost: 0, ..done() };
    store.close_run(&run, vec![], given_up, vec![], None).await.unwrap();
    assert_eq!(place.text(spent), before);
    assert!(!before.ends_with(" 0"), "it cost something: {before}");
}

#[tokio::test]
async fn security_r16_only_attempts_without_progress_count() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.append(&run, vec![requested()]).await.unwrap();
    drop(store);
    let attempts = async |steps: Vec<Step>| {
        let store = place.open();
        let taken = store.take_interrupted().await.unwrap();
        assert_eq!(taken[0].id, run);
        assert!(store.take_interrupted().await.unwrap().is_empty());
        let number = store.note_run_attempt(&run).await.unwrap();
        store.append(&run, steps).await.unwrap();
        (taken[0].attempts, number)
    };
    assert_eq!(attempts(vec![requested()]).await, (1, 2));
    assert_eq!(attempts(vec![responded()]).await, (2, 3));
    assert_eq!(attempts(vec![]).await, (0, 1));
    assert_eq!(attempts(vec![]).await, (1, 2));
    assert_eq!(attempts(vec![]).await, (2, 3));
}

#[tokio::test]
async fn harness_b4_a_kept_result_is_bounded_and_belongs_to_its_run() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.keep_result(&run, "1.0", "é".repeat(6 * 1024 * 1024)).await.unwrap();
    let kept = store.kept_result(&run, "1.0").await.unwrap().unwrap();
    assert_eq!(kept.len(), 10 * 1024 * 1024);
    assert!(store.kept_result(&RunId("r2".to_owned()), "1.0").await.unwrap().is_none());
}

#[tokio::test]
async fn past_turns_are_the_answered_letters_before_this_one() {
    let place = Place::new();
    let store = place.open();
    let mut letters = vec![];
    for uid in 1..4 {
        let thread = if uid == 1 { NEW } else { ThreadChoice::Join(ThreadId(1)) };
        let letter = receive_in(&store, uid, "alice@example.com", thread).await;
        letters.push(letter);
        if uid < 3 {
            let run = run_for(&store, &format!("r{uid}"), letter).await;
            let id = run.id.clone();
            assert!(store.open_run(run, vec![noted("said")]).await.unwrap());
            let reply = QueueOutgoing { run: Some(id.clone()), ..outgoing(&format!("k{uid}"), Some(ThreadId(1))) };
            store.close_run(&id, vec![], done(), vec![reply], None).await.unwrap();
        }
    }
    let turns = store.past_turns(ThreadId(1), letters[2], 10).await.unwrap();
    assert_eq!(turns.iter().map(|turn| turn.letter).collect::<Vec<_>>(), letters[..2]);
    assert_eq!(turns[0].reply.as_deref(), Some("Yes."));
    assert_eq!(turns[0].steps, [noted("said"), Step::Closed(done())]);
    assert_eq!(turns[0].nonce, "nonce1");
    assert_eq!(store.past_turns(ThreadId(1), letters[2], 1).await.unwrap()[0].letter, letters[1]);
    assert!(store.past_turns(ThreadId(1), letters[0], 10).await.unwrap().is_empty());
    assert!(store.repeats_reply(ThreadId(1), "Yes.").await.unwrap());
    assert!(!store.repeats_reply(ThreadId(1), "No.").await.unwrap());
}

#[tokio::test]
async fn events_hold_no_text_of_a_letter() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.append(&run, vec![requested(), responded(), intended(), finished(ToolStatus::Failed)]).await.unwrap();
    let data = place.text("SELECT group_concat(data) FROM audit_events");
    for text in ["Cones", "shipped", "example.com", "order\\\""] {
        assert!(!data.contains(text), "{text} in {data}");
    }
    let started: serde_json::Value = serde_json::from_str(&place.text("SELECT data FROM audit_events WHERE kind = 'run.started'")).unwrap();
    assert_eq!(started, json!({ "agent": "sundae", "door": "reactive", "letter": 1, "thread": 1 }));
}

/// A letter's whole way by the store's verbs, from wherever an earlier daemon left it; ends early when the
/// store stops.
async fn whole_way(store: &Store) -> Result<(), StoreError> {
    store.receive(incoming(1, "alice@example.com"), accept(delivery("alice@example.com", NEW))).await?;
    let interrupted = store.take_interrupted().await?;
    let run = match interrupted.first() {
        Some(run) => Some(run.id.clone()),
        None => match store.waiting_letters(1, &Default::default()).await?.first() {
            Some(letter) => {
                let run = run_for(store, "r1", letter.id).await;
                assert!(store.open_run(run, vec![requested()]).await?);
                Some(RunId("r1".to_owned()))
            }
            None => None,
        },
    };
    if let Some(run) = run {
        for step in [responded(), intended(), finished(ToolStatus::Completed)] {
            if !store.replay(&run).await?.contains(&step) {
                store.append(&run, vec![step]).await?;
            }
        }
        store.close_run(&run, vec![], done(), vec![outgoing("reply", Some(ThreadId(1)))], None).await?;
    }
    let later = crate::clock::now() + chrono::Duration::seconds(1);
    for uncertain in store.uncertain_due("shop", later).await? {
        store.settle(uncertain.id, Sent::Accepted, later).await?;
    }
    for letter in store.claim_outgoing("shop", later, 10).await? {
        store.settle(letter.id, Sent::Accepted, later).await?;
    }
    Ok(())
}

#[tokio::test]
async fn security_r2_every_commit_point_in_both_modes_comes_to_one_answer() {
    let mut points = 0;
    for at in 1..20 {
        let mut stopped = false;
        for stop in [CommitStop::Acknowledged(at), CommitStop::Unacknowledged(at)] {
            let place = Place::new();
            let store = place.open_stopping(stop);
            let first = whole_way(&store).await;
            assert!(matches!(first, Ok(()) | Err(StoreError::Fatal(_))), "{stop:?}: {first:?}");
            stopped |= first.is_err();
            drop(store);
            let store = place.open();
            whole_way(&store).await.unwrap();
            let stands = place.text(
                "SELECT (SELECT count(*) FROM audit_letters) || (SELECT count(*) FROM audit_tool_calls WHERE status = 'completed')
                     || (SELECT group_concat(status) FROM audit_runs) || (SELECT group_concat(status) FROM audit_outgoing)",
            );
            assert_eq!(stands, "11donesent", "{stop:?}");
            assert_eq!(store.replay(&RunId("r1".to_owned())).await.unwrap().len(), 5, "{stop:?}");
        }
        if !stopped {
            break;
        }
        points = at;
    }
    assert_eq!(points, 8);
}
