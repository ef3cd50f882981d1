//! One look into the watched folder: what is new there becomes rows, then is marked on the server. What
//! is known of the folder outlives a session.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta};
use tokio_util::sync::CancellationToken;

use super::intake::{HEADER_OF_TOO_LARGE, KeepError, RawLetter, TEXT_OF_TOO_LARGE, alert_key, beginning, uid_of};
use super::serve::Receiver;
use crate::config::AfterProcessing;
use crate::gateway::imap::{Facts, ImapError, Selected, Session, uid_set};
use crate::store::{Cursor, Position, StoreError};

/// UIDs that are asked about at once (email B3).
const WINDOW: usize = 500;
/// Letters, and their bytes, that are fetched by one command and committed together.
const TOGETHER: usize = 64;
const BYTES_TOGETHER: u64 = 4 << 20;
/// How often a letter may make its own fetch fail before it is given up (email A14).
const UNFETCHABLE_AFTER: u32 = 3;
/// Marks that are remembered while the server refuses them.
const MOST_UNMARKED: usize = 10_000;

/// Why a sweep ended early.
#[derive(Debug)]
pub(super) enum SweepError {
    /// The session must be dropped.
    Imap(ImapError),
    /// The store cannot be written now, or a letter failed: look again.
    Again(String),
    /// The server cannot be worked with; the operator was told.
    Unusable(&'static str),
    /// The daemon must end.
    Store(StoreError),
}

impl From<ImapError> for SweepError {
    fn from(error: ImapError) -> Self {
        SweepError::Imap(error)
    }
}

impl From<StoreError> for SweepError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Retry(reason) => SweepError::Again(reason),
            end => SweepError::Store(end),
        }
    }
}

/// What is known of the watched folder.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// Where reading goes on, as the store has it.
    pub(super) cursor: Option<Cursor>,
    selected: Option<Selected>,
    /// The next look asks with SEARCH, since much may have come; later ones fetch at once.
    backlog: bool,
    /// The next SEARCH's letters are taken one at a time, to find the one that breaks its session.
    suspicious: bool,
    /// Up to this UID letters are taken one at a time.
    single_to: u32,
    /// How often a letter, taken alone, made its fetch fail.
    failures: BTreeMap<u32, u32>,
    /// Stored letters that are not marked on the server yet.
    unmarked: BTreeSet<u32>,
    /// Letters kept since this was last asked.
    kept: u64,
}

impl Folder {
    /// Letters kept since the last call.
    pub(super) fn take_kept(&mut self) -> u64 {
        std::mem::take(&mut self.kept)
    }

    /// Opens the folder and finds where reading goes on (email B4, B5; decision 4).
    pub(super) async fn begin(&mut self, session: &mut Session, receiver: &mut Receiver) -> Result<(), SweepError> {
        let (name, folder) = (receiver.mailbox.name.clone(), receiver.mailbox.folder.clone());
        let selected = session.select(&folder, false).await?;
        let Some(uidvalidity) = selected.uidvalidity else {
            let text =
                format!("The server of the mailbox \"{name}\" gives no UIDVALIDITY, so letters cannot be told apart: nothing is received.");
            (receiver.intake.alert)(alert_key("uidvalidity", &receiver.mailbox), "A mailbox cannot be used".to_owned(), text);
            return Err(SweepError::Unusable("no UIDVALIDITY"));
        };
        self.selected = Some(selected);
        self.backlog = true;
        let store = receiver.intake.store.clone();
        let known = store.cursor(&name, &folder).await?;
        let (top, announced) = top(session, &folder, selected).await?;
        match known {
            None => {
                tracing::info!(mailbox = name, uidvalidity, uid = top, "first start: what lies here stays unanswered");
                let now = u32::try_from(crate::clock::now().timestamp()).unwrap_or(0);
                store.set_cursor(&name, &begun_key(&folder), Cursor { uidvalidity, uid: now }).await?;
                store.set_cursor(&name, &folder, Cursor { uidvalidity, uid: top }).await?;
            }
            Some(cursor) if cursor.uidvalidity != uidvalidity => {
                tracing::warn!(mailbox = name, old = cursor.uidvalidity, new = uidvalidity, "UIDVALIDITY changed: looking for what is new");
                self.unmarked.clear();
                self.failures.clear();
                store.set_cursor(&name, &rescan_key(&folder), Cursor { uidvalidity, uid: top }).await?;
            }
            Some(cursor) if announced && top < cursor.uid => {
                let text = format!(
                    "UIDs of the mailbox \"{name}\" went backwards without a new UIDVALIDITY: letters that reuse a UID may be missed."
                );
                (receiver.intake.alert)(alert_key("uids_reset", &receiver.mailbox), "A mail server reused UIDs".to_owned(), text);
                store.set_cursor(&name, &folder, Cursor { uidvalidity, uid: top }).await?;
            }
            Some(_) => {}
        }
        let rescan = store.cursor(&name, &rescan_key(&folder)).await?;
        if let Some(rescan) = rescan.filter(|rescan| rescan.uidvalidity == uidvalidity && rescan.uid > 0) {
            self.rescan(session, receiver, rescan).await?;
        }
        self.cursor = store.cursor(&name, &folder).await?;
        Ok(())
    }

