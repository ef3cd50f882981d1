//! Values that the tests of this folder share.

use crate::chat::{Block, CallId, Message, Origin, Source, ToolCall, ToolResult};
use crate::config::{ModelSettings, Price, Quirks, Secret, Wire};
use crate::inference::{Request, ToolChoice};

/// A key that exists nowhere.
pub(super) const KEY: &str = "sk-fake-1234567890";

pub(super) fn quirks() -> Quirks {
    Quirks {
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
    }
}

/// A model at `base`, with no price and no fallback.
pub(super) fn settings(wire: Wire, base: &str) -> ModelSettings {
    ModelSettings {
        name: "p".into(),
        wire,
        base_url: base.parse().ok(),
        model: "m".into(),
        api_key: Some(Secret::new(KEY.into())),
        context_window: 100_000,
        max_output: 1000,
        price: Price::default(),
        fallback: None,
        temperature: None,
        reasoning: None,
        headers: Default::default(),
        quirks: quirks(),
        rules: None,
    }
}

pub(super) fn origin(wire: &str) -> Origin {
    Origin { provider: "p".into(), wire: wire.into(), model: "m".into() }
}

pub(super) fn request(messages: Vec<Message>) -> Request {
    Request { system: "You answer.".into(), messages, tools: Vec::new(), tool_choice: ToolChoice::Auto, max_output: 1000 }
}

pub(super) fn user(text: &str) -> Message {
    Message::user(text, Source::Customer)
}

pub(super) fn text(text: &str) -> Block {
    Block::Text { text: text.into(), source: Source::Model }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::Call(ToolCall { id: CallId(id.into()), name: name.into(), arguments: arguments.into() })
}

pub(super) fn result(id: &str, text: &str, is_error: bool) -> Message {
    Message::Results { results: vec![ToolResult { call: CallId(id.into()), text: text.into(), is_error }] }
}
