//! A program under measurement: started, awaited, and read out of /proc.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// The unit of processor times in /proc: USER_HZ, 100 on every architecture of Linux that is in use.
const TICK: Duration = Duration::from_millis(10);

/// A running program; killed when dropped.
pub struct Program {
    /// For the log.
    pub name: &'static str,
    /// From its start to its word that it watches its mailbox.
    pub started_in: Duration,
    child: Child,
}

impl Program {
    /// Starts it with a notify socket, as systemd would, and waits for `READY=1`. Its output goes to `folder/log`.
    #[track_caller]
    pub fn start(name: &'static str, mut command: Command, folder: &Path) -> Program {
        let socket = folder.join("notify");
        if socket.exists() {
            fs::remove_file(&socket).unwrap();
        }
        let notices = UnixDatagram::bind(&socket).unwrap();
        let log = folder.join("log");
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let began = Instant::now();
        let child =
            command.env("NOTIFY_SOCKET", &socket).stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let mut program = Program { name, started_in: Duration::ZERO, child };
        notices.set_read_timeout(Some(READY_WITHIN)).unwrap();
        let mut notice = [0; 1024];
        loop {
            let Ok(length) = notices.recv(&mut notice) else {
                panic!("{name} was not ready:\n{}", fs::read_to_string(&log).unwrap_or_default())
            };
            if String::from_utf8_lossy(&notice[..length]).lines().any(|line| line == "READY=1") {
                program.started_in = began.elapsed();
                return program;
            }
        }
    }

    /// User and system time so far, of all its threads.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name in parentheses may hold blanks; utime and stime are the 12th and 13th word after it.
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks = after_name.split_whitespace().skip(11).take(2).map(|word| word.parse::<u32>().unwrap()).sum::<u32>();
        TICK * ticks
    }

    /// Resident megabytes now.
    pub fn resident(&self) -> f64 {
        self.status("VmRSS")
    }

    /// The most resident megabytes so far.
    pub fn peak(&self) -> f64 {
        self.status("VmHWM")
    }

    fn status(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes / 1024.0
    }

    /// Waits until it has done what it does after its answers, such as copies for the Sent folder: no processor
    /// time for two seconds.
    pub fn rest(&self) {
        let mut before = self.processor_time();
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.processor_time();
            if now > before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    /// Stops it where it stands, until [`Program::go_on`].
    pub fn halt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// SIGTERM, and its end.
    pub fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.child.kill().expect("a child of ours can be killed");
            self.child.wait().expect("a child of ours can be awaited");
        }
    }
}
