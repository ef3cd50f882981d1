//! Letters for the tests of the sending side.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{TimeZone, Utc};

use crate::config::{
    AfterProcessing, Contact, Limits, Mailbox, OnUncertain, Receive, Retention, Send, SentCopy, Settings, Telemetry, Trust,
};
use crate::mail::{Address, MessageId, OutgoingKind};
use crate::run::OutgoingId;
use crate::store::ClaimedOutgoing;

pub(super) fn address(text: &str) -> Address {
    text.parse().unwrap()
}

/// A letter whose Message-ID begins with `name`.
pub(super) fn claimed(name: &str) -> ClaimedOutgoing {
    ClaimedOutgoing {
        id: OutgoingId(1),
        run: None,
        kind: OutgoingKind::Reply,
        message_id: MessageId::parse(&format!("{name}@shop.example")).unwrap(),
        envelope_from: address("sundae@shop.example"),
        recipient: address("alice@example.com"),
        bytes: format!("Message-ID: <{name}@shop.example>\r\n\r\nhello\r\n.\r\n..\r\n.x\r\nend\r\n").into_bytes(),
        attempts: 1,
        resends: 0,
        queued_at: Utc.with_ymd_and_hms(2026, 11, 30, 12, 0, 0).unwrap(),
    }
}

/// A mailbox that sends to `send`.
pub(super) fn mailbox(send: Send) -> Mailbox {
    Mailbox {
        name: "shop".to_owned(),
        address: address("sundae@shop.example"),
        aliases: vec![address("help@shop.example")],
        receive: Receive::Maildir("/nowhere".into()),
        send,
        username: None,
        password: None,
        token_command: None,
        folder: "INBOX".to_owned(),
        agent: Some("sundae".to_owned()),
        ca: None,
        trusted_authserv_ids: Vec::new(),
        own_lists: Vec::new(),
        forms: Vec::new(),
        poll: Duration::from_secs(60),
        after_processing: AfterProcessing::None,
        sent_copy: SentCopy::Off,
        on_uncertain: OnUncertain::ResendOnce,
        trust: Trust::None,
    }
}

/// Settings with that mailbox and the contact `supplier`.
pub(super) fn settings(mailbox: Mailbox) -> Settings {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let supplier = Contact { name: "supplier".to_owned(), address: address("orders@supplier.example") };
    Settings {
        home: "/".into(),
        store: "/nowhere".into(),
        mailboxes: BTreeMap::from([(mailbox.name.clone(), mailbox)]),
        models: BTreeMap::new(),
        tools: BTreeMap::new(),
        contacts: BTreeMap::from([(supplier.name.clone(), supplier)]),
        operator: address("owner@shop.example"),
        customers: None,
        limits: Limits::default(),
        telemetry: Telemetry { log: "info".to_owned(), log_dir: "/nowhere".into() },
        retention: Retention { raw: hours(1), transcripts: hours(1), attachments: hours(1), audit: hours(1) },
    }
}
