//! `dutiful.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::mailbox::mailbox;
use super::model::model;
use super::server::web_address;
use super::tool::{EFFECTS, tool};
use super::{Entry, Section, unacted};
use crate::config::names::{EVENTS, Names};
use crate::config::{Contact, Customers, Limits, Mailbox, ModelSettings, OperatorTool, Retention, Settings, Telemetry};
use crate::mail::Address;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Bytes of the customers' file.
const LONGEST_CUSTOMERS: u64 = 256 << 20;

/// What could be read of the settings.
#[derive(Default)]
pub(crate) struct Found {
    /// The mailboxes without a mistake.
    pub(crate) mailboxes: BTreeMap<String, Mailbox>,
    /// The tools without a mistake.
    pub(crate) tools: BTreeMap<String, OperatorTool>,
    rest: Option<Rest>,
}

struct Rest {
    models: BTreeMap<String, ModelSettings>,
    contacts: BTreeMap<String, Contact>,
    store: PathBuf,
    operator: Option<Address>,
    customers: Option<Customers>,
    limits: Limits,
    telemetry: Telemetry,
    retention: Retention,
}

impl Found {
    /// The whole, when the file was there with its one required value.
    pub(crate) fn whole(self, home: PathBuf) -> Option<Settings> {
        let rest = self.rest?;
        Some(Settings {
            home,
            store: rest.store,
            mailboxes: self.mailboxes,
            models: rest.models,
            tools: self.tools,
            contacts: rest.contacts,
            operator: rest.operator?,
            customers: rest.customers,
            limits: rest.limits,
            telemetry: rest.telemetry,
            retention: rest.retention,
        })
    }
}

/// Reads the settings.
pub(crate) fn settings(root: Section<'_>, names: &Names) -> Found {
    let models = all(&root, "models", |name, entry| model(name, entry, names));
    refuse_circles(&root, &models);
    let tools = all(&root, "tools", tool);
    refuse_twins(&root);
    let mailboxes = all(&root, "mailboxes", |name, entry| mailbox(name, entry, names));
    refuse_shared_addresses(&root, &mailboxes);
    let rest = Rest {
        models,
        contacts: all(&root, "contacts", contact),
        store: store(&root),
        operator: operator(&root),
        customers: root.get("customers").and_then(|entry| customers(&entry)),
        limits: root.section("limits").map_or_else(Limits::default, |section| {
            let limits = Limits::read(&section);
            section.finish();
            limits
        }),
        telemetry: telemetry(&root),
        retention: retention(&root),
    };
    for (_, entry) in root.named("mcp") {
        server(&entry);
    }
    for (_, entry) in root.named("hooks") {
        hook(&entry);
    }
    if let Some(entry) = root.get("panel") {
        panel(&entry);
    }
    root.finish();
    Found { mailboxes, tools, rest: Some(rest) }
}

