//! The structure as law: which module may import which, who alone may speak SQL, TOML, IMAP or to the system, how large
//! a file and a folder may grow, and which names say nothing. Each law is a function from source texts to breaches, so
//! that this file also shows that each of them can fail.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice, reason = "a panic here is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What everybody may ask, save those that are pure values.
const OPEN_TO_ALL: &[&str] = &["clock", "random"];
const PURE: &[&str] = &["mail", "chat", "process", "tls", "clock", "random"];

/// Each module and the modules that it may import. A new module needs a line here.
const ARROWS: &[(&str, &[&str])] = &[
    ("mail", &[]),
    ("chat", &[]),
    ("process", &[]),
    ("tls", &[]),
    ("clock", &[]),
    ("random", &[]),
    ("config", &["mail", "chat", "process", "tls"]),
    ("run", &["mail", "config"]),
    ("events", &["chat", "run", "process"]),
    ("store", &["mail", "chat", "config", "run"]),
    ("inference", &["chat", "config", "tls"]),
    ("tools", &["mail", "chat", "config", "run", "store", "process"]),
    ("context", &["chat", "config", "run", "store", "process"]),
    ("harness", &["chat", "run", "events", "store", "inference", "tools", "context"]),
    ("schedule", &["config", "events", "store"]),
    ("frontdoor", &["mail", "chat", "process", "config", "run", "events", "store", "inference", "tools", "context", "harness", "schedule"]),
    ("gateway", &["mail", "config", "run", "events", "store", "process", "tls"]),
    (
        "panel",
        &[
            "mail",
            "chat",
            "process",
            "config",
            "run",
            "events",
            "store",
            "inference",
            "tools",
            "context",
            "harness",
            "schedule",
            "frontdoor",
        ],
    ),
    ("telemetry", &["config", "run", "events"]),
    (
        "daemon",
        &[
            "mail",
            "chat",
            "process",
            "tls",
            "config",
            "run",
            "events",
            "store",
            "inference",
            "tools",
            "context",
            "harness",
            "schedule",
            "frontdoor",
            "gateway",
            "panel",
            "telemetry",
        ],
    ),
    (
        "cli",
        &[
            "mail",
            "chat",
            "process",
            "tls",
            "config",
            "run",
            "events",
            "store",
            "inference",
            "tools",
            "context",
            "harness",
            "schedule",
            "frontdoor",
            "gateway",
            "panel",
            "telemetry",
            "daemon",
        ],
    ),
];

/// Arrows that the table does not have, each with its reason. One that is no longer used fails the test.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("config", "run", "an agent's `identity` is a level of `run::Identity`"),
    ("context", "mail", "the opening message of a run is made from a letter"),
];

/// Words of other crates and of the standard library, and the only files (by the start of their path) that may say them.
const SPEAKERS: &[(&str, &[&str])] = &[
    ("rusqlite", &["store/"]),
    ("async_imap", &["gateway/"]),
    ("lettre", &["gateway/"]),
    ("mail_parser", &["gateway/"]),
    ("reqwest", &["inference/"]),
    ("tokio_rustls", &["gateway/"]),
    ("toml", &["config/", "inference/script"]),
    ("clap", &["cli/", "main.rs"]),
    ("sd_notify", &["daemon"]),
    // `config` asks it whether a log filter is one.
    ("tracing_subscriber", &["telemetry", "config/"]),
    ("tracing_appender", &["telemetry"]),
    ("env::var", &["config/secret.rs"]),
    // `process` hands PATH, HOME and LANG on to a program.
    ("env::var_os", &["config/secret.rs", "process.rs"]),
    ("env::vars", &["config/secret.rs"]),
    ("env::set_var", &[]),
    ("process::Command", &["process.rs"]),
    ("tokio::process", &["process.rs"]),
    ("tokio::spawn", &[]),
];

