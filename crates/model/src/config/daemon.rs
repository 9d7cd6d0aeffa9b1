//! `[daemon]`: the mode, the port and its TLS, the administrators, and the back-off after failures.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::rule::ConfigRule;
use crate::DaemonMode;

/// `[daemon]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonConfig {
    /// Whether the daemon only observes or also acts.
    pub mode: DaemonMode,
    /// Address and port of the HTTP API.
    pub listen: String,
    /// Names and addresses at which clients reach this daemon besides its host's own, as `HOST` or
    /// `HOST:PORT`.
    pub names: Vec<String>,
    /// PEM file with the TLS certificate and its intermediate certificates. `None` for plain HTTP.
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// Users who may pause, resume and drain, besides root and the daemon's own user.
    pub admins: Vec<String>,
    /// Seconds between two rounds when nothing happens.
    pub poll_interval_secs: f64,
    /// Most actions on Slurm in one round. The remaining ones wait for the next round.
    pub max_actions_a_round: u32,
    /// Failures after which a node is left alone: failed starts on it, or drains after malleable jobs left
    /// it.
    pub breaker_failures: u32,
    /// How long a node or job is left alone after failures, in seconds. It doubles up to `backoff_max_secs`.
    pub backoff_secs: f64,
    /// The longest back-off, in seconds.
    pub backoff_max_secs: f64,
    /// Days for which history is kept.
    pub keep_days: u32,
    /// Shortest time between two changes of one job's comment, in seconds. 0: infill writes no comments.
    pub comment_secs: f64,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        DaemonConfig {
            mode: DaemonMode::Observe,
            listen: "127.0.0.1:6810".to_owned(),
            names: Vec::new(),
            tls_cert: None,
            tls_key: None,
            admins: Vec::new(),
            poll_interval_secs: 5.0,
            max_actions_a_round: 100,
            breaker_failures: 3,
            backoff_secs: 30.0,
            backoff_max_secs: 3600.0,
            keep_days: 90,
            comment_secs: 60.0,
        }
    }
}

impl DaemonConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::some_secs("daemon.poll_interval_secs", |c| c.poll_interval_secs),
        ConfigRule::some_secs("daemon.backoff_secs", |c| c.backoff_secs),
        ConfigRule::any_secs("daemon.backoff_max_secs", |c| c.backoff_max_secs),
        ConfigRule::any_secs("daemon.comment_secs", |c| c.comment_secs),
        ConfigRule::custom_check(
            "daemon.listen",
            |c| c.listen.parse::<SocketAddr>().is_err().then(|| c.listen.clone()),
            "expected ADDRESS:PORT",
        ),
        ConfigRule::custom_check(
            "daemon.names",
            |c| c.names.iter().find(|name| name.is_empty() || name.contains(['/', ' '])).cloned(),
            "expected HOST or HOST:PORT, not a URL",
        ),
        ConfigRule::custom_check(
            "daemon.tls_key",
            |c| {
                let is_only_one = c.tls_key.is_some() != c.tls_cert.is_some();
                if is_only_one { Some(path_as_written(c.tls_key.as_deref())) } else { None }
            },
            "expected a file, together with daemon.tls_cert, or neither",
        ),
        ConfigRule::custom_check(
            "daemon.tls_cert",
            |c| {
                let mut files = [&c.tls_cert, &c.tls_key].into_iter().flatten();
                files.find(|path| !path.is_absolute()).map(|path| path_as_written(Some(path)))
            },
            "expected absolute paths of both files",
        ),
    ];
}

/// The path as the file has it, in quotes.
fn path_as_written(path: Option<&Path>) -> String {
    path.map_or_else(|| "\"\"".to_owned(), |path| format!("{:?}", path.display().to_string()))
}
