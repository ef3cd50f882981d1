use std::collections::BTreeSet;

use chrono::TimeZone;
use expect_test::expect;
use mail_parser::MessageParser;
use proptest::prelude::*;

use super::*;
use crate::gateway::test_letters::address;

fn draft(subject: &str, text: &str) -> Draft {
    Draft {
        kind: OutgoingKind::Reply,
        to: vec![address("alice@example.com")],
        from: address("sundae@shop.example"),
        subject: subject.to_owned(),
        text: text.to_owned(),
        in_reply_to: MessageId::parse("<parent@example.com>"),
        references: [MessageId::parse("<first@example.com>"), MessageId::parse("<parent@example.com>")].into_iter().flatten().collect(),
        effect_key: "key".to_owned(),
    }
}

fn composed(draft: &Draft, name: Option<&str>, signature: Option<&str>) -> Result<Composed, OutboxError> {
    let links = BTreeSet::from(["shop.example".to_owned()]);
    let head = Letterhead { display_name: name, signature, links: &links, install_id: "install" };
    let now = Utc.with_ymd_and_hms(2026, 11, 30, 12, 0, 0).unwrap();
    compose(draft, head, &MessageId::mint([7; 16], "shop.example"), now)
}

fn text_of(bytes: &[u8]) -> String {
    MessageParser::default().parse(bytes).unwrap().body_text(0).unwrap().replace("\r\n", "\n").trim_end().to_owned()
}