/// Words that a module does not say at all, in no identifier, of which they are a part.
const UNSAID: &[(&str, &[&str])] = &[
    ("harness", &["mail", "email", "gateway", "schedule", "cron", "frontdoor", "imap", "smtp"]),
    ("gateway", &["harness", "tools", "toolset", "inference"]),
    ("chat", &["openai", "anthropic"]),
];

/// Names that say nothing about what they hold.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "manager", "misc", "base", "impl"];

const MOST_LINES: usize = 600;
const MOST_FILES: usize = 14;
const MOST_TRAITS: usize = 6;

/// One file below `src/`.
struct Source {
    /// Relative to `src/`, with `/`.
    path: String,
    /// What ships: without its tests, comments and literals; lines kept.
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), code: without_tests(&bare(text)) }
    }

    /// The module's path: `inference/openai/stream.rs` is `inference`, `openai`, `stream`.
    fn module(&self) -> Vec<&str> {
        let stem = self.path.trim_end_matches(".rs");
        stem.split('/').filter(|part| *part != "mod").collect()
    }

    fn layer(&self) -> &str {
        self.module().first().copied().unwrap_or_default()
    }

    fn is_root(&self) -> bool {
        self.path == "lib.rs" || self.path == "main.rs"
    }

    /// Every top-level module that the code names, by `crate::` or by enough `super::`.
    fn imports(&self) -> BTreeSet<String> {
        let to_root = "super::".repeat(self.module().len());
        let mut found = BTreeSet::new();
        for start in ["crate::", to_root.as_str()] {
            for (at, _) in self.code.match_indices(start) {
                let before = self.code[..at].chars().next_back();
                if !before.is_some_and(|c| is_word(c) || c == ':') {
                    found.extend(heads(&self.code[at + start.len()..]));
                }
            }
        }
        found
    }
}

/// The first names of a path's rest: `a::b` gives `a`; `{a::b, c::{d, e}}` gives `a` and `c`.
fn heads(rest: &str) -> BTreeSet<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return BTreeSet::from([rest.chars().take_while(|c| is_word(*c)).collect()]);
    };
    let (mut found, mut depth, mut name, mut fresh) = (BTreeSet::new(), 1, String::new(), true);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 1 && fresh && is_word(c) {
            name.push(c);
        } else if !name.is_empty() {
            found.insert(std::mem::take(&mut name));
            fresh = false;
        }
        if depth == 1 && c == ',' {
            fresh = true;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text without comments and without what stands in literals; line breaks stay.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after_word = out.chars().next_back().is_some_and(is_word);
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => quoted(rest),
            'r' | 'b' if !after_word => raw_quoted(rest),
            '\'' => character(rest),
            _ => 0,
        };
        let (gone, next) = rest.split_at(skipped);
        if skipped == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.extend(gone.chars().filter(|c| *c == '\n'));
            rest = next;
        }
    }
    out
}

/// The length of the literal that begins with this quotation mark.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"`, or 0 when it is none.
fn raw_quoted(rest: &str) -> usize {
    let opened = rest.trim_start_matches('b').strip_prefix('r').unwrap_or_default();
    let marks = opened.chars().take_while(|c| *c == '#').count();
    if !opened[marks..].starts_with('"') {
        return 0;
    }
    let begin = rest.len() - opened.len() + marks + 1;
    let end = format!("\"{}", "#".repeat(marks));
    rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
}

/// The length of a character literal, or 0 when the mark begins a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(escaped)) => {
            let begin = 2 + escaped.len_utf8();
            rest[begin..].find('\'').map_or(0, |at| begin + at + 1)
        }
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// The code without its `#[cfg(test)]` modules: the attribute, and the braces or the semicolon that end the module.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut depth = 0;
        let end = rest.char_indices().find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            ((c == '}' || c == ';') && depth == 0).then_some(at + 1)
        });
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    out + rest
}

