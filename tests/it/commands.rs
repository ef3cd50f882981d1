//! What an operator types: the commands' keys, exit codes and messages (DESIGN 2.2, 2.3).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::world::{Daemon, Maildir};

const LETTERS: &str = "id mailbox agent message_id sender identity subject received_at verdict reason thread_id run_id";
const RUNS: &str = "id parent_id door agent thread_id letter_id firing_id status outcome model rounds input_tokens output_tokens cost \
                    started_at ended_at error";
const TOOL_CALLS: &str = "run_id round position name arguments result status started_at ended_at";
const OUTGOING: &str = "id run_id thread_id kind recipient subject message_id status attempts queued_at sent_at error";
const THREADS: &str = "id agent mailbox subject status reason participants letters created_at last_at";

const NO_DAEMON: &str = "no daemon is running, so it takes effect at the next start";

/// A home as `init` writes it.
struct Shop {
    folder: TempDir,
}

impl Shop {
    fn new() -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        let made = dutiful(&["init", shop.home().to_str().unwrap()]);
        assert!(made.status.success(), "{made:?}");
        shop
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn run(&self, words: &str) -> Output {
        let home = self.home();
        let before = ["--home", home.to_str().unwrap()];
        dutiful(&before.into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    /// What it prints when it succeeds.
    #[track_caller]
    fn said(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it complains of when it fails.
    #[track_caller]
    fn refused(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words}: {output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Its lines as JSON objects.
    #[track_caller]
    fn objects(&self, words: &str) -> Vec<Value> {
        self.said(words).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn replace(&self, path: &str, old: &str, new: &str) {
        let path = self.home().join(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{old} is not in {}", path.display());
        fs::write(path, text.replacen(old, new, 1)).unwrap();
    }

    /// Drops one of the prepared letters into the mailbox, which writes line ends of its own.
    fn deliver(&self, letter: &str) {
        let text = fs::read_to_string(self.home().join(format!("letters/{letter}.eml"))).unwrap();
        Maildir::at(self.home().join("mail")).deliver(&text.replace('\r', ""));
    }

    /// Lets it answer a letter about an order and ignore an absence note, and ends the daemon.
    fn after_a_day(&self) {
        let daemon = Daemon::start(&self.home(), self.folder.path());
        for letter in ["out-of-office", "order"] {
            self.deliver(letter);
        }
        Maildir::at(self.home().join("sent")).wait_for(1);
        assert!(daemon.terminate().success());
    }
}

fn dutiful(words: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_dutiful"));
    for key in ["DUTIFUL_HOME", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HF_TOKEN"] {
        program.env_remove(key);
    }
    program.args(words).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn assert_keys(object: &Value, keys: &str) {
    let mut found: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = keys.split_whitespace().collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

#[test]
fn every_list_and_show_speaks_json_with_the_columns_of_its_audit_view() {
    let shop = Shop::new();
    shop.after_a_day();
    for (words, keys, count) in [
        ("letters --json", LETTERS, 2),
        ("letters --verdict accepted --json", LETTERS, 1),
        ("letter 1 --json", LETTERS, 1),
        ("runs --json", RUNS, 1),
        ("runs --sender alice@example.com --since 1h --json", RUNS, 1),
        ("outbox --json", OUTGOING, 1),
        ("outbox 1 --json", OUTGOING, 1),
        ("threads --json", THREADS, 1),
        ("thread 1 --json", THREADS, 1),
    ] {
        let objects = shop.objects(words);
        assert_eq!(objects.len(), count, "{words}");
        objects.iter().for_each(|object| assert_keys(object, keys));
    }
    let letters = shop.objects("letters --json");
    let ignored = letters.iter().find(|letter| text(letter, "verdict") == "ignored").unwrap();
    assert_eq!((text(ignored, "sender"), text(ignored, "reason")), ("carol@example.net", "auto-submitted"));
}

#[test]
fn one_run_is_shown_whole() {
    let shop = Shop::new();
    shop.after_a_day();
    let listed = shop.objects("runs --json");
    let id = text(&listed[0], "id");
    let whole = &shop.objects(&format!("run {id} --json"))[0];
    assert_keys(whole, &format!("{RUNS} steps tool_calls outgoing"));
    assert_keys(&whole["tool_calls"][0], TOOL_CALLS);
    assert_keys(&whole["outgoing"][0], OUTGOING);
    assert_eq!((text(whole, "outcome"), text(&whole["tool_calls"][0], "name")), ("answered", "order_status"));

    let shown = shop.said(&format!("run {id}"));
    for part in ["You are Sundae", "order_status {\"order\":\"1042\"}", "out for delivery", "alice@example.com"] {
        assert!(shown.contains(part), "{part} is missing in:\n{shown}");
    }
    let events = shop.objects(&format!("run {id} --follow --json"));
    assert_keys(&events[0], "seq at run_id kind data");
    assert!(events.iter().any(|event| text(event, "kind") == "run.completed"), "{events:?}");
}

#[test]
fn what_is_configured_is_listed_with_why_a_tool_is_off() {
    let shop = Shop::new();
    assert_eq!(shop.objects("agents --json").iter().map(|agent| text(agent, "name")).collect::<Vec<_>>(), ["scout", "sundae"]);
    shop.said("switch off tool:redeem_points --agent sundae");
    shop.said("switch off agent:scout");
    assert_eq!(text(&shop.objects("agents --json")[0], "state"), "off");
    let tools = shop.objects("tools --agent sundae --json");
    let redeem = tools.iter().find(|tool| text(tool, "tool") == "redeem_points").unwrap();
    assert_eq!((text(redeem, "effect"), text(redeem, "state")), ("effectful", "off"));
    assert!(text(redeem, "reason").contains("switched off"), "{redeem}");
    assert!(shop.refused("tools --agent nobody").contains("there is no agent \"nobody\""));
}

#[test]
fn a_switch_is_durable_without_a_daemon_and_before_the_first_start() {
    let shop = Shop::new();
    assert!(shop.said("switch off sending").contains(NO_DAEMON));
    assert!(shop.said("switch off sending").contains("already"));
    assert_eq!(shop.said("switch list"), "sending\n");

    let daemon = Daemon::start(&shop.home(), shop.folder.path());
    shop.deliver("flavours");
    let deadline = Instant::now() + Duration::from_secs(20);
    while shop.objects("outbox --status queued --json").is_empty() {
        assert!(Instant::now() < deadline, "no answer was queued");
    }
    assert!(Maildir::at(shop.home().join("sent")).letters().is_empty());
    assert!(shop.said("switch on sending").contains("the daemon was told"));
    Maildir::at(shop.home().join("sent")).wait_for(1);
    assert!(daemon.terminate().success());
}

#[test]
fn an_unknown_name_is_switched_with_a_warning_and_an_unknown_kind_is_refused() {
    let shop = Shop::new();
    for (words, warning) in [
        ("switch off tool:oder_status", "no agent has a tool named \"oder_status\""),
        ("switch off tool:order_status --agent scout", "the agent scout has no tool named \"order_status\""),
        ("switch off agent:nobody", "there is no agent \"nobody\""),
        ("switch off duty:never", "there is no duty \"never\""),
    ] {
        let output = shop.run(words);
        assert!(output.status.success(), "{words}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(warning), "{words}: {output:?}");
    }
    assert_eq!(shop.said("switch list").lines().count(), 4);
    assert!(shop.run("switch off tool:order_status").stderr.is_empty());
    for words in ["switch off everything", "switch off tool:", "switch off sending --agent sundae"] {
        shop.refused(words);
    }
}

#[test]
fn acts_say_what_they_did_or_the_state_that_forbids_them() {
    let shop = Shop::new();
    shop.after_a_day();
    for (words, part) in [
        ("letter 99", "there is no letter 99"),
        ("letter 99 --release", "there is no letter 99"),
        ("letter 2 --drop", "letter 2 is accepted (answered)"),
        ("outbox 99 --approve", "there is no letter 99"),
        ("outbox 1 --undo", "letter 1 is sent"),
        ("thread 99 --hold", "there is no thread 99"),
        ("run r0", "there is no run r0"),
    ] {
        let said = shop.refused(words);
        assert!(said.contains(part), "{words}: {said}");
    }
    assert_eq!(shop.said("thread 1 --hold"), format!("thread 1 is held: {NO_DAEMON}\n"));
    assert_eq!(text(&shop.objects("threads --status held --json")[0], "reason"), "held by the operator");
    assert_eq!(shop.said("thread 1 --release"), format!("thread 1 is open: {NO_DAEMON}\n"));
    assert_eq!(shop.said("letter 2 --retry"), format!("letter 2 is accepted: {NO_DAEMON}\n"));
    let raw = shop.run("letter 2 --raw").stdout;
    assert!(String::from_utf8(raw).unwrap().starts_with("From: Alice Adler"));
}

#[test]
fn a_command_line_that_is_not_understood_exits_2() {
    let shop = Shop::new();
    for words in ["nonsense", "letters --verdict nice", "runs --status fast", "outbox --status gone", "runs --since yesterday", "letter x"]
    {
        assert_eq!(shop.run(words).status.code(), Some(2), "{words}");
    }
}

#[test]
fn a_fresh_home_is_fine_and_is_never_written_over() {
    let shop = Shop::new();
    assert_eq!(shop.said("check"), "ok: 1 mailbox(es), 2 agent(s), 1 model(s), 0 warning(s)\n");
    assert!(shop.said("check --limits").lines().any(|line| line.split_whitespace().eq(["concurrent_runs", "16"])));
    let before = fs::read(shop.home().join("dutiful.toml")).unwrap();
    for words in [["init", shop.home().to_str().unwrap()], ["demo", shop.home().to_str().unwrap()]] {
        assert_eq!(dutiful(&words).status.code(), Some(1), "{words:?}");
    }
    assert_eq!(fs::read(shop.home().join("dutiful.toml")).unwrap(), before);
    assert!(shop.refused("letters").contains("start `dutiful serve` once"));
}

#[test]
fn mistakes_are_told_all_at_once_each_with_its_place_and_nothing_starts() {
    let shop = Shop::new();
    shop.replace("dutiful.toml", "agent   = \"sundae\"", "agent   = \"sunday\"");
    shop.replace("agents/sundae.toml", "\"order_status\"", "\"oder_status\"");
    shop.replace("agents/scout.toml", "max_tool_turns", "max_turns");
    for words in ["check", "serve", "agents"] {
        let said = shop.refused(words);
        for start in ["agents/scout.toml:7: ", "agents/sundae.toml:27: ", "dutiful.toml:9: "] {
            let told = said.lines().find(|line| line.starts_with(start));
            assert!(
                told.is_some_and(|line| line.contains("; ") || line.contains("did you mean")),
                "{words}: {start} is missing in:\n{said}"
            );
        }
    }
    assert!(!shop.home().join("data").exists());
}

#[test]
fn the_store_is_looked_into_while_a_file_is_broken() {
    let shop = Shop::new();
    shop.after_a_day();
    shop.replace("dutiful.toml", "receive = ", "recieve = ");
    shop.refused("check");
    assert_eq!(shop.objects("letters --json").len(), 2);
    assert!(shop.said("switch off sending").contains(NO_DAEMON));
}

#[test]
fn each_demo_into_one_folder_is_a_letter_and_an_answer_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("demo").to_str().unwrap().to_owned();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let demo = dutiful(&["demo", &home, "--once"]);
        assert!(demo.status.success(), "{demo:?}");
        let said = String::from_utf8(demo.stdout).unwrap();
        ids.push(said.lines().find(|line| line.starts_with("Message-ID: ")).unwrap().to_owned());
    }
    assert_ne!(ids[0], ids[1]);
    let outbox = String::from_utf8(dutiful(&["--home", &home, "outbox", "--status", "sent", "--json"]).stdout).unwrap();
    assert_eq!(outbox.lines().count(), 2);
}

#[test]
fn a_reader_that_goes_away_is_no_failure_and_a_full_disk_is_one() {
    let shop = Shop::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let into = |output: Stdio| {
        let home = shop.home();
        let mut program = Command::new(env!("CARGO_BIN_EXE_dutiful"));
        program.arg("--home").arg(home).arg("agents").stdout(output).stderr(Stdio::null()).status().unwrap().code()
    };
    assert_eq!(into(writer.into()), Some(0));
    assert_eq!(into(fs::File::options().write(true).open("/dev/full").unwrap().into()), Some(1));
}

#[test]
fn email_k3_commands_say_what_is_no_longer_kept() {
    let shop = Shop::new();
    shop.after_a_day();
    let settings = fs::read_to_string(shop.home().join("dutiful.toml")).unwrap();
    fs::write(shop.home().join("dutiful.toml"), format!("{settings}\n[retention]\nraw = \"1ms\"\ntranscripts = \"1ms\"\n")).unwrap();
    let daemon = Daemon::start(&shop.home(), shop.folder.path());
    daemon.wait_for_log("erased what is older than [retention] allows");
    assert!(daemon.terminate().success());
    let id = text(&shop.objects("runs --json")[0], "id").to_owned();
    for (words, part) in [
        ("letter 2".to_owned(), "its content is no longer kept"),
        (format!("run {id}"), "its prompt, answers and results are no longer kept"),
        ("outbox 1".to_owned(), "its text is no longer kept"),
    ] {
        let said = shop.said(&words);
        assert!(said.contains(part), "{words}: {said}");
        assert!(!said.contains("out for delivery"), "{words}: {said}");
    }
    for words in ["letter 2 --raw", "outbox 1 --raw"] {
        assert!(shop.refused(words).contains("its bytes are no longer kept"), "{words}");
    }
    assert!(shop.refused("letter 2 --retry").contains("whose text is kept"));
    assert_keys(&shop.objects(&format!("run {id} --json"))[0], &format!("{RUNS} steps tool_calls outgoing"));
    assert_eq!(text(&shop.objects("letter 2 --json")[0], "reason"), "answered");
    assert_eq!(Maildir::at(shop.home().join("sent")).letters().len(), 1, "what was answered is not answered again");
}
