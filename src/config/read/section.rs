//! A typed reader over one TOML file, which records every problem with its line and goes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::units;
use crate::config::Problem;
use crate::config::secret::{Secret, SecretSource, Variables};

/// All that was found in all files of a home.
#[derive(Default)]
pub(crate) struct Report {
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Report {
    pub(crate) fn problem(&self, path: &Path, line: usize, message: impl Display) {
        self.problems.borrow_mut().push(Problem { path: path.to_owned(), line, message: message.to_string() });
    }

    pub(crate) fn warning(&self, path: &Path, line: usize, message: impl Display) {
        self.warnings.borrow_mut().push(Problem { path: path.to_owned(), line, message: message.to_string() });
    }

    /// Problems and warnings, each by path and line.
    pub(crate) fn into_sorted(self) -> (Vec<Problem>, Vec<Problem>) {
        let (mut problems, mut warnings) = (self.problems.into_inner(), self.warnings.into_inner());
        for list in [&mut problems, &mut warnings] {
            list.sort();
            list.dedup();
        }
        (problems, warnings)
    }
}

/// One configuration file.
pub(crate) struct File<'a> {
    /// The home folder, absolute.
    pub(crate) home: &'a Path,
    /// Relative to home.
    pub(crate) path: PathBuf,
    /// What stands in it.
    pub(crate) text: &'a str,
    /// Where problems go.
    pub(crate) report: &'a Report,
    /// The environment.
    pub(crate) variables: Variables<'a>,
}

impl File<'_> {
    /// The file's tree. Syntax errors are recorded, the first of each line, and give none.
    pub(crate) fn parse(&self) -> Option<Spanned<DeTable<'_>>> {
        let (tree, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let line = error.span().map_or(0, |span| self.line(span.start));
            let first_line = error.message().lines().next().unwrap_or_default().to_owned();
            self.report.problem(&self.path, line, format!("not TOML: {first_line}; correct the syntax of this line"));
        }
        errors.is_empty().then_some(tree)
    }

    /// The whole file as a section.
    pub(crate) fn root<'a>(&'a self, tree: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section { file: self, title: "the file".into(), at: None, table: tree.get_ref(), known: RefCell::default() }
    }

    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
    }
}

