use std::sync::Arc;

use super::*;
use crate::config::{Audience, Budget, OnLimit, OutgoingPolicy, Send as Way, TodoMode, ToolGrants};
use crate::gateway::test_letters::{address, mailbox, settings};
use crate::run::{Door, Identity, Party, RunId, ThreadId};

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

fn recipients(fence: &[Fence], kind: OutgoingKind, to: &[&str]) -> Result<Vec<Address>, OutboxError> {
    let context = context(fence);
    let mailbox = mailbox_of(&context.agent, &context.settings).unwrap();
    let draft = Draft {
        kind,
        to: to.iter().map(|one| address(one)).collect(),
        from: address("sundae@shop.example"),
        subject: "s".to_owned(),
        text: "t".to_owned(),
        in_reply_to: None,
        references: Vec::new(),
        effect_key: "key".to_owned(),
    };
    allowed_recipients(&context, mailbox, &draft)
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
fn a_letter_waits_for_a_person_as_the_agent_says() {
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
