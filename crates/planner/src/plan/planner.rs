//! Plans a round: from the decision space through the incumbent and the solver to a plan on named nodes.

use super::placement::plan_choice;
use super::program::improve;
use super::program::solver::Solver;
use super::search::bound::SolveBound;
use super::search::incumbent::{self, Incumbent};
use super::search::tolerance::is_better;
use super::space::decision::{DecisionSpace, Schedule};
use super::space::problem::PlanningProblem;
use infill_model::{Plan, SolveStatus};

/// Plans a round. This may take the configured solve time and a little more, so do not call it on an async
/// executor. With a solve time of 0 the solver is not asked.
pub fn plan_round(problem: &PlanningProblem<'_>, solver: &dyn Solver) -> Plan {
    let space = DecisionSpace::from_problem(problem);
    if is_trivial(&space) {
        return plan_incumbent(&space, SolveStatus::Trivial);
    }
    let incumbent = incumbent::find_incumbent(&space);
    if incumbent.is_within(problem.config.mip_gap) {
        return place_best(&space, None, &incumbent, incumbent_bound(&incumbent, SolveStatus::Optimal));
    }
    let unasked = SolveStatus::SolverNotUsed { gap: incumbent.relative_gap() };
    if problem.config.solve_secs <= 0.0 {
        return place_best(&space, None, &incumbent, incumbent_bound(&incumbent, unasked));
    }
    match improve::improve_incumbent(&space, solver, &incumbent) {
        Ok(Some((found, bound))) => place_best(&space, Some(&found), &incumbent, bound),
        Ok(None) => place_best(&space, None, &incumbent, incumbent_bound(&incumbent, unasked)),
        Err(why) => {
            let status = SolveStatus::Fallback(why);
            place_best(&space, None, &incumbent, incumbent_bound(&incumbent, status))
        }
    }
}

/// Plans a round without a solver, where the program has none. The status of the plan says `why`.
pub fn plan_without_solver(problem: &PlanningProblem<'_>, why: &str) -> Plan {
    let space = DecisionSpace::from_problem(problem);
    let status =
        if is_trivial(&space) { SolveStatus::Trivial } else { SolveStatus::Fallback(why.to_owned()) };
    plan_incumbent(&space, status)
}

fn plan_incumbent(space: &DecisionSpace<'_>, status: SolveStatus) -> Plan {
    let incumbent = incumbent::find_incumbent(space);
    let bound = incumbent_bound(&incumbent, status);
    place_best(space, None, &incumbent, bound)
}

/// The bound that belongs to the incumbent, with a status.
fn incumbent_bound(incumbent: &Incumbent, status: SolveStatus) -> SolveBound {
    SolveBound { status, bound: incumbent.bound, by: incumbent.by }
}

/// Places the schedule that the solver `found` and the incumbent on nodes, the better one first. Returns the
/// best plan of these.
fn place_best(
    space: &DecisionSpace<'_>,
    found: Option<&Schedule>,
    incumbent: &Incumbent,
    bound: SolveBound,
) -> Plan {
    let own = &incumbent.schedule;
    let (first, second) = match found {
        Some(found) if is_better(space, found, own) => (found, Some(own)),
        _ => (own, found),
    };
    plan_choice::choose_plan(space, first, second, &incumbent.others, bound)
}

/// Whether nothing is to be decided: no usable node, or no job with a choice.
pub(crate) fn is_trivial(space: &DecisionSpace<'_>) -> bool {
    space.steps.is_empty() || space.jobs.iter().all(|j| j.options.len() < 2)
}
