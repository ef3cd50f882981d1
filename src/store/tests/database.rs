//! Opening, the lock, epochs, group commit, crash stops, a full disk.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::super::writer::Writing;
use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn security_r11_a_second_daemon_is_refused_by_the_first_ones_pid() {
    let place = Place::new();
    let first = place.open();
    let Err(OpenError::Locked { pid, .. }) = Store::open(&place.path, OpenOptions::default()) else { panic!("opened twice") };
    assert_eq!(pid, std::process::id().to_string());
    drop(first);
    assert_eq!(place.open().epoch(), 2);
}

#[tokio::test]
async fn security_s41_files_are_private_whatever_the_umask() {
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    let place = Place::new();
    let store = place.open();
    receive(&store, 1, "alice@example.com").await;
    rustix::process::umask(before);
    assert_eq!(mode(place.path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let mut name = place.path.clone().into_os_string();
        name.push(suffix);
        assert_eq!(mode(Path::new(&name)), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn the_installations_id_is_minted_once() {
    let place = Place::new();
    let first = place.open().install_id().to_owned();
    assert_eq!(first.len(), 32);
    let second = place.open();
    assert_eq!(second.install_id(), first);
    assert_eq!(Store::attach(&place.path).unwrap().install_id(), first);
    assert_ne!(Place::new().open().install_id(), first);
}

#[tokio::test]
async fn security_r21_a_newer_schema_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.open());
    place.sql().execute_batch("PRAGMA user_version = 99").unwrap();
    assert!(matches!(Store::open(&place.path, OpenOptions::default()), Err(OpenError::Newer { found: 99, known: 5.., .. })));
    assert!(matches!(Store::attach(&place.path), Err(OpenError::Newer { .. })));
    assert_eq!(place.number("PRAGMA user_version"), 99);
}

#[tokio::test]
async fn security_r21_every_earlier_schema_is_brought_to_this_one() {
    let schema = |place: &Place| place.text("SELECT group_concat(name || coalesce(sql, ''), ';' ORDER BY type, name) FROM sqlite_schema");
    let fresh = Place::new();
    drop(fresh.open());
    for version in 1..super::super::migrations::MIGRATIONS.len() {
        let place = Place::new();
        std::fs::create_dir(place.path.parent().unwrap()).unwrap();
        let sql = place.sql();
        for migration in &super::super::migrations::MIGRATIONS[..version] {
            sql.execute_batch(migration).unwrap();
        }
        sql.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
        drop(sql);
        assert!(matches!(Store::attach(&place.path), Err(OpenError::Broken { .. })));
        drop(place.open());
        assert_eq!(schema(&place), schema(&fresh), "from {version}");
    }
}

#[tokio::test]
async fn a_missing_store_is_not_made_by_a_command() {
    let place = Place::new();
    assert!(matches!(Store::attach(&place.path), Err(OpenError::Missing(_))));
    assert!(!place.path.exists());
}

#[tokio::test]
async fn security_r10_a_damaged_store_is_refused_after_an_unclean_end() {
    let place = Place::new();
    let store = place.open();
    for uid in 1..40 {
        receive(&store, uid, "alice@example.com").await;
    }
    store.close().await;
    drop(store);
    let mut bytes = std::fs::read(&place.path).unwrap();
    let end = bytes.len();
    bytes[4096..end].fill(0x5a);
    std::fs::write(&place.path, bytes).unwrap();
    assert!(matches!(Store::open(&place.path, OpenOptions::default()), Err(OpenError::Broken { .. })));
}

#[tokio::test]
async fn an_orderly_end_is_noted_and_a_start_takes_the_note_away() {
    let place = Place::new();
    let store = place.open();
    assert_eq!(place.text("SELECT value FROM meta WHERE key = 'clean'"), "no");
    store.close().await;
    assert_eq!(place.text("SELECT value FROM meta WHERE key = 'clean'"), "yes");
    assert!(matches!(store.note_attempt(LetterId(1)).await, Err(StoreError::Fatal(_))));
}

/// Holds the writer until told to go on, so that what is queued meanwhile becomes one group.
fn gate(store: &Store) -> (std::sync::mpsc::Sender<()>, impl Future<Output = Result<(), StoreError>> + use<>) {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let held = store.write(move |_| {
        begin.send(()).unwrap();
        wait.recv().unwrap();
        Ok(())
    });
    begun.recv().unwrap();
    (go, held)
}

#[tokio::test]
async fn many_writes_share_a_commit_and_a_failing_one_takes_nobody_with_it() {
    let place = Place::new();
    let store = place.open_stopping(CommitStop::Acknowledged(1));
    let (go, held) = gate(&store);
    let good: Vec<_> =
        (0..100).map(|uid| store.receive(incoming(uid, "alice@example.com"), accept(delivery("alice@example.com", NEW)))).collect();
    let panicking = store.write(|writing: &Writing<'_>| -> Result<(), StoreError> {
        writing.sql.execute("DELETE FROM letters", [])?;
        panic!("on purpose")
    });
    let failing = store.write(|writing: &Writing<'_>| {
        writing.sql.execute("DELETE FROM letters", [])?;
        writing.sql.execute("INSERT INTO nowhere VALUES (1)", [])?;
        Ok(())
    });
    go.send(()).unwrap();
    held.await.unwrap();
    assert!(join_all(good).await.iter().all(Result::is_ok));
    assert!(matches!(panicking.await, Err(StoreError::Fault(_))));
    assert!(matches!(failing.await, Err(StoreError::Fault(_))));
    assert_eq!(place.number("SELECT count(*) FROM letters"), 100);
}

