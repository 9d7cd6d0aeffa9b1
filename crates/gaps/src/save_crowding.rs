//! Jobs that leave nodes at about the same time save at the same time, and slow each other down. Each must
//! therefore leave earlier ([`infill_model::SaveContention`] has the formula).
//!
//! A job that holds nodes counts with the other holders whose saves may overlap with its own, and with the
//! jobs that save now. Free nodes are different: any job may still take one, or take a node over from another
//! job, so that many small jobs may leave instead of few large ones. For these nodes as many jobs count as
//! nodes must be left at about that time, the slowest ones first. No job therefore starts where all of them
//! together would be late.

use rustc_hash::FxHashMap;

use super::leave_times::{LeaveTimes, StopTime};
use infill_model::{Gap, JobId, NodeType, SaveContention, UnixTime};

/// A longer time to leave may overlap with further jobs. It is computed again at most this often.
const MAX_PASSES: usize = 16;

/// Sets by when each gap with a planned end must be left, depending on its holder. `saving`: jobs that save
/// now, because they have left nodes where a part of them still is.
pub fn set_leave_times(gaps: &mut [Gap], leave: &LeaveTimes, saving: &[JobId], now: UnixTime) {
    let crowding = SaveCrowding::from_gaps(gaps, leave, saving.len());
    let held = joint_stop_secs(gaps, leave, saving, now);
    let mut free: FxHashMap<UnixTime, Option<f64>> = FxHashMap::default();
    for gap in gaps {
        let Some(at) = gap.end.planned_moment() else { continue };
        let stop_secs = match gap.holder {
            Some(job) => held.get(&(at, job)).copied(),
            None => *free
                .entry(at)
                .or_insert_with(|| leave.stop_time(None).map(|stop| crowding.stop_secs(&stop, at))),
        };
        let by = at.plus_secs(-leave.secs_until_idle(stop_secs, &gap.node_type));
        gap.vacate_by = Some(by);
        gap.usable_until = by;
        gap.expected_secs = by.secs_since(now).max(0.0);
    }
}

/// How many jobs may save at the end of each window.
#[derive(Debug)]
pub struct SaveCrowding<'a> {
    leave: &'a LeaveTimes,
    /// Ends of windows, the earliest first, with the number of nodes whose windows end by then.
    ends: Vec<(UnixTime, usize)>,
    /// The stop times of all jobs, by each bound of [`LeaveTimes::contention`].
    all: [StopRanking; 2],
    /// The number of jobs that save now.
    saving: usize,
}

/// The stop times of all jobs alone, s, the slowest first.
#[derive(Debug)]
struct StopRanking {
    secs: Vec<f64>,
    /// Sums of the delays that they cause others at most: of none, of the first, of the first two, …
    loads: Vec<f64>,
}

impl StopRanking {
    fn from_stops(stops: impl Iterator<Item = f64>, contention: &SaveContention) -> Self {
        let mut secs: Vec<f64> = stops.collect();
        secs.sort_by(|a, b| b.total_cmp(a));
        let mut loads = vec![0.0];
        loads.extend(secs.iter().scan(0.0, |sum, secs| {
            *sum += contention.max_delay_secs(*secs);
            Some(*sum)
        }));
        StopRanking { secs, loads }
    }

    /// The most that `others` other jobs, the slowest ones, delay a job that takes `secs` alone, seconds. The
    /// times of `unknown` jobs are not in the ranking.
    fn max_load(&self, others: usize, unknown: usize, secs: f64, contention: &SaveContention) -> f64 {
        // The job itself is one of those that take at least `secs`.
        let first = self.secs.partition_point(|other| *other >= secs).max(1);
        let slower = others.min(first - 1 + unknown);
        let end = self.secs.len();
        let quicker = self.loads[(first + others - slower).min(end)] - self.loads[first.min(end)];
        slower as f64 * contention.max_delay_secs(secs) + quicker
    }
}

impl<'a> SaveCrowding<'a> {
    /// Counts the ends of these gaps' windows. `saving`: the number of jobs that save now.
    pub fn from_gaps(gaps: &[Gap], leave: &'a LeaveTimes, saving: usize) -> Self {
        let mut ends: Vec<UnixTime> = gaps.iter().filter_map(|gap| gap.end.planned_moment()).collect();
        ends.sort_unstable();
        let mut counted: Vec<(UnixTime, usize)> = Vec::new();
        for (at, count) in ends.into_iter().zip(1..) {
            match counted.last_mut().filter(|last| last.0 == at) {
                Some(last) => last.1 = count,
                None => counted.push((at, count)),
            }
        }
        let all = [0, 1].map(|i| {
            let stops = leave.stop_times.values().map(|stop| stop.alone_secs[i]);
            StopRanking::from_stops(stops, &leave.contention[i])
        });
        SaveCrowding { leave, ends: counted, all, saving }
    }

