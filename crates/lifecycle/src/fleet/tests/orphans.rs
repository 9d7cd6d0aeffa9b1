//! Wings whose lead the fleet does not know.

use infill_model::{BaseState, Job, JobId, Snapshot, UnixTime, UserId, config::Config};

use super::rig::{Shown, job, n};
use crate::Effect;
use crate::fleet::JobFleet;

const LEAD: JobId = JobId(70);
const WING: JobId = JobId(71);

/// A running main job of the wing's owner.
fn main_job() -> Job {
    let wing = job(WING, &Shown { lead: LEAD, order: 3, nodes: vec![n(3)] });
    Job { user_id: wing.user_id, nodes: vec![n(1)], ..Job::new(LEAD, "main", BaseState::Running) }
}

/// Whether the wing is cancelled at each of these times, if Slurm also shows these jobs.
fn is_cancelled(others: &[Job], times: &[i64]) -> Vec<bool> {
    let mut fleet = JobFleet::new(&Config::default());
    let wing = job(WING, &Shown { lead: LEAD, order: 3, nodes: vec![n(3)] });
    let cancelled = times.iter().map(|secs| {
        let now = UnixTime(1000 + secs);
        let jobs = others.iter().chain([&wing]).cloned().collect();
        let (out, _) =
            fleet.ingest_snapshot(&Snapshot { taken_at: now, jobs, ..Snapshot::default() }, now, now);
        let effects = out.batches.into_iter().flat_map(|batch| batch.effects);
        effects.into_iter().any(|effect| effect == Effect::CancelWing { job: WING })
    });
    cancelled.collect()
}

#[test]
fn wings_of_a_main_job_that_is_not_stored_wait_for_its_agent() {
    assert_eq!(is_cancelled(&[main_job()], &[0, 5, 59, 60]), [false, false, false, true]);
}

#[test]
fn wings_whose_lead_cannot_arrive_are_cancelled_at_once() {
    assert_eq!(is_cancelled(&[], &[0]), [true], "it is gone");
    let waits = Job { state: infill_model::JobState::from_base(BaseState::Pending), ..main_job() };
    assert_eq!(is_cancelled(&[waits], &[0]), [true], "it does not run");
    let others = Job { user_id: UserId(2002), ..main_job() };
    assert_eq!(is_cancelled(&[others], &[0]), [true], "it is another user's");
}
