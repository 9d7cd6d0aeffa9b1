//! The planner: which malleable job gets which nodes for how long. Pure: the same problem always has the same
//! plan.
//!
//! [`plan`] lays out the decision space (`space`, `options`, `steps`, `cost`, `evaluate`), makes a plan
//! without a solver (`dp`, `knapsack`, `path`, `prices`), writes the mixed-integer program (`variables`,
//! `constraints`, `objective`), has a [`solver`] improve on that plan, lays the better of the two on named
//! nodes (`extract`). [`check`] judges a plan independently: nothing is carried out that it does not pass.
//! [`explain`] says why it is as it is. [`fallback`] is `plan` without the solver, for when its time is up.
//!
//! Only the first step of a plan is carried out; the rest is a forecast, made anew in the next round.

mod changes;
mod check;
mod constraints;
mod cost;
mod dp;
mod evaluate;
mod exchange;
mod extract;
mod improve;
mod knapsack;
mod laying;
mod limits;
mod milp;
mod objective;
mod options;
mod path;
mod pool;
mod prices;
mod problem;
mod report;
mod slots;
pub mod solver;
mod space;
mod steps;
mod variables;

use crate::model::{Plan, SolveStatus};
pub use check::{Violation, check};
pub use cost::{Change, Value, best_rate, first_change, rate_of};
pub use evaluate::evaluate;
use laying::Known;
pub use milp::{Assignment, Milp, Row, Variable};
pub use problem::Problem;
pub use report::explain;
use solver::Solver;
use space::{Schedule, Space};
pub use steps::{SHORTEST_STEP_SECS, Steps};

/// Plans a round. May take the configured solve time and a little more, so do not call it on an async
/// executor. With no solve time the solver is not asked.
pub fn plan(problem: &Problem<'_>, solver: &dyn Solver) -> Plan {
    let space = Space::of(problem);
    if is_trivial(&space) {
        return without_solver(&space, SolveStatus::Trivial);
    }
    let in_hand = dp::solve(&space);
    let known = |status| Known { status, bound: in_hand.bound, by: in_hand.by };
    if in_hand.is_within(problem.config.mip_gap) {
        return lay(&space, None, &in_hand, known(SolveStatus::Optimal));
    }
    if problem.config.solve_secs <= 0.0 {
        return lay(&space, None, &in_hand, known(SolveStatus::TimeLimit { gap: in_hand.gap() }));
    }
    match improve::ask(&space, solver, &in_hand) {
        Ok((found, known)) => lay(&space, Some(&found), &in_hand, known),
        Err(why) => lay(&space, None, &in_hand, known(SolveStatus::Fallback(why))),
    }
}

/// Plans a round without a solver: for when the outer deadline has passed. The status says `why`.
pub fn fallback(problem: &Problem<'_>, why: &str) -> Plan {
    let space = Space::of(problem);
    let trivial = is_trivial(&space);
    without_solver(&space, if trivial { SolveStatus::Trivial } else { SolveStatus::Fallback(why.to_owned()) })
}

fn without_solver(space: &Space<'_>, status: SolveStatus) -> Plan {
    let in_hand = dp::solve(space);
    let known = Known { status, bound: in_hand.bound, by: in_hand.by };
    lay(space, None, &in_hand, known)
}

/// Lays on nodes what the solver `found` and what is in hand, the better first: the best plan of these.
fn lay(space: &Space<'_>, found: Option<&Schedule>, in_hand: &dp::InHand, known: Known) -> Plan {
    let ours = &in_hand.schedule;
    let (first, second) = match found {
        Some(found) if dp::better(space, found, ours) => (found, Some(ours)),
        _ => (ours, found),
    };
    let others: Vec<&Schedule> = second.into_iter().chain(&in_hand.others).collect();
    laying::best(space, first, &others, known)
}

/// Whether there is nothing to decide: no usable node, or no job with a choice.
fn is_trivial(space: &Space<'_>) -> bool {
    space.steps.is_empty() || space.jobs.iter().all(|j| j.options.len() < 2)
}

/// Writes the program of a space, over the options that are `useful`.
fn write(space: &Space<'_>, useful: &variables::Useful) -> (Milp, variables::Index) {
    let mut milp = Milp::default();
    let index = variables::add(space, useful, &mut milp);
    constraints::add(space, &index, &mut milp);
    objective::set(space, &index, &mut milp);
    (milp, index)
}

#[cfg(test)]
mod tests;
