//! Messages for users and administrators: status, rounds, generations, control.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::{
    ControlState, DaemonMode, ExecPlan, GenerationRecord, GpuUse, JobId, MalleableState, NodeName, Plan,
    ProfileKey, RateSource, RoundReport, UnixTime, UserId,
};

/// An administrator's order: `POST /v1/control`. The credential's purpose is `control`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ControlRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The state to set.
    pub control: ControlState,
}

/// The query of `GET /v1/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StatusQuery {
    /// Whether the answer lists nodes.
    #[serde(default = "default_true")]
    pub nodes: bool,
    /// Whether an answer may be reused that another reader received since the last snapshot.
    #[serde(default)]
    pub shared: bool,
}

fn default_true() -> bool {
    true
}

/// Answer to `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DaemonStatus {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// infill's version.
    pub version: String,
    /// Slurm's version; `None` before Slurm has answered.
    pub slurm: Option<String>,
    /// Version of Slurm's REST API in use, such as `v0.0.42`.
    pub rest: Option<String>,
    /// Id of the user that the daemon runs as; `None` from an older daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<UserId>,
    /// The configured mode.
    pub mode: DaemonMode,
    /// The last order of an administrator.
    pub control: ControlState,
    /// Who gave that order, and when; `None` if none was given, or by an older daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_origin: Option<ControlOrigin>,
    /// When the daemon started.
    pub started_at: UnixTime,
    /// When the last round ended; `None` before the first.
    pub last_round: Option<UnixTime>,
    /// Present problems, a sentence each: doubtful snapshots, unreachable services, open circuit breakers.
    pub problems: Vec<String>,
    /// Accuracy of recent predictions of job lengths; `None` before a job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<LengthAccuracy>,
    /// All nodes of the malleable partition.
    pub nodes: Vec<NodeView>,
    /// All malleable jobs.
    pub jobs: Vec<JobView>,
    /// What the answer hides from this reader.
    #[serde(default, skip_serializing_if = "HiddenCounts::is_nothing")]
    pub hidden: HiddenCounts,
}

/// Who gave an order to pause, drain or resume, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ControlOrigin {
    /// When the daemon got the order.
    pub at: UnixTime,
    /// The login name or the uid of the administrator. `None` if infill itself gave the order, or if this
    /// reader may not know the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether infill itself gave the order, because `[safety]` says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
}

/// Accuracy of the predicted lengths of the last jobs that ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LengthAccuracy {
    /// Number of jobs that the shares refer to.
    pub jobs: usize,
    /// Share of jobs whose prediction was right within a factor of two, 0 to 1.
    pub within_2x: f64,
    /// Share of jobs within the predicted interval from 10 to 90 %, 0 to 1. A perfect predictor has 0.8.
    pub in_interval: f64,
    /// Share of jobs that counted as predictable, 0 to 1.
    pub predictable: f64,
}

/// What Slurm's `PrivateData` hides from a reader: numbers without names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HiddenCounts {
    /// Number of malleable jobs of other users.
    pub jobs: u32,
    /// Number of nodes that these jobs hold.
    pub job_nodes: u32,
    /// Number of hidden nodes by kind.
    pub nodes: BTreeMap<NodeKind, u32>,
}

impl HiddenCounts {
    /// Whether nothing is hidden.
    pub fn is_nothing(&self) -> bool {
        *self == HiddenCounts::default()
    }
}

/// A node as `infill gaps` and `infill status` show it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeView {
    /// Name of the node, or of a place on it.
    pub node: NodeName,
    /// Node type, such as `gpu:a100:4/cpu64`.
    pub node_type: String,
    /// Slurm's state words, joined by `+`.
    pub state: String,
    /// State of the node for the main queue: `busy` (a main job runs), `gap`, `held` (a gap that infill uses)
    /// or `refused`.
    pub kind: NodeKind,
    /// The malleable job that holds the node.
    pub job: Option<JobId>,
    /// The main job that runs on the node.
    pub main_job: Option<JobId>,
    /// Since when the node is a gap.
    pub since: Option<UnixTime>,
    /// When the main queue wants the node back; `None` if nothing is planned.
    pub window_end: Option<UnixTime>,
    /// What wants the node back, as text.
    pub wanted_by: Option<String>,
    /// Until when the planner counts on the node.
    pub usable_until: Option<UnixTime>,
    /// Why infill refuses the node.
    pub why: Option<String>,
    /// What main jobs leave idle, on a node that they share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleShare>,
    /// Failures of malleable jobs on the node within the last hour, oldest first.
    #[serde(default)]
    pub failures: Vec<NodeFailure>,
}

/// GPUs that the jobs of a node leave idle, with the GPUs' share of its CPUs and memory. On a node without
/// GPUs: idle CPUs, with their share of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct IdleShare {
    /// Idle GPUs; 0 if the node has none.
    pub gpus: u32,
    /// CPUs of this share.
    pub cpus: u32,
    /// Memory of this share, MiB.
    pub memory_mib: u64,
}

/// A failure of a malleable job on a node. The job or the node may be at fault: failures of two jobs of a
/// user close the node to that user for a while, and failures of two users' jobs close it to all users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeFailure {
    /// The job; `None` if this reader may not see it.
    pub job: Option<JobId>,
    /// When the job failed.
    pub at: UnixTime,
    /// What happened, as text.
    pub what: String,
}

/// State of a node for the main queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A main job runs on the node.
    Busy,
    /// The node is idle, and infill can use it.
    Gap,
    /// A gap that infill uses.
    Held,
    /// The node is idle, and infill must not use it.
    Refused,
}

