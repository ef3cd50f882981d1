//! Where a run begins and how its outcome leaves: the only part that knows both a letter and a run.

mod at_work;
mod crew;
mod deliver;
mod job;
mod reactive;
mod snapshot;

pub use reactive::Reactive;
pub use snapshot::{CurrentSnapshot, Snapshot};
