//! What a test stands in: a home folder, the daemon as a process, a scripted model, mail folders or real mail servers.

mod daemon;
mod home;
mod mail_servers;
mod maildir;
mod model_server;
mod model_wires;
mod watch;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use rusqlite::{Connection, OpenFlags, Row};
use tempfile::TempDir;

pub use daemon::Daemon;
pub use home::{Home, Life, Scene};
pub use mail_servers::{Account, MailServers};
pub use maildir::{Arrived, Maildir};
pub use model_server::{ModelServer, Said, Wire};
pub use model_wires::examine;
use watch::{Watch, until};

/// Whether the suites with a long form run in it (`bash tests/run --long`).
pub fn is_long() -> bool {
    std::env::var_os("DUTIFUL_TEST_LONG").is_some()
}

/// A home folder and what runs on it.
pub struct World {
    folder: TempDir,
    home: PathBuf,
}

impl World {
    /// The shop on a Maildir: letters are dropped into `mail`, answers land in `sent`.
    pub fn on_maildir(model: &ModelServer) -> World {
        let world = World::empty(model);
        world.settings(model, "receive = \"maildir:mail\"\nsend = \"maildir:sent\"\ntrust = \"verified\"\n", "sundae@shop.example");
        world.mailbox();
        world.sent();
        world
    }

    /// The shop on an account of real servers.
    pub fn on_servers(model: &ModelServer, servers: &MailServers, account: &Account) -> World {
        let world = World::empty(model);
        let mailbox = format!(
            "receive = \"imaps://localhost:{}\"\nsend = \"submissions://localhost:{}\"\nusername = \"{}\"\npassword = {{ file = \"password\" }}\nca_file = \"{}\"\n",
            servers.port("IMAPS"),
            servers.port("SUBMISSIONS"),
            account.address(),
            servers.ca_file(),
        );
        world.settings(model, &mailbox, &account.address());
        world.write_secret("password", "secret\n");
        world
    }

    fn empty(model: &ModelServer) -> World {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("agents")).unwrap();
        let world = World { folder, home };
        world.write_secret("model-key", model.key());
        world.write(
            "agents/sundae.toml",
            "description = \"Answers customers\"\nmailbox = \"shop\"\nmodel = \"scripted\"\nprompt = \"You are Sundae.\"\n\
             display_name = \"Sundae\"\nfallback_reply = \"A person will answer you soon.\"\n\
             [context]\nreactive = [\"persona\", \"clock\", \"history\"]\n",
        );
        world
    }

    fn settings(&self, model: &ModelServer, mailbox: &str, address: &str) {
        let text = format!(
            "[mailboxes.shop]\naddress = \"{address}\"\nagent = \"sundae\"\n{mailbox}\n\
             [models.scripted]\nwire = \"{}\"\nbase_url = \"{}\"\nmodel = \"scripted-1\"\napi_key = {{ file = \"model-key\" }}\n\
             context_window = 100000\nmax_output = 4096\n\n\
             [operator]\naddress = \"owner@shop.example\"\n",
            model.wire().as_str(),
            model.base_url(),
        );
        self.write("dutiful.toml", &text);
    }

    /// Writes a file of the home.
    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.home.join(path), text).unwrap();
    }

    /// Adds to a file of the home.
    pub fn append(&self, path: &str, text: &str) {
        let before = fs::read_to_string(self.home.join(path)).unwrap();
        self.write(path, &(before + text));
    }

    fn write_secret(&self, path: &str, text: &str) {
        self.write(path, text);
        fs::set_permissions(self.home.join(path), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Where letters to the agent are dropped.
    pub fn mailbox(&self) -> Maildir {
        Maildir::at(self.home.join("mail"))
    }

    /// Where its answers land.
    pub fn sent(&self) -> Maildir {
        Maildir::at(self.home.join("sent"))
    }

    /// Starts the daemon and waits until it says that it is ready.
    pub fn start(&self) -> Daemon {
        Daemon::start(&self.home, self.folder.path())
    }

    /// Runs one command on this home to its end.
    pub fn command(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_dutiful")).arg("--home").arg(&self.home).args(words).output().unwrap()
    }

    /// What the store answers to an operator's query.
    pub fn rows<T>(&self, sql: &str, row: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let store = Connection::open_with_flags(self.store(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut query = store.prepare(sql).unwrap();
        query.query_map([], |found| row(found)).unwrap().collect::<rusqlite::Result<Vec<T>>>().unwrap()
    }

    /// Waits until so many letters have this verdict.
    pub fn wait_for_verdict(&self, verdict: &str, count: usize) {
        let watch = Watch::on(&self.home.join("data"));
        until(&watch, &format!("{count} letters {verdict}"), || {
            let verdicts = self.rows("SELECT verdict FROM audit_letters", |row| row.get::<_, String>(0));
            (verdicts.iter().filter(|found| *found == verdict).count() >= count).then_some(())
        });
    }

    fn store(&self) -> PathBuf {
        self.home.join("data/dutiful.db")
    }
}
