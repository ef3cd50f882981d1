//! The receiving transaction: what is known of a letter, what the gateway decides about it, and its rows.

use std::collections::BTreeSet;

use chrono::{DateTime, Duration, Utc};
use rusqlite::{OptionalExtension, named_params};
use serde_json::json;

use super::audit::{Stamp, checked, record, short, to_json, word};
use super::letters::participants;
use super::limits::{Candidate, reached};
use super::writer::Writing;
use super::{Decide, Delivery, Incoming, Position, Received, Related, Standing, StoreError, ThreadChoice, Verdict};
use crate::mail::{Address, MessageId};
use crate::run::{EventKind, Identity, LetterId, ThreadId};

/// How long the same content is the same letter (email B9).
const DUPLICATE_DAYS: i64 = 7;

/// Threads that one letter may refer to, at most.
const RELATED: usize = 100;

/// What a new thread begins with.
pub(super) struct NewThread<'a> {
    /// Its agent.
    pub(super) agent: &'a str,
    /// Its mailbox.
    pub(super) mailbox: &'a str,
    /// The first letter's subject.
    pub(super) subject: &'a str,
    /// Its only participant.
    pub(super) participant: &'a str,
    /// A thread that its first letter referred to without the right to join.
    pub(super) related_to: Option<ThreadId>,
    /// When it began.
    pub(super) created_at: DateTime<Utc>,
}

/// A letter's rows as they will stand.
struct Fate<'a> {
    delivery: &'a Delivery,
    identity: Identity,
    thread: Option<ThreadId>,
    verdict: Verdict,
    reason: String,
    held_by_thread: bool,
    duplicate_of: Option<LetterId>,
}

/// Keeps one letter; the whole of durable hand-off 1.
pub(super) fn receive(writing: &Writing<'_>, incoming: &Incoming, decide: Decide) -> Result<Received, StoreError> {
    move_cursor(writing, incoming)?;
    let place = incoming.position.to_string();
    let mut known = writing.sql.prepare_cached("SELECT received_id FROM places WHERE mailbox = ?1 AND folder = ?2 AND place = ?3")?;
    let known = known.query_row((&incoming.mailbox, &incoming.folder, &place), |row| row.get::<_, Option<i64>>(0)).optional()?;
    if let Some(received) = known {
        return Ok(Received { new: false, letters: letters_of(writing, received)? });
    }
    let standing = standing(writing, incoming)?;
    let decision = decide(&standing);
    let received = keep(writing, incoming, &place)?;
    let mut letters = Vec::new();
    for delivery in &decision.deliveries {
        let mut fate = decide_fate(writing, incoming, delivery, decision.identity)?;
        fate.duplicate_of = standing.duplicate_of;
        let id = insert(writing, incoming, received, &fate)?;
        record(writing, None, EventKind::LetterReceived, &json!({ "letter": id, "bytes": incoming.raw.len() }))?;
        record(writing, None, event_of(fate.verdict), &json!({ "letter": id, "verdict": fate.verdict.as_str() }))?;
        if fate.verdict == Verdict::Accepted {
            writing.wake_letters();
        }
        letters.push((id, fate.verdict, fate.reason));
    }
    Ok(Received { new: true, letters })
}

/// The event of a verdict.
pub(super) fn event_of(verdict: Verdict) -> EventKind {
    match verdict {
        Verdict::Accepted => EventKind::LetterAccepted,
        Verdict::Ignored | Verdict::Duplicate => EventKind::LetterIgnored,
        Verdict::Held => EventKind::LetterHeld,
        Verdict::Quarantined => EventKind::LetterQuarantined,
    }
}

/// Begins a thread.
pub(super) fn new_thread(writing: &Writing<'_>, new: &NewThread<'_>) -> Result<ThreadId, StoreError> {
    let mut insert = writing.sql.prepare_cached(
        "INSERT INTO threads (agent, mailbox, subject, status, related_to, created_at, last_at)
         VALUES (:agent, :mailbox, :subject, 'open', :related, :at, :at) RETURNING id",
    )?;
    let id: i64 = insert.query_row(
        named_params! {
            ":agent": new.agent,
            ":mailbox": new.mailbox,
            ":subject": new.subject,
            ":related": new.related_to.map(|thread| thread.0),
            ":at": Stamp(new.created_at),
        },
        |row| row.get(0),
    )?;
    writing.sql.prepare_cached("INSERT INTO participants (thread_id, address) VALUES (?1, ?2)")?.execute((id, new.participant))?;
    Ok(ThreadId(id))
}

