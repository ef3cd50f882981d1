//! The rule file: what a rule asks of a request, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::template::{Facts, Template};
use crate::chat::{Message, StopReason};
use crate::inference::{Request, ToolChoice};

/// The rules in their order.
#[derive(Debug)]
pub(super) struct Rules {
    rules: Vec<Rule>,
}

/// What a rule answers, filled in.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<(String, Value)>,
    pub(super) finish: Option<StopReason>,
    pub(super) delay: Duration,
    pub(super) error: Option<u16>,
}

/// What rules look at in a request.
#[derive(Debug)]
pub(super) struct Scene {
    system: String,
    /// The newest user message, wrappers kept.
    last: String,
    /// The same without the lines that wrap untrusted text.
    last_inside: String,
    /// The newest results, when nothing came after them; wrapper lines removed.
    results: Vec<String>,
    last_role: Role,
    turn: usize,
    tools: BTreeSet<String>,
    closing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Tool,
}

#[derive(Debug)]
struct Rule {
    when: When,
    text: Template,
    reasoning: Template,
    calls: Vec<(String, Arguments)>,
    finish: Option<StopReason>,
    delay: Duration,
    error: Option<u16>,
}

#[derive(Debug)]
struct When {
    system: Vec<Regex>,
    last: Vec<Regex>,
    tool_result: Vec<Regex>,
    last_role: Option<Role>,
    turn: Option<usize>,
    tools: Vec<String>,
    closing: Option<bool>,
}

/// Arguments with templates in the place of texts.
#[derive(Debug)]
enum Arguments {
    Text(Template),
    List(Vec<Arguments>),
    Table(Vec<(String, Arguments)>),
    Fixed(Value),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default, rename = "match")]
    when: WhenText,
    #[serde(default)]
    text: String,
    #[serde(default)]
    reasoning: String,
    #[serde(default)]
    calls: Vec<CallText>,
    finish: Option<StopReason>,
    delay: Option<String>,
    error: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WhenText {
    system: Patterns,
    last: Patterns,
    tool_result: Patterns,
    last_role: Option<Role>,
    turn: Option<usize>,
    tools: Vec<String>,
    closing: Option<bool>,
}

