//! Each measurement: what is sent, what is read off, what it should be.

use std::process::ExitCode;
use std::time::Duration;

use super::home::{Home, Settings};
use super::letters::{Senders, Server};
use super::model::Model;
use super::program::Program;
use super::servers::Servers;
use super::table::Table;

const STARTS: usize = 5;
const SINGLE_LETTERS: usize = 30;
const BURSTS: usize = 3;
const BURST: usize = 200;
const BURST_SENDERS: usize = 50;
const SLOW_LETTERS: usize = 256;
const SLOW_RUNS: u32 = 32;
const SLOW_MODEL: Duration = Duration::from_secs(2);

/// Measures what is asked for, all when nothing is named, and prints the table.
pub fn all(servers: &Servers, words: &[String]) -> ExitCode {
    let wanted = |word: &str| words.is_empty() || words.iter().any(|found| found == word);
    let model = Model::start(Duration::ZERO);
    let mut table = Table::default();
    if wanted("latency") {
        latency(servers, &model, &mut table);
    }
    if wanted("burst") {
        bursts(servers, &model, &mut table);
    }
    if wanted("slow") {
        slow_model(servers, &mut table);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("\nload at the end: {}", load.trim_end());
    table.print();
    ExitCode::SUCCESS
}

/// Start, rest, and single letters in turn, so that a change of the machine's mood meets both.
fn latency(servers: &Servers, model: &Model, table: &mut Table) {
    let homes = [Home::daemon("dutiful", servers, model, &Settings::default()), Home::bare(servers, model)];
    let mut starts = [Vec::new(), Vec::new()];
    for _ in 0..STARTS {
        for (home, starts) in homes.iter().zip(&mut starts) {
            let program = home.start();
            starts.push(program.started_in);
            program.end();
        }
    }
    let [daemon, bare] = starts.map(|starts| median(&starts));
    let started = |took: Duration| format!("{:.0} ms", milliseconds(took));
    table.row("from start to watching, median", started(daemon), started(bare), "500 ms", daemon <= Duration::from_millis(500));

    let programs = [homes[0].start(), homes[1].start()];
    let senders = [Senders::new(servers, 1), Senders::new(servers, 1)];
    let mut server = Server::connect(servers);
    let mut took = [Vec::new(), Vec::new()];
    for number in 0..=SINGLE_LETTERS {
        for ((home, sender), took) in homes.iter().zip(&senders).zip(&mut took) {
            let answered = sender.ask(&mut server, &home.address, number);
            // The first letter opens connections and makes mailboxes.
            if number > 0 {
                took.push(answered);
            }
        }
    }
    let [daemon, bare] = took.map(|took| median(&took));
    let over = milliseconds(daemon) - milliseconds(bare);
    table.row(
        "from letter to answer, median",
        format!("{:.0} ms ({over:+.0})", milliseconds(daemon)),
        format!("{:.0} ms", milliseconds(bare)),
        "25 ms over",
        over <= 25.0,
    );
    programs[0].rest();
    let [daemon, bare] = [&programs[0], &programs[1]].map(Program::resident);
    table.row("resident at rest", format!("{daemon:.1} MB"), format!("{bare:.1} MB"), "30 MB", daemon < 30.0);
}

/// Many letters at once, each program alone with them.
fn bursts(servers: &Servers, model: &Model, table: &mut Table) {
    let without_copies = Settings { mailbox: "sent_copy = \"off\"\n", ..Settings::default() };
    let homes = [
        Home::daemon("dutiful", servers, model, &Settings::default()),
        Home::bare(servers, model),
        Home::daemon("dutiful, sent_copy off", servers, model, &without_copies),
    ];
    let [mut daemon, mut bare, mut uncopied] = [Bursts::default(), Bursts::default(), Bursts::default()];
    for _ in 0..BURSTS {
        for (home, bursts) in homes.iter().zip([&mut daemon, &mut bare, &mut uncopied]) {
            bursts.measure(servers, home);
        }
    }
    let ratio = milliseconds(daemon.took()) / milliseconds(bare.took());
    let asked = 2 * BURSTS * BURST;
    table.row(
        "answered once, of 6 times 200",
        format!("{} of {asked}", daemon.once),
        format!("{} of {asked}", bare.once),
        "all",
        daemon.once == asked,
    );
    let time = |bursts: &Bursts| format!("{:.2} s", bursts.took().as_secs_f64());
    table.row("200 letters at once, median", format!("{} ({ratio:.2} ×)", time(&daemon)), time(&bare), "1.5 ×", ratio <= 1.5);
    let [late, bare_late] = [&daemon, &bare].map(|bursts| median(&bursts.took_beforehand).as_secs_f64());
    let ratio = late / bare_late;
    table.row(
        "200 letters already there, median",
        format!("{late:.2} s ({ratio:.2} ×)"),
        format!("{bare_late:.2} s"),
        "1.5 ×",
        ratio <= 1.5,
    );
    let processor = |bursts: &Bursts| format!("{:.1} ms", bursts.processor());
    table.row("processor time a letter, median", processor(&daemon), processor(&bare), "10 ms", daemon.processor() <= 10.0);
    table.row("resident at the peak", format!("{:.1} MB", daemon.peak), format!("{:.1} MB", bare.peak), "80 MB", daemon.peak < 80.0);
    table.note("with sent_copy = \"off\": 200 at once", time(&uncopied), "");
    table.note("with sent_copy = \"off\": a letter", processor(&uncopied), "");
}

/// What one program made of its bursts.
#[derive(Default)]
struct Bursts {
    took: Vec<Duration>,
    took_beforehand: Vec<Duration>,
    processor: Vec<Duration>,
    once: usize,
    peak: f64,
}

impl Bursts {
    fn measure(&mut self, servers: &Servers, home: &Home) {
        let program = home.start();
        let senders = Senders::new(servers, BURST_SENDERS);
        let before = program.processor_time();
        let answered = senders.ask_at_once(servers, &home.address, BURST);
        program.rest();
        let spent = program.processor_time() - before;
        let late = Senders::new(servers, BURST_SENDERS);
        program.halt();
        let beforehand = late.ask_beforehand(servers, &home.address, BURST, || program.go_on());
        program.rest();
        println!(
            "{}: {} of {BURST} in {:.2} s, {:.1} ms processor time a letter; {} of {BURST} that were there in {:.2} s; peak {:.1} MB",
            program.name,
            answered.once,
            answered.took.as_secs_f64(),
            milliseconds(spent) / BURST as f64,
            beforehand.once,
            beforehand.took.as_secs_f64(),
            program.peak()
        );
        self.took.push(answered.took);
        self.processor.push(spent);
        self.took_beforehand.push(beforehand.took);
        self.once += answered.once + beforehand.once;
        self.peak = self.peak.max(program.peak());
        program.end();
    }

    fn took(&self) -> Duration {
        median(&self.took)
    }

    fn processor(&self) -> f64 {
        milliseconds(median(&self.processor)) / BURST as f64
    }
}

/// A model that thinks: how many runs wait for it at once, and what that comes to.
fn slow_model(servers: &Servers, table: &mut Table) {
    let model = Model::start(SLOW_MODEL);
    let settings = Settings { concurrent_runs: SLOW_RUNS, ..Settings::default() };
    let home = Home::daemon("dutiful", servers, &model, &settings);
    let program = home.start();
    let senders = Senders::new(servers, BURST_SENDERS);
    let answered = senders.ask_at_once(servers, &home.address, SLOW_LETTERS);
    let a_minute = answered.once as f64 * 60.0 / answered.took.as_secs_f64();
    let at_once = model.most_in_flight();
    table.row("a model of 2 s, 32 runs: at once", at_once.to_string(), "", "32", at_once == u64::from(SLOW_RUNS));
    table.row("a model of 2 s, 32 runs: letters a minute", format!("{a_minute:.0}"), "", "600", a_minute >= 600.0);
    let (asked, peak) = (model.requests(), program.peak());
    println!(
        "slow model: {} of {SLOW_LETTERS} with {asked} requests in {:.2} s, peak {peak:.1} MB",
        answered.once,
        answered.took.as_secs_f64()
    );
    let request = model.smallest_request();
    println!("a first request:\n{}", String::from_utf8_lossy(&request));
    table.row("a first request, five eager tools", format!("{} bytes", request.len()), "", "4096 bytes", request.len() < 4096);
    program.end();
}

fn median(found: &[Duration]) -> Duration {
    let mut sorted = found.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
