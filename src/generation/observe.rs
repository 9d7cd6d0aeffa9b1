//! What Slurm shows of the lead and its wings.

use crate::model::{Job, NodeName, UnixTime, order_in};

use super::{Effect, Machine, Outcome, Phase};

/// Seconds that an order or submission may take to show in Slurm's answers.
const SHOW_SECS: f64 = 3.0;

/// Seconds by which a lead's time limit outlasts its lease, to bridge a daemon or slurmrestd that is away.
const LEAD_MARGIN_SECS: f64 = 1800.0;

/// What Slurm shows of one malleable job in one trusted snapshot.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    /// The lead, if Slurm still knows it.
    pub lead: Option<&'a Job>,
    /// Jobs of the same user in the malleable partition that call themselves wings of this lead, and have not
    /// ended.
    pub wings: Vec<&'a Job>,
    /// When the reading began, by our own clock: what happened since is not in it.
    pub read_at: UnixTime,
}

impl Machine {
    /// Takes in what Slurm shows.
    pub fn observe(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        match sight.lead {
            Some(lead) if !lead.state.is_ended() => self.see_lead(lead, sight.read_at, now, out),
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

    fn see_lead(&mut self, lead: &Job, read_at: UnixTime, now: UnixTime, out: &mut Outcome) {
        self.account.clone_from(&lead.account);
        self.lead_qos.clone_from(&lead.qos);
        self.gres.clone_from(&lead.gres);
        // The reading must be younger than what we know from agents.
        if read_at <= self.since || self.phase == Phase::Ended {
            return;
        }
        if lead.state.is_pending() && !lead.state.flags.contains("COMPLETING") {
            self.lead_waits(lead, now, out);
        } else if lead.state.is_running() {
            self.lead_runs(lead, now, out);
        }
    }

    fn lead_waits(&mut self, lead: &Job, now: UnixTime, out: &mut Outcome) {
        match &self.phase {
            Phase::Queued => {}
            Phase::Launching { node } => {
                if now.secs_since(self.since) < self.start_patience {
                    return;
                }
                // Nobody is to blame: the main queue was faster, or backfill plans something on the node.
                out.notes.push(format!("the lead did not start on {node} in time: {}", lead.state_reason));
                self.target = None;
                self.backoff_until = Some(now.plus_secs(super::RETRY_SECS));
                self.enter(Phase::Queued, now);
            }
            Phase::Requeueing => self.enter(Phase::Queued, now),
            _ => {
                out.notes.push(format!("Slurm requeued the lead ({})", lead.state_reason));
                // If its agent had time to say so, that was counted already.
                let told = self.workers.values().any(|w| w.slurm_job == self.job && w.leaving);
                if !told {
                    self.preempted(now);
                }
                self.forget_lead();
                self.target = None;
                self.why = "the lead was requeued by Slurm".to_owned();
                self.enter(Phase::Queued, now);
            }
        }
        if self.phase == Phase::Queued {
            self.forget_lead();
            if !lead.held {
                self.attempt(Effect::Hold { job: self.job }, now, out);
            }
        }
    }

    fn lead_runs(&mut self, lead: &Job, now: UnixTime, out: &mut Outcome) {
        let Some(node) = lead.batch_host.clone().or_else(|| lead.nodes.first().cloned()) else { return };
        if self.phase == Phase::Queued {
            out.notes.push(format!("the lead runs on {node} though we did not start it: taken up"));
            let here = self.workers.get(&node).is_some_and(|w| w.slurm_job == self.job && !w.leaving);
            self.enter(if here { Phase::Idle } else { Phase::Launching { node } }, now);
        } else if !matches!(self.phase, Phase::Requeueing | Phase::Ending { .. }) {
            self.keep_lead_limit(lead, &node, now, out);
        }
    }

    fn forget_lead(&mut self) {
        let job = self.job;
        self.workers.retain(|_, w| w.slurm_job != job);
    }

    fn see_wings(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        for job in &sight.wings {
            let order = order_in(&job.comment);
            let known = self.wings.iter_mut().find(|(o, w)| Some(**o) == order || w.job == Some(job.id));
            match known {
                Some((_, wing)) => {
                    wing.job = Some(job.id);
                    wing.batch_host.clone_from(&job.batch_host);
                    wing.seen_running |= job.state.is_running();
                    let nodes = wing.order.nodes.clone();
                    if job.state.is_running() {
                        self.keep_limit(job, &nodes, now, out);
                    }
                }
                None if self.phase != Phase::Ended => {
                    out.notes.push(format!("wing {} belongs to no order of ours: cancelled", job.id));
                    self.attempt(Effect::CancelWing { job: job.id }, now, out);
                }
                None => {}
            }
        }
        self.drop_ended_wings(sight, now, out);
    }

    fn drop_ended_wings(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        let ended: Vec<u64> = self
            .wings
            .iter()
            .filter(|(_, w)| w.job.is_some_and(|id| !sight.wings.iter().any(|j| j.id == id)))
            .filter(|(_, w)| sight.read_at.secs_since(w.ordered_at) > SHOW_SECS)
            .map(|(order, _)| *order)
            .collect();
        for order in ended {
            let Some(wing) = self.wings.remove(&order) else { continue };
            let unwanted = wing.order.nodes.iter().all(|n| !self.wants_wing_on(n));
            if !unwanted
                && wing.seen_running
                && !wing.order.nodes.iter().any(|n| self.workers.contains_key(n))
            {
                let why = "a wing ended before its agent said hello";
                out.strikes.extend(wing.order.nodes.iter().map(|n| (n.clone(), why.to_owned())));
            }
            self.drop_nodes(&wing.order.nodes, "a wing ended", now);
        }
    }

    /// Forgets wing nodes that are gone, and stops the generation if it ran there.
    pub(super) fn drop_nodes(&mut self, nodes: &[NodeName], why: &str, now: UnixTime) {
        for node in nodes {
            self.workers.remove(node);
            self.untarget(node);
        }
        self.lose(nodes, why, now);
    }

    /// Keeps the time limit of the running lead well past its lease. A wing that meets its limit is a
    /// rescale; a lead that meets it has ended for good, with all its training. Nobody waits for it: the lead
    /// leaves in time, or is preempted.
    fn keep_lead_limit(&mut self, lead: &Job, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        let lease =
            self.target.iter().flat_map(|t| &t.nodes).find(|p| p.node == *node).map(|p| p.lease_until);
        let (Some(lease), Some(start), Some(limit)) = (lease, lead.start_time, lead.time_limit_mins) else {
            return;
        };
        let end = start.plus_secs(limit as f64 * 60.0);
        if end.secs_since(lease) < LEAD_MARGIN_SECS / 2.0 {
            let wanted = super::running_limit_mins(lease.secs_since(start) + LEAD_MARGIN_SECS);
            self.attempt(Effect::SetLimit { job: lead.id, limit_mins: wanted }, now, out);
        }
    }

    /// Keeps the time limit of a running Slurm job in step with the leases of its nodes: never far past the
    /// shortest of them, and renewed when half of it is used up.
    fn keep_limit(&mut self, job: &Job, nodes: &[NodeName], now: UnixTime, out: &mut Outcome) {
        let Some(target) = &self.target else { return };
        let lease = target.nodes.iter().filter(|p| nodes.contains(&p.node)).map(|p| p.lease_until).min();
        let (Some(lease), Some(start), Some(limit)) = (lease, job.start_time, job.time_limit_mins) else {
            return;
        };
        let wanted = super::running_limit_mins(lease.secs_since(start));
        let end = start.plus_secs(limit as f64 * 60.0);
        let must_cut = u64::from(wanted) < limit;
        let half_used = end.secs_since(now) < lease.secs_since(now) / 2.0;
        if must_cut || (u64::from(wanted) > limit && half_used) {
            self.attempt(Effect::SetLimit { job: job.id, limit_mins: wanted }, now, out);
        }
    }

    pub(super) fn start_failed(&mut self, node: &NodeName, why: &str, now: UnixTime, out: &mut Outcome) {
        self.failed_starts += 1;
        let doubled = self.backoff_first * f64::powi(2.0, self.failed_starts.min(20) as i32 - 1);
        self.backoff_until = Some(now.plus_secs(doubled.min(self.backoff_longest)));
        self.target = None;
        out.strikes.push((node.clone(), why.to_owned()));
    }
}
