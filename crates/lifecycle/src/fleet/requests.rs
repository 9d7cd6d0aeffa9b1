//! What users ask for beside a number of nodes: on which nodes a job cannot be, and what keeps it from
//! starting.

use super::fleet_job::FleetJob;
use super::job_fleet::JobFleet;
use super::node_matching::{MatchBudget, NodeMatcher};
use crate::JobPhase;
use infill_model::{CommentOptions, Job, Node, Snapshot, StartBlocker, UnixTime, dependency};

/// Slurm lets a job that it requeues begin after two minutes. A moment that is further off was chosen by a
/// person.
const REQUEUE_DELAY_SECS: f64 = 150.0;

impl JobFleet {
    /// Reads what the jobs of a trusted snapshot ask for.
    pub(super) fn read_requests(&mut self, snapshot: &Snapshot) {
        let partition = &self.settings.partition;
        let nodes: Vec<&Node> =
            snapshot.nodes.iter().filter(|n: &&Node| n.partitions.iter().any(|p| p == partition)).collect();
        // Where parts of nodes are lent, GPUs are for jobs that ask for them, and the others for those that
        // ask for CPUs.
        let lends_parts = nodes.iter().any(|n| n.name.is_place());
        let (on_cpus, others): (Vec<&Node>, Vec<&Node>) =
            nodes.into_iter().partition(|n: &&Node| n.name.is_place() && !n.node_type.has_gpus());
        let mut on_cpus = NodeMatcher::new(on_cpus);
        let mut others = NodeMatcher::new(others);
        let parts = self.parts.clone();
        let mut budget = MatchBudget::default();
        for (id, entry) in self.jobs.iter_mut().filter(|(_, e)| !e.has_ended()) {
            let Some(lead) = snapshot.job(*id).filter(|j| j.partition == *partition) else { continue };
            let (nodes, what) = match entry.lifecycle.submitted.cpus {
                Some(_) if lends_parts => (&mut on_cpus, "CPUs of nodes without GPUs"),
                _ => (&mut others, "GPUs"),
            };
            entry.read_request(lead, nodes, snapshot, &mut budget);
            if lends_parts && nodes.is_empty() && entry.details.bar.is_none() {
                entry.details.bar = Some(StartBlocker::NoNode(what.to_owned()));
            }
            let block = CommentOptions::from_job(lead)
                .share
                .zip(parts.as_ref())
                .map_or(1, |(share, parts)| share.place_count(parts));
            entry.widen_block(lead, block, nodes);
        }
    }
}

impl FleetJob {
    /// A worker that asks for more CPUs or memory than come with its places takes as many as have that.
    /// While the job holds something, that stays.
    fn widen_block(&mut self, lead: &Job, block: u32, nodes: &mut NodeMatcher<'_>) {
        let waits =
            matches!(self.lifecycle.phase, JobPhase::Queued { .. }) && self.lifecycle.wings.is_empty();
        let Some(wants) = lead.wants.as_ref().filter(|_| waits && lead.state.is_pending()) else { return };
        let units = nodes.lending_units(&self.details.excluded).iter();
        let most = units.map(|unit| unit.units_nearest(wants)).max().unwrap_or(1);
        self.lifecycle.submitted.block = most.max(block);
    }

    fn read_request<'a>(
        &mut self,
        lead: &'a Job,
        nodes: &mut NodeMatcher<'a>,
        snapshot: &Snapshot,
        budget: &mut MatchBudget,
    ) {
        let here = self.lifecycle.lead_node();
        let places = nodes.match_job(lead, self.lifecycle.submitted.block, here, budget);
        self.details.begin = deferred_begin(lead, self.details.begin, snapshot.taken_at);
        let reservation = Some(&lead.asks.reservation).filter(|r| !r.is_empty());
        self.details.bar = reservation
            .map(|name| StartBlocker::Reservation(name.clone()))
            .or(places.bar)
            .or_else(|| {
                dependency::unmet_dependency(lead, snapshot)
                    .map(|what| StartBlocker::Dependency(what.to_owned()))
            })
            .or(self.details.begin.map(StartBlocker::Begin));
        self.details.excluded = places.excluded;
    }
}

/// When the job may begin, if its owner has put that off.
fn deferred_begin(lead: &Job, before: Option<UnixTime>, now: UnixTime) -> Option<UnixTime> {
    let at = lead.asks.begin.filter(|at| *at > now)?;
    let chosen = lead.asks.requeues == 0 || before == Some(at) || at.secs_since(now) > REQUEUE_DELAY_SECS;
    chosen.then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobId};

    #[test]
    fn a_moment_to_begin_is_told_from_the_delay_of_a_requeue() {
        let now = UnixTime(1000);
        let begin = |at: i64, requeues, before: Option<i64>| {
            let mut lead = Job::new(JobId(7), "infill", BaseState::Pending);
            (lead.asks.begin, lead.asks.requeues) = (Some(UnixTime(at)), requeues);
            deferred_begin(&lead, before.map(UnixTime), now).map(|t| t.0)
        };
        assert_eq!(begin(900, 0, None), None);
        assert_eq!(begin(1020, 0, None), Some(1020));
        assert_eq!(begin(1120, 1, None), None);
        assert_eq!(begin(1600, 1, None), Some(1600));
        assert_eq!(begin(1020, 1, Some(1020)), Some(1020));
        assert_eq!(begin(1020, 1, Some(1600)), None);
    }
}
