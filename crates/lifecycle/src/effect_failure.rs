//! Handles effects that were not carried out.

use infill_model::{NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::phase::JobPhase;
use super::settings::{LifecycleSettings, RELAUNCH_SECS, RETRY_SECS};

impl JobLifecycle {
    /// Handles an effect that failed. `is_transient` says that a retry may help and that no node is to blame.
    pub fn effect_failed(
        &mut self,
        effect: &Effect,
        why: &str,
        is_transient: bool,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match (effect, &self.phase) {
            (Effect::Launch { node, .. }, JobPhase::Launching { node: present, next }) if node == present => {
                let next = next.clone();
                if is_transient {
                    self.retry_soon(effect, now);
                } else {
                    self.handle_failed_start(node, why, settings, now, out);
                }
                self.enter_queue(next, now);
            }
            (Effect::Launch { .. }, JobPhase::Running { .. } | JobPhase::Regrouping { .. }) => {
                if is_transient {
                    self.retry_soon(effect, now);
                }
                self.handle_failed_release(now)
            }
            // Only the answer was lost: the launch succeeded, and the job has moved on.
            (Effect::Launch { .. }, _) => {}
            // Slurm does not requeue the lead: training here is better than an idle node.
            (Effect::RequeueHold { .. }, JobPhase::Requeueing { next }) if !is_transient => {
                let next = next.clone();
                out.notes.push(format!("the lead cannot be requeued ({why}): it stays where it is"));
                self.target = None;
                self.enter_phase(JobPhase::Assembling { next }, now);
            }
            // infill gives a wing that cannot shrink back as a whole.
            (Effect::ShrinkWing { keep, .. }, _) => {
                for node in keep {
                    self.drop_from_target(node);
                }
            }
            _ => {}
        }
    }

    /// Handles an effect that was dropped because its plan is out of date. The next plan decides what to do.
    pub fn effect_outdated(&mut self, effect: &Effect, now: UnixTime) {
        self.retry_soon(effect, now);
        match (effect, &self.phase) {
            (Effect::Launch { node, .. }, JobPhase::Launching { node: present, next }) if node == present => {
                let next = next.clone();
                self.enter_queue(next, now);
                self.plan_outdated();
            }
            (Effect::Launch { .. }, JobPhase::Running { .. } | JobPhase::Regrouping { .. }) => {
                self.handle_failed_release(now)
            }
            _ => {}
        }
    }

    /// Drops the target of a job without nodes, so that an outdated plan does not start it. A job that moves
    /// keeps its target: its wings wait for the lead, and no other plan is made for it meanwhile.
    pub fn plan_outdated(&mut self) {
        if self.phase.is_queued() && self.wings.is_empty() {
            self.target = None;
        }
    }

    /// Lets an effect be tried again after [`RELAUNCH_SECS`] instead of [`RETRY_SECS`].
    fn retry_soon(&mut self, effect: &Effect, now: UnixTime) {
        self.tries.insert((effect.kind(), effect.job()), now.plus_secs(RELAUNCH_SECS - RETRY_SECS));
    }

    fn handle_failed_start(
        &mut self,
        node: &NodeName,
        why: &str,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        self.backoff.record_failed_start(settings, now);
        self.target = None;
        // A single failure may be a coincidence: the job has moved on, or a person has released it.
        if self.backoff.failed_starts > 1 {
            self.obstacles.trials.shun_node(node, now);
            out.strikes.push((node.clone(), why.to_owned()));
        }
    }
}
