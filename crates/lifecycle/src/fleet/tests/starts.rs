//! Leads that were released and wait, and snapshots of their nodes and of backfill.

use infill_model::{
    BaseState, Gap, GapSet, Job, JobId, MalleableState, Node, NodeName, NodeState, NodeType, Snapshot,
    UnixTime, WindowCause, WindowEnd,
};

use super::rig::{LEAD, Rig, fleet, n};
use crate::Effect;

/// A lead that was released to n1 a moment ago.
fn released() -> Rig {
    let mut rig = fleet("launching n1");
    let launch = Effect::Launch { job: LEAD, node: n(1), limit_mins: 9 };
    drop(rig.fleet.effect_done(LEAD, &launch, rig.now));
    // Slurm has not started it.
    rig.slurm.get_mut(&LEAD).unwrap().nodes.clear();
    rig
}

/// A snapshot with n1 idle. Backfill is at rest, and began its last full cycle a second ago.
fn shown(rig: &Rig) -> Snapshot {
    let mut snapshot = rig.snapshot();
    snapshot.jobs[0].held = false;
    let state = NodeState::from_words(["IDLE"]);
    snapshot.nodes = vec![Node { state, ..Node::new(n(1), NodeType::new("cpu")) }];
    snapshot.backfill.complete = true;
    snapshot.backfill.last_cycle = Some(snapshot.taken_at + -1);
    snapshot.backfill.resolution_secs = Some(60);
    snapshot
}

/// A main job that backfill has planned on the node, `secs` seconds after the snapshot.
fn planned(snapshot: &Snapshot, node: NodeName, secs: i64) -> Job {
    let mut job = Job::new(JobId(50), "main", BaseState::Pending);
    job.start_time = Some(snapshot.taken_at + secs);
    job.scheduled_nodes = vec![node];
    job
}

/// Whether the lead is still launched after a snapshot five seconds after its release.
fn stays_launched(change: impl Fn(&mut Snapshot)) -> bool {
    let mut rig = released();
    let mut snapshot = shown(&rig);
    change(&mut snapshot);
    let out = rig.look_at(snapshot);
    let state = rig.fleet.job_lifecycle(LEAD).unwrap().malleable_state();
    let is_held = out.batches.iter().any(|b| b.effects.contains(&Effect::Hold { job: LEAD }));
    assert_eq!(is_held, state == MalleableState::Queued);
    state == MalleableState::Launching
}

#[test]
fn a_waiting_lead_is_called_back_if_backfill_plans_a_job_on_its_node() {
    let plan = |node: NodeName, secs: i64| {
        stays_launched(|snapshot| {
            snapshot.backfill.last_cycle = None;
            let job = planned(snapshot, node.clone(), secs);
            snapshot.jobs.push(job);
        })
    };
    // It is 1005 s, and 1010 s at the snapshot.
    assert!(!plan(n(1), 70), "backfill keeps the node from 1020 s on");
    assert!(plan(n(1), 80), "from 1080 s on");
    assert!(plan(n(2), 70), "another node");
    assert!(plan(n(1), -1), "Slurm may be about to start it elsewhere");
}

#[test]
fn a_lead_is_called_back_if_a_full_cycle_of_backfill_left_it_waiting() {
    assert!(!stays_launched(|_| ()));
    assert!(stays_launched(|s| s.backfill.active = true), "the cycle may still consider it");
    assert!(stays_launched(|s| s.backfill.complete = false), "the cycle may not have considered it");
    assert!(
        stays_launched(|s| s.backfill.last_cycle = Some(s.taken_at + -5)),
        "the cycle may have begun before the release"
    );
    assert!(
        stays_launched(|s| s.nodes[0].state = NodeState::from_words(["ALLOCATED"])),
        "its node is not free yet"
    );
    assert!(stays_launched(|s| s.nodes.clear()), "the node's state is unknown");
}

#[test]
fn a_snapshot_is_due_once_a_lead_has_had_time_to_start() {
    let mut rig = released();
    let due = |rig: &Rig, secs: f64| rig.fleet.awaits_lead_start(rig.now.plus_secs(secs));
    assert_eq!((due(&rig, 3.0), due(&rig, 4.0), due(&rig, 60.0)), (false, true, true));
    // A snapshot shows it on its node.
    rig.slurm.get_mut(&LEAD).unwrap().nodes = vec![n(1)];
    drop(rig.look());
    assert!(!due(&rig, 60.0));
}

#[test]
fn the_launch_limit_depends_on_backfill_in_the_last_snapshot() {
    let mut rig = fleet("queued");
    let mut snapshot = rig.snapshot();
    snapshot.backfill.resolution_secs = Some(60);
    drop(rig.look_at(snapshot));
    let launch = |at: UnixTime| {
        let mut fleet = rig.fleet.clone();
        let end = WindowEnd::Known { at, cause: WindowCause::PlannedJob(JobId(50)) };
        let gap = Gap {
            node: n(1),
            node_type: NodeType::new("cpu"),
            since: rig.now,
            end,
            vacate_by: Some(at),
            usable_until: at,
            expected_secs: 0.0,
            holder: None,
            share: None,
        };
        let gaps = GapSet { gaps: vec![gap], refused: Vec::new() };
        let out = fleet.set_target(&rig.plan(LEAD, &[n(1)]), &gaps, rig.now);
        out.batches.iter().flat_map(|b| &b.effects).find_map(|effect| match effect {
            Effect::Launch { limit_mins, .. } => Some(*limit_mins),
            _ => None,
        })
    };
    // It is 1010 s.
    assert_eq!(rig.now, UnixTime(1010));
    assert_eq!(launch(UnixTime(1079)), None, "backfill keeps the node from 1020 s on");
    assert_eq!(launch(UnixTime(1199)), Some(2), "from 1140 s on");
}
