use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::config::{AfterProcessing, OnUncertain, Send as Sending, SentCopy, Trust};
use crate::events::{Alert, Events};
use crate::gateway::imap::peer::{Peer, quick};
use crate::gateway::receive::SentFolder;
use crate::gateway::receive::intake::{Judge, RawLetter, quarantined};
use crate::run::EventKind;
use crate::store::{CommitStop, Cursor, Filter, OpenOptions, Position, QueueOutgoing, Sent, Store, View};

/// A home with a store, and a receiver on it that can be stopped and started again.
struct World {
    folder: TempDir,
    mailbox: Mailbox,
    limits: Limits,
    alerts: Arc<Mutex<Vec<String>>>,
    /// The judge panics on letters that hold this text.
    poison: &'static str,
    /// A file that a mail program renames while letters are judged.
    renamed: Option<(PathBuf, PathBuf)>,
    /// How the store is opened.
    options: OpenOptions,
}

struct Running {
    store: Store,
    health: Health,
    events: tokio::sync::broadcast::Receiver<crate::events::Event>,
    stop: CancellationToken,
    task: JoinSet<Result<(), StoreError>>,
}

impl World {
    fn new(receive: Receive) -> World {
        let mailbox = Mailbox {
            name: "shop".to_owned(),
            address: "shop@shop.example".parse().unwrap(),
            aliases: vec![],
            receive,
            send: Sending::Maildir("/nowhere".into()),
            username: None,
            password: Some(crate::config::Secret::new("secret".to_owned())),
            token_command: None,
            folder: "INBOX".to_owned(),
            agent: None,
            ca: None,
            trusted_authserv_ids: vec![],
            own_lists: vec![],
            forms: vec![],
            poll: Duration::from_secs(60),
            after_processing: AfterProcessing::Keyword,
            sent_copy: SentCopy::Auto,
            on_uncertain: OnUncertain::ResendOnce,
            trust: Trust::None,
        };
        World {
            folder: TempDir::new().unwrap(),
            mailbox,
            limits: Limits { letter_bytes: 100_000, ..Limits::default() },
            alerts: Arc::default(),
            poison: "\u{0}never",
            renamed: None,
            options: OpenOptions::default(),
        }
    }

    fn store(&self) -> Store {
        Store::open(&self.folder.path().join("dutiful.db"), self.options).unwrap()
    }

    fn start(&self) -> Running {
        let store = self.store();
        let (poison, renamed) = (self.poison, self.renamed.clone());
        let judge: Judge = Arc::new(move |letter: RawLetter| {
            assert!(!String::from_utf8_lossy(&letter.raw).contains(poison), "poisoned");
            if let Some((from, to)) = renamed.as_ref().filter(|(from, _)| from.exists()) {
                std::fs::rename(from, to).unwrap();
            }
            quarantined(letter, "kept by the test")
        });
        let alerts = Arc::clone(&self.alerts);
        // The judge of these tests quarantines all that it reads.
        let alert: Alert = Arc::new(move |key, _, _| alerts.lock().unwrap().push(key));
        let bus = Events::default();
        let events = bus.subscribe();
        let health = Health::default();
        let receiver = Receiver {
            mailbox: Arc::new(self.mailbox.clone()),
            limits: self.limits.clone(),
            intake: Intake::new(store.clone(), judge, bus, alert),
            health: health.clone(),
            tls: Arc::new(crate::tls::client_config(None).unwrap()),
            home: self.folder.path().to_owned(),
            timing: quick(),
        };
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(serve(receiver, stop.clone()));
        Running { store, health, events, stop, task }
    }
}

/// What the operator was told besides that letters wait for him.
fn told(world: &World) -> Vec<String> {
    world.alerts.lock().unwrap().iter().filter(|key| !key.starts_with("letters:")).cloned().collect()
}

impl Running {
    /// Waits for so many letters to be told of.
    async fn letters(&mut self, count: usize) {
        for _ in 0..count {
            loop {
                let event = tokio::time::timeout(Duration::from_secs(10), self.events.recv()).await.expect("in time").unwrap();
                if event.kind == EventKind::LetterReceived {
                    break;
                }
            }
        }
    }

    async fn settled(&self) {
        tokio::time::timeout(Duration::from_secs(10), self.health.settled()).await.expect("in time");
    }

    /// Mailbox, place and reason of each stored letter.
    fn reasons(&self) -> Vec<String> {
        let rows = self.store.rows(View::Letters, &Filter::default()).unwrap();
        rows.iter().map(|row| row["reason"].as_str().unwrap().to_owned()).collect()
    }

