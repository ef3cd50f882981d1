//! What files may already say although this version does not act on it yet, in one table.

use super::{Entry, Section};

/// Key, and what happens in the meantime.
const UNACTED: &[(&str, &str)] = &[
    ("mcp", "the server's tools are not offered"),
    ("hooks", "nothing is told to it"),
    ("panel", "no panel is opened"),
    ("telemetry.otlp", "nothing is exported"),
    ("oauth2.provider", "the mailbox cannot log in with it; use token_command or a password"),
    ("tools.http", "the tool is not offered; use a command"),
    ("tools.approval", "nobody can be asked for it, so the tool is not offered"),
    ("tools.deferred", "there is no tool_search yet, so these tools are shown in full on each call like those under eager"),
    ("budget.todo_mode", "there is no todo mode yet"),
    ("outgoing.hours", "letters leave at any hour"),
    ("built-in tool", "the tool is not offered"),
    ("resolver", "it adds nothing"),
];

/// Warns, at the entry, that it is not acted upon. `key` stands in the table.
pub(super) fn warn(entry: &Entry<'_>, key: &str, subject: &str) {
    let meanwhile = UNACTED.iter().find(|(known, _)| *known == key).map_or("it is kept for later", |(_, meanwhile)| meanwhile);
    entry.warning(format!("{subject} is not acted upon by this version yet; {meanwhile}"));
}

/// The same for a duty's whole file.
pub(super) fn warn_of_duty(root: &Section<'_>, name: &str) {
    root.warning(format!("duties are not run by this version yet; \"{name}\" is checked and waits for one that does"));
}
