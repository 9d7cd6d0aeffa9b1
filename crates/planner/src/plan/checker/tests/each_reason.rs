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
            world.jobs[0].scheduling_state = SchedulingState::Blocked(StartBlocker::Begin(NOW + 60));
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
            world.jobs[1].turn =
                Some(TurnState::Waits(QueuePosition { position: 1, queue_length: 1, secs: 750.0 }));
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
    insta::assert_snapshot!("each_reason", shown.join("\n"));

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
