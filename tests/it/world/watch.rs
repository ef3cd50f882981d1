//! Waiting for something to appear in a folder: woken by the kernel, bounded by a deadline, never by a sleep.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

const DEADLINE: Duration = Duration::from_secs(30);

/// A change of a mapped file is not told by the kernel, nor is one in a folder that does not exist yet.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(20);

/// Told of every change in one folder.
pub struct Watch {
    changes: Receiver<()>,
    /// Keeps the channel open when there is no folder to watch.
    _told: Sender<()>,
}

impl Watch {
    /// Watches a folder from now on.
    pub fn on(folder: &Path) -> Watch {
        let (told, changes) = channel();
        let kinds = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MODIFY | WatchFlags::DELETE_SELF;
        // A machine has few of these for each user; without one it is only looked more often.
        if let Ok(queue) = inotify::init(CreateFlags::CLOEXEC)
            && inotify::add_watch(&queue, folder, kinds).is_ok()
        {
            let mut queue = File::from(queue);
            let told = told.clone();
            // It ends with the folder, or with the first change after the watch is gone.
            thread::spawn(move || {
                let mut events = [0; 4096];
                while queue.read(&mut events).is_ok_and(|length| length > 0) && told.send(()).is_ok() {}
            });
        }
        Watch { changes, _told: told }
    }
}

/// Looks again after each change until there is an answer.
#[track_caller]
pub fn until<T>(watch: &Watch, what: &str, look: impl FnMut() -> Option<T>) -> T {
    before_the_deadline(watch, look).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain for {what}"))
}

/// The same, without an answer when there is none in time.
pub fn before_the_deadline<T>(watch: &Watch, look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut look = look;
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        if watch.changes.recv_timeout(LOOK_AT_LEAST_EVERY).is_ok() {
            watch.changes.try_iter().for_each(drop);
        }
    }
}
