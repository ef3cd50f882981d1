//! Names and arguments put right where the meaning is beyond doubt (harness R1 to R8). Pure: no tool is
//! known here, no value is guessed.

use serde_json::{Map, Value};

/// Bytes of arguments at most (security S16).
pub(super) const ARGUMENT_BYTES: usize = 64 * 1024;
/// Nesting at most (security S16).
const DEPTH: usize = 32;

/// Arguments as an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arguments {
    /// The object.
    pub(super) object: Map<String, Value>,
    /// What was put right, in words for the record; empty when nothing was.
    pub(super) repairs: Vec<&'static str>,
    /// Closing brackets were added: good only for a tool without effects, and only if the schema holds as
    /// it is (harness R8).
    pub(super) closed: bool,
}

/// The known name that is meant: exact, else without template residue, else the only one that differs in
/// case and separators alone. Never the nearest one (harness R1).
pub(super) fn name<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let exact = |name: &str| known.iter().copied().find(|known| *known == name);
    let bare = without_residue(written);
    exact(written).or_else(|| exact(bare)).or_else(|| {
        let folded = fold(bare);
        let mut matching = known.iter().copied().filter(|known| fold(known) == folded);
        matching.next().filter(|_| matching.next().is_none())
    })
}

/// The known name that a wrong one comes nearest to: for the words "did you mean" only (harness R1).
pub(super) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let written: Vec<char> = fold(without_residue(written)).chars().take(80).collect();
    let (distance, name) = known
        .iter()
        .map(|known| (edit_distance(&written, &fold(known).chars().collect::<Vec<_>>()), *known))
        .min_by_key(|(distance, name)| (*distance, *name))?;
    (distance <= written.len().max(3) / 3).then_some(name)
}

fn without_residue(written: &str) -> &str {
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let name = written.split("<|").next().unwrap_or_default().trim_matches(blank);
    let name = name.strip_prefix("functions.").or_else(|| name.strip_prefix("tool:")).unwrap_or(name);
    match name.rsplit_once(':') {
        Some((name, index)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => name.trim_matches(blank),
        _ => name.trim_matches(blank),
    }
}

fn fold(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() }).collect()
}

