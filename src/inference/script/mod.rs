//! The `script` wire: a model that is a TOML rule file. For the demo, for tests, for trying out an agent.
//!
//! The file is an ordered list of `[[rule]]`; the first whose `match` holds gives the answer.
//! `deploy/script-model.md` describes every key.
//!
//! ```toml
//! [[rule]]
//! match = { last = 'order (?<number>\d+)', turn = 0, tools = ["order_status"] }
//! calls = [{ name = "order_status", arguments = { order = "{{number}}" } }]
//!
//! [[rule]]
//! match = { tool_result = '"state"' }
//! text  = "Your order is {{tool_result.state}}."
//! ```

mod rules;
mod template;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::Map;

use self::rules::{Answer, Rules, Scene};
use super::call_ids::{CallIds, plain_id};
use super::http::from_response;
use super::{ModelError, ModelEvent, Provider, Request};
use crate::chat::{CallId, Origin, StopReason, ToolCall, ToolName};
use crate::config::ModelSettings;

/// Characters of one piece of streamed text.
const PIECE: usize = 40;

/// A model that answers by rules.
#[derive(Debug)]
pub(super) struct ScriptProvider {
    origin: Origin,
    rules: Rules,
}

impl ScriptProvider {
    /// Reads the rule file.
    pub(super) fn open(model: &ModelSettings) -> anyhow::Result<ScriptProvider> {
        let path = model.rules.as_ref().context("the script wire needs rules = \"FILE\"")?;
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let rules = Rules::parse(&text).with_context(|| path.display().to_string())?;
        let origin = Origin { provider: model.name.clone(), wire: model.wire.as_str().into(), model: model.model.clone() };
        Ok(ScriptProvider { origin, rules })
    }
}

impl Provider for ScriptProvider {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn stream<'a>(&'a self, request: &'a Request) -> BoxStream<'a, Result<ModelEvent, ModelError>> {
        let answer = self.rules.answer(&Scene::of(request));
        let delay = answer.delay;
        let items: VecDeque<_> = items(answer, request).into();
        let paced = stream::unfold((delay, items), |(delay, mut items)| async move {
            if delay > Duration::ZERO {
                tokio::time::sleep(delay).await;
            }
            let item = items.pop_front()?;
            Some((item, (Duration::ZERO, items)))
        });
        paced.boxed()
    }
}

/// The answer as a stream would bring it.
fn items(answer: Answer, request: &Request) -> Vec<Result<ModelEvent, ModelError>> {
    if let Some(status) = answer.error {
        return vec![Err(from_response(status, b"the rule says so"))];
    }
    let mut events = vec![ModelEvent::Started { response_id: None, headers: Map::new() }];
    if !answer.reasoning.is_empty() {
        events.push(ModelEvent::Reasoning { text: answer.reasoning, opaque: None });
    }
    let characters: Vec<char> = answer.text.chars().collect();
    events.extend(characters.chunks(PIECE).map(|piece| ModelEvent::Text(piece.iter().collect())));
    let mut ids = CallIds::of(&request.messages);
    let has_calls = !answer.calls.is_empty();
    for (name, arguments) in answer.calls {
        let id = CallId(ids.settle("", plain_id));
        events.push(ModelEvent::Call(ToolCall { id, name: ToolName(name), arguments: arguments.to_string() }));
    }
    let stop = answer.finish.unwrap_or(if has_calls { StopReason::ToolUse } else { StopReason::EndTurn });
    events.push(ModelEvent::Finished { stop, raw_stop: None });
    events.into_iter().map(Ok).collect()
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
