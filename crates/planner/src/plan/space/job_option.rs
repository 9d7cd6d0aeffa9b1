//! One option of a job.

use infill_model::ChangeKind;
use infill_model::ExecPlan;

/// What a job does with the nodes it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionFamily {
    /// Holds nothing.
    Nothing,
    /// Keeps its lead and some of its nodes.
    Stay,
    /// Starts again, for a job that holds nothing or must move its lead.
    Fresh,
}

/// One option of a job: what it may have in a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobOption {
    /// What it does with the nodes that the job holds.
    pub family: OptionFamily,
    /// Index of the node type.
    pub node_type: usize,
    /// Number of nodes.
    pub nodes: u32,
    /// How many of them the job holds now: the first ones of its kept order.
    pub kept: u32,
    /// Execution plan; the default one where the option holds nothing.
    pub exec_plan: ExecPlan,
    /// Whether its plan differs from the job's present one, for a job with a cost of its own for such a
    /// change.
    pub replans: bool,
    /// Rate, samples a second, before the job's weight.
    pub rate: f64,
    /// Whether nothing changes: same nodes, same execution plan. For a job that holds nothing: whether it
    /// still holds nothing.
    pub keeps: bool,
    /// Number of steps, from the first, in which it is possible: until the first kept node ends.
    pub lasts: usize,
    /// Whether it may be chosen in the first step.
    pub now: bool,
    /// Whether it may be chosen in later steps.
    pub later: bool,
    /// Whether choosing it in the first step counts against the budget of changes.
    pub voluntary: bool,
    /// Whether its plan needs more CPUs or memory for a kept worker than that worker has.
    pub raises: bool,
    /// Weighted samples that choosing it in the first step costs: the change from what the job holds plus
    /// reluctance, less the bonus that breaks ties.
    pub first_cost: f64,
}

impl JobOption {
    /// Whether it consists only of nodes that the job holds, the lead's among them.
    pub(crate) fn keeps_some(&self) -> bool {
        let stays = self.family == OptionFamily::Stay && self.now && !self.raises;
        stays && self.nodes > 0 && self.nodes == self.kept && self.lasts > 0
    }

    /// The change to option `next` in a later step; `same` says that it is the same option.
    pub(crate) fn change_to(&self, next: &JobOption, same: bool) -> ChangeKind {
        match (self.nodes, next.nodes) {
            (0, 0) => ChangeKind::None,
            _ if same => ChangeKind::None,
            _ if self.continues_as(next) => ChangeKind::between_sizes(self.nodes, next.nodes, false),
            (_, 0) => ChangeKind::Park,
            _ => ChangeKind::Start,
        }
    }

    /// Whether the lead stays when the job changes to `next`, and its plan too if a change of plan has a cost
    /// of its own. Otherwise a start stands for the change of plan.
    pub(crate) fn continues_as(&self, next: &JobOption) -> bool {
        let stays = self.family == next.family && self.node_type == next.node_type;
        stays && self.replans == next.replans && self.nodes > 0 && next.nodes > 0
    }
}
