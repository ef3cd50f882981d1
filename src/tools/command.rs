//! An operator's program as a tool: fixed argv, arguments on standard input, the run's context in
//! `DUTIFUL_CONTEXT` (DESIGN 2.7, security S9, S31).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::scope::trusts_sender;
use super::validate::excerpt;
use super::{Invocation, Tool, ToolError, ToolOutput, ToolSpec, clean};
use crate::config::{CommandTool, Effect, OperatorTool, Secret, Settings};
use crate::process::{Finished, ProcessError, Program};

/// Bytes of output that are read and kept (harness B4).
const OUTPUT: usize = 10 * 1024 * 1024;
/// Lines and bytes of standard error that the model is told.
const ERROR_LINES: usize = 3;
const ERROR_BYTES: usize = 500;

/// A program that answers calls.
#[derive(Debug)]
pub(super) struct Command {
    spec: ToolSpec,
    argv: Vec<String>,
    env: BTreeMap<String, Secret>,
    home: PathBuf,
}

impl Command {
    pub(super) fn new(tool: &OperatorTool, command: &CommandTool, settings: &Settings) -> Command {
        let spec = ToolSpec {
            name: tool.name.as_str().into(),
            description: tool.description.clone(),
            input: tool.input.clone(),
            effect: tool.effect,
            timeout: tool.timeout,
            untainted: tool.untainted,
            approval: tool.approval,
            result_bytes: None,
        };
        Command { spec, argv: command.command.clone(), env: command.env.clone(), home: settings.home.clone() }
    }

    async fn answer(&self, arguments: Value, invocation: Invocation<'_>) -> Result<ToolOutput, ToolError> {
        let mut env: BTreeMap<String, String> = self.env.iter().map(|(name, secret)| (name.clone(), secret.reveal().to_owned())).collect();
        env.insert("DUTIFUL_CONTEXT".to_owned(), surroundings(invocation).to_string());
        let program = Program {
            argv: self.argv.clone(),
            folder: self.home.clone(),
            env,
            input: arguments.to_string().into_bytes(),
            timeout: self.spec.timeout,
            output_limit: OUTPUT,
        };
        match program.run().await {
            Ok(finished) if finished.code == Some(0) => Ok(ToolOutput::Text(self.without_secrets(&readable(&finished)))),
            Ok(finished) => Err(ToolError::Failed(self.without_secrets(&failure(&finished)))),
            Err(ProcessError::TimedOut { .. }) => Err(self.timed_out(self.spec.timeout)),
            Err(error @ ProcessError::NotStarted { .. }) => {
                tracing::warn!(tool = self.spec.name.as_str(), %error, "a tool's program could not be started");
                Err(ToolError::Failed("it could not be started; the operator must look at it. Go on without it.".to_owned()))
            }
        }
    }

    fn timed_out(&self, limit: Duration) -> ToolError {
        ToolError::TimedOut { limit, may_have_acted: self.spec.effect != Effect::Pure }
    }

    /// What a program prints of its own secrets does not reach a model (harness UC7).
    fn without_secrets(&self, text: &str) -> String {
        let secrets = self.env.values().map(Secret::reveal).filter(|secret| secret.len() >= 6);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
    }
}

impl Tool for Command {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, arguments: Value, invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.answer(arguments, invocation).boxed()
    }
}

/// What a tool is told of the run, exactly as DESIGN 2.7 says. Who the customer is comes from here alone,
/// and only when the sender is proven as far as the agent wants.
pub(super) fn surroundings(invocation: Invocation<'_>) -> Value {
    let context = invocation.context;
    let customer = context.party.customer.as_ref().filter(|_| trusts_sender(context)).map(|record| {
        let mut customer = Map::new();
        if let Some(address) = &context.party.address {
            customer.insert("address".to_owned(), json!(address));
        }
        customer.extend(record.iter().filter(|(name, _)| *name != "address").map(|(name, value)| (name.clone(), value.clone())));
        customer
    });
    json!({
        "run": context.run,
        "agent": context.agent.name,
        "door": context.door,
        "thread": context.thread,
        "effect_key": invocation.effect_key,
        "identity": context.party.identity,
        "customer": customer,
    })
}

/// Standard output as text; a note says what is not as the program wrote it (harness B5).
fn readable(finished: &Finished) -> String {
    let kept = finished.output.len();
    let mut output = finished.output.as_slice();
    let mut notes = String::new();
    if u64::try_from(kept).unwrap_or(u64::MAX) < finished.output_bytes {
        notes.push_str(&format!("[only the first {kept} of {} bytes were kept]\n", finished.output_bytes));
        // The cut may have split the last character; that is no fault of the program.
        if let Err(error) = std::str::from_utf8(output)
            && error.error_len().is_none()
        {
            output = output.get(..error.valid_up_to()).unwrap_or_default();
        }
    }
    let text = String::from_utf8_lossy(output);
    if matches!(text, Cow::Owned(_)) {
        notes.push_str("[some bytes were no valid UTF-8 and stand as \u{fffd}]\n");
    }
    format!("{notes}{text}")
}

/// The first lines of standard error, short and without paths (harness T5).
fn failure(finished: &Finished) -> String {
    let status = match finished.code {
        Some(code) => format!("it failed with exit status {code}"),
        None => "it was ended by a signal".to_owned(),
    };
    let error = clean(&finished.error);
    let lines: Vec<String> = error.lines().map(without_paths).filter(|line| !line.is_empty()).take(ERROR_LINES).collect();
    if lines.is_empty() { format!("{status} and said nothing") } else { format!("{status}: {}", excerpt(&lines.join("\n"), ERROR_BYTES)) }
}

fn without_paths(line: &str) -> String {
    line.split_whitespace().map(without_path).collect::<Vec<_>>().join(" ")
}

/// The word, a path in it reduced to its last part; URLs stay.
fn without_path(word: &str) -> String {
    match word.find('/') {
        Some(at) if !word.contains("://") && word.matches('/').count() > 1 => {
            let (before, path) = word.split_at(at);
            let last = path.rsplit('/').next().unwrap_or_default();
            let before = before.trim_end_matches(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~'));
            format!("{before}…/{last}")
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