    /// After a changed UIDVALIDITY: letters that came after the last known one, save those known by their
    /// hash. Stands in the store until it is through, so that a crash repeats it (email B4).
    async fn rescan(&mut self, session: &mut Session, receiver: &mut Receiver, to: Cursor) -> Result<(), SweepError> {
        let (name, folder) = (receiver.mailbox.name.clone(), receiver.mailbox.folder.clone());
        let since = receiver.intake.store.last_received(&name)?.unwrap_or_else(crate::clock::now) - TimeDelta::hours(1);
        // What lay here at the first start is old, however soon after it this happens.
        let begun = receiver.intake.store.cursor(&name, &begun_key(&folder)).await?;
        let begun = begun.and_then(|begun| DateTime::from_timestamp(i64::from(begun.uid), 0));
        // SINCE compares days in the server's zone: one day more, and the exact time below.
        let found = session.search(&format!("SINCE {}", (since - TimeDelta::days(1)).format("%-d-%b-%Y"))).await?;
        let found: Vec<u32> = found.into_iter().filter(|uid| *uid <= to.uid).collect();
        for window in found.chunks(WINDOW) {
            let facts = session.facts(&uid_set(window.iter().copied())).await?;
            for facts in facts.into_iter().filter(|facts| window.contains(&facts.uid) && !facts.deleted) {
                if facts.received_at.is_some_and(|at| at <= since || begun.is_some_and(|begun| at < begun)) {
                    continue;
                }
                for letter in self.fetch(session, receiver, to.uidvalidity, &[facts]).await? {
                    receiver.intake.keep_if_unknown(letter).await.map_err(keep_error)?;
                    self.kept += 1;
                }
            }
        }
        let store = &receiver.intake.store;
        store.set_cursor(&name, &folder, to).await?;
        store.set_cursor(&name, &rescan_key(&folder), Cursor { uidvalidity: to.uidvalidity, uid: 0 }).await?;
        Ok(())
    }

    /// Takes all that is new.
    pub(super) async fn sweep(
        &mut self,
        session: &mut Session,
        receiver: &mut Receiver,
        stop: &CancellationToken,
    ) -> Result<(), SweepError> {
        while let Some(cursor) = self.cursor {
            let Some(from) = cursor.uid.checked_add(1) else { return Ok(()) };
            if stop.is_cancelled() {
                return Ok(());
            }
            let (facts, to) = self.look(session, from).await?;
            let Some(to) = to else { return Ok(()) };
            self.take(session, receiver, cursor, &facts).await?;
            self.pass(receiver, to).await?;
            self.mark(session, receiver).await?;
        }
        Ok(())
    }

    /// What is new, ascending, and the UID up to which this is all there is; none when nothing is new.
    async fn look(&mut self, session: &mut Session, from: u32) -> Result<(Vec<Facts>, Option<u32>), SweepError> {
        if !self.backlog {
            // `n:*` gives the last letter when n is beyond it (email B3).
            let facts = session.facts(&format!("{from}:*")).await.inspect_err(|error| self.suspect(error))?;
            let mut facts: Vec<Facts> = facts.into_iter().filter(|facts| facts.uid >= from).collect();
            self.backlog = facts.len() > WINDOW;
            facts.truncate(WINDOW);
            let to = facts.last().map(|last| last.uid);
            return Ok((facts, to));
        }
        let found: Vec<u32> = session.search(&format!("UID {from}:*")).await?.into_iter().filter(|uid| *uid >= from).collect();
        if self.suspicious {
            self.suspicious = false;
            self.single_to = found.last().copied().unwrap_or(0);
        }
        let alone = found.first().is_some_and(|first| *first <= self.single_to);
        let window = found.chunks(if alone { 1 } else { WINDOW }).next().unwrap_or_default();
        let Some(to) = window.last().copied() else {
            self.backlog = false;
            return Ok((Vec::new(), None));
        };
        self.backlog = found.len() > window.len();
        match session.facts(&uid_set(window.iter().copied())).await {
            Ok(facts) => Ok((facts.into_iter().filter(|facts| window.contains(&facts.uid)).collect(), Some(to))),
            Err(error) if alone => {
                self.blame(to, &error);
                // Without its size it is tried alone, and given up when that fails, too.
                let given_up = self.is_given_up(to).then_some(Facts { uid: to, bytes: 0, received_at: None, deleted: false });
                given_up.map_or(Err(error.into()), |facts| Ok((vec![facts], Some(to))))
            }
            Err(error) => {
                self.suspect(&error);
                Err(error.into())
            }
        }
    }

