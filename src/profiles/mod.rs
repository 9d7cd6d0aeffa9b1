//! `infill profiles`: what was measured of recurring jobs; how to look at it, carry it elsewhere, and be rid
//! of it.

mod carry;
mod choose;
mod help;
mod history;
mod list;
mod show;

use clap::{Args, Subcommand};

use super::session::Session;
use infill_present::exit::CommandResult;

/// Flags of `infill profiles`.
#[derive(Clone, Debug, Args)]
#[command(disable_help_flag = true, args_conflicts_with_subcommands = true, after_help = list::HELP.as_str())]
pub struct ProfilesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: list::ListArgs,
}

/// What to do with them.
#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List them (this is the default)
    List(list::ListArgs),
    /// Draw the curves of a name, with what they rest on
    Show(show::ShowArgs),
    /// Print them for `import`, or as a table of measured sizes
    Export(carry::ExportArgs),
    /// Take in what `export` printed, in place of profiles of the same user, name, node type and plan
    Import(carry::ImportArgs),
    /// Delete them with their measurements; the jobs are measured anew
    Forget(carry::ForgetArgs),
}

/// Runs `infill profiles`.
pub async fn run(args: ProfilesArgs, session: &Session) -> CommandResult {
    match args.action {
        None => list::run(args.list, session).await,
        Some(Action::List(args)) => list::run(args, session).await,
        Some(Action::Show(args)) if args.history => history::run(args, session).await,
        Some(Action::Show(args)) => show::run(args, session).await,
        Some(Action::Export(args)) => carry::export(args, session).await,
        Some(Action::Import(args)) => carry::import(args, session).await,
        Some(Action::Forget(args)) => carry::forget(args, session).await,
    }
}
