//! The pages of the documentation that list all commands and all settings. Tests write them, and check that
//! they are up to date.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};
use infill_testkit::goldens;

use super::args::Cli;
use super::settings_page::{SETTINGS, SettingsLine};

/// The command that writes the pages.
const UPDATE: &str = "cargo test -p infill --bin infill reference_pages";

/// What stands above the commands.
const COMMANDS: &str = "\
# Commands

<!-- Written by the tests of src/reference_pages.rs from the program's own help. -->

This page has the help of each command, as `infill COMMAND --help` prints it. The [overview](../reference.md#commands) has a
line for each command, and the exit codes.
";

/// What stands above the settings.
const CONFIGURATION: &str = "\
# Configuration

<!-- Written by the tests of src/reference_pages.rs from config/infill.toml. -->

All keys of `/etc/infill/infill.toml`, with their defaults. A key without a default is shown with an example. The
[file itself](../../config/infill.toml) has the same text as comments, and so has `man infill.toml`. `infill config
check` reads a file without starting anything.
";

/// The help of a command and of all below it.
fn write_help(page: &mut String, command: &mut Command, path: &str) {
    // Help that is wrapped depends on the terminal.
    let help = command.clone().term_width(100).render_long_help().to_string();
    let lines: Vec<&str> = help.trim().lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {path}\n\n```text\n{}\n```\n", lines.join("\n"));
    for below in command.get_subcommands_mut().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let name = format!("{path} {}", below.get_name());
        write_help(page, below, &name);
    }
}

/// The page of all commands.
fn commands_page() -> String {
    let mut page = COMMANDS.to_owned();
    let mut grammar = Cli::command();
    grammar.build();
    write_help(&mut page, &mut grammar, "infill");
    page
}

/// A cell of a table.
fn table_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The page of all settings.
fn configuration_page() -> String {
    let mut page = CONFIGURATION.to_owned();
    let mut comment: Vec<&str> = Vec::new();
    let mut is_table_open = false;
    for line in SETTINGS.lines() {
        match SettingsLine::parse_line(line) {
            SettingsLine::Section(name) => {
                if !is_table_open && page.contains("\n## ") {
                    let _ = write!(page, "\n{}\n", comment.join(" "));
                }
                comment.clear();
                is_table_open = false;
                let _ = write!(page, "\n## [{name}]\n");
            }
            SettingsLine::Key(setting) => {
                if !is_table_open {
                    page.push_str("\n| key | meaning |\n|---|---|\n");
                    is_table_open = true;
                }
                let _ = writeln!(page, "| `{}` | {} |", table_cell(setting), table_cell(&comment.join(" ")));
                comment.clear();
            }
            SettingsLine::Comment(words) => comment.push(words),
            SettingsLine::Blank => comment.clear(),
        }
    }
    page
}

#[test]
fn the_page_of_commands_is_what_the_program_prints() {
    let page = commands_page();
    assert!(page.contains("\n## infill profiles show\n"), "commands below others are there");
    goldens::check_golden("docs/reference/commands.md", &page, UPDATE);
}

#[test]
fn the_page_of_settings_is_the_commented_file() {
    let page = configuration_page();
    assert!(page.contains("| `mode = \"observe\"` |"), "{page}");
    goldens::check_golden("docs/reference/configuration.md", &page, UPDATE);
}
