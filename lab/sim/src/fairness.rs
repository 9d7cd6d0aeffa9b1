//! Measures how evenly a policy divides nodes among jobs and users, and how long jobs wait for their first
//! node.

use std::collections::BTreeMap;

use serde::Serialize;

use super::score::{JobScore, PolicyScore};

/// How fair a policy was.
///
/// The indices are Jain's: for shares x, (sum x)^2 / (n sum x^2). This is 1 if all n shares are equal, and
/// 1/n if one has everything (R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and
/// Discrimination for Resource Allocation in Shared Computer Systems, DEC-TR-301, 1984). A share is
/// node-seconds divided by seconds in the queue: the average number of nodes held in that time. So a job that
/// came later or ended earlier than others does not count as having had less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FairnessScore {
    /// Jain's index over jobs; `None` where none held a node.
    pub jain_jobs: Option<f64>,
    /// Jain's index over users. A user's jobs count as one job, which is in the queue while any of them is.
    /// All jobs without a user count as one user's. `None` if no job has a user, or if none held a node.
    pub jain_users: Option<f64>,
    /// Seconds of the longest wait from a job's submission to its first node. A job that never had a node
    /// counts with the time that it waited. `None` if there were no jobs.
    pub longest_first_wait_secs: Option<f64>,
    /// Seconds of the median wait (nearest rank), counted in the same way.
    pub median_first_wait_secs: Option<f64>,
    /// Jobs that never had a node.
    pub never_started: usize,
}

impl PolicyScore {
    /// The fairness of the policy to jobs and to users.
    pub fn fairness(&self) -> FairnessScore {
        let jobs = &self.jobs;
        let mut waits: Vec<f64> = jobs.iter().map(|j| j.first_wait_secs.unwrap_or(j.waited_secs)).collect();
        waits.sort_by(f64::total_cmp);
        let half = waits.len().div_ceil(2);
        let names_users = jobs.iter().any(|job| job.user.is_some());
        FairnessScore {
            jain_jobs: jain_index(
                jobs.iter().filter_map(|job| average_nodes(job.node_secs, job.present_secs)),
            ),
            jain_users: if names_users { jain_index(shares_of_users(jobs)) } else { None },
            longest_first_wait_secs: waits.last().copied(),
            median_first_wait_secs: half.checked_sub(1).and_then(|at| waits.get(at)).copied(),
            never_started: jobs.iter().filter(|job| job.first_wait_secs.is_none()).count(),
        }
    }
}

/// Jain's index of these shares, which must not be negative; `None` if there are none, or if all are 0.
fn jain_index(shares: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut count = 0.0;
    let mut sum = 0.0;
    let mut squares = 0.0;
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    // Rounding must not give an index above 1.
    (squares > 0.0).then(|| (sum * sum / (count * squares)).min(1.0))
}

/// Average number of nodes held over the time in the queue; `None` if that time is 0.
fn average_nodes(node_secs: f64, present_secs: f64) -> Option<f64> {
    (present_secs > 0.0).then(|| node_secs / present_secs)
}

fn shares_of_users(jobs: &[JobScore]) -> Vec<f64> {
    let mut users: BTreeMap<Option<&str>, Vec<&JobScore>> = BTreeMap::new();
    for job in jobs {
        users.entry(job.user.as_deref()).or_default().push(job);
    }
    users
        .into_values()
        .filter_map(|jobs| {
            let stays = jobs.iter().map(|j| (j.submitted_at as f64, j.submitted_at as f64 + j.present_secs));
            average_nodes(jobs.iter().map(|j| j.node_secs).sum(), covered_secs(stays.collect()))
        })
        .collect()
}

