//! Code that the readers of job logs share.

use infill_model::{JobId, LoggedJob};

/// Numbers jobs in the given order, then sorts them by start and number.
pub(super) fn number_and_sort(mut jobs: Vec<LoggedJob>) -> Vec<LoggedJob> {
    for (number, job) in (1..).zip(&mut jobs) {
        job.id = JobId(number);
    }
    jobs.sort_by_key(|job| (job.start, job.id));
    jobs
}
