//! The outbox: letters that wait to be sent, are being sent, were sent. One row per recipient (email G1).

use chrono::{DateTime, Utc};

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde_json::json;

use super::audit::{Stamp, checked, record, short, word};
use super::writer::Writing;
use super::{Store, StoreError};
use crate::mail::{Address, MessageId, OutgoingKind, Sealed};
use crate::run::{EventKind, OutgoingId, RunId, ThreadId};

/// A sealed letter and what it belongs to.
#[derive(Debug, Clone)]
pub struct QueueOutgoing {
    /// The run that caused it.
    pub run: Option<RunId>,
    /// Its thread: sent in order within it.
    pub thread: Option<ThreadId>,
    /// The agent.
    pub agent: Option<String>,
    /// The mailbox that it leaves through.
    pub mailbox: String,
    /// The letter.
    pub sealed: Sealed,
}

/// Where an outgoing letter stands (DESIGN 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingStatus {
    /// Waits for a person.
    Held,
    /// Waits to be sent.
    Queued,
    /// Being sent.
    Sending,
    /// The server took it.
    Sent,
    /// The server may have taken it.
    Uncertain,
    /// Given up.
    Failed,
    /// A person said no.
    Rejected,
    /// It came back.
    Bounced,
}

impl OutgoingStatus {
    /// The word as it stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            OutgoingStatus::Held => "held",
            OutgoingStatus::Queued => "queued",
            OutgoingStatus::Sending => "sending",
            OutgoingStatus::Sent => "sent",
            OutgoingStatus::Uncertain => "uncertain",
            OutgoingStatus::Failed => "failed",
            OutgoingStatus::Rejected => "rejected",
            OutgoingStatus::Bounced => "bounced",
        }
    }
}

/// An outgoing letter that the sender now owns: `sending` is committed, its phase with it.
#[derive(Debug, Clone)]
pub struct ClaimedOutgoing {
    /// Its row.
    pub id: OutgoingId,
    /// The run that caused it.
    pub run: Option<RunId>,
    /// What it is for.
    pub kind: OutgoingKind,
    /// Its Message-ID.
    pub message_id: MessageId,
    /// MAIL FROM.
    pub envelope_from: Address,
    /// RCPT TO.
    pub recipient: Address,
    /// The whole message.
    pub bytes: Vec<u8>,
    /// Attempts, this one included.
    pub attempts: u32,
    /// How often it was sent again after an uncertain attempt.
    pub resends: u32,
    /// When it was queued.
    pub queued_at: DateTime<Utc>,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// 250 after the final dot.
    Accepted,
    /// Not taken; try again at this instant.
    Later {
        /// When.
        at: DateTime<Utc>,
        /// What the server said.
        error: String,
    },
    /// Not taken because of the server or the account, not the letter: back to the queue as it was, the
    /// attempt uncounted.
    Unreached {
        /// Not before this instant.
        at: DateTime<Utc>,
        /// What was seen.
        error: String,
    },
    /// The final dot was sent, no reply came (email G9).
    Uncertain {
        /// When to look for it.
        check_at: DateTime<Utc>,
        /// What was seen.
        error: String,
    },
    /// An uncertain letter is to be sent once more, byte for byte.
    Resend,
    /// Waits for the operator.
    Hold {
        /// Why.
        reason: String,
    },
    /// Given up.
    Failed {
        /// What the server said.
        error: String,
    },
}

/// A held letter, for who edits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldOutgoing {
    /// The agent that wrote it.
    pub agent: Option<String>,
    /// Its kind.
    pub kind: OutgoingKind,
    /// Its final bytes.
    pub bytes: Vec<u8>,
}

/// What an operator does to an outgoing letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutgoingChange {
    /// A held or uncertain letter leaves.
    Approve,
    /// A held letter never leaves.
    Reject,
    /// A failed or uncertain letter is tried again.
    Retry,
    /// A queued letter that has not left is taken back.
    Undo,
}

impl Store {
    /// Queues a letter; the same effect key and recipient give the rows that exist.
    ///
    /// # Errors
    /// What the store says.
    pub async fn queue(&self, outgoing: QueueOutgoing) -> Result<Vec<OutgoingId>, StoreError> {
        self.write(move |writing| insert(writing, &outgoing)).await
    }

