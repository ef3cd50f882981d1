//! Who an address is to the shop: looked up once by a front door, for a proven sender, before a run begins.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};

use crate::config::{Customers, Settings};
use crate::mail::Address;
use crate::process::Program;

/// Bytes of one record: it goes into prompts and into the environment of tools.
const RECORD: usize = 16 * 1024;
/// How long a program may look.
const PATIENCE: Duration = Duration::from_secs(10);

/// The record of an address; none when the shop knows none, or has no `[customers]`.
///
/// # Errors
/// When the file or the program gives no readable record.
pub async fn look_up(settings: &Settings, address: &Address) -> anyhow::Result<Option<Map<String, Value>>> {
    let record = match &settings.customers {
        None => return Ok(None),
        Some(Customers::File(path)) => {
            let (path, address) = (path.clone(), address.clone());
            tokio::task::spawn_blocking(move || in_file(&path, &address)).await.context("the customer file's reader")??
        }
        Some(Customers::Command(argv)) => by_program(settings, argv, address).await?,
    };
    if let Some(record) = &record {
        let bytes = serde_json::to_string(record)?.len();
        ensure!(bytes <= RECORD, "a customer record of {bytes} bytes; at most {RECORD} are taken");
    }
    Ok(record)
}

fn in_file(path: &Path, address: &Address) -> anyhow::Result<Option<Map<String, Value>>> {
    let file = || format!("the customer file {}", path.display());
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_path(path).with_context(file)?;
    let columns: Vec<String> =
        reader.headers().with_context(file)?.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect();
    let key = columns.iter().position(|name| name.eq_ignore_ascii_case("address"));
    let key = key.with_context(|| format!("{} has no column `address`", file()))?;
    for row in reader.records() {
        let row = row.with_context(file)?;
        if row.get(key).and_then(|cell| cell.parse::<Address>().ok()).is_none_or(|of| of != *address) {
            continue;
        }
        let fields = columns.iter().zip(row.iter()).enumerate().filter(|(at, (_, value))| *at != key && !value.is_empty());
        return Ok(Some(fields.map(|(_, (name, value))| (name.clone(), json!(value))).collect()));
    }
    Ok(None)
}

async fn by_program(settings: &Settings, argv: &[String], address: &Address) -> anyhow::Result<Option<Map<String, Value>>> {
    let program = Program {
        argv: argv.to_vec(),
        folder: settings.home.clone(),
        env: BTreeMap::new(),
        input: json!({ "address": address }).to_string().into_bytes(),
        timeout: PATIENCE,
        output_limit: RECORD * 2,
    };
    let finished = program.run().await.context("the customer program")?;
    if finished.code != Some(0) {
        let status = finished.code.map_or("a signal".to_owned(), |code| format!("exit status {code}"));
        bail!("the customer program ended with {status}: {}", finished.error.lines().next().unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&finished.output);
    match text.trim() {
        "" | "null" => Ok(None),
        text => match serde_json::from_str(text).context("the customer program's output")? {
            Value::Object(record) => Ok(Some(record)),
            _ => bail!("the customer program printed no JSON object"),
        },
    }
}

#[cfg(test)]
#[path = "customers_tests.rs"]
mod tests;
