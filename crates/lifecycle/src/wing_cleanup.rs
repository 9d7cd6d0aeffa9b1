//! Gives back wings that the target no longer has, and wings that did not arrive.

use std::collections::BTreeSet;

use infill_model::{JobId, NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::phase::JobPhase;
use super::settings::LifecycleSettings;
use super::worker::Wing;

impl JobLifecycle {
    /// Gives back or shrinks wings that are not wanted or that are late. Members' wings stay.
    pub(super) fn tidy_wings(&mut self, settings: &LifecycleSettings, now: UnixTime, out: &mut StepOutcome) {
        let members: BTreeSet<NodeName> = self.phase.involved_nodes().cloned().collect();
        let setup_secs = self.spec.setup_secs;
        for number in self.wings.keys().copied().collect::<Vec<_>>() {
            let Some(wing) = self.wings.get(&number).cloned() else { continue };
            if wing.order.nodes.iter().any(|n| members.contains(n)) {
                continue;
            }
            match wing.job {
                Some(job) if wing.is_late(settings, setup_secs, now) && self.is_awaited(&wing) => {
                    self.handle_stuck_wing(&wing, job, settings, now, out);
                    self.return_wing(&wing, job, now, out);
                }
                Some(job) => self.tidy_wing(number, &wing, job, now, out),
                None => self.tidy_order(number, &wing, wing.is_late(settings, setup_secs, now)),
            }
        }
    }

    /// Nodes of the wing that the job still wants.
    fn wanted_wing_nodes(&self, wing: &Wing) -> Vec<NodeName> {
        let wants_no_wings = matches!(self.phase, JobPhase::Ending { .. } | JobPhase::Ended)
            || (self.phase.is_queued() && self.target.is_none());
        if wants_no_wings {
            return Vec::new();
        }
        wing.order.nodes.iter().filter(|n| self.wants_wing_on(n)).cloned().collect()
    }

    /// Withdraws an order that the agent has not submitted, if it is late or no longer wanted.
    fn tidy_order(&mut self, number: u64, wing: &Wing, is_late: bool) {
        if is_late || self.wanted_wing_nodes(wing).is_empty() {
            self.wings.remove(&number);
            for node in &wing.order.nodes {
                self.drop_from_target(node);
            }
        }
    }

    /// Whether the job wants a node of the wing from which no agent has said hello.
    fn is_awaited(&self, wing: &Wing) -> bool {
        !self.wanted_wing_nodes(wing).iter().all(|n| self.workers.contains_key(n))
    }

    /// Cancels a wing and drops its nodes from the target.
    fn return_wing(&mut self, wing: &Wing, job: JobId, now: UnixTime, out: &mut StepOutcome) {
        for node in &wing.order.nodes {
            self.drop_from_target(node);
        }
        self.attempt_effect(Effect::CancelWing { job }, now, out);
    }

    /// Cancels a wing without wanted nodes, or shrinks it to the wanted ones. A wing cannot shrink off its
    /// batch host.
    fn tidy_wing(&mut self, number: u64, wing: &Wing, job: JobId, now: UnixTime, out: &mut StepOutcome) {
        let nodes = &wing.order.nodes;
        let keep = self.wanted_wing_nodes(wing);
        let keeps_batch_host = wing.batch_host.as_ref().is_none_or(|host| keep.contains(host));
        if keep.is_empty() || !keeps_batch_host {
            self.return_wing(wing, job, now, out);
        } else if keep.len() < nodes.len() {
            self.attempt_effect(Effect::ShrinkWing { job, keep: keep.clone() }, now, out);
            for node in nodes.iter().filter(|n| !keep.contains(n)) {
                self.workers.remove(node);
            }
            if let Some(wing) = self.wings.get_mut(&number) {
                wing.order.nodes = keep;
            }
        }
    }

    /// Counts a wing that did not arrive in time. A wing that ran failed on its nodes. A wing that waited in
    /// the queue was stopped by one of the user's limits, as further wings would be, or by the main queue.
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
            // A slow prolog is not the fault of the job or of its nodes.
        } else if wing.seen_running {
            self.handle_failed_wing(wing, "a wing did not come up", settings, now, out);
        } else if self.obstacles.shortage.is_some() {
            self.backoff.record_refusal(settings, now);
        } else {
            self.backoff.record_wing_failure(settings, now);
        }
    }
}
