//! The schema's versions: numbered files, each applied in one transaction (security R21).

use rusqlite::{Connection, TransactionBehavior};

/// The files in their order; a store's `user_version` is how many of them it has.
pub(super) const MIGRATIONS: [&str; 6] = [
    include_str!("../../migrations/0001_letters.sql"),
    include_str!("../../migrations/0002_runs.sql"),
    include_str!("../../migrations/0003_outgoing.sql"),
    include_str!("../../migrations/0004_audit.sql"),
    include_str!("../../migrations/0005_cancel.sql"),
    include_str!("../../migrations/0006_retention.sql"),
];

/// The schema that this release knows.
pub(super) fn known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// The schema of a store; 0 for an empty file.
pub(super) fn found(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Brings a store from `found` to what this release knows.
pub(super) fn apply(connection: &mut Connection, found: i64) -> rusqlite::Result<()> {
    let skip = usize::try_from(found).unwrap_or(0);
    for (version, sql) in (1_i64..).zip(MIGRATIONS).skip(skip) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
