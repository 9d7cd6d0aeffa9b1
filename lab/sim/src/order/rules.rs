//! Sorts jobs by each order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::live_job::LiveJob;
use super::{QueueOrder, RigidJob};

/// Levels of attained service, unit-seconds (Tiresias).
const SERVICE_LEVELS: [f64; 3] = [3250.0, 7200.0, 18_000.0];

/// Computes the sort keys of jobs.
pub(crate) struct JobRanks<'a> {
    jobs: &'a [RigidJob],
    order: QueueOrder,
    /// When each job ends on A-SRPT's virtual machine.
    virtual_ends: Vec<f64>,
    /// The seconds that each job had run when its value was last computed, and this value. Waiting jobs keep
    /// theirs.
    cached: Vec<Option<(f64, f64)>>,
}

impl<'a> JobRanks<'a> {
    /// For these jobs on a machine with `units` units.
    pub fn new(jobs: &'a [RigidJob], units: u32, order: QueueOrder) -> Self {
        let virtual_ends = if order == QueueOrder::ASrpt { virtual_ends(jobs, units) } else { Vec::new() };
        JobRanks { jobs, order, virtual_ends, cached: vec![None; jobs.len()] }
    }

    /// Positions in `live`, in the order of the queue.
    pub fn sorted_positions(&mut self, live: &[LiveJob]) -> Vec<usize> {
        let keys = match self.order {
            QueueOrder::Borda => self.borda_ranks(live),
            _ => live.iter().map(|l| self.sort_key(l)).collect::<Vec<f64>>(),
        };
        positions_by_key(&keys, |place| live[place].job)
    }

    /// The sort key of a job; the smallest comes first.
    fn sort_key(&mut self, live: &LiveJob) -> f64 {
        let job = &self.jobs[live.job];
        let size = f64::from(job.size);
        match self.order {
            QueueOrder::Fcfs => job.at,
            QueueOrder::Las | QueueOrder::Borda => live.done_secs * size,
            QueueOrder::TwoDLas => {
                SERVICE_LEVELS.iter().filter(|level| live.done_secs * size >= **level).count() as f64
            }
            QueueOrder::SrptOracle => live.left_secs * size,
            QueueOrder::SrptPredicted => {
                self.cached_value(live, |job, done| job.lengths.corrected_remaining_secs(done) * size)
            }
            QueueOrder::ASrpt => self.virtual_ends[live.job],
            QueueOrder::Gittins => {
                self.cached_value(live, |job, done| -job.lengths.gittins_index(done) / size)
            }
        }
    }

    /// A value that changes only while the job runs.
    fn cached_value(&mut self, live: &LiveJob, value: impl Fn(&RigidJob, f64) -> f64) -> f64 {
        match self.cached[live.job] {
            Some((done, cached)) if done == live.done_secs => cached,
            _ => {
                let fresh = value(&self.jobs[live.job], live.done_secs);
                self.cached[live.job] = Some((live.done_secs, fresh));
                fresh
            }
        }
    }

    fn size_of(&self, live: &LiveJob) -> f64 {
        f64::from(self.jobs[live.job].size)
    }

    /// The sum of two ranks: by attained service, and by predicted remaining service. The second rank is
    /// stretched to the number of all jobs. Jobs without their own prediction count the first rank twice.
    fn borda_ranks(&mut self, live: &[LiveJob]) -> Vec<f64> {
        let service: Vec<f64> = live.iter().map(|l| l.done_secs * self.size_of(l)).collect();
        let mut attained = vec![0.0; live.len()];
        for (rank, place) in positions_by_key(&service, |place| live[place].job).into_iter().enumerate() {
            attained[place] = rank as f64;
        }
        let known: Vec<usize> = (0..live.len()).filter(|i| self.jobs[live[*i].job].known).collect();
        let left: Vec<f64> = known
            .iter()
            .map(|i| {
                let live_job = &live[*i];
                let size = self.size_of(live_job);
                self.cached_value(live_job, |job, done| job.lengths.corrected_remaining_secs(done) * size)
            })
            .collect();
        let mut second = attained.clone();
        let stretch = live.len() as f64 / known.len().max(1) as f64;
        for (rank, at) in positions_by_key(&left, |at| known[at]).into_iter().enumerate() {
            second[known[at]] = rank as f64 * stretch;
        }
        attained.iter().zip(second).map(|(a, b)| a + b).collect()
    }
}

/// The positions of these keys, the smallest key first. `second_key` decides between equal keys.
fn positions_by_key(keys: &[f64], second_key: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..keys.len()).collect();
    positions.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]).then_with(|| second_key(*a).cmp(&second_key(*b))));
    positions
}

/// A time with a total order.
#[derive(Clone, Copy, PartialEq)]
struct OrderedSecs(f64);

impl Eq for OrderedSecs {}

impl PartialOrd for OrderedSecs {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedSecs {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// When each job ends on one machine that is as fast as all units together. It serves the job with the least
/// predicted work left.
fn virtual_ends(jobs: &[RigidJob], units: u32) -> Vec<f64> {
    let mut ends = vec![f64::INFINITY; jobs.len()];
    let mut left: BinaryHeap<Reverse<(OrderedSecs, usize)>> = BinaryHeap::new();
    let mut now = 0.0_f64;
    let mut next = 0;
    while next < jobs.len() || !left.is_empty() {
        if left.is_empty() {
            now = now.max(jobs[next].at);
        }
        while let Some(job) = jobs.get(next).filter(|j| j.at <= now) {
            let work = job.lengths.quantile_secs(0.5) * f64::from(job.size) / f64::from(units.max(1));
            left.push(Reverse((OrderedSecs(work), next)));
            next += 1;
        }
        let coming = jobs.get(next).map_or(f64::INFINITY, |j| j.at);
        let Some(Reverse((OrderedSecs(secs), job))) = left.pop() else { continue };
        if now + secs <= coming {
            now += secs;
            ends[job] = now;
        } else {
            left.push(Reverse((OrderedSecs(secs - (coming - now)), job)));
            now = coming;
        }
    }
    ends
}
