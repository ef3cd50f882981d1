//! Letters that came in: receiving, deduplication, limits, verdicts, claims (durable hand-off 1).

use std::collections::BTreeSet;
use std::fmt;

use chrono::{DateTime, Utc};

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::json;

use super::audit::{Stamp, checked, from_json, record, short, word};
use super::receiving::{NewThread, event_of, new_thread, receive};
use super::writer::Writing;
use super::{Store, StoreError, limits};
use crate::config::Limits;
use crate::mail::{Address, Inbound, MessageId};
use crate::run::{Identity, LetterId, ThreadId};

/// Where reading of a folder goes on (email B1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// UIDVALIDITY that the UIDs belong to.
    pub uidvalidity: u32,
    /// The highest UID that is stored or known to be missing.
    pub uid: u32,
}

/// Where a raw letter was found: its identity on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// IMAP.
    Imap {
        /// UIDVALIDITY.
        uidvalidity: u32,
        /// UID.
        uid: u32,
    },
    /// Maildir: the unique part of the file's name, without flags.
    Maildir(String),
}

/// A letter as received, before anything is decided.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// `[mailboxes.NAME]`.
    pub mailbox: String,
    /// The folder.
    pub folder: String,
    /// Its place there. Known places are received once (email B1); an IMAP place moves the cursor.
    pub position: Position,
    /// The UID that was to be stored just before it: while the cursor has not reached that one, this letter is
    /// refused with [`StoreError::Retry`], so that the cursor never passes a letter that is missing (email B6, J4).
    pub follows: Option<u32>,
    /// The whole message.
    pub raw: Vec<u8>,
    /// SHA-256, hexadecimal, of the message without trace headers (email, decision 2).
    pub sha256: String,
    /// When our server got it, as far as known (email C17).
    pub received_at: DateTime<Utc>,
    /// The parsed letter; none when it could not be parsed.
    pub parsed: Option<Inbound>,
    /// Random, kept with the text: the delimiter of its wrapping (harness UC1).
    pub nonce: String,
}

/// What the store knows of an incoming letter, found inside the receiving transaction.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// The same letter (mailbox and hash) was received within 7 days (email B9).
    pub duplicate_of: Option<LetterId>,
    /// Its Message-ID is one that we minted: our own echo.
    pub ours: bool,
    /// Known ids among In-Reply-To, then References from last to first, in this order.
    pub related: Vec<Related>,
}

/// A thread that a referenced id belongs to.
#[derive(Debug, Clone)]
pub struct Related {
    /// The id.
    pub message_id: MessageId,
    /// Its thread.
    pub thread: ThreadId,
    /// The thread's agent.
    pub agent: String,
    /// The address that we mailed this id to; none when a customer wrote it.
    pub mailed_to: Option<Address>,
    /// The thread's participants.
    pub participants: BTreeSet<Address>,
    /// Why the thread waits for the operator, when it does.
    pub held: Option<String>,
}

/// What is decided about a letter, from its content and its standing.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Who is writing.
    pub identity: Identity,
    /// One for each agent that gets it; exactly one without an agent when nobody does.
    pub deliveries: Vec<Delivery>,
}

/// A letter's fate with one agent.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The agent.
    pub agent: Option<String>,
    /// The own address that it was written to: the reply's From.
    pub own_address: Option<Address>,
    /// Where an answer would go.
    pub reply_to: Option<Address>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in words fit for a list: `out of office`, `limit:replies_per_day`.
    pub reason: String,
    /// Its thread.
    pub thread: ThreadChoice,
    /// The limits to hold it against when it is accepted; the store counts, and turns it into `held`.
    pub caps: Option<Caps>,
}

/// Which limits apply to an accepted letter.
#[derive(Debug, Clone)]
pub struct Caps {
    /// `[limits]`.
    pub limits: Limits,
    /// The per-domain limit counts (unverified senders only).
    pub per_domain: bool,
}

/// Which thread a letter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadChoice {
    /// An existing one.
    Join(ThreadId),
    /// A new one, whose only participant is `reply_to`.
    New {
        /// A thread that it refers to without the right to join: for the operator's eyes (email E2).
        related_to: Option<ThreadId>,
    },
    /// None.
    None,
}

/// What was decided about a letter (DESIGN 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It gets a run.
    Accepted,
    /// It gets none, and needs none.
    Ignored,
    /// It waits for the operator, or for a limit.
    Held,
    /// It could not be handled safely.
    Quarantined,
    /// It came before.
    Duplicate,
}

