//! Takes in what Slurm shows of the lead.

use infill_model::{BaseState, HoldKind, Job, LEAST_LIMIT_SECS, NodeName, UnixTime};

use super::effect::{Effect, EffectKind, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::observed_job::ObservedJob;
use super::obstacles::{requeue_limit_reason, start_refusal};
use super::phase::{AbsenceStage, JobPhase};
use super::settings::{HEARS_SECS, LATER_SECS, LifecycleSettings, START_SECS, UNDONE_SECS};
use super::worker::Worker;

/// Slurm's word for a job that was requeued and is made to wait.
const BEGINS_LATER: &str = "BeginTime";

impl JobLifecycle {
    /// Takes in that the lead was released to start.
    pub fn record_release(&mut self, now: UnixTime) {
        if matches!(self.phase, JobPhase::Launching { .. }) || self.generation.away.is_some() {
            (self.obstacles.released_at, self.obstacles.requeued) = (Some(now), false);
        }
    }

    /// Takes in what Slurm shows.
    pub fn apply_observation(
        &mut self,
        sight: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match sight.lead {
            Some(lead) if !lead.state.is_ended() => self.observe_lead(lead, sight, settings, now, out),
            _ => self.handle_lead_end(sight, now, out),
        }
        self.observe_wings(sight, settings, now, out);
    }

    fn handle_lead_end(&mut self, sight: &ObservedJob<'_>, now: UnixTime, out: &mut StepOutcome) {
        if self.phase != JobPhase::Ended {
            let how = sight.lead.map_or("forgotten by Slurm".to_owned(), |j| format!("{:?}", j.state.base));
            out.notes.push(format!("the lead has ended: {how}"));
            // Nothing is left to be tried otherwise but the owner's next job.
            let ran_out = sight.lead.is_some_and(|lead| lead.state.base == BaseState::OutOfMemory);
            let members = self.phase.members().len();
            if ran_out && members > 0 && self.has_alternative(members) {
                let why = self.record_overflow(members, out);
                out.notes.push(why);
            }
            self.workers.clear();
            self.target = None;
            self.enter_phase(JobPhase::Ended, now);
        }
        for wing in &sight.wings {
            self.attempt_effect(Effect::CancelWing { job: wing.id }, now, out);
        }
        self.wings.clear();
    }

    fn observe_lead(
        &mut self,
        lead: &Job,
        sight: &ObservedJob<'_>,
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
        // The reading must be younger than what we know from agents.
        if sight.read_at <= self.since || self.phase == JobPhase::Ended {
            return;
        }
        if lead.state.is_pending() && lead.state.flags.contains("COMPLETING") {
            self.unpin_lead(lead, now, out);
        } else if lead.state.is_pending() {
            self.handle_waiting_lead(lead, sight, settings, now, out);
            self.unpin_lead(lead, now, out);
        } else if lead.state.is_running() {
            self.handle_running_lead(lead, now, out);
        }
    }

    fn handle_waiting_lead(
        &mut self,
        lead: &Job,
        sight: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        self.obstacles.requeued |= self.phase.is_requeueing();
        self.note_hold(lead, sight.read_at, out);
        if self.continue_while_lead_waits(lead, sight.read_at, now, out) {
            return;
        }
        let waited = matches!(self.phase, JobPhase::Queued { .. });
        match self.phase.clone() {
            JobPhase::Queued { .. } => {}
            JobPhase::Launching { node, next } => {
                if !self.is_start_abandoned(lead, &node, sight, settings, now, out) {
                    return;
                }
                self.target = None;
                self.enter_queue(next, now);
            }
            JobPhase::Requeueing { next } => self.enter_queue(next, now),
            _ => self.handle_requeued_lead(lead, now, out),
        }
        self.note_limit(lead, out);
        // It waits now in any case.
        if !waited {
            self.obstacles.back_at = Some(now);
        }
        self.forget_lead();
        self.obstacles.released_at = None;
        // Held as it should be, whoever looks next knows whose hold it is.
        if !lead.held || self.obstacles.has_lost_hold(lead) {
            self.attempt_effect(Effect::Hold { job: self.job }, now, out);
        }
    }

    /// Has the lead unpinned that waits, held. One that is on its way keeps its node.
    fn unpin_lead(&mut self, lead: &Job, now: UnixTime, out: &mut StepOutcome) {
        let comes_back =
            self.generation.away.as_ref().is_some_and(|away| away.stage == AbsenceStage::Released);
        let on_its_way = comes_back || matches!(self.phase, JobPhase::Launching { .. });
        if lead.held && !lead.asks.pinned.is_empty() && !on_its_way {
            self.attempt_effect(Effect::Unpin { job: self.job }, now, out);
        }
    }

    /// Takes in that Slurm itself holds the lead, which was requeued too often for one of its limits: no
    /// person has said so, and the next launch releases it.
    fn note_limit(&mut self, lead: &Job, out: &mut StepOutcome) {
        let Some(why) = requeue_limit_reason(lead).filter(|why| self.obstacles.refusal.as_ref() != Some(why))
        else {
            return;
        };
        out.notes.push(format!("Slurm holds the lead, which was requeued too often: {why}"));
        self.obstacles.refusal = Some(why);
    }

    /// Takes in who holds the lead, which waits.
    fn note_hold(&mut self, lead: &Job, read_at: UnixTime, out: &mut StepOutcome) {
        let before = self.obstacles.held_by;
        // Its own agent may have had it requeued, held; that is told from `scontrol hold` by what Slurm says
        // of it.
        let by_agent = !lead.state_description.is_empty();
        let ours = match &self.phase {
            JobPhase::Queued { .. } | JobPhase::Requeueing { .. } => true,
            // It may have run for a while that nobody saw.
            JobPhase::Launching { .. } => by_agent || !self.obstacles.was_released(read_at),
            _ => self.holds_lead(read_at).unwrap_or(by_agent),
        };
        self.obstacles.note_hold(lead, ours);
        match (before, self.obstacles.held_by) {
            (None, Some(HoldKind::Owner)) => out.notes.push("the lead is held by its owner".to_owned()),
            (None, Some(HoldKind::Admin)) => {
                out.notes.push("the lead is held by an administrator".to_owned())
            }
            (Some(_), None) => out.notes.push("the lead was released".to_owned()),
            _ => {}
        }
    }

    /// Whether the released lead, which still waits, will not start here any more.
    fn is_start_abandoned(
        &mut self,
        lead: &Job,
        node: &NodeName,
        sight: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) -> bool {
        if self.obstacles.held_by.is_some() {
            return true;
        }
        if let Some(why) = start_refusal(lead).filter(|_| self.obstacles.was_released(sight.read_at)) {
            out.notes.push(format!("Slurm does not start the lead: {why}"));
            self.obstacles.refusal = Some(why);
            self.backoff.record_failed_start(settings, now);
            return true;
        }
        if self.is_passed_over(lead, node, sight, settings, now, out) {
            return true;
        }
        let secs = now.secs_since(self.since);
        // It ran for a moment, and was requeued since: nothing will come of this launch.
        let undone = secs >= UNDONE_SECS && is_deferred_by_slurm(lead);
        if !undone && secs < settings.lead_start_secs {
            return false;
        }
        // Nobody is to blame: the main queue was faster, or backfill plans something on the node.
        out.notes.push(format!("the lead did not start on {node} in time: {}", lead.state_reason));
        self.backoff.record_late_start(settings, now);
        true
    }

    /// Whether Slurm does not start the released lead although its node is idle.
    ///
    /// While a main job waits for nodes, only backfill starts ours, and only what ends before the start that
    /// it has planned on the node. A minute is the least, so within a minute of that it starts nothing. That
    /// is nobody's doing, and the next plan knows it. Where backfill has looked at the lead, and left it
    /// where it is, it is not known why: as a start that came late.
    fn is_passed_over(
        &mut self,
        lead: &Job,
        node: &NodeName,
        sight: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) -> bool {
        let released = self.obstacles.released_at.filter(|at| *at < sight.read_at);
        let start = sight.start.filter(|_| !is_deferred_by_slurm(lead));
        let (Some(released), Some(start)) = (released, start) else { return false };
        if let Some(from) = start.kept_from.filter(|t| t.secs_since(sight.read_at) <= LEAST_LIMIT_SECS) {
            let secs = from.secs_since(sight.read_at);
            let why =
                format!("backfill keeps it for a main job in {secs:.0} s, and starts nothing there before");
            out.notes.push(format!("called the lead back from {node}: {why}"));
            // Another launch is no repetition of this one.
            self.tries.remove(&(EffectKind::Launch, self.job));
            return true;
        }
        let has_looked = start.looked_at.is_some_and(|at| at.secs_since(released) >= LATER_SECS);
        if !start.is_idle || !has_looked || sight.read_at.secs_since(released) < START_SECS {
            return false;
        }
        let why = format!("backfill has looked at it and left it in the queue ({})", lead.state_reason);
        out.notes.push(format!("called the lead back from {node}, which is idle: {why}"));
        self.backoff.record_late_start(settings, now);
        true
    }

    /// Slurm has requeued the lead without being asked to.
    fn handle_requeued_lead(&mut self, lead: &Job, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("Slurm requeued the lead ({})", lead.state_reason));
        // If its agent had time to say so, that was counted already.
        let told = self.workers.values().any(|w| self.is_lead(w) && w.leaving);
        if !told {
            self.backoff.record_preemption(self.last_change, now);
        }
        self.target = None;
        let next = self.phase.next_generation().with_reason("the lead was requeued by Slurm");
        self.enter_queue(next, now);
    }

    /// Without us the lead would keep its node for Slurm's whole grace time.
    fn handle_unheard_preemption(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        let wanted = self.target.as_ref().and_then(|t| t.plan.nodes.first()).is_some_and(|p| p.node == *node);
        if !wanted || self.phase.is_requeueing() {
            return;
        }
        out.notes.push(format!("{node}: Slurm takes the node back, and nobody there has heard of it"));
        self.backoff.record_preemption(self.last_change, now);
        self.drop_from_target(node);
    }

    /// Whether Slurm has told a job of ours to leave that cannot have heard of it. Slurm tells the job steps
    /// that there are, once: a step that waits for one of Slurm's daemons, or comes later, hears nothing.
    pub(super) fn missed_preemption_notice(&self, job: &Job, now: UnixTime) -> bool {
        let Some(told_at) = job.preempt_time.filter(|_| job.is_preempted()) else { return false };
        let mut agents = self.workers.values().filter(|w| w.slurm_job == job.id).peekable();
        match agents.peek() {
            None => true,
            Some(_) => {
                now.secs_since(told_at) > HEARS_SECS
                    && agents.all(|w: &Worker| !w.leaving && now.secs_since(w.last_seen) < HEARS_SECS)
            }
        }
    }

    fn handle_running_lead(&mut self, lead: &Job, now: UnixTime, out: &mut StepOutcome) {
        let was_suspended = self.obstacles.suspended;
        self.obstacles.note_running(lead);
        if was_suspended && !self.obstacles.suspended {
            // Its agent could not speak.
            let job = self.job;
            self.workers.values_mut().filter(|w| w.slurm_job == job).for_each(|w| w.last_seen = now);
        }
        let Some(node) = lead.first_node().cloned() else { return };
        if self.missed_preemption_notice(lead, now) {
            self.handle_unheard_preemption(&node, now, out);
        }
        match &self.phase {
            JobPhase::Queued { next } => {
                let next = next.clone();
                out.notes.push(format!("the lead runs on {node} though we did not start it: taken up"));
                let here = self.workers.get(&node).is_some_and(|w| self.is_lead(w) && !w.leaving);
                let phase = if here { JobPhase::Idle { next } } else { JobPhase::Launching { node, next } };
                self.enter_phase(phase, now);
            }
            JobPhase::Requeueing { .. } | JobPhase::Ending { .. } => {}
            _ => self.renew_lead_limit(lead, &node, now, out),
        }
    }
}

/// Whether Slurm does not look at a waiting job yet.
fn is_deferred_by_slurm(lead: &Job) -> bool {
    lead.held || lead.state_reason == BEGINS_LATER
}
