//! The task of one mailbox: receives until told to stop, whatever the server does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, LoginPace, jittered};
use super::health::{Activity, Health};
use super::intake::{Intake, alert_key};
use super::maildir;
use super::sweep::{Folder, SweepError};
use crate::config::{Limits, Mailbox, Receive};
use crate::gateway::imap::{self, Account, ImapError, Session, Woken};
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
    /// The greeting, and the dialogue before STARTTLS: each.
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

    /// While the store cannot be written: short, since nobody else is burdened (security R8).
    pub(super) fn store_retry(&self) -> Backoff {
        Backoff::new(self.reconnect.0.min(Duration::from_secs(1)), self.reconnect.1.min(Duration::from_secs(5)))
    }
}

/// Receives a mailbox's letters until told to stop.
///
/// # Errors
/// What the store says when the daemon must end; trouble with the server is no error here.
pub async fn serve(receiver: Receiver, stop: CancellationToken) -> Result<(), StoreError> {
    let mailbox = Arc::clone(&receiver.mailbox);
    let health = receiver.health.clone();
    let ended = match &mailbox.receive {
        Receive::Maildir(path) => maildir::serve(receiver, path, &stop).await,
        Receive::Imap(server) => {
            let account = Account::of(&mailbox, server, Arc::clone(&receiver.tls), receiver.home.clone(), receiver.timing.clone());
            Watcher::new(receiver, account).serve(&stop).await
        }
    };
    health.is(Activity::Stopped);
    ended
}

/// The watch over one IMAP folder, session after session.
struct Watcher {
    receiver: Receiver,
    account: Account,
    folder: Folder,
    /// IDLE was refused once: this server is polled.
    idle_refused: bool,
    reconnect: Backoff,
    after_refused_login: Backoff,
    pace: LoginPace,
    failing_since: Option<Instant>,
    told_of_silence: bool,
}

impl Watcher {
    fn new(receiver: Receiver, account: Account) -> Watcher {
        let timing = &receiver.timing;
        Watcher {
            reconnect: timing.reconnect(),
            after_refused_login: Backoff::new(timing.after_refused_login.0, timing.after_refused_login.1),
            pace: LoginPace::new(timing.logins.0, timing.logins.1),
            folder: Folder::default(),
            idle_refused: false,
            failing_since: None,
            told_of_silence: false,
            receiver,
            account,
        }
    }

    async fn serve(mut self, stop: &CancellationToken) -> Result<(), StoreError> {
        while !stop.is_cancelled() {
            self.receiver.health.is(Activity::Connecting);
            let pause = self.pace.next(Instant::now());
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            let began = Instant::now();
            let ended = tokio::select! {
                ended = self.session(stop) => ended,
                () = grace(stop) => Ok(()),
            };
            let Err(error) = ended else { break };
            let pause = self.after(error, began)?;
            self.receiver.health.settle();
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(())
    }

    /// One session, from the connection to its end: Ok when told to stop.
    async fn session(&mut self, stop: &CancellationToken) -> Result<(), SweepError> {
        let mut session = tokio::select! {
            session = imap::connect(&self.account) => session?,
            () = stop.cancelled() => return Ok(()),
        };
        self.after_refused_login.reset();
        let mut pause = self.receiver.timing.store_retry();
        loop {
            match self.watch(&mut session, stop).await {
                // The server is not to blame: the session is kept, and looking begins anew (email J4).
                Err(SweepError::Again(reason)) => {
                    self.receiver.health.failed(reason);
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        () = tokio::time::sleep(pause.after_failure()) => {}
                    }
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    session.logout().await;
                    return Ok(());
                }
            }
        }
    }

