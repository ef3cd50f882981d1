//! `dutiful.toml` as checked values (DESIGN 2.1, 2.7).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::Secret;
use crate::mail::Address;

/// Everything of `dutiful.toml`. Paths are absolute; secrets are already read.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The home folder.
    pub home: PathBuf,
    /// The store's file.
    pub store: PathBuf,
    /// `[mailboxes.NAME]`.
    pub mailboxes: BTreeMap<String, Mailbox>,
    /// `[models.NAME]`.
    pub models: BTreeMap<String, ModelSettings>,
    /// `[tools.NAME]`.
    pub tools: BTreeMap<String, OperatorTool>,
    /// `[contacts.NAME]`.
    pub contacts: BTreeMap<String, Contact>,
    /// `[operator] address`.
    pub operator: Address,
    /// `[customers]`.
    pub customers: Option<Customers>,
    /// `[limits]`.
    pub limits: Limits,
    /// `[telemetry]`.
    pub telemetry: Telemetry,
    /// `[retention]`.
    pub retention: Retention,
}

/// `[mailboxes.NAME]`: an account that the daemon watches.
#[derive(Debug, Clone)]
pub struct Mailbox {
    /// NAME.
    pub name: String,
    /// Its own address.
    pub address: Address,
    /// Also its own.
    pub aliases: Vec<Address>,
    /// How letters come in.
    pub receive: Receive,
    /// How letters go out.
    pub send: Send,
    /// Login name.
    pub username: Option<String>,
    /// Login secret.
    pub password: Option<Secret>,
    /// `oauth2 = { token_command = […] }`: prints an access token.
    pub token_command: Option<Vec<String>>,
    /// The folder to watch.
    pub folder: String,
    /// The agent that answers what no agent's own address claims.
    pub agent: Option<String>,
    /// PEM bytes of an extra root certificate.
    pub ca: Option<Vec<u8>>,
    /// Whose Authentication-Results are believed.
    pub trusted_authserv_ids: Vec<String>,
    /// List-Ids through which customers write.
    pub own_lists: Vec<String>,
    /// Addresses of the shop's own contact forms.
    pub forms: Vec<Address>,
    /// How often to look without IDLE.
    pub poll: Duration,
    /// What to do with a letter on the server once it is stored.
    pub after_processing: AfterProcessing,
    /// Whether a copy goes into the Sent folder.
    pub sent_copy: SentCopy,
    /// What to do when an acknowledgement was lost (email G9).
    pub on_uncertain: OnUncertain,
    /// `maildir:` only: the local server already proved the sender.
    pub trust: Trust,
}

impl Mailbox {
    /// The mailbox's address and its aliases.
    pub fn own_addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.address).chain(&self.aliases)
    }
}

/// `host[:port]` of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host name or address, as certificates name it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How the connection is protected.
    pub security: Security,
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Implicit,
    /// STARTTLS, required.
    StartTls,
    /// None; only ever for a loopback host, with `plaintext = true`.
    Plaintext,
}

/// `receive`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receive {
    /// `imaps://` and `imap://`.
    Imap(ServerAddress),
    /// `maildir:PATH`.
    Maildir(PathBuf),
}

/// `send`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Send {
    /// `submissions://` and `submission://`.
    Smtp(ServerAddress),
    /// `sendmail:PATH`.
    Sendmail(PathBuf),
    /// `maildir:PATH`.
    Maildir(PathBuf),
}

/// `after_processing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterProcessing {
    /// Leave it alone.
    None,
    /// Set `\Seen`.
    Seen,
    /// Set the keyword `$Dutiful`.
    Keyword,
    /// Move it to a folder.
    Move(String),
}

/// `sent_copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentCopy {
    /// On, unless the server is known to keep one itself.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// `on_uncertain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUncertain {
    /// Send the identical bytes once more.
    ResendOnce,
    /// Wait for the operator.
    Hold,
}

/// `trust`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nothing is proven.
    None,
    /// The local server proved the sender.
    Verified,
}

/// `[models.NAME]`.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// NAME.
    pub name: String,
    /// The dialect.
    pub wire: Wire,
    /// BASE; none for the script wire.
    pub base_url: Option<url::Url>,
    /// The vendor's model id.
    pub model: String,
    /// The key.
    pub api_key: Option<Secret>,
    /// Tokens.
    pub context_window: u32,
    /// Tokens.
    pub max_output: u32,
    /// Per million tokens.
    pub price: Price,
    /// Another model's NAME.
    pub fallback: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// `reasoning`, as the operator wrote it (`off`, `low`, `medium`, `high`, or a number of tokens).
    pub reasoning: Option<String>,
    /// Extra request headers.
    pub headers: BTreeMap<String, Secret>,
    /// What its servers do differently.
    pub quirks: Quirks,
    /// The script wire's rule file.
    pub rules: Option<PathBuf>,
}

/// `wire`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// `BASE/chat/completions`.
    Openai,
    /// `BASE/v1/messages`.
    Anthropic,
    /// Rules in a TOML file: no network.
    Script,
}

impl Wire {
    /// The word as written in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Wire::Openai => "openai",
            Wire::Anthropic => "anthropic",
            Wire::Script => "script",
        }
    }
}

/// `price`, in millionths of the currency unit per million tokens (harness U4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    /// Input.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Input read from a cache; the input price when left out.
    pub cache_read: u64,
    /// Input written to a cache; the input price when left out.
    pub cache_write: u64,
}