impl Verdict {
    /// The word as it stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Ignored => "ignored",
            Verdict::Held => "held",
            Verdict::Quarantined => "quarantined",
            Verdict::Duplicate => "duplicate",
        }
    }

    /// The value of a stored word.
    pub fn from_word(word: &str) -> Option<Verdict> {
        [Verdict::Accepted, Verdict::Ignored, Verdict::Held, Verdict::Quarantined, Verdict::Duplicate]
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
    }
}

/// The gateway's policy, run inside the receiving transaction; must not block or panic.
pub type Decide = Box<dyn FnOnce(&Standing) -> Decision + std::marker::Send>;

/// What was stored.
#[derive(Debug, Clone)]
pub struct Received {
    /// False when this place was known: nothing was written.
    pub new: bool,
    /// One for each delivery: its row, and the verdict after the limits.
    pub letters: Vec<(LetterId, Verdict, String)>,
}

/// An accepted letter that no run has taken yet.
#[derive(Debug, Clone)]
pub struct WaitingLetter {
    /// Its row.
    pub id: LetterId,
    /// The mailbox.
    pub mailbox: String,
    /// The agent.
    pub agent: String,
    /// Its thread.
    pub thread: ThreadId,
    /// Attempts so far that added no journal step.
    pub attempts: u32,
    /// Received by an earlier epoch: the attempt is noted before anything is done with it.
    pub careful: bool,
    /// The letter.
    pub inbound: Inbound,
    /// Who is writing.
    pub identity: Identity,
    /// The own address written to.
    pub own_address: Address,
    /// Where the answer goes.
    pub reply_to: Address,
    /// The wrapping's delimiter.
    pub nonce: String,
    /// When it came.
    pub received_at: DateTime<Utc>,
    /// The thread's participants.
    pub participants: BTreeSet<Address>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Imap { uidvalidity, uid } => write!(f, "{uidvalidity}:{uid}"),
            Position::Maildir(name) => f.write_str(name),
        }
    }
}

