//! The configuration file: one commented TOML file, `config/infill.toml`, which is also in the binary.
//!
//! Unknown keys are refused with their line. Removed keys give a warning for one release. A flag wins over
//! the environment, the environment over the file, and the file over the default.

mod client;
mod daemon;
mod error;
mod http;
mod nodes;
mod notify;
mod removed;
mod report;
mod rule;
mod safety;
mod secrets;
mod store;
#[cfg(test)]
mod tests;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    KeepIdle, LendingMode, LendingRules, LiveCosts, PlanningObjective, ReportConfig, RescaleCosts,
    ScalingCurve,
};
pub use client::ClientConfig;
pub use daemon::DaemonConfig;
pub use error::ConfigError;
pub use http::HttpConfig;
pub use notify::NotifyConfig;
pub use removed::RemovedKey;
use rule::{ConfigRule, first_broken};
pub use safety::{DelayAction, SafetyConfig};
pub(crate) use store::StoreConfig;
pub use web::WebConfig;

/// The commented default file, `config/infill.toml`.
pub const DEFAULT_FILE: &str = include_str!("../../../config/infill.toml");

/// The path of the file if neither a flag nor `INFILL_CONFIG` names one.
pub const DEFAULT_PATH: &str = "/etc/infill/infill.toml";

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[daemon]`: mode, port and administrators of the daemon.
    pub daemon: DaemonConfig,
    /// `[http]`: access to the HTTP API.
    pub http: HttpConfig,
    /// `[web]`: the page behind a site's own web server.
    pub web: WebConfig,
    /// `[slurm]`: how the daemon reaches Slurm.
    pub slurm: SlurmConfig,
    /// `[gaps]`: the gap finder.
    pub gaps: GapsConfig,
    /// `[nodes]`: the parts of nodes that are lent, if they are not whole nodes.
    pub nodes: LendingRules,
    /// `[safety]`: limits on infill as a whole.
    pub safety: SafetyConfig,
    /// `[planner]`: the planner.
    pub planner: PlannerConfig,
    /// `[advisor]`: the job profiling advisor.
    pub advisor: AdvisorConfig,
    /// `[agent]`: the agents.
    pub agent: AgentConfig,
    /// `[store]`: the database.
    pub store: StoreConfig,
    /// `[notify]`: how administrators are notified of events.
    pub notify: NotifyConfig,
    /// `[report]`: costs, for reports.
    pub report: ReportConfig,
}

/// `[slurm]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmConfig {
    /// Where slurmrestd listens: `unix:/path` or `http(s)://host:port`.
    pub rest: String,
    /// A file with a JWT, for HTTP(S).
    pub token_file: Option<PathBuf>,
    /// The user name that belongs to the token.
    pub token_user: Option<String>,
    /// Timeout of one request, in seconds.
    pub timeout_secs: f64,
    /// The malleable partition. Jobs in other partitions are never touched.
    pub partition: String,
    /// QOS of wings; empty for the QOS of their lead.
    pub qos: String,
    /// Most wings of all malleable jobs together. Slurm has at most three times as many, counting ended ones
    /// that slurmctld still keeps.
    pub max_wings: u32,
    /// Path of scontrol, for operations that old REST versions lack.
    pub scontrol: PathBuf,
}

/// `[gaps]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GapsConfig {
    /// Seconds from the decision to leave until the node is idle again. This is the minimum, and the value
    /// to use until it has been measured.
    pub leave_secs: f64,
    /// The most that a job leaves earlier because others save at the same time, in seconds. With 0, each job
    /// leaves as if it saved alone. See [`crate::SaveContention`].
    pub contention_secs: f64,
    /// The shortest window that is worth starting in, in seconds.
    pub min_window_secs: f64,
    /// The planner counts on a node without a planned end until its chance to be still free falls below this.
    pub confidence: f64,
    /// The longest time for which the planner counts on such a node, in seconds: the daemon soon decides
    /// again. `infill_gaps::ArrivalLookahead` says when the time is shorter or longer.
    pub lookahead_secs: f64,
    /// How long a node must have been a gap before it is used, in seconds: main jobs often follow at once.
    pub settle_secs: f64,
    /// Idle nodes that are left alone, so that Slurm can switch them off.
    pub keep_idle: KeepIdle,
    /// Whether nodes that Slurm has switched off are gaps. Slurm switches them on when a job starts there.
    pub wake: bool,
    /// What the site lends: whole nodes, or GPUs with their share of a node.
    pub lend: LendingMode,
}

