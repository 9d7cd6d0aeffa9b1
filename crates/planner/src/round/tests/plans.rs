//! What the planner is told of a job with several execution plans.

use infill_model::{BatchMode, DeclaredPlan, NodeType, PlanNeeds, ProfileKey};

use super::*;

/// A job with two plans that runs on n1 and n2, or waits.
fn with_plans(nodes: &str) -> JobFacts {
    let mut facts = job(1, nodes);
    facts.program.told = Some(("bert".to_owned(), BatchMode::Auto));
    facts.program.exec_plan = ExecPlan("offload".to_owned());
    let plan = |name: &str| DeclaredPlan {
        name: ExecPlan(name.to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: false,
        strategy: None,
        needs: PlanNeeds::default(),
    };
    facts.claims.plans = vec![plan("offload"), plan("in_gpus")];
    facts
}

/// Plans of the job with their types and sizes.
fn offered(scene: &mut Scene, facts: &JobFacts) -> Vec<(String, Option<NodeType>, Option<Sizes>)> {
    let question = scene.question(std::slice::from_ref(facts), Terms::FREE, NOW);
    let rates = question.jobs[0].rates.iter();
    rates.map(|r| (r.exec_plan.0.clone(), r.node_type.clone(), r.sizes.clone())).collect()
}

#[test]
fn what_does_not_fit_into_memory_is_not_offered_though_nothing_was_measured_yet() {
    let mut scene = scene();
    let facts = with_plans("n1 n2");
    look(&mut scene, std::slice::from_ref(&facts));
    let of = |name: &str| (name.to_owned(), None, None);
    assert_eq!(offered(&mut scene, &facts), [of("offload"), of("in_gpus")]);
    let key = scene.key(&facts.program, facts.place.lead_now.as_ref());
    scene.library_mut().overflowed(&key, 2, NOW);
    assert_eq!(offered(&mut scene, &facts), [of("in_gpus")]);
    // Where nothing is left, it fails as itself.
    let other = ProfileKey { exec_plan: ExecPlan("in_gpus".to_owned()), ..key };
    scene.library_mut().overflowed(&other, 2, NOW);
    assert_eq!(offered(&mut scene, &facts), [of("offload"), of("in_gpus")]);
}

#[test]
fn a_plan_that_shards_the_model_is_offered_more_nodes_at_once() {
    let mut scene = scene();
    let mut facts = with_plans("n1 n2");
    facts.claims.plans.truncate(1);
    facts.claims.plans[0].shards = true;
    look(&mut scene, std::slice::from_ref(&facts));
    let key = scene.key(&facts.program, facts.place.lead_now.as_ref());
    scene.library_mut().overflowed(&key, 2, NOW);
    assert_eq!(offered(&mut scene, &facts), [("offload".to_owned(), None, Some(Sizes::Set(vec![4])))]);
    // So is a program with one plan.
    facts.claims.plans.clear();
    facts.program.exec_plan = ExecPlan::default();
    let key = scene.key(&facts.program, facts.place.lead_now.as_ref());
    scene.library_mut().overflowed(&key, 2, NOW);
    assert_eq!(offered(&mut scene, &facts), [("default".to_owned(), None, Some(Sizes::Set(vec![3, 4])))]);
}
