//! Planned starts, over the time in which backfill makes new ones.
//!
//! Each cycle of backfill first wipes all planned starts and then sets them one by one. Where a cycle takes
//! minutes there is hardly a moment of rest; but what the last one planned for a job holds until this one
//! plans it anew.

use std::collections::BTreeMap;

use infill_model::{JobId, NodeName, Snapshot, SnapshotDoubt, UnixTime};

/// Plans that were whole longer ago say nothing of this cycle, seconds: `bf_max_time` is a few minutes where
/// it is long.
const PLAN_MEMORY_SECS: f64 = 600.0;

/// The newest plan of each pending job.
#[derive(Debug, Default)]
pub(super) struct PlannedStarts {
    /// When all of them were last seen between two cycles.
    whole_at: Option<UnixTime>,
    planned: BTreeMap<JobId, (UnixTime, Vec<NodeName>)>,
}

impl PlannedStarts {
    /// Learns from the snapshot; one that is doubtful only because backfill is at work gets the plans that
    /// were wiped, and is doubtful no more.
    pub(super) fn restore_plans(&mut self, snapshot: &mut Snapshot) {
        if snapshot.is_trusted() {
            (self.whole_at, self.planned) = (Some(snapshot.taken_at), BTreeMap::new());
        } else if !self.can_restore(snapshot) {
            return;
        } else {
            tracing::debug!("backfill is at work; what it wiped comes from its last cycle");
        }
        for job in snapshot.jobs.iter_mut().filter(|j| j.state.is_pending()) {
            match (job.start_time, self.planned.get(&job.id)) {
                (Some(start), _) if !job.scheduled_nodes.is_empty() => {
                    self.planned.insert(job.id, (start, job.scheduled_nodes.clone()));
                }
                (_, Some((start, nodes))) => {
                    (job.start_time, job.scheduled_nodes) = (Some(*start), nodes.clone());
                }
                _ => {}
            }
        }
        snapshot.doubts.clear();
    }

    fn can_restore(&self, snapshot: &Snapshot) -> bool {
        let age_secs = self.whole_at.map(|at| snapshot.taken_at.secs_since(at));
        snapshot.doubts.iter().all(|d: &SnapshotDoubt| {
            matches!(d, SnapshotDoubt::BackfillActive | SnapshotDoubt::BackfillMoved)
        }) && age_secs.is_some_and(|secs| (0.0..=PLAN_MEMORY_SECS).contains(&secs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, Job};

    /// A snapshot with these pending jobs: each with the second of its planned start, on a node of its own.
    fn snapshot(at: i64, jobs: &[(u32, Option<i64>)], doubts: &[SnapshotDoubt]) -> Snapshot {
        let job = |(id, start): &(u32, Option<i64>)| {
            let mut job = Job::new(JobId(*id), "main", BaseState::Pending);
            job.start_time = start.map(UnixTime);
            job.scheduled_nodes = start.iter().map(|_| NodeName::new(format!("n{id}"))).collect();
            job
        };
        let jobs = jobs.iter().map(job).collect();
        Snapshot { taken_at: UnixTime(at), jobs, doubts: doubts.to_vec(), ..Snapshot::default() }
    }

    /// What is planned, and whether it is trusted.
    fn settled(plans: &mut PlannedStarts, mut snapshot: Snapshot) -> (Vec<Option<i64>>, bool) {
        plans.restore_plans(&mut snapshot);
        let starts = snapshot.jobs.iter().map(|j| j.start_time.map(|t| t.0));
        assert!(snapshot.jobs.iter().all(|j| j.start_time.is_some() != j.scheduled_nodes.is_empty()));
        (starts.collect(), snapshot.is_trusted())
    }

    #[test]
    fn what_a_cycle_has_wiped_holds_until_it_is_planned_anew() {
        let mut plans = PlannedStarts::default();
        let active = [SnapshotDoubt::BackfillActive];
        assert_eq!(
            settled(&mut plans, snapshot(99, &[(1, None)], &active)),
            (vec![None], false),
            "too early"
        );
        let whole = snapshot(100, &[(1, Some(500)), (2, Some(600)), (3, None)], &[]);
        assert_eq!(settled(&mut plans, whole), (vec![Some(500), Some(600), None], true));
        let wiped = snapshot(130, &[(1, None), (2, None), (3, None), (4, None)], &active);
        assert_eq!(settled(&mut plans, wiped), (vec![Some(500), Some(600), None, None], true));
        let half = snapshot(150, &[(1, Some(450)), (2, None), (3, None)], &[SnapshotDoubt::BackfillMoved]);
        assert_eq!(settled(&mut plans, half), (vec![Some(450), Some(600), None], true));
        let wiped = snapshot(170, &[(1, None), (2, None)], &active);
        assert_eq!(settled(&mut plans, wiped), (vec![Some(450), Some(600)], true), "the newest is kept");
        let whole = snapshot(200, &[(1, Some(450)), (2, None)], &[]);
        assert_eq!(settled(&mut plans, whole), (vec![Some(450), None], true), "backfill gave it up");
        let wiped = snapshot(210, &[(1, None), (2, None)], &active);
        assert_eq!(settled(&mut plans, wiped), (vec![Some(450), None], true));
    }

    #[test]
    fn old_plans_and_other_doubts_are_no_help() {
        let mut plans = PlannedStarts::default();
        settled(&mut plans, snapshot(100, &[(1, Some(500))], &[]));
        for doubt in [SnapshotDoubt::ControllerRestarted, SnapshotDoubt::Inconsistent("odd".to_owned())] {
            let doubts = [SnapshotDoubt::BackfillActive, doubt];
            assert_eq!(settled(&mut plans, snapshot(110, &[(1, None)], &doubts)), (vec![None], false));
        }
        for at in [50, 701] {
            let wiped = snapshot(at, &[(1, None)], &[SnapshotDoubt::BackfillActive]);
            assert_eq!(settled(&mut plans, wiped), (vec![None], false), "{at}");
        }
        let wiped = snapshot(700, &[(1, None)], &[SnapshotDoubt::BackfillActive]);
        assert_eq!(settled(&mut plans, wiped), (vec![Some(500)], true));
    }
}
