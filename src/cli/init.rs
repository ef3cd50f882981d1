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
        let (dir, dutiful) = (self.dir.display(), print::program());
        print::line(&format!(
            "{dir} is a working home: a shop on local Maildir folders, answered by a rule file.\n\n\
             Try it as it is:\n  \
             {dutiful} --home {dir} check                      # what is wrong, and what is weak\n  \
             {dutiful} --home {dir} serve                      # the daemon; leave it running, go on in another terminal\n  \
             cp {dir}/letters/order.eml {dir}/mail/new/      # a customer writes\n  \
             {dutiful} --home {dir} letters                    # what came in, and what became of it\n  \
             cat {dir}/sent/new/*                            # the answer\n\n\
             Make it yours: open {dir}/dutiful.toml and {dir}/agents/sundae.toml; their comments lead to a real\n\
             mailbox and a real model. `{dutiful} --home {dir} check --online` then tries the accounts."
        ));
        Ok(ExitCode::SUCCESS)
    }
}
