//! Recovery is proven by commit points (DESIGN 3, "Tests"): the store is stopped after its Nth commit, for every N of
//! a scripted run, in both modes; the next daemon on it gives the same answer, and every effect happened once.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dutiful::config::Config;
use dutiful::daemon::{self, Options};
use dutiful::harness::Transcript;
use dutiful::run::RunId;
use dutiful::store::{CommitStop, OpenOptions, Step, Store};
use rusqlite::{Connection, OpenFlags, Row};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::answers_mail::letter;
use crate::world::{Arrived, Maildir, Watch, is_long, until};

/// One execution writes its effect key into a file of its own name; what it prints holds the key's beginning.
const EFFECT: &str = r#"
cat > /dev/null
key=${DUTIFUL_CONTEXT#*'"effect_key":"'}
key=${key%%'"'*}
echo "$key" >> "effects/$1"
printf '{"%s": "%.8s"}\n' "$1" "$key"
"#;

const SETTINGS: &str = r#"
[mailboxes.shop]
address = "sundae@shop.example"
agent   = "sundae"
receive = "maildir:mail"
send    = "maildir:sent"
trust   = "verified"

[models.scripted]
wire  = "script"
model = "rules"
rules = "rules.toml"

[tools.shelf]
description = "Looks onto the shelf"
command     = ["/bin/sh", "bin/effect", "shelf"]
effect      = "pure"
input       = { type = "object" }

[tools.tub]
description = "Puts a tub aside"
command     = ["/bin/sh", "bin/effect", "tub"]
effect      = "idempotent"
input       = { type = "object" }

[tools.cake]
description = "Orders a cake"
command     = ["/bin/sh", "bin/effect", "cake"]
effect      = "effectful"
input       = { type = "object" }

[operator]
address = "owner@shop.example"
"#;

const AGENT: &str = r#"
description    = "Answers customers"
mailbox        = "shop"
model          = "scripted"
prompt         = "You are Sundae."
fallback_reply = "A person will answer you soon."

[tools]
eager = ["shelf", "tub", "cake", "send_email", "escalate"]

[context]
reactive = ["persona", "clock", "history"]

[outgoing]
recipients = ["thread", "operator"]
"#;

/// Four calls at once; the answer is made of what each of them said.
const CALLS_TOOLS: &str = r#"
[[rule]]
match = { tool_result = 'outcome unknown' }
text  = "Shelf {{tool_result.shelf}}, tub {{tool_result.tub}}: a person looks after your cake."

[[rule]]
match = { last_role = "tool" }
text  = "Shelf {{tool_result.shelf}}, tub {{tool_result.tub}}, cake {{tool_result.cake}}."

[[rule]]
calls = [
    { name = "shelf" }, { name = "tub" }, { name = "cake" },
    { name = "send_email", arguments = { to = "operator", subject = "A cake", body = "Somebody wants a cake." } },
]
"#;

const ESCALATES: &str = r#"
[[rule]]
text  = "A person will write to you."
calls = [{ name = "escalate", arguments = { reason = "The customer wants a person." } }]
"#;

const ANSWERS: &str = "[[rule]]\ntext = \"Yes.\"\n";

/// What happens in the home, and what it comes to.
struct Scene {
    rules: &'static str,
    /// Added to the settings.
    settings: &'static str,
    /// The ids of letters that come in.
    letters: &'static [&'static str],
    /// The letters come while no daemon runs, not while one does.
    come_while_down: bool,
    /// How many letters leave.
    outgoing: usize,
    /// What holds at the end, wherever the store was stopped.
    holds: fn(&Home),
}

/// A home folder that daemons of this process work on, one after the other.
struct Home {
    folder: TempDir,
}

