//! All malleable jobs, with their lifecycles and further data. This is pure code: its inputs are events with
//! their times, and its output is a [`FleetOutcome`].

mod agent_orders;
mod agent_reports;
mod array_tasks;
mod facts;
mod fleet_job;
mod fleet_outcome;
mod job_fleet;
mod lead_starts;
mod loss_curve;
mod node_matching;
mod requests;
mod snapshot_intake;
mod start_conflict;
#[cfg(test)]
mod tests;
mod wing_numbers;

pub use agent_orders::{AgentId, AgentOrder};
pub use array_tasks::{ArraySplit, due_splits};
pub use fleet_job::JobDetails;
pub use fleet_outcome::{
    EffectBatch, FinishedJob, FleetOutcome, JobEnd, LearningEvent, LogNote, WorkerProgress,
};
pub use job_fleet::JobFleet;
pub use wing_numbers::{ReservedWingNumbers, WING_NUMBER_BLOCK_SIZE, lowest_wing_number};
