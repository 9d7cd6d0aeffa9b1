//! The configuration file: one commented TOML file, `config/infill.toml`, which is also in the binary.
//!
//! Unknown keys are refused with their line. A flag wins over the environment, that over the file, that over
//! the default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::{Curve, Mode, RescaleCosts};

/// The commented default file.
pub const DEFAULT_FILE: &str = include_str!("../config/infill.toml");

/// Where the file is looked for when neither flag nor `INFILL_CONFIG` says.
pub const DEFAULT_PATH: &str = "/etc/infill/infill.toml";

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The daemon.
    pub daemon: DaemonConfig,
    /// How to reach Slurm.
    pub slurm: SlurmConfig,
    /// The gap finder.
    pub gaps: GapsConfig,
    /// The planner.
    pub planner: PlannerConfig,
    /// The job profiling advisor.
    pub advisor: AdvisorConfig,
    /// The agents.
    pub agent: AgentConfig,
    /// The store.
    pub store: StoreConfig,
}

/// `[daemon]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonConfig {
    /// Observe or act.
    pub mode: Mode,
    /// Address and port of the HTTP API.
    pub listen: String,
    /// Users who may pause, resume and drain, besides root and the daemon's own.
    pub admins: Vec<String>,
    /// Seconds between two rounds when nothing happens.
    pub poll_interval_secs: f64,
    /// Most actions on Slurm in one round; what is left waits for the next.
    pub max_actions_a_round: u32,
    /// Starts that die within `early_death_secs` on a node, or drains after we left it, until the node is
    /// left alone.
    pub breaker_failures: u32,
    /// A job that dies within so many seconds of its start counts as a failed start.
    pub early_death_secs: f64,
    /// How long a node or job is left alone after failures, doubling up to `backoff_max_secs`.
    pub backoff_secs: f64,
    /// Longest back-off.
    pub backoff_max_secs: f64,
    /// Days for which history is kept.
    pub keep_days: u32,
}

/// `[slurm]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmConfig {
    /// `unix:/path` or `http(s)://host:port`.
    pub rest: String,
    /// File with a JWT, for HTTP(S).
    pub token_file: Option<PathBuf>,
    /// User name that goes with the token.
    pub token_user: Option<String>,
    /// Seconds for one request.
    pub timeout_secs: f64,
    /// The malleable partition. Jobs elsewhere are never touched.
    pub partition: String,
    /// QOS for wings; empty takes that of their lead.
    pub qos: String,
    /// Path of scontrol, for what old REST versions lack.
    pub scontrol: PathBuf,
}

/// `[gaps]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GapsConfig {
    /// Seconds from the decision to leave until the node is idle again, until it has been measured.
    pub leave_secs: f64,
    /// Windows shorter than this are not worth starting in, seconds.
    pub min_window_secs: f64,
    /// A node with no planned end is counted on until the chance that it is still free falls below this.
    pub confidence: f64,
    /// No such node is counted on for longer than this, seconds: what is decided for it will soon be decided
    /// anew. See [`crate::gaps::Lookahead`] for when it is less, or more.
    pub lookahead_secs: f64,
    /// A node must have been a gap for this long before it is used, seconds: main jobs often follow at once.
    pub settle_secs: f64,
}

/// `[planner]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlannerConfig {
    /// How far ahead throughput counts, seconds.
    pub horizon_secs: f64,
    /// Most time steps that the horizon is divided into.
    pub max_steps: u32,
    /// Solver's time limit, seconds.
    pub solve_secs: f64,
    /// Relative optimality gap that is good enough.
    pub mip_gap: f64,
    /// Most jobs that may be rescaled in one round, besides those that must.
    pub max_changes: u32,
    /// A job that was just rescaled stays as it is for this long, unless it must leave, seconds.
    pub min_stay_secs: f64,
    /// A change must gain at least this share of the job's present value over the horizon.
    pub hysteresis: f64,
    /// End of leases on nodes without a planned end, seconds from now; renewed at half time.
    pub lease_secs: f64,
    /// Rescale costs of a job that has declared none and of which nothing was measured.
    pub costs: RescaleCosts,
    /// Throughput curves (`nodes:samples a second`, as for `infill run --curve`) by profile or job name, for
    /// jobs that declare none themselves.
    pub curves: BTreeMap<String, Curve>,
    /// Shares of users; others have 1. A user's share is divided over the user's jobs.
    pub shares: BTreeMap<String, f64>,
}

