//! Simulates a closed machine: no main queue, nodes that are always available, and jobs that arrive, train
//! and end. Published experiments ran on such machines, so results can be compared.
//!
//! ```text
//! jobs ─▶ engine ─▶ policy: type, number of GPUs and plan for each job ─▶ GPUs of the machine
//!           ▲                                                                │
//!           └──────── jobs progress at the speed measured for them ◀─────────┘
//! ```
//!
//! All policies pay the same for a change, and run models only in configurations of the speed table. infill
//! decides with the daemon's planner.

mod engine;
mod job;
mod machine;
mod outcome;
pub mod policy;
mod setup;
mod speeds;
#[cfg(test)]
mod tests;

pub use engine::run_closed;
pub use job::{ActiveJob, ActiveRun};
pub use machine::{ClosedMachine, GpuAllocation, GpuPool, InvalidMachine};
pub use outcome::{ClosedOutcome, JobOutcome};
pub use policy::ClosedPolicyName;
pub use setup::ClosedSetup;
pub use speeds::{MeasuredPlacement, ModelSpeeds, RunChoice, SpeedTable};
