//! Whether somebody has submitted a job since Slurm was looked at: by slurmctld's count of submissions, and the
//! numbers that it gives to jobs one after the other.

use super::reading::Pulse;
use crate::model::{JobId, UnixTime};

/// Most new jobs that are looked at one by one. So many wings may well come at a time.
const MOST_LOOKED_AT: u32 = 4;

/// What slurmctld had counted when it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    counting_since: Option<UnixTime>,
    submitted: Option<i64>,
    /// The highest number of a job that was ever seen.
    last_job: Option<JobId>,
}

/// What has come since.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// Nothing.
    None,
    /// These jobs: agents may have submitted them.
    Jobs(Vec<JobId>),
    /// More than can be looked at, or nobody can tell.
    Much,
}

impl Seen {
    /// After a look between these pulses that told of jobs up to `last`.
    pub fn looked(&mut self, began: &Pulse, ended: &Pulse, last: Option<JobId>) {
        let last_job = self.last_job.max(last);
        let submitted = self.count_at(last_job).filter(|n| {
            let within = began.submitted.zip(ended.submitted);
            self.counting_since == began.counting_since
                && within.is_some_and(|(from, to)| (from..=to).contains(n))
        });
        // Of what has come during the look, it may have told.
        let submitted = submitted.or(began.submitted);
        *self = Seen { counting_since: began.counting_since, submitted, last_job };
    }

    /// What slurmctld had counted when this job came, if each took one number.
    fn count_at(&self, job: Option<JobId>) -> Option<i64> {
        let come = i64::from(job?.0) - i64::from(self.last_job?.0);
        self.submitted?.checked_add(come)
    }

    /// What this pulse tells. Slurms that do not count submissions tell of none.
    pub fn news(&self, pulse: &Pulse) -> News {
        let (Some(then), Some(now)) = (self.submitted, pulse.submitted) else { return News::None };
        let come = now.checked_sub(then).and_then(|n| u32::try_from(n).ok());
        match come {
            _ if self.counting_since != pulse.counting_since => News::Much,
            Some(0) => News::None,
            Some(n @ 1..=MOST_LOOKED_AT) => {
                let last = self.last_job.map_or(0, |job| job.0);
                News::Jobs((1..=n).map(|i| JobId(last.saturating_add(i))).collect())
            }
            _ => News::Much,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(since: i64, submitted: i64) -> Pulse {
        let mut pulse = Pulse::default();
        (pulse.counting_since, pulse.submitted) = (Some(UnixTime(since)), Some(submitted));
        pulse
    }

    #[test]
    fn tells_what_has_come_since_the_look() {
        let mut seen = Seen::default();
        let mut looked = |n, last| seen.looked(&pulse(1, n), &pulse(1, n), Some(JobId(last)));
        looked(7, 40);
        let before = seen;
        assert_eq!(Seen::default().news(&pulse(1, 7)), News::None, "there was no look");
        assert_eq!(before.news(&pulse(1, 7)), News::None);
        assert_eq!(before.news(&pulse(1, 9)), News::Jobs(vec![JobId(41), JobId(42)]));
        assert_eq!(before.news(&pulse(1, 12)), News::Much);
        assert_eq!(before.news(&pulse(1, 6)), News::Much, "a count never shrinks");
        assert_eq!(before.news(&pulse(2, 0)), News::Much, "slurmctld has begun to count anew");
        assert_eq!(before.news(&Pulse::default()), News::None, "it does not count");
        // The newest job may have been forgotten by now.
        seen.looked(&pulse(1, 7), &pulse(1, 7), Some(JobId(39)));
        assert_eq!(seen.news(&pulse(1, 8)), News::Jobs(vec![JobId(41)]));
    }

    #[test]
    fn what_comes_during_a_look_is_no_news_if_it_was_told_of() {
        let mut seen = Seen::default();
        seen.looked(&pulse(1, 7), &pulse(1, 7), Some(JobId(40)));
        // Of two that came, it has told of the first.
        seen.looked(&pulse(1, 7), &pulse(1, 9), Some(JobId(41)));
        assert_eq!(seen.news(&pulse(1, 9)), News::Jobs(vec![JobId(42)]));
        // Arrays count by their tasks.
        let mut arrays = Seen::default();
        arrays.looked(&pulse(1, 7), &pulse(1, 7), Some(JobId(40)));
        arrays.looked(&pulse(1, 107), &pulse(1, 207), Some(JobId(42)));
        assert_eq!(arrays.news(&pulse(1, 207)), News::Much);
        // After a restart of slurmctld, numbers say nothing of the count.
        arrays.looked(&pulse(2, 3), &pulse(2, 3), Some(JobId(43)));
        assert_eq!(arrays.news(&pulse(2, 3)), News::None);
    }
}