/// An IMAP place moves the cursor; a known one too, so that it is not fetched again and again.
fn move_cursor(writing: &Writing<'_>, incoming: &Incoming) -> Result<(), StoreError> {
    let Position::Imap { uidvalidity, uid } = incoming.position else { return Ok(()) };
    if let Some(before) = incoming.follows {
        let mut reached =
            writing.sql.prepare_cached("SELECT 1 FROM cursors WHERE mailbox = ?1 AND folder = ?2 AND uidvalidity = ?3 AND uid >= ?4")?;
        if !reached.exists((&incoming.mailbox, &incoming.folder, uidvalidity, before))? {
            return Err(StoreError::Retry(format!("the letter before it, {before}, was not stored")));
        }
    }
    writing
        .sql
        .prepare_cached(
            "INSERT INTO cursors (mailbox, folder, uidvalidity, uid) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (mailbox, folder) DO UPDATE SET
                 uid = CASE WHEN uidvalidity = excluded.uidvalidity THEN max(uid, excluded.uid) ELSE excluded.uid END,
                 uidvalidity = excluded.uidvalidity",
        )?
        .execute((&incoming.mailbox, &incoming.folder, uidvalidity, uid))?;
    Ok(())
}

fn letters_of(writing: &Writing<'_>, received: Option<i64>) -> Result<Vec<(LetterId, Verdict, String)>, StoreError> {
    let mut query = writing.sql.prepare_cached("SELECT id, verdict, reason FROM letters WHERE received_id = ?1 ORDER BY id")?;
    let mut rows = query.query([received])?;
    let mut letters = Vec::new();
    while let Some(row) = rows.next()? {
        letters.push((LetterId(row.get(0)?), word(&row.get::<_, String>(1)?, Verdict::from_word)?, row.get(2)?));
    }
    Ok(letters)
}

fn standing(writing: &Writing<'_>, incoming: &Incoming) -> Result<Standing, StoreError> {
    let since = incoming.received_at - Duration::days(DUPLICATE_DAYS);
    let mut query = writing.sql.prepare_cached(
        "SELECT l.id FROM received r JOIN letters l ON l.received_id = r.id
         WHERE r.mailbox = ?1 AND r.sha256 = ?2 AND r.received_at >= ?3 AND l.duplicate_of IS NULL ORDER BY l.id LIMIT 1",
    )?;
    let duplicate_of = query.query_row((&incoming.mailbox, &incoming.sha256, Stamp(since)), |row| row.get(0)).optional()?.map(LetterId);
    let Some(parsed) = &incoming.parsed else { return Ok(Standing { duplicate_of, ..Standing::default() }) };
    let ours = writing.sql.prepare_cached("SELECT 1 FROM outgoing WHERE message_id = ?1")?.exists([parsed.message_id.as_str()])?;
    let (mut related, mut seen) = (Vec::new(), BTreeSet::new());
    for id in parsed.in_reply_to.iter().chain(parsed.references.iter().rev()) {
        if related.len() < RELATED && seen.insert(id) {
            related.extend(related_by(writing, id)?);
        }
    }
    related.truncate(RELATED);
    Ok(Standing { duplicate_of, ours, related })
}

