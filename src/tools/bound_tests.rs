use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn cut(text: &str, limit: usize) -> String {
    let bounded = bound(text, limit, "res_1");
    assert!(bounded.cut);
    assert!(sent_bytes(&bounded.text) <= limit, "{} > {limit}", sent_bytes(&bounded.text));
    bounded.text
}

fn numbers(text: &str) -> Vec<usize> {
    let plain = text.replace(',', "");
    plain.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn harness_b1_bytes_are_counted_as_sent() {
    for text in ["plain", "a\"b\\c\nd\te\u{1}f\u{7f}", "日本 👩‍👩‍👧 ä"] {
        assert_eq!(sent_bytes(text), serde_json::to_string(text).unwrap().len() - 2, "{text}");
    }
    let quotes = "\"".repeat(1000);
    assert!(bound(&quotes, 1999, "res_1").cut);
    assert_eq!(bound(&quotes, 2000, "res_1"), Bounded { text: quotes, cut: false });
}

#[test]
fn harness_b3_head_and_tail_stand_under_a_notice_whose_numbers_are_true() {
    let text: String = (0..2000).map(|line| format!("line {line} ä\n")).collect();
    let shown = cut(&text, 4000);
    let mut lines = shown.split('\n');
    let notice = lines.next().unwrap();
    assert!(notice.starts_with("[truncated: ") && notice.ends_with("full result id res_1 - use read_result(id, offset)]"), "{notice}");
    let [total, start, head_end, tail_start, end] = numbers(notice)[..5] else { panic!("{notice}") };
    assert_eq!((total, start, end), (text.len(), 0, text.len()));
    let body = shown.strip_prefix(notice).unwrap();
    let gap = format!("\n[{} bytes left out here]\n", Thousands(tail_start - head_end));
    let (head, tail) = body.split_once(&gap).unwrap();
    assert_eq!(head, format!("\n{}", text.get(..head_end).unwrap()));
    assert_eq!(tail, text.get(tail_start..).unwrap());
    assert!(head.len() > 2 * tail.len() && sent_bytes(&shown) > 3900);
}

#[test]
fn harness_b2_visible_characters_are_not_split() {
    let family = "👩\u{200d}👩\u{200d}👧";
    let text = family.repeat(2000);
    let shown = cut(&text, 1000);
    let pieces: Vec<&str> = shown.split('\n').filter(|line| !line.starts_with('[')).collect();
    assert_eq!(pieces.len(), 2);
    for piece in pieces {
        assert!(!piece.is_empty());
        assert_eq!(piece.replace(family, ""), "", "{piece}");
    }
}

#[test]
fn harness_b5_controls_and_terminal_escapes_are_removed() {
    assert_eq!(clean("a\0b\u{1b}[1;31mred\u{1b}[0m\r\nnext\rlast\u{9b}\ttab"), "abred\nnext\nlast\ttab");
    assert_eq!(bound("\0", 100, "res_1").text, NO_OUTPUT);
}

#[test]
fn harness_t6_empty_output_is_said() {
    assert_eq!(bound(" \n", 100, "res_1"), Bounded { text: "(no output)".to_owned(), cut: false });
}

#[test]
fn harness_b6_a_json_list_stays_json() {
    let rows: Vec<Value> = (0..500).map(|id| json!({ "id": id, "note": "\"quoted\" ä" })).collect();
    let shown: Vec<Value> = serde_json::from_str(&cut(&json!(rows).to_string(), 3000)).unwrap();
    let mark = &shown[0]["_truncated"];
    assert_eq!(mark["shown"], json!(shown.len() - 1));
    assert_eq!((&mark["of"], &mark["full_result"]), (&json!(500), &json!("res_1")));
    assert_eq!(shown[1..], rows[..shown.len() - 1]);
    assert!(shown.len() > 30);
}

#[test]
fn harness_b6_the_longest_list_of_an_object_is_cut_and_numbers_stay_as_written() {
    let text = format!("{{\"b\": 123456789012345678901234567890, \"rows\": [{}], \"tags\": [1, 2]}}", vec!["1.10"; 900].join(", "));
    let shown = cut(&text, 1000);
    assert!(
        shown.starts_with("{\"_truncated\":{") && shown.contains("\"b\":123456789012345678901234567890,") && shown.contains("[1.10,1.10")
    );
    let value: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(value["tags"], json!([1, 2]));
    assert_eq!(value["_truncated"]["shown"], json!(value["rows"].as_array().unwrap().len()));
}

#[test]
fn harness_b6_json_that_no_list_makes_long_is_cut_as_text() {
    let shown = cut(&json!({ "text": "x".repeat(5000) }).to_string(), 1000);
    assert!(shown.starts_with("[truncated: "));
}

#[test]
fn harness_b7_the_largest_results_of_a_round_give_way() {
    let (small, big) = ("s".repeat(1000), "b".repeat(100_000));
    let whole = |text, result_id| Whole { text, limit: 102_400, result_id };
    let bounded = bound_round(&[whole(&big, "a"), whole(&small, "b"), whole(&big, "c")], 60_000);
    assert!(bounded.iter().map(|result| sent_bytes(&result.text)).sum::<usize>() <= 60_000);
    assert_eq!(bounded.iter().map(|result| result.cut).collect::<Vec<_>>(), [true, false, true]);
    assert!(bounded[0].text.len() > 29_000 && bounded[0].text.contains("result id a"));
    let sixteen: Vec<Whole<'_>> = (0..16).map(|_| whole(&big, "x")).collect();
    assert!(bound_round(&sixteen, 200_000).iter().map(|result| sent_bytes(&result.text)).sum::<usize>() <= 200_000);
    assert!(bound_round(&sixteen, 1_700_000).iter().all(|result| !result.cut));
}

fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("日本語".to_owned()),
        Just("👩\u{200d}👩\u{200d}👧".to_owned()),
        Just("e\u{301}\u{302}".to_owned()),
        Just("\"\\".to_owned()),
        Just("\r\n".to_owned()),
        Just("[1,2,".to_owned()),
        any::<String>(),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn harness_b8_bounded_once_is_bounded_for_good(text in texts(), limit in 16_usize..2000) {
        let once = bound(&text, limit, "res_1");
        prop_assert!(sent_bytes(&once.text) <= limit);
        prop_assert!(!once.text.trim().is_empty() || once.cut);
        prop_assert_eq!(&bound(&once.text, limit, "res_1").text, &once.text);
        let cleaned = clean(&text);
        if sent_bytes(&cleaned) <= limit && !cleaned.trim().is_empty() {
            prop_assert_eq!(&once.text, &cleaned.into_owned());
            prop_assert!(!once.cut);
        }
    }

    #[test]
    fn harness_b8_the_numbers_are_true(text in texts(), limit in 400_usize..2000) {
        let text = clean(&text.repeat(8)).into_owned();
        let shown = bound(&text, limit, "r");
        prop_assume!(shown.cut && shown.text.starts_with("[truncated"));
        let (notice, body) = shown.text.split_once('\n').unwrap();
        let found = numbers(notice);
        let (head, tail) = (text.get(..found[2]).unwrap(), text.get(found[3]..).unwrap());
        prop_assert!(body.starts_with(head) && body.ends_with(tail));
        prop_assert_eq!(found[0], text.len());
    }
}
