//! The lead is away and the others train on: Slurm has taken its node, or the node has died.
//!
//! One of the wings gives its node up, where the lead is started again as soon as it waits in the queue. Its
//! agent comes back as a newcomer. Until then no wing can be ordered, and the planner leaves the job as it
//! is. What takes too long, and a job of which too little would be left, restarts as one that does not stay
//! alive.

use infill_model::{Job, NodeName, PlannedNode, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::{JobLifecycle, Target};
use super::obstacles::start_refusal;
use super::phase::{AbsenceStage, JobPhase, LeadAbsence, NextGeneration, StopReason};
use super::settings::{AWAY_SECS, LEAVES_SECS, LifecycleSettings, RETURN_SECS, SILENT_SECS};
use super::time_limit::start_limit_mins;

/// What a wing without a lease of its own is worth to the lead, seconds: the next round renews it.
const DEFAULT_LEASE_SECS: f64 = 600.0;

/// Who goes on without the members that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SurvivingMembers {
    /// The members.
    pub to: Vec<NodeName>,
    /// Where the lead is to come back, if it is lost.
    pub place: Option<NodeName>,
}

impl JobLifecycle {
    /// Who goes on alive if these members are lost; `None` if that needs a restart.
    pub(super) fn survivors_of(
        &self,
        members: &[NodeName],
        lost: &[NodeName],
        now: UnixTime,
    ) -> Option<SurvivingMembers> {
        let mut left: Vec<NodeName> = members.iter().filter(|n| !lost.contains(n)).cloned().collect();
        let lead = self.workers.iter().find(|(_, w)| self.is_lead(w));
        match lead.filter(|(node, _)| self.generation.away.is_none() && lost.contains(node)) {
            None => self.fit_live_members(left).map(|to| SurvivingMembers { to, place: None }),
            // Its agent is there: its command has failed.
            Some((_, w)) if w.stopped.is_some() && !w.leaving && w.silent_secs(now) < SILENT_SECS => None,
            Some(_) => {
                let place = self.place_for_lead(&left)?;
                left.retain(|n| *n != place);
                self.fit_live_members(left).map(|to| SurvivingMembers { to, place: Some(place) })
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
        let lease = |n: &NodeName| self.planned_node(n).map(|p| p.lease_until);
        left.iter().max_by_key(|n| (alone(n), lease(n))).cloned()
    }

    fn planned_node(&self, node: &NodeName) -> Option<&PlannedNode> {
        self.target.as_ref()?.plan.nodes.iter().find(|p| p.node == *node)
    }

    /// The lead is lost to the others, and shall come back here.
    pub(super) fn begin_lead_absence(&mut self, place: NodeName, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("the lead is away and comes back on {place}; its wings train on"));
        let lost = self.lead_node().cloned();
        self.generation.away =
            Some(LeadAbsence { place, stage: AbsenceStage::Leaving, since: now, began: now });
        if let Some(target) = &mut self.target {
            target.plan.nodes.retain(|p| Some(&p.node) != lost.as_ref());
        }
        self.target_return_place(now);
    }

    /// Puts the place of a lead that is away first in what the planner wants. It is no wing's any more.
    pub(super) fn target_return_place(&mut self, now: UnixTime) {
        let (Some(away), Some(Target { plan, blocked, .. })) = (&self.generation.away, &mut self.target)
        else {
            return;
        };
        let known = plan.nodes.iter().position(|p| p.node == away.place).map(|at| plan.nodes.remove(at));
        let lease_until = plan.nodes.first().map_or(now.plus_secs(DEFAULT_LEASE_SECS), |p| p.lease_until);
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
            self.target_return_place(now);
        }
    }

