//! The built-in tools (DESIGN 2.7). None has a customer, an address or a header among its arguments
//! (security S9, S15).

mod escalate;
mod read_result;
mod read_thread;
mod send_email;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Tool, ToolSpec};
use crate::config::Effect;

/// The tool that comes by itself with any other one.
pub(super) const READ_RESULT: &str = "read_result";

/// All built-in tools.
pub(super) fn tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(escalate::Escalate::new()),
        Arc::new(read_result::ReadResult::new()),
        Arc::new(read_thread::ReadThread::new()),
        Arc::new(send_email::SendEmail::new()),
    ]
}

fn spec(name: &str, description: &str, input: Value, effect: Effect) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: description.to_owned(),
        input,
        effect,
        timeout: Duration::from_secs(30),
        untainted: false,
        approval: false,
        result_bytes: None,
    }
}

/// A text argument; the schema made sure that it is there.
fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}
