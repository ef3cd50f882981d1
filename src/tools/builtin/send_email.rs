//! `send_email`: a letter to the operator or to a contact inside the agent's fence, by the run's one way out.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{spec, text};
use crate::config::{Effect, Fence};
use crate::mail::{Address, Draft, OutgoingKind};
use crate::run::{OutboxError, RunContext};
use crate::tools::{Invocation, Tool, ToolError, ToolOutput, ToolSpec, clean};

/// What the operator is called in `to`.
const OPERATOR: &str = "operator";

#[derive(Debug)]
pub(super) struct SendEmail {
    spec: ToolSpec,
}

impl SendEmail {
    pub(super) fn new() -> SendEmail {
        let input = json!({
            "type": "object",
            "properties": {
                "to": { "type": "string", "description": "\"operator\" or a contact's name; never an address" },
                "subject": { "type": "string" },
                "body": { "type": "string", "description": "Markdown" },
            },
            "required": ["to", "subject", "body"],
        });
        let description = "Sends a letter to the operator or to a known contact.\n\
                           Not for the customer: your answer reaches them by itself.";
        SendEmail { spec: spec("send_email", description, input, Effect::Idempotent) }
    }
}

impl Tool for SendEmail {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, arguments: Value, invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        send(arguments, invocation).boxed()
    }
}

async fn send(arguments: Value, invocation: Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let context = invocation.context;
    let to = text(&arguments, "to").trim();
    let address = recipient(to, context)?;
    let from = context.own_address.as_ref().or(context.agent.addresses.first());
    let draft = Draft {
        kind: OutgoingKind::Tool,
        to: vec![address],
        from: from.cloned().ok_or_else(|| ToolError::Failed("this agent has no address to send from".to_owned()))?,
        subject: clean(text(&arguments, "subject")).split_whitespace().collect::<Vec<_>>().join(" "),
        text: clean(text(&arguments, "body")).into_owned(),
        in_reply_to: None,
        references: Vec::new(),
        effect_key: invocation.effect_key.to_owned(),
    };
    let posted = context.outbox.post(context, draft).await.map_err(told)?;
    Ok(ToolOutput::Text(match posted.held {
        Some(_) => format!("The letter to {to} is written and waits for a person to let it go."),
        None => format!("The letter to {to} is on its way."),
    }))
}

/// The address behind a name, if the agent's fence holds it. An address is no name.
fn recipient(to: &str, context: &RunContext) -> Result<Address, ToolError> {
    let settings = &context.settings;
    let allowed = context.agent.outgoing.recipients.iter().filter_map(|fence| match fence {
        Fence::Operator => Some((OPERATOR, &settings.operator)),
        Fence::Contact(name) => settings.contacts.get(name).map(|contact| (name.as_str(), &contact.address)),
        Fence::Thread => None,
    });
    let allowed: Vec<(&str, &Address)> = allowed.collect();
    match allowed.iter().find(|(name, _)| *name == to) {
        Some((_, address)) => Ok((*address).clone()),
        None if allowed.is_empty() => Err(ToolError::Refused("This agent may write to nobody but the customer it answers.".to_owned())),
        None => {
            let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
            Err(ToolError::Refused(format!("That is nobody this agent may write to. `to` is one of: {}.", names.join(", "))))
        }
    }
}

fn told(error: OutboxError) -> ToolError {
    match error {
        OutboxError::OutsideFence(_) => ToolError::Refused("That is nobody this agent may write to.".to_owned()),
        OutboxError::Limit(_) => ToolError::Refused(format!("Not sent: {error}.")),
        OutboxError::NoRecipient | OutboxError::Empty | OutboxError::Malformed(_) => ToolError::Failed(format!("Not sent: {error}.")),
        OutboxError::Store(source) => {
            tracing::error!(error = %format!("{source:#}"), "a letter of send_email could not be stored");
            ToolError::Failed("Not sent: the letter could not be stored.".to_owned())
        }
    }
}

#[cfg(test)]
#[path = "send_email_tests.rs"]
mod tests;
