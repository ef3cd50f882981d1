//! What a test stands in: a home folder, the daemon as a process, a scripted model, mail folders or real mail servers.

mod daemon;
mod home;
mod letter;
mod mail_servers;
mod maildir;
mod model_server;
mod model_wires;
mod real_shop;
mod watch;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use rusqlite::{Connection, OpenFlags, Row};
use rustix::fs::Mode;
use rustix::process::umask;
use tempfile::TempDir;

pub use daemon::Daemon;
pub use home::{Home, Life, Scene};
pub use letter::Letter;
pub use mail_servers::{Account, MailServers};
pub use maildir::{Arrived, Maildir};
pub use model_server::{Asked, ModelServer, Said, Wire};
pub use model_wires::examine;
pub use real_shop::{RealShop, TRUSTED_RECEIVER};
use watch::before_the_deadline;
pub use watch::{Watch, until};

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
        world.settings(
            model,
            "receive = \"maildir:mail\"\nsend = \"maildir:sent\"\ntrust = \"verified\"\n",
            "sundae@shop.example",
            "owner@shop.example",
        );
        world.mailbox();
        world.sent();
        world
    }

    /// The shop on an account of real servers.
    pub fn on_servers(model: &ModelServer, servers: &MailServers, account: &Account) -> World {
        let world = World::empty(model);
        let mailbox = format!(
            "receive = \"imaps://localhost:{}\"\nsend = \"submissions://localhost:{}\"\nusername = \"{}\"\npassword = {{ file = \"password\" }}\nca_file = \"{}\"\ntrusted_authserv_ids = [\"{TRUSTED_RECEIVER}\"]\n",
            servers.port("IMAPS"),
            servers.port("SUBMISSIONS"),
            account.address(),
            servers.ca_file(),
        );
        world.settings(model, &mailbox, &account.address(), &World::operator_of(account));
        world.write_secret("password", "secret\n");
        world
    }

    /// The operator's address of the shop on this account: no other test's letters get there.
    pub fn operator_of(account: &Account) -> String {
        format!("owner-of-{}", account.address())
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

    fn settings(&self, model: &ModelServer, mailbox: &str, address: &str, operator: &str) {
        let text = format!(
            "[mailboxes.shop]\naddress = \"{address}\"\nagent = \"sundae\"\n{mailbox}\n\
             [models.scripted]\nwire = \"{}\"\nbase_url = \"{}\"\nmodel = \"scripted-1\"\napi_key = {{ file = \"model-key\" }}\n\
             context_window = 100000\nmax_output = 4096\n\n\
             [operator]\naddress = \"{operator}\"\n",
            model.wire().as_str(),
            model.base_url(),
        );
        self.write("dutiful.toml", &text);
    }

    /// Writes a file of the home.
    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.home.join(path), text).unwrap();
    }

    /// A path in the home.
    pub fn path(&self, path: &str) -> PathBuf {
        self.home.join(path)
    }

    /// Adds to a file of the home.
    pub fn append(&self, path: &str, text: &str) {
        let before = fs::read_to_string(self.home.join(path)).unwrap();
        self.write(path, &(before + text));
    }

    /// Writes something else in place of a text in a file of the home.
    #[track_caller]
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let before = fs::read_to_string(self.home.join(path)).unwrap();
        assert!(before.contains(from), "{path} does not hold {from:?}");
        self.write(path, &before.replacen(from, to, 1));
    }

    /// What a file of the home holds.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.home.join(path)).unwrap_or_default()
    }

    /// A pipe in the home that one program waits at until another opens its other end.
    pub fn pipe(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.home.join(name)).status().unwrap();
        assert!(made.success());
    }

    /// A tool whose program is a shell script, run in the home.
    pub fn tool(&self, name: &str, effect: &str, timeout: &str, script: &str) {
        let text = format!(
            "\n[tools.{name}]\ndescription = \"The tool {name}\"\neffect = \"{effect}\"\ntimeout = \"{timeout}\"\n\
             input = {{ type = \"object\", properties = {{}} }}\ncommand = [\"/bin/sh\", \"-c\", '''{script}''']\n"
        );
        self.append("dutiful.toml", &text);
    }

    /// Grants these tools to the agent.
    pub fn grant(&self, tools: &[&str]) {
        self.append("agents/sundae.toml", &format!("\n[tools]\neager = {tools:?}\n"));
    }

    /// Each tool call of the store, in order: name, status, result.
    pub fn tool_calls(&self) -> Vec<(String, String, String)> {
        let query = "SELECT name, status, result FROM audit_tool_calls ORDER BY started_at, run_id, round, position";
        self.rows(query, |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?.unwrap_or_default())))
    }

    /// Each letter of the store, in order: Message-ID, identity, verdict, reason.
    pub fn letters(&self) -> Vec<(String, String, String, String)> {
        let query = "SELECT coalesce(message_id, ''), identity, verdict, reason FROM audit_letters ORDER BY id";
        self.rows(query, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
    }

    /// Runs one command that has to succeed, and gives what it printed.
    #[track_caller]
    pub fn done(&self, words: &[&str]) -> String {
        let output = self.command(words);
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "dutiful {words:?}: {said}{complained}");
        said.into_owned()
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

    /// The same, with this umask.
    pub fn start_with_umask(&self, mask: u32) -> Daemon {
        let before = umask(Mode::from_raw_mode(mask));
        let daemon = self.start();
        umask(before);
        daemon
    }

    /// Starts the daemon, which need not get ready.
    pub fn start_unready(&self) -> Daemon {
        Daemon::start_unready(&self.home, self.folder.path())
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

    /// What the store answers to a query for one number.
    pub fn count(&self, sql: &str) -> usize {
        let counts = self.rows(sql, |row| row.get::<_, i64>(0));
        usize::try_from(counts[0]).unwrap()
    }

    /// Waits until this query of one number gives at least so many.
    #[track_caller]
    pub fn wait_for_count(&self, sql: &str, count: usize) {
        let watch = Watch::on(&self.home.join("data"));
        until(&watch, &format!("{count} in: {sql}"), || (self.count(sql) >= count).then_some(()));
    }

    /// Waits until a number has grown to this, or stands still. Gives what it has grown to.
    pub fn wait_while_it_grows(&self, goal: usize, now: impl Fn() -> usize) -> usize {
        let watch = Watch::on(&self.home.join("data"));
        let mut reached = now();
        while reached < goal {
            let Some(more) = before_the_deadline(&watch, || Some(now()).filter(|now| *now > reached)) else { break };
            reached = more;
        }
        reached
    }

    fn store(&self) -> PathBuf {
        self.home.join("data/dutiful.db")
    }
}
