//! The administrator's limits on jobs and users.

use super::*;
use infill_model::config::SafetyConfig;
use infill_model::{BlackoutSpan, StartBlocker};
use infill_testkit::effort;

fn config_with(safety: SafetyConfig) -> Arc<Config> {
    let mut config = Config { safety, ..Config::default() };
    config.slurm.partition = "infill".to_owned();
    config.gaps.leave_secs = 15.0;
    Arc::new(config)
}

/// Draws numbers.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }

    /// A limit, or none in half of the cases.
    fn limit(&mut self, end: u32) -> u32 {
        if self.below(2) == 0 { 0 } else { self.below(end) }
    }
}

/// A job of this user that waits since `secs` seconds ago.
fn waits(id: u32, user: u32, secs: i64) -> JobFacts {
    JobFacts { user: UserId(user), waits_since: Some(NOW + -secs), ..job(id, "") }
}

/// The nodes that each job gets, by a plan that passes the checker, and why.
fn planned(safety: &SafetyConfig, jobs: &[JobFacts]) -> Vec<(u32, String)> {
    let config = config_with(safety.clone());
    let mut state = RoundState::new(config.clone(), NOW);
    look(&mut state, jobs);
    let input = state.round_input(jobs, RoundConstraints::FREE, NOW);
    let checked = check_solved_plan(&input, &config, Ok(input.solve_plan(&config))).expect("a plan");
    assert!(checked.refused.is_empty(), "{:?}", checked.refused);
    let report = input.explain_plan(&config, &checked.plan);
    report.jobs.iter().map(|verdict| (verdict.gets, verdict.why.to_string())).collect()
}

fn counts(found: &[(u32, String)]) -> Vec<u32> {
    found.iter().map(|(nodes, _)| *nodes).collect()
}

#[test]
fn a_user_has_at_most_the_nodes_that_the_administrator_allows() {
    let safety = SafetyConfig { max_nodes_a_user: 2, ..SafetyConfig::default() };
    // Without a limit the first user would get more than two of the four.
    let alone = planned(&SafetyConfig::default(), &[job(1, "n1")]);
    assert!(alone[0].0 > 2, "{alone:?}");
    assert_eq!(counts(&planned(&safety, &[job(1, "n1")])), [2]);
    // Another user has as many.
    let other = JobFacts { user: UserId(9), ..job(2, "n3") };
    assert_eq!(counts(&planned(&safety, &[job(1, "n1"), other])), [2, 2]);
    // A user's second job gets half, and the third one waits.
    let found = planned(&safety, &[job(1, "n1 n2"), waits(2, 1, 60), waits(3, 1, 30)]);
    assert_eq!(counts(&found), [1, 1, 0]);
    let why = "together they may hold 2 nodes, and it needs 1 (safety.max_nodes_a_user)";
    assert!(found[2].1.contains(why), "{found:?}");
}

#[test]
fn at_most_so_many_jobs_train_those_that_hold_nodes_first() {
    let safety = SafetyConfig { max_jobs: 1, ..SafetyConfig::default() };
    let found = planned(&safety, &[waits(1, 1, 900), job(2, "n1")]);
    assert!(found[0].0 == 0 && found[1].0 > 0, "{found:?}");
    assert!(found[0].1.contains("no more than 1 train at a time (safety.max_jobs)"), "{found:?}");
    // The one that has waited longer comes first. One that does not fit keeps no other waiting.
    let found = planned(&safety, &[waits(1, 1, 60), waits(2, 2, 90)]);
    assert!(found[0].0 == 0 && found[1].0 > 0, "{found:?}");
    let large = JobFacts { sizes: AllowedSizes::Set(vec![8]), ..waits(2, 2, 90) };
    let found = planned(&safety, &[waits(1, 1, 60), large]);
    assert!(found[0].0 > 0 && found[1].0 == 0, "{found:?}");
    // Nor does one for which there are too few nodes, because it may not be on them.
    let excluded: ExcludedNodes = ["n1", "n2", "n3", "n4"].map(NodeName::from).into_iter().collect();
    let found = planned(&safety, &[waits(1, 1, 60), JobFacts { excluded, ..waits(2, 2, 90) }]);
    assert!(found[0].0 > 0 && found[1].0 == 0, "{found:?}");
    // A job above a limit that has become lower leaves.
    let found = planned(&safety, &[job(1, "n1"), job(2, "n2")]);
    assert!(found[0].0 > 0 && found[1].0 == 0, "{found:?}");
}