    fn count(&self) -> usize {
        self.reasons().len()
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap().unwrap();
        self.store.close().await;
    }
}

fn letter(number: u32) -> Vec<u8> {
    format!("From: a@example.com\r\nMessage-ID: <{number}@example.com>\r\n\r\nletter {number}\r\n").into_bytes()
}

async fn imap() -> (Peer, World) {
    let peer = Peer::start().await;
    let world = World::new(Receive::Imap(peer.server()));
    (peer, world)
}

fn marked(peer: &Peer) -> BTreeSet<u32> {
    peer.see(|state| state.letters.iter().filter(|(_, letter)| letter.flags.contains("$Dutiful")).map(|(uid, _)| *uid).collect())
}

#[tokio::test]
async fn email_decision_4_a_first_start_answers_nothing_old_and_a_restart_what_came_meanwhile() {
    let (peer, world) = imap().await;
    peer.change(|state| state.put(&letter(1)));
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    assert_eq!(running.count(), 0);
    peer.change(|state| state.put(&letter(2)));
    running.letters(1).await;
    running.stop().await;
    peer.change(|state| [state.put(&letter(3)), state.put(&letter(4))]);
    let mut running = world.start();
    running.letters(2).await;
    assert_eq!(running.count(), 3);
    peer.until(|state| state.letters[&4].flags.contains("$Dutiful")).await;
    assert_eq!(marked(&peer), BTreeSet::from([2, 3, 4]));
    assert!(peer.see(|state| state.commands.iter().all(|command| !command.contains("BODY[]"))), "BODY.PEEK[] only");
    running.stop().await;
}

#[tokio::test]
async fn two_hundred_letters_need_few_round_trips() {
    let (peer, world) = imap().await;
    let running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    running.stop().await;
    peer.change(|state| {
        state.commands.clear();
        for number in 0..200 {
            state.put(&letter(number));
        }
    });
    let mut running = world.start();
    running.letters(200).await;
    peer.until(|state| state.idling == 1).await;
    assert_eq!(marked(&peer).len(), 200);
    assert!(peer.see(|state| state.commands.len()) < 20, "{:?}", peer.see(|state| state.commands.clone()));
    running.stop().await;
}

#[tokio::test]
async fn email_b5_without_uidnext_the_first_start_still_skips_what_is_there() {
    let (peer, world) = imap().await;
    peer.change(|state| {
        state.hides_uidnext = true;
        state.put(&letter(1))
    });
    let running = world.start();
    running.settled().await;
    assert_eq!(running.store.cursor("shop", "INBOX").await.unwrap(), Some(Cursor { uidvalidity: 7, uid: 1 }));
    running.stop().await;
}

#[tokio::test]
async fn email_b6_a_letter_gone_before_its_fetch_is_passed_over() {
    let (peer, world) = imap().await;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| {
        let gone = state.put(&letter(1));
        state.gone.insert(gone);
        state.put(&letter(2));
    });
    running.letters(1).await;
    peer.until(|state| state.idling == 1 && !state.letters.contains_key(&1)).await;
    assert_eq!(running.store.cursor("shop", "INBOX").await.unwrap().unwrap().uid, 2);
    running.stop().await;
}

#[tokio::test]
async fn email_b8_deleted_letters_are_passed_over_and_seen_ones_are_not() {
    let (peer, world) = imap().await;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| {
        let deleted = state.put(&letter(1));
        state.letters.get_mut(&deleted).unwrap().flags.insert("\\Deleted".to_owned());
        let seen = state.put(&letter(2));
        state.letters.get_mut(&seen).unwrap().flags.insert("\\Seen".to_owned());
    });
    running.letters(1).await;
    peer.until(|state| state.letters[&2].flags.contains("$Dutiful")).await;
    assert_eq!((running.count(), marked(&peer)), (1, BTreeSet::from([2])));
    running.stop().await;
}

#[tokio::test]
async fn email_b4_a_changed_uidvalidity_keeps_only_what_is_unknown() {
    let (peer, world) = imap().await;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| [state.put(&letter(1)), state.put(&letter(2))]);
    running.letters(2).await;
    running.stop().await;
    peer.change(|state| {
        state.letters.clear();
        state.uidvalidity = 8;
        state.uidnext = 1;
        state.put(&letter(2));
        state.put(&letter(1));
        state.put(&letter(3));
        let old = state.put(&letter(4));
        state.letters.get_mut(&old).unwrap().date = "01-Jan-2020 00:00:00 +0000".to_owned();
    });
    let mut running = world.start();
    running.letters(1).await;
    peer.until(|state| state.idling == 1).await;
    assert_eq!(running.count(), 3, "two known, one new; the old one is never answered");
    assert_eq!(running.store.cursor("shop", "INBOX").await.unwrap(), Some(Cursor { uidvalidity: 8, uid: 4 }));
    running.stop().await;
}

