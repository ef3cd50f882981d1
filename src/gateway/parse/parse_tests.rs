use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const HEAD: &str = "From: alice@example.com\r\nTo: sundae@shop.example\r\nMIME-Version: 1.0\r\n";

fn refused(raw: &str) -> ParseFailure {
    let began = Instant::now();
    let failure = parse(raw.as_bytes(), &ParseCaps::default()).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    failure
}

#[test]
fn email_c1_nested_multiparts_are_refused() {
    for depth in [30, 5000] {
        let mut raw = HEAD.to_owned();
        for n in 0..depth {
            write!(raw, "Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n").unwrap();
        }
        raw.push_str("\r\ndeep\r\n");
        assert!(matches!(refused(&raw), ParseFailure::Malformed(_)), "{depth}");
    }
}

#[test]
fn email_c1_attached_letters_stay_closed() {
    let inner = "Content-Type: message/rfc822\r\n\r\n".repeat(12_000);
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &inner);
    for field in [
        "Content-Type: message/rfc822",
        "content-TYPE : Message/RFC822; name=\"x;y\"",
        "Content-Type:\r\n\tmessage/rfc822",
        "Content-Type: (a; comment) message/rfc822",
        "Content-Type: message/global",
    ] {
        let raw = format!(
            "{HEAD}Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{field}\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--b--\r\n"
        );
        let attachments = parse(raw.as_bytes(), &ParseCaps::default()).unwrap().inbound.attachments;
        assert_eq!((attachments.len(), attachments[0].bytes), (1, inner.len() as u64), "{field}");
    }
    let digest = format!(
        "{HEAD}Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--b--\r\n"
    );
    assert!(parse(digest.as_bytes(), &ParseCaps::default()).is_ok());
    let plain = format!("{HEAD}{inner}\r\ndeep\r\n");
    assert!(matches!(refused(&plain), ParseFailure::Malformed(_)));
}

#[test]
fn email_c16_an_attached_letter_keeps_its_bytes() {
    let inner = "From: b@c.example\r\nContent-Type: message/rfc822\r\n\r\nrfc822";
    let raw = format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=rfc822\r\n\r\n--rfc822\r\nContent-Type: message/rfc822; name=a.eml\r\n\r\n{inner}\r\n--rfc822--\r\n"
    );
    let attachment = parse(raw.as_bytes(), &ParseCaps::default()).unwrap().inbound.attachments.remove(0);
    let wanted = format!("{:x}", <sha2::Sha256 as sha2::Digest>::digest(inner));
    assert_eq!((attachment.media_type.as_str(), attachment.name.as_str(), attachment.sha256), ("message/rfc822", "a.eml", wanted));
}

#[test]
fn email_c1_many_parts_are_refused() {
    let raw = format!("{HEAD}Content-Type: multipart/mixed; boundary=b\r\n\r\n{}--b--\r\n", "--b\r\n\r\nx\r\n".repeat(100_000));
    assert!(matches!(refused(&raw), ParseFailure::Malformed(_)));
}

#[test]
fn email_c1_size_is_looked_at_first() {
    let caps = ParseCaps::with_letter_bytes(100);
    assert_eq!(parse(&[b'x'; 101], &caps), Err(ParseFailure::TooLarge));
}

