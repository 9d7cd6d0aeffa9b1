//! The parts of a plan: steps with their commands, effects, checks and ways back.

use std::borrow::Cow;

use serde::Serialize;

/// Edits a file in place. Where the file is a symlink, its target changes and the link stays.
pub const SED: &str = "sed -i --follow-symlinks";

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// The site is already as the step makes it.
    Done,
    /// It is to be done.
    Open,
    /// What would tell cannot be read here.
    Unknown,
    /// A human must decide first; there are no commands.
    Decision,
    /// It follows once the canary nodes have proved good.
    Later,
}

impl StepState {
    /// [`StepState::Done`], [`StepState::Open`] or, for `None`, [`StepState::Unknown`].
    pub fn known(is_done: Option<bool>) -> StepState {
        match is_done {
            Some(true) => StepState::Done,
            Some(false) => StepState::Open,
            None => StepState::Unknown,
        }
    }
}

/// A command, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanCommand {
    /// The host, in words: `this machine`, a host's name, or `every host`.
    pub on: String,
    /// The user: `root`, or `user` for any user of the cluster.
    #[serde(rename = "as")]
    pub user: &'static str,
    /// The line for a shell.
    pub command: String,
}

impl PlanCommand {
    /// A command of root.
    pub fn root(on: &str, command: impl Into<String>) -> PlanCommand {
        PlanCommand { on: on.to_owned(), user: "root", command: command.into() }
    }

    /// A command of any user of the cluster.
    pub fn user(on: &str, command: impl Into<String>) -> PlanCommand {
        PlanCommand { on: on.to_owned(), user: "user", command: command.into() }
    }
}

/// How to see that a step has worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepCheck {
    /// The command.
    #[serde(flatten)]
    pub command: PlanCommand,
    /// Texts that its output then contains.
    pub prints: Vec<String>,
}

/// A step from the site as it is to malleable jobs on canary nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    /// Its name, the same in every plan.
    pub id: &'static str,
    /// What it makes.
    pub title: String,
    /// How far it is.
    pub state: StepState,
    /// Why it is needed, in a sentence.
    pub why: String,
    /// The page that helps to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<&'static str>,
    /// What to run, in this order.
    pub commands: Vec<PlanCommand>,
    /// What it does to jobs that run.
    pub effect: Cow<'static, str>,
    /// How to see that it has worked.
    pub check: StepCheck,
    /// What undoes it, in this order. Steps are undone from the last to the first.
    pub undo: Vec<PlanCommand>,
    /// What undoes the parts that are there of a step that is not done: an older version, a half of it.
    #[serde(skip)]
    pub remains: Vec<PlanCommand>,
    /// Why the way back leaves something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_note: Option<String>,
    /// What else this site should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl PlanStep {
    /// What undoes this step as it is now.
    pub fn way_back(&self) -> &[PlanCommand] {
        if self.state == StepState::Done { &self.undo } else { &self.remains }
    }
}

/// A word for a shell, in single quotes if it needs them.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The command that writes a file of these lines, which everybody may read whatever the umask.
pub fn write_lines(lines: &[String], path: &str) -> String {
    let file = shell_word(path);
    format!("{} >{file} && chmod 644 {file}", print_lines(lines))
}

/// The command that adds these lines to a file.
pub fn append_lines(lines: &[String], path: &str) -> String {
    format!("{} >>{}", print_lines(lines), shell_word(path))
}

fn print_lines(lines: &[String]) -> String {
    let words: Vec<String> = lines.iter().map(|line| shell_word(line)).collect();
    format!("printf '%s\\n' {}", words.join(" \\\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(shell_word("preempt+=infill"), "preempt+=infill");
        assert_eq!(shell_word(r#"nodes = "n[1-2]""#), r#"'nodes = "n[1-2]"'"#);
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn everybody_may_read_a_file_whatever_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let command = write_lines(&["a b".to_owned()], path.to_str().expect("a name"));
        let words = ["-c", &format!("umask 077; {command}")];
        assert!(std::process::Command::new("sh").args(words).status().expect("a shell").success());
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "a b\n");
    }
}
