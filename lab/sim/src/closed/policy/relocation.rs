//! Relocates jobs that run on more nodes than necessary.
//!
//! The planner decides numbers of GPUs, and the machine decides which GPUs these are. A change stops a job
//! anyway, so it may get other GPUs then. A job without changes would otherwise stay forever on the nodes
//! that had free GPUs when it arrived.

use std::collections::BTreeSet;

use super::{ClosedTarget, ClosedView};
use crate::closed::job::ActiveJob;

/// A relocation must shorten a job's remaining time by this share.
const MIN_GAIN_SHARE: f64 = 0.03;

/// The estimated progress of a running job.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressEstimate {
    /// Steps that are left.
    pub left: f64,
    /// Steps a second on its present GPUs.
    pub rate: f64,
    /// Steps a second on as few nodes as possible.
    pub rate_if_close: f64,
}

impl ProgressEstimate {
    fn gains_by_moving(&self, restart_secs: f64) -> bool {
        restart_secs + self.left / self.rate_if_close < self.left / self.rate * (1.0 - MIN_GAIN_SHARE)
    }
}

/// Adds targets for jobs that would keep their choice and that gain from other GPUs. `estimate` is `None` for
/// a job without an estimate.
pub(super) fn relocate_jobs(
    view: &ClosedView<'_>,
    targets: &mut Vec<ClosedTarget>,
    estimate: &dyn Fn(&ActiveJob) -> Option<ProgressEstimate>,
) {
    let mut changes: Vec<&ClosedTarget> = targets
        .iter()
        .filter(|target| {
            let run = view.jobs.get(&target.job).and_then(|job| job.run.as_ref());
            run.map(|run| &run.choice) != target.choice.as_ref()
        })
        .collect();
    let changing: BTreeSet<usize> = changes.iter().map(|target| target.job).collect();
    // First assign GPUs to the jobs that change, as the engine will.
    let mut machine = view.machine.clone();
    for run in changing.iter().filter_map(|id| view.jobs.get(id)?.run.as_ref()) {
        machine.release_gpus(&run.seat);
    }
    changes.sort_by_key(|target| target.placement_order());
    for target in changes {
        let speeds = view.jobs.get(&target.job).and_then(|job| view.speeds.for_model(&job.submitted.model));
        if let Some((seat, _)) =
            target.choice.as_ref().and_then(|choice| speeds?.find_placement(&machine, choice))
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
        if is_closer && estimate(job).is_some_and(|estimate| estimate.gains_by_moving(view.restart_secs)) {
            without.take_gpus(&seat);
            machine = without;
            targets.retain(|target| target.job != job.id);
            targets.push(ClosedTarget::relocation(job.id, run.choice.clone()));
        }
    }
}
