//! Takes in what Slurm shows of the lead.

use infill_model::{BaseState, HoldKind, Job, LEAST_LIMIT_SECS, NodeName, UnixTime};

use super::effect::{Effect, EffectKind, Outcome};
use super::machine::Machine;
use super::obstacles::{beyond_limit, refusal};
use super::phase::{Phase, Stage};
use super::settings::{HEARS_SECS, LATER_SECS, START_SECS, Settings, UNDONE_SECS};
use super::sight::Sight;
use super::worker::Worker;

/// Slurm's word for a job that was requeued and is made to wait.
const BEGINS_LATER: &str = "BeginTime";

impl Machine {
    /// Takes in that the lead was released to start.
    pub fn released(&mut self, now: UnixTime) {
        if matches!(self.phase, Phase::Launching { .. }) || self.generation.away.is_some() {
            (self.obstacles.released_at, self.obstacles.requeued) = (Some(now), false);
        }
    }

    /// Takes in what Slurm shows.
    pub fn observe(&mut self, sight: &Sight<'_>, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        match sight.lead {
            Some(lead) if !lead.state.is_ended() => self.see_lead(lead, sight, settings, now, out),
            _ => self.lead_ended(sight, now, out),
        }
        self.see_wings(sight, settings, now, out);
    }

    fn lead_ended(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        if self.phase != Phase::Ended {
            let how = sight.lead.map_or("forgotten by Slurm".to_owned(), |j| format!("{:?}", j.state.base));
            out.notes.push(format!("the lead has ended: {how}"));
            // Nothing is left to be tried otherwise but the owner's next job.
            let ran_out = sight.lead.is_some_and(|lead| lead.state.base == BaseState::OutOfMemory);
            let members = self.phase.members().len();
            if ran_out && members > 0 && self.has_choice(members) {
                let why = self.remember_overflow(members, out);
                out.notes.push(why);
            }
            self.workers.clear();
            self.target = None;
            self.enter(Phase::Ended, now);
        }
        for wing in &sight.wings {
            self.attempt(Effect::CancelWing { job: wing.id }, now, out);
        }
        self.wings.clear();
    }

    fn see_lead(
        &mut self,
        lead: &Job,
        sight: &Sight<'_>,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        self.see_own(lead);
        self.submitted.account.clone_from(&lead.account);
        self.submitted.qos.clone_from(&lead.qos);
        self.submitted.gres.clone_from(&lead.gres);
        self.submitted.nodes.constraint.clone_from(&lead.asks.constraint);
        self.submitted.nodes.exclude.clone_from(&lead.asks.exclude);
        // The reading must be younger than what we know from agents.
        if sight.read_at <= self.since || self.phase == Phase::Ended {
            return;
        }
        if lead.state.is_pending() && lead.state.flags.contains("COMPLETING") {
            self.unpin(lead, now, out);
        } else if lead.state.is_pending() {
            self.lead_waits(lead, sight, settings, now, out);
            self.unpin(lead, now, out);
        } else if lead.state.is_running() {
            self.lead_runs(lead, now, out);
        }
    }

    fn lead_waits(
        &mut self,
        lead: &Job,
        sight: &Sight<'_>,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        self.obstacles.requeued |= self.phase.is_requeueing();
        self.note_hold(lead, sight.read_at, out);
        if self.waits_while_others_go_on(lead, sight.read_at, now, out) {
            return;
        }
        let waited = matches!(self.phase, Phase::Queued { .. });
        match self.phase.clone() {
            Phase::Queued { .. } => {}
            Phase::Launching { node, next } => {
                if !self.start_is_off(lead, &node, sight, settings, now, out) {
                    return;
                }
                self.target = None;
                self.queue(next, now);
            }
            Phase::Requeueing { next } => self.queue(next, now),
            _ => self.lead_requeued(lead, now, out),
        }
        self.note_limit(lead, out);
        // It waits now in any case.
        if !waited {
            self.obstacles.back_at = Some(now);
        }
        self.forget_lead();
        self.obstacles.released_at = None;
        // Held as it should be, whoever looks next knows whose hold it is.
        if !lead.held || self.obstacles.has_lost_its_hold(lead) {
            self.attempt(Effect::Hold { job: self.job }, now, out);
        }
    }

    /// Has the lead unpinned that waits, held. One that is on its way keeps its node.
    fn unpin(&mut self, lead: &Job, now: UnixTime, out: &mut Outcome) {
        let comes_back = self.generation.away.as_ref().is_some_and(|away| away.stage == Stage::Released);
        let on_its_way = comes_back || matches!(self.phase, Phase::Launching { .. });
        if lead.held && !lead.asks.pinned.is_empty() && !on_its_way {
            self.attempt(Effect::Unpin { job: self.job }, now, out);
        }
    }

    /// Takes in that Slurm itself holds the lead, which was requeued too often for one of its limits: no
    /// person has said so, and the next launch releases it.
    fn note_limit(&mut self, lead: &Job, out: &mut Outcome) {
        let Some(why) = beyond_limit(lead).filter(|why| self.obstacles.refusal.as_ref() != Some(why)) else {
            return;
        };
        out.notes.push(format!("Slurm holds the lead, which was requeued too often: {why}"));
        self.obstacles.refusal = Some(why);
    }

    /// Takes in who holds the lead, which waits.
    fn note_hold(&mut self, lead: &Job, read_at: UnixTime, out: &mut Outcome) {
        let before = self.obstacles.held_by;
        // Its own agent may have had it requeued, held; that is told from `scontrol hold` by what Slurm says
        // of it.
        let by_agent = !lead.state_description.is_empty();
        let ours = match &self.phase {
            Phase::Queued { .. } | Phase::Requeueing { .. } => true,
            // It may have run for a while that nobody saw.
            Phase::Launching { .. } => by_agent || !self.obstacles.was_released(read_at),
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
    fn start_is_off(
        &mut self,
        lead: &Job,
        node: &NodeName,
        sight: &Sight<'_>,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) -> bool {
        if self.obstacles.held_by.is_some() {
            return true;
        }
        if let Some(why) = refusal(lead).filter(|_| self.obstacles.was_released(sight.read_at)) {
            out.notes.push(format!("Slurm does not start the lead: {why}"));
            self.obstacles.refusal = Some(why);
            self.backoff.start_failed(settings, now);
            return true;
        }
        if self.is_passed_over(lead, node, sight, settings, now, out) {
            return true;
        }
        let secs = now.secs_since(self.since);
        // It ran for a moment, and was requeued since: nothing will come of this launch.
        let undone = secs >= UNDONE_SECS && is_made_to_wait(lead);
        if !undone && secs < settings.lead_start_secs {
            return false;
        }
        // Nobody is to blame: the main queue was faster, or backfill plans something on the node.
        out.notes.push(format!("the lead did not start on {node} in time: {}", lead.state_reason));
        self.backoff.started_late(settings, now);
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
        sight: &Sight<'_>,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) -> bool {
        let released = self.obstacles.released_at.filter(|at| *at < sight.read_at);
        let start = sight.start.filter(|_| !is_made_to_wait(lead));
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
        self.backoff.started_late(settings, now);
        true
    }

    /// Slurm has requeued the lead without being asked to.
    fn lead_requeued(&mut self, lead: &Job, now: UnixTime, out: &mut Outcome) {
        out.notes.push(format!("Slurm requeued the lead ({})", lead.state_reason));
        // If its agent had time to say so, that was counted already.
        let told = self.workers.values().any(|w| self.is_lead(w) && w.leaving);
        if !told {
            self.backoff.preempted(self.last_change, now);
        }
        self.target = None;
        let next = self.phase.next().but("the lead was requeued by Slurm");
        self.queue(next, now);
    }

    /// Without us the lead would keep its node for Slurm's whole grace time.
    fn take_back(&mut self, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        let wanted = self.target.as_ref().and_then(|t| t.plan.nodes.first()).is_some_and(|p| p.node == *node);
        if !wanted || self.phase.is_requeueing() {
            return;
        }
        out.notes.push(format!("{node}: Slurm takes the node back, and nobody there has heard of it"));
        self.backoff.preempted(self.last_change, now);
        self.untarget(node);
    }

    /// Whether Slurm has told a job of ours to leave that cannot have heard of it. Slurm tells the job steps
    /// that there are, once: a step that waits for one of Slurm's daemons, or comes later, hears nothing.
    pub(super) fn missed_its_preemption(&self, job: &Job, now: UnixTime) -> bool {
        let Some(told_at) = job.preempt_time.filter(|_| job.is_preempted()) else { return false };
        let mut agents = self.workers.values().filter(|w| w.slurm_job == job.id).peekable();
        match agents.peek() {
            None => true,
            Some(_) => {
                let speaks = |w: &Worker| !w.leaving && now.secs_since(w.last_seen) < HEARS_SECS;
                now.secs_since(told_at) > HEARS_SECS && agents.all(speaks)
            }
        }
    }

    fn lead_runs(&mut self, lead: &Job, now: UnixTime, out: &mut Outcome) {
        let was_suspended = self.obstacles.suspended;
        self.obstacles.note_running(lead);
        if was_suspended && !self.obstacles.suspended {
            // Its agent could not speak.
            let job = self.job;
            self.workers.values_mut().filter(|w| w.slurm_job == job).for_each(|w| w.last_seen = now);
        }
        let Some(node) = lead.first_node().cloned() else { return };
        if self.missed_its_preemption(lead, now) {
            self.take_back(&node, now, out);
        }
        match &self.phase {
            Phase::Queued { next } => {
                let next = next.clone();
                out.notes.push(format!("the lead runs on {node} though we did not start it: taken up"));
                let here = self.workers.get(&node).is_some_and(|w| self.is_lead(w) && !w.leaving);
                let phase = if here { Phase::Idle { next } } else { Phase::Launching { node, next } };
                self.enter(phase, now);
            }
            Phase::Requeueing { .. } | Phase::Ending { .. } => {}
            _ => self.keep_lead_limit(lead, &node, now, out),
        }
    }
}

/// Whether Slurm does not look at a waiting job yet.
fn is_made_to_wait(lead: &Job) -> bool {
    lead.held || lead.state_reason == BEGINS_LATER
}
