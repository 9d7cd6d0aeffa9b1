//! Keeps the time limits of running Slurm jobs in step with what the planner gives.

use crate::model::{Job, NodeName, UnixTime};

use super::effect::{Effect, Outcome};
use super::limit::running_limit_mins;
use super::machine::Machine;

/// Seconds by which a lead's time limit outlasts its lease, to bridge a daemon or slurmrestd that is away.
const LEAD_MARGIN_SECS: f64 = 1800.0;

impl Machine {
    /// Keeps the time limit of the running lead well past its lease. A wing that meets its limit is a
    /// rescale; a lead that meets it has ended for good, with all its training. Nobody waits for it: the lead
    /// leaves in time, or is preempted.
    pub(super) fn keep_lead_limit(&mut self, lead: &Job, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        let lease = self.lease(std::slice::from_ref(node));
        let (Some(lease), Some(start), Some(limit)) = (lease, lead.start_time, lead.time_limit_mins) else {
            return;
        };
        let end = start.plus_secs(limit as f64 * 60.0);
        if end.secs_since(lease) < LEAD_MARGIN_SECS / 2.0 {
            let wanted = running_limit_mins(lease.secs_since(start) + LEAD_MARGIN_SECS);
            self.attempt(Effect::SetLimit { job: lead.id, limit_mins: wanted }, now, out);
        }
    }

    /// Keeps the time limit of a running wing in step with the leases of its nodes: never far past the
    /// shortest of them, and renewed when half of it is used up.
    pub(super) fn keep_limit(&mut self, wing: &Job, nodes: &[NodeName], now: UnixTime, out: &mut Outcome) {
        let lease = self.lease(nodes);
        let (Some(lease), Some(start), Some(limit)) = (lease, wing.start_time, wing.time_limit_mins) else {
            return;
        };
        let wanted = running_limit_mins(lease.secs_since(start));
        let end = start.plus_secs(limit as f64 * 60.0);
        let must_cut = u64::from(wanted) < limit;
        let half_used = end.secs_since(now) < lease.secs_since(now) / 2.0;
        if must_cut || (u64::from(wanted) > limit && half_used) {
            self.attempt(Effect::SetLimit { job: wing.id, limit_mins: wanted }, now, out);
        }
    }

    /// The end of the shortest lease of these nodes.
    fn lease(&self, nodes: &[NodeName]) -> Option<UnixTime> {
        let target = self.target.as_ref()?;
        target.plan.nodes.iter().filter(|p| nodes.contains(&p.node)).map(|p| p.lease_until).min()
    }
}
