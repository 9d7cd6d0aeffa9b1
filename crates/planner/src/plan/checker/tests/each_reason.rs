//! One decision for each kind of reason, with the sentence that explains it.
//!
//! The golden shows what the plan does beside what the report says, so that a wrong explanation is seen.

use super::*;
use infill_model::{GapRefusal, JobReasonKind, NodeReasonKind, QueuePosition, StartBlocker, TurnState};

/// A round that leads to a kind of reason.
struct Decision {
    /// What happens.
    title: &'static str,
    /// Gaps and jobs, as [`World::new`] reads them.
    world: (&'static str, &'static [&'static str]),
    /// What the texts cannot say.
    change: fn(&mut World),
    /// Whether the planner gets no further than the last resort.
    is_last_resort: bool,
}

fn decision(
    title: &'static str,
    gaps: &'static str,
    jobs: &'static [&'static str],
    change: fn(&mut World),
) -> Decision {
    Decision { title, world: (gaps, jobs), change, is_last_resort: false }
}

fn without_plan(title: &'static str, gaps: &'static str, jobs: &'static [&'static str]) -> Decision {
    Decision { title, world: (gaps, jobs), change: as_it_was, is_last_resort: true }
}

fn pause(world: &mut World) {
    world.may_grow = false;
}

fn drain(world: &mut World) {
    world.drain = true;
}

fn decisions() -> Vec<Decision> {
    vec![
        decision("a job changes", "n1:1800 n2:1800", &["1 1-2 linear held=n1 busy"], as_it_was),
        decision("an administrator drains", "n1:1800", &["1 1 linear held=n1"], drain),
        decision("a job was preempted", "n1:1800", &["1 1 linear backoff=40"], as_it_was),
        decision("a job begins later", "n1:1800", &["1 1 linear"], |world| {
            world.jobs[0].standing = SchedulingState::Barred(StartBlocker::Begin(NOW + 60));
        }),
        decision(
            "a job was just rescaled",
            "n1:1800 n2:1800",
            &["1 1-2 linear held=n1 changed=5"],
            |world| {
                world.config.min_stay_secs = 10.0;
            },
        ),
        decision("a job has its largest size", "n1:1800 n2:1800", &["1 1 linear held=n1"], as_it_was),
        decision("growth is paused", "n1:1800 n2:1800", &["1 1-2 linear held=n1"], pause),
        decision("growth gains nothing", "n1:1800 n2:1800", &["1 1-2 1:100,2:100 held=n1"], as_it_was),
        without_plan("no plan, one job runs", "n1:1800 n2:1800", &["1 1-2 linear held=n1"]),
        decision("growth gains", "n1:1800 n2:1800", &["1 1-2 linear held=n1"], as_it_was),
        decision(
            "one job alone is faster on fewer nodes",
            "n1:1800 n2:1800",
            &["1 1-2 1:100,2:80 held=n1,n2"],
            as_it_was,
        ),
        decision(
            "another job makes more of a node",
            "n1:1800 n2:1800",
            &["1 1-2 linear held=n1,n2", "2 1 linear w=9"],
            as_it_was,
        ),
        decision("a main job gets a node", "n1:1800 n2:0", &["1 1-2 linear held=n1,n2"], as_it_was),
        decision("a node ends, another is free", "n1:0 n2:1800", &["1 1 linear held=n1 swap=5"], as_it_was),
        decision(
            "another execution plan is faster",
            "n1:1800",
            &["1 1 1:100 held=n1 plan:tp2=1:900"],
            as_it_was,
        ),
        decision(
            "a probe of a larger size",
            "n1:1800 n2:1800",
            &["1 1-2 1:10,2:400 held=n1 probe=2"],
            as_it_was,
        ),
        decision("a job starts", "n1:1800", &["1 1 linear"], as_it_was),
        decision("the lead's node ends", "n1:0 n2:1800", &["1 1 linear held=n1"], as_it_was),
        decision(
            "another job makes more of all nodes",
            "n1:1800",
            &["1 1 linear held=n1", "2 1 linear w=9"],
            as_it_was,
        ),
        decision("a turn ends", "n1:1800", &["1 1 linear held=n1", "2 1 linear w=9"], |world| {
            world.jobs[0].turn = Some(TurnState::Over);
            world.jobs[1].turn = Some(TurnState::Next);
        }),
        decision("all nodes end", "n1:0", &["1 1 linear held=n1"], as_it_was),
        decision("starting is paused", "n1:1800", &["1 1 linear"], pause),
        without_plan("no plan, one job waits", "n1:1800", &["1 1 linear"]),
        decision("too few nodes", "n1:1800 n2:40", &["1 2 linear"], as_it_was),
        decision("no rate on this type", "n1:1800:b", &["1 1 linear"], |world| {
            world.jobs[0].rates[0].node_type = Some(NodeType::new("a"));
        }),
        decision(
            "the changes of a round are used up",
            "n1:1800 n2:1800",
            &["1 1 linear w=9", "2 1 linear"],
            |world| world.config.max_changes = 1,
        ),
        decision("a start takes as long as the window", "n1:100", &["1 1 linear start=100"], as_it_was),
        decision("another job starts instead", "n1:1800", &["1 1 linear w=9", "2 1 linear"], as_it_was),
        decision("others come first", "n1:1800", &["1 1 linear w=9", "2 1 linear"], |world| {
            world.jobs[1].turn = Some(TurnState::Waits(QueuePosition { position: 1, of: 1, secs: 750.0 }));
        }),
        decision(
            "the CPUs of a host are used up",
            "n1#0:1800 n1#1:1800",
            &["1 1 linear w=9 needs:default=8", "2 1 linear needs:default=8"],
            |world| world.count((4, 1000), "n1=8/3000"),
        ),
        decision("a free node is wanted at once", "n1:1800 n2:0", &["1 1-2 linear held=n1"], as_it_was),
        decision("there is no job", "n1:1800", &[], as_it_was),
        decision("a main job has a node", "n1:1800", &["1 1 linear"], |world| {
            let busy = GapRefusal::Busy { job: JobId(77), partition: "main".into() };
            world.gaps.refused.push((NodeName::new("n2"), busy));
        }),
    ]
}