/// Whether the code says these words as whole words.
fn says(code: &str, words: &str) -> bool {
    code.match_indices(words).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + words.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The words of an identifier, lower case: `next_letter`, `NextLetter` and `NEXT_LETTER` are `next` and `letter`.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && lower) {
            parts.push(String::new());
        }
        lower = c.is_lowercase();
        if c != '_' {
            parts.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    parts
}

// ---------------------------------------------------------------- the laws

fn broken_arrows(sources: &[Source]) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| !source.is_root()) {
        let layer = source.layer();
        let Some(may) = allowed.get(layer) else {
            breaches.push(format!("{}: the module {layer} has no line in ARROWS", source.path));
            continue;
        };
        for import in source.imports() {
            let known = allowed.contains_key(import.as_str());
            let excepted = EXCEPTIONS.iter().any(|(from, to, _)| *from == layer && *to == import);
            let open = OPEN_TO_ALL.contains(&import.as_str()) && !PURE.contains(&layer);
            if known && import != layer && !may.contains(&import.as_str()) && !excepted && !open {
                breaches.push(format!("{}: {layer} may not import {import}", source.path));
            }
        }
    }
    breaches
}

fn idle_exceptions(sources: &[Source]) -> Vec<String> {
    let used = |from: &str, to: &str| sources.iter().any(|source| source.layer() == from && source.imports().contains(to));
    let idle = EXCEPTIONS.iter().filter(|(from, to, _)| !used(from, to));
    idle.map(|(from, to, _)| format!("the exception {from} to {to} is not used")).collect()
}

fn foreign_words(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources {
        for (word, speakers) in SPEAKERS {
            let may = speakers.iter().any(|start| source.path.starts_with(start));
            if !may && says(&source.code, word) {
                breaches.push(format!("{}: says {word}, which only {speakers:?} may", source.path));
            }
        }
    }
    breaches
}

fn unsaid_words(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources {
        let Some((layer, words)) = UNSAID.iter().find(|(layer, _)| *layer == source.layer()) else { continue };
        for identifier in source.code.split(|c| !is_word(c)) {
            if let Some(word) = parts(identifier).iter().find(|part| words.contains(&part.as_str())) {
                breaches.push(format!("{}: {layer} never says {word}, here in {identifier}", source.path));
            }
        }
    }
    breaches
}

fn long_files(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter(|source| source.code.lines().count() > MOST_LINES);
    long.map(|source| format!("{}: {} lines, at most {MOST_LINES}", source.path, source.code.lines().count())).collect()
}

fn crowded_folders(paths: &[String]) -> Vec<String> {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        *files.entry(path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
    }
    files.retain(|_, count| *count > MOST_FILES);
    files.iter().map(|(folder, count)| format!("src/{folder}: {count} files, at most {MOST_FILES}")).collect()
}

fn deep_folders(paths: &[String]) -> Vec<String> {
    let deep = paths.iter().filter(|path| path.matches('/').count() > 2);
    deep.map(|path| format!("{path}: folders are nested at most two deep")).collect()
}

fn empty_names(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources {
        let in_path = source.module().into_iter().flat_map(|name| name.split('_'));
        let of_items = source.code.split_whitespace().collect::<Vec<_>>();
        let of_items = of_items.windows(2).filter(|pair| ["mod", "struct", "enum", "trait"].contains(&pair[0]));
        let of_items = of_items.flat_map(|pair| parts(pair[1].split(|c| !is_word(c)).next().unwrap_or_default()));
        for word in in_path.map(str::to_owned).chain(of_items) {
            if EMPTY_NAMES.contains(&word.as_str()) {
                breaches.push(format!("{}: the name {word} says nothing", source.path));
            }
        }
    }
    breaches
}

fn silenced_lints(sources: &[Source]) -> Vec<String> {
    let silenced = sources.iter().filter(|source| source.code.contains("#[allow(") || source.code.contains("#![allow("));
    silenced.map(|source| format!("{}: #[allow]; write #[expect(…, reason = …)]", source.path)).collect()
}

