//! Replays of small logs.

use super::*;
use crate::model::trace::{IdleInterval, IdleLog, JobLog, LoggedJob};

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
        state: String::new(),
    }
}

fn replay(jobs: Vec<LoggedJob>) -> LogQueue {
    LogQueue::new(&JobLog { jobs, nodes_total: Some(4), ..JobLog::default() }, None)
}

/// Goes on up to a moment, and returns what was taken then.
fn up_to(queue: &mut LogQueue, at: i64) -> Vec<Taken> {
    let mut taken = Vec::new();
    while queue.next().is_some_and(|next| next <= at) {
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
    assert_eq!(queue.planned(3), Some(Planned { at: 1000, job: JobId(2) }));
    // Job 3 is planned behind it: time before a planned start is left to those that the log lets start there.
    assert_eq!(queue.plan().0[1].start, 1600);
    let taken = up_to(&mut queue, 400);
    assert_eq!(taken, [Taken { job: JobId(2), nodes: vec![0, 1, 2, 3] }]);
    assert_eq!(queue.plan().0[0], PlannedJob { job: JobId(3), start: 1000, nodes: vec![0] });
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
    assert_eq!(queue.planned(3), Some(Planned { at: 300, job: JobId(3) }));
    assert_eq!(up_to(&mut queue, 200)[0].nodes, [3]);
    assert_eq!(up_to(&mut queue, 300)[0].nodes, [0, 1, 3]);
    assert_eq!(queue.short, 0);
}

#[test]
fn an_idle_log_gives_nodes_back_and_takes_them() {
    let idle = |start, end, node: &str| IdleInterval { start, end, node: NodeName::new(node) };
    // n2 is idle again in the second in which it was taken: nothing ran there.
    let intervals = vec![idle(10, 50, "n1"), idle(10, 30, "n2"), idle(30, 60, "n2"), idle(20, 40, "n10")];
    let log = IdleLog { intervals, start: 10, end: 60 };
    let mut queue = MainQueue::Idle(IdleQueue::new(&log, 2));
    assert_eq!(queue.names().iter().map(NodeName::as_str).collect::<Vec<_>>(), ["n1", "n2"]);
    let mut said = Vec::new();
    while let Some(m) = queue.advance() {
        said.push((m.at, m.freed, m.taken.into_iter().flat_map(|t| t.nodes).collect::<Vec<_>>()));
    }
    let expect =
        [(10, vec![0, 1], vec![]), (30, vec![], vec![]), (50, vec![], vec![0]), (60, vec![], vec![1])];
    assert_eq!(said, expect);
}
