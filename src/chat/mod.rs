//! The normalized conversation between harness and model: messages, blocks, tool calls, results. No I/O,
//! no vendor's word (harness N1).

mod message;
mod reply;
mod tool_call;
pub mod untrusted;

pub use message::{Block, Message, Origin, Source};
pub use reply::{Reply, StopReason, Usage};
pub use tool_call::{CallId, ToolCall, ToolName, ToolResult};
