//! What people see and order: status, rounds, generations, control.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::{
    ControlState, DaemonMode, ExecPlan, GenerationRecord, JobId, MalleableState, NodeName, Plan, ProfileKey,
    RateSource, RoundReport, UnixTime, UserId,
};

/// An administrator's order: `POST /v1/control`. The credential's purpose is `control`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Proof of who speaks.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// What to do from now on.
    pub control: ControlState,
}

/// What of `GET /v1/status` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StatusQuery {
    /// Whether its nodes are.
    #[serde(default = "yes")]
    pub nodes: bool,
    /// Whether that will do which others were told since the last look at Slurm.
    #[serde(default)]
    pub shared: bool,
}

fn yes() -> bool {
    true
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// infill's version.
    pub version: String,
    /// Slurm's version, once known.
    pub slurm: Option<String>,
    /// REST version in use, such as `v0.0.42`.
    pub rest: Option<String>,
    /// The number of the user that the daemon runs as; `None` of an older daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<UserId>,
    /// Mode from the configuration.
    pub mode: DaemonMode,
    /// Order of an administrator.
    pub control: ControlState,
    /// Start of the daemon.
    pub started_at: UnixTime,
    /// Last round that ended; `None` before the first.
    pub last_round: Option<UnixTime>,
    /// What is wrong now, each a sentence: doubtful snapshots, unreachable parts, open circuit breakers.
    pub problems: Vec<String>,
    /// How true what was expected of jobs came out lately; `None` before one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<LengthsView>,
    /// All nodes of the malleable partition.
    pub nodes: Vec<NodeView>,
    /// All malleable jobs.
    pub jobs: Vec<JobView>,
    /// What is not shown to this reader.
    #[serde(default, skip_serializing_if = "Hidden::is_nothing")]
    pub hidden: Hidden,
}

/// How true the lengths came out that were expected of the last jobs that ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthsView {
    /// Jobs that count.
    pub jobs: usize,
    /// Share of them that was expected within a factor of two, 0 to 1.
    pub within_2x: f64,
    /// Share within the interval from 10 to 90 %, 0 to 1: 0.8 if it is what it says.
    pub in_interval: f64,
    /// Share that counted as predictable, 0 to 1.
    pub predictable: f64,
}

/// What Slurm's `PrivateData` keeps from a reader: counted, and not named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hidden {
    /// Malleable jobs of other users.
    pub jobs: u32,
    /// Nodes that those hold.
    pub job_nodes: u32,
    /// Nodes that are left out, by what they are for the main queue.
    pub nodes: BTreeMap<NodeKind, u32>,
}

impl Hidden {
    /// Whether everything is shown.
    pub fn is_nothing(&self) -> bool {
        *self == Hidden::default()
    }
}

/// A node as `infill gaps` and `infill status` show it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Name.
    pub node: NodeName,
    /// Node type.
    pub node_type: String,
    /// Slurm's state words joined by `+`.
    pub state: String,
    /// What it is for the main queue: `busy` (a main job runs), `gap`, `held` (a gap that infill uses),
    /// `refused`.
    pub kind: NodeKind,
    /// The malleable job that holds it.
    pub job: Option<JobId>,
    /// The main job that runs on it.
    pub main_job: Option<JobId>,
    /// Since when it is a gap.
    pub since: Option<UnixTime>,
    /// When the main queue wants it back, if planned.
    pub window_end: Option<UnixTime>,
    /// Who wants it back, in words.
    pub wanted_by: Option<String>,
    /// Until when the planner counts on it.
    pub usable_until: Option<UnixTime>,
    /// Why it is refused.
    pub why: Option<String>,
    /// What main jobs leave idle on it, where they share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleShare>,
    /// What malleable jobs have met on it within the last hour, oldest first.
    #[serde(default)]
    pub failures: Vec<NodeFailure>,
}

/// GPUs that are idle beside the jobs of a node, with the CPUs and the memory that are their share of the
/// node; CPUs with theirs, where it has no GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleShare {
    /// GPUs; 0 where the node has none.
    pub gpus: u32,
    /// CPUs.
    pub cpus: u32,
    /// MiB.
    pub memory_mib: u64,
}