fn traits(sources: &[Source]) -> Vec<String> {
    let declared = sources.iter().flat_map(|source| {
        let words: Vec<&str> = source.code.split_whitespace().collect();
        let names = words.windows(2).filter(|pair| pair[0] == "trait").map(|pair| pair[1].to_owned());
        names.map(|name| format!("{}: trait {name}", source.path)).collect::<Vec<_>>()
    });
    let declared: Vec<String> = declared.collect();
    if declared.len() > MOST_TRAITS { declared } else { Vec::new() }
}

// ---------------------------------------------------------------- the sources as they are

/// Every source file below `src/` that ships, relative to it, with its text.
fn shipped() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut todo) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    for test_file in found.iter().flat_map(|(path, text)| test_files(path, text)).collect::<Vec<_>>() {
        // A module for tests may be a folder: all of it is.
        let folder = format!("{}/", test_file.trim_end_matches(".rs"));
        found.retain(|path, _| *path != test_file && !path.starts_with(&folder));
    }
    found
}

/// The files that this one joins for tests only: `#[cfg(test)] mod x;`, with or without a `#[path]`.
fn test_files(path: &str, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').map_or((String::new(), path), |(folder, file)| (format!("{folder}/"), file));
    let below = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.clone(),
        other => format!("{folder}{}/", other.trim_end_matches(".rs")),
    };
    let mut joined = Vec::new();
    for declared in text.split("#[cfg(test)]").skip(1) {
        let mut lines = declared.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut at_path = None;
        let item = loop {
            match lines.next() {
                Some(line) if line.starts_with("#[path") => at_path = line.split('"').nth(1),
                Some(line) if line.starts_with("#[") => {}
                item => break item.unwrap_or_default(),
            }
        };
        let name = item.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';'));
        joined.extend(name.map(|name| at_path.map_or(format!("{below}{name}.rs"), |at| format!("{folder}{at}"))));
    }
    joined
}

fn paths() -> Vec<String> {
    shipped().into_keys().collect()
}

fn sources() -> Vec<Source> {
    let written = shipped().into_iter().filter(|(path, _)| path.ends_with(".rs"));
    written.map(|(path, text)| Source::new(&path, &text)).collect()
}

#[track_caller]
fn none(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n  {}\n", breaches.join("\n  "));
}

#[test]
fn arrows_point_downward() {
    none(&broken_arrows(&sources()));
    none(&idle_exceptions(&sources()));
}

#[test]
fn each_foreign_tongue_has_its_speaker() {
    none(&foreign_words(&sources()));
    none(&unsaid_words(&sources()));
}

#[test]
fn files_and_folders_stay_small() {
    none(&long_files(&sources()));
    none(&crowded_folders(&paths()));
    none(&deep_folders(&paths()));
}

#[test]
fn names_say_something() {
    none(&empty_names(&sources()));
}

#[test]
fn no_lint_is_silenced() {
    none(&silenced_lints(&sources()));
}

#[test]
fn traits_are_few() {
    none(&traits(&sources()));
}

// ---------------------------------------------------------------- the laws can fail

fn one(path: &str, text: &str) -> [Source; 1] {
    [Source::new(path, text)]
}

#[test]
fn a_broken_arrow_is_found_in_every_spelling() {
    for text in [
        "use crate::gateway::Imap;",
        "use crate::{chat::Message, gateway};",
        "use crate::{\n    chat::{Block, Message},\n    gateway::{self, Imap},\n};",
        "fn f() { crate::gateway::open(); }",
        "use super::super::gateway;",
        "const A: &str = \"\\\"\"; use crate::gateway;",
        "const Q: char = '\"'; use crate::gateway;",
        "const R: &str = r#\"\"\"#; use crate::gateway;",
        "#[cfg(test)]\nmod tests {\n    use super::*;\n}\nuse crate::gateway;",
    ] {
        assert_eq!(broken_arrows(&one("harness/turns.rs", text)), ["harness/turns.rs: harness may not import gateway"], "{text}");
    }
    assert_eq!(broken_arrows(&one("tls.rs", "use super::mail;")), ["tls.rs: tls may not import mail"]);
    assert_eq!(broken_arrows(&one("novel/mod.rs", "")), ["novel/mod.rs: the module novel has no line in ARROWS"]);
}

