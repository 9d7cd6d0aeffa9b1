//! A look without malleable jobs: only the tracker and the gap finder. The simulator does this tens of
//! thousands of times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use infill_model::config::Config;
use infill_model::{BaseState, Job, JobState, Node, NodeName, NodeState, NodeType, Snapshot, UnixTime};
use infill_planner::round::{AdvisorMode, RoundState};
use infill_slurm::fake::pending_job;

const PARTITION: &str = "infill";

/// Number of calls. The median counts.
const CALLS: usize = 201;

/// Nodes of each busy job.
const WIDTH: usize = 16;

/// A cluster of `count` nodes with `free` free ones. The others run jobs of 16 nodes. A job is planned on
/// each of the first tenth of the free nodes.
fn cluster(count: usize, free: usize) -> Snapshot {
    let names: Vec<NodeName> = (0..count).map(|n| NodeName::new(format!("nid{n:06}"))).collect();
    let kind = NodeType::new("gpu:a100:4/cpu64");
    let running = names[free..].chunks(WIDTH).enumerate().map(|(n, nodes)| Job {
        state: JobState::from_base(BaseState::Running),
        nodes: nodes.to_vec(),
        ..pending_job(1 + n as u32, 1)
    });
    let planned = names[..free / 10].iter().enumerate().map(|(n, node)| Job {
        scheduled_nodes: vec![node.clone()],
        start_time: Some(UnixTime(1_000_600)),
        ..pending_job(100_000 + n as u32, 1)
    });
    let jobs: Vec<Job> = running.chain(planned).collect();
    let nodes = names
        .iter()
        .enumerate()
        .map(|(n, name)| Node {
            state: NodeState::from_words([if n < free { "IDLE" } else { "ALLOCATED" }]),
            partitions: vec!["main".to_owned(), PARTITION.to_owned()],
            ..Node::new(name.clone(), kind.clone())
        })
        .collect();
    let mut snapshot = Snapshot { taken_at: UnixTime(1_000_000), nodes, jobs, ..Snapshot::default() };
    snapshot.backfill.complete = true;
    snapshot
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn measure(nodes: usize, free: usize) {
    let snapshot = cluster(nodes, free);
    let mut state = RoundState::new(Arc::new(Config::default()), UnixTime(1_000_000));
    let mut looks = Vec::new();
    for call in 0..CALLS {
        let now = UnixTime(1_000_000 + 30 * call as i64);
        let clock = Instant::now();
        state.ingest_snapshot(&snapshot, &[], AdvisorMode::Unasked, now);
        looks.push(clock.elapsed());
    }
    println!("{nodes} nodes, {free} free: a look takes {:.3} ms", median(looks));
}

pub fn show() {
    measure(4_400, 300);
    measure(10_000, 1_500);
}
