//! When two schedules count as equally good.

use crate::plan::space::decision::{DecisionSpace, Schedule};

/// Relative gain below which two schedules count as equal: rounding errors are smaller, tie bonuses larger.
pub(crate) const SAME_SCORE: f64 = 1e-11;

/// Whether `a` is feasible and scores higher than `b` beyond rounding errors.
pub(crate) fn is_better(space: &DecisionSpace<'_>, a: &Schedule, b: &Schedule) -> bool {
    let a_score = space.score(a);
    let b_score = space.score(b);
    space.is_feasible(a) && a_score > b_score + SAME_SCORE * b_score.abs().max(1.0)
}
