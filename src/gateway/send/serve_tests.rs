use std::sync::atomic::AtomicUsize;

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::config::Security;
use crate::gateway::send::smtp_peer::{Act, Peer, client_tls};
use crate::gateway::test_letters::{address, mailbox, settings};
use crate::mail::Sealed;
use crate::store::{Filter, OpenOptions, QueueOutgoing, View};

/// A store, a mailbox that sends, and what is said about it.
struct Office {
    folder: TempDir,
    store: Store,
    events: Events,
    way: Way,
    on_uncertain: OnUncertain,
    look: Option<LookForSent>,
}

struct Working {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Working {
    async fn stop(mut self) {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap();
    }
}

impl Office {
    fn open(way: Way) -> Office {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("test.db"), OpenOptions::default()).unwrap();
        Office { folder, store, events: Events::default(), way, on_uncertain: OnUncertain::ResendOnce, look: None }
    }

    /// A daemon that begins anew on what the last one left.
    async fn reopen(mut self) -> Office {
        self.store.close().await;
        let path = self.folder.path().join("test.db");
        drop(std::mem::replace(&mut self.store, Store::open(&self.folder.path().join("other.db"), OpenOptions::default()).unwrap()));
        self.store = Store::open(&path, OpenOptions::default()).unwrap();
        self
    }

    fn sender(&self) -> Sender {
        let mut mailbox = mailbox(self.way.clone());
        mailbox.on_uncertain = self.on_uncertain;
        mailbox.password = Some(crate::config::Secret::new("s3cret".to_owned()));
        let settings = Arc::new(settings(mailbox.clone()));
        let mut sender = Sender::new(self.store.clone(), self.events.clone(), settings, mailbox, client_tls());
        sender.look = self.look.clone();
        sender
    }

    fn work(&self) -> Working {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(serve(self.sender(), stop.clone()));
        Working { stop, task }
    }

    async fn queue(&self, name: &str) {
        self.queue_kind(name, OutgoingKind::Reply).await;
    }

    async fn queue_kind(&self, name: &str, kind: OutgoingKind) {
        let sealed = Sealed {
            kind,
            message_id: MessageId::parse(&format!("{name}@shop.example")).unwrap(),
            envelope_from: address("sundae@shop.example"),
            recipients: vec![address("alice@example.com")],
            subject: name.to_owned(),
            text: name.to_owned(),
            bytes: format!("Message-ID: <{name}@shop.example>\r\n\r\n{name}\r\n").into_bytes(),
            held: None,
            not_before: None,
            effect_key: name.to_owned(),
        };
        let outgoing = QueueOutgoing { run: None, thread: None, agent: None, mailbox: "shop".to_owned(), sealed };
        self.store.queue(outgoing).await.unwrap();
    }

    fn rows(&self) -> Vec<serde_json::Map<String, Value>> {
        self.store.rows(View::Outgoing, &Filter::default()).unwrap()
    }

