//! A home on which daemons of this process live, one after the other, with a scripted model and programs that count.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dutiful::config::Config;
use dutiful::daemon::{self, Options};
use dutiful::store::{CommitStop, OpenOptions};
use rusqlite::{Connection, OpenFlags, Row};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Arrived, Maildir, Watch, until};
use crate::answers_mail::letter;

/// One execution writes its effect key into a file of its own name; what it prints holds the key's beginning.
const EFFECT: &str = r#"
cat > /dev/null
key=${DUTIFUL_CONTEXT#*'"effect_key":"'}
key=${key%%'"'*}
echo "$key" >> "effects/$1"
printf '{"%s": "%.8s"}\n' "$1" "$key"
"#;

const SETTINGS: &str = r#"
[mailboxes.shop]
address = "sundae@shop.example"
agent   = "sundae"
receive = "maildir:mail"
send    = "maildir:sent"
trust   = "verified"

[models.scripted]
wire  = "script"
model = "rules"
rules = "rules.toml"

[tools.shelf]
description = "Looks onto the shelf"
command     = ["/bin/sh", "bin/effect", "shelf"]
effect      = "pure"
input       = { type = "object" }

[tools.tub]
description = "Puts a tub aside"
command     = ["/bin/sh", "bin/effect", "tub"]
effect      = "idempotent"
input       = { type = "object" }

[tools.cake]
description = "Orders a cake"
command     = ["/bin/sh", "bin/effect", "cake"]
effect      = "effectful"
input       = { type = "object" }

[operator]
address = "owner@shop.example"
"#;

const AGENT: &str = r#"
description    = "Answers customers"
mailbox        = "shop"
model          = "scripted"
prompt         = "You are Sundae."
fallback_reply = "A person will answer you soon."

[tools]
eager = ["shelf", "tub", "cake", "send_email", "escalate"]

[context]
reactive = ["persona", "clock", "history"]

[outgoing]
recipients = ["thread", "operator"]
"#;

/// What happens in the home, and what it comes to.
pub struct Scene {
    pub rules: &'static str,
    /// Added to the settings.
    pub settings: &'static str,
    /// The ids of letters that come in.
    pub letters: &'static [&'static str],
    /// The letters come while no daemon runs, not while one does.
    pub come_while_down: bool,
    /// How many letters leave because of a run.
    pub outgoing: usize,
    /// What holds at the end, wherever the store was stopped.
    pub holds: fn(&Home),
}

/// A home folder that daemons of this process work on, one after the other.
pub struct Home {
    folder: TempDir,
}

/// A daemon in this process.
pub struct Life {
    daemon: JoinHandle<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Home {
    /// A home whose first start is over, so that letters that come while it is down are new.
    pub fn lived_in(runtime: &Runtime, scene: &Scene) -> Home {
        let home = Home { folder: tempfile::tempdir().unwrap() };
        for folder in ["agents", "bin", "effects"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        home.write("dutiful.toml", &format!("{SETTINGS}{}", scene.settings));
        home.write("agents/sundae.toml", AGENT);
        home.write("rules.toml", scene.rules);
        home.write("bin/effect", EFFECT);
        home.sent();
        home.start(runtime, None).end(runtime).unwrap();
        home
    }

    pub fn copy(&self) -> Home {
        let copy = Home { folder: tempfile::tempdir().unwrap() };
        copy_files(self.path(), copy.path());
        copy
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path().join(path), text).unwrap();
    }

    pub fn store(&self) -> PathBuf {
        self.path().join("data/dutiful.db")
    }

    pub fn sent(&self) -> Maildir {
        Maildir::at(self.path().join("sent"))
    }

    pub fn receive(&self, scene: &Scene) {
        let mailbox = Maildir::at(self.path().join("mail"));
        scene.letters.iter().for_each(|id| mailbox.deliver(&letter(id, "A tub and a cake, please.")));
        if scene.come_while_down {
            // They came a while ago: a file that nobody announced is taken once it is at rest.
            let then = SystemTime::now() - Duration::from_secs(60);
            for file in fs::read_dir(self.path().join("mail/new")).unwrap() {
                File::options().write(true).open(file.unwrap().path()).unwrap().set_modified(then).unwrap();
            }
        }
    }

    /// Starts a daemon; it is ready, or has ended already.
    pub fn start(&self, runtime: &Runtime, stop_at_commit: Option<CommitStop>) -> Life {
        let config = Config::load(self.path()).unwrap();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let stop = CancellationToken::new();
        let options = Options { stop: stop.clone(), ready: Some(ready), store: OpenOptions { stop_at_commit } };
        let daemon = runtime.spawn(Box::pin(daemon::run(config, options)));
        // An error means that it ended before it was ready.
        runtime.block_on(is_ready).ok();
        Life { daemon, stop }
    }

    /// Waits until all is said and done, or the daemon has ended.
    pub fn wait(&self, scene: &Scene, life: &Life) {
        self.wait_for(life, || self.is_through(scene));
    }

    pub fn wait_for(&self, life: &Life, is_through: impl Fn() -> bool) {
        let watch = Watch::on(&self.path().join("data"));
        until(&watch, "the end of all work", || (life.daemon.is_finished() || is_through()).then_some(()));
    }

    /// Every letter came in and has its end, and everything that should leave has left.
    fn is_through(&self, scene: &Scene) -> bool {
        let statuses = self.rows("SELECT status FROM outgoing WHERE run_id IS NOT NULL", |row| row.get::<_, String>(0));
        let waiting = "SELECT l.id FROM letters l LEFT JOIN runs r ON r.id = l.run_id
                       WHERE l.verdict = 'accepted' AND r.status IS NOT 'done'";
        statuses.len() >= scene.outgoing
            && statuses.iter().all(|status| status == "sent")
            && self.rows("SELECT id FROM letters", |row| row.get::<_, i64>(0)).len() == scene.letters.len()
            && self.rows(waiting, |row| row.get::<_, i64>(0)).is_empty()
    }

    pub fn rows<T>(&self, sql: &str, row: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let store = Connection::open_with_flags(self.store(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut query = store.prepare(sql).unwrap();
        query.query_map([], |found| row(found)).unwrap().collect::<rusqlite::Result<Vec<T>>>().unwrap()
    }

    pub fn words(&self, sql: &str) -> Vec<String> {
        self.rows(sql, |row| row.get(0))
    }

    /// The keys under which a tool's program was executed, one for each time.
    pub fn executions(&self, tool: &str) -> Vec<String> {
        fs::read_to_string(self.path().join("effects").join(tool)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The letters that were sent to this address.
    pub fn sent_to(&self, address: &str) -> Vec<Arrived> {
        let is_to = |letter: &Arrived| letter.header("To").is_some_and(|to| to.contains(address));
        self.sent().letters().into_iter().filter(is_to).collect()
    }
}

impl Life {
    /// Asks it to end, if it has not, and gives how it ended.
    pub fn end(self, runtime: &Runtime) -> anyhow::Result<()> {
        self.stop.cancel();
        runtime.block_on(self.daemon).unwrap()
    }
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
