//! A whole round at the size of the largest machines: `cargo bench --bench round`.
//!
//! It measures from the bytes that slurmrestd sends for 10,000 nodes, 20,000 running and 20,000 pending jobs
//! to what changes for 20 malleable jobs. Goals:
//!
//! - whole nodes: at most 1 s, half of it for reading; at most 300 MiB of memory with the last round's
//!   snapshot still held;
//! - all running jobs share nodes and GPUs are lent: at most 1.2 s;
//! - the completion objective, 200 jobs and a forest that predicts how long they run: at most 1.1 s.
//!
//! It also measures the gap finder alone, as often as the simulator calls it.

mod ahead;
mod answers;
#[path = "../common/mod.rs"]
mod common;
mod small;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infill_model::config::Config;
use infill_model::{
    AllowedSizes, ExcludedNodes, ExecPlan, HeldNode, JobDeclaration, JobFacts, JobId, JobLocation,
    JobProgress, LendingRules, NodeName, Plan, PlanningObjective, ProgramIdentity, ResizeState, ScalingCurve,
    SchedulingState, Snapshot, UnixTime, UserId,
};
use infill_planner::round::{AdvisorMode, RoundConstraints, RoundState, check_solved_plan};
use infill_slurm::{PlaceAssignments, rest::offline};
use peak_alloc::PeakAlloc;

use answers::Site;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Number of rounds. The median of each stage counts. The first round has no snapshot to hold.
const ROUNDS: usize = 7;

/// Malleable jobs: half of them wait and half of them hold nodes.
const JOBS: u32 = 2 * HOLDING;

/// Malleable jobs that hold nodes.
const HOLDING: u32 = 10;

/// The stages of a round, each with its time and its peak memory.
#[derive(Default)]
struct Stages {
    took: Vec<(&'static str, Duration, usize)>,
}

impl Stages {
    /// Measures a stage: its time and the process's peak memory in it.
    fn of<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        MEMORY.reset_peak_usage();
        let clock = Instant::now();
        let value = work();
        self.took.push((name, clock.elapsed(), MEMORY.peak_usage()));
        value
    }

    /// As `of`, less the time that `work` reports as not its own.
    fn less<T>(&mut self, name: &'static str, work: impl FnOnce() -> (T, Duration)) -> T {
        let (value, spent) = self.of(name, work);
        if let Some(last) = self.took.last_mut() {
            last.1 = last.1.saturating_sub(spent);
        }
        value
    }
}

/// What the daemon keeps from one round to the next.
struct Kept {
    state: RoundState,
    /// The assignment of jobs to places, where GPUs are lent.
    places: Option<PlaceAssignments>,
    snapshot: Option<Snapshot>,
}

/// The `i`-th node or place that malleable job `n` holds, and the Slurm job there.
fn held(site: Site, n: u32, i: u32) -> HeldNode {
    let at = n * answers::HELD_EACH + i;
    match site {
        Site::Whole => {
            let node = NodeName::new(answers::node_name(answers::FREE - answers::HELD + at));
            HeldNode { node, slurm_job: JobId(1000 + n) }
        }
        Site::Shared => {
            let node = NodeName::new(answers::node_name(answers::share_of(at).0));
            HeldNode { node: node.place_name((at % answers::GPUS) as usize), slurm_job: JobId(1000 + at) }
        }
    }
}

fn facts(site: Site, n: u32, holds: bool) -> JobFacts {
    let curve = ScalingCurve::parse("1:100,2:190,4:350,8:620,16:1050,32:1700,64:2500").expect("a curve");
    let count = if holds { answers::HELD_EACH } else { 0 };
    let lead = holds.then(|| held(site, n, 0).node);
    // The Slurm job on the first place is the lead. The id of a waiting job is not among the running jobs.
    let id = if holds { held(site, n, 0).slurm_job.0 } else { 50_000 + n };
    JobFacts {
        job: JobId(id),
        user: UserId(6000 + n),
        program: ProgramIdentity {
            user: format!("user{n}"),
            job_name: format!("train{n}"),
            reported: None,
            block: 1,
            on_cpus: false,
            exec_plan: ExecPlan::default(),
        },
        sizes: AllowedSizes::Range { min: 1, max: 64 },
        claims: JobDeclaration { curve: Some(curve), ..JobDeclaration::default() },
        standing: if holds { SchedulingState::Running } else { SchedulingState::Waiting },
        since: UnixTime(answers::NOW),
        waits_since: (!holds).then_some(UnixTime(answers::NOW)),
        running: holds.then_some(count),
        place: JobLocation {
            held: (0..count).map(|i| held(site, n, i)).collect(),
            lead_now: lead.clone(),
            lead,
            ..JobLocation::default()
        },
        changing: ResizeState::default(),
        course: JobProgress::default(),
        submitted_at: UnixTime(answers::NOW - 4000),
        excluded: ExcludedNodes::default(),
        ending: false,
    }
}

/// Number of jobs whose planned nodes differ from the nodes that they hold.
fn changed(plan: &Plan, jobs: &[JobFacts]) -> usize {
    let differs = |job: &&JobFacts| {
        let mut wanted: Vec<&NodeName> =
            plan.job_plan(job.job).map(|p| p.nodes.iter().map(|n| &n.node).collect()).unwrap_or_default();
        wanted.sort();
        wanted != job.place.held.iter().map(|h| &h.node).collect::<Vec<_>>()
    };
    jobs.iter().filter(differs).count()
}

