//! A run for the tests of what runs use. The outbox is the gateway's; here stands one that only writes down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::config::{
    Agent, Audience, Budget, Contact, Fence, Hold, Limits, OnLimit, OutgoingPolicy, Retention, Settings, Telemetry, TodoMode, ToolGrants,
};
use crate::mail::{Draft, MessageId, Sealed};
use crate::run::{Door, Identity, LetterId, Outbox, OutboxError, OutgoingId, Party, Posted, RunContext, RunId, ThreadId};

/// Keeps each draft, as the gateway's outbox keeps each letter: once per effect key.
#[derive(Debug, Default)]
pub(crate) struct Drafts(pub(crate) Mutex<Vec<Draft>>);

impl Outbox for Drafts {
    fn seal(&self, _context: &RunContext, _draft: Draft) -> Result<Sealed, OutboxError> {
        Err(OutboxError::Malformed("these tests seal nothing".to_owned()))
    }

    fn post<'a>(&'a self, _context: &'a RunContext, draft: Draft) -> BoxFuture<'a, Result<Posted, OutboxError>> {
        let mut drafts = self.0.lock().unwrap();
        if draft.text.trim().is_empty() {
            return async { Err(OutboxError::Empty) }.boxed();
        }
        if !drafts.iter().any(|kept| kept.effect_key == draft.effect_key) {
            drafts.push(draft);
        }
        let message_id = MessageId::parse("<1@shop.example>").unwrap();
        async { Ok(Posted { id: OutgoingId(1), message_id, held: None }) }.boxed()
    }
}

pub(crate) fn settings(home: &Path) -> Settings {
    let long = Duration::from_secs(60);
    Settings {
        home: home.to_owned(),
        store: home.join("dutiful.db"),
        mailboxes: BTreeMap::new(),
        models: BTreeMap::new(),
        tools: BTreeMap::new(),
        contacts: BTreeMap::from([contact("supplier"), contact("rival")]),
        operator: "owner@shop.example".parse().unwrap(),
        customers: None,
        limits: Limits { run_time: long, queue_age: long, shutdown_grace: long, ..Limits::default() },
        telemetry: Telemetry { log: "info".to_owned(), log_dir: home.join("log") },
        retention: Retention { raw: long, transcripts: long, attachments: long, audit: long },
    }
}

fn contact(name: &str) -> (String, Contact) {
    (name.to_owned(), Contact { name: name.to_owned(), address: format!("orders@{name}.example").parse().unwrap() })
}

pub(crate) fn agent(identity: Identity, eager: &[&str]) -> Agent {
    Agent {
        name: "sundae".to_owned(),
        description: String::new(),
        mailbox: Some("shop".to_owned()),
        addresses: vec!["sundae@shop.example".parse().unwrap()],
        display_name: Some("Sundae".to_owned()),
        model: "script".to_owned(),
        max_tool_turns: 8,
        on_limit: OnLimit::ClosingCall,
        fallback_reply: String::new(),
        prompt: "You answer for the shop.".to_owned(),
        signature: None,
        audience: Audience::Public,
        identity,
        tools: ToolGrants { eager: eager.iter().map(|name| (*name).to_owned()).collect(), deferred: Vec::new() },
        reactive: Vec::new(),
        proactive: Vec::new(),
        budget: Budget { run_tokens: None, day_cost: None, todo_mode: TodoMode::Never },
        outgoing: OutgoingPolicy {
            recipients: BTreeSet::from([Fence::Thread, Fence::Operator, Fence::Contact("supplier".to_owned())]),
            hold: Hold::Never,
            delay: Duration::ZERO,
            links: BTreeSet::new(),
            reply_all: false,
        },
    }
}

/// A run for a letter of Alice, proven so far, of an agent that wants so much.
pub(crate) fn context(proven: Identity, wanted: Identity) -> RunContext {
    let record = serde_json::json!({ "name": "Alice", "tier": "gold" });
    RunContext {
        run: RunId("r1".to_owned()),
        door: Door::Reactive,
        agent: Arc::new(agent(wanted, &[])),
        settings: Arc::new(settings(Path::new("/nowhere"))),
        party: Arc::new(Party {
            address: Some("alice@example.com".parse().unwrap()),
            name: None,
            identity: proven,
            participants: BTreeSet::new(),
            reply_to: None,
            customer: record.as_object().cloned(),
        }),
        thread: Some(ThreadId(7)),
        letter: Some(LetterId(9)),
        own_address: Some("sundae+cakes@shop.example".parse().unwrap()),
        outbox: Arc::new(Drafts::default()),
    }
}
