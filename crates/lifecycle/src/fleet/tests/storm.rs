//! Thousands of random inputs.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{AgentEvent, JobId, NodeName};
use infill_testkit::effort;

use super::rig::{ASKED, DONE, FAILED, Rig, empty, n, progress};

const JOBS: u32 = 300;
const NODES: u32 = 600;
const INPUTS: u64 = 10_000;

/// Pseudo-random numbers, the same in every run (Knuth's MMIX constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// Random nodes that no other job has or is planned to have.
fn nodes_for(rig: &Rig, job: JobId, dice: &mut Dice) -> Vec<NodeName> {
    let others = || rig.fleet.job_lifecycles().filter(|m| m.job != job);
    let mut taken: BTreeSet<NodeName> = others().flat_map(|m| m.occupied_nodes().into_keys()).collect();
    let targets = others().filter_map(|m| m.target.as_ref());
    taken.extend(targets.flat_map(|t| &t.plan.nodes).map(|p| p.node.clone()));
    let own = rig.fleet.job_lifecycle(job).map(|m| m.occupied_nodes()).unwrap_or_default();
    let new = (0..dice.below(4)).map(|_| n(dice.below(NODES))).collect::<BTreeSet<_>>();
    own.into_keys().filter(|_| dice.below(3) > 0).chain(new).filter(|n| !taken.contains(n)).collect()
}

/// Applies a random input to one job.
fn apply_random_input(rig: &mut Rig, dice: &mut Dice) {
    let lead = JobId(1000 + dice.below(JOBS));
    let Some(lifecycle) = rig.fleet.job_lifecycle(lead) else { return };
    let agents: Vec<(JobId, NodeName)> =
        lifecycle.workers.iter().map(|(node, w)| (w.slurm_job, node.clone())).collect();
    let any = agents.get(dice.below(agents.len().max(1) as u32) as usize).cloned();
    let (job, node) = any.unwrap_or((lead, n(dice.below(NODES))));
    let exit = [ASKED, DONE, DONE, FAILED][dice.below(4) as usize];
    match dice.below(12) {
        0 | 1 => {
            let nodes = nodes_for(rig, lead, dice);
            drop(rig.target(lead, &nodes));
        }
        2 => rig.submit_wings(lead),
        3..=5 => {
            let shown = rig.slurm.clone().into_iter().filter(|(_, s)| s.lead == lead);
            let places = shown.flat_map(|(id, s)| s.nodes.into_iter().map(move |node| (id, node)));
            for (id, node) in places.collect::<Vec<_>>() {
                drop(rig.hello(lead, id, &node, (dice.below(4) == 0).then_some(1)));
            }
        }
        6 => drop(rig.stopped(lead, &node, exit)),
        7 => drop(rig.report(job, &node, AgentEvent::Leaving)),
        8 => drop(rig.report(job, &node, progress())),
        9 => {
            let order = u64::from(dice.below(40));
            drop(rig.report(job, &node, AgentEvent::WingRefused { order, error: "limit".into() }));
        }
        10 => drop(rig.hello(lead, JobId(998), &n(dice.below(NODES)), None)),
        _ => {
            rig.now = rig.now + 1;
            if dice.below(20) == 0 {
                drop(rig.look());
            }
        }
    }
}

#[track_caller]
fn assert_consistent(rig: &Rig, after: u64) {
    let mut users: BTreeMap<NodeName, JobId> = BTreeMap::new();
    for lifecycle in rig.fleet.job_lifecycles() {
        for node in lifecycle.occupied_nodes().into_keys() {
            let other = users.insert(node.clone(), lifecycle.job);
            assert_eq!(other, None, "{node} is {}'s, too, after {after} inputs", lifecycle.job);
        }
        for order in rig.fleet.agent_orders(lifecycle.job) {
            assert!(rig.fleet.has_agent(&order.agent), "{:?} after {after} inputs", order.agent);
        }
    }
}

#[test]
fn no_node_has_two_users_after_random_inputs() {
    let mut rig = empty();
    let mut dice = Dice(1);
    (0..JOBS).for_each(|i| rig.submit(JobId(1000 + i)));
    drop(rig.look());
    let mut began = 0;
    for i in 0..effort::case_count(INPUTS) {
        if rig.fleet.wing_numbers.is_running_low() {
            rig.fleet.wing_numbers.refill(1 + i * 1000);
        }
        apply_random_input(&mut rig, &mut dice);
        if i % 50 == 0 {
            assert_consistent(&rig, i);
        }
        began = began.max(rig.fleet.job_lifecycles().filter(|m| m.generation.number > 0).count());
    }
    // Fewer inputs start fewer jobs. More inputs cannot start more jobs than exist.
    let enough = effort::at_least(u64::from(JOBS) / 3 + 1).min(u64::from(JOBS) / 3 + 1);
    assert!(began as u64 >= enough, "only {began} jobs ever ran");
}
