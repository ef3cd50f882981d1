//! The reactive door over a real store and the real way out, with a scripted model and a clock that jumps
//! ahead whenever everybody waits.

use std::sync::Mutex;

use super::*;
use crate::mail::{Inbound, MessageId, NamedAddress};
use crate::run::{Identity, LetterId};
use crate::store::{Decision, Delivery, Filter, Incoming, Position, ThreadChoice, Verdict, View};

const SETTINGS: &str = r#"
[mailboxes.shop]
address = "sundae@shop.example"
receive = "maildir:in"
send    = "maildir:out"
agent   = "sundae"

[models.rules]
wire  = "script"
rules = "rules.toml"

[models.away]
wire  = "script"
rules = "away.toml"

[models.slow]
wire  = "script"
rules = "slow.toml"

[operator]
address = "owner@shop.example"

[limits]
run_time = "1000h"
"#;

const AGENTS: [(&str, &str); 3] = [("sundae", "rules"), ("absent", "away"), ("slow", "slow")];

/// Looks at what became of it; with ten seconds between two of them an hour, which is longer than anything that goes on
/// by itself takes, and much shorter than a model outage may last.
const LOOKS: usize = 360;

/// A home whose daemons live one after the other.
struct Home(tempfile::TempDir);

/// One life of the door.
struct Life {
    store: Store,
    events: Events,
    stop: Stop,
    door: JoinSet<Result<(), crate::store::StoreError>>,
    alerts: Arc<Mutex<Vec<String>>>,
}

impl Home {
    fn new() -> Home {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| std::fs::write(home.path().join(path), text).unwrap();
        std::fs::create_dir(home.path().join("agents")).unwrap();
        write("dutiful.toml", SETTINGS);
        write("rules.toml", "[[rule]]\ntext = 'Yes, we have cones.'\n");
        write("away.toml", "[[rule]]\nerror = 401\n");
        write("slow.toml", "[[rule]]\ntext = 'At last.'\ndelay = '9m'\n");
        for (name, model) in AGENTS {
            let address = format!("{name}@shop.example");
            let own = if name == "sundae" { String::new() } else { format!("addresses = ['sundae+{name}@shop.example']\n") };
            let text = format!("description = '{address}'\nmailbox = 'shop'\n{own}model = '{model}'\nprompt = 'You answer.'\n");
            write(&format!("agents/{name}.toml"), &text);
        }
        Home(home)
    }

    fn store(&self) -> Store {
        Store::open(&self.0.path().join("data/dutiful.db"), OpenOptions::default()).unwrap()
    }

    fn life(&self, store: Store) -> Life {
        let config = Config::load(self.0.path()).map_err(|problems| told(&problems)).unwrap();
        let (events, stop) = (Events::default(), Stop::default());
        let current = CurrentSnapshot::new(Arc::new(snapshot(config, &store, &events).unwrap()));
        let alerts: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&alerts);
        let alert = Arc::new(move |key: String, _, _| told.lock().unwrap().push(key));
        let mut door = JoinSet::new();
        door.spawn(Reactive::new(store.clone(), events.clone(), current, alert).serve(stop.clone()));
        Life { store, events, stop, door, alerts }
    }
}