#[tokio::test]
async fn email_a14_a_letter_that_breaks_its_session_is_given_up_and_the_others_come() {
    let (peer, world) = imap().await;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| {
        state.put(&letter(1));
        state.garbage = Some(state.put(&letter(2)));
        state.put(&letter(3));
    });
    running.letters(3).await;
    assert_eq!(running.reasons(), ["kept by the test", "unfetchable", "kept by the test"]);
    assert_eq!(told(&world), ["unfetchable:shop"]);
    running.stop().await;
}

#[tokio::test]
async fn email_a9_a_server_that_refuses_idle_is_polled() {
    let (peer, mut world) = imap().await;
    peer.change(|state| state.refuses_idle = true);
    world.mailbox.poll = Duration::from_millis(10);
    let mut running = world.start();
    running.settled().await;
    peer.change(|state| state.put(&letter(1)));
    running.letters(1).await;
    running.stop().await;
}

#[tokio::test]
async fn email_a12_refused_logins_alert_once_and_an_unreachable_mailbox_does_not_hold_up_the_start() {
    let (peer, world) = imap().await;
    peer.change(|state| state.refuses_login = true);
    let running = world.start();
    running.settled().await;
    peer.until(|state| state.connections > 4).await;
    assert_eq!(told(&world), ["login:shop"]);
    assert_eq!(running.count(), 0);
    running.stop().await;
}

#[tokio::test]
async fn email_b12_a_letter_on_which_the_parser_dies_is_quarantined_and_the_next_one_comes() {
    let (peer, mut world) = imap().await;
    world.poison = "letter 1";
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| [state.put(&letter(1)), state.put(&letter(2))]);
    running.letters(2).await;
    assert_eq!(running.reasons(), ["parser_fault", "kept by the test"]);
    running.stop().await;
}

/// What is said of a letter in whose parsing so many daemons have ended.
async fn said_after_ends(ends: u32) -> Vec<String> {
    let (peer, world) = imap().await;
    let uid = peer.change(|state| state.put(&letter(1)));
    let store = world.store();
    store.set_cursor("shop", "INBOX", Cursor { uidvalidity: 7, uid: 0 }).await.unwrap();
    for _ in 0..ends {
        store.note_parse("shop", "INBOX", &Position::Imap { uidvalidity: 7, uid }).await.unwrap();
    }
    store.close().await;
    drop(store);
    let mut running = world.start();
    running.letters(1).await;
    let reasons = running.reasons();
    running.stop().await;
    reasons
}

#[tokio::test]
async fn email_b12_a_letter_that_ended_the_daemon_three_times_is_not_parsed_a_fourth_time() {
    assert_eq!(said_after_ends(2).await, ["kept by the test"], "its third attempt");
    assert_eq!(said_after_ends(3).await, ["poison"]);
}

#[tokio::test]
async fn email_j1_a_letter_over_the_limit_is_kept_in_part_and_not_judged() {
    let (peer, mut world) = imap().await;
    world.limits.letter_bytes = 10;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| state.put(&letter(1)));
    running.letters(1).await;
    assert_eq!(running.reasons(), ["too_large"]);
    assert!(peer.see(|state| state.commands.iter().all(|command| !command.contains("BODY.PEEK[])"))));
    running.stop().await;
}

#[tokio::test]
async fn email_j4_security_r8_a_full_disk_loses_nothing_is_told_once_and_recovers_by_itself() {
    let (peer, mut world) = imap().await;
    world.limits.letter_bytes = 1_000_000;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    running.store.allow_pages(Some(0)).await;
    let large = [letter(1).as_slice(), &[b'x'; 100_000]].concat();
    peer.change(|state| [state.put(&large), state.put(&letter(2)), state.put(&letter(3))]);
    // It is looked for again and again on the same connection, which is not to blame.
    peer.until(|state| state.commands.iter().filter(|command| command.contains("BODY.PEEK[]")).count() > 2).await;
    assert_eq!(running.count(), 0);
    assert_eq!(running.store.cursor("shop", "INBOX").await.unwrap().unwrap().uid, 0);
    assert!(marked(&peer).is_empty());
    running.store.allow_pages(None).await;
    running.letters(3).await;
    peer.until(|state| state.letters.values().all(|kept| kept.flags.contains("$Dutiful"))).await;
    assert_eq!(running.count(), 3);
    assert_eq!(told(&world), ["store_full:shop"]);
    assert_eq!(peer.see(|state| state.connections), 1);
    running.stop().await;
}

