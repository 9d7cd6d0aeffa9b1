//! Plans a round: through the decision space, the plan in hand and the solver to a plan on named nodes.

use super::placement::plan_choice;
use super::program::improve;
use super::program::solver::Solver;
use super::search::bound::SolveBound;
use super::search::incumbent::{self, Incumbent};
use super::search::tolerance::is_better;
use super::space::decision::{DecisionSpace, Schedule};
use super::space::problem::PlanningProblem;
use infill_model::{Plan, SolveStatus};

/// Plans a round. May take the configured solve time and a little more, so do not call it on an async
/// executor. With no solve time the solver is not asked.
pub fn plan_round(problem: &PlanningProblem<'_>, solver: &dyn Solver) -> Plan {
    let space = DecisionSpace::from_problem(problem);
    if is_trivial(&space) {
        return plan_incumbent(&space, SolveStatus::Trivial);
    }
    let in_hand = incumbent::find_incumbent(&space);
    let known = |status| SolveBound { status, bound: in_hand.bound, by: in_hand.by };
    if in_hand.is_within(problem.config.mip_gap) {
        return place_better(&space, None, &in_hand, known(SolveStatus::Optimal));
    }
    let unasked = || known(SolveStatus::Unasked { gap: in_hand.relative_gap() });
    if problem.config.solve_secs <= 0.0 {
        return place_better(&space, None, &in_hand, unasked());
    }
    match improve::improve_incumbent(&space, solver, &in_hand) {
        Ok(Some((found, known))) => place_better(&space, Some(&found), &in_hand, known),
        Ok(None) => place_better(&space, None, &in_hand, unasked()),
        Err(why) => place_better(&space, None, &in_hand, known(SolveStatus::Fallback(why))),
    }
}

/// Plans a round without a solver, where the program has none. The status says `why`.
pub fn plan_without_solver(problem: &PlanningProblem<'_>, why: &str) -> Plan {
    let space = DecisionSpace::from_problem(problem);
    let trivial = is_trivial(&space);
    plan_incumbent(&space, if trivial { SolveStatus::Trivial } else { SolveStatus::Fallback(why.to_owned()) })
}

fn plan_incumbent(space: &DecisionSpace<'_>, status: SolveStatus) -> Plan {
    let in_hand = incumbent::find_incumbent(space);
    let known = SolveBound { status, bound: in_hand.bound, by: in_hand.by };
    place_better(space, None, &in_hand, known)
}

/// Lays on nodes what the solver `found` and what is in hand, the better first: the best plan of these.
fn place_better(
    space: &DecisionSpace<'_>,
    found: Option<&Schedule>,
    in_hand: &Incumbent,
    known: SolveBound,
) -> Plan {
    let ours = &in_hand.schedule;
    let (first, second) = match found {
        Some(found) if is_better(space, found, ours) => (found, Some(ours)),
        _ => (ours, found),
    };
    plan_choice::choose_plan(space, first, second, &in_hand.others, known)
}

/// Whether there is nothing to decide: no usable node, or no job with a choice.
pub(crate) fn is_trivial(space: &DecisionSpace<'_>) -> bool {
    space.steps.is_empty() || space.jobs.iter().all(|j| j.options.len() < 2)
}
