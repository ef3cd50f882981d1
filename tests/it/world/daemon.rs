//! The daemon as a process: started, waited for, asked to end, or killed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Watch, until};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it as systemd would, with a notify socket, and waits for `READY=1`.
    #[track_caller]
    pub fn start(home: &Path, folder: &Path) -> Daemon {
        let (mut daemon, notices) = Daemon::spawn(home, folder);
        daemon.wait_until_ready(&notices);
        daemon
    }

    /// Starts it and does not wait.
    pub fn start_unready(home: &Path, folder: &Path) -> Daemon {
        Daemon::spawn(home, folder).0
    }

    fn spawn(home: &Path, folder: &Path) -> (Daemon, UnixDatagram) {
        let socket = folder.join("notify");
        // The socket of an earlier start, if any.
        fs::remove_file(&socket).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }).unwrap();
        let notices = UnixDatagram::bind(&socket).unwrap();
        let log = folder.join("daemon.log");
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_dutiful"))
            .arg("--home")
            .arg(home)
            .arg("serve")
            .env("NOTIFY_SOCKET", &socket)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        (Daemon { child, log }, notices)
    }

    #[track_caller]
    fn wait_until_ready(&mut self, notices: &UnixDatagram) {
        notices.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let deadline = Instant::now() + READY_WITHIN;
        let mut notice = [0; 1024];
        while Instant::now() < deadline {
            match notices.recv(&mut notice) {
                Ok(length) if String::from_utf8_lossy(&notice[..length]).lines().any(|line| line == "READY=1") => return,
                Ok(_) => {}
                Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended with {status} before it was ready:\n{}", self.log());
            }
        }
        panic!("the daemon was not ready within {READY_WITHIN:?}:\n{}", self.log());
    }

    /// `kill -9`: no time for anything.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(self) -> ExitStatus {
        self.ask_to_end();
        self.wait_for_its_end()
    }

    /// How it ended.
    pub fn wait_for_its_end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// SIGTERM, without waiting for the end.
    pub fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// SIGHUP: takes its files anew.
    pub fn reload(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// The processor time it has used, in hundredths of a second.
    pub fn processor_time(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // Counted after the name, which may hold anything: user and system time are the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Waits until its log holds a text.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        let watch = Watch::on(self.log.parent().unwrap());
        until(&watch, &format!("{text:?} in the daemon's log"), || self.log().contains(text).then_some(()));
    }

    /// All that it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon wrote:\n{}", self.log());
        }
        // It may have been ended and awaited already.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.child.kill().expect("a child of ours can be killed");
            self.child.wait().expect("a child of ours can be awaited");
        }
    }
}
