use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::chat::{CallId, Reply, StopReason, Usage};
use crate::config::Effect;
use crate::mail::{Inbound, MessageId, NamedAddress};
use crate::run::{Door, Identity, LetterId, RunId, ThreadId, testing};
use crate::store::{Decision, Delivery, Incoming, NewRun, OpenOptions, Position, Purpose, ThreadChoice, ToolStatus, Verdict};

fn call(id: &str, name: &str) -> ToolCall {
    ToolCall { id: CallId(id.to_owned()), name: name.into(), arguments: "{}".to_owned() }
}

fn responded(text: &str, calls: &[ToolCall]) -> Step {
    let mut blocks = vec![Block::Text { text: text.to_owned(), source: Source::Model }];
    blocks.extend(calls.iter().cloned().map(Block::Call));
    let origin = Origin { provider: "kimi".to_owned(), wire: "openai".to_owned(), model: "k2".to_owned() };
    let message = Message::Assistant { blocks, origin };
    let reply = Reply { message, stop: StopReason::ToolUse, raw_stop: None, usage: Usage::default(), response_id: None };
    Step::ModelResponded { purpose: Purpose::Round, reply, cost: 0, attempts: 1, headers: Map::new() }
}

fn finished(call: &ToolCall, text: &str) -> Step {
    let result = ToolResult { call: call.id.clone(), text: text.to_owned(), is_error: false };
    Step::ToolFinished { round: 1, position: 0, call: call.clone(), result, status: ToolStatus::Completed }
}

fn alice() -> Address {
    "alice@example.com".parse().unwrap()
}

fn turn(text: &str, steps: Vec<Step>, reply: Option<&str>) -> PastTurn {
    let inbound = Inbound {
        message_id: MessageId::parse("<a@example.com>").unwrap(),
        in_reply_to: Vec::new(),
        references: Vec::new(),
        from: NamedAddress { name: None, address: "alice@example.com".parse().unwrap() },
        reply_to: Vec::new(),
        to: Vec::new(),
        cc: Vec::new(),
        delivered_to: Vec::new(),
        subject: "Cake".to_owned(),
        text: text.to_owned(),
        remarks: Vec::new(),
        attachments: Vec::new(),
        date: None,
    };
    PastTurn {
        letter: LetterId(1),
        inbound,
        identity: Identity::Verified,
        nonce: "7f3a".to_owned(),
        received_at: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
        run: Some(RunId("r1".to_owned())),
        steps,
        reply: reply.map(str::to_owned),
    }
}

#[test]
fn what_another_participant_wrote_is_a_third_partys_text() {
    let bob: Address = "bob@example.com".parse().unwrap();
    for (writer, expected) in [(Some(alice()), Source::Customer), (Some(bob), Source::ThirdParty), (None, Source::ThirdParty)] {
        let messages = turn_messages(&turn("Where is it?", Vec::new(), None), writer.as_ref(), true);
        let Some(Message::User { blocks }) = messages.first() else { panic!("{messages:?}") };
        assert!(matches!(blocks.first(), Some(Block::Text { source, .. }) if *source == expected));
    }
}

#[test]
fn a_turn_is_its_letter_its_tool_use_and_its_answer() {
    let (one, two) = (call("c1", "order_status"), call("c2", "refund"));
    let written = ToolCall { name: "Order-Status".into(), ..one.clone() };
    let steps = vec![
        responded("Let me look.", &[written, two.clone()]),
        Step::ToolIntended { round: 1, position: 0, call: one.clone(), effect: Effect::Pure, effect_key: "k".to_owned(), repaired: None },
        finished(&two, "refunded"),
        finished(&one, "shipped"),
        Step::Noted { text: "Write now.".to_owned() },
        responded("It is on its way.", &[]),
    ];
    let messages = turn_messages(&turn("Where is it?", steps, Some("It is on its way.\n\n-- \nSundae")), Some(&alice()), true);
    let [letter, response, Message::Results { results }, answer] = messages.as_slice() else { panic!("{messages:?}") };
    assert!(
        letter
            .text()
            .starts_with("<untrusted id=\"7f3a\" source=\"email from=alice@example.com\">\nFrom: <alice@example.com>\nSubject: Cake")
    );
    assert_eq!(response.calls(), [&one, &two]);
    let shown: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
    let wrapped = |tool, text| untrusted::wrap("7f3a", tool, text);
    assert_eq!(shown, [wrapped("tool order_status", "shipped"), wrapped("tool refund", "refunded")]);
    assert_eq!(answer.text(), "It is on its way.\n\n-- \nSundae");
    assert!(matches!(answer, Message::Assistant { origin, .. } if origin.provider == "kimi"));
}

#[test]
fn results_of_earlier_runs_are_bounded_and_stay_wrapped() {
    let one = call("c1", "order_status");
    let long = "ä".repeat(50_000);
    let messages = tool_use(&[responded("", std::slice::from_ref(&one)), finished(&one, &long)], "9b");
    let [_, Message::Results { results }] = messages.as_slice() else { panic!("{messages:?}") };
    assert!(results[0].text.len() < RESULT + 200 && results[0].text.ends_with("</untrusted id=9b>"));
}

