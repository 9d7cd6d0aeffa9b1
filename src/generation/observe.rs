//! Takes in what Slurm shows of the lead.

use crate::model::{Job, UnixTime};

use super::effect::{Effect, Outcome};
use super::machine::Machine;
use super::phase::Phase;
use super::settings::{RETRY_SECS, Settings};
use super::sight::Sight;

impl Machine {
    /// Takes in what Slurm shows.
    pub fn observe(&mut self, sight: &Sight<'_>, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        match sight.lead {
            Some(lead) if !lead.state.is_ended() => self.see_lead(lead, sight.read_at, settings, now, out),
            _ => self.lead_ended(sight, now, out),
        }
        self.see_wings(sight, now, out);
    }

    fn lead_ended(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        if self.phase != Phase::Ended {
            let how = sight.lead.map_or("forgotten by Slurm".to_owned(), |j| format!("{:?}", j.state.base));
            out.notes.push(format!("the lead has ended: {how}"));
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
        read_at: UnixTime,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        self.submitted.account.clone_from(&lead.account);
        self.submitted.qos.clone_from(&lead.qos);
        self.submitted.gres.clone_from(&lead.gres);
        // The reading must be younger than what we know from agents.
        if read_at <= self.since || self.phase == Phase::Ended {
            return;
        }
        if lead.state.is_pending() && !lead.state.flags.contains("COMPLETING") {
            self.lead_waits(lead, settings, now, out);
        } else if lead.state.is_running() {
            self.lead_runs(lead, now, out);
        }
    }

    fn lead_waits(&mut self, lead: &Job, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        match &self.phase {
            Phase::Queued { .. } => {}
            Phase::Launching { node, next } => {
                if now.secs_since(self.since) < settings.lead_start_secs {
                    return;
                }
                // Nobody is to blame: the main queue was faster, or backfill plans something on the node.
                out.notes.push(format!("the lead did not start on {node} in time: {}", lead.state_reason));
                let next = next.clone();
                self.target = None;
                self.backoff.start_after = Some(now.plus_secs(RETRY_SECS));
                self.queue(next, now);
            }
            Phase::Requeueing { next } => {
                let next = next.clone();
                self.queue(next, now);
            }
            _ => self.lead_requeued(lead, now, out),
        }
        // It waits now in any case.
        self.forget_lead();
        if !lead.held {
            self.attempt(Effect::Hold { job: self.job }, now, out);
        }
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

    fn lead_runs(&mut self, lead: &Job, now: UnixTime, out: &mut Outcome) {
        let Some(node) = lead.batch_host.clone().or_else(|| lead.nodes.first().cloned()) else { return };
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
