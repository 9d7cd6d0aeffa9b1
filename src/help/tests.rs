//! Tests of the help: every command has its group and its examples, and no line is torn apart.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::Command;
use clap::error::ErrorKind;

use super::examples::{all_examples, examples_of};
use super::groups::COMMAND_GROUPS;
use super::*;
use crate::command_line::parse_words;

/// The widest line of a terminal of 80 columns.
const WIDTH: usize = 79;

/// All commands that help shows, by their words: `infill profiles show`.
fn all_commands() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    let mut open = vec![("infill".to_owned(), grammar())];
    while let Some((path, command)) = open.pop() {
        let shown = command.get_subcommands().filter(|child| !child.is_hide_set());
        open.extend(shown.map(|child| (format!("{path} {}", child.get_name()), child.clone())));
        found.push((path, command));
    }
    found
}

#[test]
fn every_command_is_in_one_group() {
    let grammar = grammar();
    let shown: BTreeSet<&str> =
        grammar.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
    let listed: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|group| group.commands).copied().collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), shown);
    assert_eq!(listed.len(), shown.len(), "a command is in two groups");
}

#[test]
fn the_list_of_commands_has_a_line_for_each() {
    for command in grammar().get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(command.is_hide_set() || ABOUT_COLUMN + about.chars().count() <= WIDTH, "{about}");
        assert!(!about.is_empty() && !about.ends_with('.'), "{}: {about}", command.get_name());
    }
    let help = grammar().render_help().to_string();
    assert!(help.contains("For users:\n  run          Run a training command"), "{help}");
    assert!(help.contains("\nGlobal options:\n"), "{help}");
}

/// The words of a line, as a shell splits them, up to a pipe or a redirection.
fn shell_words(line: &str) -> Vec<String> {
    let line = line.strip_prefix("eval \"$(").map_or(line, |rest| rest.trim_end_matches(")\""));
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            let plain = part.split_whitespace().take_while(|word| !["|", ">"].contains(word));
            words.extend(plain.map(str::to_owned));
        }
    }
    words
}

#[test]
fn every_command_has_examples_that_parse() {
    for (path, command) in all_commands() {
        // A command that only starts others, and the one that infill itself starts.
        if path == "infill" || path == "infill worker" {
            continue;
        }
        let Some(entry) = examples_of(&path) else { panic!("{path} has no examples") };
        assert!((2..=4).contains(&entry.examples.len()), "{path}");
        for help in [command.get_after_help(), command.get_after_long_help()] {
            assert!(help.is_some_and(|help| help.to_string().contains("Examples:\n  # ")), "{path}");
        }
    }
    for example in all_examples().flat_map(|entry| entry.examples) {
        let words = shell_words(example.line).into_iter().map(OsString::from).collect();
        let parsed = parse_words(words);
        assert!(parsed.is_ok(), "{}: {}", example.line, parsed.unwrap_err());
    }
}

#[test]
fn every_entry_of_the_examples_belongs_to_a_command() {
    let commands: BTreeSet<String> = all_commands().into_iter().map(|(path, _)| path).collect();
    for entry in all_examples() {
        assert!(commands.contains(entry.command), "{}", entry.command);
    }
}

/// The end of a command's help, before a terminal wraps it: a line is short, or a whole paragraph.
#[test]
fn no_line_is_torn_apart_at_80_columns() {
    for (path, command) in all_commands() {
        let Some(text) = command.get_after_long_help().map(ToString::to_string) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            if line.chars().count() <= WIDTH {
                continue;
            }
            let is_paragraph = lines.get(number + 1).is_none_or(|next| next.is_empty());
            assert!(is_paragraph && !line.starts_with(' '), "{path}: {line}");
        }
    }
}

#[test]
fn options_have_headings_and_units() {
    for (path, command) in all_commands() {
        for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()) {
            let name = arg.get_id();
            let values = arg.get_value_names().unwrap_or_default();
            for value in values.iter().filter(|_| arg.get_action().takes_values()) {
                assert!(value.len() > 1, "{path} --{name} <{value}> does not say its unit");
            }
        }
    }
    let grammar = grammar();
    let run = grammar.find_subcommand("run").unwrap();
    for arg in run.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()) {
        assert!(arg.get_help_heading().is_some(), "run --{} has no heading", arg.get_id());
    }
}

#[test]
fn global_options_come_last() {
    for words in ["infill jobs --help", "infill run -h", "infill status -h", "infill simulate -h"] {
        let help = parse_words(words.split(' ').map(OsString::from).collect()).unwrap_err();
        assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{words}");
        let help = help.to_string();
        let headings: Vec<&str> = help
            .lines()
            .filter(|line| line.ends_with(':') && !line.starts_with(' '))
            .take_while(|line| *line != "Examples:")
            .filter(|line| !line.starts_with("Fields"))
            .collect();
        assert_eq!(headings.last(), Some(&"Global options:"), "{words}: {help}");
    }
}

#[test]
fn the_long_help_has_exit_codes_and_fields_and_the_short_one_examples() {
    let mut grammar = grammar();
    assert!(grammar.render_long_help().to_string().contains("5  no such job, node, profile or round"));
    let jobs = grammar.find_subcommand_mut("jobs").unwrap();
    let long = jobs.render_long_help().to_string();
    let short = jobs.render_help().to_string();
    assert!(long.contains("%N  NODELIST") && long.contains("Examples:"), "{long}");
    assert!(!short.contains("%N  NODELIST") && short.contains("Examples:"), "{short}");
}