    /// Seconds before this end of a window at which the job must leave a node of this type, if it comes to
    /// hold one.
    pub fn leave_secs(&self, job: JobId, at: UnixTime, node_type: &NodeType) -> f64 {
        let stop_secs = self.leave.stop_time(Some(job)).map(|stop| self.stop_secs(&stop, at));
        self.leave.secs_until_idle(stop_secs, node_type)
    }

    /// Seconds in which a job saves and exits if it comes to hold a node whose window has this end.
    fn stop_secs(&self, stop: &StopTime, at: UnixTime) -> f64 {
        let secs = [0, 1].map(|i| {
            let alone = stop.alone_secs[i];
            let unknown = self.leave.unknown_jobs;
            let all = self.all[i].secs.len() + unknown;
            let mut secs = alone.min(stop.most_secs);
            for _ in 0..MAX_PASSES {
                let others = (self.nodes_within(secs, at) + self.saving).min(all).saturating_sub(1);
                let load = self.all[i].max_load(others, unknown, alone, &self.leave.contention[i]);
                let longer = (alone + load.min(self.leave.contention_secs)).min(stop.most_secs);
                if longer <= secs {
                    break;
                }
                secs = longer;
            }
            secs
        });
        secs[0].max(secs[1])
    }

    /// The number of nodes whose windows end within `secs` of this moment.
    fn nodes_within(&self, secs: f64, at: UnixTime) -> usize {
        let first = at.plus_secs(-secs);
        let last = at.plus_secs(secs);
        let until_last = self.ends.partition_point(|(end, _)| *end <= last);
        let before_first = self.ends.partition_point(|(end, _)| *end < first);
        self.nodes_of_ends(until_last) - self.nodes_of_ends(before_first)
    }

    /// The number of nodes of the first `count` ends.
    fn nodes_of_ends(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.ends[last].1)
    }
}

/// A job that leaves nodes at the end of their windows, by one of the two bounds.
#[derive(Clone, Copy, Debug)]
struct LeavingJob {
    at: UnixTime,
    job: JobId,
    alone_secs: f64,
    most_secs: f64,
    /// Seconds before `at` at which it begins, as far as computed.
    stop_secs: f64,
}

impl LeavingJob {
    /// A job with this stop time, by the bound with this index.
    fn new(at: UnixTime, job: JobId, stop: &StopTime, bound: usize) -> LeavingJob {
        let alone_secs = stop.alone_secs[bound];
        let most_secs = stop.most_secs;
        LeavingJob { at, job, alone_secs, most_secs, stop_secs: alone_secs.min(most_secs) }
    }
}

/// The seconds in which each job that holds nodes saves and exits, by the end of their windows.
fn joint_stop_secs(
    gaps: &[Gap],
    leave: &LeaveTimes,
    saving: &[JobId],
    now: UnixTime,
) -> FxHashMap<(UnixTime, JobId), f64> {
    let mut stop_secs_by_end: FxHashMap<(UnixTime, JobId), f64> = FxHashMap::default();
    let mut held: Vec<(UnixTime, JobId)> =
        gaps.iter().filter_map(|gap| Some((gap.end.planned_moment()?, gap.holder?))).collect();
    held.sort_unstable();
    held.dedup();
    for bound in [0, 1] {
        let mut leavers: Vec<LeavingJob> = Vec::new();
        for (at, job) in &held {
            let stop = leave.stop_time(Some(*job));
            leavers.extend(stop.map(|stop| LeavingJob::new(*at, *job, &stop, bound)));
        }
        for job in saving {
            if let Some(stop) = leave.stop_time(Some(*job)) {
                // A save that runs lasts at most this long where no other job delays it.
                let at = now.plus_secs(leave.notice_secs + stop.alone_secs[bound]);
                leavers.push(LeavingJob::new(at, *job, &stop, bound));
            }
        }
        leavers.sort_by_key(|l| (l.at, l.job));
        apply_contention(&mut leavers, &leave.contention[bound], leave.contention_secs);
        for l in leavers {
            let secs = stop_secs_by_end.entry((l.at, l.job)).or_insert(l.stop_secs);
            *secs = secs.max(l.stop_secs);
        }
    }
    stop_secs_by_end
}

