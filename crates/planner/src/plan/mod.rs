//! The planner: which malleable job gets which nodes for how long. Pure: the same problem always has the same
//! plan.
//!
//! Rooms follow the data:
//!
//! - `space`: the problem, and from it what each job may do in each step, what that earns, what it uses.
//! - `search`: a good schedule without a solver, and the bound that says how good.
//! - `program`: the mixed-integer program of what is left to gain, and the [`solver`]s for it.
//! - `laying`: the better of the two on named nodes.
//! - `judge`: whether a plan may be carried out, and why it is as it is.
//!
//! [`plan`] goes through all of them, [`plan_without_solver`] leaves the solver out, where there is none.
//! [`last_resort`] searches for nothing, for when the time is up. [`check`] judges a plan independently:
//! nothing is carried out that it does not pass. [`explain_plan`] says why it is as it is.
//!
//! Only the first step of a plan is carried out; the rest is a forecast, made anew in the next round.

mod checker;
mod placement;
mod planner;
mod program;
mod search;
mod space;

pub use checker::check::check_plan;
pub(crate) use checker::report::{explain_plan, planned_probes};
pub use checker::rules::{Rule, Violation};
pub use placement::last_resort::last_resort;
pub use planner::{plan_round, plan_without_solver};
pub use program::milp::{Assignment, Milp, MilpRow, MilpVariable};
pub use program::solver;
pub use space::cost::first_change;
pub use space::problem::PlanningProblem;

#[cfg(test)]
mod tests;
