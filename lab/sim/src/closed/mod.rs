//! A closed machine: no main queue, nodes that are always there, jobs that come, train and end. Published
//! experiments are run on such machines, and so like is compared with like.
//!
//! ```text
//! jobs ─▶ engine ─▶ policy: who gets which type, how many GPUs, which plan ─▶ seats on the machine
//!           ▲                                                                    │
//!           └──────── time passes by what was measured of the model there ◀──────┘
//! ```
//!
//! All policies pay the same for a change and run only where the table says that a model runs. What infill
//! decides with is the daemon's planner.

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
