//! The global flags: where the configuration and the daemon are.

use std::path::PathBuf;

use super::client::DaemonClient;
use infill_agent::CommandArgs;
use infill_agent::identity::SlurmIdentity;
use infill_model::config::{AgentConfig, ClientConfig, Config, ConfigError};
use infill_present::exit::CommandFailure;

/// The values of the global flags.
pub struct CliSession {
    /// The value of `--config` or `INFILL_CONFIG`.
    pub config: Option<PathBuf>,
    /// The value of `--url` or `INFILL_URL`.
    pub url: Option<String>,
}

impl CliSession {
    /// Loads the configuration. Logs a warning for each removed key that the file still has.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong.
    pub fn load_config(&self) -> Result<Config, ConfigError> {
        let (config, removed) = Config::load_with_removed(self.config.as_deref())?;
        for key in removed {
            tracing::warn!("{key}");
        }
        Ok(config)
    }

    /// The daemon's URL. The configuration is read only if no flag names the URL, because users may not be
    /// able to read it.
    ///
    /// # Errors
    /// When the configuration is needed and cannot be used.
    pub fn daemon_url(&self) -> Result<String, ConfigError> {
        match &self.url {
            Some(url) => Ok(url.clone()),
            None => Ok(ClientConfig::load(self.config.as_deref())?.url),
        }
    }

    /// The file of the authorities that may sign the daemon's certificate (`agent.ca`). `None` for the
    /// system's.
    ///
    /// # Errors
    /// When the configuration cannot be used and no flag names the daemon.
    pub fn authority_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        match ClientConfig::load(self.config.as_deref()) {
            Ok(config) => Ok(config.ca),
            Err(_) if self.url.is_some() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Gives an agent the URL and the configuration of the global flags, which may stand before or after the
    /// subcommand. Without these flags the agent finds them itself.
    ///
    /// # Errors
    /// When the configuration is needed and cannot be used.
    pub fn configure_agent(&self, agent: &mut CommandArgs) -> Result<(), ConfigError> {
        if agent.url.is_none() && (self.url.is_some() || self.config.is_some()) {
            agent.url = Some(self.daemon_url()?);
        }
        agent.config.clone_from(&self.config);
        Ok(())
    }

    /// The user that the daemon runs as. It is the default if the configuration cannot be read, because users
    /// need not be able to read it if a flag names the URL.
    fn daemon_user(&self) -> String {
        match ClientConfig::load(self.config.as_deref()) {
            Ok(config) => config.daemon_user,
            Err(_) => AgentConfig::default().daemon_user,
        }
    }

    /// A client of the daemon.
    ///
    /// # Errors
    /// When the URL or the configuration cannot be used.
    pub fn daemon_client(&self) -> Result<DaemonClient, CommandFailure> {
        let identity = SlurmIdentity::trusting_user(self.daemon_user());
        let url = self.daemon_url()?;
        let authorities = self.authority_file()?;
        Ok(DaemonClient::new(&url, identity, authorities.as_deref())?)
    }
}