/// What a round does and says. Collects the kinds of reasons.
fn explained(
    decision: &Decision,
    jobs: &mut BTreeSet<JobReasonKind>,
    nodes: &mut BTreeSet<NodeReasonKind>,
) -> String {
    let mut world = World::new(decision.world.0, decision.world.1);
    (decision.change)(&mut world);
    let problem = world.problem();
    let plan = if decision.is_last_resort {
        last_resort(&problem, "the planner failed")
    } else {
        plan_without_solver(&problem, "test")
    };
    passes(&world, &plan);
    let report = explain_plan(&problem, &plan);
    let mut lines =
        vec![format!("{}: {} [{}]", decision.title, decision.world.0, decision.world.1.join("; "))];
    for verdict in &report.jobs {
        let kind = verdict.why.kind();
        let planned = plan.job_plan(verdict.job).expect("a planned job");
        let names: Vec<String> = planned.nodes.iter().map(|node| node.node.to_string()).collect();
        let gets = if names.is_empty() { "no node".to_owned() } else { names.join(" ") };
        lines.push(format!(
            "  job {}, {} to {gets}: {}: {}",
            verdict.job,
            verdict.had,
            kind.word(),
            verdict.why
        ));
        jobs.insert(kind);
    }
    for verdict in &report.nodes {
        let kind = verdict.why.kind();
        lines.push(format!("  {}: {}: {}", verdict.node, kind.word(), verdict.why));
        nodes.insert(kind);
    }
    lines.join("\n")
}

