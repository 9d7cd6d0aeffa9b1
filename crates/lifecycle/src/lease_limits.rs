//! Keeps the time limits of running Slurm jobs in step with what the planner gives.

use infill_model::{Job, NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::observed_job::ObservedJob;
use super::phase::JobPhase;
use super::time_limit::{running_limit_mins, start_limit_mins};

/// Seconds by which a lead's time limit outlasts its lease, to bridge a daemon or slurmrestd that is away.
const LEAD_MARGIN_SECS: f64 = 1800.0;

impl JobLifecycle {
    /// Keeps the time limit of the running lead well past its lease. A wing that meets its limit is a
    /// rescale; a lead that meets it has ended for good, with all its training. Nobody waits for it: the lead
    /// leaves in time, or is preempted.
    pub(super) fn renew_lead_limit(
        &mut self,
        lead: &Job,
        node: &NodeName,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let lease = self.shortest_lease(std::slice::from_ref(node));
        let (Some(lease), Some(start), Some(limit)) = (lease, lead.start_time, lead.time_limit_mins) else {
            return;
        };
        let end = start.plus_secs(limit as f64 * 60.0);
        if end.secs_since(lease) < LEAD_MARGIN_SECS / 2.0 {
            let wanted =
                self.capped_by_user_limit(running_limit_mins(lease.secs_since(start) + LEAD_MARGIN_SECS));
            if u64::from(wanted) > limit {
                self.attempt_effect(Effect::SetLimit { job: lead.id, limit_mins: wanted }, now, out);
            }
        }
    }

    /// A time limit for the lead that is not beyond its user's own: that is kept as Slurm keeps it, from each
    /// start.
    pub(super) fn capped_by_user_limit(&self, limit_mins: u32) -> u32 {
        self.submitted.limit_mins.map_or(limit_mins, |own| limit_mins.min(own.max(1)))
    }

    /// Gives a lead whose agent has just come the limit that it shall have, from what is known without a
    /// look: the one that it was started with may be a minute, and the next look may be far.
    pub(super) fn extend_lead_limit(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        let Some(lease) = self.shortest_lease(std::slice::from_ref(node)) else { return };
        // It was launched at the beginning of this phase, and has run for no longer.
        let begun = if matches!(self.phase, JobPhase::Launching { .. }) { self.since } else { now };
        let has = self.capped_by_user_limit(start_limit_mins(lease.secs_since(begun)));
        let limit_mins =
            self.capped_by_user_limit(running_limit_mins(lease.secs_since(begun) + LEAD_MARGIN_SECS));
        if limit_mins > has {
            self.attempt_effect(Effect::SetLimit { job: self.job, limit_mins }, now, out);
        }
    }

    /// Renews the limits of what a snapshot shows running, even one that is doubtful otherwise: what it says
    /// of a job that runs holds whatever backfill was doing.
    pub fn renew_limits(&mut self, sight: &ObservedJob<'_>, now: UnixTime, out: &mut StepOutcome) {
        let stays = !matches!(
            self.phase,
            JobPhase::Queued { .. } | JobPhase::Requeueing { .. } | JobPhase::Ending { .. } | JobPhase::Ended
        );
        let lead = sight.lead.filter(|lead| stays && lead.state.is_running());
        if let Some((lead, node)) = lead.and_then(|lead| Some((lead, lead.first_node()?.clone()))) {
            self.renew_lead_limit(lead, &node, now, out);
        }
        for job in sight.wings.iter().filter(|job| job.state.is_running()) {
            let nodes = self.wings.values().find(|w| w.job == Some(job.id)).map(|w| w.order.nodes.clone());
            if let Some(nodes) = nodes {
                self.renew_wing_limit(job, &nodes, now, out);
            }
        }
    }

    /// Keeps the time limit of a running wing in step with the leases of its nodes: never far past the
    /// shortest of them, and renewed when half of it is used up.
    pub(super) fn renew_wing_limit(
        &mut self,
        wing: &Job,
        nodes: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let lease = self.shortest_lease(nodes);
        let (Some(lease), Some(start), Some(limit)) = (lease, wing.start_time, wing.time_limit_mins) else {
            return;
        };
        let wanted = running_limit_mins(lease.secs_since(start));
        let end = start.plus_secs(limit as f64 * 60.0);
        let must_cut = u64::from(wanted) < limit;
        let half_used = end.secs_since(now) < lease.secs_since(now) / 2.0;
        if must_cut || (u64::from(wanted) > limit && half_used) {
            self.attempt_effect(Effect::SetLimit { job: wing.id, limit_mins: wanted }, now, out);
        }
    }

    /// The end of the shortest lease of these nodes.
    fn shortest_lease(&self, nodes: &[NodeName]) -> Option<UnixTime> {
        let target = self.target.as_ref()?;
        target.plan.nodes.iter().filter(|p| nodes.contains(&p.node)).map(|p| p.lease_until).min()
    }
}
