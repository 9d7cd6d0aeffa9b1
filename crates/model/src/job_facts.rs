//! The facts about a malleable job that a round needs. The daemon takes them from the lifecycles of jobs, the
//! simulator from simulated jobs, and a script from the script.

use std::sync::Arc;

use super::{
    AllowedSizes, BatchMode, ChangeKind, DeclaredPlan, ExcludedNodes, ExecPlan, HeldNode, JobId, JobProgress,
    LayerProfile, MinimumRate, ModelFacts, NodeName, RescaleCosts, RescaleMode, ScalingCurve,
    SchedulingState, Submission, UnixTime, UserId, strip_digits,
};

/// The facts about a malleable job at one moment. Its Slurm job has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// The lead's job id.
    pub job: JobId,
    /// The job's owner.
    pub user: UserId,
    /// The program that it runs.
    pub program: ProgramIdentity,
    /// The sizes that it may have.
    pub sizes: AllowedSizes,
    /// The declarations of its owner.
    pub claims: JobDeclaration,
    /// What the planner may do with it.
    pub standing: SchedulingState,
    /// Since when `standing` has been so.
    pub since: UnixTime,
    /// Since when it waits to train. It keeps waiting if it is called back while it starts. `None` once it
    /// trains, or is about to.
    pub waits_since: Option<UnixTime>,
    /// Nodes of the present generation, if the job runs undisturbed. The own nodes of a main job count.
    pub running: Option<u32>,
    /// The nodes that it has, and its lead's node.
    pub place: JobLocation,
    /// How it changes its size now.
    pub changing: ResizeState,
    /// Its progress so far.
    pub course: JobProgress,
    /// When it entered the queue.
    pub submitted_at: UnixTime,
    /// The nodes of the partition that it cannot use.
    pub excluded: ExcludedNodes,
    /// Whether its command has ended and it is leaving its nodes. The planner no longer plans it, and does
    /// not give its nodes to others yet.
    pub ending: bool,
}

impl JobFacts {
    /// The facts at its submission, to compare it with similar past jobs. Its name is the name of its profile
    /// if it has reported one, else its Slurm name without digits.
    pub fn submission(&self) -> Submission {
        Submission {
            at: self.submitted_at.0 as f64,
            user: self.program.user.clone(),
            name: self.claims.profile.clone().unwrap_or_else(|| strip_digits(&self.program.job_name)),
            nodes: self.sizes.max(),
            gpus: 0,
            limit_secs: None,
            more: vec![f64::from(self.sizes.min())],
        }
    }

    /// Nodes or places that the job counts as holding, although none of its processes is there yet.
    pub fn promised_nodes(&self) -> impl Iterator<Item = NodeName> + '_ {
        self.place
            .held
            .iter()
            .filter(|held| held.slurm_job == self.job && Some(&held.node) != self.place.lead_now.as_ref())
            .flat_map(|held| held.node.single_places())
    }
}

/// The declarations of a job's owner. Each is `None` or empty if its owner declares nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDeclaration {
    /// The name of its profile.
    pub profile: Option<String>,
    /// Throughput by number of nodes.
    pub curve: Option<ScalingCurve>,
    /// The costs of its rescales.
    pub costs: Option<RescaleCosts>,
    /// The rate that it is to make at least.
    pub at_least: Option<MinimumRate>,
    /// Seconds that its command gets to save and exit.
    pub grace_secs: Option<f64>,
    /// The execution plans that infill may choose; empty if the program has only one.
    pub plans: Vec<DeclaredPlan>,
    /// Facts about the model that it trains.
    pub model: Option<ModelFacts>,
    /// The measured times of the model's layers on one GPU.
    pub layers: Option<Arc<LayerProfile>>,
    /// GPUs, or training processes, on each unit of its size.
    pub gpus_per_node: Option<u32>,
}

/// The program that a job runs. Together with the node type, it is the key of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramIdentity {
    /// The owner's login name.
    pub user: String,
    /// Slurm's name of the job.
    pub job_name: String,
    /// The profile's name and batch mode, once the job has reported them.
    pub reported: Option<(String, BatchMode)>,
    /// How many places of one node each of its nodes takes; 0 or 1 if its nodes are whole nodes.
    pub block: u32,
    /// Whether these places are parts of nodes without GPUs. Otherwise they have GPUs.
    pub on_cpus: bool,
    /// Execution plan of the present generation.
    pub exec_plan: ExecPlan,
}

/// The nodes of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobLocation {
    /// How many places of one node each of its nodes takes if places are lent; else 0 or 1.
    pub block: u32,
    /// For a main job that wings extend: its own nodes, the lead's node first. If places are lent, its places
    /// of one node as one block. The planner treats them as one node that no other job can get.
    pub own: Vec<NodeName>,
    /// The nodes that it counts as holding, sorted by name.
    pub held: Vec<HeldNode>,
    /// The lead's node among them.
    pub lead: Option<NodeName>,
    /// Whether its lead is away and will come back to the node in `lead`.
    pub lead_away: bool,
    /// The node that its lead is on now, also in the middle of a move.
    pub lead_now: Option<NodeName>,
    /// Nodes that it no longer holds although some of its processes are still there.
    pub left: Vec<NodeName>,
    /// Nodes that an agent reports as taken back by Slurm, or as wanted by a main job. No malleable job may
    /// get them.
    pub taken: Vec<NodeName>,
}

impl JobLocation {
    /// For a main job: the number of its own nodes beyond the lead's. Otherwise 0.
    pub fn extra_own_nodes(&self) -> u32 {
        u32::try_from(self.own.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The first of its own nodes. If places are lent, each of its own places. No other job can get them.
    pub fn own_places(&self) -> Vec<NodeName> {
        self.own.first().map(NodeName::single_places).unwrap_or_default()
    }
}

/// How a job changes its size now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeState {
    /// Its execution plan. During a change, the plan that it is changing to.
    pub exec_plan: ExecPlan,
    /// How it would be rescaled now.
    pub way: RescaleMode,
    /// The pause that it is in, or the last one.
    pub pause: Option<ChangePause>,
    /// When a plan last changed the job.
    pub last_at: Option<UnixTime>,
}

/// A change that makes the job pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePause {
    /// When it stopped making samples for the change, or was launched.
    pub since: UnixTime,
    /// The kind of change.
    pub change: ChangeKind,
}

impl ChangePause {
    /// Expected seconds of the rest of the pause, by the costs of such changes.
    pub fn remaining_secs(&self, costs: &RescaleCosts, now: UnixTime) -> f64 {
        (self.change.pause_secs(costs) - now.secs_since(self.since)).max(0.0)
    }
}
