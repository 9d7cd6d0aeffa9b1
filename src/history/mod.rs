//! `infill history`: the jobs that have ended, and what follows from them for the lengths of the next ones.

mod import;

use clap::{Args, Subcommand};

use super::session::CliSession;
use infill_lab::history_check;
use infill_present::exit::CommandResult;

/// Flags of `infill history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum HistoryCommand {
    /// Predict the lengths of a log's jobs as they came, and show how well; needs no daemon
    Check(history_check::HistoryCheckArgs),
    /// Take in the jobs that have ended, of all partitions but the malleable one, from Slurm's accounting;
    /// for administrators. What is known already stays, so that it can be repeated
    Import(import::ImportHistoryArgs),
}

/// Runs it.
pub async fn run(args: HistoryArgs, session: &CliSession) -> CommandResult {
    match args.command {
        HistoryCommand::Check(args) => history_check::run(&args),
        HistoryCommand::Import(args) => import::run(args, session).await,
    }
}