#[tokio::test]
async fn email_f7_a_letter_that_waits_for_the_operator_is_told_of() {
    let (peer, world) = imap().await;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| state.put(&letter(1)));
    running.letters(1).await;
    assert_eq!(*world.alerts.lock().unwrap(), ["letters:quarantined:shop"]);
    running.stop().await;
}

#[tokio::test]
async fn email_c17_a_letter_copied_in_with_a_date_ahead_of_us_was_received_now() {
    let (peer, world) = imap().await;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| {
        let uid = state.put(&letter(1));
        state.letters.get_mut(&uid).unwrap().date = "01-Jan-2099 00:00:00 +0000".to_owned();
    });
    running.letters(1).await;
    assert!(running.store.last_received("shop").unwrap().unwrap() <= crate::clock::now());
    running.stop().await;
}

#[tokio::test]
async fn email_a8_b2_b3_the_folder_is_looked_into_though_idle_is_silent_and_the_last_letter_is_not_taken_again() {
    let (peer, mut world) = imap().await;
    world.mailbox.poll = Duration::from_millis(20);
    let mut running = world.start();
    running.settled().await;
    peer.change(|state| state.put(&letter(1)));
    running.letters(1).await;
    // `2:*` names the last letter, 1, while there is no 2.
    peer.until(|state| state.commands.iter().filter(|command| command.starts_with("UID FETCH 2:*")).count() > 3).await;
    assert_eq!(running.count(), 1);
    let by_number = |command: &String| ["FETCH", "STORE", "SEARCH", "COPY", "MOVE"].iter().any(|verb| command.starts_with(verb));
    assert!(!peer.see(|state| state.commands.iter().any(by_number)), "letters are named by UID alone");
    assert!(Timing::default().sweep <= Duration::from_secs(600));
    running.stop().await;
}

#[tokio::test]
async fn email_a15_told_to_stop_in_idle_it_logs_out_at_once() {
    let (peer, world) = imap().await;
    let running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    let told = Instant::now();
    running.stop().await;
    assert!(told.elapsed() < Duration::from_secs(2), "{:?}", told.elapsed());
    assert_eq!(peer.see(|state| state.commands.last().cloned()).as_deref(), Some("LOGOUT"));
}

#[tokio::test]
async fn email_a18_a19_only_the_folder_that_is_configured_is_opened() {
    let (peer, mut world) = imap().await;
    world.mailbox.folder = "Eis & Café".to_owned();
    let running = world.start();
    running.settled().await;
    running.stop().await;
    let opened = peer.see(|state| state.commands.iter().filter(|command| command.contains("SELECT")).cloned().collect::<Vec<_>>());
    assert_eq!(opened, ["SELECT \"Eis &- Caf&AOk-\""]);
    assert!(!peer.see(|state| state.commands.iter().any(|command| command.starts_with("LIST"))));
}

#[tokio::test]
async fn email_j2_large_letters_are_fetched_one_at_a_time() {
    let (peer, mut world) = imap().await;
    world.limits.letter_bytes = 10_000_000;
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    let large = |number: u32| [letter(number).as_slice(), &[b'x'; 2_200_000]].concat();
    peer.change(|state| [state.put(&large(1)), state.put(&large(2)), state.put(&letter(3))]);
    running.letters(3).await;
    let fetches = peer.see(|state| state.commands.iter().filter(|command| command.contains("BODY.PEEK[]")).cloned().collect::<Vec<_>>());
    assert_eq!(fetches, ["UID FETCH 1 (UID BODY.PEEK[])", "UID FETCH 2:3 (UID BODY.PEEK[])"]);
    running.stop().await;
}

#[tokio::test]
async fn email_b14_letters_are_moved_once_they_are_stored() {
    let (peer, mut world) = imap().await;
    world.mailbox.after_processing = AfterProcessing::Move("Done & filed".to_owned());
    let mut running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    peer.change(|state| state.put(&letter(1)));
    running.letters(1).await;
    peer.until(|state| state.letters.is_empty()).await;
    assert!(peer.see(|state| state.commands.iter().any(|command| command == "UID MOVE 1 \"Done &- filed\"")));
    running.stop().await;
}