/// A malleable job as `infill jobs` shows it. It contains nothing of the user's environment or command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct JobView {
    /// The lead's job id.
    pub job: JobId,
    /// For a task of a job array its name, such as `123_4`. For tasks that have no job of their own yet
    /// theirs, such as `123_[5-9%2]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_task: Option<String>,
    /// The job's name in Slurm.
    pub name: String,
    /// The owner's user name.
    pub user: String,
    /// The job's state.
    pub state: MalleableState,
    /// Allowed numbers of nodes, such as `2-8`.
    pub sizes: String,
    /// Nodes that the job holds, the lead's first.
    pub nodes: Vec<NodeName>,
    /// For a main job that wings extend: how many of `nodes` are its own. They come first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub own: u32,
    /// Number of the present generation; 0 before the first.
    pub generation: u64,
    /// Number of rescales so far.
    pub rescales: u32,
    /// Number of restarts after failures so far.
    pub restarts: u32,
    /// How often the agent had to kill the command at a rescale.
    pub kills: u32,
    /// Last training step that the command reported.
    pub step: Option<u64>,
    /// Last loss that the command reported.
    pub loss: Option<f64>,
    /// Total number of samples that the command reported.
    pub samples: f64,
    /// Present training rate, samples a second.
    pub rate: Option<f64>,
    /// The wings' Slurm job ids.
    pub wings: Vec<JobId>,
    /// The GPUs of its nodes, and how many of them its command uses; `None` without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuUse>,
    /// Why the job has its present nodes, from the last round.
    pub why: String,
    /// Why the job has fewer wings than the plan gives it: a reason from Slurm, from sbatch or from
    /// `slurm.max_wings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<String>,
    /// Parallel efficiency: the job's rate divided by the rate of proportional scaling from its smallest
    /// size.
    #[serde(default)]
    pub efficiency: Option<f64>,
    /// What the advisor knows about the job, and why it will or will not try another size.
    #[serde(default)]
    pub advice: String,
    /// How quickly the job leaves a node, and what its owner should know about its checkpoints.
    #[serde(default)]
    pub leaving: String,
    /// How the job changes its size, and what a change costs.
    #[serde(default)]
    pub changing: String,
    /// When the job is expected to end at its present rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<EndPrediction>,
    /// The reasons for the job's priority: its predicted length, and its owner's past usage.
    #[serde(default)]
    pub turn: String,
    /// The profile that the job measures, on its usual node type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileKey>,
    /// The job's execution plans on its present nodes: first the one that it runs, then the others, the best
    /// first. Empty if the job holds no nodes or has only one plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanView>,
}

impl JobView {
    /// A job that waits. Nothing else is known about it.
    pub fn queued(job: JobId, name: String, user: String, sizes: String) -> JobView {
        JobView {
            job,
            array_task: None,
            name,
            user,
            state: MalleableState::Queued,
            sizes,
            nodes: Vec::new(),
            own: 0,
            generation: 0,
            rescales: 0,
            restarts: 0,
            kills: 0,
            step: None,
            loss: None,
            samples: 0.0,
            rate: None,
            wings: Vec::new(),
            why: String::new(),
            shortage: None,
            efficiency: None,
            advice: String::new(),
            leaving: String::new(),
            changing: String::new(),
            ends: None,
            turn: String::new(),
            profile: None,
            plans: Vec::new(),
            gpus: None,
        }
    }

    /// The job's name in squeue: `123_4` for a task of an array.
    pub fn display_name(&self) -> String {
        self.array_task.clone().unwrap_or_else(|| self.job.to_string())
    }
}

/// Predicted end of a job that trains, if it keeps its present rate; times are seconds from now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EndPrediction {
    /// The 10 % quantile: one in ten such jobs ends sooner.
    pub low_secs: f64,
    /// The median: one in two such jobs ends sooner.
    pub median_secs: f64,
    /// The 90 % quantile: one in ten such jobs ends later.
    pub high_secs: f64,
    /// Whether the prediction is narrow: its middle half lies within a factor of two.
    pub predictable: bool,
}

/// The expected rate of one execution plan on the nodes that its job has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlanView {
    /// Name of the execution plan.
    pub plan: ExecPlan,
    /// Whether the job runs this plan.
    pub runs: bool,
    /// Expected rate, samples a second; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Expected rate divided by the rate of the present plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Whether the plan was measured. If not, the rate is a cautious estimate.
    #[serde(default)]
    pub is_measured: bool,
    /// Where the rate comes from; `None` from an older daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RateSource>,
    /// Lower end of the 90 % interval of the rate, samples a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the 90 % interval of the rate, samples a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// What the plan lacks, if it cannot run on these nodes or its rate is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A round: answers `GET /v1/round` (the last round) and `GET /v1/plan` (a new round, computed without
/// acting).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RoundView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The plan of the round.
    pub plan: Plan,
    /// The reasons for the plan.
    pub report: RoundReport,
    /// Whether infill carries the plan out.
    pub acting: bool,
    /// What the answer hides from this reader.
    #[serde(default, skip_serializing_if = "HiddenCounts::is_nothing")]
    pub hidden: HiddenCounts,
    /// Duration of each stage (`snapshot`, `gaps`, `plan`, `check`), seconds.
    pub secs: BTreeMap<String, f64>,
}

/// The generations of a malleable job: answers `GET /v1/jobs/{id}/generations`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct GenerationsView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The generations in their order; empty before the first.
    pub generations: Vec<GenerationRecord>,
}
