//! Examples of all commands, for the end of their help.

mod entry;
mod operators;
mod others;
mod users;

pub use entry::CommandExamples;

/// All examples.
pub fn all_examples() -> impl Iterator<Item = &'static CommandExamples> {
    [users::EXAMPLES, operators::EXAMPLES, others::EXAMPLES].into_iter().flatten()
}

/// The examples of the command that these words name.
pub fn examples_of(path: &str) -> Option<&'static CommandExamples> {
    all_examples().find(|entry| entry.command == path)
}
