//! `infill history`: what is known of the lengths of jobs. Needs no daemon.

mod check;

use clap::{Args, Subcommand};

use super::exit::CommandResult;

/// Flags of `infill history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum HistoryCommand {
    /// Predict the lengths of a log's jobs as they came, and show how well
    Check(check::CheckArgs),
}

/// Runs it.
pub fn run(args: &HistoryArgs) -> CommandResult {
    match &args.command {
        HistoryCommand::Check(args) => check::run(args),
    }
}
