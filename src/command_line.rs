//! Parses the command line by the grammar with its help.

use std::ffi::OsString;

use clap::FromArgMatches as _;

use super::args::{Cli, CliCommand};
use super::{help, misplaced_options};

/// Parses the program's name and arguments.
///
/// # Errors
/// What clap says about the arguments, also for `--help`. The words of a training command must not look like
/// options of infill, unless `--` stands before the command.
pub fn parse_words(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut grammar = help::grammar();
    let mut matches = grammar.try_get_matches_from_mut(words.clone())?;
    let cli = Cli::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut grammar))?;
    match &cli.command {
        CliCommand::Run(args) => {
            misplaced_options::check_command(&grammar, "run", &words, &args.common.command)?;
        }
        CliCommand::Rehearse(args) => {
            misplaced_options::check_command(&grammar, "rehearse", &words, args.command_words())?;
        }
        _ => {}
    }
    Ok(cli)
}

#[cfg(test)]
mod tests;