    /// Claims up to `limit` due letters of a mailbox: the oldest first, replies before reports, in order
    /// within a thread (an unfinished earlier one blocks its thread only, email G11), none while `sending`
    /// is switched off.
    ///
    /// # Errors
    /// What the store says.
    pub async fn claim_outgoing(&self, mailbox: &str, now: DateTime<Utc>, limit: usize) -> Result<Vec<ClaimedOutgoing>, StoreError> {
        let mailbox = mailbox.to_owned();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.write(move |writing| {
            let mut due = writing.sql.prepare_cached(
                "SELECT o.id FROM outgoing o INDEXED BY outgoing_in_order
                 WHERE o.mailbox = ?1 AND o.status = 'queued' AND o.next_at <= ?2
                     AND NOT EXISTS (SELECT 1 FROM switches WHERE name = 'sending')
                     AND NOT EXISTS (
                         SELECT 1 FROM outgoing e
                         WHERE e.thread_id = o.thread_id AND e.id < o.id AND e.message_id <> o.message_id
                             AND e.status IN ('queued', 'sending', 'uncertain'))
                 ORDER BY o.rank, o.id LIMIT ?3",
            )?;
            let due: Vec<i64> = due.query_map((mailbox, Stamp(now), limit), |row| row.get(0))?.collect::<Result<_, _>>()?;
            let mut claim =
                writing.sql.prepare_cached("UPDATE outgoing SET status = 'sending', attempts = attempts + 1, epoch = ?2 WHERE id = ?1")?;
            let mut claimed = Vec::new();
            for id in due {
                claim.execute((id, writing.epoch))?;
                let mut query = writing.sql.prepare_cached(
                    "SELECT id, run_id, kind, message_id, envelope_from, recipient, attempts, resends, queued_at, bytes
                     FROM outgoing WHERE id = ?1",
                )?;
                claimed.extend(all(query.query([id])?)?);
            }
            Ok(claimed)
        })
        .await
    }

    /// For a sender that begins: letters that the one before it left owned, since it could not write down what became of
    /// them, are in doubt (email G9).
    ///
    /// # Errors
    /// What the store says.
    pub async fn doubt_owned(&self, mailbox: &str, now: DateTime<Utc>) -> Result<(), StoreError> {
        let mailbox = mailbox.to_owned();
        self.write(move |writing| {
            let mut doubt = writing.sql.prepare_cached(
                "UPDATE outgoing SET status = 'uncertain', check_at = ?2, error = 'its sender ended while it was being sent'
                 WHERE mailbox = ?1 AND status = 'sending' RETURNING id",
            )?;
            let doubted: Vec<i64> = doubt.query_map((mailbox, Stamp(now)), |row| row.get(0))?.collect::<Result<_, _>>()?;
            doubted.into_iter().try_for_each(|id| tell(writing, OutgoingId(id), OutgoingStatus::Uncertain))
        })
        .await
    }

