//! The `infill` program. Everything is in the library; this file only turns the outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(infill::cli::main())
}
