//! What a round must be told of a malleable job: the daemon's come from the state machines, the simulator's
//! from simulated jobs, a script's from the script.

use std::sync::Arc;

use super::{
    AllowedSizes, BatchMode, ChangeKind, DeclaredPlan, ExcludedNodes, ExecPlan, HeldNode, JobId, JobProgress,
    LayerProfile, MinimumRate, ModelFacts, NodeName, RescaleCosts, RescaleMode, ScalingCurve,
    SchedulingState, Submission, UnixTime, UserId, strip_digits,
};

/// A malleable job whose Slurm job has not ended, as it is at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// The lead's job id.
    pub job: JobId,
    /// Owner.
    pub user: UserId,
    /// What it runs.
    pub program: ProgramIdentity,
    /// Allowed sizes.
    pub sizes: AllowedSizes,
    /// What its owner declares.
    pub claims: JobDeclaration,
    /// What may be done with it.
    pub standing: SchedulingState,
    /// Since when it has been so.
    pub since: UnixTime,
    /// Since when it waits to train: on its way to that it may have been called back, and waits all the same.
    /// `None` once it trains, or is about to.
    pub waits_since: Option<UnixTime>,
    /// Nodes of the present generation, if it runs undisturbed. Those of a main job count.
    pub running: Option<u32>,
    /// Where it is.
    pub place: JobLocation,
    /// How it changes its size.
    pub changing: ResizeState,
    /// How far it has come.
    pub course: JobProgress,
    /// When it entered the queue.
    pub submitted_at: UnixTime,
    /// Nodes of the partition that it cannot use.
    pub excluded: ExcludedNodes,
    /// Its command has ended, and it leaves its nodes: nobody plans it any more, and nobody has its nodes
    /// yet.
    pub ending: bool,
}

impl JobFacts {
    /// What is known of it when it comes, for what jobs that were alike took: its name is its profile's, if
    /// it has told one, else Slurm's without numbers.
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

    /// Nodes, or places of such, that the job counts as holding, though no part of it is there yet.
    pub fn promised_nodes(&self) -> impl Iterator<Item = NodeName> + '_ {
        self.place
            .held
            .iter()
            .filter(|h: &&HeldNode| h.slurm_job == self.job && Some(&h.node) != self.place.lead_now.as_ref())
            .flat_map(|h| h.node.single_places())
    }
}

/// What the owner of a job declares of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDeclaration {
    /// The name of its profile.
    pub profile: Option<String>,
    /// How it scales.
    pub curve: Option<ScalingCurve>,
    /// What its rescales cost.
    pub costs: Option<RescaleCosts>,
    /// What it shall make at the least.
    pub at_least: Option<MinimumRate>,
    /// Seconds that its command gets to save and exit.
    pub grace_secs: Option<f64>,
    /// Execution plans among which infill chooses; none where the program has but one.
    pub plans: Vec<DeclaredPlan>,
    /// The model that it trains.
    pub model: Option<ModelFacts>,
    /// How long its layers take on one GPU.
    pub layers: Option<Arc<LayerProfile>>,
    /// GPUs, or processes that train, on each unit of its size.
    pub gpus_per_node: Option<u32>,
}

/// What a job runs: with the node type it makes the signature of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramIdentity {
    /// The owner's name.
    pub user: String,
    /// Slurm's name of the job.
    pub job_name: String,
    /// The profile's name and batch mode, once the job has told them.
    pub told: Option<(String, BatchMode)>,
    /// How many places of one node each of its nodes takes; 0 or 1 where that is a node.
    pub block: u32,
    /// Whether these are parts of nodes without GPUs. Else they have GPUs.
    pub on_cpus: bool,
    /// Execution plan of the present generation.
    pub exec_plan: ExecPlan,
}

/// Where a job is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobLocation {
    /// How many places of one node each of its nodes takes, where places are shared out; else 0 or 1.
    pub block: u32,
    /// Where it is a job of the main queue that wings extend, its nodes, that of its lead first; where places
    /// are shared out, its places of one node as one. To the planner they are one, which nobody else can
    /// have.
    pub own: Vec<NodeName>,
    /// Nodes that it counts as holding, sorted by name.
    pub held: Vec<HeldNode>,
    /// The node of its lead among them.
    pub lead: Option<NodeName>,
    /// Whether its lead is away, and that is where it comes back to.
    pub lead_away: bool,
    /// The node on which its lead is now, in the middle of a move too.
    pub lead_now: Option<NodeName>,
    /// Nodes that it does not hold any more, though a part of it is still on them.
    pub left: Vec<NodeName>,
    /// Nodes of which an agent has said that Slurm takes them back, or that a main job waits for: nobody's,
    /// whoever has them.
    pub taken: Vec<NodeName>,
}

impl JobLocation {
    /// How many nodes the lead has beyond its first, where it is a job of the main queue.
    pub fn extra_own_nodes(&self) -> u32 {
        u32::try_from(self.own.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The first of its own nodes, or each of its own places of a node, where these are lent. Nobody else can
    /// have them.
    pub fn own_places(&self) -> Vec<NodeName> {
        self.own.first().map(NodeName::single_places).unwrap_or_default()
    }
}

/// How a job changes its size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeState {
    /// Its execution plan; in the middle of a change the one that it is changing to.
    pub exec_plan: ExecPlan,
    /// In which way it would now.
    pub way: RescaleMode,
    /// The pause that it is in, or that has just passed.
    pub pause: Option<ChangePause>,
    /// When a plan last changed it.
    pub last_at: Option<UnixTime>,
}

/// A change that makes the job pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePause {
    /// When it stopped to make samples for it, or was launched.
    pub since: UnixTime,
    /// What kind of change it is.
    pub change: ChangeKind,
}

impl ChangePause {
    /// Seconds for which the job will make no samples anyway, by what such changes have cost it.
    pub fn remaining_secs(&self, costs: &RescaleCosts, now: UnixTime) -> f64 {
        (self.change.pause_secs(costs) - now.secs_since(self.since)).max(0.0)
    }
}
