//! Jobs with the same excluded nodes share one list.

use super::*;
use infill_model::NodeStrike;

#[test]
fn jobs_that_are_kept_off_the_same_nodes_share_one_list() {
    let mut state = round_state();
    let asked: ExcludedNodes = ["n1", "n2"].map(NodeName::from).into_iter().collect();
    let jobs: Vec<JobFacts> =
        (1..=100).map(|id: u32| JobFacts { excluded: asked.clone(), ..job(id, "") }).collect();
    look(&mut state, &jobs);
    let lists = |state: &RoundState| {
        let input = state.round_input(&jobs, RoundConstraints::FREE, NOW);
        let lists: Vec<ExcludedNodes> = input.jobs.iter().map(|job| job.excluded.clone()).collect();
        assert!(lists.iter().all(|list| list.list_id() == lists[0].list_id()));
        lists[0].clone()
    };
    assert_eq!(lists(&state).list_id(), asked.list_id(), "nothing is added to what they ask for");
    for job in 1..=4 {
        let strike =
            NodeStrike { job: JobId(job), user: UserId(1), at: NOW, why: "it fails there".to_owned() };
        state.breaker_mut().record_strike(&NodeName::from("n4"), strike);
    }
    assert_eq!(lists(&state)[..], ["n1", "n2", "n4"].map(NodeName::from));
}