fn all<T>(root: &Section<'_>, key: &'static str, read: impl Fn(&str, &Entry<'_>) -> Option<T>) -> BTreeMap<String, T> {
    root.named(key).into_iter().filter_map(|(name, entry)| Some((name.clone(), read(&name, &entry)?))).collect()
}

/// A fallback that leads back to where it began would never end.
fn refuse_circles(root: &Section<'_>, models: &BTreeMap<String, ModelSettings>) {
    for (name, entry) in root.named("models") {
        let next = |name: &str| models.get(name).and_then(|model| model.fallback.as_deref());
        let mut at = next(&name);
        for _ in 0..models.len() {
            if at == Some(name.as_str()) {
                let place = entry.section().and_then(|section| section.get("fallback"));
                place.unwrap_or(entry).wrong("leads back to this model", "let the last model of the chain have none");
                break;
            }
            at = at.and_then(next);
        }
    }
}

/// Names that differ by case alone cannot be told apart by every model (harness D1).
fn refuse_twins(root: &Section<'_>) {
    let mut seen = BTreeMap::new();
    for (name, entry) in root.named("tools") {
        if let Some(other) = seen.insert(name.to_ascii_lowercase(), name) {
            entry.wrong(format_args!("differs from the tool {other} by case alone"), "choose another name");
        }
    }
}

/// Each letter has one mailbox, and our own echo is known by it.
fn refuse_shared_addresses(root: &Section<'_>, mailboxes: &BTreeMap<String, Mailbox>) {
    let mut seen = BTreeMap::new();
    for (name, entry) in root.named("mailboxes") {
        for address in mailboxes.get(&name).into_iter().flat_map(Mailbox::own_addresses) {
            if let Some(other) = seen.insert(address, name.clone()).filter(|other| *other != name) {
                entry.wrong(format_args!("has the address {address}, which [mailboxes.{other}] has too"), "let one mailbox have it");
            }
        }
    }
}

fn contact(name: &str, entry: &Entry<'_>) -> Option<Contact> {
    if name.eq_ignore_ascii_case("operator") {
        entry.wrong("is the name of the operator", "choose another name");
    }
    let section = entry.section()?;
    let address = section.required("address", "address = \"NAME@DOMAIN\"").and_then(|entry| entry.parsed());
    section.finish();
    Some(Contact { name: name.to_owned(), address: address? })
}

/// Where the store is when `[store] path` does not say.
pub(in crate::config) const DEFAULT_STORE: &str = "data/dutiful.db";

fn store(root: &Section<'_>) -> PathBuf {
    let usual = root.home().join(DEFAULT_STORE);
    let Some(section) = root.section("store") else { return usual };
    let path = section.get("path").and_then(|entry| entry.path());
    section.finish();
    path.unwrap_or(usual)
}

fn operator(root: &Section<'_>) -> Option<Address> {
    let right = "[operator] with address = \"NAME@DOMAIN\": alerts go there";
    let section = root.required("operator", right)?.section()?;
    let address = section.required("address", "address = \"NAME@DOMAIN\"").and_then(|entry| entry.parsed());
    section.finish();
    address
}

fn customers(entry: &Entry<'_>) -> Option<Customers> {
    let section = entry.section()?;
    let (file, command) = (section.get("file"), section.get("command"));
    section.finish();
    match (file, command) {
        (Some(file), None) => table_of_customers(&file).map(Customers::File),
        (None, Some(command)) => command.command().map(Customers::Command),
        _ => {
            entry.wrong("needs one of file and command", "write file = \"knowledge/customers.csv\"");
            None
        }
    }
}

fn table_of_customers(entry: &Entry<'_>) -> Option<PathBuf> {
    let (path, bytes) = entry.file(LONGEST_CUSTOMERS)?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let has_column = reader.headers().is_ok_and(|columns| columns.iter().any(|column| column == "address"));
    if !has_column {
        entry.wrong("names a file without a column `address`", "name its columns in the first line, such as address,name,orders");
        return None;
    }
    Some(path)
}

fn telemetry(root: &Section<'_>) -> Telemetry {
    let mut telemetry = Telemetry { log: "info".into(), log_dir: root.home().join("data/log") };
    let Some(section) = root.section("telemetry") else { return telemetry };
    if let Some(entry) = section.get("log")
        && let Some(log) = entry.text()
    {
        if tracing_subscriber::EnvFilter::try_new(&log).is_err() {
            entry.wrong("is no filter", "write \"info\", or such as \"info,dutiful::gateway=debug\"");
        }
        telemetry.log = log;
    }
    if let Some(path) = section.get("log_dir").and_then(|entry| entry.path()) {
        telemetry.log_dir = path;
    }
    if let Some(entry) = section.get("otlp") {
        web_address(&entry);
        unacted::warn(&entry, "telemetry.otlp", "`telemetry.otlp`");
    }
    section.finish();
    telemetry
}

fn retention(root: &Section<'_>) -> Retention {
    let usual = Retention { raw: 90 * DAY, transcripts: 90 * DAY, attachments: 30 * DAY, audit: 24 * 31 * DAY };
    let Some(entry) = root.get("retention") else { return usual };
    let Some(section) = entry.section() else { return usual };
    let retention = Retention {
        raw: section.duration("raw", usual.raw),
        transcripts: section.duration("transcripts", usual.transcripts),
        attachments: section.duration("attachments", usual.attachments),
        audit: section.duration("audit", usual.audit),
    };
    if let Some(entry) = section.get("audit").filter(|_| retention.audit < Retention::SHORTEST_AUDIT) {
        entry.warning("`audit` is shorter than 30d; rows are kept that long all the same, since limits are counted from them");
    }
    section.finish();
    retention
}

/// `command` or `url`, exactly one.
fn reached(section: &Section<'_>) {
    match (section.get("command"), section.get("url")) {
        (Some(command), None) => {
            command.command();
        }
        (None, Some(url)) => {
            web_address(&url);
        }
        _ => section.problem(format!("{} needs one of command and url; write command = [\"PROGRAM\"]", section.title())),
    }
}

fn server(entry: &Entry<'_>) {
    let Some(section) = entry.section() else { return };
    unacted::warn(entry, "mcp", section.title());
    reached(&section);
    section.required("effect", "effect = \"pure\", \"idempotent\" or \"effectful\"").and_then(|entry| entry.word(&EFFECTS));
    section.strings("pure");
    section.finish();
}

fn hook(entry: &Entry<'_>) {
    let Some(section) = entry.section() else { return };
    unacted::warn(entry, "hooks", section.title());
    reached(&section);
    let events: Vec<(&str, ())> = EVENTS.iter().map(|event| (*event, ())).collect();
    let on = section.required("on", "on = [\"run.failed\"]").and_then(|entry| entry.items()).unwrap_or_default();
    for item in on {
        item.word(&events);
    }
    section.finish();
}

fn panel(entry: &Entry<'_>) {
    unacted::warn(entry, "panel", "[panel]");
    let Some(section) = entry.section() else { return };
    if let Some(listen) = section.get("listen")
        && let Some(text) = listen.string()
        && text != "off"
        && text.parse::<std::net::SocketAddr>().is_err()
    {
        listen.wrong(format_args!("is {}", super::quoted(text)), "write \"127.0.0.1:8025\" or \"off\"");
    }
    // The file is made on the first start: only the form is checked.
    if let Some(token) = section.get("token") {
        token.secret_source();
    }
    section.finish();
}
