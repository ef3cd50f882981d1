use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::config::{AfterProcessing, Budget, Hold, OnLimit, OnUncertain, OutgoingPolicy, Receive, Send, SentCopy, TodoMode, ToolGrants};
use crate::gateway::parse::{ParseCaps, parse};
use crate::run::LetterId;
use crate::store::Related;

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn agent(name: &str, addresses: &[&str]) -> Agent {
    Agent {
        name: name.to_owned(),
        description: String::new(),
        mailbox: Some("shop".to_owned()),
        addresses: addresses.iter().map(|text| address(text)).collect(),
        display_name: None,
        model: "m".to_owned(),
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
            recipients: BTreeSet::new(),
            hold: Hold::Never,
            delay: Duration::ZERO,
            links: BTreeSet::new(),
            reply_all: false,
        },
    }
}

fn rules() -> Border {
    let mailbox = Mailbox {
        name: "shop".to_owned(),
        address: address("sundae@shop.example"),
        aliases: vec![address("help@shop.example")],
        receive: Receive::Maildir(PathBuf::new()),
        send: Send::Maildir(PathBuf::new()),
        username: None,
        password: None,
        token_command: None,
        folder: "INBOX".to_owned(),
        agent: Some("sundae".to_owned()),
        ca: None,
        trusted_authserv_ids: vec!["mx.shop.example".to_owned()],
        own_lists: vec!["team.groups.shop.example".to_owned()],
        forms: vec![address("form@shop-forms.example")],
        poll: Duration::from_secs(60),
        after_processing: AfterProcessing::None,
        sent_copy: SentCopy::Auto,
        on_uncertain: OnUncertain::ResendOnce,
        trust: Trust::None,
    };
    let agents = [agent("sundae", &["sundae@shop.example"]), agent("cakes", &["sundae+cakes@shop.example", "cakes@shop.example"])];
    let agents = agents.into_iter().map(|agent| (agent.name.clone(), Arc::new(agent))).collect();
    Border { mailbox, agents, limits: Limits::default(), install_id: "ours".to_owned() }
}

/// The mailbox `shop` with the agents sundae and cakes.
pub(super) fn border() -> Arc<Border> {
    Arc::new(rules())
}

fn letter(fields: &str) -> Parsed {
    parse(format!("{fields}Subject: Hi\r\nMessage-ID: <m@x>\r\n\r\nHello\r\n").as_bytes(), &ParseCaps::default()).unwrap()
}

fn decide_with(rules: Border, fields: &str, standing: &Standing) -> Decision {
    Admission { border: Arc::new(rules), letter: Ok(letter(fields)) }.decide(standing)
}

fn decide(fields: &str, standing: &Standing) -> Decision {
    decide_with(rules(), fields, standing)
}

const PLAIN: &str = "From: alice@example.com\r\nTo: sundae@shop.example\r\n";
const PASS: &str = "Authentication-Results: mx.shop.example; dmarc=pass header.from=example.com\r\n";
const FAIL: &str = "Authentication-Results: mx.shop.example; dmarc=fail (p=reject) header.from=example.com\r\n";

fn related(mailed_to: Option<&str>, participants: &[&str], agent: &str, held: Option<&str>) -> Standing {
    Standing {
        duplicate_of: None,
        ours: false,
        related: vec![Related {
            message_id: crate::mail::MessageId::parse("<ours@shop.example>").unwrap(),
            thread: ThreadId(7),
            agent: agent.to_owned(),
            mailed_to: mailed_to.map(address),
            participants: participants.iter().map(|text| address(text)).collect(),
            held: held.map(str::to_owned),
        }],
    }
}

