//! Which places planned starts claim.
//!
//! Backfill's plan names nodes, and on each the job takes what it asked for. By then the main jobs will be
//! gone whose time is over; what is still missing it takes of what is free now, and then of ours.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::seats::{Lent, Place};
use crate::model::{Job, JobId, NodeName, UnixTime};

/// The places that each planned start claims, of those on which no main job is. Jobs that start earlier come
/// first; each place is claimed once.
pub(super) fn of(
    lent: &[Lent],
    index: &FxHashMap<NodeName, usize>,
    jobs: &[Job],
    partition: &str,
) -> BTreeMap<JobId, Vec<Place>> {
    let waits = |j: &&Job| j.state.is_pending() && j.partition != partition && !j.scheduled_nodes.is_empty();
    let mut planned: Vec<(UnixTime, &Job)> =
        jobs.iter().filter(waits).filter_map(|j| Some((j.start_time?, j))).collect();
    planned.sort_by_key(|(at, job)| (*at, job.id));
    let by_id = |id: JobId| jobs.binary_search_by(|j| j.id.cmp(&id)).ok().map(|at| &jobs[at]);
    let mut spoken: Vec<Vec<bool>> = lent.iter().map(|l| vec![false; l.on.len()]).collect();
    let mut claims: BTreeMap<JobId, Vec<Place>> = BTreeMap::new();
    for (at, job) in planned {
        for node in job.scheduled_nodes.iter().filter_map(|n| index.get(n).copied()) {
            let ground = Ground { lent: &lent[node], partition, by_id: &by_id };
            for gpu in ground.takes(job, at, &spoken[node]) {
                spoken[node][gpu] = true;
                if !ground.is_main(gpu) {
                    claims.entry(job.id).or_default().push((node, gpu));
                }
            }
        }
    }
    claims
}

/// One node and who is on it.
struct Ground<'a> {
    lent: &'a Lent,
    partition: &'a str,
    by_id: &'a dyn Fn(JobId) -> Option<&'a Job>,
}

impl<'a> Ground<'a> {
    fn user(&self, gpu: usize) -> Option<&'a Job> {
        self.lent.user(gpu).and_then(self.by_id)
    }

    fn is_main(&self, gpu: usize) -> bool {
        self.user(gpu).is_some_and(|j| j.partition != self.partition)
    }

    /// The places that a job takes which starts at this moment: those that main jobs will have left, free
    /// ones, then ours, the youngest first. Those that earlier starts take are spoken for.
    fn takes(&self, job: &Job, at: UnixTime, spoken: &[bool]) -> Vec<usize> {
        let wanted = self.wanted(job);
        let rank = |gpu: usize| match self.user(gpu) {
            Some(main) if main.partition != self.partition => {
                main.end_time.is_some_and(|end| end <= at).then_some((0, 0))
            }
            None => Some((1, 0)),
            Some(ours) => Some((2, -i64::from(ours.id.0))),
        };
        let open = (0..self.lent.on.len()).filter(|gpu| !spoken[*gpu]);
        let mut open: Vec<(_, usize)> = open.filter_map(|gpu| Some((rank(gpu)?, gpu))).collect();
        open.sort_unstable();
        open.into_iter().take(wanted).map(|(_, gpu)| gpu).collect()
    }

    /// How many places a waiting job will have of a node: enough for all that it asks for there, or all.
    fn wanted(&self, job: &Job) -> usize {
        let all = self.lent.on.len();
        job.wants.as_ref().map_or(all, |wants| (self.lent.unit.needed(wants) as usize).min(all))
    }
}
