//! The `dutiful` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    dutiful::cli::main()
}