impl Store {
    /// Where reading of a folder goes on; none before its first start.
    ///
    /// # Errors
    /// What the store says.
    pub async fn cursor(&self, mailbox: &str, folder: &str) -> Result<Option<Cursor>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT uidvalidity, uid FROM cursors WHERE mailbox = ?1 AND folder = ?2")?;
            let cursor = query.query_row((mailbox, folder), |row| Ok(Cursor { uidvalidity: row.get(0)?, uid: row.get(1)? }));
            Ok(cursor.optional()?)
        })
    }

    /// When a mailbox last received a letter (email B4).
    ///
    /// # Errors
    /// What the store says.
    pub fn last_received(&self, mailbox: &str) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT max(received_at) FROM received WHERE mailbox = ?1")?;
            let found: Option<Stamp> = query.query_row([mailbox], |row| row.get(0))?;
            Ok(found.map(|stamp| stamp.0))
        })
    }

    /// Sets the cursor: on the first start, past what is missing, or for a new UIDVALIDITY.
    ///
    /// # Errors
    /// What the store says.
    pub async fn set_cursor(&self, mailbox: &str, folder: &str, cursor: Cursor) -> Result<(), StoreError> {
        let (mailbox, folder) = (mailbox.to_owned(), folder.to_owned());
        self.write(move |writing| {
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO cursors (mailbox, folder, uidvalidity, uid) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (mailbox, folder) DO UPDATE SET uidvalidity = excluded.uidvalidity, uid = excluded.uid",
                )?
                .execute((mailbox, folder, cursor.uidvalidity, cursor.uid))?;
            Ok(())
        })
        .await
    }

    /// All places of a folder that are already stored or skipped (Maildir sweeps, email B4 rescans).
    ///
    /// # Errors
    /// What the store says.
    pub async fn known_positions(&self, mailbox: &str, folder: &str) -> Result<BTreeSet<String>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached("SELECT place FROM places WHERE mailbox = ?1 AND folder = ?2")?;
            let places = query.query_map((mailbox, folder), |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(places)
        })
    }

    /// Marks places as known without a letter: what lay in a Maildir at the first start.
    ///
    /// # Errors
    /// What the store says.
    pub async fn skip_positions(&self, mailbox: &str, folder: &str, places: Vec<String>) -> Result<(), StoreError> {
        let (mailbox, folder) = (mailbox.to_owned(), folder.to_owned());
        self.write(move |writing| {
            let mut note = writing.sql.prepare_cached(
                "INSERT INTO places (mailbox, folder, place) VALUES (?1, ?2, ?3) ON CONFLICT (mailbox, folder, place) DO NOTHING",
            )?;
            for place in &places {
                note.execute((&mailbox, &folder, place))?;
            }
            Ok(())
        })
        .await
    }

    /// After a changed UIDVALIDITY: whether a letter with this hash is stored; if so its new place is
    /// linked to it (email B4). The cursor stays: it may only pass what lies before this place, too.
    ///
    /// # Errors
    /// What the store says.
    pub async fn relink(&self, mailbox: &str, folder: &str, position: &Position, sha256: &str) -> Result<bool, StoreError> {
        let (mailbox, folder) = (mailbox.to_owned(), folder.to_owned());
        let (place, sha256) = (position.to_string(), sha256.to_owned());
        self.write(move |writing| {
            let mut query =
                writing.sql.prepare_cached("SELECT id FROM received WHERE mailbox = ?1 AND sha256 = ?2 ORDER BY id DESC LIMIT 1")?;
            let Some(id) = query.query_row((&mailbox, sha256), |row| row.get::<_, i64>(0)).optional()? else { return Ok(false) };
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO places (mailbox, folder, place, received_id) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (mailbox, folder, place) DO NOTHING",
                )?
                .execute((mailbox, folder, place, id))?;
            Ok(true)
        })
        .await
    }

    /// Notes, before a letter is parsed, that it is about to be; gives how often that was noted and never
    /// followed by `receive`, this time included (email B12). Used in the first sweep after a start.
    ///
    /// # Errors
    /// What the store says.
    pub async fn note_parse(&self, mailbox: &str, folder: &str, position: &Position) -> Result<u32, StoreError> {
        let (mailbox, folder, place) = (mailbox.to_owned(), folder.to_owned(), position.to_string());
        self.write(move |writing| {
            let mut note = writing.sql.prepare_cached(
                "INSERT INTO parse_attempts (mailbox, folder, place, attempts) VALUES (?1, ?2, ?3, 1)
                 ON CONFLICT (mailbox, folder, place) DO UPDATE SET attempts = attempts + 1
                 RETURNING attempts",
            )?;
            Ok(note.query_row((mailbox, folder, place), |row| row.get(0))?)
        })
        .await
    }

    /// Keeps a letter, its verdict and the cursor in one transaction: durable hand-off 1. The write is
    /// queued when this is called, in the order of the calls; the future resolves after the commit.
    ///
    /// # Errors
    /// When nothing was stored; the cursor then stands where it stood.
    pub fn receive(
        &self,
        incoming: Incoming,
        decide: Decide,
    ) -> impl Future<Output = Result<Received, StoreError>> + std::marker::Send + 'static {
        self.write(move |writing| receive(writing, &incoming, decide))
    }

    /// The oldest accepted letters without a run, at most one of each thread that is neither in `busy` nor
    /// held, and of no agent that is switched off.
    ///
    /// # Errors
    /// What the store says.
    pub async fn waiting_letters(&self, limit: usize, busy: &BTreeSet<ThreadId>) -> Result<Vec<WaitingLetter>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT l.id, l.thread_id FROM letters l INDEXED BY letters_in_order
                 JOIN threads t ON t.id = l.thread_id
                 WHERE l.verdict = 'accepted' AND l.run_id IS NULL AND t.status = 'open'
                     AND NOT EXISTS (
                         SELECT 1 FROM letters e
                         WHERE e.thread_id = l.thread_id AND e.id < l.id AND e.verdict = 'accepted' AND e.run_id IS NULL)
                     AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.thread_id = l.thread_id AND r.status = 'running')
                     AND NOT EXISTS (SELECT 1 FROM switches s WHERE s.name = 'agent:' || l.agent)
                 ORDER BY l.id",
            )?;
            let mut rows = query.query([])?;
            let mut waiting = Vec::new();
            while waiting.len() < limit
                && let Some(row) = rows.next()?
            {
                if !busy.contains(&ThreadId(row.get(1)?)) {
                    waiting.extend(letter(sql, self.epoch(), LetterId(row.get(0)?))?);
                }
            }
            Ok(waiting)
        })
    }

    /// One letter as a run needs it, whatever its verdict; for the recovery of its run. None also for a
    /// letter that no run can take: one without an agent, a thread, or readable content.
    ///
    /// # Errors
    /// What the store says.
    pub async fn letter(&self, id: LetterId) -> Result<Option<WaitingLetter>, StoreError> {
        self.read(|sql| letter(sql, self.epoch(), id))
    }

    /// The raw bytes of a letter.
    ///
    /// # Errors
    /// What the store says.
    pub async fn raw_letter(&self, id: LetterId) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|sql| {
            let mut query =
                sql.prepare_cached("SELECT w.raw FROM letters l JOIN raw_letters w ON w.received_id = l.received_id WHERE l.id = ?1")?;
            Ok(query.query_row([id.0], |row| row.get(0)).optional()?)
        })
    }

    /// A letter as it was read, whatever became of it; none when it could not be read, or is no longer kept.
    ///
    /// # Errors
    /// What the store says.
    pub fn kept_letter(&self, id: LetterId) -> Result<Option<Inbound>, StoreError> {
        self.read(|sql| {
            let mut query = sql.prepare_cached(
                "SELECT r.inbound FROM letters l JOIN received r ON r.id = l.received_id WHERE l.id = ?1 AND r.inbound IS NOT NULL",
            )?;
            let kept: Option<String> = query.query_row([id.0], |row| row.get(0)).optional()?;
            kept.map(|kept| from_json(&kept)).transpose()
        })
    }

    /// Notes an attempt at a letter before it is made, and gives their number (DESIGN 3, poison).
    ///
    /// # Errors
    /// What the store says.
    pub async fn note_attempt(&self, id: LetterId) -> Result<u32, StoreError> {
        self.write(move |writing| {
            let mut note = writing.sql.prepare_cached("UPDATE letters SET attempts = attempts + 1 WHERE id = ?1 RETURNING attempts")?;
            Ok(note.query_row([id.0], |row| row.get(0))?)
        })
        .await
    }

    /// Changes the verdict of a letter that was not answered: quarantine, hold, drop, release. A released
    /// letter gets a fresh run, and a thread if it had none. False when there was nothing to change: it was
    /// answered, it is accepted already (see [`Store::retry_letter`]), or its run still goes on.
    ///
    /// # Errors
    /// What the store says.
    pub async fn judge_letter(&self, id: LetterId, verdict: Verdict, reason: &str) -> Result<bool, StoreError> {
        let reason = if reason.is_empty() { verdict.as_str().to_owned() } else { short(reason, 500) };
        self.write(move |writing| judge(writing, id, verdict, &reason)).await
    }

    /// Gives an accepted letter a fresh run: its failed or finished run stays for the record.
    ///
    /// # Errors
    /// What the store says.
    pub async fn retry_letter(&self, id: LetterId) -> Result<bool, StoreError> {
        self.write(move |writing| {
            let changed = writing
                .sql
                .prepare_cached(
                    "UPDATE letters SET run_id = NULL, attempts = 0, epoch = ?2, reason = 'to be answered again'
                     WHERE id = ?1 AND verdict = 'accepted' AND run_id IS NOT NULL
                         AND EXISTS (SELECT 1 FROM received m WHERE m.id = letters.received_id AND m.inbound IS NOT NULL)
                         AND (SELECT r.status FROM runs r WHERE r.id = letters.run_id) IN ('done', 'failed', 'cancelled', 'expired')",
                )?
                .execute((id.0, writing.epoch))?;
            writing.wake_letters();
            Ok(changed > 0)
        })
        .await
    }

    /// Releases, oldest first, letters held by a sender, domain or day limit whose window has room again
    /// (DESIGN 2.7). Gives how many.
    ///
    /// # Errors
    /// What the store says.
    pub async fn release_limited(&self, limits: &Limits, now: DateTime<Utc>) -> Result<u32, StoreError> {
        let limits = limits.clone();
        self.write(move |writing| limits::release(writing, &limits, now)).await
    }
}

