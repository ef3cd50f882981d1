//! `agents/NAME.toml`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Entry, Section, nearest, quoted, unacted};
use crate::config::names::{BUILT_IN_TOOLS, LATER_RESOLVERS, LATER_TOOLS, Names, RESOLVERS};
use crate::config::{
    Agent, Audience, AudienceEntry, Budget, Effect, Fence, Hold, Mailbox, OnLimit, OperatorTool, OutgoingPolicy, TodoMode, ToolGrants,
};
use crate::mail::Address;
use crate::run::Identity;

/// Bytes of a prompt or document.
const LONGEST_TEXT: u64 = 4 << 20;

const FALLBACK_REPLY: &str = "Thank you for your message. I could not prepare a full answer just now. \
                              A colleague has been told and will get back to you.";

/// What an agent's file may point to.
pub(crate) struct Surroundings<'a> {
    pub(crate) names: &'a Names,
    pub(crate) mailboxes: &'a BTreeMap<String, Mailbox>,
    pub(crate) tools: &'a BTreeMap<String, OperatorTool>,
    /// Addresses that agents before this one own.
    pub(crate) owned: RefCell<BTreeMap<Address, String>>,
}

/// Reads one agent; none when something required is wrong, which is recorded then.
pub(crate) fn agent(name: &str, root: Section<'_>, around: &Surroundings<'_>) -> Option<Agent> {
    let mailbox = root.get("mailbox").and_then(|entry| around.names.mailboxes.pointed(&entry));
    let addresses = own_addresses(name, &root, mailbox.as_deref(), around);
    let right = format!("model = \"{}\"", around.names.models.iter().next().unwrap_or("NAME"));
    let model = root.required("model", &right).and_then(|entry| around.names.models.pointed(&entry));
    let prompt = prompt(&root);
    let limits = [("closing_call", OnLimit::ClosingCall), ("return_last", OnLimit::ReturnLast)];
    let on_limit = root.word("on_limit", &limits).unwrap_or(OnLimit::ClosingCall);
    let max_tool_turns = root.integer("max_tool_turns", 1..=64).unwrap_or(8);
    let description = root.string("description").unwrap_or_default();
    let display_name = root.get("display_name").and_then(|entry| display_name(&entry));
    let fallback_reply = root.text("fallback_reply").unwrap_or_else(|| FALLBACK_REPLY.to_owned());
    let signature = root.string("signature");
    let audience = root.get("audience").and_then(|entry| audience(&entry)).unwrap_or(Audience::Public);
    let identities = [("verified", Identity::Verified), ("thread", Identity::Thread)];
    let identity = root.word("identity", &identities).unwrap_or(Identity::Verified);
    let grants = root.get("tools");
    let tools = grants.as_ref().and_then(Entry::section).map(|section| tool_grants(section, around)).unwrap_or_default();
    if let Some(entry) = grants.filter(|_| audience == Audience::Public && identity == Identity::Thread) {
        rule_of_two(&entry, &tools, around);
    }
    let mut texts = prompt.clone().unwrap_or_default();
    let (reactive, proactive) = chains(&root, &mut texts);
    let budget = budget(root.section("budget"));
    let links = default_links(&texts, mailbox.as_deref().and_then(|name| around.mailboxes.get(name)));
    let outgoing = outgoing(root.section("outgoing"), around.names, links);
    root.finish();
    Some(Agent {
        name: name.to_owned(),
        description,
        mailbox,
        addresses,
        display_name,
        model: model?,
        max_tool_turns,
        on_limit,
        fallback_reply,
        prompt: prompt?,
        signature,
        audience,
        identity,
        tools,
        reactive,
        proactive,
        budget,
        outgoing,
    })
}