    /// The uncertain letters of a mailbox whose check is due.
    ///
    /// # Errors
    /// What the store says.
    pub async fn uncertain_due(&self, mailbox: &str, now: DateTime<Utc>) -> Result<Vec<ClaimedOutgoing>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT id, run_id, kind, message_id, envelope_from, recipient, attempts, resends, queued_at, bytes
                 FROM outgoing WHERE mailbox = ?1 AND status = 'uncertain' AND check_at <= ?2 ORDER BY id",
            )?;
            all(query.query((mailbox, Stamp(now)))?)
        })
    }

    /// When the next queued or uncertain letter of a mailbox is due; none when there is none that may leave
    /// (a letter behind an unfinished one of its thread waits for that one; none is due while `sending` is off).
    ///
    /// # Errors
    /// What the store says.
    pub async fn outgoing_due(&self, mailbox: &str) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT min(at) FROM (
                     SELECT min(o.next_at) AS at FROM outgoing o
                     WHERE o.mailbox = ?1 AND o.status = 'queued'
                         AND NOT EXISTS (SELECT 1 FROM switches WHERE name = 'sending')
                         AND NOT EXISTS (
                             SELECT 1 FROM outgoing e
                             WHERE e.thread_id = o.thread_id AND e.id < o.id AND e.message_id <> o.message_id
                                 AND e.status IN ('queued', 'sending', 'uncertain'))
                     UNION ALL
                     SELECT min(check_at) FROM outgoing WHERE mailbox = ?1 AND status = 'uncertain')",
            )?;
            Ok(query.query_row([mailbox], |row| row.get::<_, Option<Stamp>>(0))?.map(|stamp| stamp.0))
        })
    }

    /// Records what became of an attempt, or of the check of an uncertain letter.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when the letter is not this daemon's to settle any more: an operator has
    /// decided about it meanwhile; else what the store says.
    pub async fn settle(&self, id: OutgoingId, sent: Sent, now: DateTime<Utc>) -> Result<(), StoreError> {
        self.write(move |writing| {
            let settled = Settled::of(sent, now);
            let changed = writing
                .sql
                .prepare_cached(
                    "UPDATE outgoing SET status = :status, error = CASE WHEN :sent IS NULL THEN coalesce(:error, error) END, reason = :reason,
                         next_at = coalesce(:next, next_at), check_at = :check, sent_at = :sent,
                         attempts = max(0, attempts - :uncounted), resends = resends + :resend
                     -- A letter that was let go meanwhile is being sent already: sending it once more would make two.
                     WHERE id = :id AND (status = 'uncertain' OR (status = 'sending' AND epoch = :epoch AND NOT :resend))",
                )?
                .execute(named_params! {
                    ":status": settled.status.as_str(),
                    ":error": settled.error,
                    ":reason": settled.reason,
                    ":next": settled.next_at.map(Stamp),
                    ":check": settled.check_at.map(Stamp),
                    ":sent": (settled.status == OutgoingStatus::Sent).then_some(Stamp(now)),
                    ":uncounted": settled.uncounted,
                    ":resend": settled.resend,
                    ":id": id.0,
                    ":epoch": writing.epoch,
                })?;
            if changed == 0 {
                return Err(StoreError::Superseded);
            }
            // Whoever waits behind it in its thread may go on.
            writing.wake_outgoing();
            tell(writing, id, settled.status)
        })
        .await
    }

    /// Sent letters whose copy is not in the Sent folder yet, one for each message, oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub async fn without_copy(&self, mailbox: &str, limit: usize) -> Result<Vec<ClaimedOutgoing>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT id, run_id, kind, message_id, envelope_from, recipient, attempts, resends, queued_at, bytes
                 FROM outgoing
                 WHERE id IN (
                     SELECT min(id) FROM outgoing WHERE mailbox = ?1 AND status = 'sent' AND copied = 0
                     GROUP BY message_id ORDER BY min(id) LIMIT ?2)
                 ORDER BY id",
            )?;
            all(query.query((mailbox, limit))?)
        })
    }

    /// Notes that the copy of this message is in the Sent folder, or that none is wanted; for all its recipients.
    ///
    /// # Errors
    /// What the store says.
    pub async fn copied(&self, id: OutgoingId) -> Result<(), StoreError> {
        self.write(move |writing| {
            writing
                .sql
                .prepare_cached("UPDATE outgoing SET copied = 1 WHERE message_id = (SELECT message_id FROM outgoing WHERE id = ?1)")?
                .execute([id.0])?;
            Ok(())
        })
        .await
    }

    /// Does what the operator says; false when the letter is in no state for it. What leaves by it is queued
    /// anew, so that its age counts from now; what is taken back waits as `held`.
    ///
    /// # Errors
    /// What the store says.
    pub async fn change_outgoing(&self, id: OutgoingId, change: OutgoingChange) -> Result<bool, StoreError> {
        self.write(move |writing| {
            let sql = match change {
                OutgoingChange::Approve => {
                    "UPDATE outgoing SET status = 'queued', reason = NULL, check_at = NULL, next_at = ?2, queued_at = ?2
                     WHERE id = ?1 AND status IN ('held', 'uncertain')"
                }
                OutgoingChange::Reject => {
                    "UPDATE outgoing SET status = 'rejected', reason = 'rejected by the operator at ' || ?2
                     WHERE id = ?1 AND status = 'held'"
                }
                OutgoingChange::Retry => {
                    "UPDATE outgoing SET status = 'queued', attempts = 0, check_at = NULL, next_at = ?2, queued_at = ?2
                     WHERE id = ?1 AND status IN ('failed', 'uncertain') AND bytes <> x''"
                }
                OutgoingChange::Undo => {
                    "UPDATE outgoing SET status = 'held', reason = 'taken back by the operator at ' || ?2
                     WHERE id = ?1 AND status = 'queued'"
                }
            };
            let changed = writing.sql.prepare_cached(sql)?.execute((id.0, Stamp::now()))? > 0;
            if changed {
                let status = match change {
                    OutgoingChange::Approve | OutgoingChange::Retry => OutgoingStatus::Queued,
                    OutgoingChange::Reject => OutgoingStatus::Rejected,
                    OutgoingChange::Undo => OutgoingStatus::Held,
                };
                tell(writing, id, status)?;
                writing.wake_outgoing();
            }
            Ok(changed)
        })
        .await
    }

    /// A held letter as it stands; none when it is not held.
    ///
    /// # Errors
    /// What the store says.
    pub fn held_outgoing(&self, id: OutgoingId) -> Result<Option<HeldOutgoing>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT agent, kind, bytes FROM outgoing WHERE id = ?1 AND status = 'held'")?;
            let found = query.query_row([id.0], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)));
            let found: Option<(Option<String>, String, Vec<u8>)> = found.optional()?;
            found.map(|(agent, kind, bytes)| Ok(HeldOutgoing { agent, kind: word(&kind, kind_from_word)?, bytes })).transpose()
        })
    }

    /// Replaces the bytes of a held letter (`outbox ID --edit`), for all its recipients who have not got it:
    /// same Message-ID.
    ///
    /// # Errors
    /// What the store says.
    pub async fn edit_outgoing(&self, id: OutgoingId, text: String, bytes: Vec<u8>) -> Result<bool, StoreError> {
        self.write(move |writing| {
            let mut edit = writing.sql.prepare_cached(
                "UPDATE outgoing SET text = ?2, bytes = ?3
                 WHERE status = 'held' AND message_id = (SELECT message_id FROM outgoing WHERE id = ?1 AND status = 'held')",
            )?;
            Ok(edit.execute((id.0, text, bytes))? > 0)
        })
        .await
    }

    /// Whether anything was ever sent to this address (`hold = "first_contact"`).
    ///
    /// # Errors
    /// What the store says.
    pub fn has_written_to(&self, address: &Address) -> Result<bool, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT 1 FROM outgoing WHERE recipient = ?1 AND status = 'sent'")?;
            Ok(query.exists([address.as_str()])?)
        })
    }

    /// How many reports, questions and notices were queued since an instant.
    ///
    /// # Errors
    /// What the store says.
    pub fn operator_mails_since(&self, since: DateTime<Utc>) -> Result<u32, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT count(DISTINCT message_id) FROM outgoing WHERE kind IN ('report', 'question', 'notice') AND queued_at >= ?1",
            )?;
            Ok(query.query_row([Stamp(since)], |row| row.get(0))?)
        })
    }

    /// Whether a notice under this key may be written now: at most one in `window`. Writes itself down.
    ///
    /// # Errors
    /// What the store says.
    pub async fn notice_due(&self, key: &str, now: DateTime<Utc>, window: std::time::Duration) -> Result<bool, StoreError> {
        let key = key.to_owned();
        let before = chrono::Duration::from_std(window).ok().and_then(|window| now.checked_sub_signed(window));
        let before = before.unwrap_or(DateTime::UNIX_EPOCH);
        self.write(move |writing| {
            let mut note = writing.sql.prepare_cached(
                "INSERT INTO notices (key, at) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET at = excluded.at WHERE notices.at <= ?3 OR notices.at > excluded.at",
            )?;
            Ok(note.execute((key, Stamp(now), Stamp(before)))? > 0)
        })
        .await
    }
}

