//! The commands. They read the store, or write an intent into it and wake the daemon; only `serve` and
//! `demo` hold it.

mod agents;
mod check;
mod demo;
mod home;
mod init;
mod letters;
mod outbox;
mod print;
mod runs;
mod serve;
mod shop;
mod switch;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What `--help` says after the list of commands.
const FIRST_STEPS: &str = "\
First steps:
  dutiful demo --once              a letter, the run, the answer; nothing to set up
  dutiful init DIR                 a home of your own, with comments that teach
  dutiful --home DIR check         what is wrong or weak in it
  dutiful --home DIR serve         the daemon
  dutiful --home DIR letters       what came in, and why it was or was not answered

Every list and show takes --json: one object a line, its keys are the columns of the audit view of the same name.
Exit codes: 0 done, 1 it failed or there is a problem, 2 the command line was not understood.";

/// Lets AI agents work by email: every letter answered exactly once, every step kept.
#[derive(Debug, Parser)]
#[command(name = "dutiful", version, arg_required_else_help = true, max_term_width = 100, after_help = FIRST_STEPS)]
struct Arguments {
    /// The folder with dutiful.toml, agents/, duties/ and data/; the current folder when left out.
    #[arg(long, global = true, env = "DUTIFUL_HOME", value_name = "DIR")]
    home: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a working home into DIR: settings, two agents, comments that teach.
    Init(init::Init),
    /// Run the shop that comes along, live, with nothing to set up.
    Demo(demo::Demo),
    /// Load and validate everything; exit 1 with every problem.
    Check(check::Check),
    /// Run the daemon: SIGTERM drains, SIGHUP reloads.
    Serve(serve::Serve),
    /// List the agents: whether they are on, their mailbox, model, addresses and tools.
    Agents(agents::Agents),
    /// List an agent's tools, and why a tool is off.
    Tools(agents::Tools),
    /// Switch a tool, an agent, a duty or all sending off or on, at once and durably.
    Switch(switch::SwitchCommand),
    /// List runs, one for each letter that was worked on.
    Runs(runs::Runs),
    /// Show one run whole: prompt, rounds, tool calls, letters, cost.
    Run(runs::Run),
    /// List all that came in, each with its verdict and reason.
    Letters(letters::Letters),
    /// Show one letter that came in, or act on it.
    Letter(letters::Letter),
    /// List conversations: their agent, participants, and whether they are held.
    Threads(threads::Threads),
    /// Show one conversation, hold it or release it.
    Thread(threads::Thread),
    /// List all that goes out; with an ID, show one or act on it.
    Outbox(outbox::Outbox),
}

/// Runs the command line. Errors go to standard error, each with the way out.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let home = home::Home::new(arguments.home);
    let done = match arguments.command {
        Command::Init(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Check(command) => command.run(&home),
        Command::Serve(command) => command.run(&home),
        Command::Agents(command) => command.run(&home),
        Command::Tools(command) => command.run(&home),
        Command::Switch(command) => command.run(&home),
        Command::Runs(command) => command.run(&home),
        Command::Run(command) => command.run(&home),
        Command::Letters(command) => command.run(&home),
        Command::Letter(command) => command.run(&home),
        Command::Threads(command) => command.run(&home),
        Command::Thread(command) => command.run(&home),
        Command::Outbox(command) => command.run(&home),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            print::error(&error);
            ExitCode::FAILURE
        }
    }
}
