//! How long each job takes to leave a node, and on which nodes it does not start because of that.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::super::save_warning::SaveWarning;
use super::RoundState;
use infill_advisor::ContentionEstimator;
use infill_gaps::{LeaveTimes, SaveCrowding, StopTime};
use infill_model::{
    ExcludedNodes, Gap, GapSet, JobFacts, JobId, MalleableJob, NodeName, NodeType, SaveContention, UnixTime,
};

impl RoundState {
    /// The time that leaving takes each job, on each type of nodes.
    pub(super) fn times_to_leave(&self, jobs: &[JobFacts]) -> LeaveTimes {
        let stops: FxHashMap<JobId, StopTime> =
            jobs.iter().filter_map(|j| Some((j.job, self.stop_time(j)?))).collect();
        let times = LeaveTimes {
            least_secs: self.config.gaps.leave_secs,
            notice_secs: self.config.daemon.poll_interval_secs,
            cleanups: self.node_times.cleanup_secs(),
            contention: if self.counts_shared_saves() {
                self.stops.shared.contention_bounds()
            } else {
                [SaveContention::NONE; 2]
            },
            contention_secs: self.config.gaps.contention_secs,
            unknown_jobs: jobs.iter().filter(|j| !j.ending && !stops.contains_key(&j.job)).count(),
            ..LeaveTimes::default()
        };
        times.with_stops(stops)
    }

    /// Whether a job leaves earlier because other jobs save at the same time.
    fn counts_shared_saves(&self) -> bool {
        self.config.gaps.contention_secs > 0.0
    }

    /// The time in which a job saves and exits; `None` where nothing tells it.
    fn stop_time(&self, facts: &JobFacts) -> Option<StopTime> {
        let key = self.profile_key(&facts.program, facts.location.lead_now.as_ref());
        self.stops.stop_time(facts, &key, &self.advisor, self.counts_shared_saves())
    }

    /// Stops that overlapped, and how much jobs that save at the same time slow each other down.
    pub fn shared_saves(&self) -> &ContentionEstimator {
        &self.stops.shared
    }

    /// As [`RoundState::shared_saves`], mutable.
    pub fn shared_saves_mut(&mut self) -> &mut ContentionEstimator {
        &mut self.stops.shared
    }

    /// The warning that the owner of a job should get about how it saves; `None` if all is well.
    pub fn save_warning(&self, facts: &JobFacts) -> Option<SaveWarning> {
        let key = self.profile_key(&facts.program, facts.location.lead_now.as_ref());
        SaveWarning::from_stops(self.advisor.profile_stops(&key), self.config.agent.preempt_leave_secs)
    }

    /// Says how long before a planned start the job leaves a node, and why.
    pub fn describe_leaving(&self, facts: &JobFacts) -> String {
        let key = self.profile_key(&facts.program, facts.location.lead_now.as_ref());
        let stops = self.advisor.profile_stops(&key).len();
        let alone_secs = self.leave_times.leave_secs(Some(facts.job), &key.node_type);
        let warning = self.save_warning(facts).map(|w| format!("; {w}")).unwrap_or_default();
        let saves = match (self.stop_time(facts).map(|stop| stop.max_alone_secs()), stops) {
            (None, _) => "how long it takes to save is not known yet".to_owned(),
            (Some(secs), 0) => format!("{secs:.0} s are for saving, which has not been measured yet"),
            (Some(secs), 1) => format!("{secs:.0} s are for saving, based on its last stop"),
            (Some(secs), _) => format!("{secs:.0} s are for saving, based on its last {stops} stops"),
        };
        let shared_secs = self.shared_secs(facts);
        // Moments are whole seconds.
        let others = if shared_secs > 1.0 {
            format!(", {shared_secs:.0} s of them because others will save at the same time")
        } else {
            String::new()
        };
        let leave_secs = alone_secs + if others.is_empty() { 0.0 } else { shared_secs };
        format!("leaves a node {leave_secs:.0} s before the main queue needs it{others}: {saves}{warning}")
    }

    /// How many seconds earlier the job leaves some node because others save at the same time, by the last
    /// snapshot.
    fn shared_secs(&self, facts: &JobFacts) -> f64 {
        let mut longest = 0.0_f64;
        for node in facts.location.held.iter().flat_map(|held| held.node.single_places()) {
            let Some(gap) = self.gaps.get(&node).filter(|gap| gap.holder == Some(facts.job)) else {
                continue;
            };
            if let Some(end) = gap.end.planned_moment()
                && let Some(vacate_by) = gap.vacate_by
            {
                let alone_secs = self.leave_times.leave_secs(Some(facts.job), &gap.node_type);
                longest = longest.max(end.secs_since(vacate_by) - alone_secs);
            }
        }
        longest
    }

    /// Keeps jobs off nodes whose windows are too short for them. Jobs that leave slowly are kept off all
    /// such nodes that are not their own. The others are kept off such nodes of other jobs, because many jobs
    /// may leave at once.
    pub(super) fn exclude_short(
        &self,
        jobs: &mut [MalleableJob],
        gaps: &GapSet,
        saving: usize,
        now: UnixTime,
    ) {
        let leave_times = &self.leave_times;
        let least_secs = self.config.gaps.min_window_secs;
        let crowds = SaveCrowding::from_gaps(&gaps.gaps, leave_times, saving);
        let planned: Vec<(&Gap, UnixTime)> =
            gaps.gaps.iter().filter_map(|gap| Some((gap, gap.end.planned_moment()?))).collect();
        let mut soon = planned.clone();
        soon.retain(|(gap, end)| {
            gap.holder.is_some() && end.secs_since(now) < leave_times.max_quickest_secs() + least_secs
        });
        // Jobs that are kept off the same nodes share one list. Each entry keeps the list that its key
        // identifies: while it lives, no other list has its identity.
        let mut lists: FxHashMap<(usize, Vec<NodeName>), (ExcludedNodes, ExcludedNodes)> =
            FxHashMap::default();
        for job in jobs {
            let among = if leave_times.is_slow(job.id) { &planned } else { &soon };
            let mut secs: BTreeMap<(UnixTime, &NodeType), f64> = BTreeMap::new();
            let mut short: Vec<NodeName> = Vec::new();
            for (gap, end) in among.iter().filter(|(gap, _)| gap.holder != Some(job.id)) {
                let leave_secs = *secs
                    .entry((*end, &gap.node_type))
                    .or_insert_with(|| crowds.leave_secs(job.id, *end, &gap.node_type));
                if end.secs_since(now) - leave_secs < least_secs {
                    short.push(gap.node.clone());
                }
            }
            if short.is_empty() {
                continue;
            }
            let key = (job.excluded.list_id(), short);
            if let Some((_, list)) = lists.get(&key) {
                job.excluded = list.clone();
                continue;
            }
            let list = job.excluded.with_nodes(key.1.iter().cloned());
            lists.insert(key, (job.excluded.clone(), list.clone()));
            job.excluded = list;
        }
    }
}
