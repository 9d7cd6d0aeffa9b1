//! The pages of the documentation that list all commands and all settings. Tests write them, and check that
//! they are up to date.

use std::fmt::Write as _;

use clap::Command;
use infill_testkit::goldens;

use super::help::grammar;
use super::settings_page::{SETTINGS, SettingsLine, comment_blocks};

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

All keys of `/etc/infill/infill.toml`, with their defaults. A key without a default has –, and an example below its table.
The [file itself](../../config/infill.toml) has the same text as comments, and so has `man infill.toml`.

    infill config default > infill.toml    # the file with all defaults
    infill config check infill.toml        # reads it, and starts nothing
";

/// The longest line of text below a table, and the longest cell in one.
const LINE_WIDTH: usize = 120;

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
    let mut grammar = grammar();
    grammar.build();
    write_help(&mut page, &mut grammar, "infill");
    page
}

/// A cell of a table.
fn table_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// One section of the settings.
#[derive(Default)]
struct SettingsSection<'l> {
    name: &'l str,
    /// What is said of the section as a whole.
    about: Vec<String>,
    keys: Vec<SettingsKey<'l>>,
}

/// One key.
#[derive(Default)]
struct SettingsKey<'l> {
    name: &'l str,
    default: Option<&'l str>,
    /// The whole line of an example.
    example: Option<&'l str>,
    about: Vec<String>,
}

impl<'l> SettingsSection<'l> {
    /// Reads the commented file.
    fn read_all(text: &'l str) -> Vec<SettingsSection<'l>> {
        let mut sections: Vec<SettingsSection<'_>> = Vec::new();
        let mut comment: Vec<&str> = Vec::new();
        for line in text.lines() {
            let parsed = SettingsLine::parse_line(line);
            if let SettingsLine::Comment(words) = parsed {
                comment.push(words);
                continue;
            }
            let about = comment_blocks(&std::mem::take(&mut comment));
            match (parsed, sections.last_mut()) {
                (SettingsLine::Section(name), _) => {
                    sections.push(SettingsSection { name, about, keys: Vec::new() });
                }
                (SettingsLine::Key(setting), Some(section)) => section.add_default(setting, about),
                (SettingsLine::Example(setting), Some(section)) => section.add_example(setting, about),
                (SettingsLine::Blank, Some(section)) if section.keys.is_empty() => {
                    section.about.extend(about)
                }
                _ => {}
            }
        }
        sections
    }

    fn add_default(&mut self, setting: &'l str, about: Vec<String>) {
        let (name, value) = setting.split_once(" = ").expect("a key has a value");
        match self.keys.last_mut().filter(|key| key.name == name) {
            Some(key) => key.default = Some(value),
            None => {
                self.keys.push(SettingsKey { name, default: Some(value), about, ..SettingsKey::default() })
            }
        }
    }

    fn add_example(&mut self, setting: &'l str, about: Vec<String>) {
        let name = setting.split(" = ").next().unwrap_or_default();
        self.keys.push(SettingsKey { name, example: Some(setting), about, ..SettingsKey::default() });
    }

    /// The section of the page: a table with a sentence for each key, and below it what else there is to say.
    fn write_to(&self, page: &mut String) {
        let _ = write!(page, "\n## [{}]\n", self.name);
        write_blocks(page, &self.about);
        // Users name the keys of some sections themselves.
        if let [SettingsKey { about, example: Some(example), .. }] = self.keys.as_slice()
            && about.is_empty()
        {
            let _ = write!(page, "\nExample: `{example}`\n");
            return;
        }
        page.push_str("\n| key | default | meaning |\n|---|---|---|\n");
        for key in &self.keys {
            let default = key.default.map_or("–".to_owned(), |value| format!("`{}`", table_cell(value)));
            let _ = writeln!(page, "| `{}` | {default} | {} |", key.name, table_cell(key.summary()));
        }
        for key in &self.keys {
            write_blocks(page, &key.details());
        }
    }
}

impl SettingsKey<'_> {
    /// Where the part of the comment ends that the table has: all of a short one, or its first sentence.
    fn summary_end(&self) -> usize {
        let Some(text) = self.about.first() else { return 0 };
        let is_short = self.about.len() == 1 && text.chars().count() <= LINE_WIDTH;
        text.find(". ").filter(|_| !is_short).map_or(text.len(), |at| at + 1)
    }

    /// The part of the comment that the table has.
    fn summary(&self) -> &str {
        self.about.first().map_or("", |text| &text[..self.summary_end()])
    }

    /// The rest of the comment with the example, after the name of the key; nothing if there is neither.
    fn details(&self) -> Vec<String> {
        let rest = self.about.first().map_or("", |text| text[self.summary_end()..].trim());
        let example = self.example.map_or(String::new(), |example| format!("Example: `{example}`"));
        let mut blocks = vec![[rest, example.as_str()].join(" ").trim().to_owned()];
        blocks.extend(self.about.iter().skip(1).cloned());
        if blocks == [""] {
            return Vec::new();
        }
        blocks[0] = format!("`{}`: {}", self.name, blocks[0]).trim_end().to_owned();
        blocks
    }
}

/// Writes paragraphs and list items, with broken lines.
fn write_blocks(page: &mut String, blocks: &[String]) {
    let mut was_item = false;
    for block in blocks {
        let is_item = block.starts_with("- ");
        if !(is_item && was_item) {
            page.push('\n');
        }
        was_item = is_item;
        let mut width = 0;
        for (at, word) in block.split(' ').enumerate() {
            let separator = match at {
                0 => "",
                _ if width + word.chars().count() >= LINE_WIDTH => {
                    if is_item {
                        "\n  "
                    } else {
                        "\n"
                    }
                }
                _ => " ",
            };
            width = if separator.starts_with('\n') { 0 } else { width + separator.len() };
            width += word.chars().count();
            page.push_str(separator);
            page.push_str(word);
        }
        page.push('\n');
    }
}

/// The page of all settings.
fn configuration_page() -> String {
    let mut page = CONFIGURATION.to_owned();
    SettingsSection::read_all(SETTINGS).iter().for_each(|section| section.write_to(&mut page));
    page
}

#[test]
fn the_page_of_commands_is_what_the_program_prints() {
    let page = commands_page();
    assert!(page.contains("\n## infill profiles show\n"), "commands below others are there");
    for part in ["For users:", "Exit codes:", "Examples:"] {
        assert!(page.contains(part), "the page lacks what the program prints: {part}");
    }
    goldens::check_golden("docs/reference/commands.md", &page, UPDATE);
}

#[test]
fn the_page_of_settings_is_the_commented_file() {
    let page = configuration_page();
    for line in ["| `mode` | `\"observe\"` |", "| `ca` | – |", "Example: `resnet = ", "`password_file`: "] {
        assert!(page.contains(line), "{line}: {page}");
    }
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let longest = row.split(" | ").map(|cell| cell.chars().count()).max();
        assert!(
            longest <= Some(LINE_WIDTH + 5),
            "a cell is too long: put the rest into a second sentence: {row}"
        );
    }
    goldens::check_golden("docs/reference/configuration.md", &page, UPDATE);
}
