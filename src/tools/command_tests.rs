use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use super::super::bound;
use super::*;
use crate::config::ToolKind;
use crate::run::{Identity, testing};

fn tool(home: &Path, script: &str, effect: Effect, timeout: Duration) -> Command {
    let command = CommandTool {
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: BTreeMap::from([("DB".to_owned(), Secret::new("hunter2-secret".to_owned()))]),
    };
    let tool = OperatorTool {
        name: "probe".to_owned(),
        description: "Probes".to_owned(),
        input: json!({ "type": "object" }),
        effect,
        timeout,
        approval: false,
        untainted: false,
        kind: ToolKind::Command(command.clone()),
    };
    Command::new(&tool, &command, &testing::settings(home))
}

async fn run(script: &str) -> Result<String, ToolError> {
    let home = tempfile::tempdir().unwrap();
    let context = testing::context(Identity::Verified, Identity::Verified);
    let tool = tool(home.path(), script, Effect::Pure, Duration::from_secs(20));
    let (_folder, store) = crate::tools::test_store::temporary();
    let invocation = Invocation { context: &context, store: &store, effect_key: "k1" };
    tool.call(json!({ "order": "7; touch x" }), invocation).await.map(|output| match output {
        ToolOutput::Text(text) => text,
        ToolOutput::Escalate { reason } => panic!("{reason}"),
    })
}