fn own_addresses(name: &str, root: &Section<'_>, mailbox: Option<&str>, around: &Surroundings<'_>) -> Vec<Address> {
    let Some(entry) = root.get("addresses") else { return Vec::new() };
    let mut found = Vec::new();
    if root.get("mailbox").is_none() {
        entry.wrong("stands without a mailbox", "write mailbox = \"NAME\"");
    }
    for item in entry.items().unwrap_or_default() {
        let Some(address) = item.parsed::<Address>() else { continue };
        if let Some(home) = mailbox.and_then(|name| around.mailboxes.get(name)) {
            let belongs = home.own_addresses().any(|own| *own == address || *own == address.without_tag());
            if !belongs {
                let right = format!("add it to the aliases of [mailboxes.{}], or use a plus address of {}", home.name, home.address);
                item.wrong(format_args!("holds {address}, which is no address of the mailbox \"{}\"", home.name), right);
            }
        }
        if let Some(owner) = around.owned.borrow_mut().insert(address.clone(), name.to_owned()) {
            item.wrong(format_args!("holds {address}, which the agent \"{owner}\" owns"), "let one agent own it");
        }
        found.push(address);
    }
    found
}

fn prompt(root: &Section<'_>) -> Option<String> {
    let (text, file) = (root.get("prompt"), root.get("prompt_file"));
    match (text, file) {
        (Some(text), None) => text.text(),
        (None, Some(file)) => {
            let text = file.file_text(LONGEST_TEXT)?;
            if text.trim().is_empty() {
                file.wrong("names an empty file", "write the agent's prompt there");
            }
            Some(text)
        }
        (Some(_), Some(file)) => {
            file.wrong("stands beside prompt", "keep one of the two");
            None
        }
        (None, None) => {
            root.problem("the file has neither prompt nor prompt_file; write prompt = \"\"\"…\"\"\"");
            None
        }
    }
}

fn display_name(entry: &Entry<'_>) -> Option<String> {
    let name = entry.text()?;
    if name.contains(char::is_control) || name.chars().count() > 100 {
        entry.wrong("is no name for a From line", "write one line of at most 100 characters");
        return None;
    }
    Some(name)
}

fn audience(entry: &Entry<'_>) -> Option<Audience> {
    if !entry.is_list() {
        if !entry.is_string() {
            entry.wrong("is no audience", "write \"public\", \"verified\" or a list such as [\"alice@example.com\", \"@shop.example\"]");
            return None;
        }
        return match entry.string()? {
            "public" => Some(Audience::Public),
            "verified" => Some(Audience::Verified),
            other => {
                entry.wrong(
                    format_args!("is {}", quoted(other)),
                    "write \"public\", \"verified\" or a list such as [\"alice@example.com\", \"@shop.example\"]",
                );
                None
            }
        };
    }
    let listed = |item: Entry<'_>| {
        let text = item.string()?;
        let Some(domain) = text.strip_prefix('@') else { return item.parsed().map(AudienceEntry::Address) };
        // A domain is what may stand after the @ of an address.
        match format!("x@{domain}").parse::<Address>() {
            Ok(address) => Some(AudienceEntry::Domain(address.domain().to_owned())),
            Err(_) => {
                item.wrong(format_args!("holds {}", quoted(text)), "write @DOMAIN or NAME@DOMAIN");
                None
            }
        }
    };
    Some(Audience::Listed(entry.items()?.into_iter().filter_map(listed).collect()))
}

fn tool_grants(section: Section<'_>, around: &Surroundings<'_>) -> ToolGrants {
    let mut seen = BTreeSet::new();
    let mut granted = |key| {
        let items = section.get(key).and_then(|entry| entry.items()).unwrap_or_default();
        let known = items.into_iter().filter_map(|item| grant(&item, around.names).map(|name| (item, name)));
        let fresh = known.filter(|(item, name)| {
            let fresh = seen.insert(name.clone());
            if !fresh {
                item.wrong(format_args!("grants {name} twice"), "grant it once");
            }
            fresh
        });
        fresh.map(|(_, name)| name).collect::<Vec<String>>()
    };
    let grants = ToolGrants { eager: granted("eager"), deferred: granted("deferred") };
    if let Some(entry) = section.get("deferred").filter(|_| !grants.deferred.is_empty()) {
        unacted::warn(&entry, "tools.deferred", "`deferred`");
    }
    section.finish();
    grants
}