#[test]
fn each_kind_of_reason_explains_a_decision() {
    let mut jobs = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    let shown: Vec<String> =
        decisions().iter().map(|decision| explained(decision, &mut jobs, &mut nodes)).collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    a job changes: n1:1800 n2:1800 [1 1-2 linear held=n1 busy]
      job 1, 1 to n1: busy: is in the middle of a change; keeps 1 node until that is done
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    an administrator drains: n1:1800 [1 1 linear held=n1]
      job 1, 1 to no node: drained: is parked: an administrator drains infill
      n1: drained: idle: an administrator drains infill
    a job was preempted: n1:1800 [1 1 linear backoff=40]
      job 1, 0 to no node: backs_off: backs off for 40 s more after a preemption or failure
      n1: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    a job begins later: n1:1800 [1 1 linear]
      job 1, 0 to no node: barred: must not begin for another 60 s (--begin)
      n1: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    a job was just rescaled: n1:1800 n2:1800 [1 1-2 linear held=n1 changed=5]
      job 1, 1 to n1: stays: keeps its 1 node at 1.00 samples/s: it was rescaled a moment ago and stays for 5 s more
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    a job has its largest size: n1:1800 n2:1800 [1 1 linear held=n1]
      job 1, 1 to n1: at_maximum: keeps its 1 node at 1.00 samples/s: that is its maximum
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    growth is paused: n1:1800 n2:1800 [1 1-2 linear held=n1]
      job 1, 1 to n1: may_not_grow: keeps its 1 node at 1.00 samples/s: growth is paused
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: paused: idle: starting and growth are paused
    growth gains nothing: n1:1800 n2:1800 [1 1-2 1:100,2:100 held=n1]
      job 1, 1 to n1: settled: keeps its 1 node at 100.00 samples/s: no change would gain more than it costs
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    no plan, one job runs: n1:1800 n2:1800 [1 1-2 linear held=n1]
      job 1, 1 to n1: left_as_it_is: keeps its 1 node at 1.00 samples/s: nothing was planned in this round
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: not_planned: idle: nothing was planned in this round
    growth gains: n1:1800 n2:1800 [1 1-2 linear held=n1]
      job 1, 1 to n1 n2: grows: grows from 1 to 2 nodes because 2.00 samples/s instead of 1.00 are worth 18 s without samples
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: given: job 1 gets it until 1970-01-12T14:16:40Z
    one job alone is faster on fewer nodes: n1:1800 n2:1800 [1 1-2 1:100,2:80 held=n1,n2]
      job 1, 2 to n1: gives_up: shrinks from 2 to 1 node because 100.00 samples/s instead of 80.00 are worth 12 s without samples
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: spared: job 1 gives it up, and no other job gains from it
    another job makes more of a node: n1:1800 n2:1800 [1 1-2 linear held=n1,n2; 2 1 linear w=9]
      job 1, 2 to n1: gives_up: shrinks from 2 to 1 node: other jobs make more of 1 node than the 12 s without samples cost
      job 2, 0 to n2: starts: starts on 1 node at 1.00 samples/s after 18 s
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: given: job 2 gets it until 1970-01-12T14:16:40Z
    a main job gets a node: n1:1800 n2:0 [1 1-2 linear held=n1,n2]
      job 1, 2 to n1: shrinks: shrinks from 2 to 1 node; it must leave n2
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: left: job 1 leaves it: the main queue wants it at 1970-01-12T13:46:55Z
    a node ends, another is free: n1:0 n2:1800 [1 1 linear held=n1 swap=5]
      job 1, 1 to n2: starts_anew: starts again on 1 node with its lead on another node, 1.00 samples/s after 18 s; it must leave n1
      n1: left: job 1 leaves it: the main queue wants it at 1970-01-12T13:46:55Z
      n2: given: job 1 gets it until 1970-01-12T14:16:40Z
    another execution plan is faster: n1:1800 [1 1 1:100 held=n1 plan:tp2=1:900]
      job 1, 1 to n1: swaps: keeps its nodes and changes to execution plan tp2: 1 node at 900.00 samples/s
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
    a probe of a larger size: n1:1800 n2:1800 [1 1-2 1:10,2:400 held=n1 probe=2]
      job 1, 1 to n1 n2: probes: grows from 1 to 2 nodes: a probe, to measure how fast it is on 2 nodes; 18 s without samples
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: given: job 1 gets it until 1970-01-12T14:16:40Z
    a job starts: n1:1800 [1 1 linear]
      job 1, 0 to n1: starts: starts on 1 node at 1.00 samples/s after 18 s
      n1: given: job 1 gets it until 1970-01-12T14:16:40Z
    the lead's node ends: n1:0 n2:1800 [1 1 linear held=n1]
      job 1, 1 to n2: starts_anew: starts again on 1 node with its lead on another node, 1.00 samples/s after 18 s; it must leave n1
      n1: left: job 1 leaves it: the main queue wants it at 1970-01-12T13:46:55Z
      n2: given: job 1 gets it until 1970-01-12T14:16:40Z
    another job makes more of all nodes: n1:1800 [1 1 linear held=n1; 2 1 linear w=9]
      job 1, 1 to no node: outbid: is parked: other jobs make more of its 1 node
      job 2, 0 to n1: starts: starts on 1 node at 1.00 samples/s after 18 s
      n1: given: job 2 gets it until 1970-01-12T14:16:40Z
    a turn ends: n1:1800 [1 1 linear held=n1; 2 1 linear w=9]
      job 1, 1 to no node: turn_ends: is parked: its turn has ended, and other jobs get its 1 node
      job 2, 0 to n1: starts: starts on 1 node at 1.00 samples/s after 18 s
      n1: given: job 2 gets it until 1970-01-12T14:16:40Z
    all nodes end: n1:0 [1 1 linear held=n1]
      job 1, 1 to no node: parked: is parked; it must leave n1; needs at least 1 node; 0 are free for longer than 60 s
      n1: left: job 1 leaves it: the main queue wants it at 1970-01-12T13:46:55Z
    starting is paused: n1:1800 [1 1 linear]
      job 1, 0 to no node: waits_for_resume: waits: starting is paused
      n1: paused: idle: starting and growth are paused
    no plan, one job waits: n1:1800 [1 1 linear]
      job 1, 0 to no node: waits_for_plan: waits: nothing was planned in this round
      n1: not_planned: idle: nothing was planned in this round
    too few nodes: n1:1800 n2:40 [1 2 linear]
      job 1, 0 to no node: waits_for_nodes: waits: needs at least 2 nodes; 1 is free for longer than 60 s
      n1: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
      n2: short: idle: its window of 40 s is shorter than the 60 s worth starting in; the main queue wants it at 1970-01-12T13:47:35Z
    no rate on this type: n1:1800:b [1 1 linear]
      job 1, 0 to no node: waits_for_rate: waits: no rate is known on the node types that are free
      n1: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
    the changes of a round are used up: n1:1800 n2:1800 [1 1 linear w=9; 2 1 linear]
      job 1, 0 to n2: starts: starts on 1 node at 1.00 samples/s after 18 s
      job 2, 0 to no node: waits_for_budget: waits for the next round: this one may make 1 change, and has made them all
      n1: budget_used: idle: the changes of this round are used up
      n2: given: job 1 gets it until 1970-01-12T14:16:40Z
    a start takes as long as the window: n1:100 [1 1 linear start=100]
      job 1, 0 to no node: waits_for_windows: waits: 1 of 1 node is free, but not for long enough to earn back a start of 100 s
      n1: no_gain: idle: no job that may use it now would gain more in 100 s than the change costs; the main queue wants it at 1970-01-12T13:48:35Z
    another job starts instead: n1:1800 [1 1 linear w=9; 2 1 linear]
      job 1, 0 to n1: starts: starts on 1 node at 1.00 samples/s after 18 s
      job 2, 0 to no node: waits_for_others: waits: needs at least 1 node; other jobs make more of 1 of the 1 that are free for longer than 60 s
      n1: given: job 1 gets it until 1970-01-12T14:16:40Z
    others come first: n1:1800 [1 1 linear w=9; 2 1 linear]
      job 1, 0 to n1: starts: starts on 1 node at 1.00 samples/s after 18 s
      job 2, 0 to no node: waits_for_turn: waits for its turn: it is number 1 of 1 in line, about 12:30 from now
      n1: given: job 1 gets it until 1970-01-12T14:16:40Z
    the CPUs of a host are used up: n1#0:1800 n1#1:1800 [1 1 linear w=9 needs:default=8; 2 1 linear needs:default=8]
      job 1, 0 to n1:1: starts: starts on 1 node at 1.00 samples/s after 18 s
      job 2, 0 to no node: waits_for_hosts: waits: 1 more worker needs 8 CPUs of one host, and hosts with free places have CPUs left for none
      n1:0: no_gain: idle: no job that may use it now would gain more in 1800 s than the change costs; the main queue wants it at 1970-01-12T14:16:55Z
      n1:1: given: job 1 gets it until 1970-01-12T14:16:40Z
    a free node is wanted at once: n1:1800 n2:0 [1 1-2 linear held=n1]
      job 1, 1 to n1: settled: keeps its 1 node at 1.00 samples/s: no change would gain more than it costs
      n1: kept: job 1 keeps it until 1970-01-12T14:16:40Z
      n2: ends: left alone: it is counted on for 0 s only, too short for a step; the main queue wants it at 1970-01-12T13:46:55Z
    there is no job: n1:1800 []
      n1: no_job: idle: there is no malleable job
    a main job has a node: n1:1800 [1 1 linear]
      job 1, 0 to n1: starts: starts on 1 node at 1.00 samples/s after 18 s
      n1: given: job 1 gets it until 1970-01-12T14:16:40Z
      n2: refused: busy: job 77 of partition main is on it
    ");

    // A sentence read back from JSON is no decision.
    let missing_jobs: Vec<&str> = JobReasonKind::ALL
        .iter()
        .filter(|kind| **kind != JobReasonKind::Said && !jobs.contains(kind))
        .map(|kind| kind.word())
        .collect();
    let missing_nodes: Vec<&str> = NodeReasonKind::ALL
        .iter()
        .filter(|kind| **kind != NodeReasonKind::Said && !nodes.contains(kind))
        .map(|kind| kind.word())
        .collect();
    assert_eq!((missing_jobs, missing_nodes), (vec![], vec![]));
}
