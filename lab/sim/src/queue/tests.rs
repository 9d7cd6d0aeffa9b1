//! Tests that replay small logs.

use super::*;
use infill_model::trace::{IdleInterval, IdleLog, JobLog, LoggedJob};

fn logged(id: u32, submit: i64, start: i64, end: i64, limit: i64, nodes: u32) -> LoggedJob {
    LoggedJob {
        id: JobId(id),
        name: id.to_string(),
        user: String::new(),
        account: String::new(),
        partition: String::new(),
        submit,
        start,
        end,
        limit_secs: Some(limit),
        nodes,
        node_list: Vec::new(),
        gpus: None,
        state: String::new(),
    }
}

fn replay(jobs: Vec<LoggedJob>) -> LogQueue {
    LogQueue::new(&JobLog { jobs, nodes_total: Some(4), ..JobLog::default() }, None)
}

/// Steps up to a moment, and returns the nodes that were taken last.
fn up_to(queue: &mut LogQueue, at: i64) -> Vec<TakenNodes> {
    let mut taken = Vec::new();
    while queue.next_change().is_some_and(|next| next <= at) {
        taken = queue.advance().map(|m| m.taken).unwrap_or_default();
    }
    taken
}

#[test]
fn backfill_believes_in_limits_and_plans_move_when_jobs_end_early() {
    // Job 1 has a limit of 1000 s and ends after 400; job 2 waits for all nodes, job 3 starts behind it.
    let mut queue = replay(vec![
        logged(1, 0, 0, 400, 1000, 3),
        logged(2, 10, 400, 900, 600, 4),
        logged(3, 20, 900, 950, 60, 1),
    ]);
    up_to(&mut queue, 20);
    // The fourth node is idle until job 2 is planned to start, by job 1's limit.
    assert_eq!(queue.planned_use(3), Some(PlannedUse { at: 1000, job: JobId(2) }));
    // Job 3 is planned behind it: time before a planned start is left to those that the log lets start there.
    assert_eq!(queue.backfill_plan().0[1].start, 1600);
    let taken = up_to(&mut queue, 400);
    assert_eq!(taken, [TakenNodes { job: JobId(2), nodes: vec![0, 1, 2, 3] }]);
    assert_eq!(queue.backfill_plan().0[0], PlannedJob { job: JobId(3), start: 1000, nodes: vec![0] });
}

#[test]
fn a_job_starts_where_it_was_planned_and_else_on_nodes_that_are_wanted_last() {
    let mut queue = replay(vec![
        logged(1, 0, 0, 300, 300, 2),
        logged(2, 0, 0, 500, 500, 1),
        logged(4, 200, 200, 250, 50, 1),
        logged(3, 5, 300, 400, 100, 3),
    ]);
    up_to(&mut queue, 5);
    assert_eq!(queue.planned_use(3), Some(PlannedUse { at: 300, job: JobId(3) }));
    assert_eq!(up_to(&mut queue, 200)[0].nodes, [3]);
    assert_eq!(up_to(&mut queue, 300)[0].nodes, [0, 1, 3]);
    assert_eq!(queue.short, 0);
}

/// Replays the whole log, and returns the nodes that were freed and taken at each moment.
fn replayed(queue: &mut LogQueue) -> Vec<(i64, Vec<NodeIx>, Vec<NodeIx>)> {
    std::iter::from_fn(|| queue.advance())
        .map(|m| (m.at, m.freed, m.taken.into_iter().flat_map(|t| t.nodes).collect()))
        .collect()
}

fn on(nodes: &[&str], job: LoggedJob) -> LoggedJob {
    LoggedJob { node_list: nodes.iter().map(|n| NodeName::new(*n)).collect(), ..job }
}

#[test]
fn a_node_that_jobs_share_is_idle_when_the_last_has_ended() {
    let first = on(&["a1"], logged(1, 0, 0, 100, 500, 1));
    let second = on(&["a1", "a2"], logged(2, 50, 50, 300, 400, 2));
    let waits = logged(3, 60, 400, 410, 10, 2);
    let mut queue = replay(vec![first, second, waits]);
    // Four nodes; jobs name two of them.
    assert_eq!(queue.node_names().iter().map(NodeName::as_str).collect::<Vec<_>>()[..2], ["a1", "a2"]);
    assert_eq!(queue.node_names().len(), 4);
    up_to(&mut queue, 60);
    let ends: Vec<(i64, Vec<NodeIx>)> = queue.believed_ends(60).by_moment().collect();
    assert_eq!(ends, [(60, vec![2, 3]), (450, vec![1]), (500, vec![0])]);
    let later = replayed(&mut queue);
    assert_eq!(later[..2], [(100, vec![], vec![]), (300, vec![0, 1], vec![])]);
    assert_eq!(queue.short, 0);
}

#[test]
fn jobs_from_before_the_log_is_complete_run_at_its_start() {
    let jobs = vec![
        on(&["a1"], logged(1, 0, 0, 900, 1000, 1)),
        on(&["a2"], logged(2, 500, 500, 600, 1000, 1)),
        on(&["a2"], logged(3, 700, 700, 800, 1000, 1)),
    ];
    let log = JobLog { jobs, complete_from: Some(600), ..JobLog::default() };
    let queue = MainQueue::Log(LogQueue::new(&log, None));
    assert_eq!(queue.time_span(), (600, 700));
    // Of 200 node-seconds half are idle; the days in which only job 1 is known do not count.
    let found = crate::gap_statistics(&queue, None);
    assert_eq!((found.idle_node_secs, found.nodes), (100.0, 2));
}

#[test]
fn an_idle_log_gives_nodes_back_and_takes_them() {
    let idle = |start, end, node: &str| IdleInterval { start, end, node: NodeName::new(node) };
    // n2 is idle again in the second in which it was taken: nothing ran there.
    let intervals = vec![idle(10, 50, "n1"), idle(10, 30, "n2"), idle(30, 60, "n2"), idle(20, 40, "n10")];
    let log = IdleLog { intervals, start: 10, end: 60 };
    let mut queue = MainQueue::Idle(IdleQueue::new(&log, 2));
    assert_eq!(queue.node_names().iter().map(NodeName::as_str).collect::<Vec<_>>(), ["n1", "n2"]);
    let mut said = Vec::new();
    while let Some(m) = queue.advance() {
        said.push((m.at, m.freed, m.taken.into_iter().flat_map(|t| t.nodes).collect::<Vec<_>>()));
    }
    let expect =
        [(10, vec![0, 1], vec![]), (30, vec![], vec![]), (50, vec![], vec![0]), (60, vec![], vec![1])];
    assert_eq!(said, expect);
}
