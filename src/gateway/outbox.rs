//! The one law for outgoing mail (DESIGN claim 3): who may be written to, what waits for a person, how much
//! may leave. Every letter of this installation is sealed here and nowhere else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::BoxFuture;
use serde_json::json;

use super::compose::{self, Letterhead, compose};
use crate::config::{Agent, Fence, Hold, Mailbox, Settings};
use crate::events::Events;
use crate::mail::{Address, Draft, MessageId, OutgoingKind, Sealed};
use crate::random;
use crate::run::{EventKind, Outbox, OutboxError, OutgoingId, Posted, RunContext};
use crate::store::{QueueOutgoing, Store, StoreError};

/// The most recipients of one letter (email G7).
const RECIPIENTS: usize = 5;

/// The way out for mail.
#[derive(Debug, Clone)]
pub struct GatewayOutbox {
    store: Store,
    events: Events,
}

impl GatewayOutbox {
    /// An outbox that queues into this store.
    pub fn new(store: Store, events: Events) -> GatewayOutbox {
        GatewayOutbox { store, events }
    }

    /// A held letter with another text: same recipients, same subject, same Message-ID (`outbox ID --edit`).
    /// Gives the text as written, and the bytes.
    ///
    /// # Errors
    /// When the new text makes no letter.
    pub fn rewrite(
        &self,
        agent: Option<&Agent>,
        kind: OutgoingKind,
        old: &[u8],
        text: &str,
        now: DateTime<Utc>,
    ) -> Result<(String, Vec<u8>), OutboxError> {
        let unreadable = || OutboxError::Malformed("the letter as it stands cannot be read".to_owned());
        let (draft, message_id) = compose::draft_of(old, kind, text).ok_or_else(unreadable)?;
        let composed = match agent {
            Some(agent) => compose(&draft, letterhead(agent, self.store.install_id()), &message_id, now)?,
            None => compose(&draft, bare_letterhead(&BTreeSet::new(), self.store.install_id()), &message_id, now)?,
        };
        Ok((composed.text, composed.bytes))
    }

    async fn queue(&self, outgoing: QueueOutgoing) -> Result<OutgoingId, OutboxError> {
        let ids = self.store.queue(outgoing).await.map_err(store_failed)?;
        ids.first().copied().ok_or_else(|| OutboxError::Store(anyhow::anyhow!("the store gave no row")))
    }
}

impl Outbox for GatewayOutbox {
    fn seal(&self, context: &RunContext, draft: Draft) -> Result<Sealed, OutboxError> {
        let now = crate::clock::now();
        let mailbox = mailbox_of(&context.agent, &context.settings)?;
        let recipients = allowed_recipients(context, mailbox, &draft)?;
        if !mailbox.own_addresses().chain(&context.agent.addresses).any(|own| *own == draft.from) {
            return Err(OutboxError::Malformed(format!("{} is no address of this agent", draft.from)));
        }
        if counts_as_operator_mail(draft.kind) {
            within_operator_limit(&self.store, &context.settings, now)?;
        }
        let strangers = |recipient: &Address| self.store.has_written_to(recipient).map(|written| !written).map_err(store_failed);
        let held = held_reason(context.agent.outgoing.hold, &context.settings.operator, &recipients, strangers)?;
        let to_operator_only = recipients.iter().all(|recipient| *recipient == context.settings.operator);
        let message_id = MessageId::mint(random::bytes(), mailbox.address.domain());
        let draft = Draft { to: recipients, ..draft };
        let composed = compose(&draft, letterhead(&context.agent, self.store.install_id()), &message_id, now)?;
        Ok(Sealed {
            kind: draft.kind,
            message_id,
            envelope_from: draft.from,
            recipients: draft.to,
            subject: composed.subject,
            text: composed.text,
            bytes: composed.bytes,
            held,
            not_before: if to_operator_only { None } else { delayed(now, context.agent.outgoing.delay) },
            effect_key: draft.effect_key,
        })
    }