/// `[advisor]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvisorConfig {
    /// Whether jobs are brought to sizes only to measure them.
    pub probe: bool,
    /// Most sizes tried for one profile.
    pub max_probes: u32,
    /// Most seconds of all probes of a profile.
    pub max_probe_secs: f64,
    /// Most probes at a time, of all jobs.
    pub max_at_once: u32,
    /// Most seconds of all probes of all jobs in an hour.
    pub max_secs_an_hour: f64,
    /// Most seconds for which what is learned will be of use.
    pub horizon_secs: f64,
    /// Whether what is known of other users' programs of the same name may help.
    pub share_profiles: bool,
}

/// `[agent]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// URL at which agents and the command line reach the daemon; of several daemons all, separated by
    /// commas.
    pub url: String,
    /// Seconds for which a preempted worker may save before it is killed.
    pub preempt_leave_secs: f64,
    /// Seconds until a wing that was ordered must have said hello; then it is cancelled.
    pub wing_start_secs: f64,
    /// Seconds until a lead that was released must have said hello.
    pub lead_start_secs: f64,
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `sqlite:/path/file.db` or `postgres://user:password@host/database`.
    pub database_url: String,
    /// Days for which a profile is kept of which nothing was learned meanwhile.
    pub keep_profile_days: u32,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        DaemonConfig {
            mode: Mode::Observe,
            listen: "127.0.0.1:6810".to_owned(),
            admins: Vec::new(),
            poll_interval_secs: 5.0,
            max_actions_a_round: 100,
            breaker_failures: 3,
            early_death_secs: 5.0,
            backoff_secs: 30.0,
            backoff_max_secs: 3600.0,
            keep_days: 90,
        }
    }
}

impl Default for SlurmConfig {
    fn default() -> Self {
        SlurmConfig {
            rest: "unix:/run/infill/slurmrestd.sock".to_owned(),
            token_file: None,
            token_user: None,
            timeout_secs: 10.0,
            partition: "infill".to_owned(),
            qos: String::new(),
            scontrol: PathBuf::from("scontrol"),
        }
    }
}

impl Default for GapsConfig {
    fn default() -> Self {
        GapsConfig {
            leave_secs: 15.0,
            min_window_secs: 60.0,
            confidence: 0.1,
            lookahead_secs: 300.0,
            settle_secs: 0.0,
        }
    }
}

impl Default for PlannerConfig {
    fn default() -> Self {
        PlannerConfig {
            horizon_secs: 1800.0,
            max_steps: 6,
            solve_secs: 0.5,
            mip_gap: 0.001,
            max_changes: 20,
            min_stay_secs: 10.0,
            hysteresis: 0.02,
            lease_secs: 3600.0,
            // Measured on Summit for data-parallel PyTorch: about 18 s to grow, 12 s to shrink.
            costs: RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 },
            curves: BTreeMap::new(),
            shares: BTreeMap::new(),
        }
    }
}

impl Default for AdvisorConfig {
    fn default() -> Self {
        AdvisorConfig {
            probe: true,
            max_probes: 3,
            max_probe_secs: 90.0,
            max_at_once: 2,
            max_secs_an_hour: 600.0,
            horizon_secs: 86_400.0,
            share_profiles: false,
        }
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        AgentConfig {
            url: "http://127.0.0.1:6810".to_owned(),
            preempt_leave_secs: 2.0,
            wing_start_secs: 60.0,
            lead_start_secs: 60.0,
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig { database_url: "sqlite:/var/lib/infill/infill.db".to_owned(), keep_profile_days: 365 }
    }
}

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
}

