//! The task that empties a mailbox's outbox: claim, send, settle at once; pause when the server is away;
//! look into letters that are in doubt (email G9-G13).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::deliver_local::{self, Delivered};
use super::ladder::{self, Queue, Rest, judge};
use super::smtp::{Outcome, Patience, Server, Session};
use crate::config::{Mailbox, OnUncertain, Send as Way, Settings};
use crate::events::Events;
use crate::gateway::login::login_for;
use crate::gateway::outbox::Notices;
use crate::mail::{MessageId, OutgoingKind};
use crate::run::EventKind;
use crate::store::{ClaimedOutgoing, Sent, Store, StoreError};

/// How many letters a lane sends before it looks after those in doubt again.
const LETTERS_A_ROUND: usize = 16;

/// Nothing is waited for longer, whatever was or was not announced.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// When a doubtful letter is looked into again because the Sent folder could not be read.
const LOOK_AGAIN: chrono::TimeDelta = chrono::TimeDelta::minutes(1);

/// How long a look may take.
const LOOK_TIME: Duration = Duration::from_secs(60);

/// How often the operator is told the same about a mailbox.
const TELL_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Looks for a Message-ID in the mailbox's Sent folder and inbox; an error when they cannot be read.
pub type LookForSent = Arc<dyn Fn(MessageId) -> BoxFuture<'static, anyhow::Result<bool>> + Send + Sync>;

/// Sends the letters of one mailbox.
pub struct Sender {
    store: Store,
    events: Events,
    settings: Arc<Settings>,
    mailbox: Mailbox,
    tls: Arc<ClientConfig>,
    notices: Notices,
    look: Option<LookForSent>,
    patience: Patience,
    warm: Arc<Notify>,
    overflow: Notify,
    /// The first lane has letters in hand: the second listens for it meanwhile.
    first_is_busy: AtomicBool,
    health: Mutex<Health>,
}

/// Whether letters flow, as all lanes of a mailbox see it.
#[derive(Debug, Default)]
struct Health {
    failures: u32,
    rests_until: Option<Instant>,
    unreachable_since: Option<Instant>,
}

impl Health {
    /// Begins a pause. Gives how long it is, and for how long the server has been unreachable.
    fn note_failure(&mut self, rest: &Rest) -> (Duration, Duration) {
        let now = Instant::now();
        self.failures = self.failures.saturating_add(1);
        let pause = ladder::pause(rest, self.failures);
        self.rests_until = Some(now + pause);
        let since = match rest {
            Rest::Unreachable(_) => *self.unreachable_since.get_or_insert(now),
            Rest::Login(_) | Rest::Quota(_) => now,
        };
        (pause, now.saturating_duration_since(since))
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("mailbox", &self.mailbox.name).finish_non_exhaustive()
    }
}

impl Sender {
    /// A sender for one mailbox. `look` is none where there is no folder to look into.
    pub fn new(store: Store, events: Events, settings: Arc<Settings>, mailbox: Mailbox, tls: Arc<ClientConfig>) -> Sender {
        let notices = Notices::new(store.clone(), events.clone(), Arc::clone(&settings), &mailbox.name);
        Sender {
            store,
            events,
            settings,
            mailbox,
            tls,
            notices,
            look: None,
            patience: Patience::default(),
            warm: Arc::new(Notify::new()),
            overflow: Notify::new(),
            first_is_busy: AtomicBool::new(false),
            health: Mutex::default(),
        }
    }

    /// Lets doubtful letters be looked for (email G9).
    #[must_use]
    pub fn looking_with(mut self, look: LookForSent) -> Sender {
        self.look = Some(look);
        self
    }

    /// Notified, it opens the connection that a coming letter will need: while the model still thinks.
    pub fn warm(&self) -> Arc<Notify> {
        Arc::clone(&self.warm)
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rests_until(&self) -> Option<Instant> {
        self.health().rests_until.filter(|until| *until > Instant::now())
    }
}

/// Sends until stopped; the letter in hand is finished first. Ends early only when the store has failed.
pub async fn serve(sender: Sender, stop: CancellationToken) {
    while let Err(error) = sender.store.doubt_owned(&sender.mailbox.name, crate::clock::now()).await {
        if retry_or_fail("doubt_owned", &error).await.is_err() || stop.is_cancelled() {
            return;
        }
    }
    let first = Lane { sender: &sender, session: None, first: true };
    let second = Lane { sender: &sender, session: None, first: false };
    futures_util::future::join(first.run(&stop), second.run(&stop)).await;
}

/// The store will not take what must be recorded: stop sending.
#[derive(Debug)]
struct StoreFailed;

/// One connection's worth of sending. The first lane also looks after what is in doubt; the second helps
/// when there is more than one letter.
struct Lane<'a> {
    sender: &'a Sender,
    session: Option<Session>,
    first: bool,
}

