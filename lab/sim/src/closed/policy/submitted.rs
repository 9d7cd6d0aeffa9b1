//! Jobs as they were submitted: nothing is rescaled.

use super::{Policy, View, Wish, as_submitted};
use crate::closed::machine::Machine;

/// Seconds between two rounds; nothing depends on it, for rounds follow what happens.
const EVERY_SECS: f64 = 300.0;

/// Starts jobs as they were submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    /// Whether nobody passes a job that does not fit, and each has the best plan for its size.
    strict: bool,
}

impl Submitted {
    /// With the plan that each was submitted with; whoever fits starts.
    pub(crate) fn as_they_are() -> Self {
        Submitted { strict: false }
    }

    /// With the best plan for type and size; nobody passes another one.
    pub fn in_order() -> Self {
        Submitted { strict: true }
    }
}

impl Policy for Submitted {
    fn name(&self) -> String {
        if self.strict { "fcfs" } else { "static" }.to_owned()
    }

    fn every_secs(&self) -> f64 {
        EVERY_SECS
    }

    fn hears_events(&self) -> bool {
        true
    }

    fn decide(&mut self, view: &View<'_>) -> Vec<Wish> {
        let mut machine: Machine = view.machine.clone();
        let mut wishes = Vec::new();
        for job in view.jobs.values().filter(|j| j.run.is_none()) {
            let Some((choice, _)) = as_submitted(view, job, self.strict) else { continue };
            let speeds = view.speeds.of(&job.submitted.model);
            match speeds.and_then(|m| m.seat(&machine, &choice)) {
                Some((seat, _)) => {
                    machine.take(&seat);
                    wishes.push(Wish::to(job.id, Some(choice)));
                }
                None if self.strict => break,
                None => {}
            }
        }
        wishes
    }
}
