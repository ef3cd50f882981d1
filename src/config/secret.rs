//! Secrets: named by reference in the files, read once, never shown (security S37, S38).

use std::fmt;
use std::path::PathBuf;

/// A secret's value. It has no `Display` and no `Serialize`, and `Debug` prints nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: String) -> Secret {
        Secret(value)
    }

    /// The value, for the one place that must send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret stands: `{ env = … }`, `{ file = … }`, `{ credential = … }`, `{ command = […] }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A variable of the daemon's environment.
    Env(String),
    /// A file, trailing newline removed; readable by its owner only.
    File(PathBuf),
    /// A systemd credential, a file in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
    /// A program's standard output, trailing newline removed.
    Command(Vec<String>),
}

/// Why a secret could not be read. Never holds its value.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(pub String);