    /// Fetches and keeps letters in ascending order, a few by one command.
    async fn take(&mut self, session: &mut Session, receiver: &mut Receiver, start: Cursor, facts: &[Facts]) -> Result<(), SweepError> {
        let wanted: Vec<Facts> = facts.iter().copied().filter(|facts| !facts.deleted).collect();
        let mut rest = wanted.as_slice();
        while let Some(count) = self.together(rest, receiver.limits.letter_bytes) {
            let (now, later) = rest.split_at(count);
            rest = later;
            let letters = self.fetch(session, receiver, start.uidvalidity, now).await?;
            let uids: Vec<u32> = letters.iter().filter_map(|letter| uid_of(&letter.position)).collect();
            receiver.intake.keep(letters).await.map_err(keep_error)?;
            self.kept += u64::try_from(uids.len()).unwrap_or(u64::MAX);
            self.unmarked.extend(&uids);
            if let Some(last) = uids.last() {
                self.cursor = Some(Cursor { uidvalidity: start.uidvalidity, uid: *last });
            }
        }
        Ok(())
    }

    /// How many of these letters one command fetches; none when there are none.
    fn together(&self, facts: &[Facts], letter_bytes: u64) -> Option<usize> {
        let first = facts.first()?;
        if first.uid <= self.single_to || first.bytes > letter_bytes {
            return Some(1);
        }
        let mut bytes = 0_u64;
        let fitting = facts.iter().take(TOGETHER).take_while(|facts| {
            bytes = bytes.saturating_add(facts.bytes);
            bytes <= BYTES_TOGETHER && facts.bytes <= letter_bytes
        });
        Some(fitting.count().max(1))
    }

    /// Fetches letters. One that is gone is left out (email B6); one that cannot be fetched is found by
    /// fetching alone, and after three failures kept without its text (email A14).
    async fn fetch(
        &mut self,
        session: &mut Session,
        receiver: &Receiver,
        uidvalidity: u32,
        facts: &[Facts],
    ) -> Result<Vec<RawLetter>, SweepError> {
        if let [only] = facts
            && self.is_given_up(only.uid)
        {
            let text = format!(
                "The letter {uidvalidity}:{} of the mailbox \"{}\" cannot be fetched: look at it in a mail program.",
                only.uid, receiver.mailbox.name
            );
            (receiver.intake.alert)(alert_key("unfetchable", &receiver.mailbox), "A letter cannot be fetched".to_owned(), text);
            return Ok(vec![raw_letter(receiver, uidvalidity, *only, Vec::new(), Some("unfetchable"))]);
        }
        match self.bodies(session, receiver, facts).await {
            Ok(bodies) => {
                Ok(bodies.into_iter().map(|(facts, raw, unread)| raw_letter(receiver, uidvalidity, facts, raw, unread)).collect())
            }
            Err(error) => {
                match facts {
                    [only] => self.blame(only.uid, &error),
                    _ => self.suspect(&error),
                }
                Err(error.into())
            }
        }
    }

    async fn bodies(
        &mut self,
        session: &mut Session,
        receiver: &Receiver,
        facts: &[Facts],
    ) -> Result<Vec<(Facts, Vec<u8>, Option<&'static str>)>, ImapError> {
        let limit = receiver.limits.letter_bytes;
        if let [only] = facts
            && only.bytes > limit
        {
            let start = session.beginning(only.uid, HEADER_OF_TOO_LARGE, TEXT_OF_TOO_LARGE).await?;
            return Ok(start.map(|raw| (*only, raw, Some("too_large"))).into_iter().collect());
        }
        let uids: Vec<u32> = facts.iter().map(|facts| facts.uid).collect();
        let bytes = facts.iter().fold(0_u64, |sum, facts| sum.saturating_add(facts.bytes));
        let mut found: BTreeMap<u32, Vec<u8>> = session.bodies(&uids, bytes).await?.into_iter().map(|body| (body.uid, body.raw)).collect();
        let missing: Vec<u32> = uids.into_iter().filter(|uid| !found.contains_key(uid)).collect();
        // A server may answer OK and leave a body out: only what is really gone may be passed over.
        if !missing.is_empty() && session.facts(&uid_set(missing.iter().copied())).await?.iter().any(|facts| missing.contains(&facts.uid)) {
            return Err(ImapError::Refused { step: "FETCH", text: "a letter came without its text".to_owned() });
        }
        let whole = facts.iter().filter_map(|facts| found.remove(&facts.uid).map(|raw| (*facts, raw)));
        Ok(whole
            .map(|(facts, raw)| {
                if u64::try_from(raw.len()).unwrap_or(u64::MAX) > limit {
                    (facts, beginning(&raw), Some("too_large"))
                } else {
                    (facts, raw, None)
                }
            })
            .collect())
    }

