//! A malleable job as the planner sees it.

use serde::{Deserialize, Serialize};

use super::{
    AllowedSizes, ChangeKind, ExcludedNodes, ExecPlan, JobId, NodeName, NodeType, PlanNeeds, Probe,
    RateGuarantee, RescaleCosts, ScalingCurve, StartBlocker, TurnState, UnixTime, UserId,
};

/// A node that a malleable job holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldNode {
    /// The node.
    pub node: NodeName,
    /// The Slurm job (lead or wing) through which it is held.
    pub slurm_job: JobId,
}

/// What the planner may do with a job in this round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingState {
    /// Holds no node; may be started.
    Waiting,
    /// Runs; may be grown, shrunk, moved or parked.
    Running,
    /// Is in the middle of a change: keep exactly what it holds, except nodes whose window ends.
    Busy,
    /// May not be started before this moment (back-off after preemption or failure).
    BackOff(UnixTime),
    /// Must not be started at all, for this reason.
    Barred(StartBlocker),
}

impl SchedulingState {
    /// Whether it holds nodes or may be given some now or later without anybody's doing.
    pub fn is_in_play(&self) -> bool {
        !matches!(self, SchedulingState::Barred(_))
    }
}

/// Rates of one execution plan on one node type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateCurve {
    /// Execution plan.
    pub exec_plan: ExecPlan,
    /// Node type on which the rates hold; `None` for any type.
    pub node_type: Option<NodeType>,
    /// Throughput by number of nodes.
    pub curve: ScalingCurve,
    /// The sizes at which the plan can run; `None` for all that the job may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<AllowedSizes>,
    /// What one worker of the plan needs; what is not said is the share of its places.
    #[serde(default, skip_serializing_if = "PlanNeeds::is_empty")]
    pub needs: PlanNeeds,
}

impl RateCurve {
    /// Rates of a plan of which nobody says what its workers need.
    pub fn new(
        exec_plan: ExecPlan,
        node_type: Option<NodeType>,
        curve: ScalingCurve,
        sizes: Option<AllowedSizes>,
    ) -> Self {
        RateCurve { exec_plan, node_type, curve, sizes, needs: PlanNeeds::default() }
    }

    /// Samples a second on `nodes` nodes; 0 where the plan cannot run on so many.
    pub fn rate(&self, nodes: u32) -> f64 {
        let runs = self.sizes.as_ref().is_none_or(|sizes| sizes.contains(nodes));
        if runs { self.curve.rate(nodes) } else { 0.0 }
    }

    /// Sizes at which the rate may turn: those that are known, and the least and the most that the plan may
    /// have.
    pub fn curve_breakpoints(&self) -> impl Iterator<Item = u32> + '_ {
        let ends = self.sizes.iter().flat_map(|sizes| [sizes.min(), sizes.max()]);
        self.curve.points().iter().map(|p| p.nodes).chain(ends)
    }
}

/// A malleable job with all that the planner needs to know of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MalleableJob {
    /// The lead's job id.
    pub id: JobId,
    /// Owner.
    pub user: UserId,
    /// Weight in the objective, positive; the user's share divided over the user's jobs.
    pub weight: f64,
    /// Allowed sizes.
    pub sizes: AllowedSizes,
    /// How many places of one node each of its nodes takes, where places of nodes are shared out: it is then
    /// `n1:0+1` for two. 1 where whole nodes are.
    pub block: u32,
    /// Rates, at least one entry.
    pub rates: Vec<RateCurve>,
    /// What it shall make at the least; the sizes that do count more in `rates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assured: Option<RateGuarantee>,
    /// The size at which `rates` are raised so that it is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Rescale costs.
    pub costs: RescaleCosts,
    /// Seconds without samples when it changes to another execution plan, where that is dearer than a change
    /// of size: its command stays alive only with the plan that it has. `None`: any change restarts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_secs: Option<f64>,
    /// How much of the configured hysteresis, and of the least time between changes, holds for it, 0 to 1:
    /// what costs little may be taken back.
    pub reluctance: f64,
    /// What may be done with it.
    pub standing: SchedulingState,
    /// Execution plan of the present generation.
    pub exec_plan: ExecPlan,
    /// The node of its lead, where worker 0 runs; `None` while it holds nothing.
    pub lead_node: Option<NodeName>,
    /// Whether its lead is away and comes back to `lead_node`, while the others train on without either.
    pub lead_away: bool,
    /// Nodes that it holds now, the lead's included, sorted by name.
    pub held: Vec<HeldNode>,
    /// When it entered the queue.
    pub submitted_at: UnixTime,
    /// Last rescale; growth within the minimum stay after it is not worth its cost.
    pub last_change: Option<UnixTime>,
    /// Seconds beyond the configured ones for which it stays as it is then: it has lost checkpoints.
    pub stay_secs: f64,
    /// Where it stands among those that want nodes; `None` where they come by other rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnState>,
    /// Samples a second that are counted in `rates` at every size only because it waits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_bonus: f64,
    /// Nodes of the partition that the job cannot use (features, GRES).
    pub excluded: ExcludedNodes,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl MalleableJob {
    /// Whether it has its turn: of the nodes that it holds and that last, it keeps its smallest size.
    pub fn keeps_min_size(&self) -> bool {
        matches!(self.turn, Some(TurnState::Keeps { .. }))
    }

    /// Seconds without samples at a change.
    pub fn change_secs(&self, change: ChangeKind) -> f64 {
        match (change, self.swap_secs) {
            (ChangeKind::Replan, Some(secs)) => secs,
            _ => change.pause_secs(&self.costs),
        }
    }

    /// What it is promised to make at the least, if anything is.
    pub fn active_guarantee(&self) -> Option<&RateGuarantee> {
        self.assured.as_ref().filter(|assured| assured.is_promised())
    }

    /// Samples lost by a change after which it goes on at `rate`.
    pub fn change_loss(&self, change: ChangeKind, rate: f64) -> f64 {
        self.change_secs(change) * rate
    }

    /// Whether another execution plan costs it more than another size.
    pub fn keeps_plan(&self) -> bool {
        self.swap_secs.is_some()
    }

    /// What it makes where the planner counts so much, samples a second.
    pub fn rate_without_bonus(&self, counted: f64) -> f64 {
        let counted = if counted > 0.0 { counted - self.waiting_bonus } else { counted };
        self.assured.as_ref().map_or(counted, |assured| assured.rate_without_bonus(counted))
    }
}