/// One letter, when a run can take it.
fn letter(sql: &Connection, epoch: i64, id: LetterId) -> Result<Option<WaitingLetter>, StoreError> {
    let mut query = sql.prepare_cached(
        "SELECT l.id, l.mailbox, l.agent, l.thread_id, l.attempts, l.epoch, r.inbound, l.identity, l.own_address, l.reply_to, r.nonce,
             l.received_at
         FROM letters l JOIN received r ON r.id = l.received_id
         WHERE l.id = ?1 AND l.agent IS NOT NULL AND l.thread_id IS NOT NULL AND r.inbound IS NOT NULL
             AND l.own_address IS NOT NULL AND l.reply_to IS NOT NULL",
    )?;
    let mut rows = query.query([id.0])?;
    rows.next()?.map(|row| waiting_letter(sql, epoch, row)).transpose()
}

fn waiting_letter(sql: &Connection, epoch: i64, row: &Row<'_>) -> Result<WaitingLetter, StoreError> {
    let thread = ThreadId(row.get(3)?);
    Ok(WaitingLetter {
        id: LetterId(row.get(0)?),
        mailbox: row.get(1)?,
        agent: row.get(2)?,
        thread,
        attempts: row.get(4)?,
        careful: row.get::<_, i64>(5)? < epoch,
        inbound: from_json(&row.get::<_, String>(6)?)?,
        identity: word(&row.get::<_, String>(7)?, Identity::from_word)?,
        own_address: checked(row.get::<_, String>(8)?.parse())?,
        reply_to: checked(row.get::<_, String>(9)?.parse())?,
        nonce: row.get(10)?,
        received_at: row.get::<_, Stamp>(11)?.0,
        participants: participants(sql, thread)?,
    })
}

