//! For each rule a plan that breaks only this rule. And: checker and planner compute the same values.

use std::collections::BTreeSet;

use super::rule::CheckerRule;
use super::{checked_job::CheckedJob, recomputed_value};
use crate::plan::tests::random_worlds;
use crate::plan::tests::worlds::*;
use infill_model::{BlackoutSpan, TurnState};
use infill_testkit::effort;

mod each_reason;
mod hosts;
mod proofs;
mod reasons;
mod values;

/// A correct plan of a world, and what makes it wrong.
struct WrongPlan {
    /// Gaps and jobs, as [`World::new`] reads them.
    world: (&'static str, &'static [&'static str]),
    /// The change to the world after the plan is made.
    change_world: fn(&mut World),
    /// The change to the plan.
    spoil: fn(&mut Plan),
    /// Whether the planner evaluates the plan again afterwards, so that its objective is true.
    is_evaluated: bool,
}

/// A wrong plan with a true objective.
fn wrong(
    world: (&'static str, &'static [&'static str]),
    change_world: fn(&mut World),
    spoil: fn(&mut Plan),
) -> WrongPlan {
    WrongPlan { world, change_world, spoil, is_evaluated: true }
}

/// A wrong plan with the objective that was true before the change.
fn lie(world: (&'static str, &'static [&'static str]), spoil: fn(&mut Plan)) -> WrongPlan {
    WrongPlan { world, change_world: |_| (), spoil, is_evaluated: false }
}

/// Two nodes, and the jobs of most wrong plans: one that waits, one that runs on both.
const NODES: &str = "n1:1800 n2:1800";
const WAITS: (&str, &[&str]) = (NODES, &["1 1-2 linear"]);
const RUNS: (&str, &[&str]) = (NODES, &["1 1-2 linear held=n1,n2"]);
const GROWS: (&str, &[&str]) = (NODES, &["1 1-2 linear held=n1"]);
const ONE_EACH: (&str, &[&str]) = (NODES, &["1 1 linear", "2 1 linear"]);
/// The second one gets nothing.
const RIVALS: (&str, &[&str]) = ("n1:1800", &["1 1 linear age=20", "2 1 linear age=10"]);
/// The first one is parked for the second.
const OUTBID: (&str, &[&str]) = ("n1:1800", &["1 1 linear held=n1", "2 1 linear w=9"]);
/// The second one keeps all nodes.
const HOLDS_ALL: (&str, &[&str]) = (NODES, &["1 1 linear", "2 1-2 linear w=9 held=n1,n2"]);
/// The second one grows, beside one that is busy.
const GROWS_BESIDE: (&str, &[&str]) = (
    "n1:1800 n2:1800 n3:1800 n4:1800",
    &["1 2 linear", "2 1-2 linear w=9 held=n1", "3 1-2 linear held=n3,n4 busy"],
);
const TWO_STEPS: (&str, &[&str]) = ("n1:1800 n2:600", &["1 1-2 linear"]);

/// Four places of one node, and a job of one or two blocks of them. The last two places end first.
const BLOCKS: (&str, &[&str]) = ("n1#0:1800 n1#1:1800 n1#2:600 n1#3:600", &["1 1-2 linear block=2"]);

/// Two places of one host, and a job on each.
const PLACES: (&str, &[&str]) = ("n1#0:1800 n1#1:1800", &["1 1 linear", "2 1 linear"]);
/// One that could run another plan, and the job beside it.
const BESIDE: (&str, &[&str]) =
    ("n1#0:1800 n1#1:1800", &["1 1 linear plan:big=linear held=n1:0", "2 1 linear held=n1:1"]);

/// Counts what a host has, and what each worker with one plan of the first job needs.
fn count_shares(world: &mut World, has: &str, plan: usize, cpus: Option<u32>, memory_mib: Option<u64>) {
    world.count((4, 1000), has);
    world.jobs[0].rates[plan].needs = PlanNeeds { cpus, memory_mib, gpu_memory_mib: None };
}

fn as_it_was(_: &mut World) {}

/// Wrong plans of blocks of places. Each breaks this rule only.
fn wrong_blocks(rule: CheckerRule) -> Vec<WrongPlan> {
    match rule {
        // Two blocks are four places, and two places last.
        CheckerRule::ForecastNodes => vec![wrong(BLOCKS, as_it_was, |p| p.jobs[0].forecast[0].1 = 2)],
        CheckerRule::HeldOnce => vec![
            // The second job gets a place in the middle of the first one's block.
            wrong(("n1#0:1800 n1#1:1800 n2#0:1800", &["1 1 linear block=2", "2 1 linear"]), as_it_was, |p| {
                p.jobs[1].nodes[0].node = NodeName::from("n1:1")
            }),
            // Two blocks of one job share a place.
            wrong(("n1#0:1800 n1#1:1800 n1#2:1800 n1#3:1800", &["1 2 linear block=2"]), as_it_was, |p| {
                p.jobs[0].nodes[1].node = NodeName::from("n1:1+2")
            }),
        ],
        // The place that ends first counts, wherever it stands in the block.
        CheckerRule::Lease => {
            let longer = |p: &mut Plan| {
                let lease = &mut p.jobs[0].nodes[0].lease_until;
                *lease = *lease + 1;
            };
            vec![
                wrong(("n1#0:1800 n1#1:900", &["1 1 linear block=2"]), as_it_was, longer),
                wrong(("n1#0:900 n1#1:1800", &["1 1 linear block=2"]), as_it_was, longer),
            ]
        }
        _ => Vec::new(),
    }
}

/// Wrong plans that give out more of a host than it has.
fn wrong_host_shares() -> Vec<WrongPlan> {
    vec![
        wrong(PLACES, |w| count_shares(w, "n1=8/2000", 0, Some(5), None), |_| ()),
        wrong(PLACES, |w| count_shares(w, "n1=9/2000", 0, Some(5), Some(1001)), |_| ()),
        // One that runs goes over to a plan that needs more than it has.
        wrong(
            BESIDE,
            |w| count_shares(w, "n1=8/2000", 1, Some(5), None),
            |p| {
                p.jobs[0].exec_plan = ExecPlan("big".to_owned());
            },
        ),
        // A place that ends takes its share with it.
        wrong(
            PLACES,
            |w| {
                count_shares(w, "n1=8/2000 n2=4/1000", 0, Some(5), None);
                let gone = Gap { usable_until: NOW + 2, ..w.gaps.gaps[0].clone() };
                w.gaps.gaps[0].node = NodeName::from("n2:0");
                w.gaps.gaps = vec![gone, w.gaps.gaps[1].clone(), w.gaps.gaps[0].clone()];
            },
            |p| p.jobs[1].nodes[0].node = NodeName::from("n2:0"),
        ),
        // What one job is promised and has not got yet does not count for another job.
        wrong(
            BESIDE,
            |w| {
                count_shares(w, "n1=8/2000", 0, Some(6), None);
                let share = w.gaps.gaps[0].share.as_mut().unwrap();
                share.held = CpuMemory::default();
                w.gaps.gaps[1].share.as_mut().unwrap().held = CpuMemory::default();
                w.gaps.gaps.iter_mut().for_each(|gap| gap.share.as_mut().unwrap().free.cpus = 8);
                w.gaps.gaps[1].holder = None;
                w.jobs[1].held = Vec::new();
                w.jobs[1].lead_node = None;
                w.jobs[1].scheduling_state = SchedulingState::Waiting;
            },
            |_| (),
        ),
    ]
}

fn keeps_minimum(world: &mut World) {
    world.jobs[0].turn = Some(TurnState::Keeps { until: NOW + 60 });
}

/// Plans whose objective is not their value.
fn wrong_objectives() -> Vec<WrongPlan> {
    vec![
        lie(WAITS, |p| p.objective *= 1.01),
        lie(TWO_STEPS, |p| p.objective *= 0.99),
        lie(RUNS, |p| p.objective = f64::NAN),
        // Moved, grown and shrunk without cost.
        lie((NODES, &["1 1 linear held=n1"]), |p| p.jobs[0].nodes[0].node = NodeName::from("n2")),
        WrongPlan { change_world: |w| w.jobs[0].costs.up_secs *= 2.0, ..lie(GROWS, |_| ()) },
        WrongPlan { change_world: |w| w.jobs[0].costs.down_secs *= 2.0, ..lie(TWO_STEPS, |_| ()) },
    ]
}

/// Wrong plans. Each breaks this rule only.
fn wrong_plans(rule: CheckerRule) -> Vec<WrongPlan> {
    match rule {
        CheckerRule::Order => vec![wrong(RIVALS, as_it_was, |p| p.jobs.push(p.jobs[1].clone()))],
        CheckerRule::KnownJob => vec![wrong(RIVALS, |w| drop(w.jobs.pop()), |_| ())],
        CheckerRule::Moment => vec![
            wrong(WAITS, as_it_was, |p| p.at = p.at + 1),
            wrong(WAITS, as_it_was, |p| p.steps[0] = p.steps[0] + -1),
        ],
        CheckerRule::Budget => vec![wrong(ONE_EACH, |w| w.config.max_changes = 1, |_| ())],
        CheckerRule::ForecastNodes => vec![wrong(TWO_STEPS, as_it_was, |p| p.jobs[0].forecast[0].1 = 2)],
        CheckerRule::Objective => wrong_objectives(),
        CheckerRule::Bound => vec![lie(WAITS, |p| p.proof.as_mut().unwrap().bound *= 0.9)],
        CheckerRule::Gap => vec![
            lie(WAITS, |p| p.proof.as_mut().unwrap().bound *= 1.05),
            lie(WAITS, |p| p.proof.as_mut().unwrap().gap = f64::NAN),
        ],
        CheckerRule::Complete => vec![wrong(RIVALS, as_it_was, |p| drop(p.jobs.pop()))],
        CheckerRule::Busy => vec![
            wrong((NODES, &["1 1-2 linear held=n1,n2 busy"]), as_it_was, |p| {
                drop(p.jobs[0].nodes.pop());
                p.jobs[0].rate = 1.0;
            }),
            wrong((NODES, &["1 1 linear held=n1 busy"]), as_it_was, |p| {
                p.jobs[0].nodes[0].node = NodeName::from("n2");
            }),
            wrong((NODES, &["1 1 linear plan:other=linear held=n1 busy"]), as_it_was, |p| {
                p.jobs[0].exec_plan = ExecPlan("other".to_owned());
            }),
        ],
        CheckerRule::Drain => vec![wrong(RUNS, |w| w.drain = true, |_| ())],
        CheckerRule::BackOff => {
            vec![wrong(WAITS, |w| w.jobs[0].scheduling_state = SchedulingState::BackOff(NOW + 40), |_| ())]
        }
        // A node is new unless both the job and the gap say that the job holds it.
        CheckerRule::Pause => vec![
            wrong(WAITS, |w| w.may_grow = false, |_| ()),
            wrong(RUNS, |w| (w.may_grow, w.gaps.gaps[1].holder) = (false, None), |_| ()),
            wrong(GROWS, |w| (w.may_grow, w.gaps.gaps[1].holder) = (false, Some(JobId(1))), |_| ()),
        ],
        CheckerRule::MinStay => vec![
            wrong(GROWS, |w| w.jobs[0].last_change = Some(NOW + -1), |_| ()),
            wrong(
                GROWS,
                |w| (w.jobs[0].last_change, w.jobs[0].stay_secs) = (Some(NOW + -100), 600.0),
                |_| (),
            ),
        ],
        CheckerRule::Turn => vec![wrong(OUTBID, keeps_minimum, |_| ())],
        // One is parked, one is left below its rate, and one grows while another waits for a busy job.
        CheckerRule::Promise => vec![
            wrong(OUTBID, |w| promise(&mut w.jobs[0], 1.0), |_| ()),
            wrong(HOLDS_ALL, |w| promise(&mut w.jobs[0], 1.0), |_| ()),
            wrong(GROWS_BESIDE, |w| promise(&mut w.jobs[0], 2.0), |_| ()),
        ],
        // More than the largest size, and one between two sizes.
        CheckerRule::Size => vec![
            wrong(WAITS, |w| w.jobs[0].sizes = AllowedSizes::parse("1").unwrap(), |_| ()),
            wrong(WAITS, |w| w.jobs[0].sizes = AllowedSizes::parse("1,4").unwrap(), |_| ()),
        ],
        CheckerRule::ForecastSize => {
            vec![wrong(TWO_STEPS, |w| w.jobs[0].sizes = AllowedSizes::parse("2").unwrap(), |_| ())]
        }
        CheckerRule::Rate => vec![lie(WAITS, |p| p.jobs[0].rate *= 1.01)],
        CheckerRule::KnownRate => vec![wrong(
            WAITS,
            |w| w.jobs[0].rates[0].node_type = Some(NodeType::new("b")),
            |p| p.jobs[0].rate = 0.0,
        )],
        CheckerRule::ForecastSteps => {
            vec![wrong(TWO_STEPS, as_it_was, |p| p.jobs[0].forecast[0].0 = NOW + 1000)]
        }
        CheckerRule::HeldOnce => vec![
            wrong(ONE_EACH, as_it_was, |p| p.jobs[1].nodes = p.jobs[0].nodes.clone()),
            wrong(WAITS, as_it_was, |p| p.jobs[0].nodes[1] = p.jobs[0].nodes[0].clone()),
        ],
        // More nodes than there are.
        CheckerRule::IsGap => {
            vec![wrong(WAITS, as_it_was, |p| p.jobs[0].nodes[1].node = NodeName::from("n9"))]
        }
        CheckerRule::Window => vec![wrong(RUNS, |w| w.gaps.gaps[1].usable_until = NOW + 2, |_| ())],
        CheckerRule::StartWindow => vec![wrong(WAITS, |w| w.min_window_secs = 4000.0, |_| ())],
        CheckerRule::Excluded => {
            vec![wrong(WAITS, |w| w.jobs[0].excluded = vec![NodeName::from("n1")].into(), |_| ())]
        }
        CheckerRule::Foreign => vec![wrong(WAITS, |w| w.gaps.gaps[0].holder = Some(JobId(77)), |_| ())],
        CheckerRule::OneType => vec![wrong(WAITS, |w| w.gaps.gaps[0].node_type = NodeType::new("b"), |_| ())],
        CheckerRule::Block => vec![wrong(WAITS, |w| w.jobs[0].places_per_node = 2, |_| ())],
        CheckerRule::Host => wrong_host_shares(),
        CheckerRule::LeadFirst => vec![wrong(RUNS, as_it_was, |p| p.jobs[0].nodes.swap(0, 1))],
        CheckerRule::Lease => vec![wrong(WAITS, as_it_was, |p| {
            let lease = &mut p.jobs[0].nodes[0].lease_until;
            *lease = *lease + 1;
        })],
        CheckerRule::AllowedNode | CheckerRule::Blackout | CheckerRule::SiteLimit => {
            wrong_by_site_limits(rule)
        }
    }
}

/// A blackout that begins this many seconds from now.
fn blackout(secs: i64) -> Option<BlackoutSpan> {
    Some(BlackoutSpan { from: NOW + secs, to: NOW + 7200 })
}

/// Plans that break a limit of the administrator.
fn wrong_by_site_limits(rule: CheckerRule) -> Vec<WrongPlan> {
    match rule {
        CheckerRule::AllowedNode => vec![
            wrong(WAITS, |w| w.limits.allowed = Some([NodeName::from("n2")].into_iter().collect()), |_| ()),
            wrong(PLACES, |w| w.limits.allowed = Some(Default::default()), |_| ()),
        ],
        // It is on, or begins before the lease ends.
        CheckerRule::Blackout => vec![
            wrong(WAITS, |w| w.limits.blackout = blackout(-60), |_| ()),
            wrong(RUNS, |w| w.limits.blackout = blackout(-60), |_| ()),
            wrong(WAITS, |w| w.limits.blackout = blackout(900), |_| ()),
        ],
        _ => wrong_numbers(),
    }
}

/// Plans with more nodes or jobs than the administrator allows, altogether or for one user.
fn wrong_numbers() -> Vec<WrongPlan> {
    vec![
        wrong(WAITS, |w| w.limits.max_nodes = Some(1), |_| ()),
        wrong(WAITS, |w| w.limits.max_nodes_a_user = Some(1), |_| ()),
        wrong(ONE_EACH, |w| w.limits.max_jobs = Some(1), |_| ()),
        wrong(ONE_EACH, |w| w.limits.max_jobs_a_user = Some(1), |_| ()),
        // Places count, not blocks.
        wrong(BLOCKS, |w| w.limits.max_nodes = Some(1), |_| ()),
        // A busy job's nodes count first: the other job may have none beside them.
        wrong(GROWS_BESIDE, |w| w.limits.max_nodes = Some(2), |_| ()),
    ]
}

#[test]
fn site_limits_leave_busy_jobs_and_own_nodes_alone() {
    let busy = World::new(NODES, &["1 1-2 linear held=n1,n2 busy"]);
    let plan = plan_without_solver(&busy.problem(), "test");
    assert_eq!(plan.jobs[0].nodes.len(), 2);
    let mut limited = busy.clone();
    let SiteLimits { max_nodes, max_nodes_a_user, max_jobs, max_jobs_a_user, .. } = &mut limited.limits;
    for limit in [max_nodes, max_nodes_a_user, max_jobs, max_jobs_a_user] {
        *limit = Some(0);
    }
    limited.limits.allowed = Some(Default::default());
    limited.limits.blackout = blackout(-60);
    passes(&limited, &plan);
    // The same for a job that is on its own nodes.
    let mut own = World::new(RUNS.0, RUNS.1);
    let plan = plan_without_solver(&own.problem(), "test");
    own.limits = SiteLimits { own: ["n1", "n2"].map(NodeName::from).into_iter().collect(), ..limited.limits };
    passes(&own, &plan);
    // Each user is counted alone.
    let mut users = World::new(ONE_EACH.0, ONE_EACH.1);
    users.jobs[1].user = UserId(77);
    users.limits.max_nodes_a_user = Some(1);
    users.limits.max_jobs_a_user = Some(1);
    passes(&users, &plan_without_solver(&users.problem(), "test"));
}

#[test]
fn each_wrong_plan_is_refused_by_its_own_rule() {
    for rule in CheckerRule::ALL {
        let mut wrong_plans = wrong_plans(*rule);
        assert!(!wrong_plans.is_empty(), "{rule:?} has no wrong plan");
        wrong_plans.extend(wrong_blocks(*rule));
        for (number, wrong) in wrong_plans.into_iter().enumerate() {
            let mut world = World::new(wrong.world.0, wrong.world.1);
            let mut plan = plan_without_solver(&world.problem(), "test");
            passes(&world, &plan);
            (wrong.change_world)(&mut world);
            (wrong.spoil)(&mut plan);
            let problem = world.problem();
            if wrong.is_evaluated {
                plan.objective =
                    evaluate_plan(&problem, &TimeSteps::from_problem(&problem), &plan).net_samples();
            }
            if !matches!(rule, CheckerRule::Bound | CheckerRule::Gap) {
                plan.proof = None;
            }
            let violations = check_plan(&problem, &plan).expect_err("a plan that breaks a rule");
            let rules: BTreeSet<CheckerRule> = violations.iter().map(|v| v.rule()).collect();
            let text: Vec<String> = violations.iter().map(ToString::to_string).collect();
            assert_eq!(rules, BTreeSet::from([*rule]), "{rule:?}, plan {number}: {text:?}");
        }
    }
}

/// The rules that a lie about a correct plan breaks.
fn broken_by(lie: impl Fn(&mut Plan)) -> Vec<CheckerRule> {
    let world = World::new(WAITS.0, WAITS.1);
    let mut plan = plan_without_solver(&world.problem(), "test");
    passes(&world, &plan);
    lie(&mut plan);
    let violations = check_plan(&world.problem(), &plan).err().unwrap_or_default();
    violations.iter().map(|v| v.rule()).collect()
}

#[test]
fn an_objective_or_a_rate_is_wrong_from_a_millionth_on() {
    for (share, is_wrong) in [(0.9e-6, false), (1.1e-6, true)] {
        for factor in [1.0 - share, 1.0 + share] {
            let expect = |rule| if is_wrong { vec![rule] } else { Vec::new() };
            assert_eq!(broken_by(|p| p.objective *= factor), expect(CheckerRule::Objective), "{factor}");
            assert_eq!(broken_by(|p| p.jobs[0].rate *= factor), expect(CheckerRule::Rate), "{factor}");
        }
    }
}

#[test]
fn a_plan_may_exceed_its_bound_by_a_hundredth() {
    let broken = |factor: f64| broken_by(|p| p.proof.as_mut().unwrap().bound *= factor);
    assert_eq!(broken(1.0 - 0.0099), []);
    assert_eq!(broken(1.0 - 0.0101), [CheckerRule::Bound]);
}

#[test]
fn a_plan_may_fall_short_of_its_bound_by_its_gap_only() {
    let broken = |factor: f64, gap: f64| {
        broken_by(|p| {
            let proof = p.proof.as_mut().unwrap();
            proof.bound *= factor;
            proof.gap = gap;
        })
    };
    // The bonuses that break ties are far below a hundred-thousandth.
    assert_eq!(broken(1.0 + 1e-6, 0.0), []);
    assert_eq!(broken(1.0 + 1e-5, 0.0), [CheckerRule::Gap]);
    assert_eq!(broken(1.02, 0.02), []);
    assert_eq!(broken(1.02 + 1e-5, 0.02), [CheckerRule::Gap]);
}

#[test]
fn violations_in_words() {
    let mut lines = Vec::new();
    for rule in CheckerRule::ALL {
        let wrong = wrong_plans(*rule).remove(0);
        let mut world = World::new(wrong.world.0, wrong.world.1);
        let mut plan = plan_without_solver(&world.problem(), "test");
        (wrong.change_world)(&mut world);
        (wrong.spoil)(&mut plan);
        let found = check_plan(&world.problem(), &plan).unwrap_err();
        let first = found.iter().find(|v| v.rule() == *rule).unwrap();
        lines.push(format!("{}: {first}", rule.word()));
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    order: jobs are not sorted, or one occurs twice
    known_job: job 2 is not in the problem
    moment: it was made for another moment or other steps
    budget: 2 voluntary changes exceed the 1 allowed
    forecast_nodes: 2 nodes are foreseen until 1970-01-12T14:16:40Z, but only 1 last that long
    objective: its objective is 3564.000, not 3599.640
    bound: its value is 3564.000, above the proven maximum of 3207.600
    gap: it is 5.000 % short of the bound, not 0.000 % as its proof says
    complete: job 2: is missing from the plan
    busy: job 1: is in the middle of a change and must be left alone
    drain: job 1: gets nodes although all jobs are to be parked
    back_off: job 1: gets nodes although it backs off
    pause: job 1: gets new nodes although growth is paused
    min_stay: job 1: is changed although it was changed a moment ago
    turn: job 1: is parked although its turn has not ended
    promise: job 1: makes less than the 1.000 samples/s promised to it
    size: job 1: gets 2 nodes, but allows 1
    forecast_size: job 1: is foreseen on 1 node, but allows 2
    rate: job 1: has 2.020 samples/s in the plan, but 2.000 in its profile
    known_rate: job 1: has no known rate on 2 of these nodes
    forecast_steps: job 1: has a forecast for other steps
    held_once: job 2: node n2: is given to job 1 too
    is_gap: job 1: node n9: is not a gap
    window: job 1: node n2: ends before the first step does
    start_window: job 1: node n2: has a window too short to start in
    excluded: job 1: node n1: cannot be used by the job
    foreign: job 1: node n1: is held by a job that is not planned here
    block: job 1: node n2: is not 2 places of one node
    one_type: job 1: node n1: is of another type than the lead's node
    host: job 1: node n1:1: 9 CPUs and 2000 MiB of its host are given out, but it has 8 and 2000
    lead_first: job 1: node n1: holds the lead, which must stay the first
    lease: job 1: node n2: has a lease past the end of its window
    allowed_node: job 1: node n1: is not among the nodes of safety.nodes
    blackout: job 1: node n2: is used in a blackout
    site_limit: 2 exceed the 1 that safety.max_nodes allows
    ");
}

/// Checker and planner are two implementations of one definition: they compute the same values for any plan.
#[test]
fn checker_and_planner_compute_the_same_values() {
    let mut compared = 0;
    for seed in effort::seed_range(50_000..52_000) {
        let world = random_worlds::world(seed, 7, 14);
        let mut plan = plan_without_solver(&world.problem(), "test");
        // Forecasts that no schedule has are evaluated as well.
        let mut random = random_worlds::Random(seed);
        for (_, nodes) in plan.jobs.iter_mut().flat_map(|j| &mut j.forecast) {
            if random.chance(30) {
                *nodes = random.below(9) as u32;
            }
        }
        let problem = world.problem();
        let steps = TimeSteps::from_problem(&problem);
        let facts: Vec<CheckedJob<'_>> = plan
            .jobs
            .iter()
            .zip(&world.jobs)
            .map(|(p, j)| CheckedJob::from_plan(&problem, &steps, j, p))
            .collect();
        let planner = evaluate_plan(&problem, &steps, &plan);
        let checker = recomputed_value::recompute_value(&problem, &steps, &facts);
        assert!(is_close(planner.net_samples(), checker.net), "seed {seed}: {planner:?} {checker:?}");
        assert!(is_close(planner.reluctance, checker.reluctance), "seed {seed}: {planner:?} {checker:?}");
        compared += u64::from(planner.reluctance > 0.0 && planner.rescale > 0.0);
    }
    assert!(compared >= effort::at_least(301), "only {compared} plans have changes");
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(1.0)
}
