//! Texts with `{{slots}}` that a rule fills in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A text with slots.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Literal(String),
    /// `{{last}}`
    Last,
    /// `{{tool_result}}` with an empty path, or `{{tool_result.a.0.b}}`.
    ToolResult(Vec<String>),
    /// `{{NAME}}`
    Capture(String),
}

/// What the slots stand for.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    pub(super) last: &'a str,
    pub(super) results: &'a [String],
    pub(super) captures: BTreeMap<String, String>,
}

impl Template {
    /// Parses a text. `captures` are the names that the rule's patterns capture.
    pub(super) fn parse(text: &str, captures: &BTreeSet<String>) -> anyhow::Result<Template> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((slot, behind)) = after.split_once("}}") else { anyhow::bail!("`{{{{` without `}}}}` in {text:?}") };
            pieces.push(Piece::Literal(before.to_owned()));
            pieces.push(Piece::slot(slot.trim(), captures)?);
            rest = behind;
        }
        pieces.push(Piece::Literal(rest.to_owned()));
        pieces.retain(|piece| !matches!(piece, Piece::Literal(text) if text.is_empty()));
        Ok(Template { pieces })
    }

    /// The text, filled in. What is not there is empty.
    pub(super) fn render(&self, facts: &Facts<'_>) -> String {
        self.pieces.iter().map(|piece| piece.render(facts)).collect()
    }

    /// The value for a call's argument: a text, except that a lone `{{tool_result.FIELD}}` keeps the field's type.
    pub(super) fn value(&self, facts: &Facts<'_>) -> Value {
        match self.pieces.as_slice() {
            [Piece::ToolResult(path)] if !path.is_empty() => field(facts.results, path).unwrap_or(Value::Null),
            _ => Value::String(self.render(facts)),
        }
    }
}

impl Piece {
    fn slot(name: &str, captures: &BTreeSet<String>) -> anyhow::Result<Piece> {
        if name == "last" {
            return Ok(Piece::Last);
        }
        if name == "tool_result" {
            return Ok(Piece::ToolResult(Vec::new()));
        }
        if let Some(path) = name.strip_prefix("tool_result.") {
            return Ok(Piece::ToolResult(path.split('.').map(str::to_owned).collect()));
        }
        anyhow::ensure!(
            captures.contains(name),
            "unknown slot {{{{{name}}}}}; there are last, tool_result, tool_result.FIELD and the names captured by this rule's patterns"
        );
        Ok(Piece::Capture(name.to_owned()))
    }

    fn render(&self, facts: &Facts<'_>) -> String {
        match self {
            Piece::Literal(text) => text.clone(),
            Piece::Last => facts.last.to_owned(),
            Piece::ToolResult(path) if path.is_empty() => facts.results.join("\n"),
            Piece::ToolResult(path) => match field(facts.results, path) {
                Some(Value::String(text)) => text,
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            },
            Piece::Capture(name) => facts.captures.get(name).cloned().unwrap_or_default(),
        }
    }
}

/// The field of the first result that has it. Numbers in the path count into lists.
fn field(results: &[String], path: &[String]) -> Option<Value> {
    results.iter().find_map(|result| {
        let whole: Value = serde_json::from_str(result).ok()?;
        path.iter()
            .try_fold(&whole, |value, key| match value {
                Value::Array(items) => items.get(key.parse::<usize>().ok()?),
                other => other.get(key),
            })
            .cloned()
    })
}
