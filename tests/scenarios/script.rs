//! The format of a scenario's script. All times are whole seconds from the scenario's beginning. Negative
//! times lie before it.

use std::collections::BTreeMap;
use std::path::Path;

use infill_model::config::Config;
use infill_model::{
    AllowedSizes, BaseState, ControlState, JobId, NodeName, NodeType, ScalingCurve, SnapshotDoubt,
    hostlist::{self, HostlistError},
};
use serde::Deserialize;

/// The `bf_exit` of a cycle in which backfill looked at the whole queue.
const COMPLETE: &str = "end_job_queue";

/// A cluster, its main queue, malleable jobs, and the moments of infill's rounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What happens, and what an administrator should expect to see.
    pub about: String,
    /// Moments of the rounds, ascending.
    pub rounds: Vec<i64>,
    /// Differences from the default configuration.
    #[serde(default)]
    pub config: Config,
    /// The cluster.
    pub nodes: Vec<Nodes>,
    /// States of nodes beyond idle and allocated.
    #[serde(default)]
    pub states: Vec<State>,
    /// Jobs of the main queue.
    #[serde(default)]
    pub main: Vec<Main>,
    /// Reservations.
    #[serde(default)]
    pub reservations: Vec<Reserved>,
    /// Why backfill's cycles ended, from given moments on. At first they look at the whole queue.
    #[serde(default)]
    pub backfill: Vec<Cycle>,
    /// Periods in which snapshots cannot be trusted.
    #[serde(default)]
    pub doubts: Vec<Doubtful>,
    /// An administrator's orders, from some moment on.
    #[serde(default)]
    pub orders: Vec<Order>,
    /// Malleable jobs.
    #[serde(default)]
    pub malleable: Vec<Malleable>,
}

/// Nodes by Slurm's host list, `n[1-4]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Hosts(pub Vec<NodeName>);

impl TryFrom<String> for Hosts {
    type Error = HostlistError;
    fn try_from(list: String) -> Result<Self, HostlistError> {
        hostlist::expand_hostlist(&list).map(Hosts)
    }
}

/// Nodes of one type.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Their names.
    pub names: Hosts,
    /// Their type.
    #[serde(rename = "type", default = "any_type")]
    pub node_type: NodeType,
}

fn any_type() -> NodeType {
    NodeType::new("node")
}

/// Words in the state of nodes, such as `DRAIN`, for some time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The nodes.
    pub nodes: Hosts,
    /// The words, joined by `+`.
    pub words: String,
    /// First moment.
    pub from: i64,
    /// First moment without the words; absent: they stay.
    pub until: Option<i64>,
}

/// A job of the main queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Main {
    /// Its id.
    pub id: JobId,
    /// The nodes on which it runs.
    pub nodes: Hosts,
    /// When it is submitted; absent: when it starts, or at the beginning.
    pub submit: Option<i64>,
    /// When it starts; absent: not in this scenario.
    pub start: Option<i64>,
    /// Its time limit, minutes.
    pub limit_mins: u64,
    /// When it ends; absent: at its limit.
    pub ends: Option<i64>,
    /// What backfill plans for it while it waits.
    #[serde(default)]
    pub planned: Vec<PlannedStart>,
}

/// From a moment on backfill plans this start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStart {
    /// From when on it is planned.
    pub from: i64,
    /// The planned start; absent: none.
    pub start: Option<i64>,
    /// The planned nodes; absent: those where it will run.
    pub nodes: Option<Hosts>,
}

/// A reservation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Hosts,
    /// First moment.
    pub start: i64,
    /// Last moment.
    pub end: i64,
    /// When an administrator makes it; absent: before the beginning.
    pub known_from: Option<i64>,
}

/// How backfill's cycles end from a moment on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycle {
    /// From when on.
    pub from: i64,
    /// `bf_exit`.
    pub exit: String,
}

/// A period in which snapshots are doubtful.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doubtful {
    /// First moment.
    pub from: i64,
    /// First moment at which they can be trusted again.
    pub until: i64,
    /// The reason.
    pub doubt: SnapshotDoubt,
}

