//! Effects that could not be carried out.

use infill_model::{NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::phase::JobPhase;
use super::settings::{LifecycleSettings, RELAUNCH_SECS, RETRY_SECS};

impl JobLifecycle {
    /// Takes in that an effect could not be carried out; `passing`: trying again may help, and nobody is to
    /// blame.
    pub fn effect_failed(
        &mut self,
        effect: &Effect,
        why: &str,
        passing: bool,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match (effect, &self.phase) {
            (Effect::Launch { node, .. }, JobPhase::Launching { node: aim, next }) if node == aim => {
                let next = next.clone();
                if passing {
                    self.retry_soon(effect, now);
                } else {
                    self.handle_failed_start(node, why, settings, now, out);
                }
                self.enter_queue(next, now);
            }
            (Effect::Launch { .. }, JobPhase::Running { .. } | JobPhase::Regrouping { .. }) => {
                if passing {
                    self.retry_soon(effect, now);
                }
                self.handle_failed_release(now)
            }
            // The answer was lost, the launch was not: the job has moved on since.
            (Effect::Launch { .. }, _) => {}
            // Slurm will not requeue it: better train here than hold the node and do nothing.
            (Effect::RequeueHold { .. }, JobPhase::Requeueing { next }) if !passing => {
                let next = next.clone();
                out.notes.push(format!("the lead cannot be requeued ({why}): it stays where it is"));
                self.target = None;
                self.enter_phase(JobPhase::Idle { next }, now);
            }
            // A wing that cannot shrink is given back whole.
            (Effect::ShrinkWing { keep, .. }, _) => keep.iter().for_each(|n| self.drop_from_target(n)),
            _ => {}
        }
    }

    /// Takes in that an effect was not carried out, because the plan that it came from is out of date. The
    /// next plan says what is to be done.
    pub fn effect_outdated(&mut self, effect: &Effect, now: UnixTime) {
        self.retry_soon(effect, now);
        match (effect, &self.phase) {
            (Effect::Launch { node, .. }, JobPhase::Launching { node: aim, next }) if node == aim => {
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

    /// A job that has nothing is not started by a plan that is out of date. One that moves has wings that
    /// wait for its lead, and no other plan is made for it meanwhile.
    pub fn plan_outdated(&mut self) {
        if self.phase.is_queued() && self.wings.is_empty() {
            self.target = None;
        }
    }

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
        // Once may be a matter of the moment: the job has moved on, or somebody has released it.
        if self.backoff.failed_starts > 1 {
            self.obstacles.trials.shun_node(node, now);
            out.strikes.push((node.clone(), why.to_owned()));
        }
    }
}
