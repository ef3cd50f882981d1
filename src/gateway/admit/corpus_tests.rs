//! Every letter of `tests/letters` against what its `.json` expects of reading and judging it.

use std::path::Path;

use serde_json::Value;

use super::tests::border;
use super::*;
use crate::gateway::parse::{ParseCaps, parse};

#[test]
fn every_letter_is_read_and_judged_as_its_expectation_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/letters");
    let mut problems = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "eml") {
            continue;
        }
        count += 1;
        let raw = std::fs::read(&path).unwrap();
        let expected: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        problems.extend(check(&raw, &expected).into_iter().map(|problem| format!("{name}: {problem}")));
    }
    assert!(count >= 40, "only {count} letters");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn check(raw: &[u8], expected: &Value) -> Vec<String> {
    let letter = parse(raw, &ParseCaps::default());
    let outcome = match &letter {
        Ok(_) => "parsed",
        Err(ParseFailure::TooLarge) => "too large",
        Err(ParseFailure::Malformed(_)) => "malformed",
        Err(ParseFailure::AmbiguousSender(_)) => "ambiguous",
    };
    let mut seen = match &letter {
        Ok(parsed) => serde_json::to_value(&parsed.inbound).unwrap(),
        Err(_) => Value::Object(serde_json::Map::new()),
    };
    if let Ok(parsed) = &letter {
        seen["from"] = parsed.inbound.from.address.as_str().into();
        seen["name"] = parsed.inbound.from.name.clone().into();
    }
    let decision = Admission { border: border(), letter }.decide(&Standing::default());
    let delivery = &decision.deliveries[0];
    seen["outcome"] = outcome.into();
    seen["identity"] = decision.identity.as_str().into();
    seen["verdict"] = delivery.verdict.as_str().into();
    seen["reason"] = delivery.reason.clone().into();
    seen["reply_to"] = delivery.reply_to.as_ref().map(ToString::to_string).into();
    let text = seen["text"].as_str().unwrap_or_default().to_owned();
    let message_id = seen["message_id"].as_str().unwrap_or_default().to_owned();
    let mut problems = Vec::new();
    for (key, wanted) in expected.as_object().unwrap() {
        let words = || wanted.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let holds = match key.as_str() {
            "proves" => true,
            "text_contains" => words().all(|word| text.contains(word)),
            "text_lacks" => words().all(|word| !text.contains(word)),
            "message_id_starts" => message_id.starts_with(wanted.as_str().unwrap()),
            "message_id_ends" => message_id.ends_with(wanted.as_str().unwrap()),
            "attachments" => attachments_match(&seen["attachments"], wanted),
            key => seen.get(key) == Some(wanted),
        };
        if !holds {
            let shown = seen.get(key).cloned().unwrap_or_else(|| Value::from(text.clone()));
            problems.push(format!("{key}: wanted {wanted}, got {shown}"));
        }
    }
    problems
}

/// As many as wanted, each with at least the wanted keys.
fn attachments_match(seen: &Value, wanted: &Value) -> bool {
    let (seen, wanted) = (seen.as_array().unwrap(), wanted.as_array().unwrap());
    seen.len() == wanted.len()
        && seen.iter().zip(wanted).all(|(seen, wanted)| wanted.as_object().unwrap().iter().all(|(key, value)| seen[key] == *value))
}
