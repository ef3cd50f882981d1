//! `duties/NAME.toml`: checked, not yet run.

use std::time::Duration;

use super::mailbox::addresses;
use super::{Entry, Section, unacted};
use crate::config::names::Names;

/// Checks one duty's keys and kinds of value.
pub(crate) fn duty(name: &str, root: Section<'_>, names: &Names) {
    root.required("agent", "agent = \"NAME\"").and_then(|entry| names.agents.pointed(&entry));
    schedule(&root);
    root.required("instructions", "instructions = \"\"\"…\"\"\"").and_then(|entry| entry.text());
    addresses(&root, "report_to");
    root.text("subject");
    root.word("missed", &[("once", ()), ("skip", ()), ("each", ())]);
    root.word("overlap", &[("skip", ()), ("queue", ())]);
    for key in ["missed_within", "timeout", "jitter"] {
        root.duration(key, Duration::ZERO);
    }
    for key in ["quiet", "allow_subminute"] {
        root.boolean(key, false);
    }
    for key in ["retries", "pause_after"] {
        root.integer(key, 0..=1000);
    }
    root.text("from");
    if let Some(calendar) = root.get("skip_on") {
        calendar.file(1 << 20);
    }
    unacted::warn_of_duty(&root, name);
    root.finish();
}

fn schedule(root: &Section<'_>) {
    let (cron, every, at) = (root.get("cron"), root.get("every"), root.get("at"));
    let zone = root.get("timezone");
    if [&cron, &every, &at].into_iter().flatten().count() != 1 {
        root.problem("the file needs one of cron, every and at; write cron = \"0 7 * * MON-FRI\"");
    }
    if every.is_none() && zone.is_none() && (cron.is_some() || at.is_some()) {
        root.problem("the file has no `timezone`; write timezone = \"Europe/Berlin\"");
    }
    for entry in [&cron, &at, &zone].into_iter().flatten() {
        entry.text();
    }
    every.as_ref().and_then(Entry::duration);
}
