//! The planner decides which malleable job gets which nodes for how long. It is pure: the same problem always
//! gets the same plan.
//!
//! The modules follow the data:
//!
//! - `space`: the problem, and from it what each job may do in each step, what that earns, what it uses.
//! - `search`: a good schedule without a solver, and a bound on how much better a schedule can be.
//! - `program`: the mixed-integer program of what is left to gain, and the [`solver`]s for it.
//! - `placement`: the best of the found schedules on named nodes.
//! - `checker`: whether a plan may be carried out, and the reasons for what it decides.
//!
//! [`plan_round`] goes through all of them. [`plan_without_solver`] leaves the solver out. [`last_resort`]
//! searches for nothing, for when the time is up. [`check_plan`] checks a plan independently; only plans that
//! pass are carried out. [`explain_plan`] reports the reasons.
//!
//! Only the first step of a plan is carried out. The rest is a forecast, which the next round makes again.

mod checker;
mod placement;
mod planner;
mod program;
mod search;
mod space;

pub use checker::check::check_plan;
pub(crate) use checker::report::{explain_plan, planned_probes};
pub use checker::rule::CheckerRule;
pub use checker::rules::Violation;
pub use placement::last_resort::last_resort;
pub use planner::{plan_round, plan_without_solver};
pub use program::milp::{Assignment, Milp, MilpRow, MilpVariable};
pub use program::solver;
pub use space::cost::first_change;
pub use space::problem::PlanningProblem;
pub use space::site_limits::SiteLimits;

#[cfg(test)]
mod tests;
