//! Recovery is proven by commit points (DESIGN 3, "Tests"): the store is stopped after its Nth commit, for every N of
//! a scripted run, in both modes; the next daemon on it gives the same answer, and every effect happened once.

use std::collections::BTreeSet;
use std::fs;

use dutiful::harness::Transcript;
use dutiful::run::RunId;
use dutiful::store::{CommitStop, Step, Store};
use tokio::runtime::{Builder, Runtime};

use crate::world::{Home, Life, Scene, is_long};

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
    assert_eq!(sent.letters().len(), ids.len(), "each letter lies there once, under one name");
    assert_eq!(fs::read_dir(home.path().join("sent/tmp")).unwrap().count(), 0);
    let stored: BTreeSet<String> =
        home.words("SELECT '<' || trim(message_id, '<>') || '>' FROM audit_outgoing WHERE run_id IS NOT NULL").into_iter().collect();
    // Word to the operator from outside a run (a limit was reached) may or may not have been written before the stop.
    assert_eq!(stored.len(), scene.outgoing);
    assert!(stored.is_subset(&ids), "{stored:?} {ids:?}");

    assert_eq!(home.words("SELECT DISTINCT status FROM audit_outgoing WHERE run_id IS NOT NULL"), ["sent"]);
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
