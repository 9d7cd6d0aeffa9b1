//! `infill profiles`: shows, exports, imports and deletes the measurements of recurring jobs.

mod history;
mod list;
mod selection;
mod show;
mod transfer;

use clap::{Args, Subcommand};

use super::session::CliSession;
use infill_present::exit::CommandResult;

/// Flags of `infill profiles`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = list::HELP.as_str())]
pub struct ProfilesArgs {
    #[command(subcommand)]
    action: Option<ProfilesAction>,
    #[command(flatten)]
    list: list::ListProfilesArgs,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
enum ProfilesAction {
    /// List profiles (this is the default)
    List(list::ListProfilesArgs),
    /// Draw the curves of the profiles with a name, and their measurements
    Show(show::ShowProfilesArgs),
    /// Print profiles for `import`, or as a table of measured sizes
    Export(transfer::ExportProfilesArgs),
    /// Import the output of `export`
    ///
    /// It replaces profiles of the same user, name, node type and plan.
    Import(transfer::ImportProfilesArgs),
    /// Delete profiles; their jobs are then measured again
    Forget(transfer::ForgetProfilesArgs),
}

/// Runs `infill profiles`.
pub async fn run(args: ProfilesArgs, session: &CliSession) -> CommandResult {
    match args.action {
        None => list::list_profiles(args.list, session).await,
        Some(ProfilesAction::List(args)) => list::list_profiles(args, session).await,
        Some(ProfilesAction::Show(args)) if args.history => history::show_history(args, session).await,
        Some(ProfilesAction::Show(args)) => show::show_profiles(args, session).await,
        Some(ProfilesAction::Export(args)) => transfer::export_profiles(args, session).await,
        Some(ProfilesAction::Import(args)) => transfer::import_profiles(args, session).await,
        Some(ProfilesAction::Forget(args)) => transfer::forget_profiles(args, session).await,
    }
}
