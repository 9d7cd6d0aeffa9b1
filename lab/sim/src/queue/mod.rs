//! The main queue as it was recorded: which nodes it takes and gives back, and what its backfill plans.
//!
//! Nothing here depends on the malleable jobs: the recorded starts and ends are replayed, never scheduled
//! anew.

mod backfill;
mod gpus;
mod idle;
mod log;

use infill_model::{JobId, NodeName};

pub(crate) use backfill::PlannedJob;
pub use gpus::{GpusError, by_gpu};
pub use idle::IdleQueue;
pub use log::LogQueue;

/// A node by its number: its place among the names in the order in which people count.
pub(crate) type NodeIx = u32;

/// What changes at one moment. Nodes of one job that end and start at once are given back first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueChange {
    /// The moment, s on the log's clock.
    pub at: i64,
    /// Nodes that the main queue gives back.
    pub freed: Vec<NodeIx>,
    /// Nodes that it takes, by job.
    pub taken: Vec<TakenNodes>,
}

/// Nodes that one job of the main queue takes.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenNodes {
    /// The job.
    pub job: JobId,
    /// Its nodes.
    pub nodes: Vec<NodeIx>,
}

/// When the main queue wants a node, as far as it can be known beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedUse {
    /// The moment.
    pub at: i64,
    /// The job that is to start there.
    pub job: JobId,
}

/// What of the future may be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foresight {
    /// Nothing.
    None,
    /// What backfill plans: from the limits of jobs that run, and the queue. An idle log tells nothing of
    /// this.
    Backfill,
    /// The true ends of an idle log. No real scheduler knows them; they show what knowing would be worth.
    Truth,
}

/// A recorded main queue, replayed from its beginning.
#[derive(Clone, Debug)]
pub enum MainQueue {
    /// From the intervals in which nodes were idle.
    Idle(IdleQueue),
    /// From a job log.
    Log(LogQueue),
}

impl MainQueue {
    /// Names of the nodes.
    pub fn node_names(&self) -> &[NodeName] {
        match self {
            MainQueue::Idle(q) => q.node_names(),
            MainQueue::Log(q) => q.node_names(),
        }
    }

    /// First and last moment of the log.
    pub fn time_span(&self) -> (i64, i64) {
        match self {
            MainQueue::Idle(q) => q.time_span(),
            MainQueue::Log(q) => q.time_span(),
        }
    }

    /// The next moment at which anything changes.
    pub fn next_change(&self) -> Option<i64> {
        match self {
            MainQueue::Idle(q) => q.next_change(),
            MainQueue::Log(q) => q.next_change(),
        }
    }

    /// Goes on to the next moment.
    pub fn advance(&mut self) -> Option<QueueChange> {
        match self {
            MainQueue::Idle(q) => q.advance(),
            MainQueue::Log(q) => q.advance(),
        }
    }

    /// When the main queue wants a node that it does not use now.
    pub fn window_end(&self, node: NodeIx, foresight: Foresight) -> Option<PlannedUse> {
        match (self, foresight) {
            (_, Foresight::None) | (MainQueue::Idle(_), Foresight::Backfill) => None,
            (MainQueue::Idle(q), Foresight::Truth) => q.idle_until(node),
            // Where its jobs will start depends on what was planned: there is no other truth.
            (MainQueue::Log(q), _) => q.planned_use(node),
        }
    }

    /// Jobs that backfill has planned, and a number that changes when the plan does.
    pub fn backfill_plan(&self) -> (&[PlannedJob], u64) {
        match self {
            MainQueue::Idle(_) => (&[], 0),
            MainQueue::Log(q) => q.backfill_plan(),
        }
    }
}

#[cfg(test)]
mod tests;
