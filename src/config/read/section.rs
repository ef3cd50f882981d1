//! A typed reader over one TOML file, which records every problem with its line and goes on.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;

use super::Entry;
use super::entry::shown;
use crate::config::Problem;
use crate::config::secret::Variables;

/// All that was found in all files of a home.
#[derive(Default)]
pub(crate) struct Report {
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Report {
    pub(crate) fn problem(&self, path: &Path, line: usize, message: impl Display) {
        self.problems.borrow_mut().push(Problem { path: path.to_owned(), line, message: one_line(&message) });
    }

    pub(crate) fn warning(&self, path: &Path, line: usize, message: impl Display) {
        self.warnings.borrow_mut().push(Problem { path: path.to_owned(), line, message: one_line(&message) });
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

/// A message is one line of plain text, whatever stands in a file that it repeats.
fn one_line(message: &impl Display) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    message.to_string().chars().map(escape).collect()
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

    /// The line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
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
    /// A table below the file's own.
    pub(super) fn new(file: &'a File<'a>, title: String, at: usize, table: &'a DeTable<'a>) -> Section<'a> {
        Section { file, title, at: Some(at), table, known: RefCell::default() }
    }

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
        self.table.iter().map(move |(key, value)| Entry::new(file, &prefix, key, value))
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
        self.at.map_or(1, |at| self.file.line(at))
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

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The nearest of some names, when one is near enough to be meant.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = (name.chars().count() * 2 / 5).clamp(1, 3);
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
