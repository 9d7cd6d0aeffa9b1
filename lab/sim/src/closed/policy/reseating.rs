//! Jobs that the machine seats anew, for they run on more nodes than they would have to now.
//!
//! The planner counts GPUs, and the machine seats them. A change stops a job anyway, so that it may sit
//! elsewhere then; one that nothing changes would sit for ever where there was room when it came.

use std::collections::BTreeSet;

use super::{View, Wish};
use crate::closed::job::Job;

/// The end of a job must come nearer by this share.
const LEAST_GAIN: f64 = 0.03;

/// What is believed of a job that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progressing {
    /// Steps that are left of it.
    pub left: f64,
    /// Steps a second where it is.
    pub rate: f64,
    /// Steps a second on as few nodes as there can be.
    pub rate_if_close: f64,
}

impl Progressing {
    fn gains(&self, restart_secs: f64) -> bool {
        restart_secs + self.left / self.rate_if_close < self.left / self.rate * (1.0 - LEAST_GAIN)
    }
}

/// Has jobs that are to stay as they are, and that would gain by it, seated anew. `believed`: `None` of a
/// job of which nothing can be said.
pub(super) fn reseat(
    view: &View<'_>,
    wishes: &mut Vec<Wish>,
    believed: &dyn Fn(&Job) -> Option<Progressing>,
) {
    let has = |wish: &Wish| view.jobs.get(&wish.job).and_then(|job| job.run.as_ref()).map(|run| &run.choice);
    let mut changes: Vec<&Wish> = wishes.iter().filter(|wish| has(wish) != wish.choice.as_ref()).collect();
    let changing: BTreeSet<usize> = changes.iter().map(|wish| wish.job).collect();
    // First those that change take their seats, as they will.
    let mut machine = view.machine.clone();
    let runs = changing.iter().filter_map(|id| view.jobs.get(id)?.run.as_ref());
    runs.for_each(|run| machine.give_back(&run.seat));
    changes.sort_by_key(|wish| wish.order());
    for wish in changes {
        let speeds = view.jobs.get(&wish.job).and_then(|job| view.speeds.of(&job.submitted.model));
        if let Some((seat, _)) = wish.choice.as_ref().and_then(|choice| speeds?.seat(&machine, choice)) {
            machine.take(&seat);
        }
    }
    for job in view.jobs.values().filter(|job| !changing.contains(&job.id)) {
        let Some(run) = job.run.as_ref().filter(|run| run.ready <= view.now) else { continue };
        let mut without = machine.clone();
        without.give_back(&run.seat);
        let speeds = view.speeds.of(&job.submitted.model);
        let Some((seat, _)) = speeds.and_then(|speeds| speeds.seat(&without, &run.choice)) else { continue };
        let is_closer = seat.nodes.len() < run.seat.nodes.len();
        if is_closer && believed(job).is_some_and(|believed| believed.gains(view.restart_secs)) {
            without.take(&seat);
            machine = without;
            wishes.retain(|wish| wish.job != job.id);
            wishes.push(Wish::anew(job.id, run.choice.clone()));
        }
    }
}
