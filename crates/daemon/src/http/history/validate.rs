//! What a job from outside must be: a listing may hold anything.

use infill_model::trace::MAX_NODES_A_MACHINE;
use infill_model::{EndedJob, JobId, MAX_NAME_CHARS, UnixTime};

/// So far ahead of ours may the clock be by which a job has ended, s: a listing in another zone.
const MAX_CLOCK_AHEAD_SECS: i64 = 86_400;

/// The largest number of seconds, samples or seconds of work.
const MAX_AMOUNT: f64 = 1e18;

/// Why jobs are not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {job}: {what}")]
pub(crate) struct InvalidEndedJob {
    job: JobId,
    what: &'static str,
}

/// Whether all of them are what a job can be.
pub(crate) fn check_jobs(jobs: &[EndedJob], now: UnixTime) -> Result<(), InvalidEndedJob> {
    jobs.iter()
        .find_map(|job: &EndedJob| Some(InvalidEndedJob { job: job.job, what: find_problem(job, now)? }))
        .map_or(Ok(()), Err)
}

fn find_problem(job: &EndedJob, now: UnixTime) -> Option<&'static str> {
    let is_amount = |x: f64| (0.0..=MAX_AMOUNT).contains(&x);
    let times = [UnixTime(0), job.submitted_at, job.ended_at, now + MAX_CLOCK_AHEAD_SECS];
    let texts = [&job.user, &job.account, &job.name, &job.command_hash, &job.why];
    let rules = [
        (!job.user.is_empty(), "its user is empty"),
        (texts.into_iter().all(|t| is_text(t)), "a text of it is too long or not printable"),
        (times.is_sorted(), "its times are not in their order, or lie in the future"),
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
    fn a_sound_job_is_taken() {
        let unknown = EndedJob { limit_secs: None, account: String::new(), ..samples::sample_ended_job(8) };
        assert_eq!(check_jobs(&[samples::sample_ended_job(7), unknown], samples::NOW), Ok(()));
    }

    #[test]
    fn what_no_job_can_be_is_refused() {
        assert_eq!(refused(|j| j.user.clear()), "job 7: its user is empty");
        for text in ["a\nb".to_owned(), "x".repeat(201)] {
            assert!(refused(|j| j.name = text).contains("too long or not printable"));
        }
        assert!(refused(|j| j.submitted_at = j.ended_at + 1).contains("order"));
        assert!(refused(|j| j.submitted_at = UnixTime(-1)).contains("order"));
        assert!(refused(|j| j.ended_at = samples::NOW + 90_000).contains("future"));
        assert!(refused(|j| j.min_nodes = 0).contains("nodes"));
        assert!(refused(|j| j.min_nodes = j.max_nodes + 1).contains("nodes"));
        assert!(refused(|j| j.gpus_per_node = u32::MAX).contains("GPUs"));
        assert!(refused(|j| j.limit_secs = Some(-1.0)).contains("length"));
        for secs in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(refused(|j| j.work_secs = secs).contains("work"), "{secs}");
        }
    }
}