#[test]
fn at_most_so_many_jobs_of_a_user_train() {
    let safety = SafetyConfig { max_jobs_a_user: 1, ..SafetyConfig::default() };
    let found = planned(&safety, &[job(1, "n1"), waits(2, 1, 60), waits(3, 2, 30)]);
    assert!(found[0].0 > 0 && found[1].0 == 0 && found[2].0 > 0, "{found:?}");
    assert!(
        found[1].1.contains("no more than 1 of them train at a time (safety.max_jobs_a_user)"),
        "{found:?}"
    );
}

#[test]
fn busy_jobs_keep_what_they_have_and_count_first() {
    let safety = SafetyConfig { max_nodes_a_user: 2, max_jobs: 1, ..SafetyConfig::default() };
    let busy = JobFacts { scheduling_state: SchedulingState::Busy, ..job(1, "n1 n2 n3") };
    let found = planned(&safety, &[busy, waits(2, 1, 60)]);
    assert_eq!(counts(&found), [3, 0], "{found:?}");
}

#[test]
fn jobs_that_others_block_take_no_place() {
    let safety = SafetyConfig { max_jobs: 1, ..SafetyConfig::default() };
    let mut held = waits(1, 1, 900);
    held.scheduling_state = SchedulingState::Blocked(StartBlocker::Begin(NOW + 60));
    let mut later = waits(2, 1, 800);
    later.scheduling_state = SchedulingState::BackOff(NOW + 60);
    let found = planned(&safety, &[held, later, waits(3, 1, 1)]);
    assert!(found[2].0 > 0, "{found:?}");
}

/// Whatever the limits and jobs are, each plan passes the checker, and none goes to the last resort.
#[test]
fn plans_keep_all_limits() {
    let mut limited = 0;
    for seed in effort::seed_range(0..300) {
        let mut draws = Draws(seed);
        let safety = SafetyConfig {
            max_nodes: draws.limit(4),
            max_nodes_a_user: draws.limit(4),
            max_jobs: draws.limit(4),
            max_jobs_a_user: draws.limit(3),
            nodes: if seed % 3 == 0 { "n[1-3]".to_owned() } else { String::new() },
            ..SafetyConfig::default()
        };
        let mut free = vec!["n4", "n3", "n2", "n1"];
        let jobs: Vec<JobFacts> = (1..=5)
            .map(|id| {
                let held: Vec<&str> = (0..draws.below(3)).filter_map(|_| free.pop()).collect();
                let mut facts = job(id, &held.join(" "));
                facts.user = UserId(draws.below(2));
                if !held.is_empty() && draws.below(5) == 0 {
                    facts.scheduling_state = SchedulingState::Busy;
                }
                facts
            })
            .collect();
        let config = config_with(safety);
        let mut state = RoundState::new(config.clone(), NOW);
        if seed % 4 == 0 {
            let from = NOW + (i64::from(draws.below(900)) - 300);
            state.set_blackout(Some(BlackoutSpan { from, to: NOW + 3600 }));
        }
        look(&mut state, &jobs);
        let input = state.round_input(&jobs, RoundConstraints::FREE, NOW);
        let solved = input.solve_plan(&config);
        let checked = check_solved_plan(&input, &config, Ok(solved)).expect("the last resort passes");
        assert!(checked.refused.is_empty(), "seed {seed}: {:?}", checked.refused);
        let resort = check_solved_plan(&input, &config, Err("a test"));
        assert!(resort.is_ok(), "seed {seed}: {:?}", resort.err());
        let blocked = input.jobs.iter().filter(|job| !job.scheduling_state.is_in_play()).count();
        limited += usize::from(blocked > 0);
    }
    assert!(limited >= effort::at_least(50) as usize, "only {limited} rounds were limited");
}
