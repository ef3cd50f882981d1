//! The Sent folder of a mailbox: copies of sent letters go in (email G14), and the sender looks there for
//! a letter whose acknowledgement was lost (email G9). On connections of its own: receiving never waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::serve::Timing;
use crate::config::{Mailbox, Receive, Send, SentCopy};
use crate::gateway::imap::{self, Account, ImapError, Session};
use crate::mail::MessageId;
use crate::store::{ClaimedOutgoing, Store, StoreError};

/// How often it is looked for sent letters without a copy, besides being nudged.
const EVERY: Duration = Duration::from_secs(30);
/// How long sent letters are gathered once one is there: copies are for people, who look later, and must not take a
/// server's time from the answers of the same burst, nor a login for each letter.
const GATHER: Duration = Duration::from_secs(3);
/// Copies made on one connection.
const TOGETHER: usize = 50;

/// Submission servers that keep a copy by themselves (email G14).
const KEEP_COPIES: [&str; 5] = ["gmail.com", "googlemail.com", "office365.com", "outlook.com", "live.com"];

/// A mailbox's Sent folder. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct SentFolder {
    mailbox: Arc<Mailbox>,
    account: Arc<Account>,
    sent: Arc<Notify>,
}

impl SentFolder {
    /// The Sent folder of a mailbox; none when its letters do not come by IMAP.
    pub fn of(mailbox: &Arc<Mailbox>, tls: Arc<rustls::ClientConfig>, home: std::path::PathBuf, timing: Timing) -> Option<SentFolder> {
        let Receive::Imap(server) = &mailbox.receive else { return None };
        let account = Account::of(mailbox, server, tls, home, timing);
        Some(SentFolder { mailbox: Arc::clone(mailbox), account: Arc::new(account), sent: Arc::new(Notify::new()) })
    }

    /// Says that a letter was sent: its copy is made soon.
    pub fn nudge(&self) {
        self.sent.notify_one();
    }

    /// Whether the Sent folder, or the watched one, holds a letter with this Message-ID.
    ///
    /// # Errors
    /// When it could not be found out.
    pub async fn holds(&self, message_id: &MessageId) -> Result<bool, ImapError> {
        let mut session = imap::connect(&self.account).await?;
        let held = self.look_for(&mut session, message_id).await;
        session.logout().await;
        held
    }

    async fn look_for(&self, session: &mut Session, message_id: &MessageId) -> Result<bool, ImapError> {
        if let Some(folder) = session.sent_folder().await? {
            session.examine_listed(&folder).await?;
            if session.holds(message_id).await? {
                return Ok(true);
            }
        }
        session.select(&self.mailbox.folder, true).await?;
        session.holds(message_id).await
    }

    /// Makes copies of sent letters until told to stop.
    ///
    /// # Errors
    /// What the store says when the daemon must end; trouble with the server is no error here.
    pub async fn serve(self, store: Store, stop: CancellationToken) -> Result<(), StoreError> {
        let mut backoff = self.account.timing.reconnect();
        while !stop.is_cancelled() {
            let pause = match self.copy_all(&store).await {
                Ok(()) => {
                    backoff.reset();
                    EVERY
                }
                Err(CopyError::Imap(error)) => {
                    tracing::warn!(mailbox = self.mailbox.name, %error, "copies of sent letters could not be made");
                    backoff.after_failure().max(EVERY)
                }
                Err(CopyError::Store(StoreError::Retry(error))) => {
                    tracing::warn!(mailbox = self.mailbox.name, error, "copies of sent letters wait for the store");
                    backoff.after_failure()
                }
                Err(CopyError::Store(error)) => return Err(error),
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.gathered(), if backoff.failures() == 0 => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(())
    }

    /// Resolves some time after a letter was sent.
    async fn gathered(&self) {
        self.sent.notified().await;
        tokio::time::sleep(GATHER).await;
    }

    async fn copy_all(&self, store: &Store) -> Result<(), CopyError> {
        loop {
            let waiting = store.without_copy(&self.mailbox.name, TOGETHER).await?;
            if waiting.is_empty() {
                return Ok(());
            }
            if wants_copies(&self.mailbox) {
                let mut session = imap::connect(&self.account).await?;
                let copied = self.copy(&mut session, store, &waiting).await;
                session.logout().await;
                copied?;
            } else {
                for letter in &waiting {
                    store.copied(letter.id).await?;
                }
            }
        }
    }

    /// Puts each letter into the Sent folder unless it is there: a crash between the two notes repeats it
    /// without a second copy.
    async fn copy(&self, session: &mut Session, store: &Store, waiting: &[ClaimedOutgoing]) -> Result<(), CopyError> {
        let Some(folder) = session.sent_folder().await? else {
            tracing::warn!(mailbox = self.mailbox.name, "no Sent folder: no copies");
            for letter in waiting {
                store.copied(letter.id).await?;
            }
            return Ok(());
        };
        session.examine_listed(&folder).await?;
        for letter in waiting {
            if !session.holds(&letter.message_id).await? {
                session.append_listed(&folder, &letter.bytes).await?;
            }
            store.copied(letter.id).await?;
            tracing::info!(mailbox = self.mailbox.name, outgoing = letter.id.0, bytes = letter.bytes.len(), "copied to the Sent folder");
        }
        Ok(())
    }
}

enum CopyError {
    Imap(ImapError),
    Store(StoreError),
}

impl From<ImapError> for CopyError {
    fn from(error: ImapError) -> Self {
        CopyError::Imap(error)
    }
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        CopyError::Store(error)
    }
}

/// Whether this mailbox's sent letters are copied by us.
pub(super) fn wants_copies(mailbox: &Mailbox) -> bool {
    match mailbox.sent_copy {
        SentCopy::On => true,
        SentCopy::Off => false,
        SentCopy::Auto => match &mailbox.send {
            Send::Smtp(server) => {
                let host = server.host.to_ascii_lowercase();
                !KEEP_COPIES.iter().any(|kept| host == *kept || host.strip_suffix(kept).is_some_and(|rest| rest.ends_with('.')))
            }
            Send::Sendmail(_) | Send::Maildir(_) => true,
        },
    }
}
