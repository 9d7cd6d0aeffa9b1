//! A look without malleable jobs, which is the tracker and the gap finder: what the simulator does tens of
//! thousands of times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use infill_model::config::Config;
use infill_model::{BaseState, Job, JobState, Node, NodeName, NodeState, NodeType, Snapshot, UnixTime};
use infill_planner::round::{AdvisorMode, RoundState};
use infill_slurm::fake::pending_job;

const PARTITION: &str = "infill";

/// Calls; the median counts.
const CALLS: usize = 201;

/// Nodes of each busy job.
const WIDTH: usize = 16;

/// `count` nodes of which `free` are, the others busy with jobs of 16 nodes; for a tenth of the free ones a
/// job is planned.
fn machine(count: usize, free: usize) -> Snapshot {
    let names: Vec<NodeName> = (0..count).map(|n| NodeName::new(format!("nid{n:06}"))).collect();
    let kind = NodeType::new("gpu:a100:4/cpu64");
    let node = |(n, name): (usize, &NodeName)| Node {
        state: NodeState::from_words([if n < free { "IDLE" } else { "ALLOCATED" }]),
        partitions: vec!["main".to_owned(), PARTITION.to_owned()],
        ..Node::new(name.clone(), kind.clone())
    };
    let running = |(n, nodes): (usize, &[NodeName])| Job {
        state: JobState::from_base(BaseState::Running),
        nodes: nodes.to_vec(),
        ..pending_job(1 + n as u32, 1)
    };
    let mut jobs: Vec<Job> = names[free..].chunks(WIDTH).enumerate().map(running).collect();
    let planned = |(n, node): (usize, &NodeName)| Job {
        scheduled_nodes: vec![node.clone()],
        start_time: Some(UnixTime(1_000_600)),
        ..pending_job(100_000 + n as u32, 1)
    };
    jobs.extend(names[..free / 10].iter().enumerate().map(planned));
    let nodes = names.iter().enumerate().map(node).collect();
    let mut snapshot = Snapshot { taken_at: UnixTime(1_000_000), nodes, jobs, ..Snapshot::default() };
    snapshot.backfill.complete = true;
    snapshot
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn measure(nodes: usize, free: usize) {
    let snapshot = machine(nodes, free);
    let mut scene = RoundState::new(Arc::new(Config::default()), UnixTime(1_000_000));
    let mut looks = Vec::new();
    for call in 0..CALLS {
        let now = UnixTime(1_000_000 + 30 * call as i64);
        let clock = Instant::now();
        scene.ingest_snapshot(&snapshot, &[], AdvisorMode::Unasked, now);
        looks.push(clock.elapsed());
    }
    println!("{nodes} nodes, {free} free: a look takes {:.3} ms", median(looks));
}

pub fn show() {
    measure(4_400, 300);
    measure(10_000, 1_500);
}
