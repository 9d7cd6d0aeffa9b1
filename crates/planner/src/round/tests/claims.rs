//! What owners declare about their jobs reaches the advisor and the planner.

use super::*;
use infill_model::{
    CpuMemory, DeclaredPlan, ModelFacts, Node, NodeType, ParallelStrategy, PlaceShare, PlanNeeds,
};

#[test]
fn the_advisor_gets_what_the_owner_declares_about_plans_and_model() {
    let plan = DeclaredPlan {
        name: ExecPlan("tp2".to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: true,
        strategy: Some(ParallelStrategy { tp: 2, ..ParallelStrategy::default() }),
        needs: PlanNeeds { cpus: Some(8), ..PlanNeeds::default() },
    };
    let model = Some(ModelFacts::from_params(1500.0));
    let declaration = JobDeclaration {
        plans: vec![plan.clone()],
        model,
        gpus_per_node: Some(4),
        ..JobDeclaration::default()
    };
    let job_input = round_state().job_input(&JobFacts { declaration, ..job(1, "n1") });
    assert_eq!((job_input.plans, job_input.model, job_input.gpus_per_node), (vec![plan], model, Some(4)));
}

#[test]
fn the_planner_gets_what_plans_need_and_what_places_come_with() {
    let plan = |name: &str, cpus| DeclaredPlan {
        name: ExecPlan(name.to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: false,
        strategy: None,
        needs: PlanNeeds { cpus, ..PlanNeeds::default() },
    };
    let portion = |cpus| CpuMemory { cpus, memory_mib: 0 };
    let share = PlaceShare { own: portion(4), held: portion(0), free: portion(9) };
    let place = |at: usize| Node {
        partitions: vec!["infill".to_owned()],
        share: Some(share),
        ..Node::new(NodeName::from("n1").place_name(at), NodeType::new("gpu:a100:1/cpu4"))
    };
    let snapshot = Snapshot { nodes: (0..2).map(place).collect(), ..snapshot() };
    let declaration = JobDeclaration {
        plans: vec![plan("ddp", None), plan("offload", Some(8))],
        ..JobDeclaration::default()
    };
    let facts = [JobFacts { declaration, ..job(7, "") }];
    let mut state = round_state();
    let _ = state.ingest_snapshot(&snapshot, &facts, AdvisorMode::Unasked, NOW);
    let input = state.round_input(&facts, RoundConstraints::FREE, NOW);
    let shares: Vec<Option<PlaceShare>> = input.gaps.gaps.iter().map(|gap| gap.share).collect();
    assert_eq!(shares, [Some(share); 2]);
    let needs = input.jobs[0].rates.iter().map(|rate| (rate.exec_plan.0.as_str(), rate.needs.cpus));
    assert_eq!(needs.collect::<Vec<_>>(), [("ddp", None), ("offload", Some(8))]);
}
