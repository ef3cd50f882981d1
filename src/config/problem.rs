//! What is wrong in a configuration file, and what would be right.

use std::fmt;
use std::path::PathBuf;

/// One problem, printed as `path:line: what is wrong; what would be right`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, relative to home.
    pub path: PathBuf,
    /// The line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong; what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.message),
        }
    }
}