/// The participants of a thread.
pub(super) fn participants(sql: &Connection, thread: ThreadId) -> Result<BTreeSet<Address>, StoreError> {
    let mut query = sql.prepare_cached("SELECT address FROM participants WHERE thread_id = ?1 ORDER BY address")?;
    let mut rows = query.query([thread.0])?;
    let mut participants = BTreeSet::new();
    while let Some(row) = rows.next()? {
        participants.insert(checked(row.get::<_, String>(0)?.parse())?);
    }
    Ok(participants)
}

fn judge(writing: &Writing<'_>, id: LetterId, verdict: Verdict, reason: &str) -> Result<bool, StoreError> {
    let mut query = writing.sql.prepare_cached(
        "SELECT l.agent, l.mailbox, l.subject, l.reply_to, l.thread_id FROM letters l
         WHERE l.id = ?1 AND (l.verdict <> ?2 OR (l.reason <> ?3 AND ?2 <> 'accepted'))
             AND (?2 <> 'accepted' OR EXISTS (SELECT 1 FROM received m WHERE m.id = l.received_id AND m.inbound IS NOT NULL))
             AND NOT EXISTS (
                 SELECT 1 FROM runs r
                 WHERE r.id = l.run_id AND (r.status = 'done' OR (?2 = 'accepted' AND r.status IN ('queued', 'running', 'needs_input'))))",
    )?;
    let found = query.query_row((id.0, verdict.as_str(), reason), |row| {
        let thread = row.get::<_, Option<i64>>(4)?.map(ThreadId);
        let (agent, reply_to) = (row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(3)?);
        Ok((agent, row.get::<_, String>(1)?, row.get::<_, String>(2)?, reply_to, thread))
    });
    let Some((agent, mailbox, subject, reply_to, thread)) = found.optional()? else { return Ok(false) };
    let thread = match (verdict, thread, agent, reply_to) {
        (Verdict::Accepted, None, Some(agent), Some(reply_to)) => {
            let created_at = crate::clock::now();
            let new =
                NewThread { agent: &agent, mailbox: &mailbox, subject: &subject, participant: &reply_to, related_to: None, created_at };
            Some(new_thread(writing, &new)?)
        }
        // Nobody could answer it.
        (Verdict::Accepted, None, _, _) => return Ok(false),
        (_, thread, _, _) => thread,
    };
    let accepted_at = (verdict == Verdict::Accepted).then(Stamp::now);
    writing
        .sql
        .prepare_cached(
            "UPDATE letters SET verdict = ?2, reason = ?3, thread_id = ?4, accepted_at = coalesce(?5, accepted_at), held_by_thread = 0,
                 attempts = CASE WHEN ?2 = 'accepted' THEN 0 ELSE attempts END,
                 epoch = CASE WHEN ?2 = 'accepted' THEN ?6 ELSE epoch END,
                 run_id = CASE WHEN ?2 = 'accepted' THEN NULL ELSE run_id END
             WHERE id = ?1",
        )?
        .execute((id.0, verdict.as_str(), reason, thread.map(|thread| thread.0), accepted_at, writing.epoch))?;
    record(writing, None, event_of(verdict), &json!({ "letter": id, "verdict": verdict.as_str() }))?;
    writing.wake_letters();
    Ok(true)
}