#[tokio::test]
async fn many_writes_of_many_tasks_all_land() {
    let place = Place::new();
    let store = place.open();
    let writers = (0..64_u32).map(|task| {
        let store = store.clone();
        async move {
            for n in 0..20 {
                receive(&store, task * 20 + n, &format!("c{task}@example.com")).await;
            }
        }
    });
    join_all(writers).await;
    assert_eq!(place.number("SELECT count(*) FROM letters"), 1280);
    assert_eq!(store.waiting_letters(10_000, &Default::default()).await.unwrap().len(), 1280);
}

#[tokio::test]
async fn an_acknowledged_stop_refuses_the_next_commit_and_every_read() {
    let place = Place::new();
    let store = place.open_stopping(CommitStop::Acknowledged(2));
    receive(&store, 1, "alice@example.com").await;
    receive(&store, 2, "alice@example.com").await;
    assert!(store.failed().now_or_never().is_none());
    let refused = store.receive(incoming(3, "alice@example.com"), accept(delivery("alice@example.com", NEW))).await;
    assert!(matches!(refused, Err(StoreError::Fatal(_))));
    assert_eq!(store.failed().await, "stopped before a commit");
    assert!(matches!(store.waiting_letters(10, &Default::default()).await, Err(StoreError::Fatal(_))));
    drop(store);
    assert_eq!(place.open().waiting_letters(10, &Default::default()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_unacknowledged_stop_keeps_the_commit_and_tells_nobody() {
    let place = Place::new();
    let store = place.open_stopping(CommitStop::Unacknowledged(2));
    receive(&store, 1, "alice@example.com").await;
    let untold = store.receive(incoming(2, "alice@example.com"), accept(delivery("alice@example.com", NEW))).await;
    assert!(matches!(untold, Err(StoreError::Fatal(_))));
    store.failed().await;
    assert!(matches!(store.note_attempt(LetterId(1)).await, Err(StoreError::Fatal(_))));
    drop(store);
    assert_eq!(place.open().waiting_letters(10, &Default::default()).await.unwrap().len(), 2);
    assert_eq!(place.number("SELECT sum(attempts) FROM letters"), 0);
}

#[tokio::test]
async fn a_transaction_that_changes_nothing_is_no_commit_point() {
    let place = Place::new();
    let store = place.open_stopping(CommitStop::Acknowledged(1));
    for _ in 0..3 {
        assert!(store.claim_outgoing("shop", noon(), 10).await.unwrap().is_empty());
    }
    receive(&store, 1, "alice@example.com").await;
    assert!(store.claim_outgoing("shop", noon(), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn security_r8_a_full_disk_is_told_as_retry_and_recovers() {
    let place = Place::new();
    let store = place.open();
    receive(&store, 1, "alice@example.com").await;
    store.allow_pages(Some(1)).await;
    let mut large = incoming(2, "alice@example.com");
    large.raw = vec![b'x'; 400_000];
    let full = store.receive(large.clone(), accept(delivery("alice@example.com", NEW))).await;
    assert!(matches!(full, Err(StoreError::Retry(_))), "{full:?}");
    assert_eq!(store.cursor("shop", "INBOX").await.unwrap().unwrap().uid, 1);
    store.allow_pages(None).await;
    assert!(store.receive(large, accept(delivery("alice@example.com", NEW))).await.unwrap().new);
    assert!(store.failed().now_or_never().is_none());
}

#[tokio::test]
async fn a_verb_that_rolls_the_whole_transaction_back_fails_its_group_as_retry() {
    let place = Place::new();
    let store = place.open();
    let (go, held) = gate(&store);
    let mut group: Vec<_> = (1..4).map(|uid| store.set_cursor_for_test(uid)).collect();
    let rollback = store.write(|writing| Ok(writing.sql.execute_batch("ROLLBACK")?));
    group.push(store.set_cursor_for_test(9));
    go.send(()).unwrap();
    held.await.unwrap();
    assert!(matches!(rollback.await, Err(StoreError::Retry(_))));
    for result in join_all(group).await {
        assert!(matches!(result, Err(StoreError::Retry(_))));
    }
    assert_eq!(place.number("SELECT count(*) FROM cursors"), 0);
    receive(&store, 1, "alice@example.com").await;
}

impl Store {
    fn set_cursor_for_test(&self, uid: u32) -> impl Future<Output = Result<(), StoreError>> + use<> {
        self.write(move |writing| {
            writing.sql.execute("INSERT INTO cursors (mailbox, folder, uidvalidity, uid) VALUES ('m', ?1, 1, 1)", [uid.to_string()])?;
            Ok(())
        })
    }
}

#[tokio::test]
async fn an_attached_command_writes_beside_the_daemon() {
    let place = Place::new();
    let daemon = place.open();
    let command = Store::attach(&place.path).unwrap();
    assert_eq!(command.epoch(), daemon.epoch());
    assert!(command.set_switch(&Switch::Sending, true).await.unwrap());
    assert!(daemon.is_off(&Switch::Sending).unwrap());
    command.close().await;
    receive(&daemon, 1, "alice@example.com").await;
    assert_eq!(place.text("SELECT value FROM meta WHERE key = 'clean'"), "no");
}

#[tokio::test]
async fn the_wal_is_moved_into_the_store_while_it_serves() {
    let place = Place::new();
    let store = place.open();
    for uid in 0..12 {
        let mut large = incoming(uid, "alice@example.com");
        large.raw = vec![b'x'; 1_000_000];
        store.receive(large, accept(delivery("alice@example.com", NEW))).await.unwrap();
    }
    let mut wal = place.path.clone().into_os_string();
    wal.push("-wal");
    assert!(std::fs::metadata(&place.path).unwrap().len() > 4_000_000);
    assert!(std::fs::metadata(wal).unwrap().len() < 9_000_000);
}

#[tokio::test]
async fn harness_j6_a_new_epoch_supersedes_the_claims_of_the_last() {
    let place = Place::new();
    let store = place.open();
    let (run, ..) = running(&store, 1).await;
    store.append(&run, vec![noted("one")]).await.unwrap();
    drop(store);
    let store = place.open();
    assert!(matches!(store.append(&run, vec![noted("two")]).await, Err(StoreError::Superseded)));
    assert_eq!(store.take_interrupted().await.unwrap().len(), 1);
    store.append(&run, vec![noted("two")]).await.unwrap();
    assert_eq!(store.replay(&run).await.unwrap(), [noted("one"), noted("two")]);
}