fn failed(result: Result<String, ToolError>) -> String {
    match result {
        Err(ToolError::Failed(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn arguments_come_on_standard_input_and_the_output_is_the_result() {
    assert_eq!(run("cat").await.unwrap(), r#"{"order":"7; touch x"}"#);
}

#[tokio::test]
async fn the_context_is_told_as_designed() {
    let told: Value = serde_json::from_str(&run("printf %s \"$DUTIFUL_CONTEXT\"").await.unwrap()).unwrap();
    let expected = json!({
        "run": "r1", "agent": "sundae", "door": "reactive", "thread": 7, "effect_key": "k1", "identity": "verified",
        "customer": { "address": "alice@example.com", "name": "Alice", "tier": "gold" },
    });
    assert_eq!(told, expected);
}

#[test]
fn security_s9_below_the_level_there_is_no_customer() {
    for (proven, wanted, known) in [
        (Identity::Verified, Identity::Verified, true),
        (Identity::Thread, Identity::Thread, true),
        (Identity::Thread, Identity::Verified, false),
        (Identity::Unverified, Identity::Thread, false),
    ] {
        let context = testing::context(proven, wanted);
        let (_folder, store) = crate::tools::test_store::temporary();
        let told = surroundings(Invocation { context: &context, store: &store, effect_key: "k" });
        assert_eq!(!told["customer"].is_null(), known, "{proven} {wanted}");
    }
}

#[tokio::test]
async fn harness_t5_a_failure_is_short_and_names_no_path_and_no_secret() {
    let text = failed(run("echo \"cannot open /srv/shop/orders.db: $DB\" >&2; echo two >&2; exit 3").await);
    assert_eq!(text, "it failed with exit status 3: cannot open …/orders.db: [secret]\ntwo");
    assert_eq!(failed(run("exit 1").await), "it failed with exit status 1 and said nothing");
    assert_eq!(failed(run("kill -9 $$").await), "it was ended by a signal and said nothing");
    let long = failed(run("i=0; while [ $i -lt 3000 ]; do printf x >&2; i=$((i+1)); done; exit 1").await);
    assert!(long.len() < ERROR_BYTES + 60, "{}", long.len());
}

#[tokio::test]
async fn harness_uc7_a_printed_secret_does_not_reach_the_model() {
    assert_eq!(run("echo \"dsn=$DB\"").await.unwrap(), "dsn=[secret]\n");
}

#[tokio::test]
async fn harness_b5_bytes_that_are_no_text_are_said() {
    let text = run("printf 'a\\377b'").await.unwrap();
    assert_eq!(text, "[some bytes were no valid UTF-8 and stand as \u{fffd}]\na\u{fffd}b");
}

#[tokio::test]
async fn five_megabytes_become_a_good_result() {
    let text = run("head -c 5242880 /dev/zero | tr '\\0' 'x'").await.unwrap();
    assert_eq!(text.len(), 5_242_880);
    let bounded = bound(&text, 102_400, "res_1");
    assert!(bounded.cut && bounded.text.len() <= 102_400 && bounded.text.starts_with("[truncated: 5,242,880 bytes"));
}

#[tokio::test]
async fn more_than_is_kept_is_said() {
    let text = run("head -c 11534336 /dev/zero | tr '\\0' 'x'").await.unwrap();
    assert!(text.starts_with("[only the first 10485760 of 11534336 bytes were kept]\nxxx"));
}

#[tokio::test]
async fn harness_t3_a_timeout_ends_the_group_and_says_whether_it_may_have_acted() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let home = tempfile::tempdir().unwrap();
    let alive = home.path().join("alive");
    mknodat(CWD, &alive, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let context = testing::context(Identity::Verified, Identity::Verified);
    for (effect, may_have_acted) in [(Effect::Pure, false), (Effect::Effectful, true)] {
        let alive = alive.clone();
        // Ends when the shell and its child, which both hold the pipe open, are gone.
        let gone = tokio::task::spawn_blocking(move || std::fs::read(alive));
        let limit = Duration::from_millis(200);
        let tool = tool(home.path(), "exec 3>alive; sleep 300 & wait", effect, limit);
        let (_folder, store) = crate::tools::test_store::temporary();
        let result = tool.call(json!({}), Invocation { context: &context, store: &store, effect_key: "k" }).await;
        assert_eq!(result, Err(ToolError::TimedOut { limit, may_have_acted }));
        let read = tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
        assert!(read.unwrap().unwrap().is_empty());
    }
}

#[tokio::test]
async fn harness_t1_calls_run_at_once() {
    let home = tempfile::tempdir().unwrap();
    let context = testing::context(Identity::Verified, Identity::Verified);
    // Each of the three waits until all three have begun: one after another they would never end.
    let script = "touch begun.$DUTIFUL_N.$$; while [ $(ls | grep -c begun) -lt 3 ]; do :; done; echo done";
    let tool = tool(home.path(), script, Effect::Pure, Duration::from_secs(20));
    let (_folder, store) = crate::tools::test_store::temporary();
    let call = || tool.call(json!({}), Invocation { context: &context, store: &store, effect_key: "k" });
    let begun = Instant::now();
    let (one, two, three) = tokio::join!(call(), call(), call());
    for result in [one, two, three] {
        assert_eq!(result, Ok(ToolOutput::Text("done\n".to_owned())));
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_result() {
    let context = testing::context(Identity::Verified, Identity::Verified);
    let home = tempfile::tempdir().unwrap();
    let mut tool = tool(home.path(), "", Effect::Pure, Duration::from_secs(1));
    tool.argv = vec!["bin/missing".to_owned()];
    let (_folder, store) = crate::tools::test_store::temporary();
    let result = tool.call(json!({}), Invocation { context: &context, store: &store, effect_key: "k" }).await;
    assert!(matches!(result, Err(ToolError::Failed(text)) if !text.contains("missing")));
}

#[tokio::test]
async fn security_s31_nothing_of_the_arguments_becomes_a_word_of_the_command() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("echo-args");
    std::fs::write(&script, "#!/bin/sh\necho \"$# $*\"; cat\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let context = testing::context(Identity::Verified, Identity::Verified);
    let mut tool = tool(home.path(), "", Effect::Pure, Duration::from_secs(20));
    tool.argv = vec!["./echo-args".to_owned(), "--fixed".to_owned()];
    for hostile in ["$(touch pwned)", "`touch pwned`", "; touch pwned", "--help", "\n touch pwned", "a\0b"] {
        let arguments = json!({ "order": hostile });
        let (_folder, store) = crate::tools::test_store::temporary();
        let result = tool.call(arguments.clone(), Invocation { context: &context, store: &store, effect_key: "k" }).await;
        assert_eq!(result, Ok(ToolOutput::Text(format!("1 --fixed\n{arguments}"))));
    }
    assert!(!home.path().join("pwned").exists());
}

#[test]
fn paths_are_reduced_to_their_last_part() {
    for (line, shown) in [
        ("open '/etc/shop/db.conf': denied", "open '…/db.conf': denied"),
        ("see https://shop.example/help/x", "see https://shop.example/help/x"),
        ("and/or 1/2", "and/or 1/2"),
        ("at ../lib/x.py:3", "at …/x.py:3"),
        ("file=/a/b", "file=…/b"),
    ] {
        assert_eq!(without_paths(line), shown);
    }
}
