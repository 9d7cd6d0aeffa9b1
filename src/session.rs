//! What the global flags say: where the configuration is, and where the daemon.

use std::path::PathBuf;

use super::client::{Client, ClientError};
use infill_agent::identity::Slurm;
use infill_model::config::{AgentConfig, ClientConfig, Config, ConfigError};
use infill_present::exit::Failure;

/// What the global flags say.
pub struct Session {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--url`.
    pub url: Option<String>,
}

impl Session {
    /// The configuration. Removed keys that the file has are warned of.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let (config, removed) = Config::load_and_tell(self.config.as_deref())?;
        for key in removed {
            tracing::warn!("{key}");
        }
        Ok(config)
    }

    /// The daemon's URL. The configuration is read only when no flag names it: users need not be able to read
    /// it.
    pub fn url(&self) -> Result<String, ConfigError> {
        match &self.url {
            Some(url) => Ok(url.clone()),
            None => Ok(ClientConfig::load(self.config.as_deref())?.url),
        }
    }

    /// Gives an agent the URL that the global flags name, before or after the subcommand. Without them it
    /// looks itself.
    pub fn tell(&self, agent: &mut Option<String>) -> Result<(), ConfigError> {
        if agent.is_none() && (self.url.is_some() || self.config.is_some()) {
            *agent = Some(self.url()?);
        }
        Ok(())
    }

    /// The user as whom the daemon runs: the default where the configuration cannot be read, which users need
    /// not be able to if a flag names the URL.
    fn daemon_user(&self) -> String {
        let default = || AgentConfig::default().daemon_user;
        ClientConfig::load(self.config.as_deref()).map_or_else(|_| default(), |c| c.daemon_user)
    }

    /// The daemon.
    pub fn client(&self) -> Result<Client, Failure> {
        let client: Result<Client, ClientError> =
            Client::new(&self.url()?, Slurm::trusting(self.daemon_user()));
        Ok(client?)
    }
}
