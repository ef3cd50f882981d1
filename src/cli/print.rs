//! What commands print: tables for people, one JSON object a line for programs.

use std::io::Write as _;

use serde_json::Value;

use crate::store::Row;

/// How this program was called, for what an operator is told to type next.
pub(super) fn program() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "dutiful".to_owned())
}

/// Prints one line.
pub(super) fn line(text: &str) {
    written(writeln!(std::io::stdout(), "{text}"));
}

/// Prints bytes as they are, at once.
pub(super) fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout();
    written(out.write_all(bytes).and_then(|()| out.flush()));
}

/// A closed pipe ends the program quietly, as it does for every Unix tool; a full disk is a failure.
fn written(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(failure) => {
            error(&anyhow::Error::new(failure).context("the output could not be written"));
            std::process::exit(1);
        }
    }
}

/// Prints an error with its causes.
#[expect(clippy::print_stderr, reason = "this is the one place where a command speaks of its failure")]
pub(super) fn error(error: &anyhow::Error) {
    eprintln!("dutiful: {error:#}");
}

/// Prints a remark that must not mix with the output.
#[expect(clippy::print_stderr, reason = "remarks stay out of what programs read")]
pub(super) fn remark(text: &str) {
    eprintln!("{text}");
}

/// Prints rows: as JSON, or the named columns as a table.
pub(super) fn rows(rows: &[Row], columns: &[&str], json: bool) {
    if json {
        for row in rows {
            line(&Value::Object(row.clone()).to_string());
        }
        return;
    }
    let head: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
    let body: Vec<Vec<String>> = rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
    table(&head, &body);
}

/// Prints one row, a line for each column.
pub(super) fn record(row: &Row, json: bool) {
    if json {
        line(&Value::Object(row.clone()).to_string());
        return;
    }
    let width = row.keys().map(String::len).max().unwrap_or(0);
    for key in row.keys() {
        line(&format!("{key:width$}  {}", cell(row, key)));
    }
}

/// Prints an aligned table.
pub(super) fn table(head: &[String], body: &[Vec<String>]) {
    let width = |index: usize| {
        let cells =
            body.iter().chain(std::iter::once(&head.to_vec())).filter_map(|row| row.get(index).map(|cell| cell.chars().count())).max();
        cells.unwrap_or(0).min(60)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in std::iter::once(&head.to_vec()).chain(body) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", shortened(cell, *width))).collect();
        line(cells.join("  ").trim_end());
    }
}

/// A text that is safe to show in a terminal (security S39): control characters are shown, not sent.
pub(super) fn visible(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() && c != '\n' && c != '\t' { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

fn cell(row: &Row, column: &str) -> String {
    let text = match row.get(column) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    };
    visible(&text).replace(['\n', '\t'], " ")
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}
