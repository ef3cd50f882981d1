//! Results made small enough and clean enough to be sent (harness B1 to B8).

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use unicode_normalization::char::is_combining_mark;

/// What stands for an empty result (harness T6).
pub const NO_OUTPUT: &str = "(no output)";

/// How many characters a cut may be moved so that no visible character is split (harness B2).
const JOIN_REACH: usize = 16;

/// A result as the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounded {
    /// Never empty, never over the limit as sent, free of control characters.
    pub text: String,
    /// Whether something was left out: the whole must be kept under the result's id (harness B4).
    pub cut: bool,
}

/// A result before it is bounded together with the others of its round.
#[derive(Debug, Clone, Copy)]
pub struct Whole<'a> {
    /// The text.
    pub text: &'a str,
    /// Bytes as sent at most.
    pub limit: usize,
    /// The id under which the whole is kept when it is cut.
    pub result_id: &'a str,
}

/// Bytes of a text as it will be sent: UTF-8 inside a JSON string (harness B1).
pub fn sent_bytes(text: &str) -> usize {
    text.chars().map(sent_char).sum()
}

fn sent_char(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if u32::from(c) < 0x20 => 6,
        c => c.len_utf8(),
    }
}

/// The text without control characters and terminal escapes; lines end with `\n` (harness B5). The offsets
/// of a notice and of `read_result` count in this text.
pub fn clean(text: &str) -> Cow<'_, str> {
    let unwanted = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(unwanted) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    cleaned.push('\n');
                }
            }
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
                chars.next_if(|c| matches!(c, '\u{40}'..='\u{7e}'));
            }
            c if unwanted(c) => {}
            c => cleaned.push(c),
        }
    }
    Cow::Owned(cleaned)
}

/// Cuts a result to `limit` bytes as sent: JSON so that it stays JSON, else head, notice and tail, with a
/// notice in the first line too (harness B1, B3, B6). A result within the limit is only cleaned.
pub fn bound(text: &str, limit: usize, result_id: &str) -> Bounded {
    let text = clean(text);
    if text.trim().is_empty() && sent_bytes(NO_OUTPUT) <= limit {
        return Bounded { text: NO_OUTPUT.to_owned(), cut: false };
    }
    if sent_bytes(&text) <= limit {
        return Bounded { text: text.into_owned(), cut: false };
    }
    let cut = bound_json(&text, limit, result_id).unwrap_or_else(|| bound_text(&text, limit, result_id));
    Bounded { text: cut, cut: true }
}

