//! Violations about the proof of a plan.

use super::*;
use infill_model::{BoundSource, OptimalityProof};

/// The rules that a correct plan of this world breaks with its bound multiplied by `factor`.
fn broken_by_bound(world: &World, factor: f64) -> Vec<CheckerRule> {
    let mut plan = plan_without_solver(&world.problem(), "test");
    passes(world, &plan);
    plan.proof.as_mut().expect("a proof").bound *= factor;
    broken(world, &plan)
}

fn broken(world: &World, plan: &Plan) -> Vec<CheckerRule> {
    let violations = check_plan(&world.problem(), plan).err().unwrap_or_default();
    violations.iter().map(|v| v.rule()).collect()
}

#[test]
fn a_job_of_little_weight_leaves_no_larger_margin_for_ties() {
    for weight in ["0.001", "1", "1000"] {
        let world = World::new(NODES, &[&format!("1 1-2 linear w={weight}")]);
        assert_eq!(broken_by_bound(&world, 1.0 + 1e-6), [], "{weight}");
        assert_eq!(broken_by_bound(&world, 1.02), [CheckerRule::Gap], "{weight}");
    }
}

#[test]
fn a_bound_below_the_value_may_stand_where_later_nodes_are_open() {
    // The job gives up n2 after 600 s, and the plan does not say which nodes it has then.
    assert_eq!(broken_by_bound(&World::new(TWO_STEPS.0, TWO_STEPS.1), 0.9), []);
    // Some of the later nodes may be of a type on which it is faster.
    let faster = World::new("n1:1800 n2:600", &["1 1 linear held=n1 on:b=1:2"]);
    assert_eq!(broken_by_bound(&faster, 0.9), []);
    // It stays as it is to the end.
    let settled = World::new("n1:1800 n2:600", &["1 1 linear held=n1"]);
    assert_eq!(broken_by_bound(&settled, 0.9), [CheckerRule::Bound]);
    // It parks after 600 s, so no later node is open.
    let parks = World::new("n1:600 n2:600 n3:1800", &["1 2 linear"]);
    assert_eq!(broken_by_bound(&parks, 0.9), [CheckerRule::Bound]);
}

#[test]
fn a_worthless_plan_with_a_bound_far_above_is_refused() {
    let world = World::new("n1:1800", &["1 2 linear"]);
    let mut plan = plan_without_solver(&world.problem(), "test");
    assert_eq!((show(&plan), plan.objective), ("1: -".to_owned(), 0.0));
    plan.proof = Some(OptimalityProof { bound: 0.0, gap: 0.0, by: BoundSource::Branches });
    passes(&world, &plan);
    plan.proof = Some(OptimalityProof { bound: 100.0, gap: 0.0, by: BoundSource::Branches });
    assert_eq!(broken(&world, &plan), [CheckerRule::Gap]);
}
