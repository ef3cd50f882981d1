//! A journal that ends anywhere: the same fold, the same loop, the same reply.

use std::sync::Mutex;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::tools::{Invocation, ToolError, ToolOutput, ToolSpec};

/// Appends the effect key to the file named like the tool.
fn keyed(setting: &mut Setting, name: &str, effect: Effect) {
    tool(
        setting,
        name,
        effect,
        &format!("printf '%s\\n' \"$DUTIFUL_CONTEXT\" | sed 's/.*effect_key\":\"\\([0-9a-f]*\\).*/\\1/' >> {name}; echo ok"),
    );
}

fn all_classes(setting: &mut Setting) {
    keyed(setting, "look", Effect::Pure);
    keyed(setting, "put", Effect::Idempotent);
    keyed(setting, "mark", Effect::Effectful);
}

#[tokio::test]
async fn harness_j3_an_intent_without_an_end_is_repeated_only_where_that_is_safe() {
    let said = vec![calls(&["look", "put", "mark"]), text("Done.")];
    let first = World::new(said.clone(), all_classes).await;
    first.finish().await;
    let keys = |world: &World, name: &str| world.lines(name);
    assert_eq!((keys(&first, "look").len(), keys(&first, "put").len(), keys(&first, "mark").len()), (1, 1, 1));
    // The daemon died after every intent was written and before any end was.
    let mut steps = first.steps().await;
    steps.retain(|step| {
        matches!(step, Step::Opened(_) | Step::ModelRequested { .. } | Step::ModelResponded { .. } | Step::ToolIntended { .. })
    });
    let intents = steps.iter().rposition(|step| matches!(step, Step::ToolIntended { .. })).unwrap();
    steps.truncate(intents + 1);
    let second = World::new(said.split_off_first(), all_classes).await;
    let transcript = second.open_with(steps).await;
    let ended = second.harness.resume(&second.job, transcript, &Stop::default()).await;
    assert_eq!(second.close(ended).await.body, "Done.");
    assert_eq!(keys(&second, "put"), keys(&first, "put"), "the same effect key");
    assert_eq!(keys(&second, "look").len(), 1);
    assert!(keys(&second, "mark").is_empty(), "at most once");
    let unknown: Vec<String> =
        second.results().await.into_iter().filter(|(status, _)| *status == ToolStatus::Unknown).map(|(_, text)| text).collect();
    assert_eq!(unknown, ["outcome unknown: the daemon restarted while this was running; check before repeating"]);
}

/// What a model that goes on from a journal still says.
trait SplitOffFirst {
    fn split_off_first(self) -> Self;
}

impl SplitOffFirst for Vec<Said> {
    fn split_off_first(mut self) -> Self {
        self.remove(0);
        self
    }
}

#[tokio::test]
async fn harness_j8_an_answer_in_the_journal_is_used_and_not_asked_for_again() {
    let first = World::new(vec![text("On Monday.")], same).await;
    let finish = first.finish().await;
    let answered: Vec<Step> = first.steps().await.into_iter().take(3).collect();
    assert!(matches!(answered.last(), Some(Step::ModelResponded { .. })));
    let second = World::new(vec![text("never asked")], same).await;
    let transcript = second.open_with(answered).await;
    let ended = second.harness.resume(&second.job, transcript, &Stop::default()).await;
    let again = second.close(ended).await;
    assert_eq!((again.body, again.close), (finish.body, finish.close));
    assert!(second.model.requests().is_empty());
}

/// A tool that counts its calls by effect key.
#[derive(Debug)]
struct Counted {
    spec: ToolSpec,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Tool for Counted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, _: Value, invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.keys.lock().unwrap().push(invocation.effect_key.to_owned());
        let name = self.spec.name.as_str();
        let outcome =
            if name == "fail" { Err(ToolError::Failed("no".to_owned())) } else { Ok(ToolOutput::Text(format!("{name} is done"))) };
        async { outcome }.boxed()
    }
}

const TOOLS: [(&str, Effect); 4] =
    [("look", Effect::Pure), ("put", Effect::Idempotent), ("mark", Effect::Effectful), ("fail", Effect::Pure)];

