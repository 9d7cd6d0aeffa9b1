//! Keeps the time limits of running Slurm jobs in step with their leases.

use infill_model::{Job, NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::observed_job::ObservedJob;
use super::phase::JobPhase;
use super::time_limit::{running_limit_mins, start_limit_mins};

/// How long a lead's time limit outlasts its lease, seconds. This bridges an outage of the daemon or
/// slurmrestd.
const LEAD_MARGIN_SECS: f64 = 1800.0;

impl JobLifecycle {
    /// Keeps the time limit of the running lead well past its lease. A wing that reaches its limit causes a
    /// rescale. A lead that reaches its limit ends for good, with all its training. The margin does not delay
    /// main jobs: the lead leaves in time, or Slurm preempts it.
    pub(super) fn renew_lead_limit(
        &mut self,
        lead: &Job,
        node: &NodeName,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(lease) = self.shortest_lease(std::slice::from_ref(node)) else { return };
        let Some(start) = lead.start_time else { return };
        let Some(limit) = lead.time_limit_mins else { return };
        let end = start.plus_secs(limit as f64 * 60.0);
        if end.secs_since(lease) < LEAD_MARGIN_SECS / 2.0 {
            let wanted = running_limit_mins(lease.secs_since(start) + LEAD_MARGIN_SECS);
            let limit_mins = self.capped_by_user_limit(wanted);
            if u64::from(limit_mins) > limit {
                self.attempt_effect(Effect::SetLimit { job: lead.id, limit_mins }, now, out);
            }
        }
    }

    /// A time limit for the lead, at most the user's own limit. Like Slurm, infill applies the user's limit
    /// to each start.
    pub(super) fn capped_by_user_limit(&self, limit_mins: u32) -> u32 {
        self.submitted.limit_mins.map_or(limit_mins, |own| limit_mins.min(own.max(1)))
    }

    /// Extends the limit of a lead whose agent has just arrived, without waiting for a snapshot: the limit of
    /// its launch may be a single minute, and the next snapshot may be far away.
    pub(super) fn extend_lead_limit(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        let Some(lease) = self.shortest_lease(std::slice::from_ref(node)) else { return };
        // It was launched at the beginning of this phase and started only after that.
        let started_at = if matches!(self.phase, JobPhase::Launching { .. }) { self.since } else { now };
        let lease_secs = lease.secs_since(started_at);
        let present_mins = self.capped_by_user_limit(start_limit_mins(lease_secs));
        let limit_mins = self.capped_by_user_limit(running_limit_mins(lease_secs + LEAD_MARGIN_SECS));
        if limit_mins > present_mins {
            self.attempt_effect(Effect::SetLimit { job: self.job, limit_mins }, now, out);
        }
    }

    /// Renews the limits of jobs that a snapshot shows running. The snapshot may be doubtful in other ways:
    /// its data on running jobs are right whatever backfill was doing.
    pub fn renew_limits(&mut self, observed: &ObservedJob<'_>, now: UnixTime, out: &mut StepOutcome) {
        let leaves = matches!(
            self.phase,
            JobPhase::Queued { .. } | JobPhase::Requeueing { .. } | JobPhase::Ending { .. } | JobPhase::Ended
        );
        if let Some(lead) = observed.lead.filter(|lead| !leaves && lead.state.is_running())
            && let Some(node) = lead.first_node()
        {
            self.renew_lead_limit(lead, node, now, out);
        }
        for job in observed.wings.iter().filter(|job| job.state.is_running()) {
            let nodes = self.wings.values().find(|w| w.job == Some(job.id)).map(|w| w.order.nodes.clone());
            if let Some(nodes) = nodes {
                self.renew_wing_limit(job, &nodes, now, out);
            }
        }
    }

    /// Keeps the time limit of a running wing in step with the leases of its nodes. The limit never ends far
    /// after the shortest lease, and is extended when half of the remaining lease is used up.
    pub(super) fn renew_wing_limit(
        &mut self,
        wing: &Job,
        nodes: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(lease) = self.shortest_lease(nodes) else { return };
        let Some(start) = wing.start_time else { return };
        let Some(limit) = wing.time_limit_mins else { return };
        let limit_mins = running_limit_mins(lease.secs_since(start));
        let end = start.plus_secs(limit as f64 * 60.0);
        let must_shorten = u64::from(limit_mins) < limit;
        let is_half_used = end.secs_since(now) < lease.secs_since(now) / 2.0;
        if must_shorten || (u64::from(limit_mins) > limit && is_half_used) {
            self.attempt_effect(Effect::SetLimit { job: wing.id, limit_mins }, now, out);
        }
    }

    /// The end of the shortest lease of these nodes.
    fn shortest_lease(&self, nodes: &[NodeName]) -> Option<UnixTime> {
        let target = self.target.as_ref()?;
        target.plan.nodes.iter().filter(|p| nodes.contains(&p.node)).map(|p| p.lease_until).min()
    }
}
