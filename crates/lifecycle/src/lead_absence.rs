//! Keeps a job training while its lead is away: Slurm has taken the lead's node, or the node has died.
//!
//! One of the wings gives its node up. infill starts the lead there as soon as the lead waits in the queue,
//! and its agent comes back as a newcomer. Until then the job cannot order wings, and the planner leaves it
//! as it is. If that takes too long, or too few members would be left, the job restarts like a job that does
//! not stay alive.

use infill_model::{Job, NodeName, PlannedNode, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::{JobLifecycle, Target};
use super::obstacles::start_refusal;
use super::phase::{AbsenceStage, JobPhase, LeadAbsence, NextGeneration, StopReason};
use super::settings::{AWAY_SECS, LEAVES_SECS, LifecycleSettings, RETURN_SECS, SILENT_SECS};
use super::time_limit::start_limit_mins;

/// Assumed lease of a returning lead on a node without a planned lease, seconds. The next round renews it.
const DEFAULT_LEASE_SECS: f64 = 600.0;

/// The members that go on after a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SurvivingMembers {
    /// The remaining members, by rank.
    pub to: Vec<NodeName>,
    /// The node on which a lost lead is to come back; `None` if the lead is not lost.
    pub lead_node: Option<NodeName>,
}

impl JobLifecycle {
    /// The members that go on alive if `lost` are lost; `None` if the job must restart.
    pub(super) fn survivors_of(
        &self,
        members: &[NodeName],
        lost: &[NodeName],
        now: UnixTime,
    ) -> Option<SurvivingMembers> {
        let mut remaining: Vec<NodeName> = members.iter().filter(|n| !lost.contains(n)).cloned().collect();
        let lead = self.workers.iter().find(|(_, w)| self.is_lead(w));
        match lead.filter(|(node, _)| self.generation.lead_absence.is_none() && lost.contains(node)) {
            None => self.fit_live_members(remaining).map(|to| SurvivingMembers { to, lead_node: None }),
            // The lead's agent is there, so its command has failed.
            Some((_, w)) if w.stopped.is_some() && !w.leaving && w.silent_secs(now) < SILENT_SECS => None,
            Some(_) => {
                let place = self.place_for_lead(&remaining)?;
                remaining.retain(|n| *n != place);
                self.fit_live_members(remaining).map(|to| SurvivingMembers { to, lead_node: Some(place) })
            }
        }
    }

    /// The node that a wing gives up for the lead: a wing of one node, if possible, and among these the one
    /// with the longest lease.
    fn place_for_lead(&self, remaining: &[NodeName]) -> Option<NodeName> {
        // infill does not decide where a main job runs.
        if self.is_extended_main_job() {
            return None;
        }
        remaining
            .iter()
            .max_by_key(|node| {
                let lease_until = self.planned_node(node).map(|p| p.lease_until);
                (self.is_single_node_wing(node), lease_until)
            })
            .cloned()
    }

    /// Whether a wing has this node only.
    fn is_single_node_wing(&self, node: &NodeName) -> bool {
        self.wings.values().any(|w| w.order.nodes.as_slice() == std::slice::from_ref(node))
    }

    /// The target's entry for this node.
    fn planned_node(&self, node: &NodeName) -> Option<&PlannedNode> {
        self.target.as_ref()?.plan.nodes.iter().find(|p| p.node == *node)
    }

