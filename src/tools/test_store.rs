//! A store of its own for each test of a tool.

use crate::store::{OpenOptions, Store};

pub(super) fn temporary() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("dutiful.db"), OpenOptions::default()).unwrap();
    (folder, store)
}