/// A world whose script calls these tools round by round and then answers.
async fn scripted(rounds: &[Vec<&'static str>], keys: &Arc<Mutex<Vec<String>>>) -> World {
    let mut rules = String::new();
    for (turn, names) in rounds.iter().enumerate() {
        let calls: Vec<String> = names.iter().map(|name| format!("{{ name = '{name}' }}")).collect();
        rules.push_str(&format!("[[rule]]\nmatch = {{ turn = {turn}, closing = false }}\ncalls = [{}]\n", calls.join(", ")));
    }
    rules.push_str("[[rule]]\ntext = 'All is done.'\n");
    World::new(vec![Said::Silence], |setting| {
        let path = setting.settings.home.join("rules.toml");
        std::fs::write(&path, rules).unwrap();
        let model = setting.settings.models.get_mut("kimi").unwrap();
        (model.wire, model.rules) = (Wire::Script, Some(path));
        setting.agent.max_tool_turns = 3;
        for (name, effect) in TOOLS {
            let spec = ToolSpec {
                name: name.into(),
                description: "Counts".to_owned(),
                input: json!({ "type": "object" }),
                effect,
                timeout: Duration::from_secs(5),
                untainted: false,
                approval: false,
                result_bytes: None,
            };
            setting.tools.push(Arc::new(Counted { spec, keys: Arc::clone(keys) }));
        }
    })
    .await
}

/// From every prefix of the journal the run comes to the same reply; no effect is done twice under one journal.
async fn every_prefix_leads_to_the_same_reply(rounds: &[Vec<&'static str>]) {
    let keys = Arc::default();
    let mut world = scripted(rounds, &keys).await;
    let finish = world.finish().await;
    let steps = world.steps().await;
    for end in 1..=steps.len() {
        let prefix = steps[..end].to_vec();
        keys.lock().unwrap().clear();
        world.job.context.run = RunId(format!("r{end}"));
        let transcript = world.open_with(prefix.clone()).await;
        let ended = world.harness.resume(&world.job, transcript, &Stop::default()).await;
        let again = finished(ended);
        assert_eq!((&again.body, again.close.outcome, again.close.rounds), (&finish.body, finish.close.outcome, finish.close.rounds));
        let mut journal = prefix;
        journal.extend(world.steps().await.split_off(end));
        let marks = |steps: &[Step]| steps.iter().filter(|step| is_mark(step)).count();
        assert_eq!(marks(&journal), marks(&steps), "each effect is intended once");
        let mut done = keys.lock().unwrap().clone();
        let count = done.len();
        done.sort();
        done.dedup();
        assert_eq!(done.len(), count, "nothing runs twice");
    }
}

fn is_mark(step: &Step) -> bool {
    matches!(step, Step::ToolIntended { call, .. } if call.name.as_str() == "mark")
}

#[test]
fn harness_j2_from_every_prefix_of_its_journal_a_run_comes_to_the_same_reply() {
    let names = prop::sample::select(vec!["look", "put", "mark", "fail", "nothing"]);
    let rounds = prop::collection::vec(prop::collection::vec(names, 1..4), 0..4);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&rounds, |rounds| {
            runtime.block_on(every_prefix_leads_to_the_same_reply(&rounds));
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn harness_d3_a_run_keeps_the_tools_and_the_prompt_that_it_began_with() {
    let first = World::new(vec![text("never asked")], |setting| keyed(setting, "look", Effect::Pure)).await;
    let second = World::new(vec![text("On Monday.")], all_classes).await;
    assert_ne!(first.job.tools.definitions(), second.job.tools.definitions());
    let transcript = second.open_with(first.opening()).await;
    let ended = second.harness.resume(&second.job, transcript, &Stop::default()).await;
    assert_eq!(second.close(ended).await.body, "On Monday.");
    let shown = second.model.requests()[0]["tools"].to_string();
    assert!(shown.contains("\"look\"") && !shown.contains("\"mark\""), "{shown}");
}

#[tokio::test]
async fn harness_j5_each_call_has_a_key_of_its_own() {
    let world =
        World::new(vec![calls(&["put", "put"]), calls(&["put"]), text("Done.")], |setting| keyed(setting, "put", Effect::Idempotent)).await;
    world.finish().await;
    let mut keys = world.lines("put");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| key.len() == 64));
}

#[tokio::test]
async fn harness_n10_the_key_of_the_model_is_nowhere_in_the_store() {
    let world = World::new(vec![Said::Error(401, "{\"error\":{\"message\":\"bad key sk-fake-1234567890\"}}")], same).await;
    assert!(matches!(world.run(&Stop::default()).await, Ended::Unavailable(_)));
    let mut bytes = Vec::new();
    for file in ["dutiful.db", "dutiful.db-wal"] {
        bytes.extend(std::fs::read(world.home().join(file)).unwrap_or_default());
    }
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("model_failed"), "the journal was looked at");
    assert!(!holds("sk-fake-1234567890"));
}
