//! `infill history`: jobs that have ended, from which infill predicts the run times of others.

mod forget;
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
    /// Predict the run times of a log's jobs, and show how accurate this is
    ///
    /// The jobs are predicted in their order, each from those before it. This needs no daemon.
    Check(history_check::HistoryCheckArgs),
    /// Import ended jobs from Slurm's accounting; for root and `daemon.admins`
    ///
    /// Jobs of the malleable partition are left out. Jobs that the daemon has already are kept, so the import
    /// can be repeated.
    Import(import::ImportHistoryArgs),
    /// Delete everything that names a user: profiles, ended jobs, records of jobs. Sums of node-time stay,
    /// without the name; for root and `daemon.admins`
    Forget(forget::ForgetUserArgs),
}

/// Runs `infill history`.
pub async fn run(args: HistoryArgs, session: &CliSession) -> CommandResult {
    match args.command {
        HistoryCommand::Check(args) => history_check::run(&args),
        HistoryCommand::Import(args) => import::run(args, session).await,
        HistoryCommand::Forget(args) => forget::run(args, session).await,
    }
}
