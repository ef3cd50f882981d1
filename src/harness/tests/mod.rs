//! The loop through its front: a real store, real programs as tools, a scripted model at the wire.

mod bounds;
mod calls;
mod model_server;
mod recovery;
mod stops;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use self::model_server::{ModelServer, Said};
use super::*;
use crate::chat::{Message, Source};
use crate::config::{Agent, CommandTool, Effect, ModelSettings, OperatorTool, Price, Quirks, Secret, Settings, ToolKind, Wire};
use crate::context::Assembled;
use crate::events::Events;
use crate::inference::Models;
use crate::run::{Door, Identity, Outcome, RunId, testing};
use crate::store::{NewRun, OpenOptions, Purpose, Step, Store, ToolStatus};
use crate::tools::{Catalog, Tool};

/// What a test says of its agent, its settings and its tools.
pub(super) struct Setting {
    pub(super) agent: Agent,
    pub(super) settings: Settings,
    /// Beside the operator's own.
    pub(super) tools: Vec<Arc<dyn Tool>>,
}

/// One run over a store and a model of its own.
pub(super) struct World {
    home: tempfile::TempDir,
    pub(super) store: Store,
    pub(super) events: Events,
    pub(super) harness: Harness,
    pub(super) job: Job,
    pub(super) model: ModelServer,
}

