//! Execution plans: how fast a job is with each on each placement, from a few measurements of some.
//!
//! ```text
//! facts, what is usual ─▶ terms ─▶ fit ─▶ a rate for every (plan, placement), with an interval
//!                                   ▲        │
//!                        measurement ◀── choice: what would teach most of all the others
//! ```
//!
//! One model is shared by all plans of a job: what computing, exchanging gradients and updating cost is
//! learned once. Each plan departs from it by a little that is learned, too.

mod choice;
mod fit;
mod learner;
pub mod memory;
pub mod presets;
mod terms;
#[cfg(test)]
mod tests;
pub mod trial;

pub use learner::PlanLearner;
