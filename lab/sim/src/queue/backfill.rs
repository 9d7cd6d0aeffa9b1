//! The starts that Slurm's backfill would have planned, from the time limits of running jobs and the queue.
//!
//! Jobs are planned in the order of their submission, each as soon as enough nodes are expected to be free. A
//! running job is expected to run to its limit. A job that would fit at once but did not start is not
//! eligible (held, dependent, beyond a limit of its owner): backfill does not plan it either.

use std::collections::BTreeMap;

use super::NodeIx;
use infill_model::JobId;

/// Most jobs of the queue that are considered, as with `bf_max_job_test`.
pub(super) const MOST_JOBS_TESTED: usize = 500;

/// How far ahead starts are planned, s. This is the default of `bf_window`: a day.
pub(super) const WINDOW_SECS: i64 = 86_400;

/// A job that is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedJob {
    /// The job.
    pub job: JobId,
    /// Its planned start, s.
    pub start: i64,
    /// The nodes on which it is planned.
    pub nodes: Vec<NodeIx>,
}

/// A pending main job.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingJob {
    pub job: JobId,
    pub nodes: usize,
    pub limit_secs: i64,
}

/// Nodes by the moment from which they have no planned job, in each group by ascending number.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeTimeline {
    groups: BTreeMap<i64, FreeNodeGroup>,
}

/// Nodes that are free from one moment on.
#[derive(Clone, Debug, Default)]
struct FreeNodeGroup {
    nodes: Vec<NodeIx>,
    is_sorted: bool,
}

impl FreeTimeline {
    /// Adds nodes that are free from a moment on.
    pub fn add_nodes(&mut self, from: i64, nodes: impl IntoIterator<Item = NodeIx>) {
        let group = self.groups.entry(from).or_default();
        group.nodes.extend(nodes);
        group.is_sorted = false;
    }

    /// The nodes by moment.
    #[cfg(test)]
    pub(crate) fn by_moment(self) -> impl Iterator<Item = (i64, Vec<NodeIx>)> {
        self.groups.into_iter().map(|(at, group)| (at, group.nodes))
    }

    /// The first moment at which `nodes` nodes are free.
    fn earliest_start(&self, nodes: usize) -> Option<i64> {
        let mut found = 0;
        self.groups.iter().find_map(|(at, group)| {
            found += group.nodes.len();
            (found >= nodes).then_some(*at)
        })
    }

    /// Takes `nodes` nodes, those that are free earliest.
    fn take_earliest(&mut self, nodes: usize) -> Vec<NodeIx> {
        let mut taken = Vec::with_capacity(nodes);
        while taken.len() < nodes
            && let Some(mut first) = self.groups.first_entry()
        {
            let group = first.get_mut();
            let wanted = nodes - taken.len();
            if group.nodes.len() <= wanted {
                taken.extend(first.remove().nodes);
                continue;
            }
            if !group.is_sorted {
                // The group consists of sorted runs, for which this sort is fast.
                group.nodes.sort();
                group.is_sorted = true;
            }
            taken.extend(group.nodes.drain(..wanted));
        }
        taken.sort();
        taken
    }
}

/// Plans the starts of the queue, in its order, on the nodes in `free`.
pub(super) fn plan_starts(
    now: i64,
    queue: impl Iterator<Item = WaitingJob>,
    mut free: FreeTimeline,
) -> Vec<PlannedJob> {
    let mut planned = Vec::new();
    for job in queue.take(MOST_JOBS_TESTED) {
        let Some(start) = free.earliest_start(job.nodes).filter(|at| *at <= now + WINDOW_SECS) else {
            continue;
        };
        if start <= now {
            continue;
        }
        let nodes = free.take_earliest(job.nodes);
        free.add_nodes(start + job.limit_secs, nodes.iter().copied());
        planned.push(PlannedJob { job: job.job, start, nodes });
    }
    planned
}
