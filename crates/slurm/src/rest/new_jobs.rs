//! Detects jobs that were submitted since the last look at Slurm, from slurmctld's count of submissions and
//! from the consecutive ids that it assigns.

use super::raw_reading::SchedulerDiag;
use infill_model::{JobId, UnixTime};

/// Most new jobs that are read one by one. Agents commonly submit up to this number of wings at a time.
const MAX_CHECKED_JOBS: u32 = 4;

/// slurmctld's counters at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SubmissionWatermark {
    counting_since: Option<UnixTime>,
    submitted: Option<i64>,
    /// The highest job id that was ever seen.
    last_job: Option<JobId>,
}

/// The jobs that were submitted since the last look.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NewJobs {
    /// No job.
    None,
    /// `count` jobs, whose ids follow `after`. Agents may have submitted them.
    Jobs { after: JobId, count: u32 },
    /// More than [`MAX_CHECKED_JOBS`], or an unknown number.
    ManyOrUnknown,
}

impl SubmissionWatermark {
    /// Records a look that began with these diagnostics and showed jobs up to `last`. A job that was
    /// submitted during the look counts as news even if the look shows it: which jobs it saw is unknown.
    pub fn record_look(&mut self, diag_before: &SchedulerDiag, last: Option<JobId>) {
        let last_job = self.last_job.max(last);
        *self = SubmissionWatermark {
            counting_since: diag_before.counting_since,
            submitted: diag_before.submitted,
            last_job,
        };
    }

    /// The jobs that were submitted between the last look and these diagnostics. A Slurm that does not count
    /// submissions always gives [`NewJobs::None`].
    pub fn new_jobs(&self, diag: &SchedulerDiag) -> NewJobs {
        let Some(submitted_before) = self.submitted else { return NewJobs::None };
        let Some(submitted_now) = diag.submitted else { return NewJobs::None };
        if self.counting_since != diag.counting_since {
            return NewJobs::ManyOrUnknown;
        }
        let count = submitted_now.checked_sub(submitted_before).and_then(|n| u32::try_from(n).ok());
        match count {
            Some(0) => NewJobs::None,
            Some(count @ 1..=MAX_CHECKED_JOBS) => {
                NewJobs::Jobs { after: self.last_job.unwrap_or(JobId(0)), count }
            }
            _ => NewJobs::ManyOrUnknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diag(since: i64, submitted: i64) -> SchedulerDiag {
        let mut diag = SchedulerDiag::default();
        diag.counting_since = Some(UnixTime(since));
        diag.submitted = Some(submitted);
        diag
    }

    #[test]
    fn new_jobs_are_counted_since_the_last_look() {
        let mut seen = SubmissionWatermark::default();
        assert_eq!(seen.new_jobs(&diag(1, 7)), NewJobs::None, "there was no look");
        seen.record_look(&diag(1, 7), Some(JobId(40)));
        assert_eq!(seen.new_jobs(&diag(1, 7)), NewJobs::None);
        assert_eq!(seen.new_jobs(&diag(1, 9)), NewJobs::Jobs { after: JobId(40), count: 2 });
        assert_eq!(seen.new_jobs(&diag(1, 12)), NewJobs::ManyOrUnknown);
        assert_eq!(seen.new_jobs(&diag(1, 6)), NewJobs::ManyOrUnknown, "a count never shrinks");
        assert_eq!(seen.new_jobs(&diag(2, 0)), NewJobs::ManyOrUnknown, "slurmctld has restarted its count");
        assert_eq!(seen.new_jobs(&SchedulerDiag::default()), NewJobs::None, "it does not count");
        // Slurm may have forgotten the newest job by now.
        seen.record_look(&diag(1, 9), Some(JobId(39)));
        assert_eq!(seen.new_jobs(&diag(1, 10)), NewJobs::Jobs { after: JobId(40), count: 1 });
    }
}