fn read(site: Site, places: Option<&mut PlaceAssignments>, stages: &mut Stages) -> (Snapshot, usize) {
    let mut bytes = 0;
    let mut nodes = answers::nodes(site);
    let mut read_nodes =
        stages.less("read nodes", || (offline::read_nodes(&mut nodes).expect("nodes"), nodes.spent));
    bytes += nodes.bytes;
    let mut jobs = answers::jobs(site);
    let read_jobs = stages
        .less("read jobs", || (offline::read_jobs(&mut jobs, &mut read_nodes).expect("jobs"), jobs.spent));
    bytes += jobs.bytes;
    let reservations = answers::reservations();
    let diag = answers::diag();
    let snapshot = stages.of("put together", || {
        offline::build_snapshot(read_nodes, read_jobs, &*reservations, &diag, "infill").expect("a snapshot")
    });
    let snapshot = match places {
        Some(places) => stages.of("seat", || places.snapshot_with_places(snapshot)),
        None => snapshot,
    };
    (snapshot, bytes)
}

fn round(site: Site, number: usize, kept: &mut Kept, config: &Config, jobs: &[JobFacts]) -> (Stages, String) {
    let mut stages = Stages::default();
    let (snapshot, bytes) = read(site, kept.places.as_mut(), &mut stages);
    assert!(snapshot.is_trusted(), "{:?}", snapshot.doubts);
    let now = UnixTime(answers::NOW + 30 * number as i64);
    // All curves are declared, so no size is probed.
    stages.of("look", || kept.state.ingest_snapshot(&snapshot, jobs, AdvisorMode::Watch, now));
    let input = stages.of("ask", || kept.state.round_input(jobs, RoundConstraints::FREE, now));
    let plan = stages.of("plan", || input.solve_plan(config));
    let judged =
        stages.of("check", || check_solved_plan(&input, config, Ok(plan))).expect("a plan that passes");
    assert!(judged.refused.is_empty(), "{:?}", judged.refused);
    let plan = judged.plan;
    let report = stages.of("explain", || input.explain_plan(config, &plan));
    assert_eq!(report.jobs.len(), jobs.len());
    let changes = stages.of("diff", || changed(&plan, jobs));
    let about = format!(
        "{} MB of answers; {} nodes, {} jobs, {} gaps; {:?}: {changes} of {} jobs change",
        bytes / 1_000_000,
        snapshot.nodes.len(),
        snapshot.jobs.len(),
        kept.state.gaps().gaps.len(),
        plan.status,
        jobs.len(),
    );
    kept.snapshot = Some(snapshot);
    (stages, about)
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

fn show(rounds: &[Stages]) {
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!("{:<14} {:>10} {:>10} {:>12}", "stage", "median ms", "least ms", "peak MiB");
    for (i, (name, ..)) in rounds[0].took.iter().enumerate() {
        let times: Vec<Duration> = rounds.iter().map(|r| r.took[i].1).collect();
        let peak = rounds.iter().map(|r| r.took[i].2).max().unwrap_or(0);
        let least = times.iter().copied().min().unwrap_or_default();
        println!("{name:<14} {:>10.2} {:>10.2} {:>12.1}", ms(median(times)), ms(least), mib(peak));
    }
    let totals: Vec<Duration> = rounds.iter().map(|r| r.took.iter().map(|t| t.1).sum()).collect();
    let peak = rounds.iter().flat_map(|r| r.took.iter().map(|t| t.2)).max().unwrap_or(0);
    let least = totals.iter().copied().min().unwrap_or_default();
    println!("{:<14} {:>10.2} {:>10.2} {:>12.1}", "whole round", ms(median(totals)), ms(least), mib(peak));
}

fn show_site(site: Site, config: &Arc<Config>, count: u32) {
    let jobs: Vec<JobFacts> = (0..count).map(|n| facts(site, n, n < HOLDING)).collect();
    let places = (site == Site::Shared)
        .then(|| PlaceAssignments::new("infill", LendingRules::default(), BTreeMap::new()));
    let mut state = RoundState::new(config.clone(), UnixTime(answers::NOW));
    if config.planner.objective == PlanningObjective::Completion {
        ahead::learn(&mut state.priorities_mut().outlook, answers::NOW);
    }
    let mut kept = Kept { state, places, snapshot: None };
    let (_, about) = round(site, 0, &mut kept, config, &jobs);
    println!("{about}");
    let rounds: Vec<Stages> = (1..=ROUNDS).map(|n| round(site, n, &mut kept, config, &jobs).0).collect();
    show(&rounds);
}

fn main() {
    let mut config = Config::default();
    // Jobs with equal worth could be exchanged for each other, which is a separate case.
    let share = |n: u32| (format!("user{n}"), 100.0 / (100.0 + f64::from(n)));
    config.planner.shares = (0..ahead::JOBS).map(share).collect();
    let mut soon = config.clone();
    soon.planner.objective = PlanningObjective::Completion;
    let config = Arc::new(config);
    show_site(Site::Whole, &config, JOBS);
    println!(
        "most resident, the solver and the program itself included: {}",
        common::most_resident_kib().map_or_else(String::new, |kib| format!("{kib} kB"))
    );
    println!("\nGPUs are lent:");
    show_site(Site::Shared, &config, JOBS);
    println!("\nJobs shall end soon:");
    show_site(Site::Whole, &Arc::new(soon), ahead::JOBS);
    small::show();
}
