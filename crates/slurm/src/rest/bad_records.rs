//! Jobs of which something cannot be read: what of them is needed, and what stands in for it.

use std::collections::BTreeMap;

use super::record::BadRecord;
use super::record_list::RecordList;
use infill_model::{Job, JobId};

/// The jobs of the malleable partition as they were last read. One that can no longer be read keeps these
/// facts: a job of ours must not end because a field of it is odd.
#[derive(Debug, Default)]
pub(super) struct MalleableJobs {
    partition: String,
    known: BTreeMap<JobId, Job>,
}

/// What becomes of a job of which something cannot be read.
enum BadRecordOutcome {
    /// It counts as this.
    Counts(Box<Job>),
    /// What is missing makes no difference.
    Passes,
    /// Nobody knows what it wants.
    Doubtful,
}

impl MalleableJobs {
    /// Jobs of this partition are ours.
    pub(super) fn for_partition(partition: &str) -> Self {
        MalleableJobs { partition: partition.to_owned(), known: BTreeMap::new() }
    }

    /// All jobs that count, sorted by id; and of the bad ones those that make the reading doubtful, and those
    /// that do not.
    pub(super) fn settle_jobs(&mut self, listed: RecordList<Job>) -> SettledJobs {
        let RecordList { records: mut jobs, bad, .. } = listed;
        let mut doubtful = Vec::new();
        let mut passed = Vec::new();
        for bad in bad {
            match self.decide_outcome(&bad) {
                BadRecordOutcome::Counts(job) => {
                    jobs.push(*job);
                    passed.push(bad.to_string());
                }
                BadRecordOutcome::Passes => passed.push(bad.to_string()),
                BadRecordOutcome::Doubtful => doubtful.push(bad.to_string()),
            }
        }
        jobs.sort_by_key(|j| j.id);
        let ours = jobs.iter().filter(|j| j.partition == self.partition && !j.state.is_ended());
        self.known = ours.map(|j| (j.id, j.clone())).collect();
        SettledJobs { jobs, doubtful, passed }
    }

    fn decide_outcome(&self, bad: &BadRecord<Job>) -> BadRecordOutcome {
        let Some(rest) = &bad.rest else { return BadRecordOutcome::Doubtful };
        if !bad.lacks_field("job_state") && rest.state.is_ended() {
            return BadRecordOutcome::Passes;
        }
        match self.known.get(&rest.id) {
            Some(known) if bad.lacks_field("partition") || rest.partition == self.partition => {
                BadRecordOutcome::Counts(Box::new(merge_readable(known, bad, rest)))
            }
            None if rest.partition == self.partition => BadRecordOutcome::Doubtful,
            _ if may_hide_plan(bad, rest) => BadRecordOutcome::Doubtful,
            _ => BadRecordOutcome::Counts(Box::new(rest.clone())),
        }
    }
}

/// What was known of a job, and where it is now if that can be read.
fn merge_readable(known: &Job, bad: &BadRecord<Job>, rest: &Job) -> Job {
    let mut job = known.clone();
    if !bad.lacks_field("job_state") {
        job.state = rest.state.clone();
    }
    if !bad.lacks_field("nodes") {
        job.nodes.clone_from(&rest.nodes);
    }
    job
}

/// Whether a job of the main queue may want nodes of which we do not know. Where it runs its nodes say
/// themselves that they are not idle.
fn may_hide_plan(bad: &BadRecord<Job>, rest: &Job) -> bool {
    let waits = rest.state.is_pending() && !rest.held;
    bad.lacks_field("job_state")
        || (waits && (bad.lacks_field("start_time") || bad.lacks_field("scheduled_nodes")))
}

/// The jobs of a reading.
#[derive(Debug)]
pub(super) struct SettledJobs {
    /// Those that count, sorted by id. A job without a readable id has 0.
    pub jobs: Vec<Job>,
    /// Bad records that make the reading doubtful.
    pub doubtful: Vec<String>,
    /// Bad records that do not.
    pub passed: Vec<String>,
}
