//! The simulator: a recorded main queue, a workload of malleable jobs, and a policy that lends them the idle
//! nodes.
//!
//! [`run`] goes from event to event in virtual time (`engine`). The main queue is replayed (`queue`), jobs
//! come from a `supply`, run by their true curves (`job`) and are given nodes by a [`policy`]: infill's own,
//! which makes the daemon's rounds, or one of those that it is compared with. What came of it is an
//! [`PolicyScore`] (`score`), which also says how fair it was (`fairness`).
//!
//! The same setup has the same outcome: chance comes from seeds.

#![warn(clippy::disallowed_types)]

pub mod closed;
mod cluster;
mod engine;
mod fairness;
mod holding;
pub mod job;
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
