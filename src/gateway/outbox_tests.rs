use std::sync::Arc;

use super::*;
use crate::config::{Audience, Budget, OnLimit, OutgoingPolicy, Send as Way, TodoMode, ToolGrants};
use crate::gateway::test_letters::{address, mailbox, settings};
use crate::run::{Door, Identity, Party, RunId, ThreadId};
use crate::store::{Filter, HeldOutgoing, OpenOptions, View};

/// Stands in the context where the tests do not go out through it.
#[derive(Debug)]
struct NoWayOut;

impl Outbox for NoWayOut {
    fn seal(&self, _: &RunContext, _: Draft) -> Result<Sealed, OutboxError> {
        Err(OutboxError::NoRecipient)
    }

    fn post<'a>(&'a self, _: &'a RunContext, _: Draft) -> BoxFuture<'a, Result<Posted, OutboxError>> {
        Box::pin(async { Err(OutboxError::NoRecipient) })
    }
}

fn context(fence: &[Fence]) -> RunContext {
    let agent = Agent {
        name: "sundae".to_owned(),
        description: String::new(),
        mailbox: Some("shop".to_owned()),
        addresses: vec![address("sundae+cakes@shop.example")],
        display_name: Some("Sundae".to_owned()),
        model: "model".to_owned(),
        max_tool_turns: 8,
        on_limit: OnLimit::ClosingCall,
        fallback_reply: String::new(),
        prompt: String::new(),
        signature: None,
        audience: Audience::Public,
        identity: Identity::Verified,
        tools: ToolGrants::default(),
        reactive: Vec::new(),
        proactive: Vec::new(),
        budget: Budget { run_tokens: None, day_cost: None, todo_mode: TodoMode::Auto },
        outgoing: OutgoingPolicy {
            recipients: fence.iter().cloned().collect(),
            hold: Hold::Never,
            delay: Duration::ZERO,
            links: BTreeSet::new(),
            reply_all: false,
        },
    };
    let party = Party {
        address: Some(address("alice@example.com")),
        name: None,
        identity: Identity::Verified,
        participants: [address("alice@example.com"), address("bob@example.com"), address("help@shop.example")].into(),
        reply_to: Some(address("alice@example.com")),
        customer: None,
    };
    RunContext {
        run: RunId("r1".to_owned()),
        door: Door::Reactive,
        agent: Arc::new(agent),
        settings: Arc::new(settings(mailbox(Way::Maildir("/nowhere".into())))),
        party: Arc::new(party),
        thread: Some(ThreadId(1)),
        letter: None,
        own_address: Some(address("sundae@shop.example")),
        outbox: Arc::new(NoWayOut),
    }
}

fn draft(kind: OutgoingKind, to: &[&str]) -> Draft {
    Draft {
        kind,
        to: to.iter().map(|one| address(one)).collect(),
        from: address("sundae@shop.example"),
        subject: "s".to_owned(),
        text: "t".to_owned(),
        in_reply_to: None,
        references: Vec::new(),
        effect_key: "key".to_owned(),
    }
}

fn recipients(fence: &[Fence], kind: OutgoingKind, to: &[&str]) -> Result<Vec<Address>, OutboxError> {
    let context = context(fence);
    let mailbox = mailbox_of(&context.agent, &context.settings).unwrap();
    allowed_recipients(&context, mailbox, &draft(kind, to))
}