#[tokio::test]
async fn security_r13_letters_survive_sessions_cut_anywhere() {
    let (peer, world) = imap().await;
    let running = world.start();
    running.settled().await;
    peer.until(|state| state.idling == 1).await;
    running.stop().await;
    peer.change(|state| {
        state.cut_after = (0..40).map(|step| step * 37).collect();
        for number in 0..5 {
            state.put(&letter(number));
        }
    });
    let mut running = world.start();
    running.letters(5).await;
    peer.until(|state| state.idling == 1).await;
    assert_eq!(running.count(), 5);
    assert!(peer.see(|state| state.connections) > 10, "it was cut often");
    running.stop().await;
}

#[tokio::test]
async fn email_b11_security_r1_the_store_stopped_at_any_commit_loses_nothing_and_marks_nothing_early() {
    let mut stops = 0;
    for commit in 1..9 {
        for stop in [CommitStop::Acknowledged(commit), CommitStop::Unacknowledged(commit)] {
            let (peer, mut world) = imap().await;
            let running = world.start();
            running.settled().await;
            running.stop().await;
            peer.change(|state| [1, 2, 3].map(|number| state.put(&letter(number))));
            world.options.stop_at_commit = Some(stop);
            let mut running = world.start();
            let ended = tokio::select! {
                ended = running.task.join_next() => Some(ended.unwrap().unwrap()),
                () = peer.until(|state| state.idling == 1 && state.letters[&3].flags.contains("$Dutiful")) => None,
            };
            stops += i32::from(ended.is_some_and(|ended| ended.is_err()));
            running.stop.cancel();
            running.task.shutdown().await;
            running.store.close().await;
            drop(running);
            world.options = OpenOptions::default();
            let stored = world.store();
            let kept = stored.known_positions("shop", "INBOX").await.unwrap();
            assert!(marked(&peer).iter().all(|uid| kept.contains(&format!("7:{uid}"))), "{stop:?}: {kept:?}");
            stored.close().await;
            drop(stored);
            let running = world.start();
            peer.until(|state| state.idling == 1).await;
            assert_eq!(running.count(), 3, "{stop:?}");
            running.stop().await;
        }
    }
    assert!(stops > 4, "the stops were met: {stops}");
}

#[tokio::test]
async fn email_g14_each_sent_letter_is_copied_once_and_found_by_its_id() {
    let (peer, world) = imap().await;
    let store = world.store();
    let sealed = |id: &str| crate::mail::Sealed {
        kind: crate::mail::OutgoingKind::Report,
        message_id: crate::mail::MessageId::parse(id).unwrap(),
        envelope_from: "shop@shop.example".parse().unwrap(),
        recipients: vec!["a@example.com".parse().unwrap()],
        subject: "x".to_owned(),
        text: "x".to_owned(),
        bytes: format!("Message-ID: <{id}>\r\n\r\nx\r\n").into_bytes(),
        held: None,
        not_before: None,
        effect_key: id.to_owned(),
    };
    for id in ["1@shop.example", "2@shop.example"] {
        let queued = QueueOutgoing { run: None, thread: None, agent: None, mailbox: "shop".to_owned(), sealed: sealed(id) };
        store.queue(queued).await.unwrap();
    }
    let now = crate::clock::now();
    for letter in store.claim_outgoing("shop", now, 10).await.unwrap() {
        store.settle(letter.id, Sent::Accepted, now).await.unwrap();
    }
    // The first copy was made before a crash kept it from being noted.
    peer.change(|state| state.appended.push(("Sent Items".to_owned(), sealed("1@shop.example").bytes)));
    let mailbox = Arc::new(world.mailbox.clone());
    let tls = Arc::new(crate::tls::client_config(None).unwrap());
    let sent = SentFolder::of(&mailbox, tls, world.folder.path().to_owned(), quick()).unwrap();
    let stop = CancellationToken::new();
    let (served, ()) = tokio::join!(sent.clone().serve(store.clone(), stop.clone()), async {
        peer.until(|state| state.commands.last().is_some_and(|last| last == "LOGOUT")).await;
        stop.cancel();
    });
    served.unwrap();
    let ids = |state: &crate::gateway::imap::peer::State| state.appended.iter().map(|(_, raw)| raw[13..14].to_vec()).collect::<Vec<_>>();
    assert_eq!(peer.see(ids), [b"1".to_vec(), b"2".to_vec()]);
    assert!(store.without_copy("shop", 10).await.unwrap().is_empty());
    assert!(sent.holds(&sealed("2@shop.example").message_id).await.unwrap());
    assert!(!sent.holds(&sealed("3@shop.example").message_id).await.unwrap());
    store.close().await;
}