/// One table. Every key that is asked for becomes a known one; [`Section::finish`] refuses the others.
pub(crate) struct Section<'a> {
    file: &'a File<'a>,
    title: String,
    at: Option<usize>,
    table: &'a DeTable<'a>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &'static str) -> Option<Entry<'a>> {
        self.known.borrow_mut().push(key);
        self.entries().find(|entry| entry.key == key)
    }

    /// The value of a key that must be there; `right` is what would be right to write.
    pub(crate) fn required(&self, key: &'static str, right: &str) -> Option<Entry<'a>> {
        let found = self.get(key);
        if found.is_none() {
            self.problem(format!("{} has no `{key}`; write {right}", self.title));
        }
        found
    }

    /// Every entry, whatever its name: for tables whose keys are the operator's own names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let file = self.file;
        let prefix = if self.at.is_some() { format!("{}.", self.title.trim_matches(['[', ']'])) } else { String::new() };
        self.table.iter().map(move |(key, value)| Entry {
            file,
            title: format!("{prefix}{}", key.get_ref()),
            key: key.get_ref(),
            value: value.get_ref(),
            at: key.span().start,
        })
    }

    /// The tables of a table of named things, `[models.NAME]`; names that could not be used elsewhere are refused.
    pub(crate) fn named(&self, key: &'static str) -> Vec<(String, Entry<'a>)> {
        let entries: Vec<Entry<'a>> =
            self.get(key).and_then(|entry| entry.section()).map(|all| all.entries().collect()).unwrap_or_default();
        for entry in &entries {
            if !is_name(entry.key) {
                entry.wrong("is no usable name", "use up to 64 letters, digits, \".\", \"-\" and \"_\"");
            }
        }
        entries.into_iter().map(|entry| (entry.key.to_owned(), entry)).collect()
    }

    pub(crate) fn string(&self, key: &'static str) -> Option<String> {
        self.get(key)?.string().map(str::to_owned)
    }

    /// A text that may not be blank.
    pub(crate) fn text(&self, key: &'static str) -> Option<String> {
        self.get(key)?.text()
    }

    pub(crate) fn boolean(&self, key: &'static str, default: bool) -> bool {
        self.get(key).and_then(|entry| entry.boolean()).unwrap_or(default)
    }

    pub(crate) fn duration(&self, key: &'static str, default: Duration) -> Duration {
        self.get(key).and_then(|entry| entry.duration()).unwrap_or(default)
    }

    pub(crate) fn integer(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        self.get(key)?.integer(range)
    }

    pub(crate) fn strings(&self, key: &'static str) -> Option<Vec<String>> {
        Some(self.get(key)?.items()?.iter().filter_map(|item| item.string().map(str::to_owned)).collect())
    }

    pub(crate) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.get(key)?.word(words)
    }

    pub(crate) fn section(&self, key: &'static str) -> Option<Section<'a>> {
        self.get(key)?.section()
    }

    /// A problem with the table as a whole.
    pub(crate) fn problem(&self, message: impl Display) {
        self.file.report.problem(&self.file.path, self.line(), message);
    }

    /// A warning about the table as a whole.
    pub(crate) fn warning(&self, message: impl Display) {
        self.file.report.warning(&self.file.path, self.line(), message);
    }

    /// The table as a message names it.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// Where relative paths start.
    pub(crate) fn home(&self) -> &'a Path {
        self.file.home
    }

    fn line(&self) -> usize {
        self.at.map_or(0, |at| self.file.line(at))
    }

    /// Refuses every key that nobody asked for.
    pub(crate) fn finish(self) {
        let known = self.known.borrow();
        for entry in self.entries().filter(|entry| !known.contains(&entry.key)) {
            let place = if self.at.is_some() { format!(" in {}", self.title) } else { String::new() };
            let right = match nearest(entry.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let mut names = known.to_vec();
                    names.sort_unstable();
                    names.dedup();
                    format!("known are {}", names.join(", "))
                }
            };
            entry.problem(format!("unknown key `{}`{place}; {right}", shown(entry.key)));
        }
    }
}

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
        self.wrong(format_args!("is of the kind {}", self.value.type_str()), right);
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
            self.wrong(format_args!("is {}", quoted(number.as_str())), right);
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
            let list: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.wrong(format_args!("is {}", quoted(text)), format_args!("write one of {}", list.join(", ")));
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
        Some(Section { file: self.file, title: format!("[{}]", self.title), at: Some(self.at), table, known: RefCell::default() })
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
                "`{}` comes from the environment variable {}, which child processes and crash reports may show; a systemd credential is safer: {{ credential = \"NAME\" }}",
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

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The nearest of some names, when one is near enough to be meant.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let measured = names.map(|other| (distance(name, other), other));
    measured.filter(|(far, _)| *far <= allowed).min().map(|(_, other)| other)
}

/// Levenshtein's distance; names longer than 64 characters are near nothing.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().take(65).collect(), other.chars().take(65).collect());
    if one.len() > 64 || other.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, a) in one.iter().enumerate() {
        let mut next = vec![line + 1];
        let mut left = line + 1;
        for ((b, above_left), above) in other.iter().zip(&row).zip(row.iter().skip(1)) {
            left = (above_left + usize::from(a != b)).min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}

/// A value as it may stand in a message: bounded, in quotes, control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}

/// The same without quotes.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// An error's own words in the form `what; what would be right`.
fn tidy(error: &impl Display) -> String {
    let text = error.to_string();
    if text.contains(';') { text } else { text.replacen(": write ", "; write ", 1) }
}
