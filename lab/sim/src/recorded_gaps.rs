//! The gaps that a recorded main queue leaves, without any malleable jobs.

use super::queue::{MainQueue, NodeIx};
use infill_gaps::{GapStatistics, IdleTime};

/// The statistics of the gaps that a main queue leaves, over the whole log or its first `most_secs` seconds.
/// Replays a copy of the queue.
pub fn gap_statistics(queue: &MainQueue, most_secs: Option<i64>) -> GapStatistics {
    let (start, end) = queue.time_span();
    let end = most_secs.map_or(end, |most| end.min(start.saturating_add(most)));
    GapStatistics::from_intervals(
        &replay_gaps(queue.clone(), start, end),
        queue.node_names().len(),
        (start, end),
    )
}

/// Replays the queue from its start to its end.
fn replay_gaps(mut queue: MainQueue, start: i64, end: i64) -> Vec<IdleTime> {
    // An idle log has the times when nodes are idle, a job log the times when they are busy.
    let first =
        matches!(queue, MainQueue::Log(_)).then(|| queue.next_change().map_or(start, |at| at.min(start)));
    let mut since: Vec<Option<i64>> = vec![first; queue.node_names().len()];
    let mut gaps = Vec::new();
    while queue.next_change().is_some_and(|at| at < end) {
        let Some(moment) = queue.advance() else { break };
        let taken = moment.taken.iter().flat_map(|t| &t.nodes);
        for start in taken.filter_map(|node| idle_since_entry(&mut since, *node)?.take()) {
            gaps.push(IdleTime { start, end: moment.at });
        }
        for node in moment.freed {
            if let Some(since) = idle_since_entry(&mut since, node) {
                since.get_or_insert(moment.at);
            }
        }
    }
    gaps.extend(since.into_iter().flatten().map(|start| IdleTime { start, end }));
    gaps
}

fn idle_since_entry(since: &mut [Option<i64>], node: NodeIx) -> Option<&mut Option<i64>> {
    since.get_mut(node as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{ChangeAccounting, CheckpointCosts};
    use crate::policy::EqualShare;
    use crate::queue::{IdleQueue, LogQueue, by_gpu};
    use crate::supply::{JobSupply, SampleWorth};
    use crate::{SimulationSetup, run_simulation};
    use infill_model::{
        CurvePoint, JobId, NodeName, RescaleCosts, ScalingCurve,
        trace::{IdleInterval, IdleLog, JobLog, LoggedJob, NamedCurve},
    };

    fn idle(start: i64, end: i64, node: &str) -> IdleInterval {
        IdleInterval { start, end, node: NodeName::from(node) }
    }

    #[test]
    fn an_idle_log_gives_its_own_intervals_back() {
        let intervals = vec![idle(0, 50, "n1"), idle(20, 100, "n2"), idle(50, 60, "n1"), idle(70, 80, "n1")];
        let queue = MainQueue::Idle(IdleQueue::new(&IdleLog { intervals, start: 0, end: 100 }, 2));
        let found = gap_statistics(&queue, None);
        // Idle up to 50 and again from 50 on is one gap.
        assert_eq!((found.gaps, found.cut_off, found.nodes), (3, 2, 2));
        assert_eq!(found.idle_node_secs, 60.0 + 80.0 + 10.0);
        assert_eq!(gap_statistics(&queue, Some(30)).idle_node_secs, 30.0 + 10.0);
    }

    fn job(id: u32, start: i64, end: i64, nodes: u32) -> LoggedJob {
        LoggedJob {
            id: JobId(id),
            name: id.to_string(),
            user: String::new(),
            account: String::new(),
            partition: String::new(),
            submit: start - 5,
            start,
            end,
            limit_secs: Some(100),
            nodes,
            node_list: Vec::new(),
            gpus: None,
            state: String::new(),
        }
    }

    /// Two nodes: both busy, then one, then none, then the log's last start.
    fn job_queue() -> MainQueue {
        let jobs = vec![job(1, 10, 20, 2), job(2, 20, 40, 1), job(3, 50, 90, 2)];
        let log = JobLog { jobs, nodes_total: Some(2), ..JobLog::default() };
        MainQueue::Log(LogQueue::new(&log, None))
    }

    #[test]
    fn a_job_log_gives_what_its_jobs_leave() {
        let found = gap_statistics(&job_queue(), None);
        assert_eq!((found.span_secs, found.gaps), (40.0, 2));
        assert_eq!(found.idle_node_secs, 30.0 + 10.0);
        assert_eq!(found.none_idle, 0.25);
    }

    #[test]
    fn what_is_idle_beside_other_jobs_is_a_gap_where_gpus_are_counted() {
        let on = |gpus, job: LoggedJob| LoggedJob {
            node_list: vec![NodeName::from("n1")],
            gpus: Some(gpus),
            ..job
        };
        // Two of four GPUs from the start, the other two from 20 to 30.
        let jobs = vec![on(2, job(1, 0, 100, 1)), on(2, job(2, 20, 30, 1)), on(1, job(3, 100, 101, 1))];
        let log = JobLog { jobs, ..JobLog::default() };
        let found = |log: &JobLog| gap_statistics(&MainQueue::Log(LogQueue::new(log, None)), None);
        assert_eq!(found(&log).idle_node_secs, 0.0, "the node is never idle");
        let by_gpu = found(&by_gpu(&log, Some(4)).unwrap());
        assert_eq!((by_gpu.nodes, by_gpu.gaps, by_gpu.idle_node_secs), (4, 4, 2.0 * (20.0 + 70.0)));
    }

    #[test]
    fn a_simulation_finds_as_much_idle_time() {
        let curve = ScalingCurve::new(vec![CurvePoint { nodes: 1, rate: 1.0 }]).unwrap();
        let curves = [NamedCurve { name: "x".to_owned(), curve }];
        let setup = SimulationSetup {
            queue: job_queue(),
            supply: JobSupply::endless_jobs(1, &curves, (1, 2), SampleWorth::Sample).unwrap(),
            costs: RescaleCosts { up_secs: 1.0, down_secs: 1.0, start_secs: 1.0 },
            accounting: ChangeAccounting::Pause,
            warm_secs: 0.0,
            checkpoints: CheckpointCosts { save_secs: 1.0, interval_secs: 600.0, grace_secs: 2.0 },
            leave_secs: 5.0,
            save_shared: 0.0,
            noise: 0.0,
            seed: 1,
            most_secs: None,
            timeline_nodes: 0,
        };
        // The first job was submitted before the log's start: that time is not simulated.
        let outcome = run_simulation(&setup, Box::new(EqualShare), &mut |_| {});
        assert_eq!(outcome.idle_node_secs, gap_statistics(&setup.queue, None).idle_node_secs);
        assert_eq!(outcome.series.first().map(|s| s.at), Some(10.0));
    }
}
