//! SQLite: every table, query and migration, and the one writer. The methods are the domain's verbs.

mod audit;
mod database;
mod journal;
mod letters;
mod limits;
mod migrations;
mod outgoing;
mod receiving;
mod retention;
mod rows;
mod runs;
mod switches;
mod threads;
mod writer;

pub use database::{CommitStop, OpenError, OpenOptions, Store, StoreError};
pub use journal::{Close, Contribution, Opened, Purpose, ReplySource, Step, ToolStatus};
pub use letters::{
    Caps, Cursor, Decide, Decision, Delivery, Incoming, Position, Received, Related, Standing, ThreadChoice, Verdict, WaitingLetter,
};
pub use outgoing::{ClaimedOutgoing, HeldOutgoing, OutgoingChange, OutgoingStatus, QueueOutgoing, Sent};
pub use retention::Expired;
pub use rows::{Filter, Row, View};
pub use runs::{InterruptedRun, NewRun};
pub use switches::Switch;
pub use threads::{PastTurn, ThreadState};

#[cfg(test)]
mod tests;
