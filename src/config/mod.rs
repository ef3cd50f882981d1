//! TOML in, checked values out. The only reader of configuration files and of the environment.

mod agent;
mod limits;
mod load;
mod names;
mod problem;
mod read;
mod secret;
mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use agent::{Agent, Audience, AudienceEntry, Budget, Fence, Hold, OnLimit, OutgoingPolicy, TodoMode, ToolGrants};
pub use names::LATER_TOOLS;
pub use problem::Problem;
pub use secret::{Secret, SecretError, SecretSource, is_set};
pub use settings::{
    AfterProcessing, CommandTool, Contact, Customers, Effect, HttpTool, Limits, Mailbox, ModelSettings, OnUncertain, OperatorTool, Price,
    Quirks, Receive, Retention, Security, Send, SentCopy, ServerAddress, Settings, Telemetry, ToolKind, Trust, Wire,
};

/// A whole home, loaded and checked. Immutable: a reload makes a new one.
#[derive(Debug, Clone)]
pub struct Config {
    /// The home folder, absolute.
    pub home: PathBuf,
    /// `dutiful.toml`.
    pub settings: Arc<Settings>,
    /// `agents/*.toml` by name.
    pub agents: BTreeMap<String, Arc<Agent>>,
    /// By agent: SHA-256 of its file and the settings' file, in hexadecimal, kept with each run.
    pub hashes: BTreeMap<String, String>,
    /// Weak choices, not errors: printed by `check` and at start.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Loads and checks the home.
    ///
    /// # Errors
    /// Every problem of every file at once.
    pub fn load(home: &Path) -> Result<Config, Vec<Problem>> {
        load::load(home, &secret::variable)
    }

    /// Where the store of a home is, without checking anything else: an operator looks into it also while a
    /// file is broken.
    ///
    /// # Errors
    /// When `dutiful.toml` cannot be read as TOML.
    pub fn store_path(home: &Path) -> Result<PathBuf, Problem> {
        load::store_path(home)
    }
}