/// The threads of a referenced id: those in which we mailed it, then those in which a customer wrote it.
fn related_by(writing: &Writing<'_>, id: &MessageId) -> Result<Vec<Related>, StoreError> {
    let mut query = writing.sql.prepare_cached(
        "SELECT t.id, t.agent, t.status, t.reason, named.recipient
         FROM (
             SELECT thread_id, recipient FROM outgoing WHERE message_id = ?1
             UNION
             SELECT thread_id, NULL FROM letters WHERE message_id = ?1) named
         JOIN threads t ON t.id = named.thread_id
         ORDER BY named.recipient IS NULL, t.id, named.recipient LIMIT 20",
    )?;
    let mut rows = query.query([id.as_str()])?;
    let mut related = Vec::new();
    while let Some(row) = rows.next()? {
        let thread = ThreadId(row.get(0)?);
        let held = row.get::<_, String>(2)? == "held";
        let mailed_to = row.get::<_, Option<String>>(4)?.map(|address| checked(address.parse::<Address>())).transpose()?;
        related.push(Related {
            message_id: id.clone(),
            thread,
            agent: row.get(1)?,
            mailed_to,
            participants: participants(writing.sql, thread)?,
            held: held.then(|| row.get::<_, Option<String>>(3)).transpose()?.map(Option::unwrap_or_default),
        });
    }
    Ok(related)
}

/// Stores the message itself and its place.
fn keep(writing: &Writing<'_>, incoming: &Incoming, place: &str) -> Result<i64, StoreError> {
    let inbound = incoming.parsed.as_ref().map(to_json).transpose()?;
    let mut insert = writing.sql.prepare_cached(
        "INSERT INTO received (mailbox, sha256, received_at, nonce, inbound, raw_kept) VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING id",
    )?;
    // What could not be read may hold attachments.
    let plain = incoming.parsed.as_ref().is_some_and(|parsed| parsed.attachments.is_empty());
    let raw_kept = if plain { "plain" } else { "attached" };
    let values = (&incoming.mailbox, &incoming.sha256, Stamp(incoming.received_at), &incoming.nonce, inbound, raw_kept);
    let received: i64 = insert.query_row(values, |row| row.get(0))?;
    writing.sql.prepare_cached("INSERT INTO raw_letters (received_id, raw) VALUES (?1, ?2)")?.execute((received, &incoming.raw))?;
    writing.sql.prepare_cached("INSERT INTO places (mailbox, folder, place, received_id) VALUES (?1, ?2, ?3, ?4)")?.execute((
        &incoming.mailbox,
        &incoming.folder,
        place,
        received,
    ))?;
    writing.sql.prepare_cached("DELETE FROM parse_attempts WHERE mailbox = ?1 AND folder = ?2 AND place = ?3")?.execute((
        &incoming.mailbox,
        &incoming.folder,
        place,
    ))?;
    Ok(received)
}

/// The verdict after what only the store can see: a held thread, a reached limit, a letter that no run
/// could take. Begins the thread when there is to be one.
fn decide_fate<'a>(writing: &Writing<'_>, incoming: &Incoming, delivery: &'a Delivery, identity: Identity) -> Result<Fate<'a>, StoreError> {
    let now = crate::clock::now();
    let (mut verdict, mut reason) = (delivery.verdict, short(&delivery.reason, 500));
    let joined = match delivery.thread {
        ThreadChoice::Join(thread) => thread_status(writing, thread)?.map(|held| (thread, held)),
        ThreadChoice::New { .. } | ThreadChoice::None => None,
    };
    let answerable = delivery.agent.is_some() && delivery.own_address.is_some() && incoming.parsed.is_some();
    if verdict == Verdict::Accepted && (!answerable || delivery.thread == ThreadChoice::None || delivery.reply_to.is_none()) {
        (verdict, reason) = (Verdict::Quarantined, "nobody could answer it".to_owned());
    }
    let mut held_by_thread = false;
    if let Some((_, Some(why))) = &joined {
        // The gateway may have held it for the same cause; what it held as forged must not leave with the thread.
        let same_cause = verdict == Verdict::Held && identity >= Identity::Unverified && reason.contains(why.as_str());
        held_by_thread = verdict == Verdict::Accepted || same_cause;
        if verdict == Verdict::Accepted {
            (verdict, reason) = (Verdict::Held, format!("the thread is held: {why}"));
        }
    }
    if let (Verdict::Accepted, Some(caps), Some(reply_to)) = (verdict, &delivery.caps, &delivery.reply_to) {
        let thread = joined.as_ref().map(|(thread, _)| *thread);
        let candidate = Candidate { thread, reply_to, per_domain: caps.per_domain };
        if let Some(limit) = reached(writing, &caps.limits, &candidate, now)? {
            (verdict, reason) = (Verdict::Held, limit.to_owned());
        }
    }
    if reason.is_empty() {
        verdict.as_str().clone_into(&mut reason);
    }
    let thread = match joined {
        Some((thread, _)) => Some(thread),
        None => begin_thread(writing, incoming, delivery)?,
    };
    if let Some(thread) = thread {
        writing
            .sql
            .prepare_cached("UPDATE threads SET last_at = max(last_at, ?2) WHERE id = ?1")?
            .execute((thread.0, Stamp(incoming.received_at)))?;
    }
    Ok(Fate { delivery, identity, thread, verdict, reason, held_by_thread, duplicate_of: None })
}