/// Who writes × what the referenced id proves.
#[test]
fn security_s2_levels_meet_thread_states() {
    let unverified = PLAIN.to_owned();
    let verified = format!("{PASS}{PLAIN}");
    let forged = format!("{FAIL}{PLAIN}");
    let mailed = related(Some("Alice@Example.com"), &["alice@example.com"], "sundae", None);
    let customers_id = related(None, &["alice@example.com"], "sundae", None);
    let strangers = related(Some("bob@example.org"), &["bob@example.org"], "sundae", None);
    let other_agent = related(Some("alice@example.com"), &["alice@example.com"], "cakes", None);
    let held_thread = related(Some("alice@example.com"), &["alice@example.com"], "sundae", Some("escalated"));
    let none = Standing::default();
    let join = ThreadChoice::Join(ThreadId(7));
    let apart = ThreadChoice::New { related_to: Some(ThreadId(7)) };
    let fresh = ThreadChoice::New { related_to: None };
    for (fields, standing, identity, verdict, thread) in [
        (&unverified, &none, Identity::Unverified, Verdict::Accepted, fresh),
        (&unverified, &mailed, Identity::Thread, Verdict::Accepted, join),
        (&unverified, &customers_id, Identity::Unverified, Verdict::Accepted, apart),
        (&unverified, &strangers, Identity::Unverified, Verdict::Accepted, apart),
        (&unverified, &other_agent, Identity::Thread, Verdict::Accepted, apart),
        (&unverified, &held_thread, Identity::Thread, Verdict::Held, join),
        (&verified, &none, Identity::Verified, Verdict::Accepted, fresh),
        (&verified, &mailed, Identity::Verified, Verdict::Accepted, join),
        (&verified, &customers_id, Identity::Verified, Verdict::Accepted, join),
        (&verified, &strangers, Identity::Verified, Verdict::Accepted, apart),
        (&verified, &other_agent, Identity::Verified, Verdict::Accepted, apart),
        (&verified, &held_thread, Identity::Verified, Verdict::Held, join),
        (&forged, &none, Identity::Forged, Verdict::Held, fresh),
        (&forged, &mailed, Identity::Forged, Verdict::Held, apart),
        (&forged, &customers_id, Identity::Forged, Verdict::Held, apart),
        (&forged, &strangers, Identity::Forged, Verdict::Held, apart),
        (&forged, &held_thread, Identity::Forged, Verdict::Held, apart),
    ] {
        let decision = decide(fields, standing);
        let delivery = &decision.deliveries[0];
        assert_eq!((decision.identity, delivery.verdict, delivery.thread), (identity, verdict, thread), "{fields} {standing:?}");
        assert_eq!(decision.deliveries.len(), 1);
        assert_eq!(delivery.caps.is_some(), verdict == Verdict::Accepted);
        assert!(delivery.caps.as_ref().is_none_or(|caps| caps.per_domain == (identity == Identity::Unverified)));
    }
    assert_eq!(decide(&unverified, &held_thread).deliveries[0].reason, "escalated");
    assert_eq!(decide(&forged, &none).deliveries[0].reason, "forged sender");
}

/// A tool's letter to the operator or to a contact belongs to a customer's thread; its answer must not come to
/// read that customer's letters.
#[test]
fn security_s5_who_was_mailed_by_a_tool_but_takes_no_part_does_not_join_the_thread() {
    let by_a_tool = related(Some("alice@example.com"), &["bob@example.org"], "sundae", None);
    for fields in [PLAIN.to_owned(), format!("{PASS}{PLAIN}")] {
        let decision = decide(&fields, &by_a_tool);
        assert_eq!(decision.deliveries[0].thread, ThreadChoice::New { related_to: Some(ThreadId(7)) }, "{fields}");
        assert_eq!(decision.deliveries[0].verdict, Verdict::Accepted);
    }
}

/// Agent and own address of each delivery.
fn answering(fields: &str) -> Vec<(String, String)> {
    let decision = decide(fields, &Standing::default());
    let deliveries = decision.deliveries.into_iter();
    deliveries.map(|delivery| (delivery.agent.unwrap_or_default(), delivery.own_address.map(String::from).unwrap_or_default())).collect()
}

#[test]
fn who_answers_follows_the_address_written_to() {
    let one = |agent: &str, own: &str| vec![(agent.to_owned(), own.to_owned())];
    let from = "From: alice@example.com\r\n";
    for (fields, wanted) in [
        ("To: sundae@shop.example\r\n", one("sundae", "sundae@shop.example")),
        ("To: SUNDAE@shop.example\r\n", one("sundae", "SUNDAE@shop.example")),
        ("To: sundae+cakes@shop.example\r\n", one("cakes", "sundae+cakes@shop.example")),
        ("To: sundae+other@shop.example\r\n", one("sundae", "sundae+other@shop.example")),
        ("To: help@shop.example\r\n", one("sundae", "help@shop.example")),
        ("Delivered-To: sundae@shop.example\r\nTo: help@shop.example\r\n", one("sundae", "help@shop.example")),
        ("Delivered-To: sundae@shop.example\r\nTo: sundae+cakes@shop.example\r\n", one("cakes", "sundae+cakes@shop.example")),
        ("Delivered-To: cakes@shop.example\r\nTo: friends@example.org\r\n", one("cakes", "cakes@shop.example")),
        ("To: friends@example.org\r\nCc: cakes@shop.example\r\n", one("cakes", "cakes@shop.example")),
        ("To: cakes@shop.example, sundae+cakes@shop.example\r\n", one("cakes", "cakes@shop.example")),
        (
            "To: sundae@shop.example\r\nCc: cakes@shop.example\r\n",
            vec![("sundae".to_owned(), "sundae@shop.example".to_owned()), ("cakes".to_owned(), "cakes@shop.example".to_owned())],
        ),
        ("To: friends@example.org\r\n", one("", "")),
    ] {
        assert_eq!(answering(&format!("{from}{fields}")), wanted, "{fields}");
    }
}

