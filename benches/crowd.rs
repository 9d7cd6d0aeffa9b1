//! A round in which very many malleable jobs wait: `cargo bench --bench crowd`.
//!
//! No job holds a node, and all nodes are free. In two cases the main queue wants every third node in some
//! minutes. Goals: at most 0.2 s where 3,000 jobs wait for 8 nodes; at most 1 s and 400 MiB where 10,000 jobs
//! wait for 10,000 nodes, most of them for the same half. Each case runs in its own process, so that the peak
//! memory belongs to it alone.

#[path = "common/mod.rs"]
mod common;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infill_model::config::Config;
use infill_model::{
    AllowedSizes, ExcludedNodes, ExecPlan, Job, JobDeclaration, JobFacts, JobId, JobLocation, JobProgress,
    Node, NodeName, NodeState, NodeType, ProgramIdentity, ResizeState, SchedulingState, Snapshot, UnixTime,
    UserId,
};
use infill_planner::round::{AdvisorMode, RoundConstraints, RoundState, check_solved_plan};
use infill_slurm::fake::pending_job;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const NOW: i64 = 1_800_000_000;

const PARTITION: &str = "infill";

/// Number of rounds. The slowest counts, because the planner's deadline holds for each round.
const ROUNDS: i64 = 5;

/// Number of users. Each has equally many jobs.
const USERS: u32 = 50;

/// Each case: jobs, nodes, and whether the main queue wants every third node soon.
const CASES: [(u32, usize, bool); 3] = [(3_000, 8, false), (3_000, 8, true), (10_000, 10_000, true)];

/// Idle nodes and the jobs in the queue. With `wanted`, the main queue wants every third node soon.
fn snapshot(jobs: u32, nodes: usize, wanted: bool) -> Snapshot {
    let kind = NodeType::new("gpu:a100:4/cpu64");
    let node = |n: usize| Node {
        state: NodeState::from_words(["IDLE"]),
        partitions: vec!["main".to_owned(), PARTITION.to_owned()],
        ..Node::new(NodeName::new(format!("nid{n:06}")), kind.clone())
    };
    let nodes: Vec<Node> = (0..nodes).map(node).collect();
    let planned = |n: usize| Job {
        scheduled_nodes: vec![nodes[n].name.clone()],
        start_time: Some(UnixTime(NOW + 600 + 240 * (n as i64 % 7))),
        ..pending_job(100_000 + n as u32, 1)
    };
    let planned = (0..nodes.len()).step_by(3).filter(|_| wanted).map(planned);
    let jobs = (0..jobs)
        .map(|n: u32| Job { partition: PARTITION.to_owned(), ..pending_job(1 + n, 6000 + n % USERS) })
        .chain(planned)
        .collect();
    let mut snapshot = Snapshot { taken_at: UnixTime(NOW), nodes, jobs, ..Snapshot::default() };
    snapshot.backfill.complete = true;
    snapshot
}

/// A waiting job of a parameter sweep: many jobs are alike.
fn facts(n: u32, excluded: &ExcludedNodes) -> JobFacts {
    let user = n % USERS;
    let sizes = [(1, 64), (1, 8), (2, 16), (4, 4)][(n / USERS % 4) as usize];
    JobFacts {
        job: JobId(1 + n),
        user: UserId(6000 + user),
        program: ProgramIdentity {
            user: format!("user{user}"),
            job_name: format!("sweep{user}"),
            reported: None,
            block: 1,
            on_cpus: false,
            exec_plan: ExecPlan::default(),
        },
        sizes: AllowedSizes::Range { min: sizes.0, max: sizes.1 },
        claims: JobDeclaration::default(),
        standing: SchedulingState::Waiting,
        since: UnixTime(NOW),
        waits_since: Some(UnixTime(NOW)),
        running: None,
        place: JobLocation::default(),
        changing: ResizeState::default(),
        course: JobProgress::default(),
        submitted_at: UnixTime(NOW - i64::from(n % 4000)),
        excluded: if n.is_multiple_of(5) { ExcludedNodes::default() } else { excluded.clone() },
        ending: false,
    }
}

fn measure(jobs: u32, nodes: usize, wanted: bool) {
    let config = Arc::new(Config::default());
    let snapshot = snapshot(jobs, nodes, wanted);
    let half: ExcludedNodes = snapshot.nodes.iter().step_by(2).map(|node| node.name.clone()).collect();
    let facts: Vec<JobFacts> = (0..jobs).map(|n| facts(n, &half)).collect();
    let mut state = RoundState::new(config.clone(), UnixTime(NOW));
    let mut took: Vec<Vec<Duration>> = Vec::new();
    let mut about = String::new();
    for round in 0..ROUNDS {
        let now = UnixTime(NOW + 30 * round);
        let mut clock = Instant::now();
        let mut stages = Vec::new();
        let mut lap = || stages.push(std::mem::replace(&mut clock, Instant::now()).elapsed());
        state.ingest_snapshot(&snapshot, &facts, AdvisorMode::Probe, now);
        lap();
        let input = state.round_input(&facts, RoundConstraints::FREE, now);
        lap();
        let plan = input.solve_plan(&config);
        lap();
        let judged = check_solved_plan(&input, &config, Ok(plan)).expect("a plan that passes");
        lap();
        let report = input.explain_plan(&config, &judged.plan);
        lap();
        assert!(judged.refused.is_empty(), "{:?}", judged.refused);
        let start = judged.plan.jobs.iter().filter(|job| !job.nodes.is_empty()).count();
        let given: usize = judged.plan.jobs.iter().map(|job| job.nodes.len()).sum();
        about = format!(
            "{} jobs are planned and {} explained, {start} start on {given} nodes, {:?}",
            input.jobs.len(),
            report.jobs.len(),
            judged.plan.status
        );
        took.push(stages);
    }
    let most = took.iter().map(|stages| stages.iter().sum::<Duration>()).max().unwrap_or_default();
    let ends = if wanted { "of different ends" } else { "with no end" };
    println!("{jobs} jobs wait for {nodes} nodes {ends}: a round takes at most {:.3} s", most.as_secs_f64());
    println!("  {about}");
    for (at, name) in ["look", "ask", "plan", "check", "explain"].iter().enumerate() {
        let most = took.iter().map(|stages| stages[at]).max().unwrap_or_default();
        println!("  {name:<8} {:>8.1} ms", most.as_secs_f64() * 1e3);
    }
    let resident = common::most_resident_kib().map_or_else(String::new, |kib| format!("{} MiB", kib / 1024));
    println!("  most memory: {:.0} MiB allocated, {resident} resident", MEMORY.peak_usage_as_mb());
}

fn main() {
    let case = std::env::var("CROWD").ok();
    for (at, (jobs, nodes, wanted)) in CASES.iter().enumerate() {
        match &case {
            None => {
                let myself = std::env::current_exe().expect("a path");
                let status = Command::new(myself).env("CROWD", at.to_string()).status();
                assert!(status.expect("it starts").success());
            }
            Some(case) if *case == at.to_string() => measure(*jobs, *nodes, *wanted),
            Some(_) => {}
        }
    }
}
