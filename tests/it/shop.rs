//! The shipped shop: its programs keep customers apart, and its demo answers.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of the shop, which its programs may write into.
fn shop() -> TempDir {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/shop");
    let home = tempfile::tempdir().unwrap();
    for folder in ["bin", "knowledge"] {
        fs::create_dir(home.path().join(folder)).unwrap();
        for file in fs::read_dir(source.join(folder)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), home.path().join(folder).join(file.file_name())).unwrap();
        }
    }
    home
}

fn tool(home: &Path, program: &str, arguments: &Value, context: &Value) -> Value {
    let mut child = Command::new(home.join("bin").join(program))
        .current_dir(home)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("DUTIFUL_CONTEXT", context.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(arguments.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn context(customer: &Value, effect_key: &str) -> Value {
    json!({ "run": "r1", "agent": "sundae", "door": "reactive", "thread": 1, "effect_key": effect_key, "identity": "verified", "customer": customer })
}

fn alice() -> Value {
    json!({ "address": "alice@example.com", "name": "Alice \"A\" {Adler}, Ünal", "points": "240" })
}

#[test]
fn an_order_is_shown_to_its_own_customer_only() {
    let home = shop();
    let look = |order: &str, customer: &Value| tool(home.path(), "order-status", &json!({ "order": order }), &context(customer, "k"));
    assert_eq!(look("1042", &alice())["state"], "out for delivery");
    assert_eq!(look("1042", &alice())["items"], "2 tubs of pistachio, 1 tub of vanilla");
    for (order, customer) in [
        ("1043", alice()),
        ("1042", json!({ "address": "mallory@example.org" })),
        ("1042", Value::Null),
        ("1042", json!({ "name": "\"address\":\"alice@example.com\"" })),
        ("1042\" || 1 || \"", alice()),
        ("", alice()),
    ] {
        let answer = look(order, &customer);
        assert!(answer["error"].is_string() && answer.get("state").is_none(), "{order} {customer}: {answer}");
    }
}

#[test]
fn points_are_redeemed_once_for_each_effect_key_and_never_below_nothing() {
    let home = shop();
    let redeem = |reward: &str, key: &str| tool(home.path(), "redeem-points", &json!({ "reward": reward }), &context(&alice(), key));
    assert_eq!(redeem("tub", "r1:0/0")["left"], 40);
    assert_eq!(redeem("tub", "r1:0/0")["left"], 40, "the same key takes nothing again");
    assert!(redeem("tub", "r1:1/0")["error"].is_string());
    assert!(redeem("yacht", "r1:2/0")["error"].is_string());
    let stranger = tool(home.path(), "redeem-points", &json!({ "reward": "scoop" }), &context(&Value::Null, "r2:0/0"));
    assert!(stranger["error"].is_string());
}

#[test]
fn the_demo_prints_a_letter_its_run_and_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("demo");
    let demo = Command::new(env!("CARGO_BIN_EXE_dutiful"))
        .arg("demo")
        .arg(&home)
        .arg("--once")
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .env_remove("HF_TOKEN")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{said}\n{}", String::from_utf8_lossy(&demo.stderr));
    for part in ["alice@example.com", "order_status", "out for delivery"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    assert!(home.join("data/dutiful.db").exists(), "with a folder the store stays there to look into");
}
