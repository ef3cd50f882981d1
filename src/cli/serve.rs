//! `serve`: the daemon in the foreground, as systemd wants it.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::home::Home;
use super::print;
use crate::config::Config;
use crate::{daemon, telemetry};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(super) struct Serve {}

impl Serve {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let Self {} = self;
        let config = home.checked()?;
        for warning in &config.warnings {
            print::remark(&format!("warning: {warning}"));
        }
        serve(config, daemon::Options::default())
    }
}

/// Shuts our environment and memory, where keys stand, to other programs of the same user: without this a tool
/// reads them under `/proc` of its parent. It also keeps them out of core files (security S31, S38).
fn hide_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        print::remark(&format!("warning: other programs of this user can read the daemon's memory: {error}"));
    }
}

/// Starts logging and a runtime, and runs the daemon to its end.
pub(super) fn serve(config: Config, options: daemon::Options) -> anyhow::Result<ExitCode> {
    // Whatever the daemon makes from here on is its owner's alone: logs, sockets, letters (security S41).
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    hide_memory();
    let telemetry = &config.settings.telemetry;
    let guards = telemetry::start(&telemetry.log, Some(&telemetry.log_dir)).with_context(|| {
        format!("logging into {}: correct [telemetry] in dutiful.toml, or the folder's owner", telemetry.log_dir.display())
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(daemon::run(config, options));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    // The log goes to standard error too: it is told once.
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the daemon ended: {error:#}");
            ExitCode::FAILURE
        }
    };
    drop(guards);
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_s38_the_daemons_environment_is_hidden_from_its_tools() {
        hide_memory();
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
