//! `[models.NAME]`, and the profiles of vendors' servers (harness W7).

use super::server::web_address;
use super::{Entry, Section};
use crate::config::names::Names;
use crate::config::{ModelSettings, Price, Quirks, Wire};

/// Tokens; no model has more.
const MOST_TOKENS: u32 = 100_000_000;

/// Reads one model; none when something required is wrong, which is recorded then.
pub(super) fn model(name: &str, entry: &Entry<'_>, names: &Names) -> Option<ModelSettings> {
    let section = entry.section()?;
    let wires = [("openai", Wire::Openai), ("anthropic", Wire::Anthropic), ("script", Wire::Script)];
    let wire = section.required("wire", "wire = \"openai\", \"anthropic\" or \"script\"").and_then(|entry| entry.word(&wires));
    let base = section.get("base_url");
    let base_url = base.as_ref().and_then(web_address);
    let model = section.text("model");
    let rules = section.get("rules");
    match wire {
        Some(Wire::Script) => {
            if rules.is_none() {
                section.problem(format!("{} has no `rules`; write rules = \"FILE\"", section.title()));
            }
            if let Some(entry) = &base {
                entry.wrong("stands in a model of the script wire", "take it out");
            }
        }
        Some(_) => {
            if base.is_none() {
                section.problem(format!("{} has no `base_url`; write base_url = \"https://HOST/PATH\"", section.title()));
            }
            if section.get("model").is_none() {
                section.problem(format!("{} has no `model`; write the vendor's id of it", section.title()));
            }
            if let Some(entry) = &rules {
                entry.wrong("is only for the script wire", "take it out, or write wire = \"script\"");
            }
        }
        None => {}
    }
    let model = model.unwrap_or_else(|| "script".into());
    let context_window = section.integer("context_window", 1..=MOST_TOKENS).unwrap_or(131_072);
    let max_output = section.get("max_output");
    let output = max_output.as_ref().and_then(|entry| entry.integer(1..=MOST_TOKENS));
    if let (Some(entry), Some(output)) = (&max_output, output)
        && output >= context_window
    {
        entry.wrong(
            format_args!("leaves no room in the context window of {context_window}"),
            "write fewer tokens, or the model's own context_window",
        );
    }
    let found = ModelSettings {
        name: name.to_owned(),
        wire: wire.unwrap_or(Wire::Script),
        base_url,
        api_key: section.get("api_key").and_then(|entry| entry.secret()),
        context_window,
        max_output: output.unwrap_or_else(|| 16_384.min(context_window / 2)),
        price: section.section("price").map(price).unwrap_or_default(),
        fallback: section.get("fallback").and_then(|entry| names.models.pointed(&entry)),
        temperature: section.get("temperature").and_then(|entry| entry.number(0.0..=2.0)),
        reasoning: section.get("reasoning").and_then(|entry| reasoning(&entry)),
        headers: section.get("headers").and_then(|entry| entry.secrets()).unwrap_or_default(),
        quirks: quirks(&section, &model),
        rules: rules.and_then(|entry| entry.file(16 << 20)).map(|(path, _)| path),
        model,
    };
    section.finish();
    wire.map(|_| found)
}

fn price(section: Section<'_>) -> Price {
    let amount = |key| section.get(key).and_then(|entry| entry.money());
    let input = amount("input").unwrap_or(0);
    let price = Price {
        input,
        output: amount("output").unwrap_or(0),
        cache_read: amount("cache_read").unwrap_or(input),
        cache_write: amount("cache_write").unwrap_or(input),
    };
    section.finish();
    price
}

fn reasoning(entry: &Entry<'_>) -> Option<String> {
    if entry.is_integer() {
        return entry.integer(1..=MOST_TOKENS).map(|tokens| tokens.to_string());
    }
    let text = entry.string()?;
    let tokens = text.parse::<u32>().is_ok_and(|tokens| (1..=MOST_TOKENS).contains(&tokens));
    if !tokens && !["off", "low", "medium", "high"].contains(&text) {
        entry.wrong(format_args!("is {}", super::quoted(text)), "write \"off\", \"low\", \"medium\", \"high\" or a number of tokens");
        return None;
    }
    Some(text.to_owned())
}

#[derive(Clone, Copy)]
enum Profile {
    Kimi,
    Glm,
    Deepseek,
    Plain,
}

/// The profile that a vendor's model id tells of.
fn profile_of(model: &str) -> Profile {
    let model = model.to_ascii_lowercase();
    if model.contains("kimi") || model.contains("moonshot") {
        Profile::Kimi
    } else if model.contains("glm") {
        Profile::Glm
    } else if model.contains("deepseek") {
        Profile::Deepseek
    } else {
        Profile::Plain
    }
}

impl Profile {
    fn quirks(self) -> Quirks {
        let plain = Quirks {
            max_completion_tokens: false,
            developer_role: false,
            tool_choice_none: true,
            stream_usage: true,
            empty_content: false,
            replay_reasoning: false,
            finish_reason_optional: false,
            fragmented_names: false,
            // Any open model may be served without a reasoning parser, and its thoughts are never mailed.
            think_tags: true,
            fixed_sampling: false,
            kimi_call_ids: false,
        };
        match self {
            Profile::Plain => plain,
            Profile::Kimi => Quirks { replay_reasoning: true, fixed_sampling: true, kimi_call_ids: true, ..plain },
            // Its tool_choice knows "auto" alone.
            Profile::Glm => Quirks { replay_reasoning: true, tool_choice_none: false, ..plain },
            Profile::Deepseek => Quirks { replay_reasoning: true, ..plain },
        }
    }
}

fn quirks(section: &Section<'_>, model: &str) -> Quirks {
    let words = [("kimi", Profile::Kimi), ("glm", Profile::Glm), ("deepseek", Profile::Deepseek), ("plain", Profile::Plain)];
    let base = section.word("profile", &words).unwrap_or_else(|| profile_of(model)).quirks();
    let Some(flags) = section.section("quirks") else { return base };
    let quirks = Quirks {
        max_completion_tokens: flags.boolean("max_completion_tokens", base.max_completion_tokens),
        developer_role: flags.boolean("developer_role", base.developer_role),
        tool_choice_none: flags.boolean("tool_choice_none", base.tool_choice_none),
        stream_usage: flags.boolean("stream_usage", base.stream_usage),
        empty_content: flags.boolean("empty_content", base.empty_content),
        replay_reasoning: flags.boolean("replay_reasoning", base.replay_reasoning),
        finish_reason_optional: flags.boolean("finish_reason_optional", base.finish_reason_optional),
        fragmented_names: flags.boolean("fragmented_names", base.fragmented_names),
        think_tags: flags.boolean("think_tags", base.think_tags),
        fixed_sampling: flags.boolean("fixed_sampling", base.fixed_sampling),
        kimi_call_ids: flags.boolean("kimi_call_ids", base.kimi_call_ids),
    };
    flags.finish();
    quirks
}
