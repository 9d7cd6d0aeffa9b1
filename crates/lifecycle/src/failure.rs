//! Effects that could not be carried out.

use infill_model::{NodeName, UnixTime};

use super::effect::{Effect, Outcome};
use super::machine::Machine;
use super::phase::Phase;
use super::settings::{RELAUNCH_SECS, RETRY_SECS, Settings};

impl Machine {
    /// Takes in that an effect could not be carried out; `passing`: trying again may help, and nobody is to
    /// blame.
    pub fn effect_failed(
        &mut self,
        effect: &Effect,
        why: &str,
        passing: bool,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        match (effect, &self.phase) {
            (Effect::Launch { node, .. }, Phase::Launching { node: aim, next }) if node == aim => {
                let next = next.clone();
                if passing {
                    self.again_soon(effect, now);
                } else {
                    self.start_failed(node, why, settings, now, out);
                }
                self.queue(next, now);
            }
            (Effect::Launch { .. }, Phase::Running { .. } | Phase::Regrouping { .. }) => {
                if passing {
                    self.again_soon(effect, now);
                }
                self.not_released(now)
            }
            // The answer was lost, the launch was not: the job has moved on since.
            (Effect::Launch { .. }, _) => {}
            // Slurm will not requeue it: better train here than hold the node and do nothing.
            (Effect::RequeueHold { .. }, Phase::Requeueing { next }) if !passing => {
                let next = next.clone();
                out.notes.push(format!("the lead cannot be requeued ({why}): it stays where it is"));
                self.target = None;
                self.enter(Phase::Idle { next }, now);
            }
            // A wing that cannot shrink is given back whole.
            (Effect::ShrinkWing { keep, .. }, _) => keep.iter().for_each(|n| self.untarget(n)),
            _ => {}
        }
    }

    /// Takes in that an effect was not carried out, because the plan that it came from is out of date. The
    /// next plan says what is to be done.
    pub fn effect_outdated(&mut self, effect: &Effect, now: UnixTime) {
        self.again_soon(effect, now);
        match (effect, &self.phase) {
            (Effect::Launch { node, .. }, Phase::Launching { node: aim, next }) if node == aim => {
                let next = next.clone();
                self.queue(next, now);
                self.plan_outdated();
            }
            (Effect::Launch { .. }, Phase::Running { .. } | Phase::Regrouping { .. }) => {
                self.not_released(now)
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

    fn again_soon(&mut self, effect: &Effect, now: UnixTime) {
        self.tries.insert((effect.kind(), effect.job()), now.plus_secs(RELAUNCH_SECS - RETRY_SECS));
    }

    fn start_failed(
        &mut self,
        node: &NodeName,
        why: &str,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        self.backoff.start_failed(settings, now);
        self.target = None;
        // Once may be a matter of the moment: the job has moved on, or somebody has released it.
        if self.backoff.failed_starts > 1 {
            self.obstacles.trials.shun(node, now);
            out.strikes.push((node.clone(), why.to_owned()));
        }
    }
}
