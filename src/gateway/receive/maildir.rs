//! Receiving from a Maildir on this machine: what lies in `new` and `cur`, told of by the kernel.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::health::Activity;
use super::intake::{HEADER_OF_TOO_LARGE, KeepError, RawLetter, TEXT_OF_TOO_LARGE, beginning};
use super::serve::Receiver;
use crate::config::AfterProcessing;
use crate::store::{Cursor, Position, StoreError};

/// A file that nobody told us to be complete is taken once it was not written to for so long. Deliveries
/// by rename, which the kernel tells, never wait; what an editor or `cp` puts there does, a moment.
const AT_REST: Duration = Duration::from_millis(150);

/// Letters whose commits are awaited together, and their bytes.
const TOGETHER: usize = 64;
const BYTES_TOGETHER: u64 = 4 << 20;

/// One file of the Maildir.
#[derive(Debug, Clone)]
struct Entry {
    /// Its name without the flags: its identity, wherever a mail program moves it.
    unique: String,
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// One pass over the folder.
#[derive(Debug, Default)]
struct Listing {
    complete: Vec<Entry>,
    /// Files that may still be written to: look again soon.
    unfinished: bool,
}

/// Why a sweep ended.
enum SweepError {
    Again(String),
    Store(StoreError),
}

impl From<io::Error> for SweepError {
    fn from(error: io::Error) -> Self {
        SweepError::Again(error.to_string())
    }
}

impl From<StoreError> for SweepError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Retry(reason) => SweepError::Again(reason),
            end => SweepError::Store(end),
        }
    }
}

impl From<KeepError> for SweepError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Again(reason) => SweepError::Again(reason),
            KeepError::Store(error) => SweepError::Store(error),
        }
    }
}

/// Receives until told to stop.
///
/// # Errors
/// What the store says when the daemon must end.
pub(super) async fn serve(mut receiver: Receiver, root: &Path, stop: &CancellationToken) -> Result<(), StoreError> {
    let mut folder = Maildir::at(root, &receiver.mailbox.folder);
    let mut backoff = receiver.timing.store_retry();
    loop {
        let error = match folder.watched(&mut receiver, stop).await {
            Ok(()) => return Ok(()),
            Err(SweepError::Store(error)) => return Err(error),
            Err(SweepError::Again(error)) => error,
        };
        tracing::warn!(mailbox = receiver.mailbox.name, error, "the Maildir cannot be read");
        receiver.health.failed(error);
        receiver.health.is(Activity::Backoff);
        receiver.health.settle();
        if folder.swept {
            backoff.reset();
            folder.swept = false;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(backoff.after_failure()) => {}
        }
    }
}

/// A Maildir and what is known of it.
#[derive(Debug)]
struct Maildir {
    root: PathBuf,
    folder: PathBuf,
    /// Unique names that are stored or skipped; loaded once, kept with each sweep.
    known: Option<BTreeSet<String>>,
    /// A sweep went well since the last failure.
    swept: bool,
}

impl Maildir {
    fn at(root: &Path, folder: &str) -> Maildir {
        Maildir { root: root.to_owned(), folder: folder_path(root, folder), known: None, swept: false }
    }

    /// Sweeps on each word of the kernel until told to stop.
    async fn watched(&mut self, receiver: &mut Receiver, stop: &CancellationToken) -> Result<(), SweepError> {
        receiver.health.is(Activity::Connecting);
        create(&self.folder)?;
        // Watched before the first look: what comes between is told of.
        let watch = Watch::new(&self.folder);
        self.begin(receiver).await?;
        receiver.health.is(if watch.told.is_some() { Activity::Idle } else { Activity::Polling });
        let mut complete = BTreeSet::new();
        loop {
            let unfinished = self.sweep(receiver, &complete).await?;
            receiver.intake.trust();
            receiver.health.looked(crate::clock::now(), None);
            receiver.health.settle();
            let pause = if unfinished { AT_REST } else { watch.pause(receiver.mailbox.poll) };
            complete = tokio::select! {
                () = stop.cancelled() => {
                    receiver.health.is(Activity::Stopped);
                    return Ok(());
                }
                names = watch.next() => names?,
                () = tokio::time::sleep(pause) => BTreeSet::new(),
            };
        }
    }

    /// At the very first start what lies there is marked as known: it is never answered (email, decision 4).
    async fn begin(&mut self, receiver: &Receiver) -> Result<(), SweepError> {
        if self.known.is_some() {
            return Ok(());
        }
        let (store, mailbox) = (&receiver.intake.store, &receiver.mailbox);
        if store.cursor(&mailbox.name, &mailbox.folder).await?.is_none() {
            let listing = list(self.folder.clone(), None).await?;
            let names: Vec<String> = listing.complete.into_iter().map(|entry| entry.unique).collect();
            tracing::info!(mailbox = mailbox.name, letters = names.len(), "first start: what lies here stays unanswered");
            store.skip_positions(&mailbox.name, &mailbox.folder, names).await?;
            // A Maildir has no cursor; its row says that the first start is over.
            store.set_cursor(&mailbox.name, &mailbox.folder, Cursor { uidvalidity: 0, uid: 0 }).await?;
        }
        self.known = Some(store.known_positions(&mailbox.name, &mailbox.folder).await?);
        Ok(())
    }