    fn statuses(&self) -> Vec<String> {
        self.rows().iter().map(|row| row["status"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for so many events of a kind.
    async fn until(events: &mut tokio::sync::broadcast::Receiver<crate::events::Event>, kind: EventKind, count: usize) {
        let mut seen = 0;
        while seen < count {
            if events.recv().await.unwrap().kind == kind {
                seen += 1;
            }
        }
    }
}

async fn smtp(script: &[(&'static str, Act)]) -> (Office, Peer) {
    let peer = Peer::start(Security::Implicit, "server", script).await;
    (Office::open(Way::Smtp(peer.address.clone())), peer)
}

#[tokio::test]
async fn email_g13_many_letters_leave_once_each_over_at_most_two_connections() {
    let (office, peer) = smtp(&[]).await;
    let mut events = office.events.subscribe();
    for n in 0..30 {
        office.queue(&format!("letter-{n}")).await;
    }
    let working = office.work();
    Office::until(&mut events, EventKind::OutgoingSent, 30).await;
    office.queue("late").await;
    Office::until(&mut events, EventKind::OutgoingSent, 1).await;
    working.stop().await;
    let seen = peer.seen();
    for n in 0..30 {
        assert_eq!(seen.matches(&format!("Message-ID: <letter-{n}@shop.example>")).count(), 1);
    }
    assert!(peer.connections() <= 2, "{}", peer.connections());
    assert!(office.statuses().iter().all(|status| status == "sent"));
}

#[tokio::test]
async fn email_g10_a_refused_letter_waits_and_the_next_one_leaves() {
    let (office, _peer) = smtp(&[("RCPT", Act::Say("450 4.2.0 greylisted")), ("RCPT", Act::Say("550 5.1.1 nobody"))]).await;
    let mut events = office.events.subscribe();
    for name in ["first", "second", "third"] {
        office.queue(name).await;
    }
    let working = office.work();
    Office::until(&mut events, EventKind::OutgoingSent, 1).await;
    working.stop().await;
    assert_eq!(office.statuses()[..3], ["queued", "failed", "sent"]);
    let due = office.store.outgoing_due("shop").await.unwrap().unwrap();
    let due = office.rows().len() == 4 && due < crate::clock::now() + chrono::TimeDelta::seconds(61);
    assert!(due, "the operator is told of the second, the first is due within a minute");
}

#[tokio::test]
async fn email_g10_a_refused_login_rests_the_queue_and_is_told_once() {
    let (office, peer) = smtp(&[("AUTH", Act::Say("535 5.7.8 wrong password")), ("AUTH", Act::Say("535 5.7.8 wrong password"))]).await;
    office.queue("first").await;
    office.queue("second").await;
    let sender = office.sender();
    let stop = CancellationToken::new();
    let mut lane = Lane { sender: &sender, session: None, first: true };
    assert!(lane.work(&stop).await.is_ok());
    assert_eq!(peer.connections(), 1, "the second letter did not try the password again");
    let until = sender.rests_until().unwrap();
    assert!(until > Instant::now() + Duration::from_secs(600));
    assert_eq!(lane.work(&stop).await.ok(), Some(0), "nothing is claimed meanwhile");
    let rows = office.rows();
    assert_eq!(office.statuses(), ["queued", "queued", "queued"]);
    assert_eq!(rows.iter().filter(|row| row["kind"] == "notice").count(), 1);
    assert_eq!(rows[0]["attempts"], 0, "the attempt is not the letter's");
}

#[tokio::test]
async fn email_g9_a_lost_acknowledgement_is_in_doubt_then_found_or_sent_once_more() {
    for found in [true, false] {
        let (mut office, peer) = smtp(&[("dot", Act::Cut)]).await;
        let looks = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&looks);
        office.look = Some(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move { Ok(found) })
        }));
        office.queue("first").await;
        let sender = office.sender();
        let stop = CancellationToken::new();
        let mut lane = Lane { sender: &sender, session: None, first: true };
        assert_eq!(lane.work(&stop).await.ok(), Some(1));
        assert_eq!(office.statuses(), ["uncertain"]);
        assert_eq!(lane.work(&stop).await.ok(), Some(0), "it is not looked into before its time");
        let check_at = office.store.outgoing_due("shop").await.unwrap().unwrap();
        assert!(check_at > crate::clock::now() + chrono::TimeDelta::minutes(9));

        let doubtful = office.store.uncertain_due("shop", check_at).await.unwrap();
        let sent = lane.decide_doubtful(&doubtful[0]).await;
        lane.settle(&doubtful[0], sent, &stop).await.unwrap();
        assert_eq!(looks.load(Ordering::SeqCst), 1);
        if !found {
            assert_eq!(lane.work(&stop).await.ok(), Some(1));
        }
        assert_eq!(office.statuses(), ["sent"]);
        assert_eq!(peer.seen().matches("Message-ID: <first@shop.example>").count(), if found { 1 } else { 2 });
    }
}

#[tokio::test]
async fn email_g9_a_letter_in_doubt_twice_or_under_hold_waits_for_the_operator() {
    for (on_uncertain, cuts) in [(OnUncertain::ResendOnce, 2), (OnUncertain::Hold, 1)] {
        let (mut office, peer) = smtp(&[("dot", Act::Cut), ("dot", Act::Cut)]).await;
        office.on_uncertain = on_uncertain;
        office.queue("first").await;
        let sender = office.sender();
        let stop = CancellationToken::new();
        let mut lane = Lane { sender: &sender, session: None, first: true };
        for _ in 0..cuts {
            assert_eq!(lane.work(&stop).await.ok(), Some(1));
            let later = crate::clock::now() + chrono::TimeDelta::minutes(11);
            let doubtful = office.store.uncertain_due("shop", later).await.unwrap();
            let sent = lane.decide_doubtful(&doubtful[0]).await;
            lane.settle(&doubtful[0], sent, &stop).await.unwrap();
        }
        assert_eq!(office.statuses()[0], "held");
        assert_eq!(office.rows()[1]["kind"], "notice", "and is told so");
        assert_eq!(peer.seen().matches("Message-ID: <first@shop.example>").count(), cuts);
    }
}

#[tokio::test]
async fn email_g9_an_unreadable_sent_folder_decides_nothing() {
    let (mut office, _peer) = smtp(&[("dot", Act::Cut)]).await;
    office.look = Some(Arc::new(|_| Box::pin(async { Err(anyhow::anyhow!("no IMAP")) })));
    office.queue("first").await;
    let sender = office.sender();
    let stop = CancellationToken::new();
    let mut lane = Lane { sender: &sender, session: None, first: true };
    lane.work(&stop).await.unwrap();
    let later = crate::clock::now() + chrono::TimeDelta::minutes(11);
    let doubtful = office.store.uncertain_due("shop", later).await.unwrap();
    assert!(matches!(lane.decide_doubtful(&doubtful[0]).await, Sent::Uncertain { .. }));
}

#[tokio::test]
async fn email_g9_what_a_crash_left_in_hand_is_the_same_file_after_it() {
    let out = tempfile::tempdir().unwrap();
    let office = Office::open(Way::Maildir(out.path().to_owned()));
    office.queue("first").await;
    let claimed = office.store.claim_outgoing("shop", crate::clock::now(), 1).await.unwrap();
    assert_eq!(deliver_local::maildir(out.path(), &claimed[0]).await, Delivered::Accepted);
    // Here the daemon dies: the file is there, its settling is not.
    let office = office.reopen().await;
    assert_eq!(office.statuses(), ["uncertain"]);
    let mut events = office.events.subscribe();
    let working = office.work();
    Office::until(&mut events, EventKind::OutgoingSent, 1).await;
    working.stop().await;
    assert_eq!(office.statuses(), ["sent"]);
    assert_eq!(std::fs::read_dir(out.path().join("new")).unwrap().count(), 1);
}

#[tokio::test]
async fn email_f12_switched_off_nothing_leaves_and_on_again_it_does() {
    let out = tempfile::tempdir().unwrap();
    let office = Office::open(Way::Maildir(out.path().to_owned()));
    office.store.set_switch(&crate::store::Switch::Sending, true).await.unwrap();
    office.queue("first").await;
    let sender = office.sender();
    let mut lane = Lane { sender: &sender, session: None, first: true };
    assert_eq!(lane.work(&CancellationToken::new()).await.ok(), Some(0));
    let mut events = office.events.subscribe();
    let working = office.work();
    office.store.set_switch(&crate::store::Switch::Sending, false).await.unwrap();
    Office::until(&mut events, EventKind::OutgoingSent, 1).await;
    working.stop().await;
    assert_eq!(office.statuses(), ["sent"]);
}

#[tokio::test]
async fn a_stopped_sender_puts_back_what_it_did_not_try() {
    let (office, peer) = smtp(&[]).await;
    office.queue("first").await;
    let sender = office.sender();
    let stop = CancellationToken::new();
    stop.cancel();
    let mut lane = Lane { sender: &sender, session: None, first: true };
    lane.work(&stop).await.unwrap();
    assert_eq!((office.statuses(), peer.connections()), (vec!["queued".to_owned()], 0));
    assert_eq!(office.rows()[0]["attempts"], 0);
}

#[tokio::test]
async fn a_connection_is_opened_while_the_model_thinks() {
    let (office, peer) = smtp(&[]).await;
    let sender = office.sender();
    let mut lane = Lane { sender: &sender, session: None, first: true };
    lane.warm_up().await;
    assert_eq!(peer.connections(), 1);
    office.queue("first").await;
    lane.work(&CancellationToken::new()).await.unwrap();
    assert_eq!(peer.connections(), 1);
    assert_eq!(office.statuses(), ["sent"]);
}

#[tokio::test]
async fn email_g9_what_a_sender_could_not_settle_is_in_doubt_for_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let office = Office::open(Way::Maildir(folder.path().to_owned()));
    office.queue("one").await;
    // A reload met a full disk: what became of this letter stands nowhere.
    assert_eq!(office.store.claim_outgoing("shop", crate::clock::now(), 1).await.unwrap().len(), 1);
    let mut events = office.events.subscribe();
    let working = office.work();
    Office::until(&mut events, EventKind::OutgoingSent, 1).await;
    working.stop().await;
    assert_eq!(office.statuses(), ["sent"]);
    assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
}
