//! Exit codes: part of the interface, documented in `--help` and in the man page.

use std::fmt;

use infill_model::config::ConfigError;

/// How the program ends. `infill run` and `infill worker` end with the command's own code instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Something failed, or `doctor` found an error.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// The daemon cannot be reached.
    Unreachable = 3,
    /// The daemon or Slurm says that this user may not.
    Denied = 4,
    /// No such job, node, profile or round.
    NotFound = 5,
    /// The configuration is wrong.
    Config = 6,
    /// A file that was given cannot be read, or is not what it should be.
    Input = 7,
}

/// For `--help` and the man page.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  something failed, or `doctor` found an error
  2  wrong usage
  3  the daemon cannot be reached
  4  denied
  5  no such job, node, profile or round
  6  the configuration is wrong
  7  a file that was given cannot be read, or is not what it should be
`infill run` and `infill worker` exit with the command's own code.

Environment:
  INFILL_CONFIG      configuration file, as --config
  INFILL_URL         the daemon's URL, as --url
  INFILL_LOG         what is logged to stderr, such as `debug` or `infill_planner=trace`
  INFILL_LOG_FORMAT  `text` or `json`
  NO_COLOR           no colours, whatever its value";

/// A failure with the exit code that it ends in.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What happened; its chain is printed.
    pub error: anyhow::Error,
}

/// What a subcommand returns: the exit code, or why it failed.
pub type CommandResult = Result<u8, Failure>;

impl Exit {
    /// A failure that ends in this code.
    pub fn because(self, error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: self, error: error.into() }
    }

    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let is_config = error.chain().any(|cause| cause.is::<ConfigError>());
        Failure { exit: if is_config { Exit::Config } else { Exit::Failed }, error }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Exit::Config.because(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Exit::Failed.because(error)
    }
}

/// The exit code of a command that ran under an agent, cut to what a process can return without becoming a
/// success.
pub fn of_command(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code() {
        let all = [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Unreachable,
            Exit::Denied,
            Exit::NotFound,
            Exit::Config,
            Exit::Input,
        ];
        for exit in all {
            assert!(HELP.contains(&format!("\n  {}  ", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn a_wrong_configuration_keeps_its_code_through_a_context() {
        let wrong = infill_model::config::Config::parse("x = 1", std::path::Path::new("a.toml")).unwrap_err();
        let failure = Failure::from(anyhow::Error::new(wrong).context("starting"));
        assert_eq!(failure.exit, Exit::Config);
    }

    #[test]
    fn a_code_that_does_not_fit_is_still_a_failure() {
        assert_eq!([of_command(0), of_command(143), of_command(256), of_command(-1)], [0, 143, 255, 255]);
    }
}
