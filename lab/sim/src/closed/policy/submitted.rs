//! Policies that run jobs as they were submitted and never rescale them.

use super::{ClosedMachinePolicy, ClosedTarget, ClosedView, as_submitted};
use crate::closed::machine::ClosedMachine;

/// Seconds between two regular rounds. The value has no effect, because rounds follow events.
const ROUND_INTERVAL_SECS: f64 = 300.0;

/// Starts jobs as they were submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubmittedPolicy {
    /// Whether no job overtakes one that does not fit, and each job has the best plan for its size.
    strict: bool,
}

impl SubmittedPolicy {
    /// With the submitted plans. Each job that fits starts.
    pub(crate) fn with_submitted_plans() -> Self {
        SubmittedPolicy { strict: false }
    }

    /// With the best plan for type and size. No job overtakes another.
    pub fn in_strict_order() -> Self {
        SubmittedPolicy { strict: true }
    }
}

impl ClosedMachinePolicy for SubmittedPolicy {
    fn name(&self) -> String {
        if self.strict { "fcfs" } else { "static" }.to_owned()
    }

    fn round_interval_secs(&self) -> f64 {
        ROUND_INTERVAL_SECS
    }

    fn reacts_to_events(&self) -> bool {
        true
    }

    fn decide_targets(&mut self, view: &ClosedView<'_>) -> Vec<ClosedTarget> {
        let mut machine: ClosedMachine = view.machine.clone();
        let mut targets = Vec::new();
        for job in view.jobs.values().filter(|j| j.run.is_none()) {
            let Some((choice, _)) = as_submitted(view, job, self.strict) else { continue };
            let speeds = view.speeds.for_model(&job.submitted.model);
            match speeds.and_then(|m| m.find_placement(&machine, &choice)) {
                Some((seat, _)) => {
                    machine.take_gpus(&seat);
                    targets.push(ClosedTarget::with_choice(job.id, Some(choice)));
                }
                None if self.strict => break,
                None => {}
            }
        }
        targets
    }
}
