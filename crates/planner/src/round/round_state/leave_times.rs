//! In what time each job leaves a node, and where it does not start for that.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::super::save_warning::SaveWarning;
use super::RoundState;
use infill_advisor::SharedSaves;
use infill_gaps::{LeaveTimes, SaveCrowding, StopTime};
use infill_model::{
    ExcludedNodes, Gap, GapSet, JobFacts, JobId, MalleableJob, NodeName, NodeType, SaveContention, UnixTime,
};

impl RoundState {
    /// What leaving takes each job, on each type of nodes.
    pub(super) fn times_to_leave(&self, jobs: &[JobFacts]) -> LeaveTimes {
        let stops: FxHashMap<JobId, StopTime> =
            jobs.iter().filter_map(|j: &JobFacts| Some((j.job, self.stop_time(j)?))).collect();
        let times = LeaveTimes {
            least_secs: self.config.gaps.leave_secs,
            notice_secs: self.config.daemon.poll_interval_secs,
            cleanups: self.node_times.cleanup_secs(),
            contention: match self.counts_shared_saves() {
                true => self.stops.shared.contention_bounds(),
                false => [SaveContention::NONE; 2],
            },
            contention_secs: self.config.gaps.contention_secs,
            unknown: jobs.iter().filter(|j| !j.ending && !stops.contains_key(&j.job)).count(),
            ..LeaveTimes::default()
        };
        times.with_stops(stops)
    }

    /// Whether a job leaves earlier because others save at the same time.
    fn counts_shared_saves(&self) -> bool {
        self.config.gaps.contention_secs > 0.0
    }

    /// The time in which a job saves and exits, if anything says so.
    fn stop_time(&self, facts: &JobFacts) -> Option<StopTime> {
        let key = self.profile_key(&facts.program, facts.place.lead_now.as_ref());
        self.stops.stop_time(facts, &key, &self.library, self.counts_shared_saves())
    }

    /// Which stops overlapped, and how much jobs that save at once slow each other down.
    pub fn shared_saves(&self) -> &SharedSaves {
        &self.stops.shared
    }

    /// The same, to be changed.
    pub fn shared_saves_mut(&mut self) -> &mut SharedSaves {
        &mut self.stops.shared
    }

    /// What the owner should know of how a job saves.
    pub fn save_warning(&self, facts: &JobFacts) -> Option<SaveWarning> {
        let key = self.profile_key(&facts.program, facts.place.lead_now.as_ref());
        SaveWarning::from_stops(self.library.profile_stops(&key), self.config.agent.preempt_leave_secs)
    }

    /// In what time the job leaves a node, in words.
    pub fn describe_leaving(&self, facts: &JobFacts) -> String {
        let key = self.profile_key(&facts.program, facts.place.lead_now.as_ref());
        let stops = self.library.profile_stops(&key).len();
        let alone_secs = self.leave.leave_secs(Some(facts.job), &key.node_type);
        let warning = self.save_warning(facts).map(|w| format!("; {w}")).unwrap_or_default();
        let saves = match (self.stop_time(facts).map(|stop| stop.max_alone_secs()), stops) {
            (None, _) => "it is not known how long it takes to save".to_owned(),
            (Some(secs), 0) => format!("{secs:.0} s are allowed for saving, of which nothing was measured"),
            (Some(secs), _) => format!("{secs:.0} s are allowed for saving, by its last {stops} stops"),
        };
        let shared_secs = self.shared_secs(facts);
        // Moments are whole seconds.
        let others = match shared_secs > 1.0 {
            true => format!(", {shared_secs:.0} s of them because others will save at the same time"),
            false => String::new(),
        };
        let leave_secs = alone_secs + if others.is_empty() { 0.0 } else { shared_secs };
        format!("leaves a node {leave_secs:.0} s before the main queue wants it{others}: {saves}{warning}")
    }

    /// Seconds by which the job leaves some node earlier because others save at the same time, by the last
    /// look.
    fn shared_secs(&self, facts: &JobFacts) -> f64 {
        let held = facts.place.held.iter().flat_map(|held| held.node.single_places());
        let earlier = |node: NodeName| {
            let gap = self.gaps.get(&node).filter(|gap| gap.holder == Some(facts.job))?;
            let secs = gap.end.planned_moment()?.secs_since(gap.vacate_by?);
            Some(secs - self.leave.leave_secs(Some(facts.job), &gap.node_type))
        };
        held.filter_map(earlier).fold(0.0, f64::max)
    }

    /// Keeps jobs from nodes whose windows are too short for them: such as leave slowly from all that are not
    /// their own, and the others from those of other jobs, where so many may leave at once.
    pub(super) fn exclude_short(
        &self,
        jobs: &mut [MalleableJob],
        gaps: &GapSet,
        saving: usize,
        now: UnixTime,
    ) {
        let leave = &self.leave;
        let least_secs = self.config.gaps.min_window_secs;
        let crowds = SaveCrowding::from_gaps(&gaps.gaps, leave, saving);
        let known: Vec<(&Gap, UnixTime)> =
            gaps.gaps.iter().filter_map(|gap| Some((gap, gap.end.planned_moment()?))).collect();
        let soon: Vec<(&Gap, UnixTime)> = known
            .iter()
            .filter(|(gap, at): &&(&Gap, UnixTime)| {
                gap.holder.is_some() && at.secs_since(now) < leave.max_quickest_secs() + least_secs
            })
            .copied()
            .collect();
        let mut lists: FxHashMap<(usize, Vec<NodeName>), (ExcludedNodes, ExcludedNodes)> =
            FxHashMap::default();
        for job in jobs {
            let among = if leave.is_slow(job.id) { &known } else { &soon };
            let mut secs: BTreeMap<(UnixTime, &NodeType), f64> = BTreeMap::new();
            let mut short: Vec<NodeName> = Vec::new();
            for (gap, at) in among.iter().filter(|(gap, _)| gap.holder != Some(job.id)) {
                let leave_secs = || crowds.leave_secs(job.id, *at, &gap.node_type);
                let leave_secs = *secs.entry((*at, &gap.node_type)).or_insert_with(leave_secs);
                if at.secs_since(now) - leave_secs < least_secs {
                    short.push(gap.node.clone());
                }
            }
            if !short.is_empty() {
                // Jobs that are kept from the same nodes share one list. With the list before is its number,
                // which no other has as long as it is there.
                let kind = (job.excluded.list_id(), short);
                let with = |kind: &(usize, Vec<NodeName>)| job.excluded.with_nodes(kind.1.iter().cloned());
                job.excluded = match lists.get(&kind) {
                    Some((_, list)) => ExcludedNodes::clone(list),
                    None => {
                        let list = with(&kind);
                        lists.insert(kind, (job.excluded.clone(), list.clone()));
                        list
                    }
                };
            }
        }
    }
}