/// An administrator's order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// When it is given.
    pub from: i64,
    /// The order.
    pub order: ControlState,
}

/// One malleable job, or several similar ones.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Malleable {
    /// Its id; for several jobs the id of the first.
    pub id: JobId,
    /// Number of jobs.
    #[serde(default = "one")]
    pub count: u32,
    /// Owner. A user's share (`config.planner.shares`) is divided over the user's jobs.
    #[serde(default = "anybody")]
    pub user: String,
    /// Allowed sizes.
    pub sizes: AllowedSizes,
    /// The curve that it declares; absent: none.
    pub curve: Option<ScalingCurve>,
    /// Total samples after which it ends, at the rate of its curve. Absent: it makes samples forever if it
    /// declares a total, else it reports none.
    pub makes: Option<f64>,
    /// Total samples that it declares; absent: none.
    pub says: Option<f64>,
    /// Least samples a second that it is promised; absent: none.
    pub at_least: Option<f64>,
    /// Number of nodes whose rate it is promised; absent: none.
    pub as_asked: Option<u32>,
    /// Earlier measurements of its program, by node type.
    #[serde(default)]
    pub measured: BTreeMap<NodeType, ScalingCurve>,
    /// When it is submitted.
    #[serde(default)]
    pub submit: i64,
    /// When it ends; absent: not in this scenario.
    pub ends: Option<i64>,
}

fn one() -> u32 {
    1
}

fn anybody() -> String {
    "alice".to_owned()
}

impl Malleable {
    /// Ids of all similar jobs.
    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        let first = self.id.0;
        (0..self.count).map(move |i| JobId(first.saturating_add(i)))
    }
}

impl Main {
    /// When it enters the queue.
    pub fn submitted(&self) -> i64 {
        self.submit.unwrap_or_else(|| self.start.unwrap_or(0).min(0))
    }

    /// When it leaves its nodes; the end of time for one that does not start.
    pub fn ended(&self) -> i64 {
        self.ends.unwrap_or_else(|| {
            self.start.map_or(i64::MAX, |start: i64| {
                start.saturating_add(self.limit_mins.min(10_000_000) as i64 * 60)
            })
        })
    }

    /// Its state at a moment; `None` before and after its life.
    pub fn state(&self, at: i64) -> Option<BaseState> {
        let started = self.start.is_some_and(|start| start <= at);
        match at {
            at if at >= self.ended() || at < self.submitted() => None,
            _ if started => Some(BaseState::Running),
            _ => Some(BaseState::Pending),
        }
    }

    /// What backfill plans for it at a moment: start and nodes.
    pub fn plan(&self, at: i64) -> Option<(i64, &[NodeName])> {
        let planned = self.planned.iter().rfind(|p| p.from <= at)?;
        Some((planned.start?, &planned.nodes.as_ref().unwrap_or(&self.nodes).0))
    }
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// A description of the mistake and its place.
    pub fn parse(text: &str, path: &Path) -> Result<Script, String> {
        let wrong = |what: String| format!("{}: {what}", path.display());
        let script: Script = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let config = toml::to_string(&script.config).map_err(|e| wrong(format!("config: {e}")))?;
        Config::parse(&config, &path.join("config")).map_err(|e| e.to_string())?;
        script.check().map_err(wrong)?;
        Ok(script)
    }

    /// Why backfill's last cycle before this moment ended, and whether it looked at the whole queue.
    pub fn bf_exit(&self, at: i64) -> (&str, bool) {
        let exit = self.backfill.iter().rfind(|c| c.from <= at).map_or(COMPLETE, |c| c.exit.as_str());
        (exit, exit == COMPLETE)
    }

    /// The order in force at a moment.
    pub fn order(&self, at: i64) -> ControlState {
        self.orders.iter().rfind(|o| o.from <= at).map(|o| o.order).unwrap_or_default()
    }
}
