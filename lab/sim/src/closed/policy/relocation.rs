//! Jobs that the machine seats anew, for they run on more nodes than they would have to now.
//!
//! The planner counts GPUs, and the machine seats them. A change stops a job anyway, so that it may sit
//! elsewhere then; one that nothing changes would sit for ever where there was room when it came.

use std::collections::BTreeSet;

use super::{ClosedTarget, ClosedView};
use crate::closed::job::ActiveJob;

/// The end of a job must come nearer by this share.
const MIN_GAIN_SHARE: f64 = 0.03;

/// What is believed of a job that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressEstimate {
    /// Steps that are left of it.
    pub left: f64,
    /// Steps a second where it is.
    pub rate: f64,
    /// Steps a second on as few nodes as there can be.
    pub rate_if_close: f64,
}

impl ProgressEstimate {
    fn gains_by_moving(&self, restart_secs: f64) -> bool {
        restart_secs + self.left / self.rate_if_close < self.left / self.rate * (1.0 - MIN_GAIN_SHARE)
    }
}

/// Has jobs that are to stay as they are, and that would gain by it, seated anew. `believed`: `None` of a
/// job of which nothing can be said.
pub(super) fn relocate_jobs(
    view: &ClosedView<'_>,
    wishes: &mut Vec<ClosedTarget>,
    believed: &dyn Fn(&ActiveJob) -> Option<ProgressEstimate>,
) {
    let has = |wish: &ClosedTarget| {
        view.jobs.get(&wish.job).and_then(|job| job.run.as_ref()).map(|run| &run.choice)
    };
    let mut changes: Vec<&ClosedTarget> =
        wishes.iter().filter(|wish| has(wish) != wish.choice.as_ref()).collect();
    let changing: BTreeSet<usize> = changes.iter().map(|wish| wish.job).collect();
    // First those that change take their seats, as they will.
    let mut machine = view.machine.clone();
    let runs = changing.iter().filter_map(|id| view.jobs.get(id)?.run.as_ref());
    runs.for_each(|run| machine.release_gpus(&run.seat));
    changes.sort_by_key(|wish| wish.placement_order());
    for wish in changes {
        let speeds = view.jobs.get(&wish.job).and_then(|job| view.speeds.for_model(&job.submitted.model));
        if let Some((seat, _)) =
            wish.choice.as_ref().and_then(|choice| speeds?.find_placement(&machine, choice))
        {
            machine.take_gpus(&seat);
        }
    }
    for job in view.jobs.values().filter(|job| !changing.contains(&job.id)) {
        let Some(run) = job.run.as_ref().filter(|run| run.ready <= view.now) else { continue };
        let mut without = machine.clone();
        without.release_gpus(&run.seat);
        let speeds = view.speeds.for_model(&job.submitted.model);
        let Some((seat, _)) = speeds.and_then(|speeds| speeds.find_placement(&without, &run.choice)) else {
            continue;
        };
        let is_closer = seat.nodes.len() < run.seat.nodes.len();
        if is_closer && believed(job).is_some_and(|believed| believed.gains_by_moving(view.restart_secs)) {
            without.take_gpus(&seat);
            machine = without;
            wishes.retain(|wish| wish.job != job.id);
            wishes.push(ClosedTarget::relocation(job.id, run.choice.clone()));
        }
    }
}