    /// A fetch of several failed in a way that one letter may have caused.
    fn suspect(&mut self, error: &ImapError) {
        if matches!(error, ImapError::Unparsable(_) | ImapError::Refused { .. }) {
            self.suspicious = true;
        }
    }

    /// The same, of one letter alone.
    fn blame(&mut self, uid: u32, error: &ImapError) {
        if matches!(error, ImapError::Unparsable(_) | ImapError::Refused { .. }) {
            *self.failures.entry(uid).or_default() += 1;
            self.single_to = self.single_to.max(uid);
        }
    }

    fn is_given_up(&self, uid: u32) -> bool {
        self.failures.get(&uid).is_some_and(|failures| *failures >= UNFETCHABLE_AFTER)
    }

    /// Moves the stored cursor past what is known to be missing or deleted (email B6, B8).
    async fn pass(&mut self, receiver: &Receiver, to: u32) -> Result<(), SweepError> {
        let Some(cursor) = self.cursor.filter(|cursor| cursor.uid < to) else { return Ok(()) };
        let passed = Cursor { uid: to, ..cursor };
        receiver.intake.store.set_cursor(&receiver.mailbox.name, &receiver.mailbox.folder, passed).await?;
        self.cursor = Some(passed);
        self.failures.retain(|uid, _| *uid > to);
        Ok(())
    }

    /// Marks stored letters on the server as the operator wants it: best effort, tried again (email B13).
    pub(super) async fn mark(&mut self, session: &mut Session, receiver: &Receiver) -> Result<(), SweepError> {
        if self.unmarked.is_empty() {
            return Ok(());
        }
        let set = uid_set(self.unmarked.iter().copied());
        let keywords = self.selected.is_some_and(|selected| selected.keywords);
        let marked = match &receiver.mailbox.after_processing {
            AfterProcessing::Seen => session.add_flag(&set, "\\Seen").await,
            AfterProcessing::Keyword if keywords => session.add_flag(&set, "$Dutiful").await,
            AfterProcessing::Move(target) if *target != receiver.mailbox.folder => session.move_to(&set, target).await,
            AfterProcessing::None | AfterProcessing::Keyword | AfterProcessing::Move(_) => Ok(()),
        };
        match marked {
            Ok(()) => self.unmarked.clear(),
            Err(ImapError::Refused { step, text }) => {
                tracing::warn!(
                    mailbox = receiver.mailbox.name,
                    step,
                    text,
                    letters = self.unmarked.len(),
                    "stored letters could not be marked"
                );
                while self.unmarked.len() > MOST_UNMARKED {
                    self.unmarked.pop_first();
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The highest UID that may be in use, and whether the server announced it: otherwise it is only the
/// highest that is there now (email B5).
async fn top(session: &mut Session, folder: &str, selected: Selected) -> Result<(u32, bool), SweepError> {
    if let Some(next) = selected.uidnext {
        return Ok((next.saturating_sub(1), true));
    }
    // Some servers refuse STATUS of the opened folder: then SEARCH decides.
    match session.uidnext(folder).await {
        Ok(Some(next)) => Ok((next.saturating_sub(1), true)),
        Ok(None) | Err(ImapError::Refused { .. }) => Ok((session.search("ALL").await?.last().copied().unwrap_or(0), false)),
        Err(error) => Err(error.into()),
    }
}

/// Under this name the store keeps that a rescan is not through, and up to which UID it goes.
fn rescan_key(folder: &str) -> String {
    format!("{folder}\u{1}rescan")
}

/// Under this name the store keeps, in place of a UID, the second of the first start.
fn begun_key(folder: &str) -> String {
    format!("{folder}\u{1}begun")
}

fn raw_letter(receiver: &Receiver, uidvalidity: u32, facts: Facts, raw: Vec<u8>, unread: Option<&'static str>) -> RawLetter {
    // A copied-in letter has the date that its copier gave it: none lies ahead of us (email C17).
    let now = crate::clock::now();
    RawLetter {
        mailbox: receiver.mailbox.name.clone(),
        folder: receiver.mailbox.folder.clone(),
        position: Position::Imap { uidvalidity, uid: facts.uid },
        raw,
        received_at: facts.received_at.map_or(now, |at| at.clamp(DateTime::UNIX_EPOCH, now)),
        unread,
    }
}

fn keep_error(error: KeepError) -> SweepError {
    match error {
        KeepError::Again(reason) => SweepError::Again(reason),
        KeepError::Store(error) => SweepError::Store(error),
    }
}