/// Flags of a model's servers (harness W7): the profile's, with `[models.NAME.quirks]` over them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent flag of a vendor's server")]
pub struct Quirks {
    /// Send `max_completion_tokens` in place of `max_tokens`.
    pub max_completion_tokens: bool,
    /// Send the system text with the role `developer`.
    pub developer_role: bool,
    /// `tool_choice: none` is understood.
    pub tool_choice_none: bool,
    /// `stream_options.include_usage` is understood.
    pub stream_usage: bool,
    /// `content` of an assistant message that only calls tools: `""` in place of `null`.
    pub empty_content: bool,
    /// Reasoning of tool-calling turns must be sent back (`reasoning_content`, harness W6).
    pub replay_reasoning: bool,
    /// A stream may end by `[DONE]` without a finish reason (harness S3).
    pub finish_reason_optional: bool,
    /// Tool names may arrive in fragments (harness W4).
    pub fragmented_names: bool,
    /// Think tags at the start of the content are reasoning (harness R13).
    pub think_tags: bool,
    /// Sampling is fixed: never send `temperature`.
    pub fixed_sampling: bool,
    /// Tool-call ids must look like `functions.NAME:INDEX` when made by us (harness N6).
    pub kimi_call_ids: bool,
}

/// `[tools.NAME]`: an operator's tool.
#[derive(Debug, Clone)]
pub struct OperatorTool {
    /// NAME.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON schema of the arguments: an object schema.
    pub input: Value,
    /// What repeating it would do.
    pub effect: Effect,
    /// Limit of one call.
    pub timeout: Duration,
    /// A person approves each call first.
    pub approval: bool,
    /// Refused once a third party's text is in the run.
    pub untainted: bool,
    /// How it is called.
    pub kind: ToolKind,
}

/// What repeating a call would do (harness J3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing: it only reads.
    Pure,
    /// The same: it knows its effect key.
    Idempotent,
    /// Harm: at most once.
    Effectful,
}

impl Effect {
    /// Whether a call may be made again without harm.
    pub fn is_repeatable(self) -> bool {
        self != Effect::Effectful
    }

    /// Whether a call only reads.
    pub fn is_pure(self) -> bool {
        self == Effect::Pure
    }
}

/// How an operator's tool is called.
#[derive(Debug, Clone)]
pub enum ToolKind {
    /// A program.
    Command(CommandTool),
    /// An endpoint.
    Http(HttpTool),
}

/// `command` and `env` of a tool.
#[derive(Debug, Clone)]
pub struct CommandTool {
    /// Program and fixed arguments; a relative program with a slash is relative to home.
    pub command: Vec<String>,
    /// Besides PATH, HOME, LANG.
    pub env: BTreeMap<String, Secret>,
}

/// `http` of a tool.
#[derive(Debug, Clone)]
pub struct HttpTool {
    /// Method.
    pub method: String,
    /// Where.
    pub url: url::Url,
    /// Headers.
    pub headers: BTreeMap<String, Secret>,
}

/// `[contacts.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// NAME.
    pub name: String,
    /// Where.
    pub address: Address,
}

/// `[customers]`: who a verified sender is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Customers {
    /// A CSV file with a column `address`.
    File(PathBuf),
    /// A program: `{"address": …}` on stdin, a JSON object on stdout.
    Command(Vec<String>),
}

/// `[limits]` (DESIGN 2.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Runs at once.
    pub concurrent_runs: u32,
    /// Wall clock of one run.
    pub run_time: Duration,
    /// Calls of one response; more are refused.
    pub tool_calls_per_round: u32,
    /// Calls of one run.
    pub tool_calls_per_run: u32,
    /// Calls at once.
    pub parallel_tools: u32,
    /// Bytes of one result as sent.
    pub tool_result_bytes: u32,
    /// Bytes of one letter.
    pub letter_bytes: u64,
    /// Replies in one thread.
    pub replies_per_thread_per_hour: u32,
    /// Replies in one thread.
    pub replies_per_thread_per_day: u32,
    /// Replies to one sender.
    pub replies_per_sender_per_hour: u32,
    /// Replies to one domain, unverified senders only.
    pub replies_per_domain_per_hour: u32,
    /// Replies of the whole daemon.
    pub replies_per_day: u32,
    /// Reports, questions and notices.
    pub operator_mails_per_hour: u32,
    /// A question's life.
    pub question_expires: Duration,
    /// When a question is repeated.
    pub question_reminder: Duration,
    /// An approval's life.
    pub approval_expires: Duration,
    /// How long a letter is tried (email G10).
    pub queue_age: Duration,
    /// How long a stop may take.
    pub shutdown_grace: Duration,
    /// When silence of a server is told.
    pub alarm_after: Duration,
}

/// `[telemetry]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// A filter as tracing writes it.
    pub log: String,
    /// Where rolling files go.
    pub log_dir: PathBuf,
}

/// `[retention]`: at which age what goes (email B16, K3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Raw letters.
    pub raw: Duration,
    /// Texts of letters in and out, prompts and answers, arguments and results of tools.
    pub transcripts: Duration,
    /// Raw letters that hold attachments, when that is shorter than `raw`: they are kept nowhere else.
    pub attachments: Duration,
    /// The skeleton of ids, addresses, times, verdicts and costs; at least 30 days. Nothing else is kept longer.
    pub audit: Duration,
}

impl Retention {
    /// Rows are kept at least so long: limits, budgets and duplicates (email B9, F7) are counted from them.
    pub const SHORTEST_AUDIT: Duration = Duration::from_secs(30 * 24 * 3600);
}
