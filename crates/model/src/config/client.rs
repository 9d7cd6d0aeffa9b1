//! The part of the configuration that agents and users' commands read.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{AgentConfig, ConfigError, SlurmConfig, read_file};

/// The part of the file that clients of the daemon need. The daemon may have another version: unknown or
/// wrong keys in its part do not concern a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// `agent.url`.
    pub url: String,
    /// `agent.daemon_user`.
    pub daemon_user: String,
    /// `slurm.partition`.
    pub partition: String,
    /// `agent.ca`.
    pub ca: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientFile {
    agent: AgentSection,
    slurm: SlurmSection,
}

#[derive(Deserialize)]
#[serde(default)]
struct AgentSection {
    url: String,
    daemon_user: String,
    ca: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(default)]
struct SlurmSection {
    partition: String,
}

impl Default for AgentSection {
    fn default() -> Self {
        let AgentConfig { url, daemon_user, ca, .. } = AgentConfig::default();
        AgentSection { url, daemon_user, ca }
    }
}

impl Default for SlurmSection {
    fn default() -> Self {
        SlurmSection { partition: SlurmConfig::default().partition }
    }
}

impl ClientConfig {
    /// Reads `path`, or without a path what [`super::Config::load`] reads.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML, or one of these keys is not text.
    pub fn load(path: Option<&Path>) -> Result<ClientConfig, ConfigError> {
        match read_file(path)? {
            Some((text, path)) => ClientConfig::parse(&text, &path),
            None => ClientConfig::parse("", Path::new("")),
        }
    }

    /// Parses a file's text. `path` is for messages.
    ///
    /// # Errors
    /// As [`ClientConfig::load`].
    pub(super) fn parse(text: &str, path: &Path) -> Result<ClientConfig, ConfigError> {
        let file: ClientFile = toml::from_str(text)
            .map_err(|e| ConfigError::Parse { path: path.to_owned(), what: e.to_string() })?;
        let ClientFile { agent: AgentSection { url, daemon_user, ca }, slurm: SlurmSection { partition } } =
            file;
        Ok(ClientConfig { url, daemon_user, partition, ca })
    }
}
