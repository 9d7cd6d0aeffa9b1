//! Exit codes. They are part of the interface: `--help` and the man page document them.

use std::fmt;

use infill_model::config::ConfigError;

/// How the program ends. `infill run` and `infill worker` end with the command's own code instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProgramExit {
    /// Done.
    Ok = 0,
    /// Something failed, or `doctor` or `rehearse` found an error.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// The daemon cannot be reached.
    Unreachable = 3,
    /// The daemon or Slurm does not allow it to this user.
    Denied = 4,
    /// No such job, node, profile or round.
    NotFound = 5,
    /// The configuration is wrong.
    Config = 6,
    /// An input file cannot be read, or does not have the expected content.
    Input = 7,
}

/// The section on exit codes and environment variables in `--help` and the man page.
pub const EXIT_CODE_HELP: &str = "\
Exit codes:
  0  done
  1  something failed, or `doctor` or `rehearse` found an error
  2  wrong usage
  3  the daemon cannot be reached
  4  denied
  5  no such job, node, profile or round
  6  the configuration is wrong
  7  an input file cannot be read, or does not have the expected content
`infill run` and `infill worker` exit with the command's own code, and
`infill status --check` as monitoring plugins do: 0 ok, 1 warning, 2 problem,
3 unknown.

Environment:
  INFILL_CONFIG      configuration file, as --config
  INFILL_URL         the daemon's URL, as --url
  INFILL_LOG         what is logged to stderr: `debug`, `infill_planner=trace`
  INFILL_LOG_FORMAT  `text` or `json`
  NO_COLOR           no colours, whatever its value";

/// A failure with the exit code of the program.
#[derive(Debug)]
pub struct CommandFailure {
    /// The exit code.
    pub exit: ProgramExit,
    /// What happened. The whole chain of causes is printed.
    pub error: anyhow::Error,
}

/// What a subcommand returns: its exit code, or a failure.
pub type CommandResult = Result<u8, CommandFailure>;

impl ProgramExit {
    /// A failure with this exit code.
    pub fn caused_by(self, error: impl Into<anyhow::Error>) -> CommandFailure {
        CommandFailure { exit: self, error: error.into() }
    }

    /// The number that the process returns.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<anyhow::Error> for CommandFailure {
    fn from(error: anyhow::Error) -> Self {
        let is_config = error.chain().any(|cause| cause.is::<ConfigError>());
        CommandFailure { exit: if is_config { ProgramExit::Config } else { ProgramExit::Failed }, error }
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        ProgramExit::Config.caused_by(error)
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> Self {
        ProgramExit::Failed.caused_by(error)
    }
}

/// The exit code of a command that ran under an agent. A code that a process cannot return becomes 255, so
/// that it is still a failure.
pub fn command_exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code() {
        let all = [
            ProgramExit::Ok,
            ProgramExit::Failed,
            ProgramExit::Usage,
            ProgramExit::Unreachable,
            ProgramExit::Denied,
            ProgramExit::NotFound,
            ProgramExit::Config,
            ProgramExit::Input,
        ];
        for exit in all {
            assert!(EXIT_CODE_HELP.contains(&format!("\n  {}  ", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn a_wrong_configuration_keeps_its_code_through_a_context() {
        let wrong = infill_model::config::Config::parse("x = 1", std::path::Path::new("a.toml")).unwrap_err();
        let failure = CommandFailure::from(anyhow::Error::new(wrong).context("starting"));
        assert_eq!(failure.exit, ProgramExit::Config);
    }

    #[test]
    fn a_code_that_does_not_fit_is_still_a_failure() {
        assert_eq!(
            [command_exit_code(0), command_exit_code(143), command_exit_code(256), command_exit_code(-1)],
            [0, 143, 255, 255]
        );
    }
}
