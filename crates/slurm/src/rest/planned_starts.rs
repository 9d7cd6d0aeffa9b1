//! Keeps planned starts while backfill computes new ones.
//!
//! Each backfill cycle first wipes all planned starts and then sets them one by one. Where a cycle takes
//! minutes, backfill is almost always active. But the start that the last cycle planned for a job holds until
//! the present cycle plans that job again.

use std::collections::BTreeMap;

use infill_model::{JobId, NodeName, Snapshot, SnapshotDoubt, UnixTime};

/// Seconds for which a complete set of planned starts stays useful. `bf_max_time` is a few minutes where it
/// is long.
const PLAN_MEMORY_SECS: f64 = 600.0;

/// The newest plan of each pending job.
#[derive(Debug, Default)]
pub(super) struct PlannedStarts {
    /// When all of them were last seen between two cycles.
    complete_at: Option<UnixTime>,
    /// The planned start and the nodes of each pending job.
    planned: BTreeMap<JobId, (UnixTime, Vec<NodeName>)>,
}

impl PlannedStarts {
    /// Remembers the planned starts of the snapshot. A snapshot that is doubtful only because backfill is
    /// active gets the wiped plans back, and its doubts are cleared.
    pub(super) fn restore_plans(&mut self, snapshot: &mut Snapshot) {
        if snapshot.is_trusted() {
            self.complete_at = Some(snapshot.taken_at);
            self.planned = BTreeMap::new();
        } else if !self.can_restore(snapshot) {
            return;
        } else {
            tracing::debug!("backfill is active; the starts that it wiped come from its last cycle");
        }
        for job in snapshot.jobs.iter_mut().filter(|j| j.state.is_pending()) {
            match (job.start_time, self.planned.get(&job.id)) {
                (Some(start), _) if !job.scheduled_nodes.is_empty() => {
                    self.planned.insert(job.id, (start, job.scheduled_nodes.clone()));
                }
                (_, Some((start, nodes))) => {
                    job.start_time = Some(*start);
                    job.scheduled_nodes = nodes.clone();
                }
                _ => {}
            }
        }
        snapshot.doubts.clear();
    }

    fn can_restore(&self, snapshot: &Snapshot) -> bool {
        let age_secs = self.complete_at.map(|at| snapshot.taken_at.secs_since(at));
        let is_recent = age_secs.is_some_and(|secs| (0.0..=PLAN_MEMORY_SECS).contains(&secs));
        let is_only_backfill = snapshot
            .doubts
            .iter()
            .all(|doubt| matches!(doubt, SnapshotDoubt::BackfillActive | SnapshotDoubt::BackfillMoved));
        is_only_backfill && is_recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, Job};

    /// A snapshot with these pending jobs. Each has the second of its planned start, on a node of its own.
    fn snapshot(at: i64, jobs: &[(u32, Option<i64>)], doubts: &[SnapshotDoubt]) -> Snapshot {
        let jobs = jobs.iter().map(|(id, start)| pending_job(*id, *start)).collect();
        Snapshot { taken_at: UnixTime(at), jobs, doubts: doubts.to_vec(), ..Snapshot::default() }
    }

    fn pending_job(id: u32, start: Option<i64>) -> Job {
        let mut job = Job::new(JobId(id), "main", BaseState::Pending);
        job.start_time = start.map(UnixTime);
        job.scheduled_nodes = start.iter().map(|_| NodeName::new(format!("n{id}"))).collect();
        job
    }

    /// The planned starts after [`PlannedStarts::restore_plans`], and whether the snapshot is trusted.
    fn settled(plans: &mut PlannedStarts, mut snapshot: Snapshot) -> (Vec<Option<i64>>, bool) {
        plans.restore_plans(&mut snapshot);
        let starts = snapshot.jobs.iter().map(|j| j.start_time.map(|t| t.0));
        assert!(snapshot.jobs.iter().all(|j| j.start_time.is_some() != j.scheduled_nodes.is_empty()));
        (starts.collect(), snapshot.is_trusted())
    }

    #[test]
    fn a_wiped_start_holds_until_backfill_plans_the_job_again() {
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
    fn old_plans_and_other_doubts_restore_nothing() {
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