    /// Looks and waits in turn, until told to stop.
    async fn watch(&mut self, session: &mut Session, stop: &CancellationToken) -> Result<(), SweepError> {
        self.folder.begin(session, &mut self.receiver).await?;
        self.reached();
        let mut again = 0;
        loop {
            self.folder.sweep(session, &mut self.receiver, stop).await?;
            self.receiver.intake.trust();
            self.reached();
            self.folder.mark(session, &self.receiver).await?;
            again = if session.has_news() { again + 1 } else { 0 };
            // A server that always tells of news must not keep us from waiting.
            if (1..4).contains(&again) && !stop.is_cancelled() {
                continue;
            }
            if stop.is_cancelled() || self.wait(session, stop).await? == Woken::Stopped {
                return Ok(());
            }
        }
    }

    /// The folder was looked into with success.
    fn reached(&mut self) {
        self.failing_since = None;
        self.told_of_silence = false;
        self.receiver.health.looked(crate::clock::now(), self.folder.cursor);
        self.receiver.health.settle();
    }

    /// Waits until it is time to look again.
    async fn wait(&mut self, session: &mut Session, stop: &CancellationToken) -> Result<Woken, SweepError> {
        let mailbox = &self.receiver.mailbox;
        if session.offers("IDLE") && !self.idle_refused {
            self.receiver.health.is(Activity::Idle);
            let until = Instant::now() + mailbox.poll.min(self.receiver.timing.sweep);
            match session.idle(until, stop).await {
                Ok(Woken::Refused) => {}
                // Some servers fall silent, or answer garbage, where others say NO: polled from now on.
                Err(error @ ImapError::Late { step: "IDLE", .. }) => {
                    self.idle_refused = true;
                    return Err(error.into());
                }
                woken => return Ok(woken?),
            }
            tracing::info!(mailbox = mailbox.name, "IDLE is refused: polling");
            self.idle_refused = true;
        }
        self.receiver.health.is(Activity::Polling);
        tokio::select! {
            () = stop.cancelled() => return Ok(Woken::Stopped),
            () = tokio::time::sleep(jittered(mailbox.poll, 10)) => {}
        }
        session.noop().await?;
        Ok(Woken::Due)
    }

    /// What the end of a session means: how long to wait before the next.
    fn after(&mut self, error: SweepError, began: Instant) -> Result<Duration, StoreError> {
        let (text, login) = match error {
            SweepError::Store(error) => return Err(error),
            SweepError::Imap(error) => (error.to_string(), matches!(error, ImapError::Login(_))),
            SweepError::Again(reason) => (reason, false),
            SweepError::Unusable(reason) => (reason.to_owned(), false),
        };
        tracing::warn!(mailbox = self.receiver.mailbox.name, error = text, "receiving was interrupted");
        self.receiver.health.failed(text.clone());
        if login {
            self.receiver.health.is(Activity::AuthFailed);
            let pause = self.after_refused_login.after_failure();
            // One refusal may be a hiccup of the server (email A12).
            if self.after_refused_login.failures() == 2 {
                self.alert("login", "A mailbox refuses our login", &text);
            }
            return Ok(pause);
        }
        self.receiver.health.is(Activity::Backoff);
        // A server that takes the login and then drops us must not be reconnected to at once for ever (email A11).
        if self.folder.take_kept() > 0 || began.elapsed() > Duration::from_secs(60) {
            self.reconnect.reset();
        }
        let since = *self.failing_since.get_or_insert(began);
        if since.elapsed() > self.receiver.limits.alarm_after && !self.told_of_silence {
            self.told_of_silence = true;
            self.alert("unreachable", "A mailbox cannot be reached", &text);
        }
        Ok(self.reconnect.after_failure())
    }

    fn alert(&self, what: &str, subject: &str, error: &str) {
        let mailbox = &self.receiver.mailbox;
        let text = format!("The mailbox \"{}\" receives nothing: {error}.\nIt is tried again by itself.", mailbox.name);
        (self.receiver.intake.alert)(alert_key(what, mailbox), subject.to_owned(), text);
    }
}

/// Resolves when a session was told to stop and did not end by itself in time (email A15).
async fn grace(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
