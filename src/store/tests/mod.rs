//! Tests of the store's verbs, over real files. What several of them begin with stands here.

mod database;
mod letters;
mod outgoing;
mod retention;
mod rows;
mod runs;

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeZone, Utc};
use rusqlite::Connection;

use super::*;
use crate::config::Limits;
use crate::mail::{Address, Inbound, MessageId, NamedAddress, OutgoingKind, Sealed};
use crate::run::{Door, Identity, LetterId, RunId, ThreadId};

/// A store in a folder of its own.
struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/dutiful.db");
        Place { _folder: folder, path }
    }

    fn open(&self) -> Store {
        Store::open(&self.path, OpenOptions::default()).unwrap()
    }

    fn open_stopping(&self, stop: CommitStop) -> Store {
        Store::open(&self.path, OpenOptions { stop_at_commit: Some(stop) }).unwrap()
    }

    /// A look at the file from outside.
    fn sql(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    fn number(&self, query: &str) -> i64 {
        self.sql().query_row(query, [], |row| row.get(0)).unwrap()
    }

    fn text(&self, query: &str) -> String {
        self.sql().query_row(query, [], |row| row.get(0)).unwrap()
    }
}

fn noon() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 30, 12, 0, 0).unwrap()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

/// Limits that nothing reaches.
fn limits() -> Limits {
    Limits {
        replies_per_thread_per_hour: 1000,
        replies_per_thread_per_day: 1000,
        replies_per_sender_per_hour: 1000,
        replies_per_domain_per_hour: 1000,
        replies_per_day: 1000,
        ..Limits::default()
    }
}

fn inbound(id: &str, from: &str) -> Inbound {
    Inbound {
        message_id: MessageId::parse(id).unwrap(),
        in_reply_to: vec![],
        references: vec![],
        from: NamedAddress { name: None, address: address(from) },
        reply_to: vec![],
        to: vec![address("sundae@shop.example")],
        cc: vec![],
        delivered_to: vec![],
        subject: "Cones".to_owned(),
        text: "Do you have cones?".to_owned(),
        remarks: vec![],
        attachments: vec![],
        date: None,
    }
}

fn incoming(uid: u32, from: &str) -> Incoming {
    Incoming {
        mailbox: "shop".to_owned(),
        folder: "INBOX".to_owned(),
        position: Position::Imap { uidvalidity: 7, uid },
        follows: None,
        raw: format!("Subject: {uid}\r\n\r\nhello").into_bytes(),
        sha256: format!("{uid:064x}"),
        received_at: crate::clock::now(),
        parsed: Some(inbound(&format!("letter-{uid}@example.com"), from)),
        nonce: format!("nonce{uid}"),
    }
}

fn delivery(from: &str, thread: ThreadChoice) -> Delivery {
    Delivery {
        agent: Some("sundae".to_owned()),
        own_address: Some(address("sundae@shop.example")),
        reply_to: Some(address(from)),
        verdict: Verdict::Accepted,
        reason: "accepted".to_owned(),
        thread,
        caps: None,
    }
}

fn accept(delivery: Delivery) -> Decide {
    Box::new(move |_| Decision { identity: Identity::Verified, deliveries: vec![delivery] })
}

const NEW: ThreadChoice = ThreadChoice::New { related_to: None };

/// Receives a letter that begins a thread and waits for its run.
async fn receive(store: &Store, uid: u32, from: &str) -> LetterId {
    receive_in(store, uid, from, NEW).await
}

async fn receive_in(store: &Store, uid: u32, from: &str, thread: ThreadChoice) -> LetterId {
    let received = store.receive(incoming(uid, from), accept(delivery(from, thread))).await.unwrap();
    assert!(received.new);
    received.letters[0].0
}

async fn thread_of(store: &Store, letter: LetterId) -> ThreadId {
    store.letter(letter).await.unwrap().unwrap().thread
}

async fn run_for(store: &Store, id: &str, letter: LetterId) -> NewRun {
    NewRun {
        id: RunId(id.to_owned()),
        door: Door::Reactive,
        agent: "sundae".to_owned(),
        thread: Some(thread_of(store, letter).await),
        letter: Some(letter),
        model: "kimi".to_owned(),
        started_at: noon(),
    }
}

/// Receives a letter and begins its run.
async fn running(store: &Store, uid: u32) -> (RunId, LetterId, ThreadId) {
    let letter = receive(store, uid, &format!("alice{uid}@example.com")).await;
    let run = run_for(store, &format!("r{uid}"), letter).await;
    let (id, thread) = (run.id.clone(), run.thread.unwrap());
    assert!(store.open_run(run, vec![]).await.unwrap());
    (id, letter, thread)
}

fn outgoing(key: &str, thread: Option<ThreadId>) -> QueueOutgoing {
    QueueOutgoing {
        run: None,
        thread,
        agent: Some("sundae".to_owned()),
        mailbox: "shop".to_owned(),
        sealed: Sealed {
            kind: OutgoingKind::Reply,
            message_id: MessageId::parse(&format!("{key}@shop.example")).unwrap(),
            envelope_from: address("sundae@shop.example"),
            recipients: vec![address("alice@example.com")],
            subject: "Re: Cones".to_owned(),
            text: "Yes.".to_owned(),
            bytes: b"Subject: Re: Cones\r\n\r\nYes.\r\n".to_vec(),
            held: None,
            not_before: None,
            effect_key: key.to_owned(),
        },
    }
}

fn noted(text: &str) -> Step {
    Step::Noted { text: text.to_owned() }
}
