//! A Maildir: letters dropped into it, letters that appear in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Watch, until};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A Maildir folder.
pub struct Maildir {
    path: PathBuf,
}

/// One letter as it lies in a folder.
pub struct Arrived {
    /// Head and body.
    pub text: String,
}

impl Maildir {
    /// A Maildir at this path, made if it is missing.
    pub fn at(path: PathBuf) -> Maildir {
        for folder in ["tmp", "new", "cur"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        Maildir { path }
    }

    /// A Maildir that its server makes with the first delivery.
    pub fn of_server(path: PathBuf) -> Maildir {
        Maildir { path }
    }

    /// Drops a letter as a delivery agent does: written aside, then renamed.
    pub fn deliver(&self, letter: &str) {
        let name = format!("1700000000.M{}P{}.shop", DROPPED.fetch_add(1, Ordering::Relaxed), std::process::id());
        fs::write(self.path.join("tmp").join(&name), letter.replace('\n', "\r\n")).unwrap();
        fs::rename(self.path.join("tmp").join(&name), self.path.join("new").join(&name)).unwrap();
    }

    /// What lies in it now, in the order of names.
    pub fn letters(&self) -> Vec<Arrived> {
        let mut files: Vec<PathBuf> = ["new", "cur"]
            .iter()
            .filter_map(|folder| fs::read_dir(self.path.join(folder)).ok())
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort_by_key(|file| file.file_name().unwrap().to_owned());
        // A server may rename a file between the listing and the reading.
        files
            .iter()
            .filter_map(|file| fs::read(file).ok())
            .map(|bytes| Arrived { text: String::from_utf8_lossy(&bytes).into_owned() })
            .collect()
    }

    /// The names of its letters' files.
    pub fn names(&self) -> Vec<String> {
        let folders = ["new", "cur"].iter().filter_map(|folder| fs::read_dir(self.path.join(folder)).ok());
        folders.flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Waits until a letter's file has such a name.
    #[track_caller]
    pub fn wait_for_name(&self, what: &str, fits: impl Fn(&str) -> bool) {
        let watch = Watch::on(&self.path.join("cur"));
        until(&watch, what, || self.names().iter().any(|name| fits(name)).then_some(()));
    }

    /// A file that the server keeps beside the letters.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap()
    }

    /// Makes what lies in it so old, in the words of `touch`.
    pub fn make_older(&self, when: &str) {
        for folder in ["new", "cur"] {
            for entry in fs::read_dir(self.path.join(folder)).unwrap() {
                let touched = Command::new("touch").arg("--date").arg(when).arg(entry.unwrap().path()).status().unwrap();
                assert!(touched.success());
            }
        }
    }

    /// Waits until at least so many letters lie in it, and gives all.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Arrived> {
        let watch = Watch::on(&self.path.join("new"));
        until(&watch, &format!("{count} letters in {}", self.path.display()), || Some(self.letters()).filter(|found| found.len() >= count))
    }
}

impl Arrived {
    /// A header field's value, unfolded.
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.text, name)
    }
}

/// A header field's value in a letter's text, unfolded.
pub fn header(letter: &str, name: &str) -> Option<String> {
    let letter = letter.replace("\r\n", "\n");
    let head = letter.split("\n\n").next()?.replace("\n ", " ").replace("\n\t", " ");
    let wanted = format!("{}:", name.to_lowercase());
    let line = head.lines().find(|line| line.to_lowercase().starts_with(&wanted))?;
    line.get(wanted.len()..).map(|value| value.trim().to_owned())
}
