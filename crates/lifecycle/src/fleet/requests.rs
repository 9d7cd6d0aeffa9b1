//! Evaluates users' requests beyond the number of nodes: which nodes do not suit a job, and what keeps it
//! from starting.

use super::array_tasks::tasks_beyond_limit;
use super::fleet_job::FleetJob;
use super::job_fleet::JobFleet;
use super::node_matching::{MatchBudget, NodeMatcher};
use infill_model::{ArrayPart, CommentOptions, Job, Node, Snapshot, StartBlocker, UnixTime, dependency};

/// Slurm defers a requeued job by two minutes. A begin time that is further away was chosen by a person.
const REQUEUE_DELAY_SECS: f64 = 150.0;

impl JobFleet {
    /// Evaluates the requests of the jobs in a trusted snapshot.
    pub(super) fn read_requests(&mut self, snapshot: &Snapshot) {
        let partition = &self.settings.partition;
        let nodes: Vec<&Node> =
            snapshot.nodes.iter().filter(|n| n.partitions.iter().any(|p| p == partition)).collect();
        // Where infill lends parts of nodes, GPU places are for jobs that ask for GPUs, and CPU places for
        // jobs that ask for CPUs.
        let lends_parts = nodes.iter().any(|n| n.name.is_place());
        let (cpu_places, others): (Vec<&Node>, Vec<&Node>) =
            nodes.into_iter().partition(|n| n.name.is_place() && !n.node_type.has_gpus());
        let mut cpu_places = NodeMatcher::new(cpu_places);
        let mut others = NodeMatcher::new(others);
        let rules = self.lending_rules.clone();
        let mut budget = MatchBudget::default();
        let beyond_limit = tasks_beyond_limit(snapshot, partition);
        for (id, entry) in self.jobs.iter_mut().filter(|(_, e)| !e.has_ended()) {
            let Some(lead) = snapshot.job(*id).filter(|j| j.partition == *partition) else { continue };
            let (nodes, resource) = match entry.lifecycle.submitted.cpus {
                Some(_) if lends_parts => (&mut cpu_places, "CPUs of nodes without GPUs"),
                _ => (&mut others, "GPUs"),
            };
            entry.read_request(lead, nodes, snapshot, &mut budget);
            if let Some(ArrayPart::Task { limit: Some(limit), .. }) = lead.array
                && beyond_limit.contains(id)
                && entry.details.start_blocker.is_none()
            {
                entry.details.start_blocker = Some(StartBlocker::ArrayLimit(limit));
            }
            if lends_parts && nodes.is_empty() && entry.details.start_blocker.is_none() {
                entry.details.start_blocker = Some(StartBlocker::NoNode(resource.to_owned()));
            }
            let share = CommentOptions::from_job(lead).share;
            let block = share.zip(rules.as_ref()).map_or(1, |(share, rules)| share.place_count(rules));
            entry.widen_block(lead, block, nodes);
        }
    }
}

impl FleetJob {
    /// Sets the number of places per worker so that they include the requested CPUs and memory. It stays the
    /// same while the job holds nodes.
    fn widen_block(&mut self, lead: &Job, block: u32, nodes: &mut NodeMatcher<'_>) {
        let holds_nothing = self.lifecycle.phase.is_queued() && self.lifecycle.wings.is_empty();
        if !holds_nothing || !lead.state.is_pending() {
            return;
        }
        let Some(requested) = &lead.wants else { return };
        let units = nodes.lending_units(&self.details.excluded).iter();
        let needed = units.map(|unit| unit.units_nearest(requested)).max().unwrap_or(1);
        self.lifecycle.submitted.places_per_worker = needed.max(block);
    }

    /// Sets the nodes that do not suit the job, and what keeps it from starting.
    fn read_request<'a>(
        &mut self,
        lead: &'a Job,
        nodes: &mut NodeMatcher<'a>,
        snapshot: &Snapshot,
        budget: &mut MatchBudget,
    ) {
        let here = self.lifecycle.lead_node();
        let places = nodes.match_job(lead, self.lifecycle.submitted.places_per_worker, here, budget);
        self.details.begin_after = deferred_begin(lead, self.details.begin_after, snapshot.taken_at);
        let reservation = &lead.asks.reservation;
        self.details.start_blocker = if !reservation.is_empty() {
            Some(StartBlocker::Reservation(reservation.clone()))
        } else if places.start_blocker.is_some() {
            places.start_blocker
        } else if let Some(unmet) = dependency::unmet_dependency(lead, snapshot) {
            Some(StartBlocker::Dependency(unmet.to_owned()))
        } else {
            self.details.begin_after.map(StartBlocker::Begin)
        };
        self.details.excluded = places.excluded;
    }
}

/// The begin time that the owner has chosen, if it is in the future. `previous` is the one that was found
/// last.
fn deferred_begin(lead: &Job, previous: Option<UnixTime>, now: UnixTime) -> Option<UnixTime> {
    let begin = lead.asks.begin.filter(|begin| *begin > now)?;
    let is_chosen =
        lead.asks.requeues == 0 || previous == Some(begin) || begin.secs_since(now) > REQUEUE_DELAY_SECS;
    is_chosen.then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobId};

    #[test]
    fn a_chosen_begin_time_is_distinguished_from_the_delay_of_a_requeue() {
        fn begin(at: i64, requeues: u32, previous: Option<i64>) -> Option<i64> {
            let mut lead = Job::new(JobId(7), "infill", BaseState::Pending);
            lead.asks.begin = Some(UnixTime(at));
            lead.asks.requeues = requeues;
            deferred_begin(&lead, previous.map(UnixTime), UnixTime(1000)).map(|t| t.0)
        }
        assert_eq!(begin(900, 0, None), None);
        assert_eq!(begin(1020, 0, None), Some(1020));
        assert_eq!(begin(1120, 1, None), None);
        assert_eq!(begin(1600, 1, None), Some(1600));
        assert_eq!(begin(1020, 1, Some(1020)), Some(1020));
        assert_eq!(begin(1020, 1, Some(1600)), None);
    }
}