/// `[planner]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlannerConfig {
    /// The goal of planning.
    pub objective: PlanningObjective,
    /// Seconds after which a user's past usage of gaps counts half, with the objective to end jobs soon.
    pub usage_half_life_secs: f64,
    /// How far ahead throughput counts, in seconds.
    pub horizon_secs: f64,
    /// Most time steps that the horizon is divided into.
    pub max_steps: u32,
    /// The solver's time limit, in seconds.
    pub solve_secs: f64,
    /// The relative optimality gap at which the solver stops.
    pub mip_gap: f64,
    /// Most jobs that may be rescaled in one round, besides those that must change.
    pub max_changes: u32,
    /// How long a job stays as it is after a rescale unless it must leave, in seconds.
    pub min_stay_secs: f64,
    /// A change must gain at least this share of the job's present value over the horizon. If the job's
    /// changes cost less than the configured ones, the share is proportionally smaller.
    pub hysteresis: f64,
    /// End of leases on nodes without a planned end, in seconds from now. Leases are renewed at half time.
    pub lease_secs: f64,
    /// Rescale costs of a job that has neither declared nor measured costs.
    pub costs: RescaleCosts,
    /// Rescale costs of a command that stays alive over changes, if none were measured.
    pub live_costs: LiveCosts,
    /// Throughput curves (`nodes:samples a second`, as for `infill run --curve`) by name of profile or job,
    /// for jobs that declare none.
    pub curves: BTreeMap<String, ScalingCurve>,
    /// Shares of users; other users have 1. A user's share is divided over the user's jobs.
    pub shares: BTreeMap<String, f64>,
}

/// `[advisor]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvisorConfig {
    /// Whether jobs may be brought to a size only to measure it.
    pub probe: bool,
    /// Most sizes tried for one profile.
    pub max_probes: u32,
    /// Most seconds of all probes of a profile. A program with several execution plans gets 15 more for each
    /// further plan.
    pub max_probe_secs: f64,
    /// Most probes at a time, over all jobs.
    pub max_at_once: u32,
    /// Most seconds of all probes of all jobs within an hour.
    pub max_secs_an_hour: f64,
    /// Most seconds for which a measurement is expected to be of use.
    pub horizon_secs: f64,
    /// Whether measurements of other users' programs with the same name may be used.
    pub share_profiles: bool,
}

/// `[agent]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// URL at which agents and the command line reach the daemon. URLs of several daemons are separated by
    /// commas.
    pub url: String,
    /// The user as which the daemon runs. Agents believe only this user, root and SlurmUser to be the daemon.
    pub daemon_user: String,
    /// PEM file with the only authorities that may sign the daemon's certificate. `None` for the system's
    /// authorities.
    pub ca: Option<PathBuf>,
    /// Seconds for which a preempted worker may save before it is killed.
    pub preempt_leave_secs: f64,
    /// Seconds within which an ordered wing must contact the daemon. After that it is cancelled.
    pub wing_start_secs: f64,
    /// Seconds within which a released lead must contact the daemon.
    pub lead_start_secs: f64,
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
            max_wings: 1000,
            scontrol: PathBuf::from("scontrol"),
        }
    }
}

impl SlurmConfig {
    const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::some_secs("slurm.timeout_secs", |c| c.timeout_secs),
        ConfigRule::custom_check(
            "slurm.partition",
            |c| (c.partition.is_empty() || c.partition.contains(',')).then(|| c.partition.clone()),
            "expected one partition",
        ),
        ConfigRule::custom_check(
            "slurm.rest",
            |c| {
                let has_known_scheme =
                    ["unix:/", "http://", "https://"].iter().any(|scheme| c.rest.starts_with(scheme));
                if has_known_scheme { None } else { Some(c.rest.clone()) }
            },
            "expected unix:/path, http://host:port or https://host:port",
        ),
    ];
}