fn edit_distance(left: &[char], right: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.iter().enumerate() {
        let mut next = vec![i + 1];
        for ((to, above), diagonal) in right.iter().zip(row.iter().skip(1)).zip(&row) {
            let beside = next.last().copied().unwrap_or_default();
            next.push((diagonal + usize::from(from != to)).min(above + 1).min(beside + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// The object that a model's arguments mean. The response must have ended as it should: of one that was
/// cut off no call is run, whatever its arguments look like.
///
/// # Errors
/// What is wrong, for the model.
pub(super) fn arguments(raw: &str) -> Result<Arguments, String> {
    if raw.len() > ARGUMENT_BYTES {
        return Err(format!("the arguments take {} bytes; at most {ARGUMENT_BYTES} are taken", raw.len()));
    }
    let arguments = match raw.trim() {
        "" | "null" => Arguments { object: Map::new(), repairs: Vec::new(), closed: false },
        text => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Arguments { object, repairs: Vec::new(), closed: false },
            Ok(Value::String(inner)) => unwrapped(&inner)?,
            Ok(other) => return Err(format!("the arguments are {}; an object is needed", kind(&other))),
            Err(error) => lenient(text).map_err(|reason| reason.unwrap_or_else(|| format!("the arguments are no valid JSON: {error}")))?,
        },
    };
    let depth = arguments.object.values().map(depth).max().unwrap_or(0) + 1;
    if depth > DEPTH { Err(format!("the arguments are nested {depth} deep; at most {DEPTH} is taken")) } else { Ok(arguments) }
}

fn unwrapped(inner: &str) -> Result<Arguments, String> {
    match serde_json::from_str(inner) {
        Ok(Value::Object(object)) => Ok(Arguments { object, repairs: vec!["the arguments were JSON inside a JSON string"], closed: false }),
        _ => Err("the arguments are a string; an object is needed".to_owned()),
    }
}

/// A value's kind, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The deterministic pass of harness R8, and of R7 for identical objects in a row. An error without a
/// reason: the parser's own is the better one.
fn lenient(text: &str) -> Result<Arguments, Option<String>> {
    let mut repairs = Vec::new();
    let text = match text.strip_prefix("```") {
        Some(fenced) => {
            repairs.push("a code fence was taken off");
            fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim_start()
        }
        None => text,
    };
    let first = relax(text).ok_or(None)?;
    let object = first.object().ok_or(None)?;
    repairs.extend(&first.repairs);
    let mut rest = first.rest.trim_start();
    while rest.starts_with('{') {
        let again = relax(rest).filter(|again| !again.closed);
        match again.and_then(|again| again.object().map(|object| (object, again.rest))) {
            Some((same, after)) if same == object => {
                repairs.push("the same object was sent more than once");
                rest = after.trim_start();
            }
            _ => return Err(Some("the arguments hold two different objects; send one".to_owned())),
        }
    }
    if rest.contains('{') {
        return Err(Some("the arguments hold more than one object; send one".to_owned()));
    }
    if !matches!(rest, "" | "```") {
        repairs.push("text after the object was dropped");
    }
    repairs.dedup();
    Ok(Arguments { object, repairs, closed: first.closed })
}

/// One object read leniently.
struct Relaxed<'a> {
    json: String,
    rest: &'a str,
    repairs: Vec<&'static str>,
    closed: bool,
}

impl Relaxed<'_> {
    fn object(&self) -> Option<Map<String, Value>> {
        serde_json::from_str(&self.json).ok()
    }
}

/// Writes the first object of the text as strict JSON. None when it ends inside a string, or is no object.
fn relax(text: &str) -> Option<Relaxed<'_>> {
    if !text.starts_with('{') {
        return None;
    }
    let mut relaxed = Relaxed { json: String::with_capacity(text.len()), rest: "", repairs: Vec::new(), closed: false };
    let mut open: Vec<char> = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => relaxed.string(&mut chars)?,
            '{' | '[' => {
                open.push(if c == '{' { '}' } else { ']' });
                relaxed.json.push(c);
            }
            '}' | ']' => {
                if open.pop() != Some(c) {
                    return None;
                }
                relaxed.drop_trailing_comma();
                relaxed.json.push(c);
                if open.is_empty() {
                    relaxed.rest = text.get(at + c.len_utf8()..).unwrap_or_default();
                    return Some(relaxed);
                }
            }
            c if c.is_ascii_alphabetic() => {
                let mut word = String::from(c);
                while let Some((_, c)) = chars.next_if(|(_, c)| c.is_ascii_alphanumeric()) {
                    word.push(c);
                }
                relaxed.word(&word);
            }
            c => relaxed.json.push(c),
        }
    }
    relaxed.json.truncate(relaxed.json.trim_end().len());
    if relaxed.json.ends_with([',', ':']) {
        return None;
    }
    relaxed.json.extend(open.iter().rev());
    relaxed.closed = true;
    relaxed.repairs.push("missing closing brackets were added");
    Some(relaxed)
}

impl Relaxed<'_> {
    fn note(&mut self, repair: &'static str) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    /// Copies a string up to its closing quote; raw control characters become escapes.
    fn string(&mut self, chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> Option<()> {
        self.json.push('"');
        loop {
            match chars.next()?.1 {
                '"' => {
                    self.json.push('"');
                    return Some(());
                }
                '\\' => {
                    self.json.push('\\');
                    self.json.push(chars.next()?.1);
                }
                c if u32::from(c) < 0x20 => {
                    self.note("raw control characters in a string were escaped");
                    self.json.push_str(&format!("\\u{:04x}", u32::from(c)));
                }
                c => self.json.push(c),
            }
        }
    }

    fn word(&mut self, word: &str) {
        let json = match word {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => return self.json.push_str(other),
        };
        self.note("Python's True, False or None were read as JSON");
        self.json.push_str(json);
    }

    fn drop_trailing_comma(&mut self) {
        let end = self.json.trim_end().len();
        if self.json.get(..end).is_some_and(|json| json.ends_with(',')) {
            self.json.truncate(end - 1);
            self.note("a trailing comma was dropped");
        }
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
