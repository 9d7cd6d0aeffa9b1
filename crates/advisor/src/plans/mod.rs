//! Execution plans: how fast a job is with each on each placement, from a few measurements of some.
//!
//! ```text
//! facts, what is usual ─▶ terms ─▶ fit ─▶ a rate for every (plan, placement), with an interval
//!         (prior)                   ▲        │
//!                        measurement ◀── choice: what would teach most of all the others
//! ```
//!
//! One model is shared by all plans of a job: what computing, exchanging gradients and updating cost is
//! learned once. What the terms do not say of a plan, a placement or a number of GPUs is learned, too, and
//! what was measured counts as measured.

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