/// Seconds that lie in at least one of these stretches, each from and to a moment.
fn covered_secs(mut stretches: Vec<(f64, f64)>) -> f64 {
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut secs = 0.0;
    let mut until = f64::NEG_INFINITY;
    for (from, to) in stretches {
        secs += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    secs
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    /// A job of this user with these times of submission and end, average number of nodes, and first wait.
    fn job(user: Option<&str>, (from, to): (i64, i64), nodes: f64, first_wait_secs: Option<f64>) -> JobScore {
        let present_secs = (to - from) as f64;
        JobScore {
            id: JobId(1),
            name: "x".to_owned(),
            user: user.map(str::to_owned),
            samples: 0.0,
            work: 0.0,
            submitted_at: from,
            ended_at: None,
            rescales: 0,
            present_secs,
            node_secs: nodes * present_secs,
            turns: 1,
            first_wait_secs,
            longest_wait_secs: present_secs,
            waited_secs: first_wait_secs.unwrap_or(present_secs),
            changing_secs: 0.0,
        }
    }

    fn of(jobs: &[JobScore]) -> FairnessScore {
        PolicyScore { jobs: jobs.to_vec(), ..PolicyScore::default() }.fairness()
    }

    #[test]
    fn jains_index_is_1_for_equal_shares_and_1_in_n_for_one_that_has_all() {
        assert_eq!(jain_index([2.5; 7]), Some(1.0));
        let rounded = (1..100).filter_map(|n| jain_index(vec![0.1; n]));
        assert!(rounded.into_iter().all(|index| index <= 1.0 && index > 1.0 - 1e-12));
        assert_eq!(jain_index([0.0, 3.0, 0.0, 0.0]), Some(0.25));
        // (1 + 3)^2 / (2 (1 + 9))
        assert_eq!(jain_index([1.0, 3.0]), Some(0.8));
        assert_eq!((jain_index([]), jain_index([0.0, 0.0])), (None, None));
    }

    #[test]
    fn a_later_job_has_a_share_of_its_own_time() {
        let jobs = [job(None, (0, 1000), 2.0, Some(0.0)), job(None, (900, 1000), 2.0, Some(0.0))];
        assert_eq!(of(&jobs).jain_jobs, Some(1.0));
        let jobs = [job(None, (0, 1000), 1.0, Some(0.0)), job(None, (900, 1000), 3.0, Some(0.0))];
        assert_eq!((of(&jobs).jain_jobs, of(&jobs).jain_users), (Some(0.8), None));
    }

    #[test]
    fn the_jobs_of_a_user_count_as_one() {
        // Alice's are there from 0 to 300 and from 700 to 1000 and have 600 node-seconds: one node on
        // average. Bob has three.
        let jobs = [
            job(Some("alice"), (0, 200), 1.0, Some(0.0)),
            job(Some("alice"), (100, 300), 1.0, Some(0.0)),
            job(Some("alice"), (700, 1000), 2.0 / 3.0, Some(0.0)),
            job(Some("bob"), (0, 1000), 3.0, Some(0.0)),
        ];
        assert_eq!(of(&jobs).jain_users, Some(0.8));
        // All jobs without a user count as one more user's.
        let without_user = job(None, (0, 1000), 0.0, None);
        let jobs: Vec<JobScore> = jobs.into_iter().chain([without_user.clone(), without_user]).collect();
        assert_eq!(of(&jobs).jain_users, Some(16.0 / 30.0));
    }

    #[test]
    fn first_waits_count_jobs_that_never_start() {
        let waits = |waits: &[Option<f64>]| {
            let jobs: Vec<JobScore> = waits.iter().map(|w| job(None, (0, 100), 1.0, *w)).collect();
            let of = of(&jobs);
            (of.longest_first_wait_secs, of.median_first_wait_secs, of.never_started)
        };
        assert_eq!(waits(&[Some(9.0), Some(1.0), Some(4.0)]), (Some(9.0), Some(4.0), 0));
        assert_eq!(waits(&[Some(9.0), Some(1.0), Some(4.0), None]), (Some(100.0), Some(4.0), 1));
        assert_eq!(waits(&[None]), (Some(100.0), Some(100.0), 1));
    }

    #[test]
    fn without_jobs_there_are_no_figures() {
        assert_eq!(of(&[]), FairnessScore::default());
    }
}
