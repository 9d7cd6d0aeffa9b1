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
mod choice;
mod fit;
mod learner;
pub mod memory;
mod numbers;
pub mod presets;
pub mod prior;
mod residual;
mod terms;
#[cfg(test)]
mod tests;
pub mod trial;

pub use fit::PlanPredictions;
pub use learner::PlanModel;
pub use numbers::PlanPriors;
pub use terms::PlacedPlan;
