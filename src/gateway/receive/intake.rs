//! From raw letters to committed rows: each is judged, stored in order, and told of. What IMAP and Maildir
//! share. A letter that cannot be judged or stored becomes a quarantined row, never a loop (email B12).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::config::Mailbox;
use crate::events::{Alert, Events};
use crate::run::{EventKind, Identity};
use crate::store::{Decide, Decision, Delivery, Incoming, Position, Received, Store, StoreError, ThreadChoice, Verdict};

/// A letter as it was fetched.
#[derive(Debug, Clone)]
pub struct RawLetter {
    /// `[mailboxes.NAME]`.
    pub mailbox: String,
    /// The folder.
    pub folder: String,
    /// Its place there.
    pub position: Position,
    /// Its bytes; the beginning only when `unread` says that it is too large.
    pub raw: Vec<u8>,
    /// When the server got it.
    pub received_at: DateTime<Utc>,
    /// Why it must not be parsed: it is kept in quarantine, with this reason.
    pub unread: Option<&'static str>,
}

/// Parses a letter and prepares its verdict; runs on a blocking thread, once for each letter.
pub type Judge = Arc<dyn Fn(RawLetter) -> (Incoming, Decide) + Send + Sync>;

/// Attempts at parsing a letter, none of them survived, after which it is quarantined unread: as many as a run has
/// (DESIGN 3).
const POISON_AFTER: u32 = 3;

/// Why letters were not kept.
#[derive(Debug)]
pub(super) enum KeepError {
    /// Look again from where the cursor stood before these letters. Nothing is lost.
    Again(String),
    /// The daemon must end.
    Store(StoreError),
}

/// The intake of one mailbox.
pub struct Intake {
    /// The store.
    pub store: Store,
    /// The verdict's maker.
    pub judge: Judge,
    /// Who is told of letters.
    pub events: Events,
    /// Who is told of trouble.
    pub alert: Alert,
    /// In the first sweep after a start each parse is noted before it is begun (DESIGN 3, poison).
    careful: bool,
    /// Places whose letter failed here: quarantined unread when they come again.
    condemned: BTreeMap<String, &'static str>,
    /// The operator was told that nothing can be stored.
    told_of_full_disk: bool,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("careful", &self.careful).field("condemned", &self.condemned).finish_non_exhaustive()
    }
}

impl Intake {
    /// An intake at the start of the daemon.
    pub fn new(store: Store, judge: Judge, events: Events, alert: Alert) -> Intake {
        Intake { store, judge, events, alert, careful: true, condemned: BTreeMap::new(), told_of_full_disk: false }
    }

    /// The first sweep is over: the letters that a crash could have been caused by are through.
    pub(super) fn trust(&mut self) {
        self.careful = false;
    }