impl Life {
    fn words(&self, view: View, key: &str) -> Vec<String> {
        let rows = self.store.rows(view, &Filter::default()).unwrap();
        rows.iter().map(|row| row[key].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Whether it comes to be within an hour of the clock that jumps.
    async fn within_an_hour(&self, is_so: impl Fn(&Life) -> bool) -> bool {
        for _ in 0..LOOKS {
            if is_so(self) {
                return true;
            }
            // The clock jumps while the disk works, too: what was written before is waited for.
            self.store.skip_positions("shop", "none", Vec::new()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        false
    }

    async fn end(mut self) {
        self.stop.draining.cancel();
        self.stop.aborting.cancel();
        self.door.join_next().await.unwrap().unwrap().unwrap();
        self.store.close().await;
    }
}

async fn receive(store: &Store, uid: u32, agent: &str) -> LetterId {
    let from: crate::mail::Address = format!("alice{uid}@example.com").parse().unwrap();
    let parsed = Inbound {
        message_id: MessageId::parse(&format!("<{uid}@example.com>")).unwrap(),
        in_reply_to: Vec::new(),
        references: Vec::new(),
        from: NamedAddress { name: None, address: from.clone() },
        reply_to: Vec::new(),
        to: vec!["sundae@shop.example".parse().unwrap()],
        cc: Vec::new(),
        delivered_to: Vec::new(),
        subject: "Cones".to_owned(),
        text: "Do you have cones?".to_owned(),
        remarks: Vec::new(),
        attachments: Vec::new(),
        date: None,
    };
    let incoming = Incoming {
        mailbox: "shop".to_owned(),
        folder: "INBOX".to_owned(),
        position: Position::Imap { uidvalidity: 7, uid },
        follows: None,
        raw: format!("Subject: {uid}\r\n\r\nhello").into_bytes(),
        sha256: format!("{uid:064x}"),
        received_at: crate::clock::now(),
        parsed: Some(parsed),
        nonce: format!("nonce{uid}"),
    };
    let own = if agent == "sundae" { "sundae@shop.example".to_owned() } else { format!("sundae+{agent}@shop.example") };
    let delivery = Delivery {
        agent: Some(agent.to_owned()),
        own_address: Some(own.parse().unwrap()),
        reply_to: Some(from),
        verdict: Verdict::Accepted,
        reason: "accepted".to_owned(),
        thread: ThreadChoice::New { related_to: None },
        caps: None,
    };
    let decide = Box::new(move |_: &_| Decision { identity: Identity::Verified, deliveries: vec![delivery] });
    store.receive(incoming, decide).await.unwrap().letters[0].0
}

/// A letter that two daemons began and did not survive.
async fn suspicious(home: &Home, uid: u32, agent: &str) {
    let store = home.store();
    let letter = receive(&store, uid, agent).await;
    for _ in 0..2 {
        store.note_attempt(letter).await.unwrap();
    }
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn security_r16_a_run_that_the_store_would_not_close_is_taken_up_again_without_a_restart() {
    let home = Home::new();
    let store = home.store();
    store.refuse("BEFORE UPDATE OF outcome ON runs WHEN old.attempts < 2").await;
    receive(&store, 1, "sundae").await;
    let life = home.life(store);
    assert!(life.within_an_hour(|life| life.words(View::Runs, "outcome") == ["answered"]).await, "nobody looked at it again");
    assert_eq!(life.words(View::Outgoing, "kind"), ["reply"]);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn security_r16_a_letter_whose_run_the_store_cannot_begin_is_held_and_told() {
    let home = Home::new();
    let store = home.store();
    store.refuse("BEFORE INSERT ON runs").await;
    receive(&store, 1, "sundae").await;
    let life = home.life(store);
    assert!(life.within_an_hour(|life| life.words(View::Letters, "verdict") == ["held"]).await);
    assert!(life.alerts.lock().unwrap().iter().any(|key| key.starts_with("letter.held")));
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn security_r16_a_suspicious_letter_does_not_wait_for_runs_whose_model_is_away() {
    let home = Home::new();
    let store = home.store();
    receive(&store, 1, "absent").await;
    store.close().await;
    drop(store);
    suspicious(&home, 2, "sundae").await;
    let life = home.life(home.store());
    assert!(life.within_an_hour(|life| life.words(View::Outgoing, "kind") == ["reply"]).await);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn security_r16_nobody_waits_for_a_suspicious_letter_whose_model_is_away() {
    let home = Home::new();
    suspicious(&home, 1, "absent").await;
    let store = home.store();
    receive(&store, 2, "sundae").await;
    let life = home.life(store);
    assert!(life.within_an_hour(|life| life.words(View::Outgoing, "kind") == ["reply"]).await);
    life.end().await;
}

#[tokio::test]
async fn security_r16_an_orderly_end_is_no_attempt_that_failed() {
    let home = Home::new();
    let store = home.store();
    receive(&store, 1, "slow").await;
    let mut store = Some(store);
    for _ in 0..6 {
        let life = home.life(store.take().unwrap_or_else(|| home.store()));
        let mut events = life.events.subscribe();
        let asked = async { while events.recv().await.unwrap().kind != EventKind::ModelCalled {} };
        let asked = tokio::time::timeout(Duration::from_secs(10), asked).await;
        assert!(asked.is_ok(), "{:?}", life.words(View::Letters, "reason"));
        life.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_waits_for_a_slow_server_without_holding_up_signals_and_never_has_two_senders() {
    let home = Home::new();
    let (store, events) = (home.store(), Events::default());
    let config = Config::load(home.0.path()).map_err(|problems| told(&problems)).unwrap();
    let current = CurrentSnapshot::new(Arc::new(snapshot(config, &store, &events).unwrap()));
    let mut daemon = Daemon::new(store, events, current);
    let (answer, server) = tokio::sync::oneshot::channel::<()>();
    daemon.gateway.spawn(async move { Ok(server.await?) });
    let before = daemon.current.load();
    daemon.reload().unwrap();
    assert!(!Arc::ptr_eq(&before, &daemon.current.load()), "runs begin with the new files at once");
    assert_eq!((daemon.gateway.len(), daemon.health.len()), (1, 0), "the sender still has a letter in hand");
    answer.send(()).unwrap();
    let ended = daemon.gateway.join_next().await.unwrap();
    daemon.left_gateway(ended).unwrap();
    assert_eq!((daemon.gateway.len(), daemon.health.len()), (3, 1));
    assert!(daemon.left_gateway(Ok(Ok(()))).is_err(), "a part that ends by itself is still a fault");
    daemon.stop().await.unwrap();
}
