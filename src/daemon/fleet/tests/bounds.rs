//! How many Slurm jobs there may be.

use crate::model::{BaseState, Job, JobId, JobState};

use super::rig::{LEAD, Rig, Shown, fleet, job, n};

/// How many wings the job orders for two more nodes, when Slurm shows so many that have ended.
fn ordered(ended: u32) -> usize {
    let mut rig: Rig = fleet("running n1");
    let mut snapshot = rig.snapshot();
    snapshot.jobs.extend((0..ended).map(|i| {
        let shown = Shown { lead: LEAD, order: 9, nodes: vec![n(5)] };
        let wing = job(JobId(20_000 + i), &shown);
        Job { state: JobState::of(BaseState::Completed), ..wing }
    }));
    drop(rig.look_at(snapshot));
    drop(rig.target(LEAD, &[n(1), n(2), n(3)]));
    rig.fleet.machine(LEAD).unwrap().orders().len()
}

#[test]
fn wings_that_have_ended_fill_slurm_as_others_do() {
    assert_eq!(ordered(0), 2);
    assert_eq!(ordered(2000), 2, "a thousand more may come");
    assert_eq!(ordered(2999), 1, "one for both nodes");
    assert_eq!(ordered(3000), 0, "until Slurm forgets some");
}
