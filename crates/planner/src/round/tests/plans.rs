//! What the planner gets for a job with several execution plans.

use infill_model::{BatchMode, DeclaredPlan, NodeType, PlanNeeds, ProfileKey};

use super::*;

/// A job with two plans that runs on n1 and n2, or waits.
fn with_plans(nodes: &str) -> JobFacts {
    let mut facts = job(1, nodes);
    facts.program.reported = Some(("bert".to_owned(), BatchMode::Auto));
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
fn offered(
    state: &mut RoundState,
    facts: &JobFacts,
) -> Vec<(String, Option<NodeType>, Option<AllowedSizes>)> {
    let input = state.round_input(std::slice::from_ref(facts), RoundConstraints::FREE, NOW);
    let rates = input.jobs[0].rates.iter();
    rates.map(|r| (r.exec_plan.0.clone(), r.node_type.clone(), r.sizes.clone())).collect()
}

#[test]
fn what_does_not_fit_into_memory_is_not_offered_even_without_measurements() {
    let mut state = round_state();
    let facts = with_plans("n1 n2");
    look(&mut state, std::slice::from_ref(&facts));
    let of = |name: &str| (name.to_owned(), None, None);
    assert_eq!(offered(&mut state, &facts), [of("offload"), of("in_gpus")]);
    let key = state.profile_key(&facts.program, facts.place.lead_now.as_ref());
    state.job_advisor_mut().record_out_of_memory(&key, 2, NOW);
    assert_eq!(offered(&mut state, &facts), [of("in_gpus")]);
    // Where nothing is left, all plans are offered, and the job fails by itself.
    let other = ProfileKey { exec_plan: ExecPlan("in_gpus".to_owned()), ..key };
    state.job_advisor_mut().record_out_of_memory(&other, 2, NOW);
    assert_eq!(offered(&mut state, &facts), [of("offload"), of("in_gpus")]);
}

#[test]
fn a_job_that_stays_alive_changes_its_size_cheaply_and_its_plan_at_the_cost_of_a_restart() {
    let mut state = round_state();
    let mut facts = with_plans("n1 n2");
    look(&mut state, std::slice::from_ref(&facts));
    let priced = |state: &mut RoundState, facts: &JobFacts| {
        let input = state.round_input(std::slice::from_ref(facts), RoundConstraints::FREE, NOW);
        let job = &input.jobs[0];
        let job_input = state.job_input(facts);
        assert_eq!(job.swap_secs, job_input.swap_secs);
        (job.costs.up_secs, job.costs.down_secs, job.costs.start_secs, job.swap_secs)
    };
    assert_eq!(priced(&mut state, &facts), (18.0, 12.0, 18.0, None), "a restart either way");
    facts.changing.way = RescaleMode::Live;
    assert_eq!(priced(&mut state, &facts), (3.0, 2.0, 18.0, Some(18.0)));
    let words = state.describe_rescale(&facts);
    assert_eq!(
        words,
        "its processes stay alive: 3.0 s to grow, 2.0 s to shrink, 18 s to start, 18 s to change its plan"
    );
    // The costs that its owner declares are those of restarts.
    facts.claims.costs = Some(RescaleCosts { up_secs: 40.0, down_secs: 30.0, start_secs: 50.0 });
    assert_eq!(priced(&mut state, &facts), (3.0, 2.0, 50.0, Some(40.0)));
    facts.claims.plans.truncate(1);
    assert_eq!(priced(&mut state, &facts).3, None, "it has no other plan");
}

#[test]
fn a_plan_that_shards_the_model_is_offered_more_nodes_at_once() {
    let mut state = round_state();
    let mut facts = with_plans("n1 n2");
    facts.claims.plans.truncate(1);
    facts.claims.plans[0].shards = true;
    look(&mut state, std::slice::from_ref(&facts));
    let key = state.profile_key(&facts.program, facts.place.lead_now.as_ref());
    state.job_advisor_mut().record_out_of_memory(&key, 2, NOW);
    assert_eq!(offered(&mut state, &facts), [("offload".to_owned(), None, Some(AllowedSizes::Set(vec![4])))]);
    // So is a program with one plan.
    facts.claims.plans.clear();
    facts.program.exec_plan = ExecPlan::default();
    let key = state.profile_key(&facts.program, facts.place.lead_now.as_ref());
    state.job_advisor_mut().record_out_of_memory(&key, 2, NOW);
    assert_eq!(
        offered(&mut state, &facts),
        [("default".to_owned(), None, Some(AllowedSizes::Set(vec![3, 4])))]
    );
}
