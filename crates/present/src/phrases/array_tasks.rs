//! Tasks of job arrays by their names in squeue.

use infill_api::DaemonStatus;
use infill_model::is_task_name;

/// The id of the job that is this task of an array, such as `123_4`. A task without a job of its own stands
/// for its array. Any other subject stays as it is.
pub fn resolve_task(subject: &str, status: &DaemonStatus) -> String {
    if !is_task_name(subject) {
        return subject.to_owned();
    }
    let named = status.jobs.iter().find(|job| job.array_task.as_deref() == Some(subject));
    let waiting = || {
        let prefix = format!("{}_[", subject.split('_').next().unwrap_or_default());
        status.jobs.iter().find(|job| job.array_task.as_ref().is_some_and(|name| name.starts_with(&prefix)))
    };
    named.or_else(waiting).map_or_else(|| subject.to_owned(), |job| job.job.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_name_of_squeue_becomes_the_id_of_its_job() {
        let mut status = samples::sample_status();
        status.jobs[0].array_task = Some("90_3".to_owned());
        status.jobs[1].array_task = Some("90_[4-9%2]".to_owned());
        let resolved = ["90_3", "90_7", "91_3", "90", "n1", "102"].map(|name| resolve_task(name, &status));
        assert_eq!(resolved, ["101", "102", "91_3", "90", "n1", "102"]);
    }
}
