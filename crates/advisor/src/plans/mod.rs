//! Execution plans: a model of how fast a job runs with each plan on each placement, from a few measurements.
//!
//! ```text
//! facts, public tables ─▶ terms ─▶ fit ─▶ a rate for every (plan, placement), with an interval
//!         (prior)                   ▲        │
//!                        measurement ◀── choice: the one that says most about all others
//! ```
//!
//! All plans of a job share one model: the costs of computing, exchanging gradients and updating are learned
//! once. What the terms do not explain of a plan, a placement or a number of GPUs is learned, too. Measured
//! ways to run keep their measured rates.

pub mod cells;
pub mod fitted_priors;
pub mod gpu_memory;
mod measurement_choice;
mod plan_model;
pub mod plan_presets;
pub mod plan_trial;
mod residual;
mod step_parameters;
mod step_terms;
mod term_fit;
#[cfg(test)]
mod tests;

pub use plan_model::PlanModel;
pub use step_parameters::PlanPriors;
pub use step_terms::PlacedPlan;
pub use term_fit::PlanPredictions;
