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
    /// The Slurm job (lead or wing) that holds the node.
    pub slurm_job: JobId,
}

/// What the planner may do with a job in this round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingState {
    /// It holds no node and may be started.
    Waiting,
    /// It runs, and may be grown, shrunk, moved or parked.
    Running,
    /// It is in the middle of a change: it keeps exactly the nodes that it holds, except those whose window
    /// ends.
    Busy,
    /// It may be started only after this moment (back-off after preemption or failure).
    BackOff(UnixTime),
    /// It must not be started, for this reason.
    #[serde(rename = "barred")]
    Blocked(StartBlocker),
}

impl SchedulingState {
    /// Whether it holds nodes, or may get some without action by a person.
    pub fn is_in_play(&self) -> bool {
        !matches!(self, SchedulingState::Blocked(_))
    }
}

/// The rates of one execution plan on one node type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateCurve {
    /// The execution plan.
    pub exec_plan: ExecPlan,
    /// The node type of these rates; `None` for any type.
    pub node_type: Option<NodeType>,
    /// Throughput by number of nodes.
    pub curve: ScalingCurve,
    /// The sizes at which the plan can run; `None` for all sizes that the job may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<AllowedSizes>,
    /// What one worker of the plan needs. Amounts that are not declared are the share of its places.
    #[serde(default, skip_serializing_if = "PlanNeeds::is_empty")]
    pub needs: PlanNeeds,
}

impl RateCurve {
    /// The rates of a plan without declared needs.
    pub fn new(
        exec_plan: ExecPlan,
        node_type: Option<NodeType>,
        curve: ScalingCurve,
        sizes: Option<AllowedSizes>,
    ) -> Self {
        RateCurve { exec_plan, node_type, curve, sizes, needs: PlanNeeds::default() }
    }

    /// Samples a second on `nodes` nodes; 0 if the plan cannot run on that number.
    pub fn rate(&self, nodes: u32) -> f64 {
        let can_run = self.sizes.as_ref().is_none_or(|sizes| sizes.contains(nodes));
        if can_run { self.curve.rate(nodes) } else { 0.0 }
    }

    /// The sizes at which the slope of the rate may change: the points of the curve, and the plan's smallest
    /// and largest size.
    pub fn curve_breakpoints(&self) -> impl Iterator<Item = u32> + '_ {
        let ends = self.sizes.iter().flat_map(|sizes| [sizes.min(), sizes.max()]);
        self.curve.points().iter().map(|point| point.nodes).chain(ends)
    }
}

/// All facts about a malleable job that the planner needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MalleableJob {
    /// The lead's job id.
    pub id: JobId,
    /// The job's owner.
    pub user: UserId,
    /// The weight in the objective, positive: the user's share divided over the user's jobs.
    pub weight: f64,
    /// The sizes that it may have.
    pub sizes: AllowedSizes,
    /// How many places of one node each of its nodes takes if places are lent: with two, a node is `n1:0+1`.
    /// 1 if whole nodes are lent.
    #[serde(rename = "block")]
    pub places_per_node: u32,
    /// Its rates, at least one entry.
    pub rates: Vec<RateCurve>,
    /// Whether nothing is known of its rates: then `rates` have an assumed shape, and no unit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rates_are_assumed: bool,
    /// The rate that it is to make at least. In `rates`, sizes that reach it count more.
    #[serde(default, rename = "assured", skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<RateGuarantee>,
    /// The size that is to be measured. `rates` are raised there so that the planner chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The costs of its rescales.
    pub costs: RescaleCosts,
    /// Seconds without samples at a change to another execution plan, if that costs more than a change of
    /// size: its command stays alive only with its present plan. `None` if every change restarts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_secs: Option<f64>,
    /// The share, 0 to 1, of the configured hysteresis and of the least time between changes that holds for
    /// it. Cheap changes may be undone sooner.
    #[serde(rename = "reluctance")]
    pub hysteresis_share: f64,
    /// What the planner may do with it.
    #[serde(rename = "standing")]
    pub scheduling_state: SchedulingState,
    /// Execution plan of the present generation.
    pub exec_plan: ExecPlan,
    /// The node of its lead, where worker 0 runs; `None` while it holds no nodes.
    pub lead_node: Option<NodeName>,
    /// Whether its lead is away and will come back to `lead_node`. Its other workers continue without lead
    /// and node.
    pub lead_away: bool,
    /// The nodes that it holds now, sorted by name, with the lead's node.
    pub held: Vec<HeldNode>,
    /// When it entered the queue.
    pub submitted_at: UnixTime,
    /// The time of its last rescale. Growth within the minimum stay after it is not worth its cost.
    pub last_change: Option<UnixTime>,
    /// Seconds beyond the configured minimum stay for which it stays unchanged, because it has lost
    /// checkpoints.
    pub stay_secs: f64,
    /// Its place in the order of jobs that want nodes; `None` if the objective has no such order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnState>,
    /// The samples a second that `rates` count at every size only because it waits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_bonus: f64,
    /// Nodes of the partition that it cannot use (features, GRES).
    pub excluded: ExcludedNodes,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl MalleableJob {
    /// Whether it has its turn: then it keeps its smallest size on the nodes that it holds and that last.
    pub fn keeps_min_size(&self) -> bool {
        matches!(self.turn, Some(TurnState::Keeps { .. }))
    }

    /// Seconds without samples at this change.
    pub fn change_secs(&self, change: ChangeKind) -> f64 {
        match (change, self.swap_secs) {
            (ChangeKind::Replan, Some(secs)) => secs,
            _ => change.pause_secs(&self.costs),
        }
    }

    /// The rate that it is promised, if any.
    pub fn active_guarantee(&self) -> Option<&RateGuarantee> {
        self.guarantee.as_ref().filter(|guarantee| guarantee.is_promised())
    }

    /// The samples lost by a change after which it makes `rate` samples a second.
    pub fn change_loss(&self, change: ChangeKind, rate: f64) -> f64 {
        self.change_secs(change) * rate
    }

    /// Whether a change of its execution plan costs more than a change of its size.
    pub fn keeps_plan(&self) -> bool {
        self.swap_secs.is_some()
    }

    /// The rate that it makes if the planner counts `counted`, both in samples a second: without the bonus
    /// for waiting and the bonus of the guarantee.
    pub fn rate_without_bonus(&self, counted: f64) -> f64 {
        let counted = if counted > 0.0 { counted - self.waiting_bonus } else { counted };
        self.guarantee.as_ref().map_or(counted, |guarantee| guarantee.rate_without_bonus(counted))
    }
}
