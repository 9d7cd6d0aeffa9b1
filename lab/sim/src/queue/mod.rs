//! The recorded main queue: the nodes that it takes and gives back, and the starts that backfill plans.
//!
//! It does not depend on the malleable jobs: recorded starts and ends are replayed, and never rescheduled.

mod backfill;
mod gpus;
mod idle;
mod log;
mod observed;

use infill_model::{JobId, NodeName};

pub(crate) use backfill::PlannedJob;
pub use gpus::{GpusError, by_gpu};
pub use idle::IdleQueue;
pub use log::LogQueue;
pub(crate) use observed::NO_JOB;
pub use observed::{ObservedMoment, ObservedNodes, ObservedQueue, QueueObserver};

/// A node by its number: the index of its name in natural order.
pub(crate) type NodeIx = u32;

/// The changes at one moment. Apply `freed` before `taken`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueChange {
    /// The moment, s on the log's clock.
    pub at: i64,
    /// Nodes that the main queue gives back.
    pub freed: Vec<NodeIx>,
    /// Nodes that it takes, by job.
    pub taken: Vec<TakenNodes>,
}

/// Nodes that one main job takes.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenNodes {
    /// The job; 0 for what is not a job, such as a drained node of an observed queue.
    pub job: JobId,
    /// Its nodes.
    pub nodes: Vec<NodeIx>,
}

/// When the main queue wants a node, as far as the foresight shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedUse {
    /// The moment.
    pub at: i64,
    /// The job that is to start there.
    pub job: JobId,
}

/// The part of the main queue's future that a policy may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foresight {
    /// Nothing.
    None,
    /// Backfill's plans, from the limits of running jobs and the queue. An idle log has no such plans.
    Backfill,
    /// The true ends of an idle log's intervals. No real scheduler knows them; they show the value of knowing
    /// them.
    Truth,
}

/// A recorded main queue, replayed from its beginning.
#[derive(Clone, Debug)]
pub enum MainQueue {
    /// Replayed from the intervals in which nodes were idle.
    Idle(IdleQueue),
    /// Replayed from a job log.
    Log(LogQueue),
    /// Replayed from what was observed at a running Slurm.
    Observed(ObservedQueue),
}

impl MainQueue {
    /// Names of the nodes, by number.
    pub fn node_names(&self) -> &[NodeName] {
        match self {
            MainQueue::Idle(q) => q.node_names(),
            MainQueue::Log(q) => q.node_names(),
            MainQueue::Observed(q) => q.node_names(),
        }
    }

    /// First and last moment of the log, s.
    pub fn time_span(&self) -> (i64, i64) {
        match self {
            MainQueue::Idle(q) => q.time_span(),
            MainQueue::Log(q) => q.time_span(),
            MainQueue::Observed(q) => q.time_span(),
        }
    }

    /// The next moment at which anything changes.
    pub fn next_change(&self) -> Option<i64> {
        match self {
            MainQueue::Idle(q) => q.next_change(),
            MainQueue::Log(q) => q.next_change(),
            MainQueue::Observed(q) => q.next_change(),
        }
    }

    /// Steps to the next moment; `None` at the end of the log.
    pub fn advance(&mut self) -> Option<QueueChange> {
        match self {
            MainQueue::Idle(q) => q.advance(),
            MainQueue::Log(q) => q.advance(),
            MainQueue::Observed(q) => q.advance(),
        }
    }

    /// When the main queue wants a node that it does not use now.
    pub fn window_end(&self, node: NodeIx, foresight: Foresight) -> Option<PlannedUse> {
        match (self, foresight) {
            (_, Foresight::None) | (MainQueue::Idle(_), Foresight::Backfill) => None,
            (MainQueue::Idle(q), Foresight::Truth) => q.idle_until(node),
            // Where its jobs start depends on the plan, so there are no other true ends.
            (MainQueue::Log(q), _) => q.planned_use(node),
            (MainQueue::Observed(q), _) => q.planned_use(node),
        }
    }

    /// The jobs that backfill has planned, and a number that changes with the plan.
    pub fn backfill_plan(&self) -> (&[PlannedJob], u64) {
        match self {
            MainQueue::Idle(_) => (&[], 0),
            MainQueue::Log(q) => q.backfill_plan(),
            MainQueue::Observed(q) => q.backfill_plan(),
        }
    }
}

#[cfg(test)]
mod tests;