    /// Receives what is not known yet, oldest first. Says whether unfinished files were left.
    async fn sweep(&mut self, receiver: &mut Receiver, complete: &BTreeSet<String>) -> Result<bool, SweepError> {
        let listing = list(self.folder.clone(), Some(complete.clone())).await?;
        let known = self.known.get_or_insert_default();
        let mut fresh: Vec<Entry> = listing.complete.into_iter().filter(|entry| !known.contains(&entry.unique)).collect();
        fresh.sort_by(|a, b| a.modified.cmp(&b.modified).then_with(|| a.unique.cmp(&b.unique)));
        let mut rest = fresh.as_slice();
        while let Some(count) = chunk(rest, receiver.limits.letter_bytes) {
            let (now, later) = rest.split_at(count);
            rest = later;
            let (mut letters, mut found) = (Vec::with_capacity(now.len()), Vec::with_capacity(now.len()));
            for entry in now {
                // One that a mail program moved since the listing is not known: the next look finds it where it is.
                if let Some(letter) = read(receiver, entry).await? {
                    letters.push(letter);
                    found.push(entry);
                }
            }
            receiver.intake.keep(letters).await?;
            for entry in found {
                self.mark(&receiver.mailbox.after_processing, entry);
                self.known.get_or_insert_default().insert(entry.unique.clone());
            }
        }
        self.swept = true;
        Ok(listing.unfinished)
    }

    /// What the operator wants done with a stored letter; best effort (email B13).
    fn mark(&self, after: &AfterProcessing, entry: &Entry) {
        let moved = match after {
            AfterProcessing::None | AfterProcessing::Keyword => Ok(()),
            AfterProcessing::Seen => seen_path(&self.folder, entry).map_or(Ok(()), |target| std::fs::rename(&entry.path, target)),
            AfterProcessing::Move(name) => {
                let target = folder_path(&self.root, name);
                if target == self.folder {
                    return;
                }
                create(&target).and_then(|()| {
                    let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
                    let name = if name.contains(":2,") { name.into_owned() } else { format!("{name}:2,") };
                    std::fs::rename(&entry.path, target.join("cur").join(name))
                })
            }
        };
        if let Err(error) = moved {
            tracing::warn!(place = entry.unique, %error, "a stored letter could not be marked");
        }
    }
}

/// The path of a folder: the Maildir itself for INBOX, else a folder as Maildir++ names it.
fn folder_path(root: &Path, folder: &str) -> PathBuf {
    if folder.eq_ignore_ascii_case("INBOX") {
        return root.to_owned();
    }
    let name: String =
        folder.trim_matches(['.', '/']).chars().map(|c| if c == '/' { '.' } else { c }).filter(|c| !c.is_control()).collect();
    root.join(format!(".{name}"))
}

fn create(folder: &Path) -> io::Result<()> {
    ["tmp", "new", "cur"].iter().try_for_each(|part| std::fs::create_dir_all(folder.join(part)))
}

/// The unique part of a file's name.
fn unique_part(name: &str) -> &str {
    name.split_once(':').map_or(name, |(unique, _)| unique)
}

/// Where a letter lies once it is seen; none when it already is.
fn seen_path(folder: &Path, entry: &Entry) -> Option<PathBuf> {
    let name = entry.path.file_name()?.to_string_lossy().into_owned();
    let flags = name.rsplit_once(":2,").map_or("", |(_, flags)| flags);
    if flags.contains('S') {
        return None;
    }
    let mut flags: Vec<char> = flags.chars().chain(['S']).collect();
    flags.sort_unstable();
    Some(folder.join("cur").join(format!("{}:2,{}", entry.unique, flags.into_iter().collect::<String>())))
}

/// Lists `new` and `cur`. With `told`, a file counts as complete when the kernel said so or it is at rest;
/// without, every file does.
async fn list(folder: PathBuf, told: Option<BTreeSet<String>>) -> Result<Listing, SweepError> {
    let listed = tokio::task::spawn_blocking(move || {
        let mut listing = Listing::default();
        for part in ["new", "cur"] {
            for file in std::fs::read_dir(folder.join(part))? {
                list_file(&file?, told.as_ref(), &mut listing);
            }
        }
        Ok(listing)
    });
    listed.await.map_err(|fault| SweepError::Again(fault.to_string()))?.map_err(|error: io::Error| error.into())
}

