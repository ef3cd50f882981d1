//! Letters that came in: receiving, deduplication, limits, verdicts, claims (durable hand-off 1).

use std::collections::BTreeSet;
use std::fmt;

use chrono::{DateTime, Utc};

use super::{Store, StoreError};
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
    pub async fn cursor(&self, _mailbox: &str, _folder: &str) -> Result<Option<Cursor>, StoreError> {
        unimplemented!()
    }

    /// Sets the cursor: on the first start, past what is missing, or for a new UIDVALIDITY.
    ///
    /// # Errors
    /// What the store says.
    pub async fn set_cursor(&self, _mailbox: &str, _folder: &str, _cursor: Cursor) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Of these places, the ones that are already stored (Maildir sweeps, email B4 rescans).
    ///
    /// # Errors
    /// What the store says.
    pub async fn known_positions(&self, _mailbox: &str, _folder: &str) -> Result<BTreeSet<String>, StoreError> {
        unimplemented!()
    }

    /// Marks places as known without a letter: what lay in a Maildir at the first start.
    ///
    /// # Errors
    /// What the store says.
    pub async fn skip_positions(&self, _mailbox: &str, _folder: &str, _places: Vec<String>) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// After a changed UIDVALIDITY: whether a letter with this hash is stored; if so its new place is
    /// linked to it (email B4).
    ///
    /// # Errors
    /// What the store says.
    pub async fn relink(&self, _mailbox: &str, _folder: &str, _position: &Position, _sha256: &str) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Notes, before a letter is parsed, that it is about to be; gives how often that was noted and never
    /// followed by `receive` (email B12). Used in the first sweep after a start.
    ///
    /// # Errors
    /// What the store says.
    pub async fn note_parse(&self, _mailbox: &str, _folder: &str, _position: &Position) -> Result<u32, StoreError> {
        unimplemented!()
    }

    /// Keeps a letter, its verdict and the cursor in one transaction: durable hand-off 1. The write is
    /// queued when this is called, in the order of the calls; the future resolves after the commit.
    ///
    /// # Errors
    /// When nothing was stored; the cursor then stands where it stood.
    pub fn receive(
        &self,
        _incoming: Incoming,
        _decide: Decide,
    ) -> impl Future<Output = Result<Received, StoreError>> + std::marker::Send + 'static {
        async { unimplemented!() }
    }

    /// The oldest accepted letters without a run, at most one of each thread that is neither in `busy` nor
    /// held, and of no agent that is switched off.
    ///
    /// # Errors
    /// What the store says.
    pub async fn waiting_letters(&self, _limit: usize, _busy: &BTreeSet<ThreadId>) -> Result<Vec<WaitingLetter>, StoreError> {
        unimplemented!()
    }

    /// One letter as a run needs it, whatever its verdict; for the recovery of its run.
    ///
    /// # Errors
    /// What the store says.
    pub async fn letter(&self, _id: LetterId) -> Result<Option<WaitingLetter>, StoreError> {
        unimplemented!()
    }

    /// The raw bytes of a letter.
    ///
    /// # Errors
    /// What the store says.
    pub async fn raw_letter(&self, _id: LetterId) -> Result<Option<Vec<u8>>, StoreError> {
        unimplemented!()
    }

    /// Notes an attempt at a letter before it is made, and gives their number (DESIGN 3, poison).
    ///
    /// # Errors
    /// What the store says.
    pub async fn note_attempt(&self, _id: LetterId) -> Result<u32, StoreError> {
        unimplemented!()
    }

    /// Changes the verdict of a letter that has no finished run: quarantine, hold, drop, release.
    /// False when there was nothing to change.
    ///
    /// # Errors
    /// What the store says.
    pub async fn judge_letter(&self, _id: LetterId, _verdict: Verdict, _reason: &str) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Gives an accepted letter a fresh run: its failed or finished run stays for the record.
    ///
    /// # Errors
    /// What the store says.
    pub async fn retry_letter(&self, _id: LetterId) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Releases, oldest first, letters held by a sender, domain or day limit whose window has room again
    /// (DESIGN 2.7). Gives how many.
    ///
    /// # Errors
    /// What the store says.
    pub async fn release_limited(&self, _limits: &Limits, _now: DateTime<Utc>) -> Result<u32, StoreError> {
        unimplemented!()
    }
}
