//! Jobs of which something cannot be read: what of them is needed, and what stands in for it.

use std::collections::BTreeMap;

use super::listing::Listed;
use super::record::BadRecord;
use infill_model::{Job, JobId};

/// The jobs of the malleable partition as they were last read. One that can no longer be read keeps these
/// facts: a job of ours must not end because a field of it is odd.
#[derive(Debug, Default)]
pub(super) struct Ours {
    partition: String,
    known: BTreeMap<JobId, Job>,
}

/// What becomes of a job of which something cannot be read.
enum Fate {
    /// It counts as this.
    Counts(Box<Job>),
    /// What is missing makes no difference.
    Passes,
    /// Nobody knows what it wants.
    Doubtful,
}

impl Ours {
    /// Jobs of this partition are ours.
    pub(super) fn of(partition: &str) -> Self {
        Ours { partition: partition.to_owned(), known: BTreeMap::new() }
    }

    /// All jobs that count, sorted by id; and of the bad ones those that make the reading doubtful, and those
    /// that do not.
    pub(super) fn settle(&mut self, listed: Listed<Job>) -> Settled {
        let Listed { records: mut jobs, bad, .. } = listed;
        let (mut doubtful, mut passed) = (Vec::new(), Vec::new());
        for bad in bad {
            match self.fate(&bad) {
                Fate::Counts(job) => {
                    jobs.push(*job);
                    passed.push(bad.to_string());
                }
                Fate::Passes => passed.push(bad.to_string()),
                Fate::Doubtful => doubtful.push(bad.to_string()),
            }
        }
        jobs.sort_by_key(|j| j.id);
        let ours = jobs.iter().filter(|j| j.partition == self.partition && !j.state.is_ended());
        self.known = ours.map(|j| (j.id, j.clone())).collect();
        Settled { jobs, doubtful, passed }
    }

    fn fate(&self, bad: &BadRecord<Job>) -> Fate {
        let Some(rest) = &bad.rest else { return Fate::Doubtful };
        if !bad.lacks("job_state") && rest.state.is_ended() {
            return Fate::Passes;
        }
        match self.known.get(&rest.id) {
            Some(known) if bad.lacks("partition") || rest.partition == self.partition => {
                Fate::Counts(Box::new(as_far_as_read(known, bad, rest)))
            }
            None if rest.partition == self.partition => Fate::Doubtful,
            _ if hides_its_plans(bad, rest) => Fate::Doubtful,
            _ => Fate::Counts(Box::new(rest.clone())),
        }
    }
}

/// What was known of a job, and where it is now if that can be read.
fn as_far_as_read(known: &Job, bad: &BadRecord<Job>, rest: &Job) -> Job {
    let mut job = known.clone();
    if !bad.lacks("job_state") {
        job.state = rest.state.clone();
    }
    if !bad.lacks("nodes") {
        job.nodes.clone_from(&rest.nodes);
    }
    job
}

/// Whether a job of the main queue may want nodes of which we do not know. Where it runs its nodes say
/// themselves that they are not idle.
fn hides_its_plans(bad: &BadRecord<Job>, rest: &Job) -> bool {
    let waits = rest.state.is_pending() && !rest.held;
    bad.lacks("job_state") || (waits && (bad.lacks("start_time") || bad.lacks("scheduled_nodes")))
}

/// The jobs of a reading.
#[derive(Debug)]
pub(super) struct Settled {
    /// Those that count, sorted by id. A job without a readable id has 0.
    pub jobs: Vec<Job>,
    /// Bad records that make the reading doubtful.
    pub doubtful: Vec<String>,
    /// Bad records that do not.
    pub passed: Vec<String>,
}
