//! What owners say of their jobs reaches those who reckon with it.

use super::*;
use infill_model::{DeclaredPlan, ModelFacts, PlanNeeds, Strategy};

#[test]
fn the_advisor_is_told_what_the_owner_says_of_plans_and_model() {
    let plan = DeclaredPlan {
        name: ExecPlan("tp2".to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: true,
        strategy: Some(Strategy { tp: 2, ..Strategy::default() }),
        needs: PlanNeeds { cpus: Some(8), ..PlanNeeds::default() },
    };
    let model = Some(ModelFacts::of_params(1500.0));
    let claims = Claims { plans: vec![plan.clone()], model, gpus_per_node: Some(4), ..Claims::default() };
    let subject = scene().subject(&JobFacts { claims, ..job(1, "n1") });
    assert_eq!((subject.plans, subject.model, subject.gpus_per_node), (vec![plan], model, Some(4)));
}
