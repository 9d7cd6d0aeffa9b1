//! Limits on the number of wings, and reasons that keep a job from starting.

use crate::fleet::JobFleet;
use infill_model::{
    BaseState, GpuCounts, Job, JobId, JobState, LendingMode, Node, NodeType, Resources, SchedulingState,
    StartBlocker, config::Config,
};

use super::rig::{LEAD, Rig, Shown, empty, fleet, job, n};

/// How many wings the job orders for two more nodes, if Slurm shows `ended` ended wings.
fn ordered_wings(ended: u32) -> usize {
    let mut rig: Rig = fleet("running n1");
    let mut snapshot = rig.snapshot();
    snapshot.jobs.extend((0..ended).map(|i| {
        let shown = Shown { lead: LEAD, order: 9, nodes: vec![n(5)] };
        let wing = job(JobId(20_000 + i), &shown);
        Job { state: JobState::from_base(BaseState::Completed), ..wing }
    }));
    drop(rig.look_at(snapshot));
    drop(rig.target(LEAD, &[n(1), n(2), n(3)]));
    rig.fleet.job_lifecycle(LEAD).unwrap().wing_orders().len()
}

#[test]
fn ended_wings_count_until_slurm_forgets_them() {
    assert_eq!(ordered_wings(0), 2);
    assert_eq!(ordered_wings(2000), 2, "a thousand more are allowed");
    assert_eq!(ordered_wings(2999), 1, "one for both nodes");
    assert_eq!(ordered_wings(3000), 0, "Slurm keeps too many");
}

#[test]
fn a_job_that_names_a_reservation_is_not_started() {
    let mut rig: Rig = fleet("queued; queued");
    let mut snapshot = rig.snapshot();
    let lead = snapshot.jobs.iter_mut().find(|j| j.id == LEAD).unwrap();
    lead.asks.reservation = "maintenance".to_owned();
    drop(rig.look_at(snapshot));
    let scheduling_state = |id: JobId| rig.fleet.facts_for_job(id, rig.now).unwrap().scheduling_state;
    assert_eq!(
        scheduling_state(LEAD),
        SchedulingState::Blocked(StartBlocker::Reservation("maintenance".to_owned()))
    );
    assert_eq!(scheduling_state(JobId(LEAD.0 + 1)), SchedulingState::Waiting);
}

#[test]
fn a_worker_that_asks_for_more_cpus_or_memory_gets_more_places() {
    let mut config = Config::default();
    config.gaps.lend = LendingMode::Gpus;
    let place = |gpu: usize| Node {
        partitions: vec![config.slurm.partition.clone()],
        has: Resources { cpus: 4, memory_mib: 4000, gpus: GpuCounts::from_counts([("a100".to_owned(), 1)]) },
        ..Node::new(n(1).place_name(gpu), NodeType::new("gpu:a100:1/cpu4"))
    };
    let block = |cpus: u32, memory_mib: u64, each: &str| {
        let mut rig: Rig = empty();
        rig.fleet = JobFleet::new(&config);
        rig.submit(LEAD);
        let mut snapshot = rig.snapshot();
        snapshot.nodes = (0..4).map(place).collect();
        let lead = &mut snapshot.jobs[0];
        lead.comment = format!("infill:gpus=4-8{each}");
        lead.wants = Some(Resources { cpus, memory_mib, gpus: GpuCounts::default() });
        drop(rig.look_at(snapshot));
        rig.fleet.job_lifecycle(LEAD).unwrap().submitted.places_per_worker
    };
    assert_eq!([block(1, 0, ""), block(5, 4100, ""), block(8, 0, ""), block(1, 11_000, "")], [1, 1, 2, 3]);
    assert_eq!([block(8, 0, ";each=2"), block(16, 0, ";each=2")], [2, 4]);
}

#[test]
fn a_job_without_suitable_places_is_barred() {
    let mut config = Config::default();
    config.gaps.lend = LendingMode::Gpus;
    let blocker_text = |comment: &str, gpus: u32| {
        let mut rig: Rig = empty();
        rig.fleet = JobFleet::new(&config);
        rig.submit(LEAD);
        let mut snapshot = rig.snapshot();
        let has = Resources {
            cpus: 4,
            memory_mib: 4000,
            gpus: GpuCounts::from_counts([("a100".to_owned(), gpus)]),
        };
        let node_type = NodeType::new(if gpus > 0 { "gpu:a100:1/cpu4" } else { "cpu4" });
        let partitions = vec![config.slurm.partition.clone()];
        snapshot.nodes = vec![Node { partitions, has, ..Node::new(n(1).place_name(0), node_type) }];
        snapshot.jobs[0].comment = comment.to_owned();
        drop(rig.look_at(snapshot));
        match rig.fleet.facts_for_job(LEAD, rig.now).unwrap().scheduling_state {
            SchedulingState::Blocked(blocker) => blocker.describe_at(rig.now),
            state => format!("{state:?}"),
        }
    };
    assert_eq!(blocker_text("infill:gpus=1-4", 1), "Waiting");
    assert_eq!(blocker_text("infill:gpus=1-4", 0), "asks for GPUs, and no node of the partition has that");
    assert_eq!(blocker_text("infill:cpus=4-8;each=4", 0), "Waiting");
    assert_eq!(
        blocker_text("infill:cpus=4-8;each=4", 1),
        "asks for CPUs of nodes without GPUs, and no node of the partition has that"
    );
}
