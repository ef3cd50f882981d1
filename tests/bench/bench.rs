//! `cargo bench`: the daemon beside a bare loop on a real Dovecot and a real Postfix, one table at the end.
//!
//! As root or with sudo, since the mail servers need it. `DUTIFUL_TEST_MAIL` names running servers to use instead of
//! own ones. Words after `--` choose: `latency`, `burst`, `slow`; none means all.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a panic here is a failed measurement, and a benchmark starts programs"
)]

mod bare_loop;
mod home;
mod letters;
mod measure;
mod model;
mod program;
mod servers;
mod table;

use std::process::{Command, ExitCode};

use servers::Servers;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.first().is_some_and(|word| word == bare_loop::WORD) {
        bare_loop::run(&words[1..]);
        return ExitCode::SUCCESS;
    }
    match std::env::var(servers::SETTINGS) {
        Ok(path) => measure::all(&Servers::read(path.as_ref()), &words),
        // Settings reach a program through its environment, which one's own process cannot change safely.
        Err(_) => servers::with_own(|settings| {
            let again = Command::new(std::env::current_exe().unwrap()).args(&words).env(servers::SETTINGS, settings).status().unwrap();
            ExitCode::from(u8::try_from(again.code().unwrap_or(1)).unwrap_or(1))
        }),
    }
}
