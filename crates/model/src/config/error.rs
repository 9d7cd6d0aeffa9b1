//! The reasons why a configuration is refused.

use std::path::PathBuf;

/// A problem with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Wrong syntax, an unknown key or a wrong type. The text names line and key.
    #[error("{path}: {what}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The problem, with line and column.
        what: String,
    },
    /// A value that breaks a rule.
    #[error("{path}: {key} = {value}: {what}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The dotted key, such as `slurm.partition`.
        key: &'static str,
        /// The value as given.
        value: String,
        /// The expected value.
        what: &'static str,
    },
    /// A file with a secret cannot be read.
    #[error("{key}: cannot read {path}")]
    SecretUnreadable {
        /// The dotted key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file with a secret does not have the expected form or mode.
    #[error("{key}: {path}: {what}")]
    Secret {
        /// The dotted key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        what: &'static str,
    },
}

impl ConfigError {
    /// Whether this user may not read a file with a secret. Only the daemon needs to read those files.
    pub fn is_others_secret(&self) -> bool {
        let denied = std::io::ErrorKind::PermissionDenied;
        matches!(self, ConfigError::SecretUnreadable { source, .. } if source.kind() == denied)
    }
}
