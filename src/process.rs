//! Starting a program: fixed argv, own environment, time limit, bounded output, its group ended. The only
//! spawner in this crate (security S31).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, prlimit};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// How long the pipes may stay open once the program itself has ended: what it left in the background is
/// ended then, and what escaped its group is not waited for.
const LEFTOVER_GRACE: Duration = Duration::from_millis(200);

/// Bytes of standard error that are kept.
const ERROR_LIMIT: usize = 4096;

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// Program and fixed arguments. A relative program that holds a slash is looked up in `folder`.
    pub argv: Vec<String>,
    /// The working folder.
    pub folder: PathBuf,
    /// The whole environment, besides PATH, HOME and LANG.
    pub env: BTreeMap<String, String>,
    /// Given on standard input.
    pub input: Vec<u8>,
    /// After this the process group is killed.
    pub timeout: Duration,
    /// Bytes of standard output that are kept; the rest is read, counted and dropped.
    pub output_limit: usize,
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output, cut at the limit.
    pub output: Vec<u8>,
    /// Bytes of standard output in all.
    pub output_bytes: u64,
    /// The first 4 KiB of standard error.
    pub error: String,
}

/// Why a program gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("{program} could not be started: {source}")]
    NotStarted {
        /// argv[0].
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It took too long and was ended with its group.
    #[error("{program} was ended after {} s", .limit.as_secs())]
    TimedOut {
        /// argv[0].
        program: String,
        /// Its limit.
        limit: Duration,
    },
}

impl Program {
    /// Runs it to its end. Dropping the future ends its process group.
    ///
    /// # Errors
    /// See [`ProcessError`]. A non-zero exit code is no error here.
    pub async fn run(self) -> Result<Finished, ProcessError> {
        let mut running = self.start().map_err(|source| ProcessError::NotStarted { program: self.name(), source })?;
        match timeout(self.timeout, running.finish(&self.input, self.output_limit)).await {
            Ok(finished) => finished.map_err(|source| ProcessError::NotStarted { program: self.name(), source }),
            Err(_) => Err(ProcessError::TimedOut { program: self.name(), limit: self.timeout }),
        }
    }

    /// The same for code that must not be async (configuration). Works inside a runtime too: the program
    /// gets a thread with a small runtime of its own.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn run_blocking(self) -> Result<Finished, ProcessError> {
        let program = self.name();
        let work = || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.run()),
            Err(source) => Err(ProcessError::NotStarted { program: self.name(), source }),
        };
        std::thread::scope(|scope| scope.spawn(work).join())
            .unwrap_or_else(|_| Err(ProcessError::NotStarted { program, source: io::Error::other("its thread panicked") }))
    }

    fn name(&self) -> String {
        self.argv.first().cloned().unwrap_or_default()
    }

    fn start(&self) -> io::Result<Running> {
        let (program, arguments) = self.argv.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
        #[expect(clippy::disallowed_methods, reason = "the one place that starts programs")]
        let mut command = Command::new(located(program, &self.folder));
        command.args(arguments).current_dir(&self.folder).env_clear();
        for name in ["PATH", "HOME", "LANG"] {
            #[expect(clippy::disallowed_methods, reason = "a program gets exactly these three of our environment")]
            let value = std::env::var_os(name);
            command.envs(value.map(|value| (name, value)));
        }
        command.envs(&self.env).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = Group { leader: leader.ok_or_else(|| io::Error::other("it has no process id"))? };
        // A core file would hold secrets of the program's environment.
        prlimit(Some(group.leader), Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
        #[expect(deprecated, reason = "its successor is unsafe for types whose descriptor may change; an OwnedFd's cannot")]
        let exit = AsyncFd::with_interest(pidfd_open(group.leader, PidfdFlags::empty())?, Interest::READABLE)?;
        Ok(Running { group, exit, child })
    }
}

/// A relative program that holds a slash is meant from `folder`, whatever our own working folder is.
fn located(program: &str, folder: &Path) -> PathBuf {
    if program.contains('/') { folder.join(program) } else { PathBuf::from(program) }
}

/// A started program. The order of the fields is the order of their end: the group is killed while its
/// leader is not yet reaped, so that its id cannot belong to anybody else.
struct Running {
    group: Group,
    exit: AsyncFd<OwnedFd>,
    child: Child,
}

/// The process group; ended when dropped.
struct Group {
    leader: Pid,
}

impl Group {
    fn kill(&self) {
        // The only failure is that nobody is left to kill.
        kill_process_group(self.leader, Signal::KILL).ok();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    async fn finish(&mut self, input: &[u8], output_limit: usize) -> io::Result<Finished> {
        let (mut output, mut error) = (Kept::up_to(output_limit), Kept::up_to(ERROR_LIMIT));
        let (stdin, stdout, stderr) = (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take());
        {
            let mut pipes = pin!(async { tokio::join!(feed(stdin, input), output.drain(stdout), error.drain(stderr)) });
            let closed = tokio::select! {
                exited = self.exit.readable() => exited.map(|_| false)?,
                _ = &mut pipes => true,
            };
            if closed {
                drop(self.exit.readable().await?);
            } else if timeout(LEFTOVER_GRACE, &mut pipes).await.is_err() {
                self.group.kill();
                // Only a process that left the group can still hold a pipe; it is not waited for.
                timeout(LEFTOVER_GRACE, &mut pipes).await.ok();
            }
        }
        self.group.kill();
        let status = self.child.wait().await?;
        Ok(Finished {
            code: status.code(),
            output: output.bytes,
            output_bytes: output.total,
            error: String::from_utf8_lossy(&error.bytes).into_owned(),
        })
    }
}

/// Writes all of the input and closes the pipe. A program that does not read its input is free to do so.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        stdin.write_all(input).await.ok();
    }
}

/// The beginning of a stream, and its whole length.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    total: u64,
}

impl Kept {
    fn up_to(limit: usize) -> Kept {
        Kept { bytes: Vec::new(), limit, total: 0 }
    }

    /// Reads to the end: a program whose output nobody reads would stand still.
    async fn drain(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            self.total += count as u64;
            let room = self.limit.saturating_sub(self.bytes.len());
            self.bytes.extend(chunk.iter().take(count.min(room)));
        }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
