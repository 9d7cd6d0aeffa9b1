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
    /// Starts anew, for a job that holds nothing or must move its lead.
    Fresh,
}

/// One option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobOption {
    /// What it does with present nodes.
    pub family: OptionFamily,
    /// Index of the node type.
    pub node_type: usize,
    /// Number of nodes.
    pub nodes: u32,
    /// How many of them it holds now: the first so many of the job's kept order.
    pub kept: u32,
    /// Execution plan.
    pub exec_plan: ExecPlan,
    /// Whether that is another one than the job has, for a job to which another plan is dearer than another
    /// size.
    pub replans: bool,
    /// Samples a second.
    pub rate: f64,
    /// Whether nothing changes: same nodes, same execution plan; for a job that holds nothing, to hold
    /// nothing.
    pub keeps: bool,
    /// Number of steps, from the first, in which it is possible: until the first of the kept nodes ends.
    pub lasts: usize,
    /// Whether it may be chosen in the first step.
    pub now: bool,
    /// Whether it may be chosen in later steps.
    pub later: bool,
    /// Whether choosing it in the first step counts against the budget of changes.
    pub voluntary: bool,
    /// Whether its plan needs more CPUs or memory of a worker that stays than that has.
    pub raises: bool,
    /// Weighted samples that choosing it in the first step costs: the change from what the job holds,
    /// reluctance, less the bonus that breaks ties.
    pub first_cost: f64,
}

impl JobOption {
    /// Whether it is some of the nodes that the job holds, its lead's among them, and no others.
    pub(crate) fn keeps_some(&self) -> bool {
        let stays = self.family == OptionFamily::Stay && self.now && !self.raises;
        stays && self.nodes > 0 && self.nodes == self.kept && self.lasts > 0
    }

    /// What going over to `next` in a later step is; `same` says that it is the same option.
    pub(crate) fn change_to(&self, next: &JobOption, same: bool) -> ChangeKind {
        match (self.nodes, next.nodes) {
            (0, 0) => ChangeKind::None,
            _ if same => ChangeKind::None,
            _ if self.continues_as(next) => ChangeKind::between_sizes(self.nodes, next.nodes, false),
            (_, 0) => ChangeKind::Park,
            _ => ChangeKind::Start,
        }
    }

    /// Whether the lead stays where it is when the job goes over to `next`, and a plan that is dear to change
    /// stays. Where it does not, a start stands for the change of plan.
    pub(crate) fn continues_as(&self, next: &JobOption) -> bool {
        let stays = self.family == next.family && self.node_type == next.node_type;
        stays && self.replans == next.replans && self.nodes > 0 && next.nodes > 0
    }
}