    fn post<'a>(&'a self, context: &'a RunContext, draft: Draft) -> BoxFuture<'a, Result<Posted, OutboxError>> {
        Box::pin(async move {
            let mailbox = mailbox_of(&context.agent, &context.settings)?.name.clone();
            let sealed = self.seal(context, draft)?;
            let (fresh, held) = (sealed.message_id.clone(), sealed.held.clone());
            let kind = if held.is_some() { EventKind::OutgoingHeld } else { EventKind::OutgoingQueued };
            let id = self
                .queue(QueueOutgoing {
                    run: Some(context.run.clone()),
                    thread: context.thread,
                    agent: Some(context.agent.name.clone()),
                    mailbox,
                    sealed,
                })
                .await?;
            // Asked for again, the letter is the one that stands there already, not the one just sealed.
            let stored = self.store.outgoing_content(id.0).map_err(store_failed)?;
            let message_id = stored.and_then(|(_, bytes)| compose::message_id(&bytes)).unwrap_or(fresh);
            self.events.emit(Some(&context.run), kind, json!({ "outgoing": id.0 }));
            Ok(Posted { id, message_id, held })
        })
    }
}

/// What became of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It will leave.
    Queued,
    /// The same was told not long ago.
    Known,
    /// It could not be queued now: the store is full, or the operator has got all that he may.
    Later,
    /// It makes no letter.
    Never,
}

/// Word to the operator from outside any run: the same stamps, the same cap, and each thing said once.
#[derive(Debug, Clone)]
pub struct Notices {
    store: Store,
    events: Events,
    settings: Arc<Settings>,
    mailbox: String,
}

impl Notices {
    /// Notices that leave through this mailbox.
    pub fn new(store: Store, events: Events, settings: Arc<Settings>, mailbox: &str) -> Notices {
        Notices { store, events, settings, mailbox: mailbox.to_owned() }
    }

    /// Tells the operator, unless the same `key` was told within `window`. Gives whether a letter was queued;
    /// a failure is logged, since nobody who has something to tell can do anything about it.
    pub async fn tell(&self, key: &str, window: Duration, subject: &str, text: &str) -> bool {
        self.tell_once(key, window, subject, text).await == Told::Queued
    }

    /// The same; says whether it is worth telling again.
    pub async fn tell_once(&self, key: &str, window: Duration, subject: &str, text: &str) -> Told {
        match self.queue(key, window, subject, text).await {
            Ok(true) => Told::Queued,
            Ok(false) => Told::Known,
            Err(error) => {
                let may_pass = matches!(error, OutboxError::Limit(_) | OutboxError::Store(_));
                tracing::warn!(key, error = format!("{:#}", anyhow::Error::from(error)), "a notice could not be queued");
                if may_pass { Told::Later } else { Told::Never }
            }
        }
    }

    async fn queue(&self, key: &str, window: Duration, subject: &str, text: &str) -> Result<bool, OutboxError> {
        let now = crate::clock::now();
        let no_mailbox = || OutboxError::Malformed(format!("there is no mailbox \"{}\"", self.mailbox));
        let mailbox = self.settings.mailboxes.get(&self.mailbox).ok_or_else(no_mailbox)?;
        within_operator_limit(&self.store, &self.settings, now)?;
        if !self.store.notice_due(key, now, window).await.map_err(store_failed)? {
            return Ok(false);
        }
        let draft = Draft {
            kind: OutgoingKind::Notice,
            to: vec![self.settings.operator.clone()],
            from: mailbox.address.clone(),
            subject: subject.to_owned(),
            text: text.to_owned(),
            in_reply_to: None,
            references: Vec::new(),
            effect_key: format!("notice:{key}:{}", now.timestamp_millis()),
        };
        let message_id = MessageId::mint(random::bytes(), mailbox.address.domain());
        let links = BTreeSet::new();
        let composed = compose(&draft, bare_letterhead(&links, self.store.install_id()), &message_id, now)?;
        let sealed = Sealed {
            kind: draft.kind,
            message_id,
            envelope_from: draft.from,
            recipients: draft.to,
            subject: composed.subject,
            text: composed.text,
            bytes: composed.bytes,
            held: None,
            not_before: None,
            effect_key: draft.effect_key,
        };
        let outgoing = QueueOutgoing { run: None, thread: None, agent: None, mailbox: self.mailbox.clone(), sealed };
        let ids = self.store.queue(outgoing).await.map_err(store_failed)?;
        self.events.emit(None, EventKind::OutgoingQueued, json!({ "outgoing": ids.first().map(|id| id.0) }));
        Ok(true)
    }
}

