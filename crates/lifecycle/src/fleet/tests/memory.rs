//! Jobs that Slurm ends, with their agents, because they used too much memory.

use crate::fleet::FleetOutcome;
use crate::phase::JobPhase;
use infill_model::{BaseState, JobId, JobState, MalleableState, NodeName, Snapshot};

use super::rig::{ASKED, FAILED, LEAD, Rig, fleet, n};

/// Shows this job as ended in the given state.
fn set_ended(snapshot: &mut Snapshot, job: JobId, state: BaseState) {
    let job = snapshot.jobs.iter_mut().find(|j| j.id == job).unwrap();
    job.state = JobState::from_base(state);
}

/// Ends the wing on this node in the given state.
fn end_wing(rig: &mut Rig, node: &NodeName, state: BaseState) -> FleetOutcome {
    let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
    let wing = lifecycle.workers.get(node).unwrap().slurm_job;
    let mut snapshot = rig.snapshot();
    set_ended(&mut snapshot, wing, state);
    rig.slurm.remove(&wing);
    rig.agents.retain(|(job, _), _| *job != wing);
    rig.now = rig.now + 60;
    rig.look_at(snapshot)
}

/// The reported memory overflows: number of nodes, and the lead's node.
fn overflows(out: &FleetOutcome) -> Vec<(u32, Option<NodeName>)> {
    out.out_of_memory.iter().map(|event| (event.event, event.lead.clone())).collect()
}

#[test]
fn a_wing_that_runs_out_of_memory_is_not_a_failure_and_its_size_is_reported() {
    for (state, is_overflow) in [(BaseState::OutOfMemory, true), (BaseState::Failed, false)] {
        let expected = if is_overflow { vec![(2, Some(n(1)))] } else { Vec::new() };
        // The lead's command fails on the broken connection, or stops when its agent asks it to.
        for fails in [false, true] {
            let mut rig = fleet("running n1 n2");
            let first = fails.then(|| rig.stopped(LEAD, &n(1), FAILED).unwrap());
            let mut out = end_wing(&mut rig, &n(2), state.clone());
            if !fails {
                out = rig.stopped(LEAD, &n(1), ASKED).unwrap();
            }
            assert_eq!(overflows(&out), expected, "{state:?} {first:?}");
            let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
            assert_eq!(
                (lifecycle.counts.restarts, lifecycle.target.is_none()),
                (0, is_overflow),
                "{state:?}"
            );
            assert_eq!(
                matches!(lifecycle.phase, JobPhase::Assembling { .. }),
                is_overflow,
                "{:?}",
                lifecycle.phase
            );
        }
    }
}

#[test]
fn a_command_that_lives_on_without_such_a_wing_does_not_grow_back_to_that_size() {
    let mut rig = fleet("alive n1 n2 n3");
    let out = end_wing(&mut rig, &n(3), BaseState::OutOfMemory);
    assert_eq!(overflows(&out), [(3, Some(n(1)))]);
    rig.run();
    let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
    assert_eq!((lifecycle.malleable_state(), lifecycle.counts.restarts), (MalleableState::Running, 0));
    assert_eq!(lifecycle.phase.members(), [n(1), n(2)]);
}

#[test]
fn a_lead_that_runs_out_of_memory_is_reported_for_the_owners_next_job() {
    let mut rig = fleet("running n1 n2");
    let mut snapshot = rig.snapshot();
    set_ended(&mut snapshot, LEAD, BaseState::OutOfMemory);
    let out = rig.look_at(snapshot);
    assert_eq!(overflows(&out), [(2, Some(n(1)))]);
    assert_eq!(out.ended.len(), 1);
}
