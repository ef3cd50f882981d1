//! What every part of one run shares: its id, its immutable context, and what it may cause.

mod context;
mod event_kind;
mod id;
mod outbox;

#[cfg(test)]
pub(crate) mod testing;

pub use context::{Door, Identity, Outcome, Party, RunContext, RunStatus};
pub use event_kind::EventKind;
pub use id::{LetterId, OutgoingId, RunId, ThreadId};
pub use outbox::{Outbox, OutboxError, Posted};
