//! Chooses among schedules the one that is worth most on named nodes.
//!
//! Counts can be laid on nodes as they are but for one case: a node that one job keeps for now may be the only one that lasts
//! as long as another job needs it from now on. Laying such a schedule loses something. Then other good ones are tried.

use super::evaluate::evaluate;
use super::extract;
use super::space::{Schedule, Space};
use crate::model::{Plan, SolveStatus};

/// What laying a schedule on nodes may lose of its score before another one is tried: more than the tie bonuses, which no
/// plan has.
const TOLERATED_LOSS: f64 = 1e-5;

/// The best plan that comes of the schedules, with its score. They are tried in turn until one loses nothing.
pub fn best(space: &Space<'_>, schedules: &[&Schedule], status: &SolveStatus) -> Option<(f64, Plan)> {
    let mut best: Option<(f64, Plan)> = None;
    for schedule in schedules {
        let plan = extract::plan(space, schedule, status.clone());
        let score = evaluate(space.problem, &space.steps, &plan).score();
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, plan));
        }
        if score >= space.score(schedule) * (1.0 - TOLERATED_LOSS) {
            break;
        }
    }
    best
}