impl World {
    /// A run whose model gives these answers, one after the other, the last one forever.
    pub(super) async fn new(said: Vec<Said>, change: impl FnOnce(&mut Setting)) -> World {
        let home = tempfile::tempdir().unwrap();
        let model = ModelServer::start(said).await;
        let mut setting =
            Setting { agent: testing::agent(Identity::Verified, &[]), settings: testing::settings(home.path()), tools: Vec::new() };
        setting.agent.model = "kimi".to_owned();
        setting.agent.fallback_reply = "A colleague will write to you.".to_owned();
        setting.settings.models.insert("kimi".to_owned(), model_settings(&model.base));
        change(&mut setting);
        let Setting { mut agent, settings, tools } = setting;
        agent.tools.eager.extend(settings.tools.keys().cloned());
        let store = Store::open(&settings.store, OpenOptions::default()).unwrap();
        let events = Events::default();
        let catalog = Catalog::build(&settings).unwrap();
        let models = Models::build(&settings, &crate::tls::client_config(None).unwrap()).unwrap();
        let mut context = testing::context(Identity::Verified, Identity::Verified);
        context.run = RunId::mint(crate::clock::now(), 7);
        (context.thread, context.letter) = (None, None);
        let toolset = tools.into_iter().fold(catalog.toolset(&agent), crate::tools::Toolset::and);
        let model_of_agent = models.get(&agent.model).unwrap();
        context.agent = Arc::new(agent);
        context.settings = Arc::new(settings);
        let harness = Harness::new(store.clone(), events.clone());
        World { home, store, events, harness, job: Job { context, tools: toolset, model: model_of_agent }, model }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Commits the opening, as a front door does.
    pub(super) async fn open(&self) -> Transcript {
        self.open_with(self.opening()).await
    }

    pub(super) fn opening(&self) -> Vec<Step> {
        let messages = vec![Message::user("Where is my order?", Source::Customer)];
        let assembled = Assembled { system: "You answer for the shop.".to_owned(), messages, contributions: Vec::new() };
        Harness::opening(&self.job, assembled, "hash".to_owned(), "nonce".to_owned())
    }

    /// Begins the run with these steps in its journal.
    pub(super) async fn open_with(&self, steps: Vec<Step>) -> Transcript {
        let run = NewRun {
            id: self.job.context.run.clone(),
            door: Door::Reactive,
            agent: "sundae".to_owned(),
            thread: None,
            letter: None,
            model: "kimi".to_owned(),
            started_at: crate::clock::now(),
        };
        assert!(self.store.open_run(run, steps.clone()).await.unwrap());
        Transcript::fold(steps).unwrap()
    }

    pub(super) async fn run(&self, stop: &Stop) -> Ended {
        let transcript = self.open().await;
        self.harness.run(&self.job, transcript, stop).await
    }

    /// Runs to its reply, and closes the run as a front door does.
    pub(super) async fn finish(&self) -> Finish {
        let ended = self.run(&Stop::default()).await;
        self.close(ended).await
    }

    pub(super) async fn close(&self, ended: Ended) -> Finish {
        let finish = finished(ended);
        let (steps, close) = (finish.steps.clone(), finish.close.clone());
        self.store.close_run(&self.job.context.run, steps, close, Vec::new(), None).await.unwrap();
        finish
    }

    pub(super) async fn steps(&self) -> Vec<Step> {
        self.store.replay(&self.job.context.run).await.unwrap()
    }

    /// Status and text of each finished call, in the order of their ends.
    pub(super) async fn results(&self) -> Vec<(ToolStatus, String)> {
        let results = self.steps().await.into_iter().filter_map(|step| match step {
            Step::ToolFinished { result, status, .. } => Some((status, result.text)),
            _ => None,
        });
        results.collect()
    }

    /// The lines that tools wrote into a file of the home.
    pub(super) fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.home().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

pub(super) fn finished(ended: Ended) -> Finish {
    match ended {
        Ended::Finished(finish) => *finish,
        other => panic!("{other:?}"),
    }
}

pub(super) fn same(setting: &mut Setting) {
    assert!(setting.tools.is_empty());
}

/// An operator's program: `sh -c SCRIPT`, with one optional number as its arguments.
pub(super) fn tool(setting: &mut Setting, name: &str, effect: Effect, script: &str) {
    let command = CommandTool { command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()], env: BTreeMap::new() };
    let tool = OperatorTool {
        name: name.to_owned(),
        description: format!("Does {name}"),
        input: json!({ "type": "object", "properties": { "n": { "type": "integer" } } }),
        effect,
        timeout: Duration::from_secs(10),
        approval: false,
        untainted: false,
        kind: ToolKind::Command(command),
    };
    setting.settings.tools.insert(name.to_owned(), tool);
}

fn model_settings(base: &str) -> ModelSettings {
    ModelSettings {
        name: "kimi".to_owned(),
        wire: Wire::Openai,
        base_url: base.parse().ok(),
        model: "k".to_owned(),
        api_key: Some(Secret::new("sk-fake-1234567890".to_owned())),
        context_window: 1_000_000,
        max_output: 1000,
        price: Price { input: 1_000_000, output: 2_000_000, cache_read: 0, cache_write: 0 },
        fallback: None,
        temperature: None,
        reasoning: None,
        headers: BTreeMap::new(),
        quirks: Quirks {
            max_completion_tokens: false,
            developer_role: false,
            tool_choice_none: true,
            stream_usage: true,
            empty_content: false,
            replay_reasoning: false,
            finish_reason_optional: false,
            fragmented_names: false,
            think_tags: false,
            fixed_sampling: false,
            kimi_call_ids: false,
        },
        rules: None,
    }
}

pub(super) fn text(text: &str) -> Said {
    Said::Text(text.to_owned(), "stop")
}

/// Calls without arguments.
pub(super) fn calls(names: &[&str]) -> Said {
    Said::Calls(names.iter().map(|name| ((*name).to_owned(), "{}".to_owned())).collect(), "tool_calls")
}

/// The texts of all tool messages of a request.
pub(super) fn tool_messages(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    let tools = messages.iter().filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// The last message of a request: role and text.
pub(super) fn last_message(request: &Value) -> (String, String) {
    let last = request["messages"].as_array().unwrap().last().unwrap();
    (last["role"].as_str().unwrap().to_owned(), last["content"].as_str().unwrap_or_default().to_owned())
}
