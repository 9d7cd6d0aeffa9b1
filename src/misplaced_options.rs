//! Finds options of infill that stand behind the training command. Without `--` before the command, they
//! could belong to either.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, Command};

/// The words of a command line that runs a training command.
struct CommandLine<'a> {
    /// The words before the training command, without the program's name: `run --nodes 2-8`.
    before: Vec<String>,
    /// The training command.
    command: &'a [String],
}

/// A word of the training command that is an option of infill, with the number of words that it takes.
struct MisplacedOption {
    at: usize,
    words: usize,
}

/// Refuses a training command whose words look like options of infill, unless `--` stands before it.
///
/// # Errors
/// A message that says what to type for either meaning.
pub fn check_command(
    grammar: &Command,
    subcommand: &str,
    words: &[OsString],
    command: &[String],
) -> Result<(), clap::Error> {
    // The command takes all words to the end.
    let command_at = words.len().saturating_sub(command.len());
    let before = words.iter().take(command_at).skip(1).map(|w| w.to_string_lossy().into_owned());
    let line = CommandLine { before: before.collect(), command };
    let Some(subcommand) = grammar.find_subcommand(subcommand) else { return Ok(()) };
    if line.before.last().is_some_and(|word| word == "--") {
        return Ok(());
    }
    let misplaced = misplaced_options(subcommand, command);
    let Some(first) = misplaced.first() else { return Ok(()) };
    Err(clap::Error::raw(ErrorKind::ArgumentConflict, line.describe(&misplaced, first)))
}

/// The options of infill among the words of a command. Global options are left out: many programs have a
/// `--config` of their own, and infill's are seldom needed here.
fn misplaced_options(subcommand: &Command, command: &[String]) -> Vec<MisplacedOption> {
    let mut found = Vec::new();
    for (at, word) in command.iter().enumerate() {
        if word == "--" {
            break;
        }
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        let Some(option) = subcommand.get_arguments().find(|arg| is_named(arg, name)) else { continue };
        let takes_next = option.get_action().takes_values() && !word.contains('=') && at + 1 < command.len();
        found.push(MisplacedOption { at, words: if takes_next { 2 } else { 1 } });
    }
    found
}

fn is_named(arg: &Arg, word: &str) -> bool {
    // Every program has a `--help`, and infill's is for its own commands.
    let is_ours = !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help";
    is_ours && arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long))
}

impl CommandLine<'_> {
    /// What is unclear, and what to type.
    fn describe(&self, misplaced: &[MisplacedOption], first: &MisplacedOption) -> String {
        let belongs_to_infill =
            |at: usize| misplaced.iter().any(|option| (option.at..option.at + option.words).contains(&at));
        let mut options: Vec<&str> = Vec::new();
        let mut rest: Vec<&str> = Vec::new();
        for (at, word) in self.command.iter().enumerate() {
            if belongs_to_infill(at) { options.push(word) } else { rest.push(word) }
        }
        let before: Vec<&str> = self.before.iter().map(String::as_str).collect();
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let option = self.command[first.at].split('=').next().unwrap_or_default();
        format!(
            "{option} stands after `{}`, so it could belong to either of them. Write one of:\n\n  \
             {}\n      if infill should read it\n  \
             {}\n      if `{}` should read it\n",
            command[0],
            typed_line(&before, &options, &rest),
            typed_line(&before, &[], &command),
            command[0],
        )
    }
}

/// A line for a shell: `infill run --nodes 2-8 -- python train.py`.
fn typed_line(before: &[&str], options: &[&str], command: &[&str]) -> String {
    let words = ["infill"].iter().chain(before).chain(options).chain(&["--"]).chain(command);
    words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
