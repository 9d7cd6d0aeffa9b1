//! Jobs that Slurm ends because they used more memory than they had, agent and all.

use crate::fleet::FleetOutcome;
use crate::phase::JobPhase;
use infill_model::{BaseState, JobId, JobState, MalleableState, NodeName, Snapshot};

use super::rig::{ASKED, FAILED, LEAD, Rig, fleet, n};

/// Slurm has ended this job so.
fn ended(snapshot: &mut Snapshot, job: JobId, how: BaseState) {
    let job = snapshot.jobs.iter_mut().find(|j| j.id == job).unwrap();
    job.state = JobState::from_base(how);
}

/// The Slurm job of the wing on this node ends so.
fn wing_ends(rig: &mut Rig, node: &NodeName, how: BaseState) -> FleetOutcome {
    let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
    let wing = lifecycle.workers.get(node).unwrap().slurm_job;
    let mut snapshot = rig.snapshot();
    ended(&mut snapshot, wing, how);
    rig.slurm.remove(&wing);
    rig.agents.retain(|(job, _), _| *job != wing);
    rig.now = rig.now + 60;
    rig.look_at(snapshot)
}

/// What is remembered of lacking memory: nodes, and where the lead was.
fn remembered(out: &FleetOutcome) -> Vec<(u32, Option<NodeName>)> {
    out.overflowed.iter().map(|lesson| (lesson.what, lesson.lead.clone())).collect()
}

#[test]
fn a_wing_that_slurm_ends_for_memory_is_no_failure_and_its_size_is_remembered() {
    for (how, remembers) in [(BaseState::OutOfMemory, true), (BaseState::Failed, false)] {
        let what = if remembers { vec![(2, Some(n(1)))] } else { Vec::new() };
        // The others hear of it by the broken connection, or by us.
        for fails in [false, true] {
            let mut rig = fleet("running n1 n2");
            let first = fails.then(|| rig.stopped(LEAD, &n(1), FAILED).unwrap());
            let mut out = wing_ends(&mut rig, &n(2), how.clone());
            if !fails {
                out = rig.stopped(LEAD, &n(1), ASKED).unwrap();
            }
            assert_eq!(remembered(&out), what, "{how:?} {first:?}");
            let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
            assert_eq!((lifecycle.counts.restarts, lifecycle.target.is_none()), (0, remembers), "{how:?}");
            assert_eq!(matches!(lifecycle.phase, JobPhase::Idle { .. }), remembers, "{:?}", lifecycle.phase);
        }
    }
}

#[test]
fn a_command_that_lives_on_without_such_a_wing_does_not_grow_back_to_that_size() {
    let mut rig = fleet("alive n1 n2 n3");
    let out = wing_ends(&mut rig, &n(3), BaseState::OutOfMemory);
    assert_eq!(remembered(&out), [(3, Some(n(1)))]);
    rig.run();
    let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
    assert_eq!((lifecycle.malleable_state(), lifecycle.counts.restarts), (MalleableState::Running, 0));
    assert_eq!(lifecycle.phase.members(), [n(1), n(2)]);
}

#[test]
fn what_slurm_says_of_a_lead_is_for_the_owners_next_job() {
    let mut rig = fleet("running n1 n2");
    let mut snapshot = rig.snapshot();
    ended(&mut snapshot, LEAD, BaseState::OutOfMemory);
    let out = rig.look_at(snapshot);
    assert_eq!(remembered(&out), [(2, Some(n(1)))]);
    assert_eq!(out.ended.len(), 1);
}
