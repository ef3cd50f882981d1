//! The immutable context of a run: built by a front door before the first model call, never changed by a
//! model, a tool or a letter (security S4).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{LetterId, Outbox, RunId, ThreadId};
use crate::config::{Agent, Settings};
use crate::mail::Address;

/// Which door a run came through (DESIGN 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// A letter.
    Reactive,
    /// A duty's firing.
    Proactive,
    /// A console message.
    Console,
    /// Another run.
    Child,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Not begun.
    Queued,
    /// Being worked on.
    Running,
    /// Parked until a person answers.
    NeedsInput,
    /// Ended as it should.
    Done,
    /// Ended with an error.
    Failed,
    /// Ended by the operator.
    Cancelled,
    /// Nobody answered in time.
    Expired,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A real answer.
    Answered,
    /// A real answer, made after the last allowed round.
    LimitReached,
    /// The prepared text, since no real answer could be made.
    Fallback,
    /// The model refused.
    Refused,
    /// Nothing to report.
    Quiet,
    /// Handed to the operator.
    Escalated,
    /// Nothing at all.
    Failed,
}

/// How a sender was proven (DESIGN 2.5). Decided once, when a letter is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Identity {
    /// Not exactly one From mailbox, or parsers could disagree.
    Ambiguous,
    /// Automatic mail, lists, bounces, our own echo.
    Machine,
    /// The trusted receiver says that DMARC failed.
    Forged,
    /// Nothing proves the From line.
    Unverified,
    /// Answers a Message-ID that we minted, from the very address that we mailed it to.
    Thread,
    /// Proven by the trusted receiver.
    Verified,
}

macro_rules! word {
    ($type:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            /// The word as it stands in the store and in messages.
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }

            /// The value of a stored word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($type::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

word!(Door { Reactive => "reactive", Proactive => "proactive", Console => "console", Child => "child" });
word!(RunStatus {
    Queued => "queued", Running => "running", NeedsInput => "needs_input", Done => "done",
    Failed => "failed", Cancelled => "cancelled", Expired => "expired",
});
word!(Outcome {
    Answered => "answered", LimitReached => "limit_reached", Fallback => "fallback", Refused => "refused",
    Quiet => "quiet", Escalated => "escalated", Failed => "failed",
});
word!(Identity {
    Ambiguous => "ambiguous", Machine => "machine", Forged => "forged", Unverified => "unverified",
    Thread => "thread", Verified => "verified",
});

/// Who stands on the other side of a run, and how that is proven. Stored with the run's opening step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// The person's address; none for a duty.
    pub address: Option<Address>,
    /// The display name as written by the sender: data, not identity.
    pub name: Option<String>,
    /// How the address is proven.
    pub identity: Identity,
    /// Who takes part in the thread. Never grows by Cc or Reply-To (security S7).
    pub participants: BTreeSet<Address>,
    /// Where the answer goes: From, or a form's Reply-To.
    pub reply_to: Option<Address>,
    /// The customer record; none below the agent's `identity` level.
    pub customer: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What all parts of one run may know and use.
#[derive(Clone)]
pub struct RunContext {
    /// Its id.
    pub run: RunId,
    /// Which door.
    pub door: Door,
    /// The agent, as configured when the run began.
    pub agent: Arc<Agent>,
    /// The settings, as configured when the run began.
    pub settings: Arc<Settings>,
    /// Who wrote, and how proven.
    pub party: Arc<Party>,
    /// The thread.
    pub thread: Option<ThreadId>,
    /// The letter that opened the run.
    pub letter: Option<LetterId>,
    /// The address that the agent writes from in this run.
    pub own_address: Option<Address>,
    /// The way out for mail: one law.
    pub outbox: Arc<dyn Outbox>,
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("run", &self.run).field("agent", &self.agent.name).finish_non_exhaustive()
    }
}
