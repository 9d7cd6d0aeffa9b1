//! The examples of one command, and how help shows them.

use std::fmt;

use infill_present::table::HELP_WIDTH;

/// One example.
#[derive(Clone, Copy, Debug)]
pub struct HelpExample {
    /// What it does, as a comment of a shell.
    pub purpose: &'static str,
    /// The line to type.
    pub line: &'static str,
}

/// The examples of one command.
#[derive(Clone, Copy, Debug)]
pub struct CommandExamples {
    /// The words that name the command: `infill profiles show`.
    pub command: &'static str,
    /// The examples, the most common first.
    pub examples: &'static [HelpExample],
}

impl fmt::Display for CommandExamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Examples:")?;
        for example in self.examples {
            write!(f, "\n  # {}\n{}", example.purpose, broken_line(example.line))?;
        }
        Ok(())
    }
}

/// A command that a terminal of 80 columns shows as it is typed: a long one goes on after a backslash.
fn broken_line(line: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        let width = word.chars().count();
        if column == 0 {
            text.push_str("  ");
            column = 2;
        } else if column + 1 + width + 2 > HELP_WIDTH {
            text.push_str(" \\\n      ");
            column = 6;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// An example, in the order in which it is read.
pub const fn example(purpose: &'static str, line: &'static str) -> HelpExample {
    HelpExample { purpose, line }
}
