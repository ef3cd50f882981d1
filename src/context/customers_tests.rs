use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::run::testing;

fn alice() -> Address {
    "alice@example.com".parse().unwrap()
}

async fn in_csv(text: &str) -> anyhow::Result<Option<Map<String, Value>>> {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("customers.csv");
    std::fs::write(&file, text).unwrap();
    let mut settings = testing::settings(home.path());
    settings.customers = Some(Customers::File(file));
    look_up(&settings, &alice()).await
}

async fn printed(script: &str) -> anyhow::Result<Option<Map<String, Value>>> {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("customer");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut settings = testing::settings(home.path());
    settings.customers = Some(Customers::Command(vec!["./customer".to_owned()]));
    look_up(&settings, &alice()).await
}

fn record(value: &Value) -> Option<Map<String, Value>> {
    value.as_object().cloned()
}

#[tokio::test]
async fn a_row_is_found_by_its_address_whatever_the_case() {
    let csv = "\u{feff}Name,Address,tier\nBob,bob@example.com,\n\"Alice, A.\", ALICE@Example.COM ,gold\nAlice,alice@example.com,x\n";
    assert_eq!(in_csv(csv).await.unwrap(), record(&json!({ "Name": "Alice, A.", "tier": "gold" })));
    assert_eq!(in_csv("address,name\nbob@example.com,Bob\nno address,x\n").await.unwrap(), None);
    assert_eq!(in_csv("address,name,phone\nalice@example.com,Alice\n").await.unwrap(), record(&json!({ "name": "Alice" })));
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_an_error() {
    assert!(in_csv("name\nAlice\n").await.unwrap_err().to_string().contains("no column `address`"));
    let long = format!("address,note\nalice@example.com,{}\n", "x".repeat(RECORD));
    assert!(in_csv(&long).await.unwrap_err().to_string().contains("at most"));
    let mut settings = testing::settings(std::path::Path::new("/nowhere"));
    settings.customers = Some(Customers::File("/nowhere/customers.csv".into()));
    assert!(look_up(&settings, &alice()).await.is_err());
}

#[tokio::test]
async fn a_program_gives_the_record() {
    assert_eq!(printed("cat").await.unwrap(), record(&json!({ "address": "alice@example.com" })));
    for nothing in ["echo null", "true"] {
        assert_eq!(printed(nothing).await.unwrap(), None);
    }
    for wrong in ["echo '[1]'", "echo text", "echo gone >&2; exit 3"] {
        assert!(printed(wrong).await.is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn without_customers_nobody_is_known() {
    assert_eq!(look_up(&testing::settings(std::path::Path::new("/nowhere")), &alice()).await.unwrap(), None);
}