fn deliver(root: &Path, name: &str, raw: &[u8]) {
    let tmp = root.join("tmp").join(name);
    std::fs::write(&tmp, raw).unwrap();
    std::fs::rename(tmp, root.join("new").join(name)).unwrap();
}

fn maildir() -> (PathBuf, World) {
    let mut world = World::new(Receive::Maildir(PathBuf::new()));
    let root = world.folder.path().join("mail");
    world.mailbox.receive = Receive::Maildir(root.clone());
    (root, world)
}

#[tokio::test]
async fn a_maildir_is_made_and_its_deliveries_come_at_once() {
    let (root, world) = maildir();
    let mut running = world.start();
    running.settled().await;
    let before = std::time::Instant::now();
    deliver(&root, "1.a.host", &letter(1));
    running.letters(1).await;
    assert!(before.elapsed() < Duration::from_millis(1000), "{:?}", before.elapsed());
    // Not a delivery by the book: written in place.
    std::fs::write(root.join("new/2.b.host"), letter(2)).unwrap();
    running.letters(1).await;
    assert_eq!(running.count(), 2);
    assert!(root.join("new/1.a.host").exists(), "the keyword has no place in a Maildir: left alone");
    running.stop().await;
}

#[tokio::test]
async fn email_decision_4_a_maildir_skips_what_lay_there_and_a_restart_takes_what_came() {
    let (root, world) = maildir();
    for part in ["new", "cur", "tmp"] {
        std::fs::create_dir_all(root.join(part)).unwrap();
    }
    deliver(&root, "1.a.host", &letter(1));
    let mut running = world.start();
    running.settled().await;
    deliver(&root, "2.b.host", &letter(2));
    running.letters(1).await;
    running.stop().await;
    deliver(&root, "3.c.host", &letter(3));
    // A mail program moves the others meanwhile: the same letters under other names.
    std::fs::rename(root.join("new/1.a.host"), root.join("cur/1.a.host:2,S")).unwrap();
    std::fs::rename(root.join("new/2.b.host"), root.join("cur/2.b.host:2,RS")).unwrap();
    let mut running = world.start();
    running.letters(1).await;
    running.settled().await;
    assert_eq!(running.count(), 2);
    running.stop().await;
}

#[tokio::test]
async fn email_b13_a_maildir_letter_is_marked_or_moved_once_it_is_stored() {
    let (root, mut world) = maildir();
    world.mailbox.after_processing = AfterProcessing::Seen;
    let mut running = world.start();
    running.settled().await;
    deliver(&root, "1.a.host", &letter(1));
    running.letters(1).await;
    running.stop().await;
    assert!(root.join("cur/1.a.host:2,S").exists());
    world.mailbox.after_processing = AfterProcessing::Move("Done".to_owned());
    let mut running = world.start();
    running.settled().await;
    deliver(&root, "2.b.host", &letter(2));
    running.letters(1).await;
    running.stop().await;
    assert!(root.join(".Done/cur/2.b.host:2,").exists());
}

#[tokio::test]
async fn email_j1_a_large_maildir_letter_and_a_link_out_of_it_are_not_read() {
    let (root, mut world) = maildir();
    world.limits.letter_bytes = 100;
    let mut running = world.start();
    running.settled().await;
    std::os::unix::fs::symlink("/etc/passwd", root.join("new/0.link")).unwrap();
    deliver(&root, "1.a.host", &[b"Subject: x\r\n\r\n".as_slice(), &[b'a'; 200_000]].concat());
    running.letters(1).await;
    assert_eq!(running.reasons(), ["too_large"]);
    running.stop().await;
}

#[tokio::test]
async fn email_b1_a_maildir_letter_that_a_mail_program_opens_meanwhile_is_received() {
    let (root, mut world) = maildir();
    let running = world.start();
    running.settled().await;
    running.stop().await;
    // More than are taken at once: the last one is renamed between the look at the folder and its reading.
    for n in 100..165 {
        std::fs::write(root.join(format!("new/{n}.host")), letter(n)).unwrap();
    }
    world.renamed = Some((root.join("new/164.host"), root.join("cur/164.host:2,S")));
    let mut running = world.start();
    running.letters(65).await;
    running.stop().await;
}
