//! Kinds of changes of a job: what becomes of its nodes, and how long it then makes no samples.

use super::RescaleCosts;

/// What happens to a job between two steps, or between the present and the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// Nothing.
    None,
    /// It keeps its lead and gets more nodes than it had.
    Grow,
    /// It keeps its lead and gets fewer nodes than it had.
    Shrink,
    /// It keeps its lead and its size, on other nodes or with another execution plan.
    Swap,
    /// It keeps its lead, and goes on with another execution plan at whatever size, where that costs more
    /// than a change of size: a command that else stays alive is started anew.
    Replan,
    /// It starts from nothing, or with its lead on another node.
    Start,
    /// It gives up all nodes.
    Park,
}

impl ChangeKind {
    /// The change between two sizes with the same lead; `same` says whether nodes and execution plan stay.
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

    /// Seconds without samples. Of a job with a cost of its own for another execution plan,
    /// [`MalleableJob::change_secs`](super::MalleableJob::change_secs) knows more.
    pub fn pause_secs(self, costs: &RescaleCosts) -> f64 {
        match self {
            ChangeKind::None | ChangeKind::Park => 0.0,
            ChangeKind::Grow | ChangeKind::Swap | ChangeKind::Replan => costs.up_secs,
            ChangeKind::Shrink => costs.down_secs,
            ChangeKind::Start => costs.start_secs,
        }
    }

    /// Whether it takes nodes that the job did not have.
    pub fn takes_nodes(self) -> bool {
        matches!(self, ChangeKind::Grow | ChangeKind::Swap | ChangeKind::Replan | ChangeKind::Start)
    }
}