    /// Slurm shows the lead in its queue while the others train, or stop. Says whether they go on with that.
    pub(super) fn continue_while_lead_waits(
        &mut self,
        lead: &Job,
        read_at: UnixTime,
        now: UnixTime,
        out: &mut StepOutcome,
    ) -> bool {
        if self.generation.away.is_none() {
            self.continue_without_lead(now, out);
        }
        let stop = matches!(self.phase, JobPhase::Stopping { .. });
        let go_on = stop || matches!(self.phase, JobPhase::Running { .. } | JobPhase::Regrouping { .. });
        let was_released = self.obstacles.was_released(read_at);
        let Some(away) = self.generation.away.as_mut().filter(|_| go_on) else { return false };
        let undone = now.secs_since(away.since) >= RETURN_SECS && lead.held;
        if away.stage == AbsenceStage::Leaving || undone || stop {
            (away.stage, away.since) = (AbsenceStage::Waiting, now);
            self.obstacles.released_at = None;
        }
        let waits = away.stage == AbsenceStage::Waiting;
        self.forget_lead();
        if waits && !lead.held {
            self.attempt_effect(Effect::Hold { job: self.job }, now, out);
        }
        let refused = start_refusal(lead).filter(|_| was_released && !waits);
        if !stop && (refused.is_some() || self.obstacles.held_by.is_some()) {
            let why = refused.unwrap_or_else(|| "it is held".to_owned());
            self.give_up_on_lead(&format!("the lead does not come back: {why}"), now, out);
        }
        true
    }

    /// Slurm has requeued the lead, and its agent did not come to say so.
    fn continue_without_lead(&mut self, now: UnixTime, out: &mut StepOutcome) {
        let JobPhase::Running { members } = self.phase.clone() else { return };
        let Some(node) = self.lead_node().cloned() else { return };
        if self.survives_loss(std::slice::from_ref(&node), now) {
            self.continue_after_loss(&members, &[node], now, out);
        }
    }

    /// Whether infill is to hold the lead, if that is away and waits: also when the others stop by now.
    pub(super) fn holds_lead(&self, read_at: UnixTime) -> Option<bool> {
        self.generation
            .away
            .as_ref()
            .map(|away| away.stage != AbsenceStage::Released || !self.obstacles.was_released(read_at))
    }

    /// Brings a lead that is away back to its place.
    pub(super) fn step_absence(
        &mut self,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(away) = self.generation.away.clone() else { return };
        if now.secs_since(away.began) > AWAY_SECS + settings.lead_start_secs + settings.prolog_secs {
            self.give_up_on_lead("the lead does not come back in time", now, out);
            return;
        }
        match away.stage {
            AbsenceStage::Leaving if now.secs_since(away.since) > LEAVES_SECS => {
                self.attempt_effect(Effect::RequeueHold { job: self.job }, now, out);
            }
            AbsenceStage::Waiting if !self.wings.values().any(|w| w.order.nodes.contains(&away.place)) => {
                let lease = self
                    .planned_node(&away.place)
                    .map_or(DEFAULT_LEASE_SECS, |p| p.lease_until.secs_since(now));
                let limit_mins = self.capped_by_user_limit(start_limit_mins(lease));
                let node = away.place.clone();
                if self.attempt_effect(Effect::Launch { job: self.job, node, limit_mins }, now, out) {
                    self.generation.away =
                        Some(LeadAbsence { stage: AbsenceStage::Released, since: now, ..away });
                }
            }
            AbsenceStage::Leaving | AbsenceStage::Waiting | AbsenceStage::Released => {}
        }
    }

    /// The lead was not released to its place after all.
    pub(super) fn handle_failed_release(&mut self, now: UnixTime) {
        if let Some(away) = self.generation.away.as_mut().filter(|a| a.stage == AbsenceStage::Released) {
            (away.stage, away.since) = (AbsenceStage::Waiting, now);
        }
    }

    fn give_up_on_lead(&mut self, why: &str, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("a restart is needed: {why}"));
        let members: Vec<NodeName> = self.phase.involved_nodes().cloned().collect();
        self.enter_phase(
            JobPhase::Stopping { members, reason: StopReason::Lost, next: NextGeneration::for_reason(why) },
            now,
        );
    }

    /// All have stopped, and there is no lead to go on with.
    pub(super) fn idle_without_lead(&mut self, stage: AbsenceStage, next: &NextGeneration, now: UnixTime) {
        self.target = None;
        match stage {
            AbsenceStage::Leaving => self.requeue_lead(next.clone(), now),
            AbsenceStage::Waiting | AbsenceStage::Released => self.enter_queue(next.clone(), now),
        }
    }

    /// The lead's agent has said hello where it was to come back, or elsewhere: it is a newcomer.
    pub(super) fn end_lead_absence(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        self.generation.away = None;
        self.backoff.reset_after_arrival();
        self.extend_lead_limit(node, now, out);
        out.notes.push(format!("the lead is back on {node}"));
    }
}
