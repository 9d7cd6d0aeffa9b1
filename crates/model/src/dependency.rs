//! sbatch's `--dependency`: whether the jobs that it names have reached the required state.
//!
//! Slurm checks dependencies of a job that it may start, but not while the job is held. So infill checks them
//! for a malleable job that waits, held by infill. Uncertain dependencies count as met: Slurm decides when
//! the job is released.

use super::{ArrayPart, BaseState, Job, JobId, Snapshot};

/// The part of a dependency that is not met, judged by the jobs of the snapshot. `None` if all parts may be
/// met.
pub fn unmet_dependency<'a>(job: &'a Job, snapshot: &Snapshot) -> Option<&'a str> {
    let text = job.asks.dependency.as_str();
    if text.contains('?') {
        // One met part suffices.
        let is_unmet = text.split('?').all(|part| !is_met(part.trim(), job, snapshot));
        return if is_unmet { Some(text) } else { None };
    }
    text.split(',').find(|part| !is_met(part.trim(), job, snapshot))
}

/// Whether one condition may be met: `afterok:12(unfulfilled)`, `after:12+5(unfulfilled)` or `singleton`.
fn is_met(part: &str, job: &Job, snapshot: &Snapshot) -> bool {
    let (bare, state) = part.split_once('(').unwrap_or((part, ""));
    if state.starts_with("fulfilled") {
        return true;
    }
    if state.starts_with("failed") {
        return false;
    }
    let (kind, ids) = bare.split_once(':').unwrap_or((bare, ""));
    if kind == "singleton" {
        return !snapshot.jobs.iter().any(|other| comes_first(other, job));
    }
    ids.split(':').all(|id| {
        // The forms are `12`, `12_3`, `12_*` and `12+5`.
        let digits = id.find(|c: char| !c.is_ascii_digit()).unwrap_or(id.len());
        let Ok(number) = id[..digits].parse().map(JobId) else { return true };
        if let Some(task) = id[digits..].strip_prefix('_').and_then(|task| task.parse::<u32>().ok()) {
            return snapshot.jobs.iter().filter(|o| is_task(o, number, task)).all(|o| has_reached(kind, o));
        }
        // No array has the id of a job outside arrays.
        if let Some(other) = snapshot.job(number).filter(|other| other.array.is_none()) {
            return has_reached(kind, other);
        }
        // An array has reached a state once all of its tasks have.
        let mut others =
            snapshot.jobs.iter().filter(|other| other.id == number || is_of_array(other, number));
        others.all(|other| has_reached(kind, other))
    })
}

fn is_of_array(job: &Job, array: JobId) -> bool {
    job.array.as_ref().is_some_and(|part| part.array() == array)
}

/// Whether the record is this task, or stands for it among others.
fn is_task(job: &Job, array: JobId, number: u32) -> bool {
    match &job.array {
        Some(ArrayPart::Task { task, .. }) => is_of_array(job, array) && *task == number,
        Some(ArrayPart::Unsplit(unsplit)) => {
            is_of_array(job, array) && (unsplit.has_more || unsplit.tasks.contains(&number))
        }
        None => false,
    }
}

/// Whether a job has reached the state that this kind of dependency requires.
fn has_reached(kind: &str, other: &Job) -> bool {
    let has_succeeded = other.state.base == BaseState::Completed;
    let ended = other.state.is_ended();
    match kind {
        "after" => !other.state.is_pending(),
        "afterany" | "afterburstbuffer" => ended,
        "afterok" | "aftercorr" => ended && has_succeeded,
        "afternotok" => ended && !has_succeeded,
        _ => true,
    }
}

/// Whether a singleton waits for this other job: an older one of the same user and name that has not ended.
fn comes_first(other: &Job, job: &Job) -> bool {
    let is_same_kind = other.user_id == job.user_id && other.name == job.name;
    is_same_kind && other.id < job.id && !other.state.is_ended()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UserId;

    /// A task of array 20.
    fn task(id: u32, number: u32, state: BaseState) -> Job {
        Job { array: ArrayPart::from_record(20, Some(number), "", 0), ..Job::new(JobId(id), "main", state) }
    }

    fn snapshot() -> Snapshot {
        let jobs = vec![
            Job::new(JobId(1), "main", BaseState::Pending),
            Job::new(JobId(2), "main", BaseState::Running),
            Job::new(JobId(3), "main", BaseState::Completed),
            Job::new(JobId(4), "main", BaseState::Failed),
            Job { name: "train".to_owned(), ..Job::new(JobId(5), "main", BaseState::Running) },
            task(20, 0, BaseState::Completed),
            task(22, 1, BaseState::Running),
            Job {
                array: ArrayPart::from_record(30, None, "4-9", 0),
                ..Job::new(JobId(30), "main", BaseState::Pending)
            },
        ];
        Snapshot { jobs, ..Snapshot::default() }
    }

    #[test]
    fn a_dependency_is_unmet_until_a_job_has_reached_the_required_state() {
        let cases = [
            ("", None),
            ("afterok:1(unfulfilled)", Some("afterok:1(unfulfilled)")),
            ("afterok:2(unfulfilled)", Some("afterok:2(unfulfilled)")),
            ("afterok:3(unfulfilled)", None),
            ("afterok:4(unfulfilled)", Some("afterok:4(unfulfilled)")),
            ("afternotok:4(unfulfilled)", None),
            ("afterany:3:4(unfulfilled)", None),
            ("afterany:3:2(unfulfilled)", Some("afterany:3:2(unfulfilled)")),
            ("after:2+5(unfulfilled)", None),
            ("after:1+5(unfulfilled)", Some("after:1+5(unfulfilled)")),
            // Slurm has forgotten the job.
            ("afterok:99(unfulfilled)", None),
            ("afterok:3(unfulfilled),afterok:2(unfulfilled)", Some("afterok:2(unfulfilled)")),
            ("afterok:3(unfulfilled)?afterok:2(unfulfilled)", None),
            (
                "afterok:1(unfulfilled)?afterok:2(unfulfilled)",
                Some("afterok:1(unfulfilled)?afterok:2(unfulfilled)"),
            ),
            ("afterok:3(failed)", Some("afterok:3(failed)")),
            ("afterok:1(fulfilled)", None),
            ("afterany:2_*(unfulfilled)", Some("afterany:2_*(unfulfilled)")),
            ("afterok:20_*(unfulfilled)", Some("afterok:20_*(unfulfilled)")),
            ("afterok:20(unfulfilled)", Some("afterok:20(unfulfilled)")),
            ("afterok:20_0(unfulfilled)", None),
            ("afterok:20_1(unfulfilled)", Some("afterok:20_1(unfulfilled)")),
            ("afterany:30_5(unfulfilled)", Some("afterany:30_5(unfulfilled)")),
            ("afterany:30_3(unfulfilled)", None),
            ("singleton(unfulfilled)", Some("singleton(unfulfilled)")),
            ("moonphase:full(unfulfilled)", None),
            ("afterok:x(unfulfilled)", None),
            ("((,?:+", None),
        ];
        for (text, expected) in cases {
            let mut job = Job::new(JobId(7), "infill", BaseState::Pending);
            job.user_id = UserId(0);
            job.name = "train".to_owned();
            job.asks.dependency = text.to_owned();
            assert_eq!(unmet_dependency(&job, &snapshot()), expected, "{text}");
        }
    }
}
