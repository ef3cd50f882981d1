//! Sending without a network: a file in a Maildir, or the machine's own `sendmail`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::process::{ProcessError, Program};
use crate::store::ClaimedOutgoing;

/// `EX_TEMPFAIL` of sysexits.h: try again later.
const TRY_LATER: i32 = 75;

/// How long a `sendmail` may take.
const SENDMAIL_TIME: Duration = Duration::from_secs(120);

/// What became of a local delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Delivered {
    /// It is there, durably.
    Accepted,
    /// Not now.
    Later(String),
    /// Never.
    Refused(String),
    /// The program was ended in the middle: it may have taken the letter.
    Uncertain(String),
}

/// Puts a letter into `folder/new`. Its name follows from Message-ID and recipient, so a letter that is
/// delivered again after a crash is the same file, not a second one.
pub(super) async fn maildir(folder: &Path, letter: &ClaimedOutgoing) -> Delivered {
    let folder = folder.to_owned();
    let name = file_name(letter);
    let bytes = letter.bytes.clone();
    match tokio::task::spawn_blocking(move || write_file(&folder, &name, &bytes)).await {
        Ok(Ok(())) => Delivered::Accepted,
        Ok(Err(error)) => Delivered::Later(format!("the Maildir cannot be written: {error}")),
        Err(error) => Delivered::Later(error.to_string()),
    }
}

/// Hands a letter to a `sendmail` program.
pub(super) async fn sendmail(program: &Path, letter: &ClaimedOutgoing) -> Delivered {
    let words = ["-i", "-f", letter.envelope_from.as_str(), "--", letter.recipient.as_str()];
    let argv = std::iter::once(program.to_string_lossy().into_owned()).chain(words.map(str::to_owned)).collect();
    // sendmail wants the lines of this machine, and ends them itself with CRLF on the wire.
    let input = String::from_utf8_lossy(&letter.bytes).replace("\r\n", "\n").into_bytes();
    let folder = PathBuf::from("/");
    let program = Program { argv, folder, env: BTreeMap::new(), input, timeout: SENDMAIL_TIME, output_limit: 4096 };
    match program.run().await {
        Ok(finished) => match finished.code {
            Some(0) => Delivered::Accepted,
            Some(TRY_LATER) => Delivered::Later(format!("sendmail: try later: {}", finished.error.trim())),
            Some(code) => Delivered::Refused(format!("sendmail: exit {code}: {}", finished.error.trim())),
            None => Delivered::Uncertain("sendmail was killed".to_owned()),
        },
        Err(error @ ProcessError::NotStarted { .. }) => Delivered::Later(error.to_string()),
        Err(error @ ProcessError::TimedOut { .. }) => Delivered::Uncertain(error.to_string()),
    }
}

fn file_name(letter: &ClaimedOutgoing) -> String {
    let mut hash = Sha256::new();
    hash.update(letter.message_id.as_str());
    hash.update([0]);
    hash.update(letter.recipient.as_str().to_ascii_lowercase());
    let digest = hash.finalize();
    // The first part of a Maildir name is the time; the row's own keeps the order and the name.
    format!("{}.{digest:.32x}.dutiful", letter.queued_at.timestamp())
}

fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    for part in ["tmp", "new", "cur"] {
        std::fs::create_dir_all(folder.join(part))?;
    }
    if already_read(&folder.join("cur"), name)? {
        return Ok(());
    }
    let (unfinished, finished) = (folder.join("tmp").join(name), folder.join("new").join(name));
    let mut file = std::fs::File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, &finished)?;
    std::fs::File::open(folder.join("new"))?.sync_all()
}

/// Whether a reader has moved this very letter to `cur` already.
fn already_read(cur: &Path, name: &str) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(cur)? {
        if entry?.file_name().to_string_lossy().split(':').next() == Some(name) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::test_letters::claimed;

    #[tokio::test]
    async fn email_g9_a_letter_delivered_again_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let letter = claimed("one");
        assert_eq!(maildir(folder.path(), &letter).await, Delivered::Accepted);
        assert_eq!(maildir(folder.path(), &letter).await, Delivered::Accepted);
        assert_eq!(maildir(folder.path(), &claimed("two")).await, Delivered::Accepted);
        let new = folder.path().join("new");
        let names: Vec<_> = std::fs::read_dir(&new).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2);
        assert_eq!(std::fs::read(new.join(file_name(&letter))).unwrap(), letter.bytes);
        assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);

        std::fs::rename(new.join(file_name(&letter)), folder.path().join("cur").join(format!("{}:2,S", file_name(&letter)))).unwrap();
        assert_eq!(maildir(folder.path(), &letter).await, Delivered::Accepted);
        assert_eq!(std::fs::read_dir(&new).unwrap().count(), 1, "read already: not delivered again");
    }

    #[tokio::test]
    async fn email_g10_a_maildir_that_cannot_be_written_is_tried_later() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(maildir(file.path(), &claimed("one")).await, Delivered::Later(_)));
    }

    /// A `sendmail` of this test: keeps its arguments and input, then exits as told.
    fn program(folder: &Path, exit: i32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.join("sendmail");
        let seen = folder.join("seen").display().to_string();
        std::fs::write(&path, format!("#!/bin/sh\n{{ echo \"$@\"; cat; }} > {seen}\necho why >&2\nexit {exit}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn sendmail_gets_the_envelope_as_arguments_and_its_exit_decides() {
        let folder = tempfile::tempdir().unwrap();
        let mut letter = claimed("one");
        letter.recipient = "-oQ/tmp@example.com".parse().unwrap();
        assert_eq!(sendmail(&program(folder.path(), 0), &letter).await, Delivered::Accepted);
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        let (arguments, input) = seen.split_once('\n').unwrap();
        assert_eq!(arguments, "-i -f sundae@shop.example -- -oQ/tmp@example.com");
        assert_eq!(input, String::from_utf8(letter.bytes.clone()).unwrap().replace("\r\n", "\n"));
        assert_eq!(sendmail(&program(folder.path(), 75), &letter).await, Delivered::Later("sendmail: try later: why".to_owned()));
        assert_eq!(sendmail(&program(folder.path(), 67), &letter).await, Delivered::Refused("sendmail: exit 67: why".to_owned()));
        assert!(matches!(sendmail(Path::new("/nowhere/sendmail"), &letter).await, Delivered::Later(_)));
    }
}
