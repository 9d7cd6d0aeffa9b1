//! Gives back wings that nobody wants any more, and those that never came.

use std::collections::BTreeSet;

use infill_model::{JobId, NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::phase::JobPhase;
use super::settings::LifecycleSettings;
use super::worker::Wing;

impl JobLifecycle {
    pub(super) fn tidy_wings(&mut self, settings: &LifecycleSettings, now: UnixTime, out: &mut StepOutcome) {
        let members: BTreeSet<NodeName> = self.phase.involved_nodes().cloned().collect();
        for number in self.wings.keys().copied().collect::<Vec<_>>() {
            let Some(wing) = self.wings.get(&number).cloned() else { continue };
            if wing.order.nodes.iter().any(|n| members.contains(n)) {
                continue;
            }
            match wing.job {
                Some(job) if wing.is_late(settings, now) && self.is_awaited(&wing) => {
                    self.handle_stuck_wing(&wing, job, settings, now, out);
                    self.return_wing(&wing, job, now, out);
                }
                Some(job) => self.tidy_wing(number, &wing, job, now, out),
                None => self.tidy_order(number, &wing, wing.is_late(settings, now)),
            }
        }
    }

    /// Nodes of the wing that the job still wants.
    fn wanted_wing_nodes(&self, wing: &Wing) -> Vec<NodeName> {
        let all_go = matches!(self.phase, JobPhase::Ending { .. } | JobPhase::Ended)
            || (self.phase.is_queued() && self.target.is_none());
        wing.order.nodes.iter().filter(|n| !all_go && self.wants_wing_on(n)).cloned().collect()
    }

    /// Not submitted yet: an order that nobody wants, or that nobody took, is simply withdrawn.
    fn tidy_order(&mut self, number: u64, wing: &Wing, late: bool) {
        if late || self.wanted_wing_nodes(wing).is_empty() {
            self.wings.remove(&number);
            wing.order.nodes.iter().for_each(|n| self.drop_from_target(n));
        }
    }

    /// Whether the job wants nodes of the wing from which no agent has come.
    fn is_awaited(&self, wing: &Wing) -> bool {
        !self.wanted_wing_nodes(wing).iter().all(|n| self.workers.contains_key(n))
    }

    fn return_wing(&mut self, wing: &Wing, job: JobId, now: UnixTime, out: &mut StepOutcome) {
        wing.order.nodes.iter().for_each(|n| self.drop_from_target(n));
        self.attempt_effect(Effect::CancelWing { job }, now, out);
    }

    fn tidy_wing(&mut self, number: u64, wing: &Wing, job: JobId, now: UnixTime, out: &mut StepOutcome) {
        let nodes = &wing.order.nodes;
        let keep = self.wanted_wing_nodes(wing);
        let on_host = wing.batch_host.as_ref().is_none_or(|h| keep.contains(h));
        if keep.is_empty() || !on_host {
            self.return_wing(wing, job, now, out);
        } else if keep.len() < nodes.len() {
            self.attempt_effect(Effect::ShrinkWing { job, keep: keep.clone() }, now, out);
            nodes.iter().filter(|n| !keep.contains(n)).for_each(|n| drop(self.workers.remove(n)));
            if let Some(w) = self.wings.get_mut(&number) {
                w.order.nodes = keep;
            }
        }
    }

    /// A wing that waited in the queue met a limit, and more of them would, or the main queue; one that ran
    /// met something on its nodes.
    fn handle_stuck_wing(
        &mut self,
        wing: &Wing,
        job: JobId,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        out.notes.push(format!("wing {job} did not come up in time: cancelled"));
        if wing.configuring {
            // A prolog that takes its time is nobody's fault.
        } else if wing.seen_running {
            self.handle_failed_wing(wing, "a wing did not come up", settings, now, out);
        } else if self.obstacles.shortage.is_some() {
            self.backoff.record_refusal(settings, now);
        } else {
            self.backoff.record_wing_failure(settings, now);
        }
    }
}