impl Lane<'_> {
    async fn run(mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            // Listening begins before looking, so a letter queued in between is not missed.
            let waiting = self.sender.store.outgoing_waiting().notified();
            tokio::pin!(waiting);
            if self.first {
                waiting.as_mut().enable();
                self.sender.first_is_busy.store(true, Ordering::Relaxed);
            }
            let worked = self.work(stop).await;
            if self.first {
                self.sender.first_is_busy.store(false, Ordering::Relaxed);
            }
            match worked {
                Ok(0) => {}
                Ok(_) => continue,
                Err(StoreFailed) => break,
            }
            let longest = self.wait_limit().await;
            let expiry = self.session.as_ref().map_or_else(Instant::now, Session::expires_at);
            tokio::select! {
                () = stop.cancelled() => break,
                () = &mut waiting, if self.first => {}
                () = self.sender.warm.notified(), if self.first => self.warm_up().await,
                () = self.sender.overflow.notified(), if !self.first => {}
                () = sleep(longest) => {}
                () = sleep_until(expiry), if self.session.is_some() => self.hang_up().await,
            }
        }
        self.hang_up().await;
    }

    /// One round: doubtful letters, then due ones. Gives how many letters were dealt with. A lane owns one
    /// letter at a time, since what a crash finds owned is in doubt; settling one and claiming the next
    /// shares a commit.
    async fn work(&mut self, stop: &CancellationToken) -> Result<usize, StoreFailed> {
        if !self.first && !self.sender.first_is_busy.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let mut count = if self.first { self.look_into_doubtful(stop).await? } else { 0 };
        if stop.is_cancelled() || self.sender.rests_until().is_some() || !self.is_any_due().await {
            return Ok(count);
        }
        // The connection comes first, so that a letter is owned only while it is handed over.
        let mut unready = self.ready_session().await.err();
        let last = count + LETTERS_A_ROUND;
        let mut next = self.claim().await?;
        if self.first && next.is_some() {
            self.sender.overflow.notify_one();
        }
        while let Some(letter) = next {
            count += 1;
            let sent = if stop.is_cancelled() || self.sender.rests_until().is_some() {
                Sent::Unreached { at: crate::clock::now(), error: "not tried".to_owned() }
            } else {
                self.attempt(&letter, unready.take()).await
            };
            let goes_on = count < last && !stop.is_cancelled() && self.sender.rests_until().is_none();
            let claim = async { if goes_on { self.claim().await } else { Ok(None) } };
            let (settled, claimed) = futures_util::future::join(self.settle(&letter, sent, stop), claim).await;
            settled?;
            next = claimed?;
        }
        Ok(count)
    }

    async fn is_any_due(&self) -> bool {
        matches!(self.sender.store.outgoing_due(&self.sender.mailbox.name).await, Ok(Some(due)) if due <= crate::clock::now())
    }

    async fn claim(&self) -> Result<Option<ClaimedOutgoing>, StoreFailed> {
        match self.sender.store.claim_outgoing(&self.sender.mailbox.name, crate::clock::now(), 1).await {
            Ok(claimed) => Ok(claimed.into_iter().next()),
            Err(error) => retry_or_fail("claim", &error).await.map(|()| None),
        }
    }

    /// How long nothing can happen by itself.
    async fn wait_limit(&self) -> Duration {
        if !self.first {
            return LONGEST_WAIT;
        }
        if let Some(until) = self.sender.rests_until() {
            return until.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
        }
        match self.sender.store.outgoing_due(&self.sender.mailbox.name).await {
            // Due, yet not claimed: it waits for something that is announced, its thread or a switch.
            Ok(Some(due)) => {
                (due - crate::clock::now()).to_std().ok().filter(|wait| !wait.is_zero()).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
            }
            Ok(None) | Err(_) => LONGEST_WAIT,
        }
    }

    async fn attempt(&mut self, letter: &ClaimedOutgoing, unready: Option<Outcome>) -> Sent {
        let queue_age = self.sender.settings.limits.queue_age;
        let delivered = match &self.sender.mailbox.send {
            Way::Smtp(_) => {
                let outcome = match unready {
                    Some(outcome) => outcome,
                    None => self.send_by_smtp(letter).await,
                };
                let judged = judge(outcome, letter, queue_age, crate::clock::now());
                self.note_health(judged.queue).await;
                return judged.sent;
            }
            Way::Maildir(folder) => deliver_local::maildir(folder, letter).await,
            Way::Sendmail(program) => deliver_local::sendmail(program, letter).await,
        };
        match delivered {
            Delivered::Accepted => Sent::Accepted,
            Delivered::Later(error) => ladder::later(error, letter, queue_age, crate::clock::now()),
            Delivered::Refused(error) => Sent::Failed { error },
            Delivered::Uncertain(error) => judge(Outcome::Uncertain(error), letter, queue_age, crate::clock::now()).sent,
        }
    }

    async fn send_by_smtp(&mut self, letter: &ClaimedOutgoing) -> Outcome {
        if let Err(outcome) = self.ready_session().await {
            return outcome;
        }
        match &mut self.session {
            Some(session) => session.send(letter).await,
            None => Outcome::Unreachable("there is no connection".to_owned()),
        }
    }

    /// Keeps the connection if it still answers, else opens one (email G13).
    async fn ready_session(&mut self) -> Result<(), Outcome> {
        if let Some(mut session) = self.session.take()
            && session.is_ready().await
        {
            self.session = Some(session);
            return Ok(());
        }
        let Way::Smtp(address) = &self.sender.mailbox.send else { return Ok(()) };
        let login = login_for(&self.sender.mailbox, &self.sender.settings.home).await.map_err(Outcome::LoginRefused)?;
        let hello = self.sender.mailbox.address.domain();
        let server = Server { address, tls: &self.sender.tls, hello, patience: self.sender.patience };
        self.session = Some(Box::pin(Session::open(&server, login.as_ref())).await?);
        Ok(())
    }

    /// Opens the connection ahead of a letter. A failure says nothing yet: the letter will meet it.
    async fn warm_up(&mut self) {
        if self.sender.rests_until().is_none()
            && let Err(outcome) = self.ready_session().await
        {
            tracing::debug!(mailbox = self.sender.mailbox.name, ?outcome, "no connection ahead of a letter");
        }
    }

    async fn hang_up(&mut self) {
        if let Some(session) = self.session.take() {
            session.quit().await;
        }
    }

    /// Remembers whether the server is there, and tells the operator once what only a person can mend.
    async fn note_health(&self, queue: Queue) {
        let mailbox = &self.sender.mailbox.name;
        let rest = match queue {
            Queue::Flows => {
                let mut health = self.sender.health();
                if health.failures > 0 {
                    tracing::info!(mailbox, "sending again");
                }
                *health = Health::default();
                return;
            }
            Queue::Rests(rest) => rest,
        };
        let (pause, away) = self.sender.health().note_failure(&rest);
        // What a server says may name people: not above DEBUG (email K1).
        tracing::warn!(mailbox, seconds = pause.as_secs(), reason = rest.word(), "sending pauses");
        tracing::debug!(mailbox, ?rest, "sending pauses");
        let (key, what, reason) = match rest {
            Rest::Unreachable(_) if away < self.sender.settings.limits.alarm_after => return,
            Rest::Unreachable(reason) => ("unreachable", "the server cannot be reached", reason),
            Rest::Login(reason) => ("login", "the server refuses the login", reason),
            Rest::Quota(reason) => ("quota", "the account may send no more for now", reason),
        };
        let text = format!(
            "Letters of the mailbox {mailbox} wait: {what}.\n\nWhat was seen: {reason}\n\nThey leave by themselves once that is mended."
        );
        self.sender.notices.tell(&format!("send.{key}:{mailbox}"), TELL_WINDOW, &format!("Mailbox {mailbox} cannot send"), &text).await;
    }

    /// Records what became of a letter before anything else is done (the SMTP-ack window).
    async fn settle(&self, letter: &ClaimedOutgoing, sent: Sent, stop: &CancellationToken) -> Result<(), StoreFailed> {
        loop {
            match self.sender.store.settle(letter.id, sent.clone(), crate::clock::now()).await {
                Ok(()) => break,
                // Somebody has decided about a letter in doubt meanwhile.
                Err(StoreError::Superseded) => return Ok(()),
                // A fault of ours would not go away by asking again. The letter stays owned, and is looked into
                // as doubtful at the next start.
                Err(error @ StoreError::Fault(_)) => {
                    tracing::error!(outgoing = letter.id.0, %error, "a letter could not be settled");
                    return Ok(());
                }
                Err(error) => retry_or_fail("settle", &error).await?,
            }
            if stop.is_cancelled() {
                return Err(StoreFailed);
            }
        }
        self.announce(letter, &sent);
        if let Some((subject, text)) = word_to_operator(letter, &sent) {
            let key = format!("outgoing:{}", letter.id);
            self.sender.notices.tell(&key, TELL_WINDOW, &subject, &text).await;
        }
        Ok(())
    }

    fn announce(&self, letter: &ClaimedOutgoing, sent: &Sent) {
        let (kind, word) = match sent {
            Sent::Accepted => (Some(EventKind::OutgoingSent), "sent"),
            Sent::Uncertain { .. } => (Some(EventKind::OutgoingUncertain), "uncertain"),
            Sent::Failed { .. } => (Some(EventKind::OutgoingFailed), "failed"),
            Sent::Hold { .. } => (Some(EventKind::OutgoingHeld), "held"),
            Sent::Resend => (Some(EventKind::OutgoingQueued), "sent once more"),
            Sent::Later { .. } => (None, "later"),
            Sent::Unreached { .. } => (None, "not reached"),
        };
        let domain = letter.recipient.domain();
        tracing::info!(
            outgoing = letter.id.0,
            run = letter.run.as_ref().map(|run| run.as_str()),
            domain,
            attempts = letter.attempts,
            state = word,
            "outgoing"
        );
        if let Some(kind) = kind {
            self.sender.events.emit(letter.run.as_ref(), kind, json!({ "outgoing": letter.id.0 }));
        }
    }

    /// Decides about letters whose acknowledgement was lost (email G9). Gives how many.
    async fn look_into_doubtful(&self, stop: &CancellationToken) -> Result<usize, StoreFailed> {
        let doubtful = match self.sender.store.uncertain_due(&self.sender.mailbox.name, crate::clock::now()).await {
            Ok(doubtful) => doubtful,
            Err(error) => return retry_or_fail("uncertain_due", &error).await.map(|()| 0),
        };
        let count = doubtful.len();
        for letter in doubtful {
            if stop.is_cancelled() {
                break;
            }
            let sent = self.decide_doubtful(&letter).await;
            self.settle(&letter, sent, stop).await?;
        }
        Ok(count)
    }

    async fn decide_doubtful(&self, letter: &ClaimedOutgoing) -> Sent {
        if matches!(self.sender.mailbox.send, Way::Maildir(_)) {
            // The same letter is the same file: delivering it again cannot make two.
            return Sent::Resend;
        }
        if let Some(look) = &self.sender.look {
            let looked = timeout(LOOK_TIME, look(letter.message_id.clone())).await;
            match looked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time"))) {
                Ok(true) => return Sent::Accepted,
                Ok(false) => {}
                Err(error) => {
                    let error = format!("it is unknown whether it left; the Sent folder cannot be read: {error}");
                    return Sent::Uncertain { check_at: crate::clock::now() + LOOK_AGAIN, error };
                }
            }
        }
        match self.sender.mailbox.on_uncertain {
            OnUncertain::ResendOnce if letter.resends == 0 => Sent::Resend,
            OnUncertain::ResendOnce => Sent::Hold { reason: "uncertain: sent twice, never acknowledged".to_owned() },
            OnUncertain::Hold => Sent::Hold { reason: "uncertain: never acknowledged".to_owned() },
        }
    }
}