/// What a settled row becomes.
struct Settled {
    status: OutgoingStatus,
    error: Option<String>,
    reason: Option<String>,
    next_at: Option<DateTime<Utc>>,
    check_at: Option<DateTime<Utc>>,
    uncounted: bool,
    resend: bool,
}

impl Settled {
    fn of(sent: Sent, now: DateTime<Utc>) -> Settled {
        let to = |status| Settled { status, error: None, reason: None, next_at: None, check_at: None, uncounted: false, resend: false };
        let told = |error: String| Some(short(&error, 1000));
        match sent {
            Sent::Accepted => to(OutgoingStatus::Sent),
            Sent::Later { at, error } => Settled { error: told(error), next_at: Some(at), ..to(OutgoingStatus::Queued) },
            Sent::Unreached { at, error } => {
                Settled { error: told(error), next_at: Some(at), uncounted: true, ..to(OutgoingStatus::Queued) }
            }
            Sent::Uncertain { check_at, error } => {
                Settled { error: told(error), check_at: Some(check_at), ..to(OutgoingStatus::Uncertain) }
            }
            Sent::Resend => Settled { next_at: Some(now), resend: true, ..to(OutgoingStatus::Queued) },
            Sent::Hold { reason } => Settled { reason: told(reason), ..to(OutgoingStatus::Held) },
            Sent::Failed { error } => Settled { error: told(error), ..to(OutgoingStatus::Failed) },
        }
    }
}

