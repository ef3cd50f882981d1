//! A tool's schema, compiled once: what is wrong with arguments, and which values may be read as what the
//! schema wants (harness R9).

use std::fmt;

use jsonschema::Validator;
use serde_json::{Map, Number, Value};

/// Bytes of a schema inside an error.
const SCHEMA_BYTES: usize = 4096;
/// Problems listed at most; the rest is counted.
const PROBLEMS: usize = 20;

/// A compiled input schema.
pub(super) struct InputSchema {
    schema: Value,
    validator: Validator,
}

impl fmt::Debug for InputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputSchema({})", self.schema)
    }
}

impl InputSchema {
    /// Compiles a schema of draft 2020-12. Patterns run in linear time, whatever a model sends.
    ///
    /// # Errors
    /// Why it is no schema.
    pub(super) fn compile(schema: &Value) -> Result<InputSchema, String> {
        let validator = jsonschema::draft202012::options()
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(schema)
            .map_err(|error| format!("it is no JSON schema: {error}"))?;
        Ok(InputSchema { schema: schema.clone(), validator })
    }

    /// The schema as the model is shown.
    pub(super) fn schema(&self) -> &Value {
        &self.schema
    }

    /// All that is wrong, each with its JSON pointer.
    pub(super) fn problems(&self, arguments: &Value) -> Vec<String> {
        let mut problems: Vec<String> = self.validator.iter_errors(arguments).take(PROBLEMS + 1).map(|error| problem(&error)).collect();
        if problems.len() > PROBLEMS {
            problems.truncate(PROBLEMS);
            problems.push("and more".to_owned());
        }
        problems
    }

    /// Whether nothing is wrong.
    pub(super) fn accepts(&self, arguments: &Value) -> bool {
        self.validator.is_valid(arguments)
    }

    /// The schema for an error text, bounded.
    pub(super) fn shown(&self) -> String {
        excerpt(&self.schema.to_string(), SCHEMA_BYTES)
    }

    /// Reads values as what the schema wants where that is beyond doubt; gives what was read otherwise.
    pub(super) fn coerce(&self, arguments: &mut Map<String, Value>) -> Vec<String> {
        let mut read = Vec::new();
        coerce_fields(&self.schema, arguments, "", &mut read);
        read
    }
}

/// The first characters of a text that take at most `bytes`, with an ellipsis when something was left out.
pub(super) fn excerpt(text: &str, bytes: usize) -> String {
    if text.len() <= bytes { text.to_owned() } else { format!("{}…", text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()) }
}

fn problem(error: &jsonschema::ValidationError<'_>) -> String {
    let pointer = error.instance_path().to_string();
    let pointer = if pointer.is_empty() { "/".to_owned() } else { excerpt(&pointer, 100) };
    format!("{pointer}: {}", excerpt(&error.to_string(), 300))
}

fn coerce_fields(schema: &Value, fields: &mut Map<String, Value>, path: &str, read: &mut Vec<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, value) in fields {
        if let Some(schema) = properties.get(name) {
            coerce_value(schema, value, &format!("{path}/{name}"), read);
        }
    }
}

fn coerce_value(schema: &Value, value: &mut Value, path: &str, read: &mut Vec<String>) {
    let wanted = wanted_kinds(schema);
    if !wanted.is_empty() && !wanted.iter().any(|kind| is_kind(value, kind)) {
        let Some(other) = wanted.iter().find_map(|kind| read_as(schema, value, kind)) else { return };
        read.push(format!("{} read as {}", excerpt(path, 100), wanted.join(" or ")));
        *value = other;
    }
    match value {
        Value::Object(fields) => coerce_fields(schema, fields, path, read),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (at, item) in items.iter_mut().enumerate() {
                    coerce_value(schema, item, &format!("{path}/{at}"), read);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn wanted_kinds(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn read_as(schema: &Value, value: &Value, kind: &str) -> Option<Value> {
    let read = match (kind, value) {
        ("integer", Value::String(text)) => Value::from(text.trim().parse::<i64>().ok()?),
        ("number", Value::String(text)) => match text.trim().parse::<i64>() {
            Ok(whole) => Value::from(whole),
            Err(_) => Value::Number(Number::from_f64(text.trim().parse().ok()?)?),
        },
        ("boolean", Value::String(text)) => Value::from(text.trim().parse::<bool>().ok()?),
        ("object" | "array", Value::String(text)) if text.trim_start().starts_with(['{', '[']) => serde_json::from_str(text).ok()?,
        ("array", Value::String(_) | Value::Number(_) | Value::Bool(_)) => {
            let items = schema.get("items").map(wanted_kinds).unwrap_or_default();
            items.iter().any(|kind| !matches!(*kind, "array" | "object")).then(|| Value::Array(vec![value.clone()]))?
        }
        _ => return None,
    };
    is_kind(&read, kind).then_some(read)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order() -> InputSchema {
        InputSchema::compile(&json!({
            "type": "object",
            "properties": {
                "order": { "type": "integer" }, "gift": { "type": "boolean" }, "price": { "type": "number" },
                "tags": { "type": "array", "items": { "type": "string" } },
                "to": { "type": "object", "properties": { "zip": { "type": "string" } } },
            },
            "required": ["order"],
            "additionalProperties": false,
        }))
        .unwrap()
    }

    #[test]
    fn harness_r9_all_problems_are_listed_with_pointers_and_unknown_names() {
        let problems = order().problems(&json!({ "gift": 3, "to": { "zip": 1 }, "colour": "red" }));
        let text = problems.join("\n");
        assert_eq!(problems.len(), 4, "{text}");
        for part in ["/gift: ", "/to/zip: ", "colour", "\"order\" is a required property"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn harness_r9_what_is_beyond_doubt_is_read_as_wanted() {
        let schema = order();
        let mut arguments = json!({ "order": "5", "gift": "true", "price": " 2.5 ", "tags": "a", "to": "{\"zip\":\"1\"}" });
        let read = schema.coerce(arguments.as_object_mut().unwrap());
        assert_eq!(arguments, json!({ "order": 5, "gift": true, "price": 2.5, "tags": ["a"], "to": { "zip": "1" } }));
        assert_eq!(read.len(), 5);
        assert!(schema.accepts(&arguments));
    }

    #[test]
    fn harness_r9_what_is_in_doubt_stays() {
        let schema = order();
        for odd in [json!({ "order": "5a" }), json!({ "order": "5.5" }), json!({ "gift": "yes" }), json!({ "order": 1, "to": "x" })] {
            let mut arguments = odd.clone();
            assert!(schema.coerce(arguments.as_object_mut().unwrap()).is_empty());
            assert_eq!(arguments, odd);
        }
    }

    #[test]
    fn an_excerpt_is_cut_between_characters() {
        assert_eq!(excerpt("äöü", 3), "ä…");
        assert_eq!(excerpt("äöü", 6), "äöü");
    }
}