impl Default for GapsConfig {
    fn default() -> Self {
        GapsConfig {
            leave_secs: 15.0,
            contention_secs: 600.0,
            min_window_secs: 60.0,
            confidence: 0.1,
            lookahead_secs: 300.0,
            settle_secs: 0.0,
            keep_idle: KeepIdle::default(),
            wake: false,
            lend: LendingMode::Nodes,
        }
    }
}

impl GapsConfig {
    const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::any_secs("gaps.leave_secs", |c| c.leave_secs),
        ConfigRule::any_secs("gaps.contention_secs", |c| c.contention_secs),
        ConfigRule::any_secs("gaps.settle_secs", |c| c.settle_secs),
        ConfigRule::any_secs("gaps.lookahead_secs", |c| c.lookahead_secs),
        // Slurm counts time limits in minutes.
        ConfigRule::within_bounds(
            "gaps.min_window_secs",
            |c| c.min_window_secs,
            60.0..=86_400.0,
            "expected 60 to 86400 seconds",
        ),
        ConfigRule::within_bounds(
            "gaps.confidence",
            |c| c.confidence,
            0.01..=0.99,
            "expected a chance between 0.01 and 0.99",
        ),
    ];
}

impl Default for PlannerConfig {
    fn default() -> Self {
        PlannerConfig {
            objective: PlanningObjective::default(),
            // Slurm's PriorityDecayHalfLife has the same default.
            usage_half_life_secs: 7.0 * 86_400.0,
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
            // Expected with NCCL: 2 to 5 s to grow, most of it the new communicator, and less to shrink.
            live_costs: LiveCosts { up_secs: 3.0, down_secs: 2.0 },
            curves: BTreeMap::new(),
            shares: BTreeMap::new(),
        }
    }
}

impl PlannerConfig {
    /// The configured share of a user, else 1.
    pub fn user_share(&self, user: &str) -> f64 {
        self.shares.get(user).copied().unwrap_or(1.0)
    }

    const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::some_secs("planner.horizon_secs", |c| c.horizon_secs),
        ConfigRule::some_secs("planner.solve_secs", |c| c.solve_secs),
        ConfigRule::some_secs("planner.lease_secs", |c| c.lease_secs),
        ConfigRule::any_secs("planner.min_stay_secs", |c| c.min_stay_secs),
        ConfigRule::any_secs("planner.costs.up_secs", |c| c.costs.up_secs),
        ConfigRule::any_secs("planner.costs.down_secs", |c| c.costs.down_secs),
        ConfigRule::any_secs("planner.costs.start_secs", |c| c.costs.start_secs),
        ConfigRule::any_secs("planner.live_costs.up_secs", |c| c.live_costs.up_secs),
        ConfigRule::any_secs("planner.live_costs.down_secs", |c| c.live_costs.down_secs),
        ConfigRule::unit_share("planner.mip_gap", |c| c.mip_gap),
        ConfigRule::within_bounds(
            "planner.max_steps",
            |c| f64::from(c.max_steps),
            1.0..=24.0,
            "expected 1 to 24 steps",
        ),
        ConfigRule::within_bounds(
            "planner.usage_half_life_secs",
            |c| c.usage_half_life_secs,
            60.0..=1e9,
            "expected seconds between 60 and 1000000000",
        ),
        ConfigRule::unit_share("planner.hysteresis", |c| c.hysteresis),
        ConfigRule::custom_check(
            "planner.shares",
            |c| {
                let wrong = c.shares.iter().find(|(_, v)| !(1e-6..=1e6).contains(*v));
                wrong.map(|(user, v)| format!("{{{user} = {v}}}"))
            },
            "expected a positive share",
        ),
    ];
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

impl AdvisorConfig {
    const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::some_secs("advisor.horizon_secs", |c| c.horizon_secs),
        ConfigRule::any_secs("advisor.max_probe_secs", |c| c.max_probe_secs),
        ConfigRule::any_secs("advisor.max_secs_an_hour", |c| c.max_secs_an_hour),
    ];
}

impl Default for AgentConfig {
    fn default() -> Self {
        AgentConfig {
            url: "http://127.0.0.1:6810".to_owned(),
            daemon_user: "infill".to_owned(),
            ca: None,
            preempt_leave_secs: 2.0,
            wing_start_secs: 60.0,
            lead_start_secs: 60.0,
        }
    }
}

