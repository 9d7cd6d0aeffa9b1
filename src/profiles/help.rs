//! `-h` of the subcommands.

use clap::{ArgAction, Args};

/// The table of the list takes `-h` for itself, and with it clap's own flag from all that is below.
#[derive(Clone, Debug, Default, Args)]
pub struct HelpArgs {
    /// Print help
    #[arg(short = 'h', long, action = ArgAction::Help)]
    help: Option<bool>,
}