/// Bounds the results of one round so that they also hold `total` together: the largest are cut further
/// (harness B7).
pub fn bound_round(results: &[Whole<'_>], total: usize) -> Vec<Bounded> {
    let wanted: Vec<usize> = results.iter().map(|whole| sent_bytes(&clean(whole.text)).min(whole.limit)).collect();
    let share = fair_share(&wanted, total);
    results.iter().map(|whole| bound(whole.text, whole.limit.min(share), whole.result_id)).collect()
}

/// The largest share for which the sum of all wishes, each cut to it, stays within the total.
fn fair_share(wanted: &[usize], total: usize) -> usize {
    let mut ascending = wanted.to_vec();
    ascending.sort_unstable();
    let mut left = total;
    let mut open = ascending.len();
    for wish in ascending {
        let share = left.checked_div(open).unwrap_or(left);
        if wish > share {
            return share;
        }
        left = left.saturating_sub(wish);
        open = open.saturating_sub(1);
    }
    usize::MAX
}

fn bound_text(text: &str, limit: usize, result_id: &str) -> String {
    let total = text.len();
    // Reserved with the widest numbers, so that the real notice never needs more.
    let reserved = sent_bytes(&notice(total, total, total, result_id)) + sent_bytes(&gap(total)) + 3 * sent_bytes("\n");
    let Some(room) = limit.checked_sub(reserved).filter(|room| *room >= 32) else {
        return head_of(text, limit).to_owned();
    };
    let head = whole_characters_head(text, head_of(text, room / 10 * 7).len());
    let tail_start = whole_characters_tail(text, head.len(), total - tail_of(text, room - sent_bytes(head)).len());
    let tail = text.get(tail_start..).unwrap_or_default();
    format!("{}\n{head}\n{}\n{tail}", notice(total, head.len(), tail_start, result_id), gap(tail_start - head.len()))
}

fn notice(total: usize, head_end: usize, tail_start: usize, result_id: &str) -> String {
    let (total, head_end, tail_start) = (Thousands(total), Thousands(head_end), Thousands(tail_start));
    format!(
        "[truncated: {total} bytes, showing bytes 0-{head_end} and {tail_start}-{total}; full result id {result_id} - use read_result(id, offset)]"
    )
}

fn gap(bytes: usize) -> String {
    format!("[{} bytes left out here]", Thousands(bytes))
}

/// The longest head that takes at most `room` bytes as sent.
pub(super) fn head_of(text: &str, room: usize) -> &str {
    let mut left = room;
    for (at, c) in text.char_indices() {
        match left.checked_sub(sent_char(c)) {
            Some(rest) => left = rest,
            None => return text.get(..at).unwrap_or_default(),
        }
    }
    text
}

fn tail_of(text: &str, room: usize) -> &str {
    let mut left = room;
    for (at, c) in text.char_indices().rev() {
        match left.checked_sub(sent_char(c)) {
            Some(rest) => left = rest,
            None => return text.get(at + c.len_utf8()..).unwrap_or_default(),
        }
    }
    text
}

/// Whether the character belongs to the one before it.
fn joins(c: char) -> bool {
    is_combining_mark(c) || matches!(c, '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}')
}

fn splits(text: &str, at: usize) -> bool {
    let before = text.get(..at).and_then(|head| head.chars().next_back());
    let after = text.get(at..).and_then(|tail| tail.chars().next());
    matches!((before, after), (Some(before), Some(after)) if joins(after) || before == '\u{200d}')
}

fn whole_characters_head(text: &str, mut end: usize) -> &str {
    for _ in 0..JOIN_REACH {
        if !splits(text, end) {
            break;
        }
        end -= text.get(..end).and_then(|head| head.chars().next_back()).map_or(0, char::len_utf8);
    }
    text.get(..end).unwrap_or_default()
}

fn whole_characters_tail(text: &str, head_end: usize, start: usize) -> usize {
    let mut start = start.max(head_end);
    for _ in 0..JOIN_REACH {
        if !splits(text, start) {
            break;
        }
        start += text.get(start..).and_then(|tail| tail.chars().next()).map_or(0, char::len_utf8);
    }
    start
}

/// Cuts the tail of a JSON array, or of the longest array of a JSON object. The values keep their very
/// text. None when the text is no such JSON, or does not fit even so.
fn bound_json(text: &str, limit: usize, result_id: &str) -> Option<String> {
    match text.trim_start().as_bytes().first()? {
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let mark = |shown: usize| format!("{{\"_truncated\":{}}}", json_notice(text.len(), shown, items.len(), result_id));
            let room = limit.checked_sub(sent_bytes(&mark(items.len())) + sent_bytes("[]"))?;
            let shown = items_within(&items, room);
            let kept: String = items.iter().take(shown).map(|item| format!(",{}", item.get())).collect();
            (shown > 0).then(|| format!("[{}{kept}]", mark(shown)))
        }
        b'{' => bound_json_object(text, limit, result_id),
        _ => None,
    }
}

fn bound_json_object(text: &str, limit: usize, result_id: &str) -> Option<String> {
    let Fields(fields) = serde_json::from_str(text).ok()?;
    let (longest, (_, list)) =
        fields.iter().enumerate().filter(|(_, (_, value))| value.get().starts_with('[')).max_by_key(|(_, (_, value))| value.get().len())?;
    let items: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let written = |list: &str, shown: usize| -> Option<String> {
        let mut parts = vec![format!("\"_truncated\":{}", json_notice(text.len(), shown, items.len(), result_id))];
        for (at, (name, value)) in fields.iter().enumerate() {
            let value = if at == longest { list } else { value.get() };
            parts.push(format!("{}:{value}", serde_json::to_string(name).ok()?));
        }
        Some(format!("{{{}}}", parts.join(",")))
    };
    let room = limit.checked_sub(sent_bytes(&written("[]", items.len())?))?;
    let shown = items_within(&items, room);
    let kept: Vec<&str> = items.iter().take(shown).map(|item| item.get()).collect();
    written(&format!("[{}]", kept.join(",")), shown)
}

/// How many of the first items fit with a comma each.
fn items_within(items: &[&RawValue], room: usize) -> usize {
    let mut left = room;
    items
        .iter()
        .take_while(|item| match left.checked_sub(sent_bytes(item.get()) + 1) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .count()
}

fn json_notice(bytes: usize, shown: usize, of: usize, result_id: &str) -> String {
    serde_json::json!({ "bytes": bytes, "shown": shown, "of": of, "full_result": result_id, "use": "read_result(id, offset)" }).to_string()
}

/// The members of an object in their order, their values untouched.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A number with commas, as people read it.
struct Thousands(usize);

impl fmt::Display for Thousands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
