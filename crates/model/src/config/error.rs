//! Why a configuration is refused.

use std::path::PathBuf;

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Syntax, unknown key or wrong type; the text names line and key.
    #[error("{path}: {what}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// With line and column.
        what: String,
    },
    /// A value that makes no sense.
    #[error("{path}: {key} = {value}: {what}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Dotted key.
        key: &'static str,
        /// As given.
        value: String,
        /// What was expected.
        what: &'static str,
    },
    /// A file with a secret cannot be read.
    #[error("{key}: cannot read {path}")]
    SecretUnreadable {
        /// Dotted key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file with a secret is not as it should be.
    #[error("{key}: {path}: {what}")]
    Secret {
        /// Dotted key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

impl ConfigError {
    /// Whether a file with a secret is not for this user's eyes: others than the daemon need not read it.
    pub fn is_others_secret(&self) -> bool {
        let denied = std::io::ErrorKind::PermissionDenied;
        matches!(self, ConfigError::SecretUnreadable { source, .. } if source.kind() == denied)
    }
}