/// Writes one row for each recipient that has none yet; gives all rows (harness J4).
pub(super) fn insert(writing: &Writing<'_>, outgoing: &QueueOutgoing) -> Result<Vec<OutgoingId>, StoreError> {
    let (sealed, now) = (&outgoing.sealed, crate::clock::now());
    let status = if sealed.held.is_some() { OutgoingStatus::Held } else { OutgoingStatus::Queued };
    let mut ids = Vec::new();
    for recipient in &sealed.recipients {
        let new = writing
            .sql
            .prepare_cached(
                "INSERT INTO outgoing (run_id, thread_id, agent, mailbox, kind, rank, effect_key, message_id, envelope_from, recipient, subject,
                     status, reason, epoch, queued_at, next_at, text, bytes)
                 VALUES (:run, :thread, :agent, :mailbox, :kind, :rank, :effect_key, :message_id, :from, :to, :subject,
                     :status, :reason, :epoch, :queued, :next, :text, :bytes)
                 ON CONFLICT (effect_key, recipient) DO NOTHING",
            )?
            .execute(named_params! {
                ":run": outgoing.run.as_ref().map(RunId::as_str),
                ":thread": outgoing.thread.map(|thread| thread.0),
                ":agent": outgoing.agent,
                ":mailbox": outgoing.mailbox,
                ":kind": sealed.kind.as_str(),
                ":rank": matches!(sealed.kind, OutgoingKind::Report | OutgoingKind::Notice),
                ":effect_key": sealed.effect_key,
                ":message_id": sealed.message_id.as_str(),
                ":from": sealed.envelope_from.as_str(),
                ":to": recipient.as_str(),
                ":subject": sealed.subject,
                ":status": status.as_str(),
                ":reason": sealed.held,
                ":epoch": writing.epoch,
                ":queued": Stamp(now),
                ":next": Stamp(sealed.not_before.unwrap_or(now)),
                ":text": sealed.text,
                ":bytes": sealed.bytes,
            })?;
        let mut query = writing.sql.prepare_cached("SELECT id FROM outgoing WHERE effect_key = ?1 AND recipient = ?2")?;
        let id = OutgoingId(query.query_row((&sealed.effect_key, recipient.as_str()), |row| row.get(0))?);
        if new > 0 {
            tell(writing, id, status)?;
            writing.wake_outgoing();
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Writes the event of a row's new status, when there is one for it.
fn tell(writing: &Writing<'_>, id: OutgoingId, status: OutgoingStatus) -> Result<(), StoreError> {
    let kind = match status {
        OutgoingStatus::Held => EventKind::OutgoingHeld,
        OutgoingStatus::Queued => EventKind::OutgoingQueued,
        OutgoingStatus::Sent => EventKind::OutgoingSent,
        OutgoingStatus::Uncertain => EventKind::OutgoingUncertain,
        OutgoingStatus::Failed | OutgoingStatus::Rejected => EventKind::OutgoingFailed,
        OutgoingStatus::Bounced => EventKind::OutgoingBounced,
        OutgoingStatus::Sending => return Ok(()),
    };
    let run = run_of(writing.sql, id)?;
    record(writing, run.as_ref(), kind, &json!({ "outgoing": id, "status": status.as_str() }))
}

fn run_of(sql: &Connection, id: OutgoingId) -> Result<Option<RunId>, StoreError> {
    let mut query = sql.prepare_cached("SELECT run_id FROM outgoing WHERE id = ?1")?;
    Ok(query.query_row([id.0], |row| row.get::<_, Option<String>>(0))?.map(RunId))
}

/// Rows of `id, run_id, kind, message_id, envelope_from, recipient, attempts, resends, queued_at, bytes`.
fn all(mut rows: rusqlite::Rows<'_>) -> Result<Vec<ClaimedOutgoing>, StoreError> {
    let mut claimed = Vec::new();
    while let Some(row) = rows.next()? {
        claimed.push(claimed_row(row)?);
    }
    Ok(claimed)
}

fn claimed_row(row: &Row<'_>) -> Result<ClaimedOutgoing, StoreError> {
    Ok(ClaimedOutgoing {
        id: OutgoingId(row.get(0)?),
        run: row.get::<_, Option<String>>(1)?.map(RunId),
        kind: word(&row.get::<_, String>(2)?, kind_from_word)?,
        message_id: word(&row.get::<_, String>(3)?, MessageId::parse)?,
        envelope_from: checked(row.get::<_, String>(4)?.parse())?,
        recipient: checked(row.get::<_, String>(5)?.parse())?,
        attempts: row.get(6)?,
        resends: row.get(7)?,
        queued_at: row.get::<_, Stamp>(8)?.0,
        bytes: row.get(9)?,
    })
}

fn kind_from_word(word: &str) -> Option<OutgoingKind> {
    [OutgoingKind::Reply, OutgoingKind::Question, OutgoingKind::Report, OutgoingKind::Notice, OutgoingKind::Tool]
        .into_iter()
        .find(|kind| kind.as_str() == word)
}
