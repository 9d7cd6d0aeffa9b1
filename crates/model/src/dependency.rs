//! sbatch's `--dependency`: whether the jobs that it names have come so far.
//!
//! Slurm looks at dependencies of a job that it may start, and not while the job is held. So for a malleable
//! job that waits, held by infill, somebody else must look. What is not sure here counts as met: Slurm has
//! the last word when the job is released.

use super::{BaseState, Job, JobId, Snapshot};

/// The part of a dependency that is not met, by what a snapshot shows of the jobs that it names; `None` when
/// all may be met.
pub fn unmet_dependency<'a>(job: &'a Job, snapshot: &Snapshot) -> Option<&'a str> {
    let text = job.asks.dependency.as_str();
    let bad = |part: &&str| !is_met(part.trim(), job, snapshot);
    if text.contains('?') {
        // Any one of them suffices.
        return text.split('?').all(|part| bad(&part)).then_some(text);
    }
    text.split(',').find(bad)
}

/// Whether one condition may be met: `afterok:12(unfulfilled)`, `after:12+5(unfulfilled)`, `singleton`.
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
        // `12`, `12_3`, `12_*`, `12+5`.
        let digits = id.find(|c: char| !c.is_ascii_digit()).unwrap_or(id.len());
        let other = id[..digits].parse().ok().and_then(|id| snapshot.job(JobId(id)));
        other.is_none_or(|other| has_come(kind, other))
    })
}

/// Whether a job has come as far as this kind of dependency wants it.
fn has_come(kind: &str, other: &Job) -> bool {
    let good = other.state.base == BaseState::Completed;
    let ended = other.state.is_ended();
    match kind {
        "after" => !other.state.is_pending(),
        "afterany" | "afterburstbuffer" => ended,
        "afterok" | "aftercorr" => ended && good,
        "afternotok" => ended && !good,
        _ => true,
    }
}

/// Whether a singleton waits for this other job: of the same user and name, and older.
fn comes_first(other: &Job, job: &Job) -> bool {
    let alike = other.user_id == job.user_id && other.name == job.name;
    alike && other.id < job.id && !other.state.is_ended()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UserId;

    fn snapshot() -> Snapshot {
        let job = |id, state| Job::new(JobId(id), "main", state);
        let jobs = vec![
            job(1, BaseState::Pending),
            job(2, BaseState::Running),
            job(3, BaseState::Completed),
            job(4, BaseState::Failed),
            Job { name: "train".to_owned(), ..job(5, BaseState::Running) },
        ];
        Snapshot { jobs, ..Snapshot::default() }
    }

    #[test]
    fn a_dependency_is_unmet_while_a_job_has_not_come_so_far() {
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
            ("singleton(unfulfilled)", Some("singleton(unfulfilled)")),
            ("moonphase:full(unfulfilled)", None),
            ("afterok:x(unfulfilled)", None),
            ("((,?:+", None),
        ];
        for (text, expected) in cases {
            let mut job = Job::new(JobId(7), "infill", BaseState::Pending);
            (job.user_id, job.name) = (UserId(0), "train".to_owned());
            job.asks.dependency = text.to_owned();
            assert_eq!(unmet_dependency(&job, &snapshot()), expected, "{text}");
        }
    }
}
