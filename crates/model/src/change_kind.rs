//! Kinds of changes of a job: what happens to its nodes, and how long it makes no samples.

use super::RescaleCosts;

/// What happens to a job between two steps, or between the present and the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It keeps everything.
    None,
    /// It keeps its lead and gets more nodes than it had.
    Grow,
    /// It keeps its lead and gets fewer nodes than it had.
    Shrink,
    /// It keeps its lead and its size, on other nodes or with another execution plan.
    Swap,
    /// It keeps its lead and continues with another execution plan at any size. Used where this costs more
    /// than a change of size: a command that otherwise stays alive is started again.
    Replan,
    /// It starts from nothing, or with its lead on another node.
    Start,
    /// It gives up all nodes.
    Park,
}

impl ChangeKind {
    /// The change between two sizes with the same lead. `same` says whether the nodes and the execution plan
    /// stay.
    pub fn between_sizes(had: u32, gets: u32, same: bool) -> ChangeKind {
        match gets.cmp(&had) {
            _ if gets == 0 => ChangeKind::Park,
            _ if had == 0 => ChangeKind::Start,
            std::cmp::Ordering::Greater => ChangeKind::Grow,
            std::cmp::Ordering::Less => ChangeKind::Shrink,
            std::cmp::Ordering::Equal if same => ChangeKind::None,
            std::cmp::Ordering::Equal => ChangeKind::Swap,
        }
    }

    /// Seconds without samples. A job may have its own cost for another execution plan: see
    /// [`MalleableJob::change_secs`](super::MalleableJob::change_secs).
    pub fn pause_secs(self, costs: &RescaleCosts) -> f64 {
        match self {
            ChangeKind::None | ChangeKind::Park => 0.0,
            ChangeKind::Grow | ChangeKind::Swap | ChangeKind::Replan => costs.up_secs,
            ChangeKind::Shrink => costs.down_secs,
            ChangeKind::Start => costs.start_secs,
        }
    }

    /// Whether this change takes nodes that the job did not have.
    pub fn takes_nodes(self) -> bool {
        matches!(self, ChangeKind::Grow | ChangeKind::Swap | ChangeKind::Replan | ChangeKind::Start)
    }
}