/// The draft's recipients, each once, when every one of them stands inside the fence (email G7, security S6, S15).
fn allowed_recipients(context: &RunContext, mailbox: &Mailbox, draft: &Draft) -> Result<Vec<Address>, OutboxError> {
    let mut recipients: Vec<Address> = Vec::new();
    for recipient in &draft.to {
        if !recipients.contains(recipient) {
            recipients.push(recipient.clone());
        }
    }
    if recipients.is_empty() {
        return Err(OutboxError::NoRecipient);
    }
    if recipients.len() > RECIPIENTS {
        return Err(OutboxError::Limit("recipients of one letter"));
    }
    let allowed = inside_fence(context, mailbox, draft.kind);
    match recipients.iter().find(|recipient| !allowed.contains(*recipient)) {
        Some(outside) => Err(OutboxError::OutsideFence(outside.clone())),
        None => Ok(recipients),
    }
}

/// Whom a letter of this kind may reach. A reply or question of the run itself goes back where the run came
/// from; only what a tool asks for is widened by the agent's contacts.
fn inside_fence(context: &RunContext, mailbox: &Mailbox, kind: OutgoingKind) -> BTreeSet<Address> {
    let operator = &context.settings.operator;
    // A letter to ourselves would be our own echo (email F6, E10).
    let own = |address: &&Address| !mailbox.own_addresses().chain(&context.agent.addresses).any(|own| own == *address);
    let answered = context.party.reply_to.iter();
    let thread = || answered.clone().chain(&context.party.participants).filter(own).cloned();
    let fenced = || {
        let mut allowed = BTreeSet::new();
        for entry in &context.agent.outgoing.recipients {
            match entry {
                Fence::Thread => allowed.extend(thread()),
                Fence::Operator => allowed.extend([operator.clone()]),
                Fence::Contact(name) => allowed.extend(context.settings.contacts.get(name).map(|contact| contact.address.clone())),
            }
        }
        allowed
    };
    match kind {
        OutgoingKind::Reply => thread().collect(),
        OutgoingKind::Question => thread().chain([operator.clone()]).collect(),
        OutgoingKind::Notice => BTreeSet::from([operator.clone()]),
        OutgoingKind::Tool => fenced(),
        OutgoingKind::Report => fenced().into_iter().chain([operator.clone()]).collect(),
    }
}

/// Why a letter waits for a person, if it does. Word to the operator alone never waits for the operator.
fn held_reason(
    hold: Hold,
    operator: &Address,
    recipients: &[Address],
    is_stranger: impl Fn(&Address) -> Result<bool, OutboxError>,
) -> Result<Option<String>, OutboxError> {
    let mut others = recipients.iter().filter(|recipient| *recipient != operator);
    match hold {
        Hold::Never => Ok(None),
        Hold::Always => Ok(others.next().map(|_| "hold: always".to_owned())),
        Hold::FirstContact => {
            for recipient in others {
                if is_stranger(recipient)? {
                    return Ok(Some("hold: first_contact".to_owned()));
                }
            }
            Ok(None)
        }
    }
}

fn counts_as_operator_mail(kind: OutgoingKind) -> bool {
    match kind {
        OutgoingKind::Report | OutgoingKind::Question | OutgoingKind::Notice => true,
        OutgoingKind::Reply | OutgoingKind::Tool => false,
    }
}

fn within_operator_limit(store: &Store, settings: &Settings, now: DateTime<Utc>) -> Result<(), OutboxError> {
    let queued = store.operator_mails_since(now - TimeDelta::hours(1)).map_err(store_failed)?;
    if queued < settings.limits.operator_mails_per_hour { Ok(()) } else { Err(OutboxError::Limit("operator_mails_per_hour")) }
}

fn mailbox_of<'a>(agent: &Agent, settings: &'a Settings) -> Result<&'a Mailbox, OutboxError> {
    let found = agent.mailbox.as_ref().and_then(|name| settings.mailboxes.get(name));
    found.ok_or_else(|| OutboxError::Malformed(format!("the agent \"{}\" has no mailbox to send from", agent.name)))
}

fn letterhead<'a>(agent: &'a Agent, install_id: &'a str) -> Letterhead<'a> {
    Letterhead {
        display_name: agent.display_name.as_deref(),
        signature: agent.signature.as_deref(),
        links: &agent.outgoing.links,
        install_id,
    }
}

fn bare_letterhead<'a>(links: &'a BTreeSet<String>, install_id: &'a str) -> Letterhead<'a> {
    Letterhead { display_name: Some("Dutiful"), signature: None, links, install_id }
}

fn delayed(now: DateTime<Utc>, delay: Duration) -> Option<DateTime<Utc>> {
    if delay.is_zero() { None } else { TimeDelta::from_std(delay).ok().and_then(|delay| now.checked_add_signed(delay)) }
}

fn store_failed(error: StoreError) -> OutboxError {
    OutboxError::Store(error.into())
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
