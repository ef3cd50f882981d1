//! Logs: to standard error for the journal, and to rolling files beside the store (DESIGN 2.1 `[telemetry]`).

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tracing::Level;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Filter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// Days of log files that are kept.
const KEPT_FILES: usize = 14;

/// Lines that may wait for the disk. The room for them is taken at the start: the crate's own 128,000 are 4 MB.
const BUFFERED_LINES: usize = 8_000;

/// Starts logging. The guards must live to the end of `main`: dropping them writes what is buffered.
///
/// # Errors
/// When the filter cannot be read or the folder cannot be made.
pub fn start(filter: &str, folder: Option<&Path>) -> anyhow::Result<Vec<WorkerGuard>> {
    let mut guards = Vec::new();
    let file = match folder {
        Some(folder) => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let appender = rolling::Builder::new()
                .rotation(rolling::Rotation::DAILY)
                .filename_prefix("dutiful")
                .filename_suffix("log")
                .max_log_files(KEPT_FILES)
                .build(folder)?;
            let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(BUFFERED_LINES).finish(appender);
            guards.push(guard);
            Some(fmt::layer().json().with_writer(OneLine(writer)).with_filter(levels(filter)?))
        }
        None => None,
    };
    let console = fmt::layer().with_writer(OneLine(io::stderr)).with_target(false).with_ansi(false).compact().with_filter(levels(filter)?);
    tracing_subscriber::registry().with(console).with(file).try_init()?;
    Ok(guards)
}

/// The operator's filter. Other crates print letters and passwords at their finer levels, so none of them is
/// heard below INFO, whatever the filter says (email K1, security S38).
fn levels<S>(filter: &str) -> anyhow::Result<impl Filter<S> + 'static + use<S>>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let levels = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).parse(filter)?;
    let discreet = filter_fn(|metadata| *metadata.level() <= Level::INFO || is_ours(metadata.target()));
    Ok(levels.and(discreet))
}

fn is_ours(target: &str) -> bool {
    target.strip_prefix("dutiful").is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Writes each event as one line without a control or bidi character, whatever it quotes (security S39).
#[derive(Debug, Clone)]
struct OneLine<M>(M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = OneLineWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLineWriter(self.0.make_writer())
    }
}

#[derive(Debug)]
struct OneLineWriter<W>(W);

impl<W: Write> Write for OneLineWriter<W> {
    /// Gets whole events: the formatter hands each over by one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = String::with_capacity(text.len());
        for c in text.strip_suffix('\n').unwrap_or(&text).chars() {
            if c.is_control() || is_bidi(c) {
                line.extend(c.escape_default());
            } else {
                line.push(c);
            }
        }
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn logging(kept: &Kept, filter: &str) -> impl tracing::Subscriber + use<> {
        let (plain, json) = (kept.clone(), kept.clone());
        let plain = fmt::layer().with_writer(OneLine(move || plain.clone())).with_ansi(false).compact();
        let json = fmt::layer().json().with_writer(OneLine(move || json.clone()));
        tracing_subscriber::registry().with(plain.with_filter(levels(filter).unwrap())).with(json.with_filter(levels(filter).unwrap()))
    }

    #[test]
    fn security_s39_an_event_is_one_line_without_control_characters() {
        let kept = Kept::default();
        let hostile = "a\nINFO forged line\r\u{1b}[31mred\u{1b}]0;title\u{7}\u{9b}31m\u{202e}live\u{2066}\u{0}\u{7f}\u{2028}end";
        tracing::subscriber::with_default(logging(&kept, "info"), || {
            tracing::info!(error = %hostile, reason = hostile, "{hostile}");
        });
        let text = kept.text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("forged line") && text.contains("end"));
        assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || is_bidi(c))), "{text:?}");
    }

    #[test]
    fn email_k1_no_filter_makes_another_crate_talk_below_info() {
        let kept = Kept::default();
        tracing::subscriber::with_default(logging(&kept, "trace,async_imap::client=trace,lettre=debug"), || {
            tracing::trace!(target: "async_imap::client", "LOGIN hunter2");
            tracing::debug!(target: "lettre::transport", "AUTH hunter2");
            tracing::trace!(target: "dutifully", "hunter2");
            tracing::trace!(target: "dutiful::gateway", "ours");
            tracing::info!(target: "rustls", "theirs");
        });
        let text = kept.text();
        assert!(text.contains("ours") && text.contains("theirs") && !text.contains("hunter2"), "{text}");
    }
}
