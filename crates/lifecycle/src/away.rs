//! The lead is away and the others train on: Slurm has taken its node, or the node has died.
//!
//! One of the wings gives its node up, where the lead is started again as soon as it waits in the queue. Its
//! agent comes back as a newcomer. Until then no wing can be ordered, and the planner leaves the job as it
//! is. What takes too long, and a job of which too little would be left, restarts as one that does not stay
//! alive.

use infill_model::{Job, NodeName, PlannedNode, UnixTime};

use super::effect::{Effect, Outcome};
use super::limit::start_limit_mins;
use super::machine::{Machine, Target};
use super::obstacles::refusal;
use super::phase::{Away, Next, Phase, Stage, StopReason};
use super::settings::{AWAY_SECS, LEAVES_SECS, RETURN_SECS, SILENT_SECS, Settings};

/// What a wing without a lease of its own is worth to the lead, seconds: the next round renews it.
const LEASE_SECS: f64 = 600.0;

/// Who goes on without the members that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The members.
    pub to: Vec<NodeName>,
    /// Where the lead is to come back, if it is lost.
    pub place: Option<NodeName>,
}

impl Machine {
    /// Who goes on alive if these members are lost; `None` if that needs a restart.
    pub(super) fn left_of(&self, members: &[NodeName], lost: &[NodeName], now: UnixTime) -> Option<Left> {
        let mut left: Vec<NodeName> = members.iter().filter(|n| !lost.contains(n)).cloned().collect();
        let lead = self.workers.iter().find(|(_, w)| self.is_lead(w));
        match lead.filter(|(node, _)| self.generation.away.is_none() && lost.contains(node)) {
            None => self.takeable(left).map(|to| Left { to, place: None }),
            // Its agent is there: its command has failed.
            Some((_, w)) if w.stopped.is_some() && !w.leaving && w.silent_secs(now) < SILENT_SECS => None,
            Some(_) => {
                let place = self.place_for_lead(&left)?;
                left.retain(|n| *n != place);
                self.takeable(left).map(|to| Left { to, place: Some(place) })
            }
        }
    }

    /// The node that is given up for the lead: one of a wing of its own, and of these the one that lasts
    /// longest.
    fn place_for_lead(&self, left: &[NodeName]) -> Option<NodeName> {
        // Where a main job goes is its own affair.
        if self.is_extension() {
            return None;
        }
        let alone = |n: &NodeName| self.wings.values().any(|w| w.order.nodes.as_slice() == [n.clone()]);
        let lease = |n: &NodeName| self.placement(n).map(|p| p.lease_until);
        left.iter().max_by_key(|n| (alone(n), lease(n))).cloned()
    }

    fn placement(&self, node: &NodeName) -> Option<&PlannedNode> {
        self.target.as_ref()?.plan.nodes.iter().find(|p| p.node == *node)
    }

    /// The lead is lost to the others, and shall come back here.
    pub(super) fn lead_goes(&mut self, place: NodeName, now: UnixTime, out: &mut Outcome) {
        out.notes.push(format!("the lead is away and comes back on {place}; its wings train on"));
        let lost = self.lead_node().cloned();
        self.generation.away = Some(Away { place, stage: Stage::Leaving, since: now, began: now });
        if let Some(target) = &mut self.target {
            target.plan.nodes.retain(|p| Some(&p.node) != lost.as_ref());
        }
        self.aim_at_place(now);
    }

    /// Puts the place of a lead that is away first in what the planner wants. It is no wing's any more.
    pub(super) fn aim_at_place(&mut self, now: UnixTime) {
        let (Some(away), Some(Target { plan, blocked, .. })) = (&self.generation.away, &mut self.target)
        else {
            return;
        };
        let known = plan.nodes.iter().position(|p| p.node == away.place).map(|at| plan.nodes.remove(at));
        let lease_until = plan.nodes.first().map_or(now.plus_secs(LEASE_SECS), |p| p.lease_until);
        let place = known.unwrap_or(PlannedNode { node: away.place.clone(), lease_until });
        plan.nodes.insert(0, place);
        *blocked = false;
    }

    /// Takes in a plan that may have been made before the lead went: without the node that it was on.
    pub(super) fn plan_without_lead(&mut self, now: UnixTime) {
        let Some(Target { plan, .. }) = &mut self.target else { return };
        let members = self.phase.members();
        let goes_on = plan.nodes.iter().any(|p| members.contains(&p.node));
        plan.nodes.retain(|p| members.contains(&p.node));
        // A plan that leaves it nothing means that.
        if goes_on {
            self.aim_at_place(now);
        }
    }

