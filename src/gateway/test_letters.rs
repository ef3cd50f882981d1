//! Letters for the tests of the sending side.

use chrono::{TimeZone, Utc};

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
