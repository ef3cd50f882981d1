//! One model call behind a contract; the wire dialects; retries. Only this module knows a vendor's JSON.

mod anthropic;
mod call_ids;
#[cfg(test)]
mod fixtures;
mod http;
mod models;
mod openai;
mod provider;
mod reply;
mod request;
mod retry;
mod script;

pub use models::{Completed, Model, Models, Unanswered};
pub use provider::{ErrorKind, ModelError, ModelEvent, Phase, Provider};
pub use request::{Request, ToolChoice};
