//! The task of one mailbox: receives until told to stop, whatever the server does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::health::{Activity, Health};
use super::intake::Intake;
use super::maildir;
use crate::config::{Limits, Mailbox, Receive};
use crate::store::StoreError;

/// What a mailbox's task works with.
#[derive(Debug)]
pub struct Receiver {
    /// The mailbox.
    pub mailbox: Arc<Mailbox>,
    /// `[limits]`.
    pub limits: Limits,
    /// Where letters go.
    pub intake: Intake,
    /// Where it says how it fares.
    pub health: Health,
    /// TLS with the mailbox's `ca_file`.
    pub tls: Arc<rustls::ClientConfig>,
    /// The home folder: a token command runs there.
    pub home: PathBuf,
    /// The waits; [`Timing::default`] save in tests.
    pub timing: Timing,
}

/// How long things may take, and how long it waits (email A4 to A12).
#[derive(Debug, Clone)]
pub struct Timing {
    /// First and longest wait before a reconnect.
    pub reconnect: (Duration, Duration),
    /// First and longest wait after a refused login.
    pub after_refused_login: (Duration, Duration),
    /// Logins at once, and how often one more.
    pub logins: (u32, Duration),
    /// Looking up, connecting, TLS, greeting: each.
    pub dial: Duration,
    /// One command.
    pub command: Duration,
    /// One command that fetches letters.
    pub fetch: Duration,
    /// How long IDLE may be silent before it is renewed.
    pub idle_renewal: Duration,
    /// How long `DONE` may take.
    pub idle_done: Duration,
    /// The longest time between two sweeps with IDLE.
    pub sweep: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Timing {
            reconnect: (seconds(2), seconds(300)),
            after_refused_login: (seconds(60), seconds(900)),
            logins: (3, seconds(30)),
            dial: seconds(30),
            command: seconds(60),
            fetch: seconds(300),
            idle_renewal: seconds(300),
            idle_done: seconds(15),
            sweep: seconds(600),
        }
    }
}

impl Timing {
    pub(super) fn reconnect(&self) -> Backoff {
        Backoff::new(self.reconnect.0, self.reconnect.1)
    }
}

/// Receives a mailbox's letters until told to stop.
///
/// # Errors
/// What the store says when the daemon must end; trouble with the server is no error here.
pub async fn serve(receiver: Receiver, stop: CancellationToken) -> Result<(), StoreError> {
    let mailbox = Arc::clone(&receiver.mailbox);
    match &mailbox.receive {
        Receive::Maildir(path) => maildir::serve(receiver, path, &stop).await,
        Receive::Imap(_) => {
            receiver.health.is(Activity::Stopped);
            Ok(())
        }
    }
}