#[test]
fn email_g2_f9_a_reply_as_it_leaves() {
    let letter = draft("Re: Your menu", "Hello *Alice*,\n\nwe have [vanilla](https://shop.example/v) & **Äpfel**.");
    let composed = composed(&letter, Some("Sundae"), Some("The shop")).unwrap();
    let shown = String::from_utf8(composed.bytes).unwrap().replace("\r\n", "\n");
    expect![[r#"
        From: Sundae <sundae@shop.example>
        Subject: Re: Your menu
        Date: Mon, 30 Nov 2026 12:00:00 +0000
        Message-ID: <07070707070707070707070707070707@shop.example>
        To: alice@example.com
        In-Reply-To: <parent@example.com>
        References: <first@example.com> <parent@example.com>
        Auto-Submitted: auto-replied
        X-Auto-Response-Suppress: DR, RN, NRN, OOF, AutoReply
        X-Dutiful-Install: install
        MIME-Version: 1.0
        Content-Type: multipart/alternative;
         boundary="=_07070707070707070707070707070707"

        --=_07070707070707070707070707070707
        Content-Type: text/plain; charset=utf-8
        Content-Transfer-Encoding: quoted-printable

        Hello *Alice*,

        we have [vanilla](https://shop.example/v) & **=C3=84pfel**.

        --=20
        The shop

        --=_07070707070707070707070707070707
        Content-Type: text/html; charset=utf-8
        Content-Transfer-Encoding: quoted-printable

        <!DOCTYPE html>
        <html>
        <body>
        <p>Hello <em>Alice</em>,</p>
        <p>we have <a href=3D"https://shop.example/v">vanilla</a> &amp; <strong>=C3=
        =84pfel</strong>.</p>
        <p>-- <br>
        The shop</p>
        </body>
        </html>

        --=_07070707070707070707070707070707--
    "#]]
    .assert_eq(&shown);
}

#[test]
fn email_f9_each_kind_says_how_it_came_to_be() {
    let stamp = |kind, in_thread: bool| {
        let mut letter = draft("s", "t");
        letter.kind = kind;
        if !in_thread {
            letter.in_reply_to = None;
        }
        let bytes = composed(&letter, None, None).unwrap().bytes;
        MessageParser::default().parse(&bytes).unwrap().header_raw("Auto-Submitted").unwrap().trim().to_owned()
    };
    for kind in [OutgoingKind::Reply, OutgoingKind::Question, OutgoingKind::Tool] {
        assert_eq!(stamp(kind, true), "auto-replied");
    }
    for kind in [OutgoingKind::Report, OutgoingKind::Notice, OutgoingKind::Question, OutgoingKind::Tool] {
        assert_eq!(stamp(kind, false), "auto-generated");
    }
}

#[test]
fn email_g18_an_empty_text_is_no_letter_and_a_long_one_is_cut() {
    for nothing in ["", " \r\n\t\n", "\u{7}"] {
        assert!(matches!(composed(&draft("s", nothing), None, None), Err(OutboxError::Empty)));
    }
    let long = composed(&draft("s", &"ä".repeat(80 * 1024)), None, None).unwrap();
    assert!(long.text.len() <= TEXT_BYTES && long.text.ends_with("too long.]"));
}

#[test]
fn email_g4_many_references_are_folded() {
    let mut letter = draft("s", "t");
    letter.references = (0..21).filter_map(|n| MessageId::parse(&format!("{n:064}@example.com"))).collect();
    let bytes = composed(&letter, None, None).unwrap().bytes;
    assert!(bytes.split(|&byte| byte == b'\n').all(|line| line.len() <= 100));
    letter.references = vec![MessageId::parse(&"x".repeat(900)).unwrap(), MessageId::parse("ü@x").unwrap()];
    letter.in_reply_to = Some(MessageId::synthetic("00"));
    let bytes = composed(&letter, None, None).unwrap().bytes;
    let shown = String::from_utf8(bytes).unwrap();
    assert!(!shown.contains("In-Reply-To") && !shown.contains("missing.invalid"), "an id that we made up helps nobody");
}

#[test]
fn email_g17_lines_of_dots_survive() {
    let letter = draft("s", ".\n..\n.x\n\n.");
    let bytes = composed(&letter, None, None).unwrap().bytes;
    assert_eq!(text_of(&bytes), ".\n..\n.x\n\n.");
}

#[test]
fn security_s25_hostile_header_values_stay_one_value() {
    for subject in [
        "a\r\nBcc: evil@example.com",
        "=?utf-8?q?x=0D=0ABcc:_evil@example.com?=",
        "a\0b",
        "\u{2028}x: y",
        "ü\r\n\r\nbody",
        &"long ".repeat(100),
        &"x".repeat(600),
        &"=?".repeat(200),
    ] {
        let bytes = composed(&draft(subject, "t"), Some(subject), None).unwrap_or_else(|error| panic!("{subject}: {error}")).bytes;
        let message = MessageParser::default().parse(&bytes).unwrap();
        assert!(message.bcc().is_none());
        assert_eq!(message.parts.len(), 3);
    }
}

#[test]
fn security_s25_what_is_not_read_back_never_leaves() {
    let good = composed(&draft("subject", "text"), Some("Sundae"), None).unwrap().bytes;
    let good = String::from_utf8(good).unwrap();
    let id = MessageId::mint([7; 16], "shop.example");
    let parent = MessageId::parse("parent@example.com").unwrap();
    let first = MessageId::parse("first@example.com").unwrap();
    let (from, to) = (address("sundae@shop.example"), [address("alice@example.com")]);
    let verdict = |bytes: &str| {
        let meant = read_back::Meant {
            from: &from,
            from_name: Some("Sundae"),
            to: &to,
            subject: "subject",
            message_id: &id,
            in_reply_to: &[&parent],
            references: &[&first, &parent],
            plain: "text\n",
        };
        read_back::check(bytes.as_bytes(), &meant)
    };
    assert_eq!(verdict(&good), Ok(()));
    for (from, to) in [
        ("Subject: subject", "Subject: other"),
        ("Subject: subject", "Subject: subject\r\nBcc: evil@example.com"),
        ("Subject: subject", "Subject: subject\r\nSubject: subject"),
        ("Subject: subject\r\n", "Subject: subject\n"),
        ("alice@example.com", "bob@example.com"),
        ("Auto-Submitted: auto-replied\r\n", ""),
        ("<first@example.com> ", ""),
        ("\r\ntext\r\n", "\r\ntexd\r\n"),
        ("\r\ntext\r\n", "\r\ntext\r\r\n"),
    ] {
        let broken = good.replacen(from, to, 1);
        assert_ne!(broken, good, "{from} does not occur");
        assert!(verdict(&broken).is_err(), "{from} as {to} was not noticed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn security_s25_s26_any_text_makes_one_clean_letter(
        subject in "(\\PC|[\r\n\0=?:<>\"\\\\ ]|\\s){0,300}",
        name in "(\\PC|[\r\n\0=?:<>\"\\\\,@ ]){0,120}",
        text in "(\\PC|[\r\n.<>\\[\\]()!*`_=# -]){1,400}",
        signature in proptest::option::of("(\\PC|[\r\n.]){0,60}"),
    ) {
        match composed(&draft(&subject, &text), Some(&name), signature.as_deref()) {
            Err(OutboxError::Empty) => prop_assert!(clean_text(&text).is_empty()),
            Err(error) => prop_assert!(false, "{error}"),
            // compose() has read the letter back; what it cannot see is that the text is the one given.
            Ok(composed) => prop_assert!(text_of(&composed.bytes).starts_with(composed.text.trim_end())),
        }
    }
}

#[test]
fn email_e6_a_first_letter_names_itself_so_that_an_answer_to_a_rewritten_one_is_known() {
    let mut first = draft("s", "t");
    (first.in_reply_to, first.references) = (None, Vec::new());
    let bytes = composed(&first, None, None).unwrap().bytes;
    let message = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(message.references().as_text(), message.message_id());
    assert!(message.in_reply_to().as_text().is_none());
}

#[test]
fn a_letter_is_read_back_into_the_draft_that_it_was_made_of() {
    let answer = draft("Re: Äpfel", "Hello");
    let mut first = draft("A question", "Hello");
    (first.in_reply_to, first.references) = (None, Vec::new());
    for meant in [answer, first] {
        let bytes = composed(&meant, Some("Sundae, \"the\" agent"), Some("The shop")).unwrap().bytes;
        let (read, id) = super::super::read_back::draft_of(&bytes, OutgoingKind::Reply, "Another text").unwrap();
        assert_eq!(id, MessageId::mint([7; 16], "shop.example"));
        assert_eq!(read, Draft { text: "Another text".to_owned(), effect_key: String::new(), ..meant });
    }
}

#[test]
fn email_g5_g15_sender_name_date_and_message_id_are_ours() {
    let bytes = composed(&draft("s", "From: Mallory <m@evil.example>"), Some("Jürgen"), None).unwrap().bytes;
    let message = MessageParser::default().parse(&bytes).unwrap();
    let from = message.from().and_then(|from| from.first()).unwrap();
    assert_eq!((from.name(), from.address()), (Some("Jürgen"), Some("sundae@shop.example")));
    assert!(message.sender().is_none() && message.reply_to().is_none() && message.date().is_some());
    assert_eq!(message.message_id(), Some(MessageId::mint([7; 16], "shop.example").as_str()));
}

#[test]
fn email_e4_a_message_id_is_128_random_bits_and_our_domain() {
    let ids: BTreeSet<String> =
        [[0; 16], [255; 16]].into_iter().map(|bits| MessageId::mint(bits, "shop.example").as_str().to_owned()).collect();
    assert_eq!(
        ids.iter().map(String::as_str).collect::<Vec<_>>(),
        ["00000000000000000000000000000000@shop.example", "ffffffffffffffffffffffffffffffff@shop.example",]
    );
}
