//! Chooses among schedules the one that is worth most on named nodes, and says how good that is proved to be.
//!
//! Counts can be laid on nodes as they are but for one case: a node that one job keeps for now may be the
//! only one that lasts as long as another job needs it from now on. Laying such a schedule loses something.
//! Then other good ones are tried. It may gain something as well, where the named nodes last longer than
//! counts can say: so what is in hand is laid beside what the solver has found.

use super::extract::{self, Laid};
use crate::plan::{
    search::known::Known,
    space::decision::{Schedule, Space},
};
use infill_model::{Plan, Proof};

/// What laying a schedule on nodes may lose of its score before another one is tried: more than the tie
/// bonuses, which no plan has.
const TOLERATED_LOSS: f64 = 1e-5;

/// The best plan that comes of the `first` schedule and the `second`, or if that loses something, of the
/// others.
pub(crate) fn best(
    space: &Space<'_>,
    first: &Schedule,
    second: Option<&Schedule>,
    others: &[Schedule],
    known: Known,
) -> Plan {
    let (mut best, mut chosen) = (extract::lay(space, first, &known.status), first);
    let loses = |laid: &Laid, schedule: &Schedule| {
        laid.value.score() - laid.busy.score() < space.score(schedule) * (1.0 - TOLERATED_LOSS)
    };
    let mut lost = loses(&best, first);
    let always = usize::from(second.is_some());
    for (at, schedule) in second.into_iter().chain(others).enumerate() {
        if !lost && at >= always {
            break;
        }
        let laid = extract::lay(space, schedule, &known.status);
        lost = loses(&laid, schedule);
        if laid.value.score() > best.value.score() {
            (best, chosen) = (laid, schedule);
        }
    }
    let of_counts = Some(space.score(chosen) + best.busy.score()).filter(|_| best.short.is_empty());
    let score = match of_counts {
        // A forecast does not say on which type of nodes: its value hopes for the best one in each step.
        Some(of_counts) if space.types.len() > 1 => of_counts,
        Some(of_counts) => best.value.score().max(of_counts),
        None => best.value.score(),
    };
    let bound = known.bound + best.busy.score();
    let gap = ((bound - score) / score.abs()).max(0.0);
    best.plan.proof = gap.is_finite().then_some(Proof { bound, gap, by: known.by });
    best.plan
}
