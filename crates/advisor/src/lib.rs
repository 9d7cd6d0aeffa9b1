//! The job profiling advisor: learns how a job scales while it trains, and which size is worth trying next.
//! Pure: no clock, files or network.
//!
//! ```text
//! progress ─▶ meter ─▶ stretch ─▶ learn ─▶ points of a profile ─▶ fit ─▶ curve ─▶ planner
//!             (rates,  (a rate with        (by size; drift)       │
//!              warm-up) an interval)                              └─▶ probe: the size whose
//!                                                                     uncertainty costs most
//! ```
//!
//! Every second of every allocation is a measurement. A probe is the planner's own choice of a size, which
//! its expected information makes attractive. It runs in gaps and leaves in time, like everything else.

#![warn(clippy::disallowed_types)]

mod basis;
mod believed_scaling;
mod change_costs;
mod contention;
mod crossing_costs;
pub mod curve_trial;
mod gaussian_process;
mod job_advisor;
mod job_input;
mod job_meters;
mod layer_estimates;
pub mod length;
mod node_capacity;
mod noise;
mod plan_curve;
mod plan_offers;
pub mod plans;
mod predicted_rates;
mod probe_tracker;
mod probe_value;
mod profile_cache;
mod profile_learning;
mod program_models;
mod rate;
mod rate_estimator;
mod rate_meter;
mod scaling;
mod site_speeds;
mod step_models;
pub mod stops;
mod supply_history;
#[cfg(test)]
mod tests;
pub mod type_trial;
mod use_horizon;

pub use contention::ContentionEstimator;
pub use predicted_rates::PredictedRate;
pub use profile_learning::batch_mode;

pub use crossing_costs::CrossingSlowdown;
pub use job_advisor::JobAdvisor;
pub use job_input::{JobInput, ProgressOutcome};
pub use node_capacity::NodeCapacity;
pub use plan_offers::{PlanObstacle, PlanOffer};
pub use probe_tracker::ProbeAim;
pub use probe_value::{CurrentConfiguration, ProbeCandidate, ProbeContext, best_probe};
pub use rate::SteadyRate;
pub use rate_meter::RateStretch;
pub use scaling::{FittedCurve, ScalingModel, SizeEstimate, sizes_of_interest};
