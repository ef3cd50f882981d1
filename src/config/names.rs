//! The names that files may point to: built-in tools, resolvers, events (DESIGN 2.7), and what the operator
//! named.

use std::collections::BTreeSet;

use super::read::{Entry, nearest, quoted};

/// Built-in tools of this version.
pub(super) const BUILT_IN_TOOLS: &[&str] = &["send_email", "read_thread", "escalate", "read_result"];

/// Built-in tools of later versions: known names, so that a file may already grant them.
pub const LATER_TOOLS: &[&str] = &[
    "tool_search",
    "call_tool",
    "ask_user_question",
    "nothing_to_report",
    "todo",
    "remember",
    "recall",
    "search_threads",
    "search_documents",
    "read_document",
    "ask_agent",
    "schedule_follow_up",
    "schedule_duty",
    "read_attachment",
    "attach",
];

/// Resolvers without an argument.
pub(super) const RESOLVERS: &[&str] = &["persona", "clock", "customer", "history", "duty"];

/// The same of later versions.
pub(super) const LATER_RESOLVERS: &[&str] = &["notes", "last_outcome"];

/// What a hook may be told of.
pub(super) const EVENTS: &[&str] = &[
    "letter.received",
    "letter.accepted",
    "letter.ignored",
    "letter.held",
    "letter.quarantined",
    "run.started",
    "run.completed",
    "run.failed",
    "run.paused",
    "run.resumed",
    "run.cancelled",
    "model.called",
    "model.completed",
    "model.failed",
    "text.delta",
    "tool.called",
    "tool.completed",
    "tool.failed",
    "tool.skipped",
    "outgoing.queued",
    "outgoing.held",
    "outgoing.sent",
    "outgoing.uncertain",
    "outgoing.failed",
    "outgoing.bounced",
    "duty.fired",
    "duty.missed",
    "duty.skipped",
    "switch.changed",
    "config.reloaded",
];

/// Names of one kind that the operator gave.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// The names; none when the file that gives them could not be parsed, so that nothing is said about them.
    names: Option<BTreeSet<String>>,
    /// How one is written, `[models.NAME]`.
    form: &'static str,
}

impl Named {
    pub(super) fn new(form: &'static str, names: Option<BTreeSet<String>>) -> Named {
        Named { names, form }
    }

    /// Whether it holds the name, as far as can be known.
    pub(super) fn may_hold(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }

    /// The name that an entry points to; one that points nowhere is recorded.
    pub(super) fn pointed(&self, entry: &Entry<'_>) -> Option<String> {
        let name = entry.string()?;
        self.check(entry, name).then(|| name.to_owned())
    }

    /// Whether the name is known; if not, it is recorded at the entry.
    pub(super) fn check(&self, entry: &Entry<'_>, name: &str) -> bool {
        let holds = self.may_hold(name);
        if !holds {
            let right = match nearest(name, self.iter()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("add {} or name one that exists", self.form.replace("NAME", &name.chars().take(80).collect::<String>())),
            };
            entry.wrong(format_args!("names {}, which is no {}", quoted(name), self.form), right);
        }
        holds
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flatten().map(String::as_str)
    }
}

/// All names that an operator gave.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) agents: Named,
    pub(super) mailboxes: Named,
    pub(super) models: Named,
    pub(super) tools: Named,
    pub(super) contacts: Named,
    pub(super) servers: Named,
}
