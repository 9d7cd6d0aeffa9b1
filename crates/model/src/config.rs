//! The configuration file: one commented TOML file, `config/infill.toml`, which is also in the binary.
//!
//! Unknown keys are refused with their line; those that were removed are told of for one release. A flag wins
//! over the environment, that over the file, that over the default.

mod client;
mod daemon;
mod error;
mod http;
mod nodes;
mod notify;
mod removed;
mod report;
mod rule;
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
pub(crate) use store::StoreConfig;
pub use web::WebConfig;

/// The commented default file.
pub const DEFAULT_FILE: &str = include_str!("../../../config/infill.toml");

/// Where the file is looked for when neither flag nor `INFILL_CONFIG` says.
pub const DEFAULT_PATH: &str = "/etc/infill/infill.toml";

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The daemon.
    pub daemon: DaemonConfig,
    /// The HTTP API.
    pub http: HttpConfig,
    /// The page behind a site's own web server.
    pub web: WebConfig,
    /// How to reach Slurm.
    pub slurm: SlurmConfig,
    /// The gap finder.
    pub gaps: GapsConfig,
    /// What parts of nodes are lent, where it is not whole ones.
    pub nodes: LendingRules,
    /// The planner.
    pub planner: PlannerConfig,
    /// The job profiling advisor.
    pub advisor: AdvisorConfig,
    /// The agents.
    pub agent: AgentConfig,
    /// The store.
    pub store: StoreConfig,
    /// Who is told of what administrators should know.
    pub notify: NotifyConfig,
    /// What reports say of costs.
    pub report: ReportConfig,
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
    /// Most wings of all malleable jobs together. With those that have ended and that slurmctld still keeps
    /// there are at most three times as many.
    pub max_wings: u32,
    /// Path of scontrol, for what old REST versions lack.
    pub scontrol: PathBuf,
}

/// `[gaps]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GapsConfig {
    /// Seconds from the decision to leave until the node is idle again, at the least and until it was
    /// measured.
    pub leave_secs: f64,
    /// Most seconds by which a job leaves earlier because others save at the same time; 0: each leaves as if
    /// it saved alone. See [`crate::SaveContention`].
    pub contention_secs: f64,
    /// Windows shorter than this are not worth starting in, seconds.
    pub min_window_secs: f64,
    /// A node with no planned end is counted on until the chance that it is still free falls below this.
    pub confidence: f64,
    /// No such node is counted on for longer than this, seconds: what is decided for it will soon be decided
    /// anew. See [`infill_gaps::ArrivalLookahead`] for when it is less, or more.
    pub lookahead_secs: f64,
    /// A node must have been a gap for this long before it is used, seconds: main jobs often follow at once.
    pub settle_secs: f64,
    /// Nodes that are left alone while they are idle, so that Slurm can switch them off.
    pub keep_idle: KeepIdle,
    /// Whether nodes that Slurm has switched off are gaps: it switches on those that jobs are started on.
    pub wake: bool,
    /// What is lent: whole nodes, or GPUs with their share of a node.
    pub lend: LendingMode,
}

/// `[planner]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlannerConfig {
    /// What it strives for.
    pub objective: PlanningObjective,
    /// Seconds after which half of what a user has had of the gaps counts, where jobs shall end soon.
    pub usage_half_life_secs: f64,
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
    /// A change must gain at least this share of the job's present value over the horizon; in proportion less
    /// where the job's changes cost less than the configured ones.
    pub hysteresis: f64,
    /// End of leases on nodes without a planned end, seconds from now; renewed at half time.
    pub lease_secs: f64,
    /// Rescale costs of a job that has declared none and of which nothing was measured.
    pub costs: RescaleCosts,
    /// The same of a command that stays alive over changes, of which nothing was measured.
    pub live_costs: LiveCosts,
    /// Throughput curves (`nodes:samples a second`, as for `infill run --curve`) by profile or job name, for
    /// jobs that declare none themselves.
    pub curves: BTreeMap<String, ScalingCurve>,
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
    /// Most seconds of all probes of a profile; of a program with several execution plans 15 more for each
    /// further one.
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
    /// The user as whom the daemon runs: nobody else is believed to be the daemon, but root and SlurmUser.
    pub daemon_user: String,
    /// PEM file with the authorities of the daemon's certificate, and no other is believed; none: the
    /// system's.
    pub ca: Option<PathBuf>,
    /// Seconds for which a preempted worker may save before it is killed.
    pub preempt_leave_secs: f64,
    /// Seconds until a wing that was ordered must have said hello; then it is cancelled.
    pub wing_start_secs: f64,
    /// Seconds until a lead that was released must have said hello.
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
                let known = ["unix:/", "http://", "https://"].iter().any(|p| c.rest.starts_with(p));
                (!known).then(|| c.rest.clone())
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
            // As Slurm's PriorityDecayHalfLife.
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
    /// The share of a user.
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

/// A file's text and path: of `path`, or of [`DEFAULT_PATH`], which may be missing.
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
    /// Reads `path`; where there is no path, [`DEFAULT_PATH`] if it exists, else the defaults.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        Config::load_with_removed(path).map(|(config, _)| config)
    }

    /// The same, and the removed keys that the file has.
    ///
    /// # Errors
    /// When the file cannot be read, or is no configuration.
    pub fn load_with_removed(path: Option<&Path>) -> Result<(Config, Vec<RemovedKey>), ConfigError> {
        match read_file(path)? {
            Some((text, path)) => Config::read_text(&text, &path),
            None => Ok((Config::default(), Vec::new())),
        }
    }

    /// Parses and checks a file's text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        Config::read_text(text, path).map(|(config, _)| config)
    }

    fn read_text(text: &str, path: &Path) -> Result<(Config, Vec<RemovedKey>), ConfigError> {
        let (rest, removed) = removed::without_removed(text);
        let read = toml::from_str(&rest).or_else(|e| removed::read_without(text, &removed).ok_or(e));
        let config: Config =
            read.map_err(|e| ConfigError::Parse { path: path.to_owned(), what: e.to_string() })?;
        config.check(path)?;
        Ok((config, removed))
    }

    /// Reads the files with secrets that it names, to see whether they are as they should be.
    ///
    /// # Errors
    /// When one cannot be read, others may read it, or it holds no such secret.
    pub fn check_secrets(&self) -> Result<(), ConfigError> {
        self.store.connection_url()?;
        self.notify.notice_url().map(drop)
    }

    /// A port has TLS for all, or for none.
    fn find_scheme_conflict(&self) -> Option<(&'static str, String, &'static str)> {
        let plain = self.agent.url.split(',').any(|url| url.trim_start().starts_with("http://"));
        let is_wrong = self.daemon.tls_cert.is_some() && plain;
        is_wrong
            .then(|| ("agent.url", self.agent.url.clone(), "expected https://, for daemon.tls_cert is set"))
    }

    /// The sections in the file's order; of each the first value that breaks a rule.
    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let broken = first_broken(DaemonConfig::RULES, &self.daemon)
            .or_else(|| first_broken(HttpConfig::RULES, &self.http))
            .or_else(|| first_broken(WebConfig::RULES, &self.web))
            .or_else(|| first_broken(SlurmConfig::RULES, &self.slurm))
            .or_else(|| first_broken(GapsConfig::RULES, &self.gaps))
            .or_else(|| first_broken(nodes::RULES, &self.nodes))
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
