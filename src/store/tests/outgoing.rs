//! The outbox: order, attempts, uncertain letters, the operator's decisions.

use super::*;

async fn claim(store: &Store) -> Vec<ClaimedOutgoing> {
    store.claim_outgoing("shop", crate::clock::now() + chrono::Duration::seconds(1), 10).await.unwrap()
}

fn ids(claimed: &[ClaimedOutgoing]) -> Vec<i64> {
    claimed.iter().map(|letter| letter.id.0).collect()
}

#[tokio::test]
async fn harness_j4_the_same_effect_key_is_the_same_letter() {
    let place = Place::new();
    let store = place.open();
    let mut letter = outgoing("k", None);
    letter.sealed.recipients.push(address("bob@example.com"));
    let first = store.queue(letter.clone()).await.unwrap();
    letter.sealed.message_id = MessageId::parse("minted-again@shop.example").unwrap();
    assert_eq!(store.queue(letter).await.unwrap(), first);
    assert_eq!(place.number("SELECT count(*) FROM outgoing"), 2);
    assert_eq!(place.number("SELECT count(*) FROM audit_events WHERE kind = 'outgoing.queued'"), 2);
}

#[tokio::test]
async fn email_g11_a_thread_is_sent_in_order_and_blocks_itself_only() {
    let place = Place::new();
    let store = place.open();
    let mut report = outgoing("report", None);
    report.sealed.kind = OutgoingKind::Report;
    store.queue(report).await.unwrap();
    for (key, thread) in [("a1", 1), ("a2", 1), ("b1", 2)] {
        store.queue(outgoing(key, Some(ThreadId(thread)))).await.unwrap();
    }
    let first = claim(&store).await;
    assert_eq!(ids(&first), [2, 4, 1]);
    assert!(claim(&store).await.is_empty());
    assert_eq!(store.outgoing_due("shop").await.unwrap(), None);
    let later = noon() + chrono::Duration::days(900);
    store.settle(first[0].id, Sent::Later { at: later, error: "451 busy".to_owned() }, crate::clock::now()).await.unwrap();
    assert!(claim(&store).await.is_empty());
    assert_eq!(store.outgoing_due("shop").await.unwrap(), Some(later));
    let again = store.claim_outgoing("shop", later, 10).await.unwrap();
    assert_eq!((ids(&again), again[0].attempts), (vec![2], 2));
    store.settle(first[0].id, Sent::Accepted, crate::clock::now()).await.unwrap();
    assert_eq!(ids(&claim(&store).await), [3]);
}

#[tokio::test]
async fn email_g9_a_letter_let_go_while_it_was_looked_for_is_not_sent_once_more() {
    let place = Place::new();
    let store = place.open();
    store.queue(outgoing("k", None)).await.unwrap();
    let letter = claim(&store).await.remove(0);
    let doubt = Sent::Uncertain { check_at: noon(), error: "no reply".to_owned() };
    store.settle(letter.id, doubt, noon()).await.unwrap();
    assert!(store.change_outgoing(letter.id, OutgoingChange::Approve).await.unwrap());
    let resent = claim(&store).await.remove(0);
    // The look into the Sent folder, begun before, ends while the approved letter is on its way.
    assert!(matches!(store.settle(letter.id, Sent::Resend, noon()).await, Err(StoreError::Superseded)));
    store.settle(resent.id, Sent::Accepted, noon()).await.unwrap();
    assert_eq!(place.text("SELECT status || coalesce(error, '') FROM outgoing"), "sent");
    assert!(claim(&store).await.is_empty());
}

