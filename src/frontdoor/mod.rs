//! Where a run begins and how its outcome leaves: the only part that knows both a letter and a run.

mod at_work;
mod deliver;
mod job;
mod reactive;
mod snapshot;

pub use reactive::{Alert, Reactive};
pub use snapshot::{CurrentSnapshot, Snapshot};

/// 64 random bits for ids and delimiters.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // The system's randomness does not fail once it has worked, and the store's own id was made from it.
    getrandom::fill(&mut bytes).map_or(0, |()| u64::from_be_bytes(bytes))
}
