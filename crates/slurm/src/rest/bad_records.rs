//! Jobs with fields that cannot be read: which of the fields matter, and which value replaces them.

use std::collections::BTreeMap;

use super::record::BadRecord;
use super::record_list::RecordList;
use infill_model::{Job, JobId};

/// The jobs of the malleable partition as they were last read. A job that can no longer be read keeps these
/// facts: a malleable job must not end because one of its fields is odd.
#[derive(Debug, Default)]
pub(super) struct MalleableJobs {
    partition: String,
    last_read: BTreeMap<JobId, Job>,
}

/// How a job with unreadable fields is treated.
enum BadRecordOutcome {
    /// It counts as this job.
    Counts(Box<Job>),
    /// It is left out: the missing fields make no difference.
    Passes,
    /// What it wants is unknown, so the reading is doubtful.
    Doubtful,
}

impl MalleableJobs {
    /// No jobs yet. `partition` is the malleable partition.
    pub(super) fn for_partition(partition: &str) -> Self {
        MalleableJobs { partition: partition.to_owned(), last_read: BTreeMap::new() }
    }

    /// Decides for each bad record whether it counts, and remembers the malleable jobs for the next reading.
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
        self.last_read = ours.map(|j| (j.id, j.clone())).collect();
        SettledJobs { jobs, doubtful, passed }
    }

    fn decide_outcome(&self, bad: &BadRecord<Job>) -> BadRecordOutcome {
        let Some(rest) = &bad.rest else { return BadRecordOutcome::Doubtful };
        if !bad.lacks_field("job_state") && rest.state.is_ended() {
            return BadRecordOutcome::Passes;
        }
        match self.last_read.get(&rest.id) {
            Some(last) if bad.lacks_field("partition") || rest.partition == self.partition => {
                BadRecordOutcome::Counts(Box::new(merge_readable(last, bad, rest)))
            }
            None if rest.partition == self.partition => BadRecordOutcome::Doubtful,
            _ if may_hide_plan(bad, rest) => BadRecordOutcome::Doubtful,
            _ => BadRecordOutcome::Counts(Box::new(rest.clone())),
        }
    }
}

/// The job as it was last read, with its present state and nodes where those can be read.
fn merge_readable(last: &Job, bad: &BadRecord<Job>, rest: &Job) -> Job {
    let mut job = last.clone();
    if !bad.lacks_field("job_state") {
        job.state = rest.state.clone();
    }
    if !bad.lacks_field("nodes") {
        job.nodes.clone_from(&rest.nodes);
    }
    job
}

/// Whether a main job may want nodes that its record does not show. The nodes on which it runs show that
/// they are not idle.
fn may_hide_plan(bad: &BadRecord<Job>, rest: &Job) -> bool {
    let waits = rest.state.is_pending() && !rest.held;
    bad.lacks_field("job_state")
        || (waits && (bad.lacks_field("start_time") || bad.lacks_field("scheduled_nodes")))
}

/// The jobs of a reading, after a decision on each bad record.
#[derive(Debug)]
pub(super) struct SettledJobs {
    /// The jobs that count, sorted by id. A job without a readable id has 0.
    pub jobs: Vec<Job>,
    /// Descriptions of the bad records that make the reading doubtful.
    pub doubtful: Vec<String>,
    /// Descriptions of the bad records that do not matter.
    pub passed: Vec<String>,
}