/// Something that a malleable job met on a node. Whose fault it was is open: two jobs of a user close the
/// node to that user, jobs of two users to everybody, for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFailure {
    /// Which job, to those who may see it.
    pub job: Option<JobId>,
    /// When.
    pub at: UnixTime,
    /// What it was.
    pub what: String,
}

/// What a node is for the main queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A main job runs on it.
    Busy,
    /// Idle and usable.
    Gap,
    /// Used by infill.
    Held,
    /// Not usable.
    Refused,
}

/// A malleable job as `infill jobs` shows it. Carries nothing of the user's environment or command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// Lead's job id.
    pub job: JobId,
    /// Job name.
    pub name: String,
    /// Owner.
    pub user: String,
    /// Where it is in its life.
    pub state: MalleableState,
    /// Allowed sizes.
    pub sizes: String,
    /// Nodes held, lead first.
    pub nodes: Vec<NodeName>,
    /// Of a job of the main queue that wings extend, how many of them are its own: they come first.
    #[serde(default, skip_serializing_if = "is_none_of_them")]
    pub own: u32,
    /// Present generation; 0 before the first.
    pub generation: u64,
    /// Rescales so far.
    pub rescales: u32,
    /// Restarts after failures so far.
    pub restarts: u32,
    /// Times that it had to be killed at a rescale.
    pub kills: u32,
    /// Last step reported.
    pub step: Option<u64>,
    /// Last loss reported.
    pub loss: Option<f64>,
    /// Samples reported in all.
    pub samples: f64,
    /// Samples a second now.
    pub rate: Option<f64>,
    /// The wings' Slurm job ids.
    pub wings: Vec<JobId>,
    /// Why it has what it has, from the last round.
    pub why: String,
    /// Why it has fewer wings than the plan gives it: what Slurm, sbatch or `slurm.max_wings` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<String>,
    /// Its rate as a share of what proportional scaling from its smallest size would give.
    #[serde(default)]
    pub efficiency: Option<f64>,
    /// What the advisor knows of it, and why it will or will not try another size.
    #[serde(default)]
    pub advice: String,
    /// In what time it leaves a node, and what its owner should know of how it saves.
    #[serde(default)]
    pub leaving: String,
    /// How it changes its size, and what that costs.
    #[serde(default)]
    pub changing: String,
    /// When it will have ended at its present rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<EndView>,
    /// Why its turn comes when it does: what is expected of its length, and what its owner has had.
    #[serde(default)]
    pub turn: String,
    /// The profile that it measures, on its usual type of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileKey>,
    /// Its execution plans on the nodes that it has, where it holds any and has several: the one
    /// that it runs, and then the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanView>,
}

/// When a job that trains will have ended at its present rate, seconds from now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndView {
    /// One of ten such jobs ends sooner.
    pub low_secs: f64,
    /// One of two.
    pub median_secs: f64,
    /// One of ten later.
    pub high_secs: f64,
    /// Whether that is known well: the middle half lies within a factor of two.
    pub predictable: bool,
}

/// What one execution plan of a job would give on the nodes that the job has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// Its name.
    pub plan: ExecPlan,
    /// Whether it is the one that the job runs.
    pub runs: bool,
    /// Samples a second, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The same as a share of what the present plan gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Whether it was measured; else the rate is a cautious guess.
    #[serde(default)]
    pub is_measured: bool,
    /// From what the rate is known; an older daemon does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RateSource>,
    /// Lower end of the interval that holds the true rate with 90 %, samples a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Its upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// What it lacks, where it cannot run there or nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

fn is_none_of_them(count: &u32) -> bool {
    *count == 0
}

/// A round: `GET /v1/round` (the last one) and `GET /v1/plan` (a new one, computed without acting).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The plan.
    pub plan: Plan,
    /// Why.
    pub report: RoundReport,
    /// Whether the plan is carried out.
    pub acting: bool,
    /// What is not shown to this reader.
    #[serde(default, skip_serializing_if = "Hidden::is_nothing")]
    pub hidden: Hidden,
    /// Seconds the round took, by stage (`snapshot`, `gaps`, `plan`, `check`).
    pub secs: BTreeMap<String, f64>,
}

/// The generations that a malleable job has had: `GET /v1/jobs/{id}/generations`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationsView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// In their order; empty for a job that has had none.
    pub generations: Vec<GenerationRecord>,
}
