//! The planner: which malleable job gets which nodes for how long. Pure: the same problem always has the same plan.
//!
//! [`plan`] lays out the decision space (`space`, `options`, `steps`, `cost`, `evaluate`), makes a plan without a solver (`dp`, `knapsack`, `path`, `prices`),
//! writes the mixed-integer program (`variables`, `constraints`, `objective`), has a [`solver`] improve on that plan, lays
//! the better of the two on named nodes (`extract`) and explains it (`report`). [`check`] judges a plan independently:
//! nothing is carried out that it does not pass. [`fallback`] is `plan` without the solver, for when its time is up.
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

use crate::model::{Plan, Report, SolveStatus};
pub use check::{Violation, check};
pub use cost::{Change, Value, best_rate, first_change, rate_of};
pub use evaluate::evaluate;
pub use milp::{Assignment, Milp, Row, Variable};
pub use problem::Problem;
use solver::{Limits, Solver};
use space::{Schedule, Space};
pub use steps::{SHORTEST_STEP_SECS, Steps};

/// Relative violation of a row that we forgive a solver: its own default tolerance.
const FEASIBILITY_TOLERANCE: f64 = 1e-5;

/// Plans a round. May take the configured solve time and a little more, so do not call it on an async executor.
pub fn plan(problem: &Problem<'_>, solver: &dyn Solver) -> (Plan, Report) {
    let space = Space::of(problem);
    if is_trivial(&space) {
        return without_solver(&space, SolveStatus::Trivial);
    }
    let in_hand = dp::solve(&space);
    if in_hand.is_within(problem.config.mip_gap) {
        return lay(&space, None, &in_hand, &SolveStatus::Optimal);
    }
    if problem.config.solve_nodes == 0 {
        return lay(&space, None, &in_hand, &SolveStatus::TimeLimit { gap: in_hand.gap() });
    }
    match improve(&space, solver, &in_hand) {
        Ok((found, status)) => lay(&space, Some(&found), &in_hand, &status),
        Err(why) => lay(&space, None, &in_hand, &SolveStatus::Fallback(why)),
    }
}

/// Plans a round without a solver: for when the outer deadline has passed. The status says `why`.
pub fn fallback(problem: &Problem<'_>, why: &str) -> (Plan, Report) {
    let space = Space::of(problem);
    let trivial = is_trivial(&space);
    without_solver(&space, if trivial { SolveStatus::Trivial } else { SolveStatus::Fallback(why.to_owned()) })
}

fn without_solver(space: &Space<'_>, status: SolveStatus) -> (Plan, Report) {
    lay(space, None, &dp::solve(space), &status)
}

/// Lays on nodes what the solver `found` and what is in hand, the better first, and explains the best plan of these.
fn lay(
    space: &Space<'_>,
    found: Option<&Schedule>,
    in_hand: &dp::InHand,
    status: &SolveStatus,
) -> (Plan, Report) {
    let ours = std::iter::once(&in_hand.schedule).chain(&in_hand.others);
    let mut schedules: Vec<&Schedule> = ours.collect();
    if let Some(found) = found {
        let place = usize::from(!dp::better(space, found, &in_hand.schedule));
        schedules.insert(place, found);
    }
    let best = laying::best(space, &schedules, status);
    let plan = best.map_or_else(|| extract::plan(space, &in_hand.schedule, status.clone()), |(_, plan)| plan);
    finish(space.problem, plan)
}

fn finish(problem: &Problem<'_>, plan: Plan) -> (Plan, Report) {
    let report = report::explain(problem, &plan);
    (plan, report)
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

/// Asks the solver for something better than the schedule in hand. Whatever it answers is checked.
fn improve(
    space: &Space<'_>,
    solver: &dyn Solver,
    in_hand: &dp::InHand,
) -> Result<(Schedule, SolveStatus), String> {
    let (milp, index) = write(space, &prices::useful(space, &in_hand.priced, in_hand.score));
    let start = variables::encode(space, &index, &milp, &in_hand.schedule);
    let config = space.problem.config;
    let limits = Limits { secs: config.solve_secs, nodes: config.solve_nodes, mip_gap: config.mip_gap };
    let name = solver.name();
    let solution = solver.solve(&milp, limits, Some(&start)).map_err(|e| format!("{name}: {e}"))?;
    let schedule = variables::decode(&index, &solution.values)
        .filter(|_| milp.is_feasible(&solution.values, FEASIBILITY_TOLERANCE))
        .filter(|schedule| space.is_feasible(schedule))
        .ok_or_else(|| format!("{name}: its answer breaks the model's rules"))?;
    let status = match solution.optimal {
        true => SolveStatus::Optimal,
        false => SolveStatus::TimeLimit { gap: solution.gap },
    };
    Ok((dp::polish(space, schedule), status))
}

#[cfg(test)]
mod tests;
