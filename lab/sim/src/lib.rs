//! The simulator: a recorded main queue, a workload of malleable jobs, and a policy that lends them the idle
//! nodes.
//!
//! [`run_simulation`] steps from event to event in virtual time (`engine`). It replays the main queue
//! (`queue`). Jobs come from a [`supply`], progress by their true curves ([`job`]), and get nodes from a
//! [`policy`]: infill's own, which runs the daemon's rounds, or a policy for comparison. The result is a
//! [`PolicyScore`] (`score`), which also measures fairness (`fairness`).
//!
//! The same setup always gives the same result: all random numbers come from seeds.

#![warn(clippy::disallowed_types)]

pub mod closed;
mod cluster;
mod engine;
mod fairness;
mod holding;
pub mod job;
mod live;
mod main_delays;
mod newcomers;
pub mod order;
pub mod policy;
pub mod queue;
mod recorded_gaps;
mod saving;
mod score;
mod seeded_random;
pub mod supply;

pub use cluster::ClusterState;

pub use cluster::NodeOwner;
pub use engine::{SimulationSetup, run_simulation};
pub use fairness::FairnessScore;
pub use job::SimJob;
pub use live::{LiveSimulation, LiveSums};
pub use main_delays::DelayRecord;
pub use policy::PolicyName;
pub use recorded_gaps::gap_statistics;
pub use score::{JobScore, MainQueueDelays, NodeSpan, PolicyScore, SampleLoss, SeriesPoint};

#[cfg(test)]
mod crowd_tests;
#[cfg(test)]
mod holding_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns_tests;
