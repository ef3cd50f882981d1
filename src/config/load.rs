//! Reads a home's files in the order in which they point to each other, and gathers what is wrong in all of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

use super::names::{Named, Names};
use super::read::{File, Report, Surroundings, agent, duty, settings};
use super::secret::Variables;
use super::{Agent, Config, Problem, Settings};

const SETTINGS: &str = "dutiful.toml";

/// Bytes of one configuration file.
const LONGEST: u64 = 4 << 20;

/// The texts of a folder's files by their stems, each with its path relative to home.
type Texts = BTreeMap<String, (PathBuf, String)>;

/// Loads and checks a home.
pub(super) fn load(home: &Path, variables: Variables<'_>) -> Result<Config, Vec<Problem>> {
    let report = Report::default();
    let home = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
    let agent_texts = texts(&home, "agents", &report);
    let duty_texts = texts(&home, "duties", &report);
    let settings_text = text(&home, Path::new(SETTINGS), &report);
    let open = |path: &Path, text| File { home: &home, path: path.to_owned(), text, report: &report, variables };

    let source = open(Path::new(SETTINGS), settings_text.as_deref().unwrap_or_default());
    let tree = settings_text.is_some().then(|| source.parse()).flatten();
    let names = names(tree.as_ref().map(|tree| tree.get_ref()), agent_texts.keys().cloned().collect());
    let found = tree.as_ref().map(|tree| settings(source.root(tree), &names)).unwrap_or_default();

    let around = Surroundings { names: &names, mailboxes: &found.mailboxes, tools: &found.tools, owned: RefCell::default() };
    let mut agents = BTreeMap::new();
    for (name, (path, text)) in &agent_texts {
        let source = open(path, text);
        let Some(tree) = source.parse() else { continue };
        if let Some(agent) = agent(name, source.root(&tree), &around) {
            agents.insert(name.clone(), Arc::new(agent));
        }
    }
    for (name, (path, text)) in &duty_texts {
        let source = open(path, text);
        let Some(tree) = source.parse() else { continue };
        duty(name, source.root(&tree), &names);
    }
    let hashes = agent_texts.iter().map(|(name, (_, text))| (name.clone(), hash(text, source.text))).collect();
    finish(report, found.whole(home.clone()), agents, hashes)
}

/// The store's path alone.
pub(super) fn store_path(home: &Path) -> Result<PathBuf, Problem> {
    let home = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
    let problem = |message: String| Problem { path: SETTINGS.into(), line: 0, message };
    let text = std::fs::read_to_string(home.join(SETTINGS)).map_err(|error| {
        let folder = home.display();
        problem(format!("cannot be read in {folder} ({error}); name the home with --home DIR, or make one with `dutiful init DIR`"))
    })?;
    let tree = DeTable::parse(&text).map_err(|error| problem(format!("is not TOML: {}", error.message())))?;
    let store = tree.get_ref().get("store").and_then(|store| store.get_ref().get("path")).and_then(|path| path.get_ref().as_str());
    Ok(home.join(store.unwrap_or(super::read::DEFAULT_STORE)))
}

fn finish(
    report: Report,
    settings: Option<Settings>,
    agents: BTreeMap<String, Arc<Agent>>,
    hashes: BTreeMap<String, String>,
) -> Result<Config, Vec<Problem>> {
    let (problems, warnings) = report.into_sorted();
    match settings {
        Some(settings) if problems.is_empty() => {
            Ok(Config { home: settings.home.clone(), settings: Arc::new(settings), agents, hashes, warnings })
        }
        _ => Err(problems),
    }
}

fn hash(agent: &str, settings: &str) -> String {
    let mut digest = Sha256::new();
    // The length keeps two files from being taken for two others whose texts join to the same bytes.
    digest.update((agent.len() as u64).to_be_bytes());
    digest.update(agent);
    digest.update(settings);
    format!("{:x}", digest.finalize())
}

/// The names that files may point to, those of entries with mistakes included: one mistake is told once.
fn names(settings: Option<&DeTable<'_>>, agents: BTreeSet<String>) -> Names {
    let of = |key: &str, form| {
        let names = settings.map(|table| {
            let value = table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value.get_ref());
            let entries = value.and_then(DeValue::as_table).into_iter().flat_map(|entries| entries.keys());
            entries.map(|name| name.get_ref().to_string()).collect()
        });
        Named::new(form, names)
    };
    Names {
        agents: Named::new("agents/NAME.toml", Some(agents)),
        mailboxes: of("mailboxes", "[mailboxes.NAME]"),
        models: of("models", "[models.NAME]"),
        tools: of("tools", "[tools.NAME]"),
        contacts: of("contacts", "[contacts.NAME]"),
        servers: of("mcp", "[mcp.NAME]"),
    }
}

/// Every `*.toml` of a folder; a folder that is not there has none.
fn texts(home: &Path, folder: &str, report: &Report) -> Texts {
    let entries = match std::fs::read_dir(home.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Texts::new(),
        Err(error) => {
            report.problem(Path::new(folder), 0, format!("cannot be read ({}); make it readable for the service", error.kind()));
            return Texts::new();
        }
    };
    let mut texts = Texts::new();
    let files = entries.filter_map(Result::ok).map(|entry| PathBuf::from(entry.file_name()));
    for file in files.filter(|file| file.extension() == Some(OsStr::new("toml"))) {
        let path = Path::new(folder).join(&file);
        let stem = file.file_stem().and_then(OsStr::to_str).filter(|stem| is_stem(stem));
        let Some(stem) = stem else {
            report.problem(&path, 0, "the file's name is no usable name; use up to 64 letters, digits, \"-\" and \"_\", then .toml");
            continue;
        };
        if let Some(text) = text(home, &path, report) {
            texts.insert(stem.to_owned(), (path, text));
        }
    }
    texts
}

fn is_stem(stem: &str) -> bool {
    (1..=64).contains(&stem.len()) && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn text(home: &Path, path: &Path, report: &Report) -> Option<String> {
    let at = home.join(path);
    let bytes = std::fs::metadata(&at).and_then(|found| if found.len() > LONGEST { Ok(None) } else { std::fs::read(&at).map(Some) });
    let message = match bytes.map(|bytes| bytes.map(String::from_utf8)) {
        Ok(Some(Ok(text))) => return Some(text),
        Ok(Some(Err(_))) => "the file is not UTF-8; save it as UTF-8".to_owned(),
        Ok(None) => "the file is longer than 4 MB; shorten it".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no such file in {}; name the home folder, or make one with `dutiful init DIR`", home.display())
        }
        Err(error) => format!("the file cannot be read ({}); make it readable for the service", error.kind()),
    };
    report.problem(path, 0, message);
    None
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
