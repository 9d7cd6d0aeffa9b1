//! Main jobs that wings extend, where GPUs are lent.

use super::*;
use infill_model::{CpuMemory, Node, NodeType, PlaceShare, Plan, Resources};

const A100: &str = "gpu:a100:1/cpu4";
const T4: &str = "gpu:t4:1/cpu4";

fn places(text: &str) -> Vec<NodeName> {
    text.split_whitespace().map(NodeName::from).collect()
}

/// Three nodes of four GPUs: n1 and n2 have A100, n3 has T4. Main job 7 has the places `own` of n1, for which
/// Slurm gave it ten CPUs. Another main job has `n2:3`.
fn snapshot_with(own: &NodeName) -> Snapshot {
    let portion = |cpus| CpuMemory { cpus, memory_mib: 0 };
    let parts = own.single_places();
    let place = |(node, number): (&str, usize)| {
        let name = NodeName::from(node).place_name(number);
        let is_own = parts.contains(&name);
        let is_main = node == "n2" && number == 3;
        let held = portion(if is_own { 5 } else { 0 });
        let mut node = Node {
            partitions: vec!["infill".to_owned(), "main".to_owned()],
            has: Resources { cpus: 4, ..Resources::default() },
            share: Some(PlaceShare {
                own: portion(4),
                held,
                free: portion(if node == "n1" { 6 } else { 16 }),
            }),
            ..Node::new(name, NodeType::new(if node == "n3" { T4 } else { A100 }))
        };
        if is_own || is_main {
            node.state.remove("IDLE");
            node.state.insert("ALLOCATED");
        }
        node
    };
    let all = ["n1", "n2", "n3"].into_iter().flat_map(|node| (0..4).map(move |number| (node, number)));
    let main = |id: u32, nodes: Vec<NodeName>| {
        let mut job = pending_job(id, 1);
        job.state = infill_model::JobState::from_base(infill_model::BaseState::Running);
        job.end_time = Some(NOW + 86_400);
        job.nodes = nodes;
        job
    };
    Snapshot {
        nodes: all.map(place).collect(),
        jobs: vec![main(7, parts.clone()), main(50, places("n2:3"))],
        ..snapshot()
    }
}

/// Job 7, which runs on its own places only, as a malleable job.
fn facts(own: &NodeName, held: &str) -> JobFacts {
    let mut facts = job(7, held);
    facts.location.own = vec![own.clone()];
    facts.location.places_per_node = own.single_places().len() as u32;
    facts.program.places_per_node = facts.location.places_per_node;
    facts.running = Some(facts.location.held.len() as u32);
    facts
}

fn solved(state: &mut RoundState, own: &NodeName, jobs: &[JobFacts]) -> (RoundInput, Plan) {
    let _ = state.ingest_snapshot(&snapshot_with(own), jobs, AdvisorMode::Watch, NOW);
    let input = state.round_input(jobs, RoundConstraints::FREE, NOW);
    let mut config = Config::default();
    config.slurm.partition = "infill".to_owned();
    let checked = check_solved_plan(&input, &config, Ok(input.solve_plan(&config))).unwrap();
    assert_eq!(checked.refused, Vec::new());
    (input, checked.plan)
}

fn nodes_of(plan: &Plan, job: u32) -> Vec<String> {
    let planned = plan.jobs.iter().find(|planned| planned.job == JobId(job));
    let mut nodes: Vec<String> = planned.iter().flat_map(|j| &j.nodes).map(|p| p.node.to_string()).collect();
    nodes.sort();
    nodes
}

#[test]
fn gpus_of_a_main_job_are_one_worker_that_no_other_job_can_have() {
    let own = NodeName::from("n1:0+2");
    let mut state = round_state();
    let jobs =
        [facts(&own, "n1:0+2"), JobFacts { sizes: AllowedSizes::Range { min: 1, max: 12 }, ..job(8, "") }];
    let (input, plan) = solved(&mut state, &own, &jobs);
    for place in own.single_places() {
        let gap = input.gaps.get(&place).unwrap();
        assert_eq!((gap.holder, gap.node_type.as_str()), (Some(JobId(7)), A100));
        let share = gap.share.unwrap();
        assert_eq!((share.own.cpus, share.held.cpus, share.free.cpus), (4, 5, 6), "what Slurm gave it");
        assert!(input.jobs[1].excluded.contains(&place) && !input.jobs[0].excluded.contains(&place));
    }
    assert!(input.gaps.get(&NodeName::from("n2:3")).is_none(), "another main job's");
    assert_eq!(input.gaps.gaps.len(), 11, "each is counted once");
    assert!(
        state.gaps().get(&NodeName::from("n1:0")).is_none(),
        "the state itself does not have it as a gap"
    );
    assert!(input.jobs[0].rates.iter().all(|rate| rate.node_type == Some(NodeType::new(A100))));
    let first = nodes_of(&plan, 7);
    let second = nodes_of(&plan, 8);
    assert!(first.contains(&"n1:0+2".to_owned()), "{first:?}");
    assert!(first.iter().all(|node| NodeName::new(node.clone()).single_places().len() == 2), "{first:?}");
    assert!(first.iter().all(|node| !node.starts_with("n3")), "of its own type: {first:?}");
    assert!(!second.is_empty());
    let mut all: Vec<NodeName> =
        first.iter().chain(&second).flat_map(|n| NodeName::new(n.clone()).single_places()).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "no place twice: {first:?} {second:?}");
}

#[test]
fn alone_a_main_job_gets_all_wings_of_its_type_and_keeps_its_own_places() {
    for (own, wings) in [("n1:0+2", 2), ("n1:1", 3), ("n1:0+1+2+3", 0)] {
        let own = NodeName::from(own);
        let mut state = round_state();
        let (_, plan) = solved(&mut state, &own, &[facts(&own, own.as_str())]);
        let nodes = nodes_of(&plan, 7);
        assert!(nodes.contains(&own.to_string()) && nodes.len() == wings + 1, "{own}: {nodes:?}");
        // It shrinks to its own places where it may have nothing else, and no further.
        let held = nodes.join(" ");
        let mut jobs = [facts(&own, &held)];
        jobs[0].location.lead = Some(own.clone());
        jobs[0].location.lead_now = Some(own.clone());
        let input = state.round_input(&jobs, RoundConstraints { drain: true, ..RoundConstraints::FREE }, NOW);
        assert_eq!(input.gaps.get(&own.single_places()[0]).and_then(|gap| gap.holder), Some(JobId(7)));
        assert!(input.gaps.get(&own.single_places()[0]).unwrap().usable_until > NOW + 80_000);
    }
}