/// One granted name: an operator's tool, a built-in one, or one of a server, `server__tool` or `server__*`.
fn grant(item: &Entry<'_>, names: &Names) -> Option<String> {
    let name = item.string()?;
    if names.tools.may_hold(name) || BUILT_IN_TOOLS.contains(&name) {
        return Some(name.to_owned());
    }
    if LATER_TOOLS.contains(&name) {
        unacted::warn(item, "built-in tool", &format!("the tool {name}"));
        return Some(name.to_owned());
    }
    if let Some((server, _)) = name.split_once("__")
        && names.servers.may_hold(server)
    {
        return Some(name.to_owned());
    }
    let known = names.tools.iter().chain(BUILT_IN_TOOLS.iter().copied()).chain(LATER_TOOLS.iter().copied());
    let right = match nearest(name, known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "add [tools.NAME] to dutiful.toml, or name a built-in tool".to_owned(),
    };
    item.wrong(format_args!("grants {}, which is no tool", quoted(name)), right);
    None
}

/// Security S12: open to the public, and able to act for whoever writes.
fn rule_of_two(entry: &Entry<'_>, tools: &ToolGrants, around: &Surroundings<'_>) {
    let acts = |name: &&String| match around.tools.get(*name) {
        Some(tool) => tool.effect == Effect::Effectful && !tool.approval,
        None => *name == "send_email",
    };
    let acting: Vec<&str> = tools.eager.iter().chain(&tools.deferred).filter(acts).map(String::as_str).collect();
    if !acting.is_empty() {
        entry.warning(format!(
            "anybody may make this agent act through {}: its audience is public and its identity \"thread\"; write identity = \"verified\", or approval = true for the tool, or narrow the audience",
            acting.join(", ")
        ));
    }
}

/// Both chains; the documents' texts are added to `texts`.
fn chains(root: &Section<'_>, texts: &mut String) -> (Vec<String>, Vec<String>) {
    let usual = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let defaults = (usual(&["persona", "clock", "customer", "history"]), usual(&["persona", "clock", "duty"]));
    let Some(section) = root.section("context") else { return defaults };
    let mut chain = |key| {
        let items = section.get(key)?.items()?;
        Some(items.iter().filter_map(|item| resolver(item, texts)).collect())
    };
    let chains = (chain("reactive").unwrap_or(defaults.0), chain("proactive").unwrap_or(defaults.1));
    section.finish();
    chains
}

fn resolver(item: &Entry<'_>, texts: &mut String) -> Option<String> {
    let name = item.string()?;
    if let Some(path) = name.strip_prefix("document:") {
        let text = document(item, path)?;
        texts.push('\n');
        texts.push_str(&text);
    } else if let Some(path) = name.strip_prefix("retrieve:") {
        if path.is_empty() || !item.home().join(path).is_dir() {
            item.wrong(format_args!("names {}, which is no folder", quoted(path)), "write the path of a folder, relative to home");
        }
        unacted::warn(item, "resolver", "the resolver retrieve");
    } else if LATER_RESOLVERS.contains(&name) {
        unacted::warn(item, "resolver", &format!("the resolver {name}"));
    } else if !RESOLVERS.contains(&name) {
        let right = match nearest(name, RESOLVERS.iter().chain(LATER_RESOLVERS).copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("known are {}, document:PATH", RESOLVERS.join(", ")),
        };
        item.wrong(format_args!("names {}, which is no resolver", quoted(name)), right);
        return None;
    }
    Some(name.to_owned())
}

fn document(item: &Entry<'_>, path: &str) -> Option<String> {
    let at = item.home().join(path);
    let size = std::fs::metadata(&at).ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
    let text = size.filter(|&size| size <= LONGEST_TEXT).and_then(|_| std::fs::read_to_string(&at).ok());
    if text.is_none() {
        item.wrong(
            format_args!("names the document {}, which cannot be read", quoted(path)),
            "write the path of a UTF-8 text of at most 4 MB, relative to home",
        );
    }
    text
}

