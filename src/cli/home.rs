//! Finding the home, its configuration, its store and its daemon.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::print;
use crate::config::{Config, Problem};
use crate::daemon;
use crate::store::{OpenError, OpenOptions, Store};

/// The home that a command works on.
#[derive(Debug)]
pub(super) struct Home {
    folder: PathBuf,
}

impl Home {
    pub(super) fn new(folder: Option<PathBuf>) -> Home {
        Home { folder: folder.unwrap_or_else(|| PathBuf::from(".")) }
    }

    pub(super) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// The configuration, or every problem of it.
    pub(super) fn config(&self) -> Result<Config, Vec<Problem>> {
        Config::load(&self.folder)
    }

    /// The configuration of a command that cannot go on without it.
    pub(super) fn checked(&self) -> anyhow::Result<Config> {
        self.config().map_err(|problems| refused(&problems, &self.folder))
    }

    /// The store, beside a daemon that may be running.
    ///
    /// It is found without checking the whole configuration, so that an operator can look into it while a
    /// file is broken.
    pub(super) fn store(&self) -> anyhow::Result<Store> {
        Ok(Store::attach(&self.store_path()?)?)
    }

    /// The store for a switch, which may be set before the first start: it is made then.
    pub(super) fn store_for_switch(&self) -> anyhow::Result<Store> {
        match Store::attach(&self.store_path()?) {
            Err(OpenError::Missing(path)) => Ok(Store::open(path.as_ref(), OpenOptions::default())?),
            other => Ok(other?),
        }
    }

    fn store_path(&self) -> anyhow::Result<PathBuf> {
        Config::store_path(&self.folder).map_err(|problem| anyhow::anyhow!("{problem}"))
    }

    /// Wakes the daemon after an intent was written; says what happens when there is none.
    pub(super) fn wake(&self) -> anyhow::Result<&'static str> {
        let socket = daemon::socket_path(&self.store_path()?);
        let sender = UnixDatagram::unbound().context("no socket could be made")?;
        Ok(match sender.send_to(b"wake", &socket) {
            Ok(_) => "the daemon was told",
            Err(_) => "no daemon is running, so it takes effect at the next start",
        })
    }
}

/// Tells every problem on a line of its own, so that an editor finds its place, and gives the sum of them.
pub(super) fn refused(problems: &[Problem], folder: &Path) -> anyhow::Error {
    for problem in problems {
        print::remark(&problem.to_string());
    }
    anyhow::anyhow!("{} problem(s) in {}: nothing was done", problems.len(), folder.display())
}
