//! The mail servers under both programs: `tests/servers/mail` in a folder of its own, or running ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The variable that names running servers' settings, as in the end-to-end suite.
pub const SETTINGS: &str = "DUTIFUL_TEST_MAIL";

static ACCOUNTS: AtomicUsize = AtomicUsize::new(0);

/// Running servers.
pub struct Servers {
    settings: BTreeMap<String, String>,
}

impl Servers {
    /// Reads where they are.
    pub fn read(path: &Path) -> Servers {
        let text = fs::read_to_string(path).unwrap();
        let settings = text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned()));
        Servers { settings: settings.collect() }
    }

    /// The port of `IMAPS`, `MX` or `SUBMISSIONS`.
    pub fn port(&self, name: &str) -> u16 {
        self.settings[&format!("{name}_PORT")].parse().unwrap()
    }

    /// The certificate to trust.
    pub fn ca_file(&self) -> &str {
        &self.settings["CA_FILE"]
    }

    /// An address that nobody has used yet; its mailbox appears by itself.
    pub fn address(&self, word: &str) -> String {
        format!("{word}-{}-{}@example.test", std::process::id(), ACCOUNTS.fetch_add(1, Ordering::Relaxed))
    }

    /// An address's mailbox on the server's disk.
    pub fn mailbox(&self, address: &str) -> PathBuf {
        let local = address.split('@').next().unwrap_or_default();
        Path::new(&self.settings["MAIL_ROOT"]).join("example.test").join(local).join("Maildir")
    }
}

/// Starts servers, works, stops them.
pub fn with_own<T>(work: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::Builder::new().prefix("dutiful-bench.").tempdir_in("/tmp").unwrap();
    control("up", folder.path());
    let done = work(&folder.path().join("settings"));
    control("down", folder.path());
    done
}

fn control(word: &str, folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/mail");
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root { Command::new("bash") } else { Command::new("sudo") };
    if !is_root {
        command.args(["-n", "bash"]);
    }
    let status = command.arg(script).arg(word).arg(folder).status().unwrap();
    assert!(status.success(), "the mail servers: {word} ended with {status}");
}