/// A daemon in this process.
struct Life {
    daemon: JoinHandle<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Home {
    /// A home whose first start is over, so that letters that come while it is down are new.
    fn lived_in(runtime: &Runtime, scene: &Scene) -> Home {
        let home = Home { folder: tempfile::tempdir().unwrap() };
        for folder in ["agents", "bin", "effects"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        home.write("dutiful.toml", &format!("{SETTINGS}{}", scene.settings));
        home.write("agents/sundae.toml", AGENT);
        home.write("rules.toml", scene.rules);
        home.write("bin/effect", EFFECT);
        home.sent();
        home.start(runtime, None).end(runtime).unwrap();
        home
    }

    fn copy(&self) -> Home {
        let copy = Home { folder: tempfile::tempdir().unwrap() };
        copy_files(self.path(), copy.path());
        copy
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path().join(path), text).unwrap();
    }

    fn store(&self) -> PathBuf {
        self.path().join("data/dutiful.db")
    }

    fn sent(&self) -> Maildir {
        Maildir::at(self.path().join("sent"))
    }

    fn receive(&self, scene: &Scene) {
        let mailbox = Maildir::at(self.path().join("mail"));
        scene.letters.iter().for_each(|id| mailbox.deliver(&letter(id, "A tub and a cake, please.")));
        if scene.come_while_down {
            // They came a while ago: a file that nobody announced is taken once it is at rest.
            let then = SystemTime::now() - Duration::from_secs(60);
            for file in fs::read_dir(self.path().join("mail/new")).unwrap() {
                File::options().write(true).open(file.unwrap().path()).unwrap().set_modified(then).unwrap();
            }
        }
    }

    /// Starts a daemon; it is ready, or has ended already.
    fn start(&self, runtime: &Runtime, stop_at_commit: Option<CommitStop>) -> Life {
        let config = Config::load(self.path()).unwrap();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let stop = CancellationToken::new();
        let options = Options { stop: stop.clone(), ready: Some(ready), store: OpenOptions { stop_at_commit } };
        let daemon = runtime.spawn(Box::pin(daemon::run(config, options)));
        // An error means that it ended before it was ready.
        runtime.block_on(is_ready).ok();
        Life { daemon, stop }
    }

    /// Waits until all is said and done, or the daemon has ended.
    fn wait(&self, scene: &Scene, life: &Life) {
        self.wait_for(life, || self.is_through(scene));
    }

    fn wait_for(&self, life: &Life, is_through: impl Fn() -> bool) {
        let watch = Watch::on(&self.path().join("data"));
        until(&watch, "the end of all work", || (life.daemon.is_finished() || is_through()).then_some(()));
    }

    /// Every letter came in and has its end, and everything that should leave has left.
    fn is_through(&self, scene: &Scene) -> bool {
        let statuses = self.rows("SELECT status FROM outgoing", |row| row.get::<_, String>(0));
        let waiting = "SELECT l.id FROM letters l LEFT JOIN runs r ON r.id = l.run_id
                       WHERE l.verdict = 'accepted' AND r.status IS NOT 'done'";
        statuses.len() >= scene.outgoing
            && statuses.iter().all(|status| status == "sent")
            && self.rows("SELECT id FROM letters", |row| row.get::<_, i64>(0)).len() == scene.letters.len()
            && self.rows(waiting, |row| row.get::<_, i64>(0)).is_empty()
    }

    fn rows<T>(&self, sql: &str, row: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let store = Connection::open_with_flags(self.store(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut query = store.prepare(sql).unwrap();
        query.query_map([], |found| row(found)).unwrap().collect::<rusqlite::Result<Vec<T>>>().unwrap()
    }

    fn words(&self, sql: &str) -> Vec<String> {
        self.rows(sql, |row| row.get(0))
    }

    /// The keys under which a tool's program was executed, one for each time.
    fn executions(&self, tool: &str) -> Vec<String> {
        fs::read_to_string(self.path().join("effects").join(tool)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The letters that were sent to this address.
    fn sent_to(&self, address: &str) -> Vec<Arrived> {
        let is_to = |letter: &Arrived| letter.header("To").is_some_and(|to| to.contains(address));
        self.sent().letters().into_iter().filter(is_to).collect()
    }
}

impl Life {
    /// Asks it to end, if it has not, and gives how it ended.
    fn end(self, runtime: &Runtime) -> anyhow::Result<()> {
        self.stop.cancel();
        runtime.block_on(self.daemon).unwrap()
    }
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Says where the store was stopped when something does not hold.
struct Place<'a>(Vec<CommitStop>, &'a Home);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Place(stops, home) = self;
            eprintln!("the store was stopped at {stops:?}, and holds:");
            for (table, columns) in [
                ("letters", "message_id, verdict, reason, attempts"),
                ("runs", "id, status, outcome, error, attempts"),
                ("tool_calls", "name, status, result"),
                ("outgoing", "kind, recipient, status, error, attempts"),
                ("steps", "seq, kind"),
            ] {
                let sql = format!("SELECT concat_ws(' | ', {columns}) FROM {table}");
                eprintln!("{table}:\n  {}", home.words(&sql).join("\n  "));
            }
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Stops the store at each commit of the scene, from the first to one that it does not reach, each time in a copy of
/// the same home; then starts again and demands what must hold.
fn sweep(scene: &Scene, stop: fn(u64) -> CommitStop, first: u64) {
    let runtime = runtime();
    let template = Home::lived_in(&runtime, scene);
    let mut stopped = 0;
    // How verbs share commits varies a little from run to run: only the second run in a row that gets through ends it.
    let mut through = 0;
    for number in first.. {
        let home = template.copy();
        let _place = Place(vec![stop(number)], &home);
        if stops_in(&runtime, &home, scene, stop(number)) {
            (stopped, through) = (stopped + 1, 0);
        } else {
            through += 1;
        }
        goes_on(&runtime, &home, scene);
        if through == 2 {
            break;
        }
    }
    // Receiving, opening, closing and the two notes of sending are the least that any scene commits.
    assert!(stopped >= 5, "the store was stopped {stopped} times only");
}

/// Stops the life that recovers from a stop, too: in the long form at each of its commits, in the short form at one
/// of the first, in turn.
fn sweep_twice(scene: &Scene, stop: fn(u64) -> CommitStop) {
    let runtime = runtime();
    let template = Home::lived_in(&runtime, scene);
    let mut stopped_twice = 0;
    for number in 1.. {
        let template = template.copy();
        if !stops_in(&runtime, &template, scene, stop(number)) {
            break;
        }
        let seconds = if is_long() { 1..u64::MAX } else { 1 + number % 3..2 + number % 3 };
        for second in seconds {
            let home = template.copy();
            let _place = Place(vec![stop(number), stop(second)], &home);
            let stopped = stops_again(&runtime, &home, scene, stop(second));
            goes_on(&runtime, &home, scene);
            stopped_twice += usize::from(stopped);
            if !stopped {
                break;
            }
        }
    }
    assert!(stopped_twice >= 5, "the store was stopped twice {stopped_twice} times only");
}

/// Lets a daemon work until its store stops. False when it got through before that.
fn stops_in(runtime: &Runtime, home: &Home, scene: &Scene, stop: CommitStop) -> bool {
    if scene.come_while_down {
        home.receive(scene);
    }
    let life = home.start(runtime, Some(stop));
    if !scene.come_while_down {
        home.receive(scene);
    }
    has_stopped(runtime, home, scene, life)
}

/// The same when everything that comes has come.
fn stops_again(runtime: &Runtime, home: &Home, scene: &Scene, stop: CommitStop) -> bool {
    let life = home.start(runtime, Some(stop));
    has_stopped(runtime, home, scene, life)
}

fn has_stopped(runtime: &Runtime, home: &Home, scene: &Scene, life: Life) -> bool {
    home.wait(scene, &life);
    let ended = life.end(runtime);
    if let Err(error) = &ended {
        assert!(format!("{error:#}").contains("the store failed"), "{error:#}");
    }
    effects_wait_their_turn(home);
    ended.is_err()
}

/// A daemon on a stopped store works as any other, and brings everything to its one end.
fn goes_on(runtime: &Runtime, home: &Home, scene: &Scene) {
    let life = home.start(runtime, None);
    home.wait(scene, &life);
    life.end(runtime).unwrap();
    stands_in_order(home, scene);
    (scene.holds)(home);
}

/// A call with effects is not even intended before the calls in front of it are done: else a crash would leave it
/// unknown although it never ran (harness T1, J3).
fn effects_wait_their_turn(home: &Home) {
    let statuses = home.words("SELECT status FROM tool_calls WHERE name IN ('shelf', 'tub') ORDER BY position");
    if !home.words("SELECT status FROM tool_calls WHERE name = 'cake'").is_empty() {
        assert_eq!(statuses, ["completed", "completed"]);
    }
}

/// What holds at the end of every scene.
fn stands_in_order(home: &Home, scene: &Scene) {
    let sent = home.sent();
    let ids: BTreeSet<String> = sent.letters().iter().map(|letter| letter.header("Message-ID").unwrap()).collect();
    assert_eq!(sent.letters().len(), scene.outgoing, "each letter lies there once");
    assert_eq!(ids.len(), scene.outgoing, "under one name");
    assert_eq!(fs::read_dir(home.path().join("sent/tmp")).unwrap().count(), 0);
    let stored: BTreeSet<String> = home.words("SELECT '<' || trim(message_id, '<>') || '>' FROM audit_outgoing").into_iter().collect();
    assert_eq!(ids, stored);

    assert_eq!(home.words("SELECT DISTINCT status FROM audit_outgoing"), ["sent"]);
    assert_eq!(home.words("SELECT DISTINCT status FROM audit_runs"), ["done"]);
    let runs_of_letters = home.words("SELECT run_id FROM audit_letters WHERE verdict = 'accepted' ORDER BY run_id");
    assert_eq!(home.words("SELECT id FROM audit_runs ORDER BY id"), runs_of_letters, "one run for each accepted letter");
    assert_eq!(home.words("SELECT kind FROM steps ORDER BY run_id, seq DESC LIMIT 1"), ["closed"]);
}

fn the_answer_is_made_of_what_each_tool_did_once(home: &Home) {
    let calls = home.words("SELECT name || ' ' || status FROM audit_tool_calls ORDER BY round, position");
    let cake_is_unknown = calls.contains(&"cake unknown".to_owned());
    let cake = if cake_is_unknown { "cake unknown" } else { "cake completed" };
    assert_eq!(calls, ["shelf completed", "tub completed", cake, "send_email completed"]);

    let [shelf, tub, cake] = ["shelf", "tub", "cake"].map(|tool| home.executions(tool));
    let once = |keys: &[String]| keys.iter().collect::<BTreeSet<_>>().len() == 1;
    assert!(once(&shelf), "{shelf:?}");
    assert!(once(&tub), "an idempotent call keeps its key: {tub:?}");
    assert!(cake.len() <= 1, "an effect is never repeated: {cake:?}");
    assert!(cake_is_unknown || cake.len() == 1, "what is said to be done is done");

    let key = |keys: &[String]| keys[0].chars().take(8).collect::<String>();
    let text = if cake_is_unknown {
        format!("Shelf {}, tub {}: a person looks after your cake.", key(&shelf), key(&tub))
    } else {
        format!("Shelf {}, tub {}, cake {}.", key(&shelf), key(&tub), key(&cake))
    };
    let answers = home.sent_to("alice@example.com");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].header("In-Reply-To").as_deref(), Some("<cake@example.com>"));
    assert!(answers[0].text.replace("=\r\n", "").contains(&text), "{text}\nis not in\n{}", answers[0].text);
    let told = home.sent_to("owner@shop.example");
    assert_eq!(told.len(), 1);
    assert!(told[0].text.contains("Somebody wants a cake."));

    assert_eq!(home.words("SELECT outcome FROM audit_runs"), ["answered"]);
    assert_eq!(home.words("SELECT verdict || ' ' || reason FROM audit_letters"), ["accepted answered"]);
    assert_eq!(home.words("SELECT kind FROM audit_outgoing ORDER BY id"), ["tool", "reply"]);
}

fn the_thread_is_with_the_operator(home: &Home) {
    let answers = home.sent_to("alice@example.com");
    assert_eq!(answers.len(), 1);
    assert!(answers[0].text.contains("A person will write to you."));
    let told = home.sent_to("owner@shop.example");
    assert_eq!(told.len(), 1);
    assert!(told[0].text.contains("The customer wants a person."));
    assert_eq!(home.words("SELECT status || ' ' || reason FROM threads"), ["held escalated"]);
    assert_eq!(home.words("SELECT outcome FROM audit_runs"), ["escalated"]);
}

fn one_is_answered_and_one_is_held(home: &Home) {
    let verdicts = home.words("SELECT verdict || ' ' || reason FROM audit_letters ORDER BY verdict");
    assert_eq!(verdicts, ["accepted answered", "held limit:replies_per_sender_per_hour"]);
    let accepted = home.words("SELECT trim(message_id, '<>') FROM audit_letters WHERE verdict = 'accepted'");
    let answer = home.sent_to("alice@example.com")[0].header("In-Reply-To").unwrap();
    assert_eq!(answer, format!("<{}>", accepted[0]));
}

const THREE_TOOLS: Scene = Scene {
    rules: CALLS_TOOLS,
    settings: "",
    letters: &["cake"],
    come_while_down: false,
    outgoing: 2,
    holds: the_answer_is_made_of_what_each_tool_did_once,
};

const ESCALATION: Scene = Scene {
    rules: ESCALATES,
    settings: "",
    letters: &["person"],
    come_while_down: true,
    outgoing: 2,
    holds: the_thread_is_with_the_operator,
};

const LIMITED: Scene = Scene {
    rules: ANSWERS,
    settings: "\n[limits]\nreplies_per_sender_per_hour = 1\n",
    letters: &["one", "two"],
    come_while_down: true,
    outgoing: 1,
    holds: one_is_answered_and_one_is_held,
};

#[test]
fn harness_j2_a_three_tool_run_that_dies_before_it_hears_of_a_commit_gives_the_same_answer() {
    sweep(&THREE_TOOLS, CommitStop::Unacknowledged, 1);
}

#[test]
fn harness_j2_a_three_tool_run_that_dies_after_a_commit_gives_the_same_answer() {
    sweep(&THREE_TOOLS, CommitStop::Acknowledged, 0);
}

#[test]
fn harness_j2_a_three_tool_run_that_dies_twice_before_it_hears_of_a_commit_gives_the_same_answer() {
    sweep_twice(&THREE_TOOLS, CommitStop::Unacknowledged);
}

#[test]
fn harness_j2_a_three_tool_run_that_dies_twice_after_a_commit_gives_the_same_answer() {
    sweep_twice(&THREE_TOOLS, CommitStop::Acknowledged);
}

#[test]
fn harness_j2_an_escalation_survives_every_commit() {
    sweep(&ESCALATION, CommitStop::Unacknowledged, 1);
    sweep(&ESCALATION, CommitStop::Acknowledged, 0);
}

#[test]
fn email_b11_a_letter_over_a_limit_is_held_once_whatever_the_commit() {
    sweep(&LIMITED, CommitStop::Unacknowledged, 1);
    sweep(&LIMITED, CommitStop::Acknowledged, 0);
}

/// A home with a letter whose run ended three daemons without getting anywhere.
fn with_poison(runtime: &Runtime) -> Home {
    let template = Home::lived_in(runtime, &THREE_TOOLS);
    for number in 1.. {
        let home = template.copy();
        assert!(stops_in(runtime, &home, &THREE_TOOLS, CommitStop::Unacknowledged(number)), "no commit opens a run");
        if home.words("SELECT id FROM runs").is_empty() {
            continue;
        }
        for attempt in 2..=3 {
            // Taking the run over and noting the attempt are committed; the calls' intents are not.
            assert!(stops_again(runtime, &home, &THREE_TOOLS, CommitStop::Acknowledged(2)));
            assert_eq!(home.rows("SELECT attempts FROM runs", |row| row.get::<_, i64>(0)), [attempt]);
        }
        return home;
    }
    unreachable!("the loop ends by itself")
}

fn poison_is_put_away(home: &Home) -> bool {
    home.words("SELECT verdict FROM audit_letters") == ["quarantined"] && home.words("SELECT status FROM audit_runs") == ["failed"]
}

#[test]
fn email_b12_a_letter_that_ends_the_daemon_is_put_away_whatever_the_commit() {
    let runtime = runtime();
    let template = with_poison(&runtime);
    for (number, mode) in
        (0..4).flat_map(|number| [(number, CommitStop::Unacknowledged(number)), (number, CommitStop::Acknowledged(number))])
    {
        let home = template.copy();
        let _place = Place(vec![mode], &home);
        let life = home.start(&runtime, Some(mode));
        home.wait_for(&life, || poison_is_put_away(&home));
        assert!(life.end(&runtime).is_err() || number >= 3, "putting a letter away takes some commits");
        let life = home.start(&runtime, None);
        home.wait_for(&life, || poison_is_put_away(&home));
        life.end(&runtime).unwrap();

        assert!(poison_is_put_away(&home));
        assert!(home.words("SELECT reason FROM audit_letters")[0].starts_with("poison"));
        assert!(home.sent_to("alice@example.com").is_empty());
        assert!(home.executions("cake").is_empty());
        assert!(home.words("SELECT kind FROM audit_outgoing").len() <= 1, "the operator is told once");
    }
}

/// A journal can end anywhere, and a damaged one can lack anything: folding it is no reason to crash.
#[test]
fn harness_j2_every_part_of_a_real_journal_folds() {
    let runtime = runtime();
    let home = Home::lived_in(&runtime, &THREE_TOOLS);
    let life = home.start(&runtime, None);
    home.receive(&THREE_TOOLS);
    home.wait(&THREE_TOOLS, &life);
    life.end(&runtime).unwrap();
    let run = RunId(home.words("SELECT id FROM audit_runs").remove(0));
    let steps = runtime.block_on(Store::attach(&home.store()).unwrap().replay(&run)).unwrap();
    let Some(Step::Opened(opened)) = steps.first() else { panic!("a journal begins with an opening: {steps:?}") };

    assert!(Transcript::fold(Vec::new()).is_none());
    for length in 1..=steps.len() {
        let transcript = Transcript::fold(steps[..length].to_vec()).unwrap();
        assert_eq!(transcript.opened(), opened.as_ref());
    }
    for left_out in 0..steps.len() {
        for ends in left_out + 1..=steps.len() {
            let mut damaged = steps[..ends].to_vec();
            damaged.remove(left_out);
            assert_eq!(Transcript::fold(damaged).is_some(), left_out > 0);
        }
    }
}