/// Lets all jobs whose saves may overlap delay each other. `leavers` must be sorted by their ends.
fn apply_contention(leavers: &mut [LeavingJob], contention: &SaveContention, most_secs: f64) {
    if *contention == SaveContention::NONE {
        return;
    }
    for _ in 0..MAX_PASSES {
        let longest = leavers.iter().map(|l| l.stop_secs).fold(0.0, f64::max);
        let longer: Vec<f64> = leavers
            .iter()
            .map(|one| {
                let load = delay_secs(leavers, one, longest, contention);
                (one.alone_secs + load.min(most_secs)).min(one.most_secs)
            })
            .collect();
        let mut grown = false;
        for (leaver, secs) in leavers.iter_mut().zip(longer) {
            grown |= secs > leaver.stop_secs;
            leaver.stop_secs = leaver.stop_secs.max(secs);
        }
        if !grown {
            break;
        }
    }
}
/// The most that the other leavers delay one of them, seconds. `longest`: the longest stop time of all.
fn delay_secs(leavers: &[LeavingJob], one: &LeavingJob, longest: f64, contention: &SaveContention) -> f64 {
    let from = leavers.partition_point(|other| other.at < one.at.plus_secs(-one.stop_secs));
    let till = leavers.partition_point(|other| other.at <= one.at.plus_secs(longest));
    // A job that leaves for a later moment overlaps if it begins before this one ends.
    let others = leavers[from..till.max(from)]
        .iter()
        .filter(|other| other.job != one.job && other.at.plus_secs(-other.stop_secs) <= one.at);
    others.map(|other| contention.max_delay_secs(one.alone_secs.min(other.alone_secs))).sum()
}
#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{NodeName, WindowCause, WindowEnd};

    const NOW: UnixTime = UnixTime(1000);

    /// Gaps whose windows end after these seconds, with their holders; 0 for none.
    fn gaps(held: &[(i64, u32)]) -> Vec<Gap> {
        let gaps = held.iter().enumerate().map(|(n, (secs, holder))| Gap {
            node: NodeName::new(format!("n{n}")),
            node_type: NodeType::new("a"),
            since: NOW,
            end: WindowEnd::Known { at: NOW + *secs, cause: WindowCause::PlannedJob(JobId(99)) },
            vacate_by: None,
            usable_until: NOW,
            expected_secs: 0.0,
            holder: Some(JobId(*holder)).filter(|job| job.0 > 0),
            share: None,
        });
        gaps.collect()
    }

    /// Jobs 1, 2, … that save in these times alone, where saves share one pipe.
    fn one_pipe(alone: &[f64]) -> LeaveTimes {
        let stops = (1..).map(JobId).zip(alone.iter().map(|secs| StopTime::from_secs(*secs))).collect();
        let contention = [SaveContention::new([1.0; 3]); 2];
        LeaveTimes { contention, contention_secs: 600.0, ..LeaveTimes::default() }.with_stops(stops)
    }

    /// Seconds before the end at which each gap must be left, less the clean-up.
    fn secs_before_end(held: &[(i64, u32)], leave: &LeaveTimes, saving: &[u32]) -> Vec<f64> {
        let mut gaps = gaps(held);
        let saving: Vec<JobId> = saving.iter().copied().map(JobId).collect();
        set_leave_times(&mut gaps, leave, &saving, NOW);
        gaps.iter()
            .map(|gap| gap.end.planned_moment().unwrap().secs_since(gap.vacate_by.unwrap()) - 3.0)
            .collect()
    }

    #[test]
    fn jobs_that_leave_for_one_start_take_as_long_as_all_of_them_in_a_row() {
        let leave = one_pipe(&[10.0; 20]);
        let held: Vec<(i64, u32)> = (1..=20).map(|job| (900, job)).collect();
        assert_eq!(secs_before_end(&held, &leave, &[]), [200.0; 20]);
        assert_eq!(
            secs_before_end(&[(900, 1), (900, 1), (900, 2)], &leave, &[]),
            [20.0; 3],
            "a job saves once"
        );
        let alone = LeaveTimes { contention_secs: 0.0, ..leave.clone() };
        assert_eq!(secs_before_end(&held, &alone, &[]), [10.0; 20]);
        let bounded = LeaveTimes { contention_secs: 50.0, ..leave };
        assert_eq!(secs_before_end(&held, &bounded, &[]), [60.0; 20]);
    }

    #[test]
    fn the_quicker_of_two_delays_the_slower_by_no_more_than_its_own_time() {
        let leave = one_pipe(&[10.0, 100.0]);
        assert_eq!(secs_before_end(&[(900, 1), (900, 2)], &leave, &[]), [20.0, 110.0]);
        let half = LeaveTimes { contention: [SaveContention::NONE, SaveContention::new([0.5; 3])], ..leave };
        assert_eq!(secs_before_end(&[(900, 1), (900, 2)], &half, &[]), [15.0, 105.0]);
    }

    #[test]
    fn saves_that_do_not_overlap_do_not_count() {
        let leave = one_pipe(&[10.0; 3]);
        assert_eq!(secs_before_end(&[(900, 1), (930, 2), (960, 3)], &leave, &[]), [10.0; 3]);
        assert_eq!(secs_before_end(&[(900, 1), (910, 2), (921, 3)], &leave, &[]), [20.0, 20.0, 10.0]);
        // The third overlaps with the second, so that it begins early enough to overlap with the first.
        assert_eq!(secs_before_end(&[(900, 1), (910, 2), (920, 3)], &leave, &[]), [30.0; 3]);
    }

    #[test]
    fn no_job_takes_longer_than_until_it_is_killed() {
        let mut stops: FxHashMap<JobId, StopTime> =
            (1..=20).map(|j| (JobId(j), StopTime::from_secs(10.0))).collect();
        stops.insert(JobId(1), StopTime { most_secs: 60.0, ..StopTime::from_secs(10.0) });
        let leave = one_pipe(&[]).with_stops(stops);
        let held: Vec<(i64, u32)> = (1..=20).map(|job| (900, job)).collect();
        assert_eq!(secs_before_end(&held, &leave, &[])[..2], [60.0, 200.0]);
    }

    #[test]
    fn a_time_measured_in_a_crowd_is_not_counted_twice() {
        // 200 s beside 19 others: either saves do not slow each other down, or each takes 10 s alone.
        let stop = StopTime { alone_secs: [200.0, 10.0], most_secs: f64::INFINITY };
        let leave = LeaveTimes {
            contention: [SaveContention::NONE, SaveContention::new([1.0; 3])],
            contention_secs: 600.0,
            ..LeaveTimes::default()
        };
        let leave = leave.with_stops((1..=20).map(|j| (JobId(j), stop)).collect());
        let held: Vec<(i64, u32)> = (1..=20).map(|job| (900, job)).collect();
        assert_eq!(secs_before_end(&held, &leave, &[]), [200.0; 20]);
    }

    #[test]
    fn on_free_nodes_as_many_jobs_count_as_may_come() {
        let leave = one_pipe(&[10.0, 30.0, 40.0]);
        assert_eq!(secs_before_end(&[(900, 0)], &leave, &[]), [10.0], "one node, one job");
        assert_eq!(secs_before_end(&[(900, 0), (900, 0)], &leave, &[]), [20.0; 2]);
        assert_eq!(secs_before_end(&[(900, 0); 9], &leave, &[]), [30.0; 9], "there are three jobs");
        let nine = gaps(&[(900, 0); 9]);
        let crowding = SaveCrowding::from_gaps(&nine, &leave, 0);
        let secs = |job| crowding.leave_secs(JobId(job), NOW + 900, &NodeType::new("a")) - 3.0;
        assert_eq!([1, 2, 3].map(secs), [30.0, 30.0 + 10.0 + 30.0, 40.0 + 30.0 + 10.0]);
        assert_eq!(crowding.leave_secs(JobId(9), NOW + 900, &NodeType::new("a")), 0.0, "its time is unknown");
        let more = LeaveTimes { unknown_jobs: 2, ..leave };
        assert_eq!(secs_before_end(&[(900, 0); 4], &more, &[]), [40.0; 4], "or five, but on four nodes");
        let crowding = SaveCrowding::from_gaps(&nine, &more, 0);
        assert_eq!(
            crowding.leave_secs(JobId(3), NOW + 900, &NodeType::new("a")) - 3.0,
            40.0 + 2.0 * 40.0 + 30.0 + 10.0
        );
    }

    #[test]
    fn a_job_that_saves_now_delays_one_that_is_about_to() {
        let leave = one_pipe(&[10.0, 30.0]);
        assert_eq!(secs_before_end(&[(35, 1)], &leave, &[2]), [20.0]);
        assert_eq!(secs_before_end(&[(900, 1)], &leave, &[2]), [10.0], "the save is over by then");
    }
}