#[test]
fn a_sender_outside_the_audience_is_held() {
    let verified = format!("{PASS}{PLAIN}");
    let listed = |text: &str| Audience::Listed(vec![AudienceEntry::Address(address(text))]);
    let domain = |text: &str| Audience::Listed(vec![AudienceEntry::Domain(text.to_owned())]);
    for (audience, fields, verdict) in [
        (Audience::Public, PLAIN, Verdict::Accepted),
        (Audience::Verified, PLAIN, Verdict::Held),
        (Audience::Verified, &verified, Verdict::Accepted),
        (listed("alice@example.com"), &verified, Verdict::Accepted),
        (listed("alice@example.com"), PLAIN, Verdict::Held),
        (listed("bob@example.com"), &verified, Verdict::Held),
        (domain("example.com"), &verified, Verdict::Accepted),
        (domain("ample.com"), &verified, Verdict::Held),
    ] {
        let mut rules = rules();
        let mut changed = agent("sundae", &["sundae@shop.example"]);
        changed.audience = audience.clone();
        rules.agents.insert("sundae".to_owned(), Arc::new(changed));
        let decision = decide_with(rules, fields, &Standing::default());
        assert_eq!(decision.deliveries[0].verdict, verdict, "{audience:?} {fields}");
        assert!(verdict == Verdict::Accepted || decision.deliveries[0].reason == "audience");
    }
}

#[test]
fn email_b9_and_f6_duplicates_and_echoes_get_no_run() {
    let duplicate = Standing { duplicate_of: Some(LetterId(3)), ..Standing::default() };
    assert_eq!(decide(PLAIN, &duplicate).deliveries[0].verdict, Verdict::Duplicate);
    let ours = Standing { ours: true, ..Standing::default() };
    let own = "From: sundae@shop.example\r\nTo: sundae@shop.example\r\n";
    for (fields, standing, verdict) in [
        (own, &ours, Verdict::Ignored),
        (own, &Standing::default(), Verdict::Quarantined),
        ("From: cakes@shop.example\r\nTo: sundae@shop.example\r\n", &Standing::default(), Verdict::Quarantined),
        ("From: help+x@shop.example\r\nTo: sundae@shop.example\r\n", &Standing::default(), Verdict::Quarantined),
        (PLAIN, &ours, Verdict::Quarantined),
    ] {
        let decision = decide(fields, standing);
        assert_eq!(decision.deliveries[0].verdict, verdict, "{fields}");
        assert_eq!(decision.deliveries[0].agent, None);
        assert_eq!(decision.deliveries[0].thread, ThreadChoice::None);
    }
}

#[test]
fn a_maildir_may_vouch_for_its_senders() {
    let mut rules = rules();
    rules.mailbox.trust = Trust::Verified;
    assert_eq!(decide_with(rules.clone(), PLAIN, &Standing::default()).identity, Identity::Verified);
    assert_eq!(decide_with(rules, &format!("{FAIL}{PLAIN}"), &Standing::default()).identity, Identity::Forged);
}

#[test]
fn a_form_is_unverified_and_answers_go_to_its_one_reply_to() {
    let form = format!("{PASS}From: form@shop-forms.example\r\nTo: sundae@shop.example\r\nReply-To: carol@example.net\r\n");
    let known = related(Some("carol@example.net"), &["carol@example.net", "form@shop-forms.example"], "sundae", None);
    let decision = decide(&form, &known);
    assert_eq!(decision.identity, Identity::Unverified);
    assert_eq!(decision.deliveries[0].reply_to, Some(address("carol@example.net")));
    assert_eq!(decision.deliveries[0].thread, ThreadChoice::New { related_to: Some(ThreadId(7)) });
    for reply_to in
        ["", "Reply-To: a@x.example, b@x.example\r\n", "Reply-To: sundae@shop.example\r\n", "Reply-To: form@shop-forms.example\r\n"]
    {
        let decision = decide(&format!("From: form@shop-forms.example\r\nTo: sundae@shop.example\r\n{reply_to}"), &Standing::default());
        assert_eq!(decision.deliveries[0].verdict, Verdict::Quarantined, "{reply_to}");
    }
}

#[test]
fn a_letter_that_cannot_be_read_is_quarantined_with_its_reason() {
    let admission = Admission { border: border(), letter: Err(ParseFailure::TooLarge) };
    let decision = admission.decide(&Standing::default());
    assert_eq!((decision.identity, decision.deliveries[0].verdict), (Identity::Ambiguous, Verdict::Quarantined));
    assert_eq!(decision.deliveries[0].reason, "too large");
}