/// What a person should know about a letter that will not leave by itself. Nothing about notices: word of
/// a notice that failed would fail the same way.
fn word_to_operator(letter: &ClaimedOutgoing, sent: &Sent) -> Option<(String, String)> {
    if letter.kind == OutgoingKind::Notice {
        return None;
    }
    let id = letter.id;
    match sent {
        Sent::Hold { reason } => Some((
            format!("Letter {id} waits for you"),
            format!(
                "Nobody knows whether letter {id} to {} left ({reason}).\n\nSee `dutiful outbox {id}`; `--approve` sends it again, `--reject` leaves it.",
                letter.recipient
            ),
        )),
        Sent::Failed { error } => Some((
            format!("Letter {id} could not be sent"),
            format!("Letter {id} to {} could not be sent: {error}\n\nSee `dutiful outbox {id}`; `--retry` tries again.", letter.recipient),
        )),
        _ => None,
    }
}

/// Waits a moment when the store may recover; gives up when it will not.
async fn retry_or_fail(verb: &str, error: &StoreError) -> Result<(), StoreFailed> {
    tracing::warn!(verb, %error, "the store refuses");
    match error {
        StoreError::Retry(_) | StoreError::Fault(_) | StoreError::Superseded => {
            sleep(Duration::from_secs(1)).await;
            Ok(())
        }
        StoreError::Fatal(_) => Err(StoreFailed),
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
