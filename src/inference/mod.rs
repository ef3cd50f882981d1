//! One model call behind a contract; the wire dialects; retries. Only this module knows a vendor's JSON.

mod models;
mod provider;
mod request;

pub use models::{Completed, Model, Models};
pub use provider::{ErrorKind, ModelError, ModelEvent, Phase, Provider};
pub use request::{Request, ToolChoice};