/// Why a thread is held, when it is; none when there is no such thread.
fn thread_status(writing: &Writing<'_>, thread: ThreadId) -> Result<Option<Option<String>>, StoreError> {
    let mut query = writing.sql.prepare_cached("SELECT status, coalesce(reason, 'held') FROM threads WHERE id = ?1")?;
    let found = query.query_row([thread.0], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).optional()?;
    Ok(found.map(|(status, reason)| (status == "held").then_some(reason)))
}

/// A new thread; also in place of one that does not exist any more.
fn begin_thread(writing: &Writing<'_>, incoming: &Incoming, delivery: &Delivery) -> Result<Option<ThreadId>, StoreError> {
    let related_to = match delivery.thread {
        ThreadChoice::New { related_to } => related_to,
        ThreadChoice::Join(_) => None,
        ThreadChoice::None => return Ok(None),
    };
    let (Some(agent), Some(reply_to)) = (&delivery.agent, &delivery.reply_to) else { return Ok(None) };
    let subject = incoming.parsed.as_ref().map_or("", |parsed| parsed.subject.as_str());
    let created_at = incoming.received_at;
    let participant = reply_to.as_str();
    new_thread(writing, &NewThread { agent, mailbox: &incoming.mailbox, subject, participant, related_to, created_at }).map(Some)
}

fn insert(writing: &Writing<'_>, incoming: &Incoming, received: i64, fate: &Fate<'_>) -> Result<LetterId, StoreError> {
    let parsed = incoming.parsed.as_ref();
    let delivery = fate.delivery;
    let mut insert = writing.sql.prepare_cached(
        "INSERT INTO letters (received_id, mailbox, agent, own_address, reply_to, reply_domain, sender, message_id, identity, subject,
             received_at, accepted_at, verdict, reason, held_by_thread, per_domain, thread_id, duplicate_of, epoch)
         VALUES (:received, :mailbox, :agent, :own_address, :reply_to, :reply_domain, :sender, :message_id, :identity, :subject,
             :received_at, :accepted_at, :verdict, :reason, :held_by_thread, :per_domain, :thread, :duplicate_of, :epoch)
         RETURNING id",
    )?;
    let id = insert.query_row(
        named_params! {
            ":received": received,
            ":mailbox": incoming.mailbox,
            ":agent": delivery.agent,
            ":own_address": delivery.own_address.as_ref().map(Address::as_str),
            ":reply_to": delivery.reply_to.as_ref().map(Address::as_str),
            ":reply_domain": delivery.reply_to.as_ref().map(Address::domain),
            ":sender": parsed.map(|parsed| parsed.from.address.as_str()),
            ":message_id": parsed.map(|parsed| parsed.message_id.as_str()),
            ":identity": fate.identity.as_str(),
            ":subject": parsed.map_or("", |parsed| parsed.subject.as_str()),
            ":received_at": Stamp(incoming.received_at),
            ":accepted_at": (fate.verdict == Verdict::Accepted).then(Stamp::now),
            ":verdict": fate.verdict.as_str(),
            ":reason": fate.reason,
            ":held_by_thread": fate.held_by_thread,
            ":per_domain": delivery.caps.as_ref().is_some_and(|caps| caps.per_domain),
            ":thread": fate.thread.map(|thread| thread.0),
            ":duplicate_of": fate.duplicate_of.map(|letter| letter.0),
            ":epoch": writing.epoch,
        },
        |row| row.get(0),
    )?;
    Ok(LetterId(id))
}
