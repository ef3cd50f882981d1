//! How one mailbox fares, for whoever looks: readiness, the panel, the watchdog (email A16).

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::watch;

use crate::store::Cursor;

/// What the task of a mailbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// On its way to the server.
    Connecting,
    /// The server, or the kernel, tells of new letters.
    Idle,
    /// The server is asked every so often.
    Polling,
    /// The server could not be reached; waits before the next attempt.
    Backoff,
    /// The server refuses the login.
    AuthFailed,
    /// Ended.
    Stopped,
}

impl Activity {
    /// The word for lists and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Connecting => "connecting",
            Activity::Idle => "idle",
            Activity::Polling => "polling",
            Activity::Backoff => "backoff",
            Activity::AuthFailed => "auth_failed",
            Activity::Stopped => "stopped",
        }
    }
}

/// A mailbox at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxHealth {
    /// What it does.
    pub activity: Activity,
    /// Selected with its cursor stored, or found unreachable once: a start need not wait for it longer.
    pub settled: bool,
    /// When the server was last asked for letters with success.
    pub last_ok: Option<DateTime<Utc>>,
    /// What went wrong last, without any text of a letter; none since all went well.
    pub last_error: Option<String>,
    /// Where reading goes on; none for a Maildir.
    pub cursor: Option<Cursor>,
}

impl MailboxHealth {
    /// Whether letters were looked for with success within 15 minutes (email A16).
    pub fn is_healthy(&self, now: DateTime<Utc>) -> bool {
        self.last_ok.is_some_and(|at| now.signed_duration_since(at) < chrono::TimeDelta::minutes(15))
    }
}

/// Where a mailbox's task writes how it fares, and others read it. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Health {
    sender: Arc<watch::Sender<MailboxHealth>>,
}

impl Default for Health {
    fn default() -> Self {
        let unknown = MailboxHealth { activity: Activity::Connecting, settled: false, last_ok: None, last_error: None, cursor: None };
        Health { sender: Arc::new(watch::Sender::new(unknown)) }
    }
}

impl Health {
    /// As it is now.
    pub fn now(&self) -> MailboxHealth {
        self.sender.borrow().clone()
    }

    /// Changes as they come.
    pub fn subscribe(&self) -> watch::Receiver<MailboxHealth> {
        self.sender.subscribe()
    }

    /// Resolves once a start need not wait for this mailbox any longer (DESIGN 2.2, READY=1).
    pub async fn settled(&self) {
        let mut changes = self.sender.subscribe();
        // The sender lives as long as `self`, so this cannot end in an error before it is settled.
        drop(changes.wait_for(|health| health.settled).await);
    }

    pub(super) fn is(&self, activity: Activity) {
        self.sender.send_modify(|health| health.activity = activity);
    }

    pub(super) fn settle(&self) {
        self.sender.send_modify(|health| health.settled = true);
    }

    pub(super) fn looked(&self, now: DateTime<Utc>, cursor: Option<Cursor>) {
        self.sender.send_modify(|health| {
            health.last_ok = Some(now);
            health.last_error = None;
            health.cursor = cursor;
        });
    }

    pub(super) fn failed(&self, error: String) {
        self.sender.send_modify(|health| health.last_error = Some(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn settled_resolves_for_a_late_and_an_early_listener() {
        let health = Health::default();
        let early = health.clone();
        let (_, ()) = tokio::join!(early.settled(), async { health.settle() });
        health.settled().await;
    }

    #[test]
    fn email_a16_silence_of_a_quarter_of_an_hour_is_unhealthy() {
        let health = Health::default();
        let now = crate::clock::now();
        assert!(!health.now().is_healthy(now));
        health.looked(now, None);
        assert!(health.now().is_healthy(now + chrono::TimeDelta::minutes(14)));
        assert!(!health.now().is_healthy(now + chrono::TimeDelta::minutes(16)));
    }
}
