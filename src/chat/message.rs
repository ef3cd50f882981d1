//! Messages and their blocks. Order is preserved; what a provider must get back verbatim is kept verbatim.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ToolCall, ToolResult};

/// One message of the conversation. The system text stands apart, in the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// What the harness tells the model: a letter, a duty, a note.
    User {
        /// Text blocks only.
        blocks: Vec<Block>,
    },
    /// What a model answered.
    Assistant {
        /// In the order received.
        blocks: Vec<Block>,
        /// Who answered; reasoning and opaque blocks go back to the same origin only (harness N3).
        origin: Origin,
    },
    /// The results of the calls of the assistant message just before, in call order.
    Results {
        /// One for each call.
        results: Vec<ToolResult>,
    },
}

impl Message {
    /// A user message of one text.
    pub fn user(text: impl Into<String>, source: Source) -> Message {
        Message::User { blocks: vec![Block::Text { text: text.into(), source }] }
    }

    /// The message's text blocks joined; empty for results.
    pub fn text(&self) -> String {
        let blocks = match self {
            Message::User { blocks } | Message::Assistant { blocks, .. } => blocks.as_slice(),
            Message::Results { .. } => &[],
        };
        blocks.iter().filter_map(Block::as_text).collect::<Vec<_>>().concat()
    }

    /// The calls of an assistant message, in order.
    pub fn calls(&self) -> Vec<&ToolCall> {
        match self {
            Message::Assistant { blocks, .. } => {
                blocks.iter().filter_map(|block| if let Block::Call(call) = block { Some(call) } else { None }).collect()
            }
            Message::User { .. } | Message::Results { .. } => Vec::new(),
        }
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text as it is sent; untrusted text is already wrapped.
        text: String,
        /// Where it comes from.
        source: Source,
    },
    /// A model's reasoning, never mailed.
    Reasoning {
        /// The readable part; may be empty.
        text: String,
        /// What must go back verbatim with it (signature, details), as the provider sent it.
        opaque: Option<Value>,
    },
    /// A tool call.
    Call(ToolCall),
    /// A block we do not model, to be sent back verbatim to its origin.
    Opaque {
        /// As received.
        json: Value,
    },
}

impl Block {
    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Block::Text { text, .. } => Some(text),
            Block::Reasoning { .. } | Block::Call(_) | Block::Opaque { .. } => None,
        }
    }
}

/// Where a block's text comes from: its taint (DESIGN 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The operator's own files, and what the harness itself says.
    Operator,
    /// The model.
    Model,
    /// The person who wrote the letter.
    Customer,
    /// Anybody else: attachments, forwards, fetched pages.
    ThirdParty,
}

/// Which model wrote an assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The operator's name of the model, `[models.NAME]`.
    pub provider: String,
    /// The wire that it spoke.
    pub wire: String,
    /// The vendor's model id.
    pub model: String,
}
