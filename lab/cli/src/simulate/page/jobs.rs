//! Compares the jobs of several policies.

use std::collections::BTreeMap;

use infill_present::output;
use infill_sim::PolicyScore;

/// Most jobs that are shown one by one.
const MAX_SHOWN_JOBS: usize = 50;

/// The results of the jobs under one policy.
pub(crate) struct PolicyJobs {
    /// The policy.
    pub name: String,
    /// Samples and node-hours of each job.
    pub jobs: Vec<(f64, f64)>,
    /// Samples and node-hours of all others.
    pub rest: (f64, f64),
}

/// The jobs that made most samples, and their results under each policy. Jobs with one name count as one.
pub(crate) struct JobComparison {
    /// The names, sorted by samples under the shown policy, most first.
    pub names: Vec<String>,
    /// Number of names that are left out.
    pub more: usize,
    /// The results under each policy.
    pub policies: Vec<PolicyJobs>,
}

impl JobComparison {
    /// The jobs of all outcomes, sorted by their samples under `shown`. Jobs that it does not have come last.
    pub fn from_outcomes(outcomes: &[&PolicyScore], shown: &PolicyScore) -> JobComparison {
        let mut all: BTreeMap<&str, f64> = BTreeMap::new();
        let every = outcomes.iter().flat_map(|o| &o.jobs).map(|j| (j.name.as_str(), 0.0));
        for (name, samples) in every.chain(shown.jobs.iter().map(|j| (j.name.as_str(), j.samples))) {
            *all.entry(name).or_insert(0.0) += samples;
        }
        let mut ranked: Vec<(&str, f64)> = all.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        let more = ranked.len().saturating_sub(MAX_SHOWN_JOBS);
        ranked.truncate(MAX_SHOWN_JOBS);
        let places: BTreeMap<&str, usize> =
            ranked.iter().enumerate().map(|(i, (name, _))| (*name, i)).collect();
        let policies = outcomes.iter().map(|outcome| PolicyJobs::from_outcome(outcome, &places)).collect();
        JobComparison { names: ranked.into_iter().map(|(name, _)| name.to_owned()).collect(), more, policies }
    }

    /// A sentence with the sums of the jobs that are left out; empty if there are none.
    pub(crate) fn rest_words(&self, of: fn((f64, f64)) -> f64, unit: &str) -> String {
        if self.more == 0 {
            return String::new();
        }
        let sums: Vec<String> = self
            .policies
            .iter()
            .map(|p| format!("{} under {}", output::format_number(of(p.rest)), p.name))
            .collect();
        format!("Not shown are {} more jobs; {unit} of theirs in all: {}.", self.more, sums.join(", "))
    }
}

impl PolicyJobs {
    fn from_outcome(outcome: &PolicyScore, places: &BTreeMap<&str, usize>) -> PolicyJobs {
        let mut found = PolicyJobs {
            name: outcome.policy.clone(),
            jobs: vec![(0.0, 0.0); places.len()],
            rest: (0.0, 0.0),
        };
        for job in &outcome.jobs {
            let place = places.get(job.name.as_str()).and_then(|place| found.jobs.get_mut(*place));
            let sum = place.unwrap_or(&mut found.rest);
            sum.0 += job.samples;
            sum.1 += job.node_secs / 3600.0;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::tests::job;
    use infill_sim::JobScore;

    fn outcome(policy: &str, jobs: impl IntoIterator<Item = (String, f64)>) -> PolicyScore {
        let jobs =
            jobs.into_iter().map(|(name, samples)| JobScore { name, samples, ..job("", 3600.0) }).collect();
        PolicyScore { policy: policy.to_owned(), jobs, ..PolicyScore::default() }
    }

    #[test]
    fn policies_are_compared_job_by_job() {
        let named =
            |jobs: &[(&str, f64)]| jobs.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect::<Vec<_>>();
        let a = outcome("a", named(&[("x", 1.0), ("y", 3.0), ("x", 1.5)]));
        let b = outcome("b", named(&[("y", 7.0), ("z", 9.0)]));
        let jobs = JobComparison::from_outcomes(&[&a, &b], &a);
        assert_eq!(jobs.names, ["y", "x", "z"]);
        assert_eq!(jobs.policies[0].jobs, [(3.0, 1.0), (2.5, 2.0), (0.0, 0.0)]);
        assert_eq!(jobs.policies[1].jobs, [(7.0, 1.0), (0.0, 0.0), (9.0, 1.0)]);
        assert_eq!((jobs.more, jobs.rest_words(|j| j.0, "samples").as_str()), (0, ""));
    }

    #[test]
    fn many_jobs_are_summed() {
        let a = outcome("a", (0..60).map(|i| (format!("j{i:02}"), f64::from(100 - i))));
        let jobs = JobComparison::from_outcomes(&[&a], &a);
        assert_eq!((jobs.names.len(), jobs.more), (MAX_SHOWN_JOBS, 10));
        assert_eq!(jobs.policies[0].rest, ((41..=50).sum::<i32>().into(), 10.0));
        let words = jobs.rest_words(|j| j.0, "samples");
        assert_eq!(words, "Not shown are 10 more jobs; samples of theirs in all: 455 under a.");
    }
}