#[test]
fn what_does_not_ship_and_what_is_only_text_breaks_no_arrow() {
    for text in [
        "// use crate::gateway;",
        "/* crate::gateway */",
        "const A: &str = \"crate::gateway\";",
        "const A: &str = r#\"a \" crate::gateway\"#;",
        "use crate::chat::gateway;",
        "use crate::harness::Turns;",
        "use super::gateway;",
        "fn f<'a>(x: &'a str) {}\n#[cfg(test)]\nmod tests {\n    use crate::gateway;\n    fn f() {}\n}",
        "#[cfg(test)]\n#[path = \"turns_tests.rs\"]\nmod tests;",
    ] {
        none(&broken_arrows(&one("harness/turns.rs", text)));
    }
}

#[test]
fn files_that_are_joined_for_tests_only_are_known() {
    let joined =
        "mod a;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n#[cfg(test)]\npub(crate) mod peer;\n#[cfg(test)]\nmod inline {}\n";
    assert_eq!(test_files("gateway/mod.rs", joined), ["gateway/b_tests.rs", "gateway/peer.rs"]);
    assert_eq!(test_files("gateway/smtp.rs", joined), ["gateway/b_tests.rs", "gateway/smtp/peer.rs"]);
    assert_eq!(test_files("lib.rs", joined), ["b_tests.rs", "peer.rs"]);
}

#[test]
fn an_exception_that_nobody_uses_is_found() {
    assert_eq!(idle_exceptions(&[]).len(), EXCEPTIONS.len());
}

#[test]
fn each_other_law_can_fail() {
    assert_eq!(foreign_words(&one("harness/x.rs", "use rusqlite::Connection;")).len(), 1);
    assert_eq!(foreign_words(&one("config/agent.rs", "fn f() { std::env::var(\"A\"); }")).len(), 1);
    assert_eq!(foreign_words(&one("tools/command.rs", "use std::process::Command;")).len(), 1);
    none(&foreign_words(&one("store/x.rs", "use rusqlite::Connection; fn my_lettre() {}")));
    assert_eq!(unsaid_words(&one("harness/x.rs", "fn send_mail() {}")).len(), 1);
    assert_eq!(unsaid_words(&one("harness/x.rs", "struct MailSender;")).len(), 1);
    none(&unsaid_words(&one("harness/x.rs", "fn mailbox() {} // mail")));
    assert_eq!(long_files(&one("a.rs", &"x\n".repeat(MOST_LINES + 1))).len(), 1);
    none(&long_files(&one("a.rs", &format!("{}#[cfg(test)]\nmod t {{\n{}}}", "x\n".repeat(MOST_LINES - 1), "x\n".repeat(100)))));
    let crowd: Vec<String> = (0..=MOST_FILES).map(|n| format!("mail/{n}.rs")).collect();
    assert_eq!(crowded_folders(&crowd).len(), 1);
    assert_eq!(deep_folders(&["a/b/c/d.rs".to_owned()]).len(), 1);
    assert_eq!(empty_names(&one("mail/util.rs", "")).len(), 1);
    assert_eq!(empty_names(&one("mail/a.rs", "pub struct ThreadManager {}")).len(), 1);
    assert_eq!(silenced_lints(&one("a.rs", "#[allow(dead_code)]")).len(), 1);
    let many: Vec<Source> = (0..=MOST_TRAITS).map(|n| Source::new("a.rs", &format!("pub trait T{n} {{}}"))).collect();
    assert_eq!(traits(&many).len(), MOST_TRAITS + 1);
}