#[test]
fn email_g7_security_s6_nobody_outside_the_fence_is_written_to() {
    use OutgoingKind::{Notice, Question, Reply, Report, Tool};
    let (thread, operator) = ([Fence::Thread], [Fence::Operator]);
    let (supplier, unknown) = ([Fence::Contact("supplier".to_owned())], [Fence::Contact("nobody".to_owned())]);
    let everywhere = [Fence::Thread, Fence::Operator, Fence::Contact("supplier".to_owned())];
    let (alice, owner, orders) = ("alice@example.com", "owner@shop.example", "orders@supplier.example");
    for (fence, kind, to, allowed) in [
        (&thread[..], Reply, alice, true),
        (&thread, Reply, "ALICE@example.com", true),
        (&thread, Reply, "bob@example.com", true),
        (&everywhere, Reply, orders, false),
        (&everywhere, Reply, owner, false),
        (&everywhere, Reply, "mallory@evil.example", false),
        (&operator, Reply, alice, true),
        (&thread, Reply, "help@shop.example", false),
        (&thread, Reply, "sundae+cakes@shop.example", false),
        (&thread, Tool, alice, true),
        (&thread, Tool, owner, false),
        (&thread, Tool, orders, false),
        (&operator, Tool, owner, true),
        (&operator, Tool, alice, false),
        (&supplier, Tool, orders, true),
        (&unknown, Tool, orders, false),
        (&everywhere, Tool, "mallory@evil.example", false),
        (&[], Tool, alice, false),
        (&[], Question, alice, true),
        (&[], Question, owner, true),
        (&everywhere, Question, orders, false),
        (&[], Notice, owner, true),
        (&everywhere, Notice, alice, false),
        (&[], Report, owner, true),
        (&supplier, Report, orders, true),
        (&[], Report, alice, false),
    ] {
        match recipients(fence, kind, &[to]) {
            Ok(found) => assert!(allowed && found == [address(to)], "{kind:?} to {to} inside {fence:?}"),
            Err(OutboxError::OutsideFence(outside)) => assert!(!allowed && outside == address(to), "{kind:?} to {to} inside {fence:?}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn email_g7_one_stranger_among_many_stops_the_letter() {
    let fence = [Fence::Thread, Fence::Operator];
    let many = |to: &[&str]| recipients(&fence, OutgoingKind::Tool, to);
    assert!(matches!(many(&["alice@example.com", "mallory@evil.example"]), Err(OutboxError::OutsideFence(_))));
    assert_eq!(many(&["alice@example.com", "Alice@example.com"]).unwrap().len(), 1, "each once");
    assert!(matches!(many(&[]), Err(OutboxError::NoRecipient)));
    let six: Vec<String> = (0..6).map(|n| format!("a{n}@example.com")).collect();
    let six: Vec<&str> = six.iter().map(String::as_str).collect();
    assert!(matches!(many(&six), Err(OutboxError::Limit(_))));
}

#[test]
fn email_g19_a_letter_waits_for_a_person_as_the_agent_says() {
    let (operator, alice, bob) = (address("owner@shop.example"), address("alice@example.com"), address("bob@example.com"));
    let is_stranger = |one: &Address| Ok(*one == bob);
    let held = |hold, to: &[&Address]| {
        let to: Vec<Address> = to.iter().map(|one| (*one).clone()).collect();
        held_reason(hold, &operator, &to, is_stranger).unwrap().is_some()
    };
    assert!(!held(Hold::Never, &[&bob]));
    assert!(held(Hold::Always, &[&alice]));
    assert!(held(Hold::Always, &[&operator, &alice]));
    assert!(!held(Hold::Always, &[&operator]), "the operator's own mail would wait for its reader");
    assert!(!held(Hold::FirstContact, &[&alice]));
    assert!(held(Hold::FirstContact, &[&alice, &bob]));
    let broken = held_reason(Hold::FirstContact, &operator, std::slice::from_ref(&alice), |_| Err(OutboxError::NoRecipient));
    assert!(broken.is_err(), "what cannot be known does not leave");
}

#[test]
fn the_delay_is_counted_from_now() {
    let now = DateTime::UNIX_EPOCH;
    assert_eq!(delayed(now, Duration::ZERO), None);
    assert_eq!(delayed(now, Duration::from_secs(90)), Some(now + TimeDelta::seconds(90)));
    assert_eq!(delayed(now, Duration::MAX), None);
}

/// A store in a folder of its own, and the outbox over it.
fn outbox() -> (tempfile::TempDir, Store, GatewayOutbox) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("test.db"), OpenOptions::default()).unwrap();
    let outbox = GatewayOutbox::new(store.clone(), Events::default());
    (folder, store, outbox)
}

fn rows(store: &Store) -> Vec<(String, String)> {
    let rows = store.rows(View::Outgoing, &Filter::default()).unwrap();
    rows.iter().map(|row| (row["kind"].as_str().unwrap().to_owned(), row["status"].as_str().unwrap().to_owned())).collect()
}

/// A context whose run and thread stand nowhere: the store keeps only what refers to real rows.
fn free_context(change: impl FnOnce(&mut Agent, &mut Settings)) -> RunContext {
    let mut context = context(&[Fence::Thread, Fence::Operator]);
    let (mut agent, mut settings) = ((*context.agent).clone(), (*context.settings).clone());
    change(&mut agent, &mut settings);
    (context.agent, context.settings, context.thread) = (Arc::new(agent), Arc::new(settings), None);
    context
}

#[tokio::test]
async fn email_g1_asked_for_again_it_is_the_same_letter() {
    let (_folder, store, outbox) = outbox();
    let context = free_context(|_, _| {});
    let first = outbox.post(&context, draft(OutgoingKind::Tool, &["alice@example.com"])).await.unwrap();
    let again = outbox.post(&context, draft(OutgoingKind::Tool, &["alice@example.com"])).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(rows(&store), [("tool".to_owned(), "queued".to_owned())]);
    let other = Draft { effect_key: "other".to_owned(), ..draft(OutgoingKind::Tool, &["alice@example.com"]) };
    assert_ne!(outbox.post(&context, other).await.unwrap().message_id, first.message_id);
}

#[tokio::test]
async fn email_g7_what_the_law_forbids_is_not_in_the_store() {
    let (_folder, store, outbox) = outbox();
    let context = free_context(|_, _| {});
    let stranger = outbox.post(&context, draft(OutgoingKind::Tool, &["mallory@evil.example"])).await;
    assert!(matches!(stranger, Err(OutboxError::OutsideFence(_))));
    let foreign = Draft { from: address("owner@shop.example"), ..draft(OutgoingKind::Tool, &["alice@example.com"]) };
    assert!(matches!(outbox.post(&context, foreign).await, Err(OutboxError::Malformed(_))));
    let empty = Draft { text: " \n".to_owned(), ..draft(OutgoingKind::Tool, &["alice@example.com"]) };
    assert!(matches!(outbox.post(&context, empty).await, Err(OutboxError::Empty)));
    assert!(rows(&store).is_empty());
}

#[tokio::test]
async fn a_first_contact_is_held_and_never_leaves_by_itself() {
    let (_folder, store, outbox) = outbox();
    let context = free_context(|agent, _| agent.outgoing.hold = Hold::FirstContact);
    let posted = outbox.post(&context, draft(OutgoingKind::Tool, &["alice@example.com"])).await.unwrap();
    assert_eq!(posted.held.as_deref(), Some("hold: first_contact"));
    assert_eq!(rows(&store), [("tool".to_owned(), "held".to_owned())]);
    assert!(store.claim_outgoing("shop", crate::clock::now(), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_delayed_letter_is_not_due_before_its_time() {
    let (_folder, store, outbox) = outbox();
    let context = free_context(|agent, _| agent.outgoing.delay = Duration::from_secs(600));
    outbox.post(&context, draft(OutgoingKind::Tool, &["alice@example.com"])).await.unwrap();
    assert!(store.claim_outgoing("shop", crate::clock::now(), 10).await.unwrap().is_empty());
    assert_eq!(store.claim_outgoing("shop", crate::clock::now() + TimeDelta::minutes(11), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn operator_mails_are_capped_and_replies_are_not_counted() {
    let (_folder, store, outbox) = outbox();
    let context = free_context(|_, settings| settings.limits.operator_mails_per_hour = 2);
    for n in 0..3 {
        let question = Draft { effect_key: format!("q{n}"), ..draft(OutgoingKind::Question, &["owner@shop.example"]) };
        let posted = outbox.post(&context, question).await;
        assert_eq!(posted.is_ok(), n < 2);
        let reply = Draft { effect_key: format!("r{n}"), ..draft(OutgoingKind::Reply, &["alice@example.com"]) };
        outbox.post(&context, reply).await.unwrap();
    }
    let notices = Notices::new(store.clone(), Events::default(), Arc::clone(&context.settings), "shop");
    assert!(!notices.tell("key", Duration::from_secs(60), "s", "t").await, "a notice counts too");
    assert_eq!(rows(&store).len(), 5);
}

#[tokio::test]
async fn a_notice_is_said_once_in_its_window() {
    let (_folder, store, _outbox) = outbox();
    let context = free_context(|_, _| {});
    let notices = Notices::new(store.clone(), Events::default(), Arc::clone(&context.settings), "shop");
    assert!(notices.tell("imap.login:shop", Duration::from_secs(60), "The server is away", "Since noon.").await);
    assert!(!notices.tell("imap.login:shop", Duration::from_secs(60), "The server is away", "Since noon.").await);
    assert!(notices.tell("disk", Duration::from_secs(60), "The disk is full", "Make room.").await);
    let claimed = store.claim_outgoing("shop", crate::clock::now(), 10).await.unwrap();
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|letter| letter.recipient == address("owner@shop.example") && letter.kind == OutgoingKind::Notice));
    let text = String::from_utf8(claimed[0].bytes.clone()).unwrap();
    assert!(text.contains("Auto-Submitted: auto-generated") && text.contains("X-Dutiful-Install: "));
}

#[tokio::test]
async fn a_held_letter_is_rewritten_for_all_its_recipients_and_leaves_as_it_was_addressed() {
    let (_folder, store, outbox) = outbox();
    let context = free_context(|agent, _| agent.outgoing.hold = Hold::Always);
    let posted = outbox.post(&context, draft(OutgoingKind::Reply, &["alice@example.com", "bob@example.com"])).await.unwrap();
    let HeldOutgoing { agent, kind, bytes: old } = store.held_outgoing(posted.id).unwrap().unwrap();
    assert_eq!((agent.as_deref(), kind), (Some("sundae"), OutgoingKind::Reply));
    assert!(outbox.rewrite(Some(&context.agent), kind, &old, " \n", crate::clock::now()).is_err(), "an empty text is no letter");
    let (text, bytes) = outbox.rewrite(Some(&context.agent), kind, &old, "Written by a person.", crate::clock::now()).unwrap();
    assert!(store.edit_outgoing(posted.id, text, bytes).await.unwrap());
    for id in [posted.id.0, posted.id.0 + 1] {
        let (text, bytes) = store.outgoing_content(id).unwrap().unwrap();
        let (draft, message_id) = compose::draft_of(&bytes, kind, &text).unwrap();
        assert_eq!((text.as_str(), &message_id), ("Written by a person.", &posted.message_id));
        assert_eq!(draft.to, [address("alice@example.com"), address("bob@example.com")]);
    }
    assert!(store.held_outgoing(OutgoingId(99)).unwrap().is_none());
}