impl AgentConfig {
    const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::some_secs("agent.wing_start_secs", |c| c.wing_start_secs),
        ConfigRule::some_secs("agent.lead_start_secs", |c| c.lead_start_secs),
        ConfigRule::some_secs("agent.preempt_leave_secs", |c| c.preempt_leave_secs),
        ConfigRule::custom_check(
            "agent.daemon_user",
            |c| c.daemon_user.is_empty().then(|| c.daemon_user.clone()),
            "expected the name of a user",
        ),
    ];
}

/// The text and the path of `path`, or of [`DEFAULT_PATH`], which may be missing.
fn read_file(path: Option<&Path>) -> Result<Option<(String, PathBuf)>, ConfigError> {
    let (path, optional) = match path {
        Some(p) => (p.to_owned(), false),
        None => (PathBuf::from(DEFAULT_PATH), true),
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((text, path))),
        Err(e) if optional && e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Read { path, source }),
    }
}

impl Config {
    /// Reads `path`. Without a path it reads [`DEFAULT_PATH`] if that exists, else it takes the defaults.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a valid configuration.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        Config::load_with_removed(path).map(|(config, _)| config)
    }

    /// Reads as [`Config::load`] does, and returns the removed keys that the file has.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a valid configuration.
    pub fn load_with_removed(path: Option<&Path>) -> Result<(Config, Vec<RemovedKey>), ConfigError> {
        match read_file(path)? {
            Some((text, path)) => Config::read_text(&text, &path),
            None => Ok((Config::default(), Vec::new())),
        }
    }

    /// Parses and checks a file's text. `path` is for messages.
    ///
    /// # Errors
    /// If the text is not a valid configuration.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        Config::read_text(text, path).map(|(config, _)| config)
    }

    fn read_text(text: &str, path: &Path) -> Result<(Config, Vec<RemovedKey>), ConfigError> {
        let (without_removed, removed) = removed::without_removed(text);
        let parsed =
            toml::from_str(&without_removed).or_else(|e| removed::read_without(text, &removed).ok_or(e));
        let config: Config =
            parsed.map_err(|e| ConfigError::Parse { path: path.to_owned(), what: e.to_string() })?;
        config.check(path)?;
        Ok((config, removed))
    }

    /// Reads the files with secrets that the configuration names, to check them.
    ///
    /// # Errors
    /// If a file cannot be read, other users may read it, or it does not hold the expected secret.
    pub fn check_secrets(&self) -> Result<(), ConfigError> {
        self.store.connection_url()?;
        self.notify.notice_url().map(drop)
    }

    /// Finds a plain `agent.url` of a daemon with TLS: a port has TLS for all clients, or for none.
    fn find_scheme_conflict(&self) -> Option<(&'static str, String, &'static str)> {
        let has_plain_url = self.agent.url.split(',').any(|url| url.trim_start().starts_with("http://"));
        if self.daemon.tls_cert.is_none() || !has_plain_url {
            return None;
        }
        Some(("agent.url", self.agent.url.clone(), "expected https://, because daemon.tls_cert is set"))
    }

    /// Checks the sections in the file's order, and reports the first value that breaks a rule.
    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let broken = first_broken(DaemonConfig::RULES, &self.daemon)
            .or_else(|| first_broken(HttpConfig::RULES, &self.http))
            .or_else(|| first_broken(WebConfig::RULES, &self.web))
            .or_else(|| first_broken(SlurmConfig::RULES, &self.slurm))
            .or_else(|| first_broken(GapsConfig::RULES, &self.gaps))
            .or_else(|| first_broken(nodes::RULES, &self.nodes))
            .or_else(|| first_broken(SafetyConfig::RULES, &self.safety))
            .or_else(|| first_broken(PlannerConfig::RULES, &self.planner))
            .or_else(|| first_broken(AdvisorConfig::RULES, &self.advisor))
            .or_else(|| first_broken(AgentConfig::RULES, &self.agent))
            .or_else(|| first_broken(StoreConfig::RULES, &self.store))
            .or_else(|| first_broken(NotifyConfig::RULES, &self.notify))
            .or_else(|| first_broken(report::RULES, &self.report))
            .or_else(|| self.find_scheme_conflict());
        match broken {
            None => Ok(()),
            Some((key, value, what)) => Err(ConfigError::Value { path: path.to_owned(), key, value, what }),
        }
    }
}
