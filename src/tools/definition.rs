//! Whether a tool's definition may be shown to a model: what one vendor or another refuses is refused at
//! start, by name (harness D1).

use serde_json::{Map, Value, json};

use super::validate::InputSchema;

/// Characters of a description's first line.
const SUMMARY: usize = 120;

/// Checks a definition and gives its schema as it is shown and compiled: `properties` and
/// `additionalProperties: false` are added where they are missing.
pub(super) fn check(name: &str, description: &str, input: &Value) -> Result<InputSchema, Vec<String>> {
    let mut problems = Vec::new();
    if !is_name(name, 64, "_-") {
        problems.push("its name must be 1 to 64 of A-Z a-z 0-9 _ -".to_owned());
    }
    match description.lines().next().map(str::trim) {
        None | Some("") => problems.push("`description` is empty; begin with one line that says what it does".to_owned()),
        Some(line) if line.chars().count() > SUMMARY => {
            problems.push(format!("the first line of `description` is longer than {SUMMARY} characters; put the rest below it"));
        }
        Some(_) => {}
    }
    let mut schema = input.clone();
    match schema.as_object_mut() {
        Some(object) => check_top(object, &mut problems),
        None => problems.push("`input` must be an object schema, { type = \"object\", … }".to_owned()),
    }
    check_schema(&mut schema, "input", &mut problems);
    match InputSchema::compile(&schema) {
        Ok(schema) if problems.is_empty() => Ok(schema),
        Ok(_) => Err(problems),
        Err(problem) => {
            problems.push(format!("`input`: {problem}"));
            Err(problems)
        }
    }
}

fn is_name(name: &str, longest: usize, also: &str) -> bool {
    !name.is_empty() && name.len() <= longest && name.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}

fn check_top(schema: &mut Map<String, Value>, problems: &mut Vec<String>) {
    schema.remove("$schema");
    if schema.get("type") != Some(&json!("object")) {
        problems.push("`input` must say type = \"object\"".to_owned());
    }
    for word in ["oneOf", "anyOf", "allOf"] {
        if schema.contains_key(word) {
            problems.push(format!("`input` must not have {word} at its top; some vendors refuse the whole request"));
        }
    }
    if schema.get("additionalProperties").is_some_and(|additional| *additional != json!(false)) {
        problems.push("`input` must not allow additionalProperties; name each argument".to_owned());
    }
    schema.entry("properties").or_insert_with(|| json!({}));
}

/// Checks a schema and those inside it, as deep as the parser of the file allowed.
fn check_schema(schema: &mut Value, path: &str, problems: &mut Vec<String>) {
    let Some(object) = schema.as_object_mut() else { return };
    for word in ["$ref", "$defs", "definitions"] {
        if object.contains_key(word) {
            problems.push(format!("`{path}` must not have {word}; write the schema out in place"));
        }
    }
    check_properties(object, path, problems);
    for word in ["items", "additionalProperties", "not"] {
        if let Some(inner) = object.get_mut(word) {
            check_schema(inner, &format!("{path}.{word}"), problems);
        }
    }
    for word in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        for inner in object.get_mut(word).and_then(Value::as_array_mut).into_iter().flatten() {
            check_schema(inner, &format!("{path}.{word}"), problems);
        }
    }
}

fn check_properties(object: &mut Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    let required: Vec<String> = match object.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for name in required.iter().filter(|name| !properties.contains_key(*name)) {
        problems.push(format!("`{path}` requires \"{name}\", which is not among its properties"));
    }
    for (name, inner) in properties {
        if !is_name(name, 64, "_.-") {
            problems.push(format!("`{path}` has the property \"{name}\"; a name must be 1 to 64 of A-Z a-z 0-9 _ . -"));
        }
        check_schema(inner, &format!("{path}.{name}"), problems);
    }
    if !object.contains_key("additionalProperties") {
        object.insert("additionalProperties".to_owned(), json!(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, description: &str, input: &Value) -> String {
        check(name, description, input).map_or_else(|problems| problems.join("\n"), |_| String::new())
    }

    #[test]
    fn harness_d1_each_rule_refuses_its_fixture() {
        let object = json!({ "type": "object" });
        let long = "x".repeat(121);
        let cases = [
            ("sp ace", "does", object.clone(), "its name must be"),
            ("", "does", object.clone(), "its name must be"),
            ("a", "", object.clone(), "`description` is empty"),
            ("a", long.as_str(), object, "longer than 120"),
            ("a", "does", json!("text"), "must be an object schema"),
            ("a", "does", json!({ "type": "array" }), "type = \"object\""),
            ("a", "does", json!({ "type": "object", "anyOf": [] }), "anyOf at its top"),
            ("a", "does", json!({ "type": "object", "$defs": {} }), "must not have $defs"),
            ("a", "does", json!({ "type": "object", "properties": { "x": { "$ref": "#/x" } } }), "input.x` must not have $ref"),
            ("a", "does", json!({ "type": "object", "properties": { "ö": {} } }), "has the property \"ö\""),
            ("a", "does", json!({ "type": "object", "required": ["x"] }), "requires \"x\""),
            ("a", "does", json!({ "type": "object", "additionalProperties": true }), "must not allow additionalProperties"),
            ("a", "does", json!({ "type": "object", "properties": { "x": { "type": 3 } } }), "no JSON schema"),
        ];
        for (name, description, input, expected) in cases {
            let found = problems(name, description, &input);
            assert!(found.contains(expected), "{expected:?} in {found:?}");
        }
    }

    #[test]
    fn harness_d1_what_vendors_want_is_added() {
        let input = json!({ "type": "object", "properties": { "to": { "type": "object", "properties": {} } }, "$schema": "x" });
        let schema = check("a", "does", &input).unwrap();
        let expected = json!({
            "type": "object",
            "properties": { "to": { "type": "object", "properties": {}, "additionalProperties": false } },
            "additionalProperties": false,
        });
        assert_eq!(*schema.schema(), expected);
    }
}
