//! The decision space: its shortcuts for large rounds must change no result.

use super::decision::DecisionSpace;
use crate::plan::tests::random_worlds;
use infill_model::ChangeKind;
use infill_testkit::effort;

/// All paths of a job whose options are allowed.
pub fn all_paths(space: &DecisionSpace<'_>, job: usize) -> Vec<Vec<usize>> {
    let mut paths = vec![Vec::new()];
    for step in 0..space.steps.len() {
        let allowed: Vec<usize> =
            (0..space.jobs[job].options.len()).filter(|o| space.is_allowed(job, *o, step)).collect();
        paths =
            paths.iter().flat_map(|p| allowed.iter().map(move |o| [p.as_slice(), &[*o]].concat())).collect();
    }
    paths
}

#[test]
fn a_change_costs_what_its_kind_costs() {
    let mut seen = 0;
    for seed in effort::seed_range(40_000..40_200) {
        let world = random_worlds::world(seed, 4, 10);
        let problem = world.problem();
        for job in &DecisionSpace::from_problem(&problem).jobs {
            for (from, a) in job.options.iter().enumerate() {
                for (to, b) in job.options.iter().enumerate() {
                    let change = a.change_to(b, from == to);
                    let reluctance = if change.takes_nodes() { job.reluctance } else { 0.0 };
                    let expect = job.job.change_loss(change, b.rate) * job.job.weight + reluctance;
                    assert_eq!(job.change_cost(from, to), expect, "seed {seed}: {a:?} to {b:?}");
                    seen += u64::from(change == ChangeKind::Shrink);
                }
            }
        }
    }
    assert!(seen >= effort::at_least(501), "only {seen} changes were checked");
}
