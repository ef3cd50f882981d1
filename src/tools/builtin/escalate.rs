//! `escalate`: the run ends, the thread goes to the operator.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{spec, text};
use crate::config::Effect;
use crate::tools::validate::excerpt;
use crate::tools::{Invocation, Tool, ToolError, ToolOutput, ToolSpec, clean};

/// Bytes of a reason.
const REASON: usize = 2000;

#[derive(Debug)]
pub(super) struct Escalate {
    spec: ToolSpec,
}

impl Escalate {
    pub(super) fn new() -> Escalate {
        let input = json!({
            "type": "object",
            "properties": { "reason": { "type": "string", "description": "For the operator: what is wanted and why you cannot do it" } },
            "required": ["reason"],
        });
        let description = "Hands this conversation to a person and ends your work on it.\n\
                           What you wrote beside this call is mailed to the customer; say there that a person will take over.";
        Escalate { spec: spec("escalate", description, input, Effect::Pure) }
    }
}

impl Tool for Escalate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, arguments: Value, _invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let reason = excerpt(clean(text(&arguments, "reason")).trim(), REASON);
        async move { Ok(ToolOutput::Escalate { reason }) }.boxed()
    }
}