impl Config {
    /// Reads `path`; where there is no path, [`DEFAULT_PATH`] if it exists, else the defaults.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let (path, optional) = match path {
            Some(p) => (p.to_owned(), false),
            None => (PathBuf::from(DEFAULT_PATH), true),
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Config::parse(&text, &path),
            Err(e) if optional && e.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    /// Parses and checks a file's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text)
            .map_err(|e| ConfigError::Parse { path: path.to_owned(), what: e.to_string() })?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let fail =
            |key, value: String, what| Err(ConfigError::Value { path: path.to_owned(), key, value, what });
        let positive: [(&'static str, f64); 10] = [
            ("daemon.poll_interval_secs", self.daemon.poll_interval_secs),
            ("daemon.backoff_secs", self.daemon.backoff_secs),
            ("slurm.timeout_secs", self.slurm.timeout_secs),
            ("planner.horizon_secs", self.planner.horizon_secs),
            ("planner.solve_secs", self.planner.solve_secs),
            ("planner.lease_secs", self.planner.lease_secs),
            ("advisor.horizon_secs", self.advisor.horizon_secs),
            ("agent.wing_start_secs", self.agent.wing_start_secs),
            ("agent.lead_start_secs", self.agent.lead_start_secs),
            ("agent.preempt_leave_secs", self.agent.preempt_leave_secs),
        ];
        // A day bounds every waiting time; a NaN fails the range test.
        if let Some((key, v)) = positive.iter().find(|(_, v)| !(0.05..=86_400.0).contains(v)) {
            return fail(key, v.to_string(), "expected seconds between 0.05 and 86400");
        }
        let not_negative: [(&'static str, f64); 11] = [
            ("gaps.leave_secs", self.gaps.leave_secs),
            ("gaps.settle_secs", self.gaps.settle_secs),
            ("gaps.lookahead_secs", self.gaps.lookahead_secs),
            ("planner.min_stay_secs", self.planner.min_stay_secs),
            ("advisor.max_probe_secs", self.advisor.max_probe_secs),
            ("advisor.max_secs_an_hour", self.advisor.max_secs_an_hour),
            ("planner.costs.up_secs", self.planner.costs.up_secs),
            ("planner.costs.down_secs", self.planner.costs.down_secs),
            ("planner.costs.start_secs", self.planner.costs.start_secs),
            ("daemon.early_death_secs", self.daemon.early_death_secs),
            ("daemon.backoff_max_secs", self.daemon.backoff_max_secs),
        ];
        if let Some((key, v)) = not_negative.iter().find(|(_, v)| !(0.0..=86_400.0).contains(v)) {
            return fail(key, v.to_string(), "expected seconds between 0 and 86400");
        }
        // Slurm counts time limits in minutes.
        if !(60.0..=86_400.0).contains(&self.gaps.min_window_secs) {
            let v = self.gaps.min_window_secs.to_string();
            return fail("gaps.min_window_secs", v, "expected 60 to 86400 seconds");
        }
        if !(0.01..=0.99).contains(&self.gaps.confidence) {
            let v = self.gaps.confidence.to_string();
            return fail("gaps.confidence", v, "expected a chance between 0.01 and 0.99");
        }
        if !(0.0..=1.0).contains(&self.planner.mip_gap) {
            let v = self.planner.mip_gap.to_string();
            return fail("planner.mip_gap", v, "expected a share between 0 and 1");
        }
        if !(1..=24).contains(&self.planner.max_steps) {
            let v = self.planner.max_steps.to_string();
            return fail("planner.max_steps", v, "expected 1 to 24 steps");
        }
        if !(0.0..=1.0).contains(&self.planner.hysteresis) {
            let v = self.planner.hysteresis.to_string();
            return fail("planner.hysteresis", v, "expected a share between 0 and 1");
        }
        if let Some((user, v)) = self.planner.shares.iter().find(|(_, v)| !(1e-6..=1e6).contains(*v)) {
            return fail("planner.shares", format!("{{{user} = {v}}}"), "expected a positive share");
        }
        if self.slurm.partition.is_empty() || self.slurm.partition.contains(',') {
            return fail("slurm.partition", self.slurm.partition.clone(), "expected one partition");
        }
        if !["unix:/", "http://", "https://"].iter().any(|p| self.slurm.rest.starts_with(p)) {
            let v = self.slurm.rest.clone();
            return fail("slurm.rest", v, "expected unix:/path, http://host:port or https://host:port");
        }
        if self.daemon.listen.parse::<std::net::SocketAddr>().is_err() {
            return fail("daemon.listen", self.daemon.listen.clone(), "expected ADDRESS:PORT");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commented_file_says_what_the_code_does() {
        let from_file = Config::parse(DEFAULT_FILE, Path::new("infill.toml")).unwrap();
        assert_eq!(from_file, Config::default());
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let e = Config::parse("[daemon]\nmode = \"act\"\npol = 3\n", Path::new("x.toml")).unwrap_err();
        let text = e.to_string();
        assert!(text.contains("line 3") && text.contains("pol"), "{text}");
    }

    #[test]
    fn curves_are_written_as_on_the_command_line() {
        let text = "[planner.curves]\nresnet = \"1:10,4:35\"\n";
        let config = Config::parse(text, Path::new("x.toml")).unwrap();
        assert_eq!(config.planner.curves["resnet"].rate(4), 35.0);
        assert_eq!(Config::parse(&toml::to_string(&config).unwrap(), Path::new("x.toml")).unwrap(), config);
    }

    #[test]
    fn senseless_values_are_refused() {
        for text in [
            "[daemon]\npoll_interval_secs = nan",
            "[gaps]\nconfidence = 1.5",
            "[slurm]\npartition = \"a,b\"",
            "[slurm]\nrest = \"ftp://x\"",
            "[planner]\nmax_steps = 0",
            "[planner.shares]\nalice = -1.0",
            "[planner.curves]\nx = \"1:0\"",
        ] {
            assert!(Config::parse(text, Path::new("x.toml")).is_err(), "{text}");
        }
    }
}
