//! `[store]`: where the daemon keeps its data, and for how long.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::rule::ConfigRule;
use super::secrets::{not_absolute, read_secret};

/// The bounds of every retention time, in days.
const DAYS: std::ops::RangeInclusive<f64> = 1.0..=36_500.0;
const DAYS_EXPECTED: &str = "expected 1 to 36500 days";

/// `[store]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The database: `sqlite:/path/file.db` or `postgres://user:password@host/database`.
    pub database_url: String,
    /// A file with the password of that database. Empty if the URL is complete.
    pub password_file: PathBuf,
    /// Days for which a profile is kept if no measurement is added.
    pub keep_profile_days: u32,
    /// Days for which ended jobs are kept.
    pub keep_history_days: u32,
    /// Days for which the use of nodes is kept.
    pub keep_node_days: u32,
    /// Days for which each user's usage over time is kept. No other data that names users is kept for longer.
    pub keep_usage_days: u32,
    /// Most profiles of a user. Above that, the longest unchanged are deleted, and none can be imported.
    pub max_profiles_a_user: u32,
    /// Most space that all profiles of a user may take when some are imported, in MiB.
    pub max_profile_mib_a_user: u32,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            database_url: "sqlite:/var/lib/infill/infill.db".to_owned(),
            password_file: PathBuf::new(),
            keep_profile_days: 365,
            keep_history_days: 400,
            keep_node_days: 14,
            keep_usage_days: 400,
            max_profiles_a_user: 1000,
            max_profile_mib_a_user: 16,
        }
    }
}

impl StoreConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::custom_check(
            "store.password_file",
            |c| not_absolute(&c.password_file),
            "expected an absolute path",
        ),
        ConfigRule::custom_check(
            "store.password_file",
            |c| {
                let is_set = !c.password_file.as_os_str().is_empty();
                let is_postgres = c.database_url.starts_with("postgres");
                (is_set && !is_postgres).then(|| format!("{:?}", c.password_file))
            },
            "only PostgreSQL has a password: expected store.database_url = \"postgres://…\"",
        ),
        ConfigRule::within_bounds(
            "store.keep_history_days",
            |c| f64::from(c.keep_history_days),
            DAYS,
            DAYS_EXPECTED,
        ),
        ConfigRule::within_bounds(
            "store.keep_node_days",
            |c| f64::from(c.keep_node_days),
            DAYS,
            DAYS_EXPECTED,
        ),
        ConfigRule::within_bounds(
            "store.keep_usage_days",
            |c| f64::from(c.keep_usage_days),
            DAYS,
            DAYS_EXPECTED,
        ),
        ConfigRule::within_bounds(
            "store.max_profiles_a_user",
            |c| f64::from(c.max_profiles_a_user),
            1.0..=1e6,
            "expected 1 to 1000000 profiles",
        ),
        ConfigRule::within_bounds(
            "store.max_profile_mib_a_user",
            |c| f64::from(c.max_profile_mib_a_user),
            1.0..=1e5,
            "expected 1 to 100000 MiB",
        ),
    ];
}

impl StoreConfig {
    /// `database_url`, with the password of `password_file` if that is set.
    ///
    /// # Errors
    /// If that file cannot be read, or other users may read it.
    pub fn connection_url(&self) -> Result<String, ConfigError> {
        if self.password_file.as_os_str().is_empty() {
            return Ok(self.database_url.clone());
        }
        let password = read_secret("store.password_file", &self.password_file)?;
        let mut url = self.database_url.clone();
        url.push_str(if url.contains('?') { "&password=" } else { "?password=" });
        for byte in password.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => url.push(char::from(byte)),
                _ => url.push_str(&format!("%{byte:02X}")),
            }
        }
        Ok(url)
    }
}
