//! Checks imported jobs, because a listing may contain anything.

use infill_model::trace::MAX_NODES_A_MACHINE;
use infill_model::{EndedJob, JobId, MAX_NAME_CHARS, UnixTime};

/// A job may end this far in the future, seconds, because a listing may be in another time zone.
const MAX_CLOCK_AHEAD_SECS: i64 = 86_400;

/// The largest number of seconds, samples or seconds of work.
const MAX_AMOUNT: f64 = 1e18;

/// Why jobs are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {job}: {what}")]
pub(crate) struct InvalidEndedJob {
    job: JobId,
    what: &'static str,
}

/// Refuses a list with a job that cannot exist.
pub(crate) fn check_jobs(jobs: &[EndedJob], now: UnixTime) -> Result<(), InvalidEndedJob> {
    for job in jobs {
        if let Some(what) = find_problem(job, now) {
            return Err(InvalidEndedJob { job: job.job, what });
        }
    }
    Ok(())
}

fn is_amount(number: f64) -> bool {
    (0.0..=MAX_AMOUNT).contains(&number)
}

fn find_problem(job: &EndedJob, now: UnixTime) -> Option<&'static str> {
    let times = [UnixTime(0), job.submitted_at, job.ended_at, now + MAX_CLOCK_AHEAD_SECS];
    let texts = [&job.user, &job.account, &job.name, &job.command_hash, &job.why];
    let rules = [
        (!job.user.is_empty(), "its user is empty"),
        (texts.into_iter().all(|text| is_text(text)), "one of its texts is too long or not printable"),
        (times.is_sorted(), "its times are not in order, or lie in the future"),
        ([1, job.min_nodes, job.max_nodes, MAX_NODES_A_MACHINE].is_sorted(), "its nodes are out of range"),
        (job.gpus_per_node <= MAX_NODES_A_MACHINE, "its GPUs are out of range"),
        (
            [job.limit_secs, job.said_secs, job.flat_secs].into_iter().flatten().all(is_amount),
            "its length is out of range",
        ),
        ([job.work_secs, job.samples, job.secs].into_iter().all(is_amount), "its work is out of range"),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what)
}

fn is_text(text: &str) -> bool {
    text.chars().count() <= MAX_NAME_CHARS && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::samples;

    fn refused(change: impl FnOnce(&mut EndedJob)) -> String {
        let mut job = samples::sample_ended_job(7);
        change(&mut job);
        check_jobs(&[samples::sample_ended_job(6), job], samples::NOW).unwrap_err().to_string()
    }

    #[test]
    fn a_valid_job_is_accepted() {
        let unknown = EndedJob { limit_secs: None, account: String::new(), ..samples::sample_ended_job(8) };
        assert_eq!(check_jobs(&[samples::sample_ended_job(7), unknown], samples::NOW), Ok(()));
    }

    #[test]
    fn a_job_that_cannot_exist_is_refused() {
        assert_eq!(refused(|job| job.user.clear()), "job 7: its user is empty");
        for text in ["a\nb".to_owned(), "x".repeat(201)] {
            assert!(refused(|job| job.name = text).contains("too long or not printable"));
        }
        assert!(refused(|job| job.submitted_at = job.ended_at + 1).contains("order"));
        assert!(refused(|job| job.submitted_at = UnixTime(-1)).contains("order"));
        assert!(refused(|job| job.ended_at = samples::NOW + 90_000).contains("future"));
        assert!(refused(|job| job.min_nodes = 0).contains("nodes"));
        assert!(refused(|job| job.min_nodes = job.max_nodes + 1).contains("nodes"));
        assert!(refused(|job| job.gpus_per_node = u32::MAX).contains("GPUs"));
        assert!(refused(|job| job.limit_secs = Some(-1.0)).contains("length"));
        for secs in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(refused(|job| job.work_secs = secs).contains("work"), "{secs}");
        }
    }
}
