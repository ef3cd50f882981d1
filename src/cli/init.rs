//! `init`: a home that works at once and teaches how to make it one's own.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::print;
use super::shop;

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The folder to write: made when it does not exist.
    dir: PathBuf,
}

impl Init {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.dir.join("dutiful.toml");
        anyhow::ensure!(!settings.exists(), "{} exists already: nothing was written; choose another folder", settings.display());
        std::fs::create_dir_all(&self.dir).with_context(|| format!("{} cannot be made", self.dir.display()))?;
        shop::write(&self.dir, shop::HOME_SETTINGS)?;
        let dir = self.dir.display();
        print::line(&format!(
            "{dir} is a working home: a shop on local Maildir folders, answered by a rule file.\n\n\
             next:\n  \
             dutiful --home {dir} check        what is configured, and what is weak\n  \
             dutiful --home {dir} serve        the daemon; then drop a letter into {dir}/mail/new\n  \
             cp {dir}/letters/order.eml {dir}/mail/new/   the answer comes into {dir}/sent/new\n\n\
             Then open {dir}/dutiful.toml: its comments lead to a real mailbox and a real model."
        ));
        Ok(ExitCode::SUCCESS)
    }
}
