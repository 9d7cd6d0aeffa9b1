//! What the global flags say: where the configuration is, and where the daemon.

use std::path::PathBuf;

use super::client::{ClientError, DaemonClient};
use infill_agent::CommandArgs;
use infill_agent::identity::SlurmIdentity;
use infill_model::config::{AgentConfig, ClientConfig, Config, ConfigError};
use infill_present::exit::CommandFailure;

/// What the global flags say.
pub struct CliSession {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--url`.
    pub url: Option<String>,
}

impl CliSession {
    /// The configuration. Removed keys that the file has are warned of.
    pub fn load_config(&self) -> Result<Config, ConfigError> {
        let (config, removed) = Config::load_with_removed(self.config.as_deref())?;
        for key in removed {
            tracing::warn!("{key}");
        }
        Ok(config)
    }

    /// The daemon's URL. The configuration is read only when no flag names it: users need not be able to read
    /// it.
    pub fn daemon_url(&self) -> Result<String, ConfigError> {
        match &self.url {
            Some(url) => Ok(url.clone()),
            None => Ok(ClientConfig::load(self.config.as_deref())?.url),
        }
    }

    /// The authorities of the daemon's certificate. Where a flag names the daemon the configuration may be
    /// one that cannot be read.
    pub fn authority_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        match ClientConfig::load(self.config.as_deref()) {
            Ok(config) => Ok(config.ca),
            Err(_) if self.url.is_some() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Gives an agent the URL and the configuration that the global flags name, before or after the
    /// subcommand. Without them it looks itself.
    pub fn configure_agent(&self, agent: &mut CommandArgs) -> Result<(), ConfigError> {
        if agent.url.is_none() && (self.url.is_some() || self.config.is_some()) {
            agent.url = Some(self.daemon_url()?);
        }
        agent.config.clone_from(&self.config);
        Ok(())
    }

    /// The user as whom the daemon runs: the default where the configuration cannot be read, which users need
    /// not be able to if a flag names the URL.
    fn daemon_user(&self) -> String {
        let default = || AgentConfig::default().daemon_user;
        ClientConfig::load(self.config.as_deref()).map_or_else(|_| default(), |c| c.daemon_user)
    }

    /// The daemon.
    pub fn daemon_client(&self) -> Result<DaemonClient, CommandFailure> {
        let by = SlurmIdentity::trusting_user(self.daemon_user());
        let client: Result<DaemonClient, ClientError> =
            DaemonClient::new(&self.daemon_url()?, by, self.authority_file()?.as_deref());
        Ok(client?)
    }
}
