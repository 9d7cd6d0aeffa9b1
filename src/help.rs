//! The help of all commands: groups of commands, examples, and the order of what is printed.

mod examples;
mod groups;

use clap::{Command, CommandFactory as _};

use super::args::Cli;
use examples::examples_of;
use groups::COMMAND_GROUPS;
use infill_agent::GLOBAL_OPTIONS;
use infill_present::exit;

/// The end of the short help.
const MORE_HELP: &str = "\
`infill COMMAND -h` has the options of a command and examples; --help also has details.
`infill --help` lists the exit codes and the environment variables.";

/// The column in which the line of a command begins.
const ABOUT_COLUMN: usize = 15;

/// The grammar with its help. Everything that reads the grammar starts from here.
pub fn grammar() -> Command {
    let mut grammar = Cli::command();
    let commands = list_commands(&grammar);
    let options = "Usage: infill [OPTIONS] <COMMAND>";
    let template = format!(
        "{{about-with-newline}}\n{options}\n\n{commands}{GLOBAL_OPTIONS}:\n{{options}}{{after-help}}"
    );
    grammar = grammar.help_template(template);
    grammar = with_examples(grammar, "");
    // A rehearsal has the options of a run, but no daemon.
    let hide = |command: Command| command.mut_arg("daemon_patience", |arg| arg.hide(true));
    grammar = grammar.mut_subcommand("rehearse", hide);
    grammar = grammar.after_help(MORE_HELP).after_long_help(exit::EXIT_CODE_HELP);
    for (order, name) in COMMAND_GROUPS.iter().flat_map(|group| group.commands).enumerate() {
        grammar = grammar.mut_subcommand(name, |command| command.display_order(order));
    }
    grammar
}

/// The commands by group, a line each.
fn list_commands(grammar: &Command) -> String {
    let mut text = String::new();
    for group in COMMAND_GROUPS {
        text.push_str(&format!("{}:\n", group.title));
        for name in group.commands {
            let about = grammar.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<width$}{about}\n", width = ABOUT_COLUMN - 2));
        }
        text.push('\n');
    }
    text
}

/// A command and its subcommands with their examples. `-h` shows the examples alone, `--help` also the
/// details that the command declares. `parent`: the names of the commands above it.
fn with_examples(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let path = if parent.is_empty() { String::new() } else { format!("{parent} {name}") };
    let below = if parent.is_empty() { "infill" } else { path.as_str() };
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let mut command = command;
    for name in names {
        command = command.mut_subcommand(name, |child| with_examples(child, below));
    }
    let Some(examples) = examples_of(&path) else { return command };
    let examples = examples.to_string();
    let details = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let long = details.map_or_else(|| examples.clone(), |details| format!("{details}\n\n{examples}"));
    command.after_help(examples).after_long_help(long)
}

#[cfg(test)]
mod tests;
