//! Has the solver improve on the plan in hand. Whatever it answers is checked.

use super::solver::{Limits, Solution, Solver};
use super::variables;
use super::write::write_program;
use crate::plan::{
    search::{
        bound::SolveBound,
        incumbent,
        local_search::polish_schedule,
        multipliers::{OptionScores, UsefulOptions},
    },
    space::decision::{DecisionSpace, Schedule},
};
use infill_model::{BoundSource, SolveStatus};

/// Relative violation of a row that we forgive a solver: its own default tolerance.
const FEASIBILITY_TOLERANCE: f64 = 1e-5;

/// Most options, over all jobs and steps, that the program considers. Solvers look at the clock between
/// the pieces of their work, and with more than this a single piece can take seconds.
const MOST_OPTIONS: usize = 4_000;

/// Most options that may be left once nothing tells them apart, as with very many equal jobs. With more,
/// the solver is not asked.
const TOO_MANY_OPTIONS: usize = 2 * MOST_OPTIONS;

/// The same where nodes are of several types. Branches have closed what is small. A solver closes little of
/// what they leave.
const MOST_OPTIONS_OF_TYPES: usize = 1_000;

/// The share of the slack that remains each time that options must be left out.
const NARROWER: f64 = 0.7;

/// Asks the solver for a better schedule than the one in hand, and says what is proved then. `None` where
/// the solver is not worth its time. That is so where many workers are blocks, or nodes are of several types,
/// and the program has too many options. In rounds drawn at random it proved nothing there, and changed
/// little. It is also so where too many jobs are alike.
pub(crate) fn improve_incumbent(
    space: &DecisionSpace<'_>,
    solver: &dyn Solver,
    in_hand: &incumbent::Incumbent,
) -> Result<Option<(Schedule, SolveBound)>, String> {
    let Some((useful, whole)) = considered_options(space, in_hand) else { return Ok(None) };
    let (milp, index) = write_program(space, &useful);
    let start = variables::encode_schedule(space, &index, &milp, &in_hand.schedule);
    let config = space.problem.config;
    let limits = Limits { secs: config.solve_secs, mip_gap: config.mip_gap };
    let name = solver.name();
    let solution = solver.solve(&milp, limits, Some(&start)).map_err(|e| format!("{name}: {e}"))?;
    let schedule = variables::decode_assignment(&index, &solution.values)
        .filter(|_| milp.is_feasible(&solution.values, FEASIBILITY_TOLERANCE))
        .filter(|schedule| space.is_feasible(schedule))
        .ok_or_else(|| format!("{name}: its answer breaks the model's rules"))?;
    let schedule = polish_schedule(space, schedule);
    let gain = milp.total_gain(&solution.values);
    let solved = whole.then(|| proven_bound(&solution, gain, limits.mip_gap)).flatten();
    let (bound, by) = tighter_bound(in_hand, solved);
    let score = space.score(&schedule).max(in_hand.score);
    let gap = Some(((bound - score) / score.abs()).max(0.0)).filter(|gap| gap.is_finite());
    let good = whole && solution.optimal || gap.is_some_and(|gap| gap <= limits.mip_gap);
    let gap = solution.gap.filter(|_| whole).or(gap);
    let status = if good { SolveStatus::Optimal } else { SolveStatus::TimeLimit { gap } };
    Ok(Some((schedule, SolveBound { status, bound, by })))
}

/// The options that the program considers, and whether these are all that can be part of a better
/// schedule; `None` where it is not to consider but a part of them.
fn considered_options(
    space: &DecisionSpace<'_>,
    in_hand: &incumbent::Incumbent,
) -> Option<(UsefulOptions, bool)> {
    let through = OptionScores::new(space, &in_hand.priced);
    if space.types.len() > 1 && through.exceeds_count(MOST_OPTIONS_OF_TYPES, in_hand.score) {
        return None;
    }
    let mut known = in_hand.score;
    let mut slack = in_hand.priced.bound - in_hand.score;
    let mut whole = true;
    while through.exceeds_count(MOST_OPTIONS, known) && slack > f64::EPSILON * in_hand.score.abs() {
        if space.blocks.are_many() {
            return None;
        }
        slack *= NARROWER;
        whole = false;
        known = in_hand.priced.bound - slack;
    }
    if through.exceeds_count(TOO_MANY_OPTIONS, known) {
        return None;
    }
    let mut useful = through.useful_options(known);
    // The solver starts from the schedule in hand.
    for (useful, path) in useful.iter_mut().zip(&in_hand.schedule) {
        useful.iter_mut().zip(path).for_each(|(useful, option)| useful[*option] = true);
    }
    Some((useful, whole))
}

/// The bound that the solver proves, if it found a solution with this gain.
fn proven_bound(solution: &Solution, gain: f64, mip_gap: f64) -> Option<f64> {
    let gap = solution.gap.or(solution.optimal.then_some(mip_gap))?;
    Some(gain + gap * gain.abs())
}

/// The lower of two bounds. Options outside the program make no schedule better than the one in hand.
fn tighter_bound(in_hand: &incumbent::Incumbent, solved: Option<f64>) -> (f64, BoundSource) {
    match solved.map(|bound| bound.max(in_hand.score)) {
        Some(bound) if bound < in_hand.bound => (bound, BoundSource::Solver),
        _ => (in_hand.bound, in_hand.by),
    }
}