#[tokio::test]
async fn all_recipients_of_one_letter_leave_together() {
    let place = Place::new();
    let store = place.open();
    let mut letter = outgoing("k", Some(ThreadId(1)));
    letter.sealed.recipients.push(address("bob@example.com"));
    store.queue(letter).await.unwrap();
    let claimed = claim(&store).await;
    assert_eq!(ids(&claimed), [1, 2]);
    for letter in &claimed {
        store.settle(letter.id, Sent::Accepted, noon()).await.unwrap();
    }
    // One copy for the Sent folder, not one for each recipient.
    assert_eq!(ids(&store.without_copy("shop", 10).await.unwrap()), [1]);
    store.copied(claimed[0].id).await.unwrap();
    assert!(store.without_copy("shop", 10).await.unwrap().is_empty());
    assert_eq!(place.text("SELECT min(sent_at) FROM audit_outgoing"), "2026-11-30T12:00:00.000Z");
    assert!(store.has_written_to(&address("BOB@example.com")).unwrap());
    assert!(!store.has_written_to(&address("carol@example.com")).unwrap());
}

#[tokio::test]
async fn email_g9_what_was_being_sent_is_uncertain_after_a_restart() {
    let place = Place::new();
    let store = place.open();
    store.queue(outgoing("k1", Some(ThreadId(1)))).await.unwrap();
    store.queue(outgoing("k2", Some(ThreadId(1)))).await.unwrap();
    let sending = claim(&store).await;
    drop(store);
    let store = place.open();
    let due = store.uncertain_due("shop", crate::clock::now() + chrono::Duration::seconds(1)).await.unwrap();
    assert_eq!(ids(&due), [1]);
    assert_eq!(due[0].bytes, sending[0].bytes);
    assert!(claim(&store).await.is_empty(), "the next of the thread must wait");
    assert!(store.outgoing_due("shop").await.unwrap().is_some());
    assert_eq!(place.number("SELECT count(*) FROM audit_events WHERE kind = 'outgoing.uncertain'"), 1);
    store.settle(due[0].id, Sent::Resend, crate::clock::now()).await.unwrap();
    let again = claim(&store).await;
    assert_eq!((ids(&again), again[0].resends, again[0].attempts), (vec![1], 1, 2));
    store.settle(again[0].id, Sent::Uncertain { check_at: noon(), error: "cut".to_owned() }, noon()).await.unwrap();
    assert_eq!(store.uncertain_due("shop", noon()).await.unwrap().len(), 1);
    store.settle(again[0].id, Sent::Hold { reason: "sent twice without an answer".to_owned() }, noon()).await.unwrap();
    assert_eq!(place.text("SELECT status || ': ' || error FROM audit_outgoing WHERE id = 1"), "held: sent twice without an answer");
    assert_eq!(ids(&claim(&store).await), [2]);
}

#[tokio::test]
async fn an_unreachable_server_costs_the_letter_no_attempt() {
    let place = Place::new();
    let store = place.open();
    store.queue(outgoing("k", None)).await.unwrap();
    let letter = claim(&store).await.remove(0);
    store.settle(letter.id, Sent::Unreached { at: noon(), error: "refused".to_owned() }, noon()).await.unwrap();
    assert_eq!(claim(&store).await[0].attempts, 1);
    store.settle(letter.id, Sent::Failed { error: "550 no such user".to_owned() }, noon()).await.unwrap();
    assert_eq!(place.text("SELECT status || ': ' || error FROM audit_outgoing"), "failed: 550 no such user");
    assert!(matches!(store.settle(letter.id, Sent::Accepted, noon()).await, Err(StoreError::Superseded)));
}

#[tokio::test]
async fn nothing_leaves_while_sending_is_off() {
    let place = Place::new();
    let store = place.open();
    store.queue(outgoing("k", None)).await.unwrap();
    assert!(store.set_switch(&Switch::Sending, true).await.unwrap());
    assert!(!store.set_switch(&Switch::Sending, true).await.unwrap());
    assert!(claim(&store).await.is_empty());
    assert_eq!(store.outgoing_due("shop").await.unwrap(), None);
    let woken = store.outgoing_waiting().notified();
    store.set_switch(&Switch::Sending, false).await.unwrap();
    woken.await;
    assert_eq!(claim(&store).await.len(), 1);
    assert_eq!(place.number("SELECT count(*) FROM audit_events WHERE kind = 'switch.changed'"), 2);
}

