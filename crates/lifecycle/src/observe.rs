//! Applies a snapshot's view of the lead.

use infill_model::{BaseState, HoldKind, Job, MIN_TIME_LIMIT_SECS, NodeName, UnixTime};

use super::effect::{Effect, EffectKind, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::observed_job::ObservedJob;
use super::obstacles::{requeue_limit_reason, start_refusal};
use super::phase::{AbsenceStage, JobPhase};
use super::settings::{HEARS_SECS, LATER_SECS, LifecycleSettings, START_SECS, UNDONE_SECS};
use super::worker::WorkerAgent;

/// Slurm's reason for a job that must not start yet, for example after a requeue.
const BEGINS_LATER: &str = "BeginTime";

impl JobLifecycle {
    /// Records that the lead was launched.
    pub fn record_launch(&mut self, now: UnixTime) {
        if matches!(self.phase, JobPhase::Launching { .. }) || self.generation.lead_absence.is_some() {
            self.obstacles.launched_at = Some(now);
            self.obstacles.requeued = false;
        }
    }

    /// Applies a trusted snapshot's view of the job.
    pub fn apply_observation(
        &mut self,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match observed.lead {
            Some(lead) if !lead.state.is_ended() => self.observe_lead(lead, observed, settings, now, out),
            _ => self.handle_lead_end(observed, now, out),
        }
        self.observe_wings(observed, settings, now, out);
    }

    fn handle_lead_end(&mut self, observed: &ObservedJob<'_>, now: UnixTime, out: &mut StepOutcome) {
        if self.phase != JobPhase::Ended {
            let how = match observed.lead {
                Some(lead) => format!("{:?}", lead.state.base),
                None => "forgotten by Slurm".to_owned(),
            };
            out.notes.push(format!("the lead has ended: {how}"));
            // This job cannot be retried with another plan, but the owner's next job can.
            let ran_out = observed.lead.is_some_and(|lead| lead.state.base == BaseState::OutOfMemory);
            let members = self.phase.members().len();
            if ran_out && members > 0 && self.has_alternative(members) {
                let why = self.record_overflow(members, out);
                out.notes.push(why);
            }
            self.workers.clear();
            self.target = None;
            self.enter_phase(JobPhase::Ended, now);
        }
        for wing in &observed.wings {
            self.attempt_effect(Effect::CancelWing { job: wing.id }, now, out);
        }
        self.wings.clear();
    }

    fn observe_lead(
        &mut self,
        lead: &Job,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        self.observe_own_nodes(lead);
        self.submitted.account.clone_from(&lead.account);
        self.submitted.qos.clone_from(&lead.qos);
        self.submitted.gres.clone_from(&lead.gres);
        self.submitted.nodes.constraint.clone_from(&lead.asks.constraint);
        self.submitted.nodes.exclude.clone_from(&lead.asks.exclude);
        // Agents' reports since the snapshot are newer than the snapshot.
        if observed.read_at <= self.since || self.phase == JobPhase::Ended {
            return;
        }
        if lead.state.is_pending() && lead.state.flags.contains("COMPLETING") {
            self.unpin_lead(lead, now, out);
        } else if lead.state.is_pending() {
            self.handle_waiting_lead(lead, observed, settings, now, out);
            self.unpin_lead(lead, now, out);
        } else if lead.state.is_running() {
            self.handle_running_lead(lead, now, out);
        }
    }

    fn handle_waiting_lead(
        &mut self,
        lead: &Job,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        self.obstacles.requeued |= self.phase.is_requeueing();
        self.note_hold(lead, observed.read_at, out);
        if self.continue_while_lead_waits(lead, observed.read_at, now, out) {
            return;
        }
        let waited = matches!(self.phase, JobPhase::Queued { .. });
        match self.phase.clone() {
            JobPhase::Queued { .. } => {}
            JobPhase::Launching { node, next } => {
                if !self.is_start_abandoned(lead, &node, observed, settings, now, out) {
                    return;
                }
                self.target = None;
                self.enter_queue(next, now);
            }
            JobPhase::Requeueing { next } => self.enter_queue(next, now),
            _ => self.handle_requeued_lead(lead, now, out),
        }
        self.note_limit(lead, out);
        // In each of these cases the lead waits now.
        if !waited {
            self.obstacles.back_at = Some(now);
        }
        self.forget_lead();
        self.obstacles.launched_at = None;
        // Holds it again if Slurm has lost infill's hold, so that later snapshots show whose hold it is.
        if !lead.held || self.obstacles.has_lost_hold(lead) {
            self.attempt_effect(Effect::Hold { job: self.job }, now, out);
        }
    }

    /// Unpins a lead that waits, held. A lead that was launched keeps its node.
    fn unpin_lead(&mut self, lead: &Job, now: UnixTime, out: &mut StepOutcome) {
        let is_returning =
            self.generation.lead_absence.as_ref().is_some_and(|away| away.stage == AbsenceStage::Launched);
        let is_launched = is_returning || matches!(self.phase, JobPhase::Launching { .. });
        if lead.held && !lead.asks.pinned.is_empty() && !is_launched {
            self.attempt_effect(Effect::Unpin { job: self.job }, now, out);
        }
    }

    /// Notes that Slurm itself holds the lead, because requeues have exceeded one of Slurm's limits. No
    /// person has decided this, and the next launch releases the lead.
    fn note_limit(&mut self, lead: &Job, out: &mut StepOutcome) {
        let Some(why) = requeue_limit_reason(lead) else { return };
        if self.obstacles.refusal.as_ref() == Some(&why) {
            return;
        }
        out.notes.push(format!("Slurm holds the lead, which was requeued too often: {why}"));
        self.obstacles.refusal = Some(why);
    }

    /// Notes who holds the waiting lead.
    fn note_hold(&mut self, lead: &Job, read_at: UnixTime, out: &mut StepOutcome) {
        let before = self.obstacles.held_by;
        // The lead's agent may have requeued it, held. Slurm's description of the state shows that, and is
        // empty after `scontrol hold`.
        let is_agents_hold = !lead.state_description.is_empty();
        let is_ours = match &self.phase {
            JobPhase::Queued { .. } | JobPhase::Requeueing { .. } => true,
            // The lead may have run for a while between two snapshots.
            JobPhase::Launching { .. } => is_agents_hold || !self.obstacles.was_launched(read_at),
            _ => self.holds_lead(read_at).unwrap_or(is_agents_hold),
        };
        self.obstacles.note_hold(lead, is_ours);
        match (before, self.obstacles.held_by) {
            (None, Some(HoldKind::Owner)) => out.notes.push("the lead is held by its owner".to_owned()),
            (None, Some(HoldKind::Admin)) => {
                out.notes.push("the lead is held by an administrator".to_owned())
            }
            (Some(_), None) => out.notes.push("the lead was released".to_owned()),
            _ => {}
        }
    }

    /// Whether a launched lead that still waits will no longer start on `node`.
    fn is_start_abandoned(
        &mut self,
        lead: &Job,
        node: &NodeName,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) -> bool {
        if self.obstacles.held_by.is_some() {
            return true;
        }
        if let Some(why) = start_refusal(lead).filter(|_| self.obstacles.was_launched(observed.read_at)) {
            out.notes.push(format!("Slurm does not start the lead: {why}"));
            self.obstacles.refusal = Some(why);
            self.backoff.record_failed_start(settings, now);
            return true;
        }
        if self.is_passed_over(lead, node, observed, settings, now, out) {
            return true;
        }
        let secs = now.secs_since(self.since);
        // It ran for a moment and was requeued again, so this launch has failed.
        let was_requeued = secs >= UNDONE_SECS && is_deferred_by_slurm(lead);
        if !was_requeued && secs < settings.lead_start_secs {
            return false;
        }
        // The main queue was faster, or backfill plans something on the node. The node is not to blame.
        out.notes.push(format!("the lead did not start on {node} in time: {}", lead.state_reason));
        self.backoff.record_late_start(settings, now);
        true
    }

    /// Whether Slurm does not start the launched lead although its node is idle.
    ///
    /// While a main job waits for nodes, only backfill starts malleable jobs, and only if they end before the
    /// start that it has planned on the node. The shortest time limit is a minute, so backfill does not start
    /// anything in the last minute before that. This is not a failure, and the next plan allows for it. If
    /// backfill has considered the lead and left it in the queue, the cause is unknown, and infill counts a
    /// late start.
    fn is_passed_over(
        &mut self,
        lead: &Job,
        node: &NodeName,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) -> bool {
        let Some(launched_at) = self.obstacles.launched_at.filter(|at| *at < observed.read_at) else {
            return false;
        };
        if is_deferred_by_slurm(lead) {
            return false;
        }
        let Some(start) = observed.start else { return false };
        let secs_until_kept = start.kept_from.map(|from| from.secs_since(observed.read_at));
        if let Some(secs) = secs_until_kept.filter(|secs| *secs <= MIN_TIME_LIMIT_SECS) {
            let why =
                format!("backfill keeps it for a main job in {secs:.0} s, and starts no other job there");
            out.notes.push(format!("called the lead back from {node}: {why}"));
            // The next launch is not a repetition of this one, and need not wait.
            self.tries.remove(&(EffectKind::Launch, self.job));
            return true;
        }
        let was_considered = start.looked_at.is_some_and(|at| at.secs_since(launched_at) >= LATER_SECS);
        let secs_since_launch = observed.read_at.secs_since(launched_at);
        if !start.is_idle || !was_considered || secs_since_launch < START_SECS {
            return false;
        }
        let why = format!("backfill has considered it and left it in the queue ({})", lead.state_reason);
        out.notes.push(format!("called the lead back from {node}, which is idle: {why}"));
        self.backoff.record_late_start(settings, now);
        true
    }

    /// Slurm has requeued the lead by itself.
    fn handle_requeued_lead(&mut self, lead: &Job, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("Slurm requeued the lead ({})", lead.state_reason));
        // A preemption that the lead's agent reported is counted already.
        let was_reported = self.workers.values().any(|w| self.is_lead(w) && w.leaving);
        if !was_reported {
            self.backoff.record_preemption(self.last_change, now);
        }
        self.target = None;
        let next = self.phase.next_generation().with_reason("the lead was requeued by Slurm");
        self.enter_queue(next, now);
    }

    /// Slurm preempts the lead, and its agent has missed the notice. Without this the lead would keep its
    /// node for the whole grace time of Slurm.
    fn handle_unheard_preemption(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        let first = self.target.as_ref().and_then(|t| t.plan.nodes.first());
        let is_wanted = first.is_some_and(|p| p.node == *node);
        if !is_wanted || self.phase.is_requeueing() {
            return;
        }
        out.notes
            .push(format!("{node}: Slurm takes the node back, and the agent there has missed the notice"));
        self.backoff.record_preemption(self.last_change, now);
        self.drop_from_target(node);
    }

    /// Whether Slurm preempts this lead or wing, and its agents have missed the notice. Slurm signals the
    /// existing job steps once: a step that waits for one of Slurm's daemons, or starts later, gets no
    /// signal.
    pub(super) fn missed_preemption_notice(&self, job: &Job, now: UnixTime) -> bool {
        let Some(notified_at) = job.preempt_time.filter(|_| job.is_preempted()) else { return false };
        let agents: Vec<&WorkerAgent> = self.workers.values().filter(|w| w.slurm_job == job.id).collect();
        if agents.is_empty() {
            return true;
        }
        now.secs_since(notified_at) > HEARS_SECS
            && agents.iter().all(|w| !w.leaving && now.secs_since(w.last_seen) < HEARS_SECS)
    }

    fn handle_running_lead(&mut self, lead: &Job, now: UnixTime, out: &mut StepOutcome) {
        let was_suspended = self.obstacles.suspended;
        self.obstacles.note_running(lead);
        if was_suspended && !self.obstacles.suspended {
            // A suspended agent could not send heartbeats.
            for worker in self.workers.values_mut().filter(|w| w.slurm_job == self.job) {
                worker.last_seen = now;
            }
        }
        let Some(node) = lead.first_node().cloned() else { return };
        if self.missed_preemption_notice(lead, now) {
            self.handle_unheard_preemption(&node, now, out);
        }
        match &self.phase {
            JobPhase::Queued { next } => {
                let next = next.clone();
                out.notes
                    .push(format!("the lead runs on {node} although infill did not start it: taken over"));
                let has_agent = self.workers.get(&node).is_some_and(|w| self.is_lead(w) && !w.leaving);
                if has_agent {
                    self.enter_phase(JobPhase::Assembling { next }, now);
                } else {
                    self.enter_phase(JobPhase::Launching { node, next }, now);
                }
            }
            JobPhase::Requeueing { .. } | JobPhase::Ending { .. } => {}
            _ => self.renew_lead_limit(lead, &node, now, out),
        }
    }
}

/// Whether Slurm does not consider a waiting job yet.
fn is_deferred_by_slurm(lead: &Job) -> bool {
    lead.held || lead.state_reason == BEGINS_LATER
}
