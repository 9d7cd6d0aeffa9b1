//! The flag `-h` of the subcommands.

use clap::{ArgAction, Args};

/// The help flag. The list's table uses `-h` for `--noheader`, which also removes clap's own flag from the
/// subcommands.
#[derive(Clone, Debug, Default, Args)]
pub struct HelpArgs {
    /// Print help
    #[arg(short = 'h', long, action = ArgAction::Help)]
    help: Option<bool>,
}
