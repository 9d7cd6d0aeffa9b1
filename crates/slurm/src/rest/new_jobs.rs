//! Whether somebody has submitted a job since Slurm was looked at: by slurmctld's count of submissions, and
//! the numbers that it gives to jobs one after the other.

use super::raw_reading::SchedulerDiag;
use infill_model::{JobId, UnixTime};

/// Most new jobs that are looked at one by one. So many wings may well come at a time.
const MAX_CHECKED_JOBS: u32 = 4;

/// What slurmctld had counted when it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SubmissionWatermark {
    counting_since: Option<UnixTime>,
    submitted: Option<i64>,
    /// The highest number of a job that was ever seen.
    last_job: Option<JobId>,
}

/// What has come since.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NewJobs {
    /// Nothing.
    None,
    /// So many, with the numbers after this one: agents may have submitted them.
    Jobs { after: JobId, come: u32 },
    /// More than can be looked at, or nobody can tell.
    Much,
}

impl SubmissionWatermark {
    /// After a look that began with this pulse and told of jobs up to `last`. What came during it may be told
    /// of, and counts as news all the same: nobody knows which of them the look saw.
    pub fn record_look(&mut self, began: &SchedulerDiag, last: Option<JobId>) {
        let last_job = self.last_job.max(last);
        *self = SubmissionWatermark {
            counting_since: began.counting_since,
            submitted: began.submitted,
            last_job,
        };
    }

    /// What this pulse tells. Slurms that do not count submissions tell of none.
    pub fn new_jobs(&self, pulse: &SchedulerDiag) -> NewJobs {
        let (Some(then), Some(now)) = (self.submitted, pulse.submitted) else { return NewJobs::None };
        let come = now.checked_sub(then).and_then(|n| u32::try_from(n).ok());
        match come {
            _ if self.counting_since != pulse.counting_since => NewJobs::Much,
            Some(0) => NewJobs::None,
            Some(come @ 1..=MAX_CHECKED_JOBS) => {
                NewJobs::Jobs { after: self.last_job.unwrap_or(JobId(0)), come }
            }
            _ => NewJobs::Much,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(since: i64, submitted: i64) -> SchedulerDiag {
        let mut pulse = SchedulerDiag::default();
        (pulse.counting_since, pulse.submitted) = (Some(UnixTime(since)), Some(submitted));
        pulse
    }

    #[test]
    fn tells_what_has_come_since_the_look() {
        let mut seen = SubmissionWatermark::default();
        assert_eq!(seen.new_jobs(&pulse(1, 7)), NewJobs::None, "there was no look");
        seen.record_look(&pulse(1, 7), Some(JobId(40)));
        assert_eq!(seen.new_jobs(&pulse(1, 7)), NewJobs::None);
        assert_eq!(seen.new_jobs(&pulse(1, 9)), NewJobs::Jobs { after: JobId(40), come: 2 });
        assert_eq!(seen.new_jobs(&pulse(1, 12)), NewJobs::Much);
        assert_eq!(seen.new_jobs(&pulse(1, 6)), NewJobs::Much, "a count never shrinks");
        assert_eq!(seen.new_jobs(&pulse(2, 0)), NewJobs::Much, "slurmctld has begun to count anew");
        assert_eq!(seen.new_jobs(&SchedulerDiag::default()), NewJobs::None, "it does not count");
        // The newest job may have been forgotten by now.
        seen.record_look(&pulse(1, 9), Some(JobId(39)));
        assert_eq!(seen.new_jobs(&pulse(1, 10)), NewJobs::Jobs { after: JobId(40), come: 1 });
    }
}