#[test]
fn harness_c3_whole_turns_are_left_out_the_oldest_first() {
    let long = "x".repeat(3000);
    let turns: Vec<PastTurn> = (0..5).map(|at| turn(&format!("{at} {long}"), Vec::new(), Some("Answer."))).collect();
    let messages = newest_within(&turns, Some(&alice()), 10_000);
    let letters: Vec<String> = messages.iter().filter(|message| matches!(message, Message::User { .. })).map(Message::text).collect();
    assert_eq!((letters.len(), messages.len()), (3, 6));
    assert!(letters[0].contains("\n\n2 xxx") && letters[2].contains("\n\n4 xxx"));
}

#[test]
fn a_turn_too_long_for_its_tool_use_keeps_letter_and_answer() {
    let one = call("c1", "order_status");
    let steps = vec![responded("", std::slice::from_ref(&one)), finished(&one, &"x".repeat(3000))];
    let messages = newest_within(&[turn("Where?", steps, Some("Here."))], Some(&alice()), 2000);
    assert_eq!(messages.iter().map(|message| message.calls().len()).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(messages.last().unwrap().text(), "Here.");
}

/// Receives an accepted letter of Alice and gives its row and thread.
async fn received(store: &Store, text: &str, thread: ThreadChoice, at: DateTime<Utc>) -> (LetterId, ThreadId) {
    let incoming = Incoming {
        mailbox: "shop".to_owned(),
        folder: "INBOX".to_owned(),
        position: Position::Maildir(text.to_owned()),
        follows: None,
        raw: text.as_bytes().to_vec(),
        sha256: text.to_owned(),
        received_at: at,
        parsed: Some(Inbound {
            message_id: MessageId::parse(&format!("{}@x", text.len())).unwrap(),
            ..turn(text, Vec::new(), None).inbound
        }),
        nonce: "7f3a".to_owned(),
    };
    let delivery = Delivery {
        agent: Some("sundae".to_owned()),
        own_address: Some("sundae@shop.example".parse().unwrap()),
        reply_to: Some("alice@example.com".parse().unwrap()),
        verdict: Verdict::Accepted,
        reason: "accepted".to_owned(),
        thread,
        caps: None,
    };
    let decision = Decision { identity: Identity::Verified, deliveries: vec![delivery] };
    let letter = store.receive(incoming, Box::new(move |_| decision)).await.unwrap().letters[0].0;
    if let ThreadChoice::Join(thread) = thread {
        return (letter, thread);
    }
    let waiting = store.waiting_letters(10, &BTreeSet::new()).await.unwrap();
    (letter, waiting.iter().find(|waiting| waiting.id == letter).unwrap().thread)
}

#[tokio::test]
async fn a_follow_up_is_shown_the_letters_and_tool_use_before_it_and_another_thread_nothing() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(&home.path().join("dutiful.db"), OpenOptions::default()).unwrap();
    let at = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let (first, thread) = received(&store, "Where is it?", ThreadChoice::New { related_to: None }, at).await;
    let one = call("c1", "order_status");
    let run = NewRun {
        id: RunId("r1".to_owned()),
        door: Door::Reactive,
        agent: "sundae".to_owned(),
        thread: Some(thread),
        letter: Some(first),
        model: "kimi".to_owned(),
        started_at: at,
    };
    assert!(store.open_run(run, vec![responded("", std::slice::from_ref(&one)), finished(&one, "shipped")]).await.unwrap());
    let (second, _) = received(&store, "And my other order?", ThreadChoice::Join(thread), at + TimeDelta::minutes(5)).await;
    let (other, elsewhere) =
        received(&store, "A new matter", ThreadChoice::New { related_to: Some(thread) }, at + TimeDelta::minutes(6)).await;
    assert_ne!(elsewhere, thread);

    let history = History { store: store.clone() };
    let mut context = testing::context(Identity::Verified, Identity::Verified);
    (context.thread, context.letter) = (Some(thread), Some(second));
    let Some(Piece::History(messages)) = history.resolve(&context).await.unwrap() else { panic!("no history") };
    assert_eq!(
        messages,
        turn_messages(
            &turn("Where is it?", vec![responded("", std::slice::from_ref(&one)), finished(&one, "shipped")], None),
            Some(&alice()),
            true
        )
    );
    (context.thread, context.letter) = (Some(elsewhere), Some(other));
    assert_eq!(history.resolve(&context).await.unwrap(), None);
    store.close().await;
}

proptest! {
    #[test]
    fn harness_l8_every_call_has_one_result_directly_after(choices in proptest::collection::vec((0..4_u8, 0..4_u8), 0..40)) {
        let calls: Vec<ToolCall> = (0..4).map(|at| call(&format!("c{at}"), "order_status")).collect();
        let steps: Vec<Step> = choices
            .iter()
            .map(|(kind, at)| match kind {
                0 => responded("hm", &calls[..usize::from(*at)]),
                1 => Step::Noted { text: "note".to_owned() },
                _ => finished(&calls[usize::from(*at)], "result"),
            })
            .collect();
        let messages = tool_use(&steps, "9b");
        for pair in messages.chunks(2) {
            let [response, Message::Results { results }] = pair else { panic!("{pair:?}") };
            let called: Vec<&CallId> = response.calls().into_iter().map(|call| &call.id).collect();
            let answered: Vec<&CallId> = results.iter().map(|result| &result.call).collect();
            prop_assert!(!called.is_empty());
            prop_assert_eq!(called, answered);
        }
    }
}
