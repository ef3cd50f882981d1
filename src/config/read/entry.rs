//! One value of a file with its place: reads it as the kind that is wanted, or records what is wrong with it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::{File, Section, nearest, units};
use crate::config::secret::{Secret, SecretSource};

/// One value with its place.
#[derive(Clone)]
pub(crate) struct Entry<'a> {
    file: &'a File<'a>,
    title: String,
    /// The key alone.
    pub(crate) key: &'a str,
    value: &'a DeValue<'a>,
    at: usize,
}

impl<'a> Entry<'a> {
    /// One entry of a table; `prefix` names the tables above it.
    pub(super) fn new(file: &'a File<'a>, prefix: &str, key: &'a Spanned<DeString<'a>>, value: &'a Spanned<DeValue<'a>>) -> Entry<'a> {
        let at = key.span().start;
        let key: &str = key.get_ref();
        Entry { file, title: format!("{prefix}{key}"), key, value: value.get_ref(), at }
    }

    /// Records that this value is wrong, and what would be right.
    pub(crate) fn wrong(&self, what: impl Display, right: impl Display) {
        self.problem(format!("`{}` {what}; {right}", self.key));
    }

    /// Records a problem at this line.
    pub(crate) fn problem(&self, message: impl Display) {
        self.file.report.problem(&self.file.path, self.file.line(self.at), message);
    }

    /// Records a weak choice at this line.
    pub(crate) fn warning(&self, message: impl Display) {
        self.file.report.warning(&self.file.path, self.file.line(self.at), message);
    }

    fn mistyped<T>(&self, right: impl Display) -> Option<T> {
        self.wrong(format_args!("has a value of the kind {}", self.value.type_str()), right);
        None
    }

    pub(crate) fn string(&self) -> Option<&'a str> {
        self.value.as_str().or_else(|| self.mistyped("write a string in quotes"))
    }

    pub(crate) fn text(&self) -> Option<String> {
        let text = self.string()?;
        if text.trim().is_empty() {
            self.wrong("is empty", "write some text");
            return None;
        }
        Some(text.to_owned())
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.mistyped("write true or false"))
    }

    /// A string, parsed by its type; the type's error says what would be right.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self) -> Option<T> {
        let text = self.string()?;
        text.parse().inspect_err(|error| self.problem(format!("`{}`: {}", self.key, tidy(error)))).ok()
    }

    pub(crate) fn duration(&self) -> Option<Duration> {
        let right = "write a duration such as \"30s\", \"10m\", \"2h\", \"14d\", \"24mo\"";
        let Some(text) = self.value.as_str() else { return self.mistyped(right) };
        let found = units::duration(text);
        if found.is_none() {
            self.wrong(format_args!("is not a duration: {}", quoted(text)), right);
        }
        found
    }

    pub(crate) fn size(&self) -> Option<u64> {
        let right = "write bytes as an integer, or \"100KB\", \"25MB\"";
        let found = match self.value {
            DeValue::String(text) => units::size(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => return self.mistyped(right),
        };
        if found.is_none() {
            self.wrong("is not a size", right);
        }
        found
    }

    pub(crate) fn money(&self) -> Option<u64> {
        let right = "write an amount in quotes such as \"0.60\", with at most six decimals";
        let Some(text) = self.value.as_str() else { return self.mistyped(right) };
        let found = units::money(text);
        if found.is_none() {
            self.wrong(format_args!("is not an amount: {}", quoted(text)), right);
        }
        found
    }

    pub(crate) fn integer(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let right = format!("write an integer from {} to {}", range.start(), range.end());
        let Some(number) = self.value.as_integer() else { return self.mistyped(right) };
        let found = u32::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| range.contains(number));
        if found.is_none() {
            self.wrong(format_args!("is {}", shown(number.as_str())), right);
        }
        found
    }

    /// An integer or a float, for a sampling parameter.
    pub(crate) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let right = format!("write a number from {} to {}", range.start(), range.end());
        let number = match self.value {
            DeValue::Integer(number) => number.as_str().parse::<f64>(),
            DeValue::Float(number) => number.as_str().parse::<f64>(),
            _ => return self.mistyped(right),
        };
        let found = number.ok().filter(|number| range.contains(number));
        if found.is_none() {
            self.wrong("is outside its range", right);
        }
        found
    }

    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.string()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let right = match nearest(text, words.iter().map(|(word, _)| *word)) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("write one of {}", words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")),
            };
            self.wrong(format_args!("is {}", quoted(text)), right);
        }
        found
    }

    /// The items of a list, each with its own line.
    pub(crate) fn items(&self) -> Option<Vec<Entry<'a>>> {
        let Some(array) = self.value.as_array() else { return self.mistyped("write a list such as [\"one\", \"two\"]") };
        let item = |value: &'a Spanned<DeValue<'a>>| Entry { value: value.get_ref(), at: value.span().start, ..self.clone() };
        Some(array.iter().map(item).collect())
    }

    /// Program and arguments.
    pub(crate) fn command(&self) -> Option<Vec<String>> {
        let argv: Option<Vec<String>> = self.items()?.iter().map(|item| item.string().map(str::to_owned)).collect();
        let argv = argv?;
        if argv.first().is_none_or(String::is_empty) || argv.iter().any(|part| part.contains('\0')) {
            self.wrong("names no program", "write the program and its arguments, such as [\"bin/tool\", \"--fast\"]");
            return None;
        }
        Some(argv)
    }

    pub(crate) fn section(&self) -> Option<Section<'a>> {
        let Some(table) = self.value.as_table() else { return self.mistyped("write a table") };
        Some(Section::new(self.file, format!("[{}]", self.title), self.at, table))
    }

    pub(crate) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(crate) fn is_integer(&self) -> bool {
        self.value.is_integer()
    }

    pub(crate) fn is_string(&self) -> bool {
        self.value.is_str()
    }

    /// Where relative paths start.
    pub(crate) fn home(&self) -> &'a Path {
        self.file.home
    }

    /// A path, relative ones from home.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let text = self.string()?;
        if text.is_empty() || text.contains('\0') {
            self.wrong("is no path", "write a path, relative to the home folder or absolute");
            return None;
        }
        Some(self.file.home.join(text))
    }

    /// The bytes of the file that a path names, at most `limit`.
    pub(crate) fn file(&self, limit: u64) -> Option<(PathBuf, Vec<u8>)> {
        let path = self.path()?;
        let read = std::fs::metadata(&path).and_then(|found| if found.len() > limit { Ok(None) } else { std::fs::read(&path).map(Some) });
        match read {
            Ok(Some(bytes)) => return Some((path, bytes)),
            Ok(None) => self.wrong(format_args!("names a file of more than {limit} bytes"), "shorten it"),
            Err(error) => self.wrong(
                format_args!("names {}, which cannot be read ({})", quoted(self.value.as_str().unwrap_or_default()), error.kind()),
                "write the path of a readable file, relative to the home folder or absolute",
            ),
        }
        None
    }

    /// The same as text.
    pub(crate) fn file_text(&self, limit: u64) -> Option<String> {
        let (_, bytes) = self.file(limit)?;
        String::from_utf8(bytes).inspect_err(|_| self.wrong("names a file that is not UTF-8", "save it as UTF-8")).ok()
    }

    /// A secret by reference (security S37), read at once.
    pub(crate) fn secret(&self) -> Option<Secret> {
        let source = self.secret_source()?;
        if let SecretSource::Env(name) = &source {
            self.warning(format!(
                "`{}` comes from the environment variable {}, which /proc and crash reports may show; a systemd credential is safer: {{ credential = \"NAME\" }}",
                self.key, shown(name)
            ));
        }
        source.read(self.file.home, self.file.variables).inspect_err(|error| self.problem(format!("`{}`: {error}", self.key))).ok()
    }

    /// Where a secret stands.
    pub(crate) fn secret_source(&self) -> Option<SecretSource> {
        let right = "write { env = \"NAME\" }, { file = \"PATH\" }, { credential = \"NAME\" } or { command = [\"PROGRAM\"] }";
        if self.is_string() {
            self.wrong("is a secret written into the file", right);
            return None;
        }
        let Some(table) = self.value.as_table() else { return self.mistyped(right) };
        if table.len() != 1 {
            self.wrong(format_args!("names {} sources of its secret", table.len()), right);
            return None;
        }
        let section = self.section()?;
        let source = [
            section.text("env").map(SecretSource::Env),
            section.get("file").and_then(|entry| entry.path()).map(SecretSource::File),
            section.text("credential").map(SecretSource::Credential),
            section.get("command").and_then(|entry| entry.command()).map(SecretSource::Command),
        ];
        section.finish();
        source.into_iter().flatten().next()
    }

    /// Values by name, of which those with a telling name must be secrets by reference.
    pub(crate) fn secrets(&self) -> Option<BTreeMap<String, Secret>> {
        let section = self.section()?;
        let mut all = BTreeMap::new();
        for entry in section.entries() {
            let value = match entry.value.as_str() {
                Some(text) if !sounds_secret(entry.key) => Some(Secret::new(text.to_owned())),
                _ => entry.secret(),
            };
            if let Some(value) = value {
                all.insert(entry.key.to_owned(), value);
            }
        }
        Some(all)
    }

    /// The value as JSON, for schemas.
    pub(crate) fn json(&self) -> Value {
        json(self.value)
    }
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from),
        DeValue::Float(number) => number.as_str().parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Datetime(moment) => Value::String(moment.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            Value::Object(table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect::<Map<_, _>>())
        }
    }
}

/// Whether a value of this name must not stand in a file: `DB_PASSWORD`, `Authorization`, `x-api-key`.
fn sounds_secret(name: &str) -> bool {
    let last = name.rsplit(['_', '-']).next().unwrap_or(name).to_ascii_lowercase();
    ["authorization", "cookie", "key", "passwd", "password", "secret", "token"].contains(&last.as_str())
}

/// A value as it may stand in a message: bounded, in quotes, control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}

/// The same without quotes.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// An error's own words in the form `what; what would be right`.
fn tidy(error: &impl Display) -> String {
    let text = error.to_string();
    if text.contains(';') { text } else { text.replacen(": write ", "; write ", 1) }
}