/// One pattern, or several that must all be found.
#[derive(Deserialize)]
#[serde(untagged)]
enum Patterns {
    One(String),
    All(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl Default for Patterns {
    fn default() -> Patterns {
        Patterns::All(Vec::new())
    }
}

impl Patterns {
    fn compile(self) -> anyhow::Result<Vec<Regex>> {
        let texts = match self {
            Patterns::One(text) => vec![text],
            Patterns::All(texts) => texts,
        };
        texts
            .iter()
            .map(|text| {
                RegexBuilder::new(text).case_insensitive(true).multi_line(true).build().with_context(|| format!("pattern {text:?}"))
            })
            .collect()
    }
}

impl Rules {
    /// Parses a rule file.
    pub(super) fn parse(text: &str) -> anyhow::Result<Rules> {
        let file: RuleFile = toml::from_str(text)?;
        let rules = file
            .rule
            .into_iter()
            .enumerate()
            .map(|(index, rule)| Rule::check(rule).with_context(|| format!("rule {}", index + 1)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Rules { rules })
    }

    /// The answer of the first rule that matches. Always the same for the same request.
    pub(super) fn answer(&self, scene: &Scene) -> Answer {
        let matched = self.rules.iter().find_map(|rule| rule.when.matches(scene).map(|captures| (rule, captures)));
        let Some((rule, captures)) = matched else {
            return Answer { text: "No rule of the script matches this request.".into(), ..Answer::default() };
        };
        rule.answer(&Facts { last: &scene.last_inside, results: &scene.results, captures })
    }
}

impl Rule {
    fn check(rule: RuleText) -> anyhow::Result<Rule> {
        anyhow::ensure!(
            !rule.text.is_empty() || !rule.calls.is_empty() || rule.error.is_some() || rule.finish.is_some(),
            "answers nothing: give it text, calls, finish or error"
        );
        let when = When {
            system: rule.when.system.compile()?,
            last: rule.when.last.compile()?,
            tool_result: rule.when.tool_result.compile()?,
            last_role: rule.when.last_role,
            turn: rule.when.turn,
            tools: rule.when.tools,
            closing: rule.when.closing,
        };
        let captures = when.capture_names();
        let calls = rule
            .calls
            .into_iter()
            .map(|call| Ok((call.name, Arguments::parse(&Value::Object(call.arguments), &captures)?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Rule {
            text: Template::parse(&rule.text, &captures)?,
            reasoning: Template::parse(&rule.reasoning, &captures)?,
            calls,
            finish: rule.finish,
            delay: rule.delay.as_deref().map(duration).transpose()?.unwrap_or_default(),
            error: rule.error,
            when,
        })
    }

    fn answer(&self, facts: &Facts<'_>) -> Answer {
        Answer {
            text: self.text.render(facts),
            reasoning: self.reasoning.render(facts),
            calls: self.calls.iter().map(|(name, arguments)| (name.clone(), arguments.fill(facts))).collect(),
            finish: self.finish.clone(),
            delay: self.delay,
            error: self.error,
        }
    }
}

impl When {
    fn patterns(&self) -> impl Iterator<Item = &Regex> {
        self.system.iter().chain(&self.last).chain(&self.tool_result)
    }

    fn capture_names(&self) -> BTreeSet<String> {
        self.patterns().flat_map(Regex::capture_names).flatten().map(str::to_owned).collect()
    }

    /// What was captured, when all holds.
    fn matches(&self, scene: &Scene) -> Option<BTreeMap<String, String>> {
        let holds = self.last_role.is_none_or(|role| role == scene.last_role)
            && self.turn.is_none_or(|turn| turn == scene.turn)
            && self.closing.is_none_or(|closing| closing == scene.closing)
            && self.tools.iter().all(|tool| scene.tools.contains(tool));
        if !holds || (scene.results.is_empty() && !self.tool_result.is_empty()) {
            return None;
        }
        let results = scene.results.join("\n");
        let mut found = BTreeMap::new();
        for (patterns, text) in [(&self.system, &scene.system), (&self.last, &scene.last), (&self.tool_result, &results)] {
            for pattern in patterns {
                let captures = pattern.captures(text)?;
                for name in pattern.capture_names().flatten() {
                    if let Some(value) = captures.name(name) {
                        found.insert(name.to_owned(), value.as_str().to_owned());
                    }
                }
            }
        }
        Some(found)
    }
}

impl Arguments {
    fn parse(value: &Value, captures: &BTreeSet<String>) -> anyhow::Result<Arguments> {
        Ok(match value {
            Value::String(text) => Arguments::Text(Template::parse(text, captures)?),
            Value::Array(items) => {
                Arguments::List(items.iter().map(|item| Arguments::parse(item, captures)).collect::<anyhow::Result<_>>()?)
            }
            Value::Object(fields) => {
                let parse = |(key, value): (&String, &Value)| Ok((key.clone(), Arguments::parse(value, captures)?));
                Arguments::Table(fields.iter().map(parse).collect::<anyhow::Result<_>>()?)
            }
            fixed => Arguments::Fixed(fixed.clone()),
        })
    }

    fn fill(&self, facts: &Facts<'_>) -> Value {
        match self {
            Arguments::Text(template) => template.value(facts),
            Arguments::List(items) => items.iter().map(|item| item.fill(facts)).collect(),
            Arguments::Table(fields) => fields.iter().map(|(key, value)| (key.clone(), value.fill(facts))).collect(),
            Arguments::Fixed(value) => value.clone(),
        }
    }
}

impl Scene {
    /// What rules look at in this request.
    pub(super) fn of(request: &Request) -> Scene {
        let messages = &request.messages;
        let last_user = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
        let since = messages.get(last_user.map_or(0, |at| at + 1)..).unwrap_or_default();
        let last = last_user.and_then(|at| messages.get(at)).map(Message::text).unwrap_or_default();
        let results = match messages.last() {
            Some(Message::Results { results }) => results.iter().map(|result| inside(&result.text)).collect(),
            _ => Vec::new(),
        };
        let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
        Scene {
            system: request.system.clone(),
            last_inside: inside(&last),
            last,
            last_role: if matches!(messages.last(), Some(Message::Results { .. })) { Role::Tool } else { Role::User },
            results,
            turn: since.iter().filter(|message| matches!(message, Message::Assistant { .. })).count(),
            tools: request.tools.iter().filter_map(name).collect(),
            closing: request.tool_choice == ToolChoice::None,
        }
    }
}

/// A text without the lines that wrap what is untrusted.
fn inside(text: &str) -> String {
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("<untrusted ") && !line.starts_with("</untrusted ")).collect();
    kept.join("\n").trim().to_owned()
}

/// `200ms`, `2s`, `1m`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let number: u64 = digits.parse().with_context(|| format!("delay {text:?}; write 200ms, 2s or 1m"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => anyhow::bail!("delay {text:?}; write 200ms, 2s or 1m"),
    }
}
