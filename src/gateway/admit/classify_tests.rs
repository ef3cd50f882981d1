use super::super::tests::border;
use super::*;
use crate::gateway::parse::{ParseCaps, parse};

fn reason(from: &str, fields: &str) -> Option<String> {
    let raw = format!("From: {from}\r\nTo: sundae@shop.example\r\nMessage-ID: <m@x>\r\n{fields}\r\nHello\r\n");
    let parsed = parse(raw.as_bytes(), &ParseCaps::default()).unwrap();
    machine(&parsed.headers, &parsed.inbound, &border().mailbox)
}

#[test]
fn email_f4_senders_nobody_reads() {
    for local in [
        "noreply",
        "No-Reply",
        "no_reply",
        "donotreply",
        "do-not-reply",
        "mailer-daemon",
        "postmaster",
        "bounce",
        "bounces+12=x.example",
        "owner-cakes",
        "cakes-request",
        "cakes-bounces",
        "shop-noreply",
    ] {
        assert!(reason(&format!("{local}@x.example"), "").is_some(), "{local}");
    }
    for local in ["alice", "norbert", "replyanna", "requests", "owner", "bouncer", "postmasters"] {
        assert_eq!(reason(&format!("{local}@x.example"), ""), None, "{local}");
    }
}

#[test]
fn email_f3_only_no_is_human() {
    for (value, machine) in [
        ("no", false),
        ("No", false),
        ("no (a person)", false),
        ("(a person) no", false),
        ("auto-replied", true),
        ("auto-generated; type=x", true),
        ("auto-notified", true),
        ("auto-replied (not no)", true),
        ("none", true),
    ] {
        assert_eq!(reason("alice@x.example", &format!("Auto-Submitted: {value}\r\n")).is_some(), machine, "{value}");
    }
}

#[test]
fn email_f1_marks_of_machines() {
    for field in [
        "Return-Path: <>",
        "Return-Path: <MAILER-DAEMON@x.example>",
        "Precedence: bulk",
        "Precedence: List",
        "Precedence: junk",
        "Precedence: auto_reply",
        "List-Unsubscribe: <mailto:x@x.example>",
        "List-Post: NO",
        "Mailing-List: contact x@x.example",
        "X-Autoreply: yes",
        "X-Autorespond: subject",
        "X-MS-Exchange-Inbox-Rules-Loop: x@x.example",
        "X-FC-MachineGenerated: true",
        "X-Loop: sundae@shop.example",
        "X-Failed-Recipients: x@x.example",
        "Content-Type: multipart/report; boundary=x",
        "Content-Type: multipart/report; REPORT-TYPE=\"delivery-status\"; boundary=x",
        "Content-Type: text/calendar; method=reply",
    ] {
        assert!(reason("alice@x.example", &format!("{field}\r\n")).is_some(), "{field}");
    }
    for field in [
        "Return-Path: <alice@x.example>",
        "Precedence: first-class",
        "X-Autoreply: no",
        "X-Loop: somebody@else.example",
        "X-Auto-Response-Suppress: All",
        "Content-Type: text/calendar; method=REQUEST",
        "Subject: Automatic reply",
        "Subject: Out of office on Monday",
    ] {
        assert_eq!(reason("alice@x.example", &format!("{field}\r\n")), None, "{field}");
    }
}

#[test]
fn own_lists_and_forms_are_excused_from_their_own_marks_only() {
    let list = "List-Id: Team <TEAM.groups.shop.example>\r\nPrecedence: list\r\n";
    assert_eq!(reason("alice@x.example", list), None);
    assert!(reason("alice@x.example", &format!("{list}Auto-Submitted: auto-replied\r\n")).is_some());
    assert!(reason("alice@x.example", "List-Id: <evil-team.groups.shop.example>\r\n").is_some());
}

#[test]
fn email_f2_a_wish_for_no_automatic_answers_is_no_mark_of_a_machine() {
    assert_eq!(reason("alice@example.com", "X-Auto-Response-Suppress: All\r\nSubject: Ice cream\r\n"), None);
}

#[test]
fn email_f5_an_answering_machines_subject_decides_only_with_another_sign() {
    for subject in ["Out of Office", "Automatic reply: x", "Abwesenheitsnotiz", "=?utf-8?Q?R=C3=A9ponse_automatique?="] {
        assert_eq!(reason("alice@example.com", &format!("Subject: {subject}\r\n")), None, "{subject}");
        let answers = format!("Subject: {subject}\r\nIn-Reply-To: <a@x>\r\n");
        assert_eq!(reason("alice@example.com", &answers).as_deref(), Some("automatic reply"), "{subject}");
        assert_eq!(reason("alice@example.com", &format!("{answers}User-Agent: Mutt\r\n")), None, "{subject}: a person's");
    }
    assert_eq!(reason("alice@example.com", "Subject: Out of officers\r\nIn-Reply-To: <a@x>\r\n"), None);
}
