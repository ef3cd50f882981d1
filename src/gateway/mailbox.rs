//! One mailbox's parts put together: receiving, sending, and the copies in its Sent folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::admit::{Admission, Border};
use super::imap::{self, Account};
use super::parse::{ParseCaps, parse, stable_hash};
use super::receive::{self, Health, Intake, Judge, RawLetter, Receiver, SentFolder, Timing};
use super::send::{self, LookForSent, Sender};
use crate::config::{Agent, Mailbox, Receive, Settings};
use crate::events::{Alert, Event, Events};
use crate::random;
use crate::run::EventKind;
use crate::store::{Decide, Incoming, Store, StoreError};

/// Everything that one mailbox's tasks share.
pub struct MailboxGateway {
    /// The mailbox.
    pub mailbox: Arc<Mailbox>,
    /// The settings that it stands in.
    pub settings: Arc<Settings>,
    /// All agents.
    pub agents: BTreeMap<String, Arc<Agent>>,
    /// The store.
    pub store: Store,
    /// Who is told of letters.
    pub events: Events,
    /// Who is told of trouble.
    pub alert: Alert,
    /// TLS with the mailbox's `ca_file`.
    pub tls: Arc<rustls::ClientConfig>,
    /// How it fares.
    pub health: Health,
}

impl fmt::Debug for MailboxGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxGateway").field("mailbox", &self.mailbox.name).finish_non_exhaustive()
    }
}

impl MailboxGateway {
    /// Receives until told to stop.
    ///
    /// # Errors
    /// When the store failed.
    pub async fn receive(self: Arc<Self>, stop: CancellationToken) -> Result<(), StoreError> {
        let intake = Intake::new(self.store.clone(), self.judge(), self.events.clone(), Arc::clone(&self.alert));
        let receiver = Receiver {
            mailbox: Arc::clone(&self.mailbox),
            limits: self.settings.limits.clone(),
            intake,
            health: self.health.clone(),
            tls: Arc::clone(&self.tls),
            home: self.settings.home.clone(),
            timing: Timing::default(),
        };
        receive::serve(receiver, stop).await
    }

    /// Sends until told to stop.
    pub async fn send(self: Arc<Self>, stop: CancellationToken) {
        let mailbox = self.mailbox.as_ref().clone();
        let sender = Sender::new(self.store.clone(), self.events.clone(), Arc::clone(&self.settings), mailbox, Arc::clone(&self.tls));
        let sender = match self.sent_folder() {
            Some(folder) => sender.looking_with(look_into(folder)),
            None => sender,
        };
        let warm = sender.warm();
        let mine = |event: &Event| event.data.get("mailbox").and_then(Value::as_str) == Some(self.mailbox.name.as_str());
        // While the model thinks, the connection for its answer is opened (DESIGN 3).
        let began = self.on_each(EventKind::RunStarted, |event| {
            if event.is_none_or(mine) {
                warm.notify_one()
            }
        });
        tokio::select! {
            () = send::serve(sender, stop) => {}
            () = began => {}
        }
    }

    /// Does something at each event of a kind, and once when events were lost. Never ends by itself.
    async fn on_each(&self, kind: EventKind, act: impl Fn(Option<&Event>)) {
        let mut events = self.events.subscribe();
        loop {
            match events.recv().await {
                Ok(event) if event.kind == kind => act(Some(&event)),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => act(None),
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    /// Keeps the Sent folder complete until told to stop, where there is one.
    ///
    /// # Errors
    /// When the store failed.
    pub async fn copy(self: Arc<Self>, stop: CancellationToken) -> Result<(), StoreError> {
        let Some(folder) = self.sent_folder() else {
            stop.cancelled().await;
            return Ok(());
        };
        let nudged = folder.clone();
        tokio::select! {
            done = folder.serve(self.store.clone(), stop) => done,
            () = self.on_each(EventKind::OutgoingSent, |_| nudged.nudge()) => Ok(()),
        }
    }

    fn sent_folder(&self) -> Option<SentFolder> {
        SentFolder::of(&self.mailbox, Arc::clone(&self.tls), self.settings.home.clone(), Timing::default())
    }

    /// Parses a letter and prepares its verdict.
    fn judge(&self) -> Judge {
        let border = Arc::new(Border {
            mailbox: self.mailbox.as_ref().clone(),
            agents: self.agents.clone(),
            limits: self.settings.limits.clone(),
            install_id: self.store.install_id().to_owned(),
        });
        let caps = ParseCaps::with_letter_bytes(self.settings.limits.letter_bytes);
        Arc::new(move |letter| judged(&border, &caps, letter))
    }
}

fn judged(border: &Arc<Border>, caps: &ParseCaps, letter: RawLetter) -> (Incoming, Decide) {
    let parsed = parse(&letter.raw, caps);
    let incoming = Incoming {
        sha256: stable_hash(&letter.raw),
        parsed: parsed.as_ref().ok().map(|parsed| parsed.inbound.clone()),
        nonce: nonce(),
        mailbox: letter.mailbox,
        folder: letter.folder,
        position: letter.position,
        follows: None,
        raw: letter.raw,
        received_at: letter.received_at,
    };
    let admission = Admission { border: Arc::clone(border), letter: parsed };
    (incoming, Box::new(move |standing| admission.decide(standing)))
}

/// The delimiter of a letter's wrapping: 64 random bits, minted once and kept with it (harness UC1).
fn nonce() -> String {
    format!("{:016x}", u64::from_be_bytes(random::bytes()))
}

fn look_into(folder: SentFolder) -> LookForSent {
    Arc::new(move |message_id| {
        let folder = folder.clone();
        Box::pin(async move { Ok(folder.holds(&message_id).await?) })
    })
}

/// Logs in where letters come from, and out again (`check --online`).
///
/// # Errors
/// What the server, or the way to it, says.
pub async fn try_receiving(mailbox: &Mailbox, home: &Path, tls: &Arc<rustls::ClientConfig>) -> anyhow::Result<()> {
    match &mailbox.receive {
        Receive::Maildir(path) => {
            // What is missing, `serve` makes.
            anyhow::ensure!(path.is_dir() || !path.exists(), "{} is no folder", path.display());
            Ok(())
        }
        Receive::Imap(server) => {
            let account = Account::of(mailbox, server, Arc::clone(tls), PathBuf::from(home), Timing::default());
            let mut session = imap::connect(&account).await?;
            session.select(&mailbox.folder, true).await?;
            session.logout().await;
            Ok(())
        }
    }
}
