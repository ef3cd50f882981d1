//! What commands print: tables for people, one JSON object a line for programs.

use std::io::Write as _;

use serde_json::Value;

use crate::store::Row;

/// How this program was called, for what an operator is told to type next.
pub(super) fn program() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "dutiful".to_owned())
}

/// Prints a text and a line end; what it holds commands no terminal.
pub(super) fn line(text: &str) {
    written(writeln!(std::io::stdout(), "{}", visible(text)));
}

/// Prints a value as one line of JSON.
pub(super) fn json(value: &Value) {
    written(writeln!(std::io::stdout(), "{}", json_text(value)));
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
    eprintln!("dutiful: {}", visible(&format!("{error:#}")));
}

/// Prints a remark that must not mix with the output.
#[expect(clippy::print_stderr, reason = "remarks stay out of what programs read")]
pub(super) fn remark(text: &str) {
    eprintln!("{}", visible(text));
}

/// Prints rows: as JSON, or the named columns as a table.
pub(super) fn rows(rows: &[Row], columns: &[&str], json: bool) {
    if json {
        for row in rows {
            self::json(&Value::Object(row.clone()));
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
        self::json(&Value::Object(row.clone()));
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

/// A text that is safe to show in a terminal (security S39): what would command it is shown, not sent.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_command(c) && c != '\n' && c != '\t' { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// A control character, or one that changes the direction in which the rest is written.
fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON that is as safe to show: the same value, such characters written as escapes. They can only stand in
/// its strings.
fn json_text(value: &Value) -> String {
    let mut written = String::new();
    for c in value.to_string().chars() {
        if is_command(c) { written.push_str(&format!("\\u{:04x}", u32::from(c))) } else { written.push(c) }
    }
    written
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An escape of seven bits, one of eight, and a reversal of what follows.
    const HOSTILE: &str = "a\u{1b}[2Jb\u{9b}2Jc\u{202e}d\u{2066}e\u{7f}\r";

    fn is_safe(text: &str) -> bool {
        !text.contains(|c: char| {
            (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        })
    }

    #[test]
    fn security_s39_no_hostile_text_commands_a_terminal() {
        let shown = visible(HOSTILE);
        assert!(is_safe(&shown), "{shown:?}");
        assert_eq!(visible(&shown), shown, "twice is once");
        assert_eq!(visible("caf\u{e9} \u{2764}\u{fe0f}\n\tx"), "caf\u{e9} \u{2764}\u{fe0f}\n\tx");
    }

    #[test]
    fn security_s39_json_is_safe_to_show_and_says_the_same() {
        let value = json!({ "subject": HOSTILE, "\u{9b}key": ["\u{1f468}\u{200d}\u{1f469}"] });
        let written = json_text(&value);
        assert!(is_safe(&written), "{written:?}");
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
    }
}
