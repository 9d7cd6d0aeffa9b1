//! Plans a round: through the decision space, the plan in hand and the solver to a plan on named nodes.

use super::laying::choice;
use super::program::improve;
use super::program::solver::Solver;
use super::search::alike::better;
use super::search::in_hand::{self, InHand};
use super::search::known::Known;
use super::space::decision::{Schedule, Space};
use super::space::problem::Problem;
use infill_model::{Plan, SolveStatus};

/// Plans a round. May take the configured solve time and a little more, so do not call it on an async
/// executor. With no solve time the solver is not asked.
pub fn plan(problem: &Problem<'_>, solver: &dyn Solver) -> Plan {
    let space = Space::of(problem);
    if is_trivial(&space) {
        return without_solver(&space, SolveStatus::Trivial);
    }
    let in_hand = in_hand::solve(&space);
    let known = |status| Known { status, bound: in_hand.bound, by: in_hand.by };
    if in_hand.is_within(problem.config.mip_gap) {
        return lay(&space, None, &in_hand, known(SolveStatus::Optimal));
    }
    let unasked = || known(SolveStatus::Unasked { gap: in_hand.gap() });
    if problem.config.solve_secs <= 0.0 {
        return lay(&space, None, &in_hand, unasked());
    }
    match improve::ask(&space, solver, &in_hand) {
        Ok(Some((found, known))) => lay(&space, Some(&found), &in_hand, known),
        Ok(None) => lay(&space, None, &in_hand, unasked()),
        Err(why) => lay(&space, None, &in_hand, known(SolveStatus::Fallback(why))),
    }
}

/// Plans a round without a solver, where the program has none. The status says `why`.
pub fn fallback(problem: &Problem<'_>, why: &str) -> Plan {
    let space = Space::of(problem);
    let trivial = is_trivial(&space);
    without_solver(&space, if trivial { SolveStatus::Trivial } else { SolveStatus::Fallback(why.to_owned()) })
}

fn without_solver(space: &Space<'_>, status: SolveStatus) -> Plan {
    let in_hand = in_hand::solve(space);
    let known = Known { status, bound: in_hand.bound, by: in_hand.by };
    lay(space, None, &in_hand, known)
}

/// Lays on nodes what the solver `found` and what is in hand, the better first: the best plan of these.
fn lay(space: &Space<'_>, found: Option<&Schedule>, in_hand: &InHand, known: Known) -> Plan {
    let ours = &in_hand.schedule;
    let (first, second) = match found {
        Some(found) if better(space, found, ours) => (found, Some(ours)),
        _ => (ours, found),
    };
    choice::best(space, first, second, &in_hand.others, known)
}

/// Whether there is nothing to decide: no usable node, or no job with a choice.
pub(crate) fn is_trivial(space: &Space<'_>) -> bool {
    space.steps.is_empty() || space.jobs.iter().all(|j| j.options.len() < 2)
}
