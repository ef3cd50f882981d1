//! `agents/NAME.toml` as checked values (DESIGN 2.1).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::mail::Address;
use crate::run::Identity;

/// One agent.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The file's stem.
    pub name: String,
    /// For people.
    pub description: String,
    /// The mailbox that it answers and sends from.
    pub mailbox: Option<String>,
    /// Its own addresses.
    pub addresses: Vec<Address>,
    /// The From name.
    pub display_name: Option<String>,
    /// The model's name.
    pub model: String,
    /// Rounds.
    pub max_tool_turns: u32,
    /// What happens after the last round.
    pub on_limit: OnLimit,
    /// Sent when no real answer could be made.
    pub fallback_reply: String,
    /// The persona's text.
    pub prompt: String,
    /// Under each letter.
    pub signature: Option<String>,
    /// Who is answered.
    pub audience: Audience,
    /// From which level the customer record and effectful tools are allowed: `Verified` or `Thread`.
    pub identity: Identity,
    /// What it may call.
    pub tools: ToolGrants,
    /// The resolver chain of a letter: names, `document:PATH` included.
    pub reactive: Vec<String>,
    /// The resolver chain of a duty.
    pub proactive: Vec<String>,
    /// What it may spend.
    pub budget: Budget,
    /// What may leave.
    pub outgoing: OutgoingPolicy,
}

impl Agent {
    /// Whether one more model call follows the last allowed round (harness L2).
    pub fn has_closing_call(&self) -> bool {
        self.on_limit == OnLimit::ClosingCall
    }
}

/// `on_limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLimit {
    /// One more model call without tools.
    ClosingCall,
    /// The last text as it is.
    ReturnLast,
}

/// `audience`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// Everybody.
    Public,
    /// Whoever is verified.
    Verified,
    /// These, verified.
    Listed(Vec<AudienceEntry>),
}

/// One entry of a listed audience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AudienceEntry {
    /// `alice@example.com`.
    Address(Address),
    /// `@shop.example`: that very domain, lower case, without the `@`.
    Domain(String),
}

/// `[tools]` of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolGrants {
    /// Full schema on each call.
    pub eager: Vec<String>,
    /// By name and one line.
    pub deferred: Vec<String>,
}

/// `[budget]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Tokens of one run, input and output.
    pub run_tokens: Option<u64>,
    /// Millionths a day.
    pub day_cost: Option<u64>,
    /// Todo mode.
    pub todo_mode: TodoMode,
}

/// `todo_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TodoMode {
    /// When the model writes checklists.
    Auto,
    /// From the start.
    Always,
    /// Never.
    Never,
}

/// `[outgoing]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingPolicy {
    /// The fence.
    pub recipients: BTreeSet<Fence>,
    /// Which letters a person approves first.
    pub hold: Hold,
    /// Time to undo.
    pub delay: Duration,
    /// Hosts that may be live links: as configured, or the mailbox's domain and what prompt and documents name.
    pub links: BTreeSet<String>,
    /// Whether other participants get the reply too.
    pub reply_all: bool,
}

/// One entry of the fence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fence {
    /// The thread's participants.
    Thread,
    /// The operator.
    Operator,
    /// `contact:NAME`.
    Contact(String),
}

/// `hold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// No letter waits.
    Never,
    /// Each letter waits.
    Always,
    /// The first letter to an address waits.
    FirstContact,
}
