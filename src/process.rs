//! Starting a program: fixed argv, own environment, time limit, bounded output, its group ended. The only
//! spawner in this crate (security S31).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// Program and fixed arguments. A relative program that holds a slash is looked up in `folder`.
    pub argv: Vec<String>,
    /// The working folder.
    pub folder: PathBuf,
    /// The whole environment, besides PATH, HOME and LANG.
    pub env: BTreeMap<String, String>,
    /// Given on standard input.
    pub input: Vec<u8>,
    /// After this the process group is killed.
    pub timeout: Duration,
    /// Bytes of standard output that are kept; the rest is read, counted and dropped.
    pub output_limit: usize,
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output, cut at the limit.
    pub output: Vec<u8>,
    /// Bytes of standard output in all.
    pub output_bytes: u64,
    /// The first 4 KiB of standard error.
    pub error: String,
}

/// Why a program gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("{program} could not be started: {source}")]
    NotStarted {
        /// argv[0].
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It took too long and was ended with its group.
    #[error("{program} was ended after {} s", .limit.as_secs())]
    TimedOut {
        /// argv[0].
        program: String,
        /// Its limit.
        limit: Duration,
    },
}

impl Program {
    /// Runs it to its end. Dropping the future ends its process group.
    ///
    /// # Errors
    /// See [`ProcessError`]. A non-zero exit code is no error here.
    pub async fn run(self) -> Result<Finished, ProcessError> {
        unimplemented!()
    }

    /// The same for code that must not be async (configuration).
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn run_blocking(self) -> Result<Finished, ProcessError> {
        unimplemented!()
    }
}