fn budget(section: Option<Section<'_>>) -> Budget {
    let mut budget = Budget { run_tokens: None, day_cost: None, todo_mode: TodoMode::Auto };
    let Some(section) = section else { return budget };
    budget.run_tokens = section.integer("run_tokens", 1..=u32::MAX).map(u64::from);
    budget.day_cost = section.get("day_cost").and_then(|entry| entry.money());
    if let Some(entry) = section.get("todo_mode") {
        let modes = [("auto", TodoMode::Auto), ("always", TodoMode::Always), ("never", TodoMode::Never)];
        budget.todo_mode = entry.word(&modes).unwrap_or(TodoMode::Auto);
        if budget.todo_mode == TodoMode::Always {
            unacted::warn(&entry, "budget.todo_mode", "`todo_mode`");
        }
    }
    section.finish();
    budget
}

fn outgoing(section: Option<Section<'_>>, names: &Names, usual_links: BTreeSet<String>) -> OutgoingPolicy {
    let mut policy = OutgoingPolicy {
        recipients: BTreeSet::from([Fence::Thread]),
        hold: Hold::Never,
        delay: Duration::ZERO,
        links: usual_links,
        reply_all: false,
    };
    let Some(section) = section else { return policy };
    if let Some(items) = section.get("recipients").and_then(|entry| entry.items()) {
        policy.recipients = items.iter().filter_map(|item| fence(item, names)).collect();
    }
    let holds = [("never", Hold::Never), ("always", Hold::Always), ("first_contact", Hold::FirstContact)];
    policy.hold = section.word("hold", &holds).unwrap_or(Hold::Never);
    policy.delay = section.duration("delay", Duration::ZERO);
    policy.reply_all = section.boolean("reply_all", false);
    if let Some(items) = section.get("links").and_then(|entry| entry.items()) {
        policy.links = items.iter().filter_map(host).collect();
    }
    if let Some(entry) = section.get("hours") {
        entry.file(LONGEST_TEXT);
        unacted::warn(&entry, "outgoing.hours", "`hours`");
    }
    section.finish();
    policy
}

fn fence(item: &Entry<'_>, names: &Names) -> Option<Fence> {
    match item.string()? {
        "thread" => Some(Fence::Thread),
        "operator" => Some(Fence::Operator),
        text => match text.strip_prefix("contact:") {
            Some(contact) => names.contacts.check(item, contact).then(|| Fence::Contact(contact.to_owned())),
            None => {
                item.wrong(format_args!("holds {}", quoted(text)), "write \"thread\", \"operator\" or \"contact:NAME\"");
                None
            }
        },
    }
}

fn host(item: &Entry<'_>) -> Option<String> {
    let text = item.string()?;
    if !is_host(text) {
        item.wrong(format_args!("holds {}", quoted(text)), "write the host alone, such as \"shop.example\"");
        return None;
    }
    Some(text.to_ascii_lowercase())
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.contains('.') && text.split('.').all(label)
}

/// The mailbox's domain, and the hosts that the operator's own texts link to.
fn default_links(texts: &str, mailbox: Option<&Mailbox>) -> BTreeSet<String> {
    let mut links: BTreeSet<String> = mailbox.into_iter().map(|mailbox| mailbox.address.domain().to_owned()).collect();
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-');
    let after_scheme = ["https://", "http://"].into_iter().flat_map(|scheme| texts.split(scheme).skip(1));
    let bare = texts.split(ends).filter(|word| word.starts_with("www."));
    let hosts = after_scheme.filter_map(|rest| rest.split(ends).next()).chain(bare);
    links.extend(hosts.map(|host| host.trim_end_matches('.').to_ascii_lowercase()).filter(|host| is_host(host)));
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_operators_own_texts_may_be_live() {
        let texts =
            "See https://shop.example/menu, http://Maps.Example.org:8080/x and www.ice.example. Not evil@x.example, https://, menu.md";
        let links: Vec<String> = default_links(texts, None).into_iter().collect();
        assert_eq!(links, ["maps.example.org", "shop.example", "www.ice.example"]);
    }
}