    /// Begins the absence of a lead that is to come back on `node`.
    pub(super) fn begin_lead_absence(&mut self, node: NodeName, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("the lead is away and comes back on {node}; its wings train on"));
        let lost = self.lead_node().cloned();
        self.generation.lead_absence =
            Some(LeadAbsence { node, stage: AbsenceStage::Leaving, since: now, began: now });
        if let Some(target) = &mut self.target {
            target.plan.nodes.retain(|p| Some(&p.node) != lost.as_ref());
        }
        self.target_return_place(now);
    }

    /// Puts the node on which an absent lead comes back first in the target. No wing has it any more.
    pub(super) fn target_return_place(&mut self, now: UnixTime) {
        let Some(away) = &self.generation.lead_absence else { return };
        let Some(Target { plan, blocked, .. }) = &mut self.target else { return };
        let planned = match plan.nodes.iter().position(|p| p.node == away.node) {
            Some(index) => plan.nodes.remove(index),
            None => {
                let default_end = now.plus_secs(DEFAULT_LEASE_SECS);
                let lease_until = plan.nodes.first().map_or(default_end, |p| p.lease_until);
                PlannedNode { node: away.node.clone(), lease_until }
            }
        };
        plan.nodes.insert(0, planned);
        *blocked = false;
    }

    /// Adapts a plan that may be older than the lead's absence: keeps only nodes of members, which excludes
    /// the lead's old node.
    pub(super) fn plan_without_lead(&mut self, now: UnixTime) {
        let Some(Target { plan, .. }) = &mut self.target else { return };
        let members = self.phase.members();
        plan.nodes.retain(|p| members.contains(&p.node));
        // A plan without any of the members stops the job.
        if !plan.nodes.is_empty() {
            self.target_return_place(now);
        }
    }

    /// Slurm shows the lead in its queue while the other members train or stop. Returns whether they go on
    /// without it.
    pub(super) fn continue_while_lead_waits(
        &mut self,
        lead: &Job,
        read_at: UnixTime,
        now: UnixTime,
        out: &mut StepOutcome,
    ) -> bool {
        if self.generation.lead_absence.is_none() {
            self.continue_without_lead(now, out);
        }
        let is_stopping = matches!(self.phase, JobPhase::Stopping { .. });
        let is_training = matches!(self.phase, JobPhase::Running { .. } | JobPhase::Regrouping { .. });
        if !is_stopping && !is_training {
            return false;
        }
        let was_launched = self.obstacles.was_launched(read_at);
        let Some(away) = &mut self.generation.lead_absence else { return false };
        let was_requeued_again = now.secs_since(away.since) >= RETURN_SECS && lead.held;
        if away.stage == AbsenceStage::Leaving || was_requeued_again || is_stopping {
            away.stage = AbsenceStage::Waiting;
            away.since = now;
            self.obstacles.launched_at = None;
        }
        let is_waiting = away.stage == AbsenceStage::Waiting;
        self.forget_lead();
        if is_waiting && !lead.held {
            self.attempt_effect(Effect::Hold { job: self.job }, now, out);
        }
        let refusal = start_refusal(lead).filter(|_| was_launched && !is_waiting);
        if !is_stopping && (refusal.is_some() || self.obstacles.held_by.is_some()) {
            let why = refusal.unwrap_or_else(|| "it is held".to_owned());
            self.give_up_on_lead(&format!("the lead does not come back: {why}"), now, out);
        }
        true
    }

    /// Slurm has requeued the lead before its agent could report it.
    fn continue_without_lead(&mut self, now: UnixTime, out: &mut StepOutcome) {
        let JobPhase::Running { members } = self.phase.clone() else { return };
        let Some(node) = self.lead_node().cloned() else { return };
        if self.survives_loss(std::slice::from_ref(&node), now) {
            self.continue_after_loss(&members, &[node], now, out);
        }
    }

    /// Whether infill is to hold an absent lead, even if the other members stop by now; `None` if the lead is
    /// not away.
    pub(super) fn holds_lead(&self, read_at: UnixTime) -> Option<bool> {
        let away = self.generation.lead_absence.as_ref()?;
        Some(away.stage != AbsenceStage::Launched || !self.obstacles.was_launched(read_at))
    }

    /// Brings an absent lead back to its place.
    pub(super) fn step_absence(
        &mut self,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(away) = self.generation.lead_absence.clone() else { return };
        if now.secs_since(away.began) > AWAY_SECS + settings.lead_start_secs + settings.prolog_secs {
            self.give_up_on_lead("the lead does not come back in time", now, out);
            return;
        }
        match away.stage {
            AbsenceStage::Leaving if now.secs_since(away.since) > LEAVES_SECS => {
                self.attempt_effect(Effect::RequeueHold { job: self.job }, now, out);
            }
            AbsenceStage::Waiting if !self.wings.values().any(|w| w.order.nodes.contains(&away.node)) => {
                let planned = self.planned_node(&away.node);
                let lease_secs = planned.map_or(DEFAULT_LEASE_SECS, |p| p.lease_until.secs_since(now));
                let limit_mins = self.capped_by_user_limit(start_limit_mins(lease_secs));
                let node = away.node.clone();
                if self.attempt_effect(Effect::Launch { job: self.job, node, limit_mins }, now, out) {
                    self.generation.lead_absence =
                        Some(LeadAbsence { stage: AbsenceStage::Launched, since: now, ..away });
                }
            }
            AbsenceStage::Leaving | AbsenceStage::Waiting | AbsenceStage::Launched => {}
        }
    }

    /// The release of the lead to its place has failed.
    pub(super) fn handle_failed_release(&mut self, now: UnixTime) {
        if let Some(away) =
            self.generation.lead_absence.as_mut().filter(|a| a.stage == AbsenceStage::Launched)
        {
            away.stage = AbsenceStage::Waiting;
            away.since = now;
        }
    }

    /// Stops the members for a restart, because the lead does not come back.
    fn give_up_on_lead(&mut self, why: &str, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("a restart is needed: {why}"));
        let members: Vec<NodeName> = self.phase.involved_nodes().cloned().collect();
        let next = NextGeneration::for_reason(why);
        self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Lost, next }, now);
    }

    /// All members have stopped, and the lead is away.
    pub(super) fn assembling_without_lead(
        &mut self,
        stage: AbsenceStage,
        next: &NextGeneration,
        now: UnixTime,
    ) {
        self.target = None;
        match stage {
            AbsenceStage::Leaving => self.requeue_lead(next.clone(), now),
            AbsenceStage::Waiting | AbsenceStage::Launched => self.enter_queue(next.clone(), now),
        }
    }

    /// The lead's agent has said hello on its place or elsewhere: it is a newcomer now.
    pub(super) fn end_lead_absence(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        self.generation.lead_absence = None;
        self.backoff.reset_after_arrival();
        self.extend_lead_limit(node, now, out);
        out.notes.push(format!("the lead is back on {node}"));
    }
}
