//! The same story on a real cluster and in the simulator: whenever both have settled, each job has equally
//! many nodes in both.
//!
//! The cluster goes first. Its main queue is read from Slurm's accounting, and replayed. Between an event and
//! the settled state the two may differ by seconds, because a real job takes time to stop and start. Node
//! names are not compared, because nodes are alike.

use std::collections::BTreeMap;
use std::path::Path;

use infill_api::NodeKind;
use infill_model::{
    JobId, JobLog, MalleableState, NamedCurve, NodeName, RescaleCosts, ScalingCurve, UnixTime, WorkloadJob,
    config::Config,
};
use infill_sim::{
    PolicyName, PolicyScore, SimulationSetup,
    job::{ChangeAccounting, CheckpointCosts},
    queue::{Foresight, LogQueue, MainQueue},
    run_simulation,
    supply::{JobSupply, SampleWorth},
};
use infill_traces::read_sacct;

use crate::harness::jobs::{MainJob, clock};
use crate::harness::{Settings, Site};

/// The malleable jobs: name, owner, curve. Each curve has a knee, so that every number of nodes has a single
/// best division. It is better than the next by more than a rescale costs.
const JOBS: [(&str, &str, &str); 2] = [
    ("alpha", "alice", "1:10,2:19,3:27,4:28,5:28.5,6:29,7:29.4,8:29.8"),
    ("beta", "bob", "1:10,2:18,3:23,4:28,5:33,6:34,7:34.5,8:35"),
];

/// The assumed costs of rescales, about as on these clusters.
const COSTS: RescaleCosts = RescaleCosts { up_secs: 3.0, down_secs: 3.0, start_secs: 4.0 };

/// A state counts as settled when it has not changed for this long, seconds.
const SETTLED_SECS: f64 = 5.0;

/// Longest that settling may take, seconds.
const SETTLES_SECS: f64 = 60.0;

/// Longest difference of windows, seconds. Both follow from a start and a limit.
const WINDOW_DIFFERS_SECS: f64 = 5.0;

/// The limit of the main job that reaches it, minutes, and the longest delay until Slurm notices, seconds.
const LIMIT_MINS: u32 = 2;
const NOTICES_SECS: f64 = 60.0;

/// The state at a settled moment.
#[derive(Debug)]
struct Settled {
    what: &'static str,
    at: i64,
    /// Nodes that the main queue does not use.
    idle: usize,
    /// Nodes of each job.
    sizes: [usize; 2],
    /// When the main queue wants nodes, if that is planned.
    windows: BTreeMap<NodeName, UnixTime>,
}

fn settings(site: &Site) -> Settings {
    let curves: toml::Table =
        JOBS.iter().map(|(name, _, curve)| ((*name).to_owned(), (*curve).into())).collect();
    let costs =
        [("up_secs", COSTS.up_secs), ("down_secs", COSTS.down_secs), ("start_secs", COSTS.start_secs)];
    let costs: toml::Table = costs.iter().map(|(key, secs)| ((*key).to_owned(), (*secs).into())).collect();
    Settings::quick(site.port())
        .set("planner.curves", curves)
        .set("planner.costs", costs)
        // Earlier events must not affect what is best now.
        .set("planner.hysteresis", 0.0)
}

fn submit(site: &Site, name: &str, user: &str, curve: &str) -> u32 {
    let script = format!(
        "infill run --grace 10 -- python3 /opt/infill/examples/paced.py --curve {curve} --batch 4 \
         --steps 1000000 --checkpoint /scratch/{name}.$SLURM_JOB_ID"
    );
    site.sbatch(user, &["-p", "infill", "-J", name, "--nodes=1-8"], &script)
}

/// The present state, if jobs have what the plan says and the main queue leaves `idle` nodes.
fn present(site: &Site, what: &'static str, jobs: [u32; 2], idle: usize) -> Option<Settled> {
    let status = site.status()?;
    let round = site.round()?;
    let held = |job: u32| status.nodes.iter().filter(|n| n.job == Some(JobId(job))).count();
    let planned = |job: u32| round.plan.job_plan(JobId(job)).map_or(0, |p| p.nodes.len());
    let calm = |job: u32| {
        let view = status.jobs.iter().find(|j| j.job.0 == job);
        view.is_some_and(|j| {
            j.state == if held(job) > 0 { MalleableState::Running } else { MalleableState::Queued }
        })
    };
    let carried_out = jobs.iter().all(|job| held(*job) == planned(*job) && calm(*job));
    let found = status.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Gap | NodeKind::Held)).count();
    let windows = status.nodes.iter().filter_map(|n| Some((n.node.clone(), n.window_end?))).collect();
    (carried_out && found == idle).then(|| Settled {
        what,
        // The state has lasted longer. In the present second a main job may still start.
        at: clock() as i64 - 1,
        idle,
        sizes: jobs.map(held),
        windows,
    })
}