#[tokio::test]
async fn a_tool_is_off_for_an_agent_when_it_is_off_for_all() {
    let place = Place::new();
    let store = place.open();
    let tool = |agent: Option<&str>| Switch::Tool { name: "refund".to_owned(), agent: agent.map(str::to_owned) };
    store.set_switch(&tool(Some("sundae")), true).await.unwrap();
    assert!(store.is_off(&tool(Some("sundae"))).unwrap());
    assert!(!store.is_off(&tool(Some("scout"))).unwrap());
    store.set_switch(&tool(None), true).await.unwrap();
    assert!(store.is_off(&tool(Some("scout"))).unwrap());
    assert_eq!(store.switched_off().unwrap(), ["tool:refund", "tool:refund@sundae"]);
}

#[tokio::test]
async fn the_operator_decides_about_held_letters() {
    let place = Place::new();
    let store = place.open();
    let mut letter = outgoing("k", None);
    letter.sealed.held = Some("first contact".to_owned());
    let id = store.queue(letter).await.unwrap()[0];
    assert_eq!(place.text("SELECT status || ': ' || error FROM audit_outgoing"), "held: first contact");
    assert!(claim(&store).await.is_empty());
    assert!(!store.change_outgoing(id, OutgoingChange::Undo).await.unwrap());
    assert!(store.edit_outgoing(id, "No.".to_owned(), b"No.\r\n".to_vec()).await.unwrap());
    assert!(store.change_outgoing(id, OutgoingChange::Approve).await.unwrap());
    assert!(store.change_outgoing(id, OutgoingChange::Undo).await.unwrap());
    assert!(store.change_outgoing(id, OutgoingChange::Approve).await.unwrap());
    assert_eq!(claim(&store).await[0].bytes, b"No.\r\n");
    assert!(!store.change_outgoing(id, OutgoingChange::Undo).await.unwrap());
    assert!(!store.edit_outgoing(id, String::new(), vec![]).await.unwrap());
    store.settle(id, Sent::Failed { error: "550".to_owned() }, noon()).await.unwrap();
    assert!(store.change_outgoing(id, OutgoingChange::Retry).await.unwrap());
    assert_eq!(claim(&store).await[0].attempts, 1);
    assert_eq!(store.outgoing_content(id.0).unwrap(), Some(("No.".to_owned(), b"No.\r\n".to_vec())));

    let mut letter = outgoing("k2", None);
    letter.sealed.held = Some("first contact".to_owned());
    let id = store.queue(letter).await.unwrap()[0];
    assert!(store.change_outgoing(id, OutgoingChange::Reject).await.unwrap());
    assert!(!store.change_outgoing(id, OutgoingChange::Approve).await.unwrap());
}

#[tokio::test]
async fn a_letter_leaves_not_before_its_time() {
    let place = Place::new();
    let store = place.open();
    let later = noon() + chrono::Duration::days(900);
    let mut letter = outgoing("k", None);
    letter.sealed.not_before = Some(later);
    store.queue(letter).await.unwrap();
    assert!(claim(&store).await.is_empty());
    assert_eq!(store.outgoing_due("shop").await.unwrap(), Some(later));
    assert!(store.claim_outgoing("other", later, 10).await.unwrap().is_empty());
    assert_eq!(store.claim_outgoing("shop", later, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_notice_is_due_once_in_its_window() {
    let place = Place::new();
    let store = place.open();
    let hour = Duration::from_secs(3600);
    assert!(store.notice_due("full", noon(), hour).await.unwrap());
    assert!(!store.notice_due("full", noon() + chrono::Duration::minutes(59), hour).await.unwrap());
    assert!(store.notice_due("other", noon(), hour).await.unwrap());
    assert!(store.notice_due("full", noon() + chrono::Duration::minutes(60), hour).await.unwrap());
    let mut report = outgoing("k", None);
    report.sealed.kind = OutgoingKind::Notice;
    let before = crate::clock::now() - chrono::Duration::seconds(1);
    store.queue(report).await.unwrap();
    store.queue(outgoing("reply", None)).await.unwrap();
    assert_eq!(store.operator_mails_since(before).unwrap(), 1);
}
