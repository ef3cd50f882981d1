//! `[tools.NAME]`: an operator's tool.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::server::web_address;
use super::{Entry, Section, unacted};
use crate::config::names::{BUILT_IN_TOOLS, LATER_TOOLS};
use crate::config::{CommandTool, Effect, HttpTool, OperatorTool, ToolKind};

/// The words of `effect`.
pub(super) const EFFECTS: [(&str, Effect); 3] =
    [("pure", Effect::Pure), ("idempotent", Effect::Idempotent), ("effectful", Effect::Effectful)];

/// Reads one tool; none when something required is wrong, which is recorded then.
pub(super) fn tool(name: &str, entry: &Entry<'_>) -> Option<OperatorTool> {
    check_name(name, entry);
    let section = entry.section()?;
    let description = section.required("description", "what the tool does, for the model").and_then(|entry| entry.text());
    let effect = section.required("effect", "effect = \"pure\", \"idempotent\" or \"effectful\"").and_then(|entry| entry.word(&EFFECTS));
    let kind = kind(&section);
    let input = section.get("input").map_or_else(empty_schema, |entry| schema(&entry));
    let timeout = section.duration("timeout", Duration::from_secs(30));
    let approval = section.get("approval");
    let approved = approval.as_ref().and_then(Entry::boolean).unwrap_or(false);
    if let Some(entry) = approval.filter(|_| approved) {
        unacted::warn(&entry, "tools.approval", "`approval`");
    }
    let untainted = section.boolean("untainted", false);
    section.finish();
    Some(OperatorTool {
        name: name.to_owned(),
        description: description?,
        input,
        effect: effect?,
        timeout,
        approval: approved,
        untainted,
        kind: kind?,
    })
}

/// Harness D1; that names differ by more than case is checked where all of them are known.
fn check_name(name: &str, entry: &Entry<'_>) {
    if name.contains('.') {
        entry.wrong("is no name for a tool", "use letters, digits, \"-\" and \"_\"");
    }
    if BUILT_IN_TOOLS.iter().chain(LATER_TOOLS).any(|built_in| built_in.eq_ignore_ascii_case(name)) {
        entry.wrong("is the name of a built-in tool", "choose another name");
    }
}

fn kind(section: &Section<'_>) -> Option<ToolKind> {
    let (command, http, env) = (section.get("command"), section.get("http"), section.get("env"));
    match (command, http) {
        (Some(command), None) => {
            let env = env.and_then(|entry| entry.secrets()).unwrap_or_default();
            let argv = command.command()?;
            warn_of_missing(&command, section, &argv);
            Some(ToolKind::Command(CommandTool { command: argv, env }))
        }
        (None, Some(http)) => {
            if let Some(env) = env {
                env.wrong("stands beside http", "take it out; it is for a command");
            }
            unacted::warn(&http, "tools.http", "`http`");
            endpoint(&http)
        }
        (Some(_), Some(http)) => {
            http.wrong("stands beside command", "keep one of the two");
            None
        }
        (None, None) => {
            section.problem(format!("{} has neither command nor http; write command = [\"bin/tool\"]", section.title()));
            None
        }
    }
}

/// The daemon serves without it: the calls fail, and the mail goes on.
fn warn_of_missing(entry: &Entry<'_>, section: &Section<'_>, argv: &[String]) {
    let program = argv.first().filter(|program| program.contains('/')).map(|program| section.home().join(program));
    let Some(path) = program else { return };
    if !path.is_file() {
        entry.warning(format!("there is no program {}; each call of the tool fails until it is there", path.display()));
    } else if path.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 == 0) {
        entry.warning(format!("{} is no program; each call of the tool fails until you run chmod +x on it", path.display()));
    }
}

fn endpoint(entry: &Entry<'_>) -> Option<ToolKind> {
    let section = entry.section()?;
    let methods = [("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH"), ("GET", "GET"), ("DELETE", "DELETE")];
    let method = section.word("method", &methods).unwrap_or("POST");
    let url = section.required("url", "url = \"https://HOST/PATH\"").and_then(|entry| web_address(&entry));
    let headers = section.get("headers").and_then(|entry| entry.secrets()).unwrap_or_default();
    section.finish();
    Some(ToolKind::Http(HttpTool { method: method.to_owned(), url: url?, headers }))
}

fn empty_schema() -> Value {
    json!({ "type": "object", "properties": {} })
}

fn schema(entry: &Entry<'_>) -> Value {
    let right = "write { type = \"object\", properties = { NAME = { type = \"string\" } } }";
    let mut schema = entry.json();
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    let properties = schema.get("properties").is_none_or(Value::is_object);
    if !is_object || !properties {
        entry.wrong("is not the schema of an object", right);
    } else if let Some(map) = schema.as_object_mut() {
        map.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}