fn list_file(file: &std::fs::DirEntry, told: Option<&BTreeSet<String>>, listing: &mut Listing) {
    let Ok(name) = file.file_name().into_string() else { return };
    // `metadata` of a DirEntry does not follow links: a link could lead out of the Maildir.
    let Ok(metadata) = file.metadata() else { return };
    let trashed = name.rsplit_once(":2,").is_some_and(|(_, flags)| flags.contains('T'));
    if name.starts_with('.') || trashed || !metadata.is_file() {
        return;
    }
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    // A time in the future (a clock set back) counts as at rest.
    let at_rest = modified.elapsed().map_or(true, |age| age >= AT_REST);
    if told.is_some_and(|told| !at_rest && !told.contains(&name)) {
        listing.unfinished = true;
        return;
    }
    let unique = unique_part(&name).to_owned();
    listing.complete.push(Entry { unique, path: file.path(), bytes: metadata.len(), modified });
}

/// How many of these letters are kept together; none when there are none.
fn chunk(entries: &[Entry], letter_bytes: u64) -> Option<usize> {
    let mut bytes = 0_u64;
    let fitting = entries.iter().take(TOGETHER).take_while(|entry| {
        bytes = bytes.saturating_add(entry.bytes.min(letter_bytes));
        bytes <= BYTES_TOGETHER
    });
    let count = fitting.count();
    (!entries.is_empty()).then_some(count.max(1))
}

/// Reads one letter; none when it went away meanwhile.
async fn read(receiver: &Receiver, entry: &Entry) -> Result<Option<RawLetter>, SweepError> {
    let path = entry.path.clone();
    let limit = receiver.limits.letter_bytes;
    let read = tokio::task::spawn_blocking(move || read_bounded(&path, limit)).await;
    let (raw, unread) = match read.map_err(|fault| SweepError::Again(fault.to_string()))? {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            // One file without permission must not stop the others.
            tracing::warn!(place = entry.unique, %error, "a letter could not be read");
            (Vec::new(), Some("unreadable"))
        }
    };
    Ok(Some(RawLetter {
        mailbox: receiver.mailbox.name.clone(),
        folder: receiver.mailbox.folder.clone(),
        position: Position::Maildir(entry.unique.clone()),
        raw,
        received_at: DateTime::<Utc>::from(entry.modified),
        unread,
    }))
}

/// A letter's bytes, or, when it is larger than the limit, its beginning (email J1).
fn read_bounded(path: &Path, limit: u64) -> io::Result<(Vec<u8>, Option<&'static str>)> {
    let file = std::fs::File::open(path)?;
    let mut raw = Vec::new();
    if file.metadata()?.len() > limit {
        let most = u64::try_from(HEADER_OF_TOO_LARGE + TEXT_OF_TOO_LARGE).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut raw)?;
        return Ok((beginning(&raw), Some("too_large")));
    }
    file.take(limit).read_to_end(&mut raw)?;
    Ok((raw, None))
}

/// The kernel's word of new files; without it (no inotify left) the folder is looked at often.
struct Watch {
    told: Option<AsyncFd<OwnedFd>>,
}

impl Watch {
    fn new(folder: &Path) -> Watch {
        let told = Watch::open(folder);
        if let Err(error) = &told {
            tracing::warn!(%error, "no inotify: the Maildir is polled");
        }
        Watch { told: told.ok() }
    }

    #[expect(deprecated, reason = "its safe successor does not exist; an OwnedFd owns its descriptor, and nobody replaces this one")]
    fn open(folder: &Path) -> io::Result<AsyncFd<OwnedFd>> {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        // A delivery is a rename or a link; CREATE is the link, and a file that will be closed later.
        let kinds =
            inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CREATE | inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::ONLYDIR;
        for part in ["new", "cur"] {
            inotify::add_watch(&fd, folder.join(part), kinds)?;
        }
        AsyncFd::new(fd)
    }

    /// How long to wait for its word before looking anyway.
    fn pause(&self, poll: Duration) -> Duration {
        if self.told.is_some() { poll } else { AT_REST }
    }

    /// Waits for word; gives the names of the files that are complete.
    async fn next(&self) -> io::Result<BTreeSet<String>> {
        let Some(told) = &self.told else { return std::future::pending().await };
        let mut ready = told.readable().await?;
        let mut complete = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut events = inotify::Reader::new(told.get_ref(), &mut buffer);
        loop {
            match events.next() {
                Ok(event) => {
                    let done = event.events().intersects(inotify::ReadFlags::MOVED_TO | inotify::ReadFlags::CLOSE_WRITE);
                    if let (true, Some(name)) = (done, event.file_name()) {
                        complete.insert(name.to_string_lossy().into_owned());
                    }
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        ready.clear_ready();
        Ok(complete)
    }
}
