//! Logs: to standard error for the journal, and to rolling files beside the store (DESIGN 2.1 `[telemetry]`).

use std::path::Path;

use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// Crates that print letters or passwords at their finer levels (email K1): never below INFO, whatever the
/// filter says.
const TALKATIVE: [&str; 7] = ["async_imap", "imap_proto", "lettre", "hyper", "h2", "reqwest", "rustls"];

/// Days of log files that are kept.
const KEPT_FILES: usize = 14;

/// Starts logging. The guards must live to the end of `main`: dropping them writes what is buffered.
///
/// # Errors
/// When the filter cannot be read or the folder cannot be made.
pub fn start(filter: &str, folder: Option<&Path>) -> anyhow::Result<Vec<WorkerGuard>> {
    let mut guards = Vec::new();
    let file = match folder {
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            let appender = rolling::Builder::new()
                .rotation(rolling::Rotation::DAILY)
                .filename_prefix("dutiful")
                .filename_suffix("log")
                .max_log_files(KEPT_FILES)
                .build(folder)?;
            let (writer, guard) = tracing_appender::non_blocking(appender);
            guards.push(guard);
            Some(fmt::layer().json().with_writer(writer).with_filter(levels(filter)?))
        }
        None => None,
    };
    let console = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false).compact().with_filter(levels(filter)?);
    tracing_subscriber::registry().with(console).with(file).try_init()?;
    Ok(guards)
}

fn levels(filter: &str) -> anyhow::Result<EnvFilter> {
    let mut levels = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).parse(filter)?;
    for target in TALKATIVE {
        levels = levels.add_directive(format!("{target}=info").parse()?);
    }
    Ok(levels)
}