    /// Slurm shows the lead in its queue while the others train, or stop. Says whether they go on with that.
    pub(super) fn waits_while_others_go_on(
        &mut self,
        lead: &Job,
        read_at: UnixTime,
        now: UnixTime,
        out: &mut Outcome,
    ) -> bool {
        if self.generation.away.is_none() {
            self.go_on_without_lead(now, out);
        }
        let stop = matches!(self.phase, Phase::Stopping { .. });
        let go_on = stop || matches!(self.phase, Phase::Running { .. } | Phase::Regrouping { .. });
        let was_released = self.obstacles.was_released(read_at);
        let Some(away) = self.generation.away.as_mut().filter(|_| go_on) else { return false };
        let undone = now.secs_since(away.since) >= RETURN_SECS && lead.held;
        if away.stage == Stage::Leaving || undone || stop {
            (away.stage, away.since) = (Stage::Waiting, now);
            self.obstacles.released_at = None;
        }
        let waits = away.stage == Stage::Waiting;
        self.forget_lead();
        if waits && !lead.held {
            self.attempt(Effect::Hold { job: self.job }, now, out);
        }
        let refused = refusal(lead).filter(|_| was_released && !waits);
        if !stop && (refused.is_some() || self.obstacles.held_by.is_some()) {
            let why = refused.unwrap_or_else(|| "it is held".to_owned());
            self.give_up_on_lead(&format!("the lead does not come back: {why}"), now, out);
        }
        true
    }

    /// Slurm has requeued the lead, and its agent did not come to say so.
    fn go_on_without_lead(&mut self, now: UnixTime, out: &mut Outcome) {
        let Phase::Running { members } = self.phase.clone() else { return };
        let Some(node) = self.lead_node().cloned() else { return };
        if self.outlives(std::slice::from_ref(&node), now) {
            self.go_on_after_loss(&members, &[node], now, out);
        }
    }

    /// Whether infill is to hold the lead, if that is away and waits: also when the others stop by now.
    pub(super) fn holds_lead(&self, read_at: UnixTime) -> Option<bool> {
        self.generation
            .away
            .as_ref()
            .map(|away| away.stage != Stage::Released || !self.obstacles.was_released(read_at))
    }

    /// Brings a lead that is away back to its place.
    pub(super) fn step_away(&mut self, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        let Some(away) = self.generation.away.clone() else { return };
        if now.secs_since(away.began) > AWAY_SECS + settings.lead_start_secs + settings.prolog_secs {
            self.give_up_on_lead("the lead does not come back in time", now, out);
            return;
        }
        match away.stage {
            Stage::Leaving if now.secs_since(away.since) > LEAVES_SECS => {
                self.attempt(Effect::RequeueHold { job: self.job }, now, out);
            }
            Stage::Waiting if !self.wings.values().any(|w| w.order.nodes.contains(&away.place)) => {
                let lease = self.placement(&away.place).map_or(LEASE_SECS, |p| p.lease_until.secs_since(now));
                let limit_mins = self.within_limit(start_limit_mins(lease));
                let node = away.place.clone();
                if self.attempt(Effect::Launch { job: self.job, node, limit_mins }, now, out) {
                    self.generation.away = Some(Away { stage: Stage::Released, since: now, ..away });
                }
            }
            Stage::Leaving | Stage::Waiting | Stage::Released => {}
        }
    }

    /// The lead was not released to its place after all.
    pub(super) fn not_released(&mut self, now: UnixTime) {
        if let Some(away) = self.generation.away.as_mut().filter(|a| a.stage == Stage::Released) {
            (away.stage, away.since) = (Stage::Waiting, now);
        }
    }

    fn give_up_on_lead(&mut self, why: &str, now: UnixTime, out: &mut Outcome) {
        out.notes.push(format!("a restart is needed: {why}"));
        let members: Vec<NodeName> = self.phase.involved().cloned().collect();
        self.enter(Phase::Stopping { members, reason: StopReason::Lost, next: Next::because(why) }, now);
    }

    /// All have stopped, and there is no lead to go on with.
    pub(super) fn idle_without_lead(&mut self, stage: Stage, next: &Next, now: UnixTime) {
        self.target = None;
        match stage {
            Stage::Leaving => self.requeue(next.clone(), now),
            Stage::Waiting | Stage::Released => self.queue(next.clone(), now),
        }
    }

    /// The lead's agent has said hello where it was to come back, or elsewhere: it is a newcomer.
    pub(super) fn lead_is_back(&mut self, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        self.generation.away = None;
        self.backoff.lead_came();
        self.stretch_lead_limit(node, now, out);
        out.notes.push(format!("the lead is back on {node}"));
    }
}