    /// Judges and stores letters in the given order and awaits their commits.
    pub(super) async fn keep(&mut self, letters: Vec<RawLetter>) -> Result<(), KeepError> {
        let mut writes = Vec::with_capacity(letters.len());
        let (mut failure, mut before) = (None, None);
        for letter in letters {
            let position = letter.position.clone();
            let (mailbox, bytes) = (letter.mailbox.clone(), letter.raw.len());
            match self.judged(letter).await {
                Ok((mut incoming, decide)) => {
                    incoming.follows = before;
                    before = uid_of(&position);
                    writes.push((mailbox, position, bytes, self.store.receive(incoming, decide)));
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        for (mailbox, position, bytes, write) in writes {
            match write.await {
                Ok(received) => self.tell(&mailbox, &position, bytes, &received),
                Err(error) => failure = Some(worse(failure, self.failed(&mailbox, &position, error))),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => {
                self.told_of_full_disk = false;
                Ok(())
            }
        }
    }

    /// After a changed UIDVALIDITY: keeps a letter unless it is known by its hash (email B4).
    pub(super) async fn keep_if_unknown(&mut self, letter: RawLetter) -> Result<(), KeepError> {
        let (mailbox, folder, position) = (letter.mailbox.clone(), letter.folder.clone(), letter.position.clone());
        let bytes = letter.raw.len();
        let (incoming, decide) = self.judged(letter).await?;
        let known = self.store.relink(&mailbox, &folder, &position, &incoming.sha256).await;
        match known {
            Ok(true) => Ok(()),
            Ok(false) => match self.store.receive(incoming, decide).await {
                Ok(received) => {
                    self.tell(&mailbox, &position, bytes, &received);
                    Ok(())
                }
                Err(error) => Err(self.failed(&mailbox, &position, error)),
            },
            Err(error) => Err(self.failed(&mailbox, &position, error)),
        }
    }

    /// The judgement of one letter, made on a blocking thread: a panic of a parser ends there (email C1).
    async fn judged(&mut self, mut letter: RawLetter) -> Result<(Incoming, Decide), KeepError> {
        let place = letter.position.to_string();
        if letter.unread.is_none() {
            letter.unread = self.condemned.get(&place).copied();
        }
        if self.careful && letter.unread.is_none() {
            let noted = self.store.note_parse(&letter.mailbox, &letter.folder, &letter.position).await;
            match noted {
                Ok(times) if times > POISON_AFTER => letter.unread = Some("poison"),
                Ok(_) => {}
                Err(error) => return Err(self.failed(&letter.mailbox, &letter.position, error)),
            }
        }
        if let Some(reason) = letter.unread {
            return Ok(quarantined(letter, reason));
        }
        let (judge, mailbox) = (Arc::clone(&self.judge), letter.mailbox.clone());
        match tokio::task::spawn_blocking(move || judge(letter)).await {
            Ok(judged) => Ok(judged),
            Err(fault) => {
                tracing::error!(mailbox, place, panicked = fault.is_panic(), "a letter could not be parsed");
                self.condemned.insert(place, "parser_fault");
                Err(KeepError::Again("a letter could not be parsed".to_owned()))
            }
        }
    }

    /// What a failed write means.
    fn failed(&mut self, mailbox: &str, position: &Position, error: StoreError) -> KeepError {
        tracing::warn!(mailbox, place = %position, %error, "a letter could not be stored");
        match error {
            StoreError::Retry(reason) => {
                if !self.told_of_full_disk {
                    self.told_of_full_disk = true;
                    let text = format!(
                        "Letters of the mailbox \"{mailbox}\" cannot be stored: {reason}.\nThey stay on the server and are received \
                         once the store can be written again."
                    );
                    (self.alert)(format!("store_full:{mailbox}"), "Letters cannot be stored".to_owned(), text);
                }
                KeepError::Again(reason)
            }
            StoreError::Fault(reason) => match self.condemned.insert(position.to_string(), "store_fault") {
                Some("store_fault") => KeepError::Store(StoreError::Fault(reason)),
                _ => KeepError::Again(reason),
            },
            end => KeepError::Store(end),
        }
    }

    fn tell(&self, mailbox: &str, position: &Position, bytes: usize, received: &Received) {
        tracing::info!(mailbox, place = %position, bytes, new = received.new, letters = received.letters.len(), "letter kept");
        if !received.new {
            return;
        }
        for (letter, verdict, reason) in &received.letters {
            let data = json!({ "letter": letter.0, "mailbox": mailbox, "verdict": verdict.as_str(), "reason": reason });
            self.events.emit(None, EventKind::LetterReceived, data.clone());
            let kind = match verdict {
                Verdict::Accepted => EventKind::LetterAccepted,
                Verdict::Ignored | Verdict::Duplicate => EventKind::LetterIgnored,
                Verdict::Held => EventKind::LetterHeld,
                Verdict::Quarantined => EventKind::LetterQuarantined,
            };
            self.events.emit(None, kind, data);
            self.tell_operator(mailbox, *verdict, reason);
        }
    }

    /// A letter that waits for the operator is told of; all that wait for one reason within a window by one
    /// word, since a flood of letters must not become a flood of notices (email F7).
    fn tell_operator(&self, mailbox: &str, verdict: Verdict, reason: &str) {
        let (what, subject, way_out) = match verdict {
            Verdict::Held if reason.starts_with("limit:") => {
                (reason, "Letters wait: a limit is reached", "Those beyond a sender's, a domain's or the day's limit go on by themselves.")
            }
            Verdict::Held => ("held", "A letter waits for you", "`dutiful letter ID --release` lets one go on."),
            Verdict::Quarantined => ("quarantined", "A letter was put into quarantine", "Nobody answers it unless you do."),
            Verdict::Accepted | Verdict::Ignored | Verdict::Duplicate => return,
        };
        let text = format!(
            "A letter to the mailbox \"{mailbox}\" was not answered: {reason}.\n{way_out}\nSee `dutiful letters --verdict {}`; others that \
             wait for the same reason are not told of for some hours.",
            verdict.as_str()
        );
        (self.alert)(format!("letters:{what}:{mailbox}"), subject.to_owned(), text);
    }
}

/// The UID of an IMAP place.
pub(super) fn uid_of(position: &Position) -> Option<u32> {
    match position {
        Position::Imap { uid, .. } => Some(*uid),
        Position::Maildir(_) => None,
    }
}

/// Of two failures the one that ends more.
fn worse(first: Option<KeepError>, second: KeepError) -> KeepError {
    match first {
        Some(KeepError::Store(error)) => KeepError::Store(error),
        _ => second,
    }
}

/// A letter that is kept for the operator without being parsed.
pub(super) fn quarantined(letter: RawLetter, reason: &'static str) -> (Incoming, Decide) {
    let sha256 = format!("{:x}", Sha256::digest(&letter.raw));
    let incoming = Incoming {
        mailbox: letter.mailbox,
        folder: letter.folder,
        position: letter.position,
        follows: None,
        raw: letter.raw,
        sha256,
        received_at: letter.received_at,
        parsed: None,
        nonce: String::new(),
    };
    let delivery = Delivery {
        agent: None,
        own_address: None,
        reply_to: None,
        verdict: Verdict::Quarantined,
        reason: reason.to_owned(),
        thread: ThreadChoice::None,
        caps: None,
    };
    (incoming, Box::new(move |_| Decision { identity: Identity::Ambiguous, deliveries: vec![delivery] }))
}

/// The beginning of a letter that is too large to be read: its header and the first 64 KiB of its text
/// (email J1).
pub(super) fn beginning(raw: &[u8]) -> Vec<u8> {
    let header = raw.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    let header = header.or_else(|| raw.windows(2).position(|two| two == b"\n\n").map(|at| at + 2)).unwrap_or(0);
    raw.iter().take(header.saturating_add(TEXT_OF_TOO_LARGE)).copied().collect()
}

/// Bytes of the text that are kept of a letter that is too large.
pub(super) const TEXT_OF_TOO_LARGE: usize = 64 * 1024;

/// Bytes of the header that are read of a letter that is too large (email C1).
pub(super) const HEADER_OF_TOO_LARGE: usize = 256 * 1024;

/// The key under which a mailbox's trouble is told, so that the operator gets one letter about it.
pub(super) fn alert_key(what: &str, mailbox: &Mailbox) -> String {
    format!("{what}:{}", mailbox.name)
}