/// Waits until nothing has changed for a while, with this many nodes for the malleable jobs.
fn settle(site: &Site, what: &'static str, jobs: [u32; 2], idle: usize) -> Settled {
    let mut since: Option<(f64, [usize; 2])> = None;
    let settled = site.wait(what, SETTLES_SECS, || {
        let now = present(site, what, jobs, idle);
        let sizes = now.as_ref().map(|n| n.sizes);
        since = since.filter(|(_, before)| Some(*before) == sizes).or(sizes.map(|sizes| (clock(), sizes)));
        now.filter(|_| since.is_some_and(|(begin, _)| clock() - begin >= SETTLED_SECS))
    });
    eprintln!("cluster: {settled:?}");
    settled
}

/// A main job that starts at once, even if its nodes are in use.
fn intrude(site: &Site, secs: u32, options: &[&str]) -> MainJob {
    let job = site.main_job(secs, options);
    site.starts_within(job, 10.0);
    job
}

/// The story: the settled moments, the main jobs, and when the malleable jobs were submitted.
fn on_the_cluster(site: &Site) -> (Vec<Settled>, Vec<u32>, Vec<f64>) {
    // The replay begins with the first main job's start.
    let opening = intrude(site, 3, &["--nodes=1"]);
    site.end_of(opening.id, 20.0);
    let submitted = vec![clock(), clock()];
    let jobs = JOBS.map(|(name, user, curve)| submit(site, name, user, curve));
    let mut moments = vec![settle(site, "all nodes idle", jobs, 8)];
    let limit = format!("--time={LIMIT_MINS}");
    let over = intrude(site, 3600, &["--nodes=3", &limit]);
    moments.push(settle(site, "three nodes taken", jobs, 5));
    let behind = site.main_job(20, &["--nodes=8", "--time=1"]);
    site.until("backfill's plan to be seen", 20.0, || {
        site.status().is_some_and(|s| s.nodes.iter().any(|n| n.job.is_some() && n.window_end.is_some()))
    });
    moments.push(settle(site, "a job for all nodes planned behind them", jobs, 5));
    let ended = site.end_of(over.id, f64::from(LIMIT_MINS) * 60.0 + NOTICES_SECS);
    assert!(ended.starts_with("TIMEOUT"), "the job must run into its limit, but is {ended}");
    site.wait("the planned job to start", 30.0, || site.started_at(behind));
    moments.push(settle(site, "all nodes taken", jobs, 0));
    site.end_of(behind.id, 60.0);
    moments.push(settle(site, "all nodes idle again", jobs, 8));
    let two = intrude(site, 3600, &["--nodes=2", "--time=10"]);
    moments.push(settle(site, "two nodes taken", jobs, 6));
    // The replay ends with the last job's end. A job that still runs in the log's last second would be left
    // out of it.
    let closing = intrude(site, 3, &["--nodes=1"]);
    site.end_of(closing.id, 20.0);
    (moments, [opening, over, behind, two, closing].map(|j| j.id).to_vec(), submitted)
}

/// The accounting of these jobs, once it is complete.
fn accounted(site: &Site, jobs: &[u32]) -> JobLog {
    let ids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let columns = "JobID,User,Account,Partition,Submit,Start,End,Timelimit,NNodes,NodeList,State";
    let list = ids.join(",");
    let words = ["env", "TZ=UTC", "sacct", "-aXPo", columns, "-j", &list];
    let file = tempfile::NamedTempFile::new().expect("a file");
    site.wait("the accounting to know all main jobs", 30.0, || {
        std::fs::write(file.path(), site.must("root", &words)).expect("the file can be written");
        // No other jobs ran.
        let log = JobLog { complete_from: None, ..read_sacct(file.path()).ok()?.value };
        (log.jobs.len() == jobs.len()).then_some(log)
    })
}

