//! What the loop is given: everything already built, nothing to look up.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::next::Bounds;
use super::transcript::Transcript;
use crate::chat::{Message, Source};
use crate::inference::{Model, Request, ToolChoice};
use crate::run::RunContext;
use crate::store::Purpose;
use crate::tools::Toolset;

/// Output tokens of one call: the first level of the truncation schedule (harness part 9).
const OUTPUT_TOKENS: u32 = 16_384;

/// What the model is told when no more tools may be used (harness L2).
const CLOSING_NOTE: &str =
    "No further tool use is possible in this run. Write the reply to the customer now; say what is done and what is not.";

/// One run's work.
#[derive(Debug, Clone)]
pub struct Job {
    /// Who, where, for whom: immutable.
    pub context: RunContext,
    /// What the agent was granted.
    pub tools: Toolset,
    /// Its model.
    pub model: Arc<Model>,
}

/// How a run is told to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Stop at the next step boundary (harness K2).
    pub draining: CancellationToken,
    /// Abort what has no effect: model calls and pure tools.
    pub aborting: CancellationToken,
    /// The operator ends the run (harness K1).
    pub cancelled: CancellationToken,
}

impl Stop {
    /// The same for one run, which can also be ended alone: its tokens are children of these.
    pub fn for_run(&self) -> Stop {
        Stop { draining: self.draining.child_token(), aborting: self.aborting.child_token(), cancelled: self.cancelled.child_token() }
    }
}

impl Job {
    /// What bounds the run now.
    pub(super) fn bounds(&self, out_of_time: bool) -> Bounds {
        let agent = &self.context.agent;
        Bounds {
            max_tool_turns: agent.max_tool_turns,
            closing_call: agent.has_closing_call(),
            run_tokens: agent.budget.run_tokens,
            out_of_time,
        }
    }

    /// The wall clock of the run.
    pub(super) fn run_time(&self) -> Duration {
        self.context.settings.limits.run_time
    }

    /// The next request. Tools and system text are the same bytes each time (harness TS1, PC1).
    pub(super) fn request(&self, transcript: &Transcript, purpose: Purpose) -> Request {
        let mut messages = transcript.request_messages(purpose);
        let tool_choice = match purpose {
            Purpose::Round => ToolChoice::Auto,
            Purpose::Closing => {
                messages.push(Message::user(CLOSING_NOTE, Source::Operator));
                ToolChoice::None
            }
        };
        let opened = transcript.opened();
        Request {
            system: opened.system.clone(),
            messages: super::reply::paired(messages),
            tools: opened.tools.clone(),
            tool_choice,
            max_output: OUTPUT_TOKENS.min(self.model.max_output()),
        }
    }
}