#[test]
fn email_f6_our_mark_on_a_strangers_letter_gets_no_run_and_another_installations_does() {
    let stamped = |id: &str| decide(&format!("{PLAIN}X-Dutiful-Install: {id}\r\n"), &Standing::default()).deliveries[0].verdict;
    assert_eq!(stamped("ours"), Verdict::Ignored);
    assert_eq!(stamped("theirs"), Verdict::Accepted);
    // A forged line with our address and our mark is shown to the operator, not put away in silence.
    let forged = "From: sundae@shop.example\r\nTo: sundae@shop.example\r\nX-Dutiful-Install: ours\r\n";
    assert_eq!(decide(forged, &Standing::default()).deliveries[0].verdict, Verdict::Quarantined);
}

#[test]
fn email_f8_security_s22_a_letter_that_met_too_many_servers_is_quarantined() {
    let after = |hops: usize| decide(&format!("{}{PLAIN}", "Received: from a by b\r\n".repeat(hops)), &Standing::default());
    assert_eq!(after(50).deliveries[0].verdict, Verdict::Accepted);
    assert_eq!((after(51).deliveries[0].verdict, after(51).deliveries[0].reason.as_str()), (Verdict::Quarantined, "too many hops"));
}

#[test]
fn email_f10_an_agent_that_is_not_addressed_stays_silent_and_reply_to_moves_no_answer() {
    let from = "From: alice@example.com\r\n";
    for silent in ["To: friends@example.org\r\n", "", "Cc: other@shop.example\r\n"] {
        let decision = decide(&format!("{from}{silent}"), &Standing::default());
        assert_eq!((decision.deliveries[0].verdict, decision.deliveries[0].reply_to.clone()), (Verdict::Ignored, None), "{silent}");
    }
    let elsewhere = format!("{PASS}{PLAIN}Reply-To: everybody@lists.example.org\r\nCc: bob@example.org\r\n");
    assert_eq!(decide(&elsewhere, &Standing::default()).deliveries[0].reply_to, Some(address("alice@example.com")));
}

#[test]
fn email_e1_e2_security_s7_a_leaked_id_joins_nobody_to_a_strangers_thread() {
    let leaked = related(Some("bob@example.org"), &["bob@example.org"], "sundae", None);
    for fields in [PLAIN.to_owned(), format!("{PASS}{PLAIN}"), format!("{PASS}{PLAIN}Cc: bob@example.org\r\nReply-To: bob@example.org\r\n")]
    {
        let decision = decide(&fields, &leaked);
        assert_eq!(decision.deliveries[0].thread, ThreadChoice::New { related_to: Some(ThreadId(7)) }, "{fields}");
        assert_eq!(decision.deliveries[0].reply_to, Some(address("alice@example.com")), "security S7: nobody else comes in");
    }
}

#[test]
fn security_s8_s21_s23_s24_what_a_machine_a_forger_or_a_broken_letter_sends_gets_no_answer() {
    for fields in [
        format!("Return-Path: <>\r\n{PLAIN}"),
        format!("Auto-Submitted: auto-replied\r\n{PLAIN}"),
        format!("List-Id: <x.example.com>\r\n{PLAIN}"),
        format!("Precedence: bulk\r\n{PLAIN}"),
        "From: noreply@example.com\r\nTo: sundae@shop.example\r\n".to_owned(),
        format!("{FAIL}{PLAIN}"),
        "From: sundae@shop.example\r\nTo: sundae@shop.example\r\n".to_owned(),
    ] {
        let decision = decide(&fields, &Standing::default());
        assert!(decision.deliveries.iter().all(|delivery| delivery.verdict != Verdict::Accepted), "{fields}");
    }
    for failure in [ParseFailure::Malformed("x".to_owned()), ParseFailure::AmbiguousSender("x".to_owned())] {
        let decision = Admission { border: border(), letter: Err(failure) }.decide(&Standing::default());
        assert_eq!((decision.deliveries[0].verdict, decision.deliveries[0].reply_to.clone()), (Verdict::Quarantined, None));
    }
}

#[test]
fn email_e8_ids_are_read_however_they_are_written() {
    for written in ["<a@x> <b@y>", "<a@x>,<b@y>", "<a@x>\t<b@y>", "a@x b@y", "a@x, b@y", "(first) <a@x>\r\n <b@y>", "< a@x > <b@y>"] {
        let parsed = letter(&format!("{PLAIN}In-Reply-To: {written}\r\n"));
        let ids: Vec<&str> = parsed.inbound.in_reply_to.iter().map(|id| id.as_str()).collect();
        assert_eq!(ids, ["a@x", "b@y"], "{written}");
    }
}
