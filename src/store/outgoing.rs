//! The outbox: letters that wait to be sent, are being sent, were sent. One row per recipient (email G1).

use chrono::{DateTime, Utc};

use super::{Store, StoreError};
use crate::mail::{Address, MessageId, OutgoingKind, Sealed};
use crate::run::{OutgoingId, RunId, ThreadId};

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
    pub async fn queue(&self, _outgoing: QueueOutgoing) -> Result<Vec<OutgoingId>, StoreError> {
        unimplemented!()
    }

    /// Claims up to `limit` due letters of a mailbox: the oldest first, replies before reports, in order
    /// within a thread (an unfinished earlier one blocks its thread only, email G11), none while `sending`
    /// is switched off.
    ///
    /// # Errors
    /// What the store says.
    pub async fn claim_outgoing(&self, _mailbox: &str, _now: DateTime<Utc>, _limit: usize) -> Result<Vec<ClaimedOutgoing>, StoreError> {
        unimplemented!()
    }

    /// The uncertain letters of a mailbox whose check is due.
    ///
    /// # Errors
    /// What the store says.
    pub async fn uncertain_due(&self, _mailbox: &str, _now: DateTime<Utc>) -> Result<Vec<ClaimedOutgoing>, StoreError> {
        unimplemented!()
    }

    /// When the next queued or uncertain letter of a mailbox is due; none when there is none.
    ///
    /// # Errors
    /// What the store says.
    pub async fn outgoing_due(&self, _mailbox: &str) -> Result<Option<DateTime<Utc>>, StoreError> {
        unimplemented!()
    }

    /// Records what became of an attempt.
    ///
    /// # Errors
    /// What the store says.
    pub async fn settle(&self, _id: OutgoingId, _sent: Sent, _now: DateTime<Utc>) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Sent letters whose copy is not in the Sent folder yet, and marks them copied.
    ///
    /// # Errors
    /// What the store says.
    pub async fn without_copy(&self, _mailbox: &str, _limit: usize) -> Result<Vec<ClaimedOutgoing>, StoreError> {
        unimplemented!()
    }

    /// Notes that the copy is in the Sent folder, or that none is wanted.
    ///
    /// # Errors
    /// What the store says.
    pub async fn copied(&self, _id: OutgoingId) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Does what the operator says; false when the letter is in no state for it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn change_outgoing(&self, _id: OutgoingId, _change: OutgoingChange) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Replaces the bytes of a held letter (`outbox ID --edit`): same recipient, same Message-ID.
    ///
    /// # Errors
    /// What the store says.
    pub async fn edit_outgoing(&self, _id: OutgoingId, _text: String, _bytes: Vec<u8>) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Whether anything was ever sent to this address (`hold = "first_contact"`).
    ///
    /// # Errors
    /// What the store says.
    pub fn has_written_to(&self, _address: &Address) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// How many reports, questions and notices were queued since an instant.
    ///
    /// # Errors
    /// What the store says.
    pub fn operator_mails_since(&self, _since: DateTime<Utc>) -> Result<u32, StoreError> {
        unimplemented!()
    }

    /// Whether a notice under this key may be written now: at most one in `window`. Writes itself down.
    ///
    /// # Errors
    /// What the store says.
    pub async fn notice_due(&self, _key: &str, _now: DateTime<Utc>, _window: std::time::Duration) -> Result<bool, StoreError> {
        unimplemented!()
    }
}