fn simulate(log: &JobLog, config: &Config, submitted: &[f64]) -> PolicyScore {
    let curves = JOBS.map(|(name, _, text)| {
        let curve = ScalingCurve::parse(text).expect("a curve");
        NamedCurve { name: name.to_owned(), curve }
    });
    let begin = log.jobs.first().map_or(0, |j| j.start);
    let workload: Vec<WorkloadJob> = JOBS
        .iter()
        .zip(submitted)
        .map(|((name, ..), at)| WorkloadJob {
            name: (*name).to_owned(),
            submit_secs: *at as i64 - begin,
            samples: f64::INFINITY,
            min_nodes: 1,
            max_nodes: 8,
            curve: (*name).to_owned(),
            weight: 1.0,
            user: None,
        })
        .collect();
    let setup = SimulationSetup {
        queue: MainQueue::Log(LogQueue::new(log, None)),
        // As in the daemon, a node-second weighs the same at each job's smallest size.
        supply: JobSupply::from_list(&workload, &curves, SampleWorth::NodeSecond).expect("a workload"),
        costs: COSTS,
        accounting: ChangeAccounting::Pause,
        warm_secs: 0.0,
        checkpoints: CheckpointCosts { save_secs: 0.0, interval_secs: 600.0, grace_secs: 10.0 },
        leave_secs: config.gaps.leave_secs,
        save_shared: 0.0,
        noise: 0.0,
        seed: 1,
        most_secs: None,
        timeline_nodes: 8,
    };
    run_simulation(&setup, PolicyName::InfillKnown.build_policy(config), &mut |_| {})
}

/// Idle nodes and sizes of the jobs, in the order of their submission, at one moment of a simulation.
fn simulated(outcome: &PolicyScore, at: i64) -> (usize, [usize; 2]) {
    let mut ids: Vec<JobId> = outcome.timeline.iter().filter_map(|s| s.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let here: Vec<_> = outcome.timeline.iter().filter(|s| (s.from..s.to).contains(&at)).collect();
    let size = |i: usize| here.iter().filter(|s| s.job.is_some() && s.job.as_ref() == ids.get(i)).count();
    (here.len(), [size(0), size(1)])
}

/// When the simulator's backfill plans to take each node, as planned at this moment.
fn planned(log: &JobLog, at: i64) -> BTreeMap<NodeName, UnixTime> {
    let mut queue = MainQueue::Log(LogQueue::new(log, None));
    while queue.next_change().is_some_and(|next| next <= at) {
        queue.advance();
    }
    queue
        .node_names()
        .iter()
        .zip(0..)
        .filter_map(|(name, node)| {
            Some((name.clone(), UnixTime(queue.window_end(node, Foresight::Backfill)?.at)))
        })
        .collect()
}

#[test]
fn the_simulator_gives_what_the_cluster_gives() {
    let site = Site::bare();
    let settings = settings(&site);
    site.configure(&settings);
    site.start();
    let (moments, main_jobs, submitted) = on_the_cluster(&site);
    let log = accounted(&site, &main_jobs);
    let config = Config::parse(&settings.text(), Path::new("infill.toml")).expect("the settings");
    let outcome = simulate(&log, &config, &submitted);
    assert_eq!(outcome.refused_plans, 0, "the checker refused a plan");
    let mut wrong = Vec::new();
    for Settled { what, at, idle, sizes, windows } in &moments {
        let there = simulated(&outcome, *at);
        eprintln!("{what}: cluster {idle} idle, {sizes:?}; simulator {} idle, {:?}", there.0, there.1);
        if (*idle, *sizes) != there {
            wrong.push(format!("{what}: {idle} idle, {sizes:?} on the cluster, {there:?} in the simulator"));
        }
        let plans = planned(&log, *at);
        for (node, end) in windows {
            let differs = plans.get(node).map(|plan| end.secs_since(*plan));
            eprintln!("  {node}: the cluster's window ends {differs:?} s after the simulator's");
            if differs.is_none_or(|secs| secs.abs() > WINDOW_DIFFERS_SECS) {
                wrong.push(format!(
                    "{what}: {node} is wanted at {end}, and in the simulator {differs:?} s before"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{:#?}", wrong.join("\n"), outcome.timeline);
}