#[test]
fn email_c10_a_deep_html_letter_is_read_in_time() {
    let began = Instant::now();
    let raw = format!("{HEAD}Content-Type: text/html\r\n\r\n{}deep", "<div>".repeat(20_000));
    assert_eq!(parse(raw.as_bytes(), &ParseCaps::default()).unwrap().inbound.text, "deep");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn email_c1_references_keep_the_first_and_the_newest() {
    let ids: String = (0..300).fold(String::new(), |mut ids, n| {
        write!(ids, " <{n}@x>").unwrap();
        ids
    });
    let raw = format!("{HEAD}References:{ids}\r\n\r\nx\r\n");
    let references = parse(raw.as_bytes(), &ParseCaps::default()).unwrap().inbound.references;
    assert_eq!(references.len(), 100);
    assert_eq!((references[0].as_str(), references[1].as_str(), references[99].as_str()), ("0@x", "201@x", "299@x"));
}

#[test]
fn email_b10_a_missing_message_id_is_the_same_at_each_fetch() {
    let first = parse(format!("Received: one\r\n{HEAD}\r\nx\r\n").as_bytes(), &ParseCaps::default()).unwrap();
    let again = parse(format!("Received: two\n{HEAD}\nx\n").replace("\r\n", "\n").as_bytes(), &ParseCaps::default()).unwrap();
    assert_eq!(first.inbound.message_id, again.inbound.message_id);
}

#[test]
fn email_c17_a_date_is_only_a_claim() {
    let read = |date: &str| parse(format!("{HEAD}Date: {date}\r\n\r\nx").as_bytes(), &ParseCaps::default()).unwrap().inbound.date;
    assert_eq!(read("Mon, 2 Nov 2026 10:00:00 +0100").unwrap().to_rfc3339(), "2026-11-02T09:00:00+00:00");
    assert_eq!(read("yesterday"), None);
}

fn sample() -> Vec<u8> {
    format!(
        "{HEAD}Subject: =?utf-8?b?w6TDtsO8?=\r\nContent-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\nContent-Type: text/html\r\n\r\n<p style='color:#fff'>x</p>\r\n\
         --m\r\nContent-Type: message/rfc822\r\n\r\nFrom: b@c.example\r\n\r\ninner\r\n--m\r\nContent-Type: image/png; name*=utf-8''%C3%A4\r\n\
         Content-Transfer-Encoding: base64\r\n\r\niVBO\r\n--m--\r\n"
    )
    .into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn email_c1_parse_never_panics_on_noise(raw in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert_ne!(parse(&raw, &ParseCaps::default()), Err(ParseFailure::Malformed("the parser failed".to_owned())));
    }

    #[test]
    fn email_c1_parse_never_panics_on_damage(cuts in proptest::collection::vec((0_usize..600, any::<u8>()), 1..8), end in 0_usize..600) {
        let mut raw = sample();
        for (at, byte) in cuts {
            if let Some(slot) = raw.get_mut(at) {
                *slot = byte;
            }
        }
        raw.truncate(end.max(60));
        let _ = stable_hash(&raw);
        prop_assert_ne!(parse(&raw, &ParseCaps::default()), Err(ParseFailure::Malformed("the parser failed".to_owned())));
    }

    #[test]
    fn email_c4_no_control_character_reaches_subject_or_text(subject in "\\PC{0,40}", text in any::<String>()) {
        let raw = format!("{HEAD}Subject: {subject}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{text}");
        if let Ok(parsed) = parse(raw.as_bytes(), &ParseCaps::default()) {
            prop_assert!(!parsed.inbound.subject.contains(|c: char| c.is_control()));
            prop_assert!(!parsed.inbound.text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
        }
    }
}

fn text_of(rest: &str) -> String {
    parse(format!("{HEAD}{rest}").as_bytes(), &ParseCaps::default()).unwrap().inbound.text
}

#[test]
fn email_c6_the_part_that_a_person_can_read_is_the_text() {
    let both = |plain: &str, html: &str| {
        text_of(&format!(
            "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\n{plain}\r\n--b\r\n\
             Content-Type: text/html\r\n\r\n{html}\r\n--b--\r\n"
        ))
    };
    assert_eq!(both("Two scoops", "<p>Other</p>").trim(), "Two scoops");
    assert_eq!(both(" \t \r\n", "<p>Two scoops</p>").trim(), "Two scoops");
    let long = "Two scoops of each of your twenty kinds of ice cream, please. ".repeat(5);
    assert_eq!(both("See the HTML version", &format!("<p>{long}</p>")).trim(), long.trim());
    assert!(text_of("Content-Type: image/png\r\n\r\nxx\r\n").contains("1 attachment"));
}

#[test]
fn email_c7_all_text_parts_are_read_and_an_attached_one_is_none() {
    let text = text_of(
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nfirst\r\n--b\r\n\
         Content-Type: text/plain\r\nContent-Disposition: attachment; filename=a.txt\r\n\r\nattached\r\n--b\r\n\
         Content-Type: text/plain\r\n\r\nlast\r\n--b--\r\n",
    );
    let (first, last) = (text.find("first").unwrap(), text.find("last").unwrap());
    assert!(first < last && !text.contains("attached"), "{text}");
}

#[test]
fn email_c8_a_letter_that_was_cut_still_yields_its_text() {
    let part = "--b\r\nContent-Type: text/plain\r\n\r\nTwo scoops\r\n";
    for kind in ["multipart/mixed; boundary=b", "multipart/mixed", "multipart/mixed; boundary=other"] {
        assert!(text_of(&format!("Content-Type: {kind}\r\n\r\n{part}")).contains("Two scoops"), "{kind}");
    }
}
