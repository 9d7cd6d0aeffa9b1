//! Measures how long `infill simulate` takes on logs of real machines: `cargo bench --bench sim [-- --quick]
//! [CASE…]`.
//!
//! Each case runs in its own process, so that the peak memory belongs to it alone. Goals, on two cores: a
//! week of all 4,608 nodes of Summit within 10 min and 1 GiB; Theta's 206 days within 2 min; rounds as fast
//! in a long log as in a short one; each log read within 1 s. The logs are not part of this repository.
//! Without them the bench says so and ends.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use infill_model::RescaleCosts;
use infill_model::config::Config;
use infill_sim::{
    PolicyName, SimulationSetup,
    job::{ChangeAccounting, CheckpointCosts},
    queue::{IdleQueue, LogQueue, MainQueue},
    run_simulation,
    supply::{JobSupply, SampleWorth},
};
use infill_traces as traces;
use infill_traces::{SwfLayout, SwfOptions};

/// The flag that makes a process run one case.
const ONE: &str = "--one=";

/// Number of days of a log that `--quick` simulates.
const QUICK_DAYS: i64 = 1;

const DAY_SECS: i64 = 86_400;

/// A log with the number of days to read and the number to simulate. 0 means all days.
struct Case {
    name: &'static str,
    log: &'static str,
    nodes: usize,
    read_days: i64,
    days: i64,
}

const CASES: [Case; 6] = [
    Case { name: "summit-1024", log: SUMMIT, nodes: 1024, read_days: 0, days: 0 },
    Case { name: "summit-4608", log: SUMMIT, nodes: 4608, read_days: 0, days: 0 },
    // The same twenty days: once from a log that ends with them, once from a log ten times as long.
    Case { name: "theta-short", log: THETA, nodes: 4392, read_days: 20, days: 20 },
    Case { name: "theta-start", log: THETA, nodes: 4392, read_days: 0, days: 20 },
    Case { name: "theta", log: THETA, nodes: 4392, read_days: 0, days: 0 },
    Case { name: "kth", log: KTH, nodes: 100, read_days: 0, days: 0 },
];

const SUMMIT: &str = "idle/summit-2021-02-week1.csv.xz";
const THETA: &str = "jobs/theta-2023.swf.xz";
const KTH: &str = "jobs/KTH-SP2-1996-2.1-cln.swf.xz";

fn main() {
    let Some(root) = common::data() else { return };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|a| a == "--quick");
    let one = arguments.iter().find_map(|a| a.strip_prefix(ONE));
    if let Some(case) = one.and_then(|name| CASES.iter().find(|c| c.name == name)) {
        return measure(case, &root, quick);
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    println!(
        "{:<12} {:>6} {:>7} {:>8} {:>8} {:>10} {:>9} {:>10} {:>12}",
        "case", "days", "read s", "bound s", "infill s", "rounds", "ms/round", "peak MiB", "efficiency"
    );
    for case in CASES.iter().filter(|c| wanted.is_empty() || wanted.iter().any(|w| *w == c.name)) {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.arg(format!("{ONE}{}", case.name)).args(quick.then_some("--quick"));
        assert!(command.status().expect("this program starts").success(), "{} broke", case.name);
    }
}

fn measure(case: &Case, root: &Path, quick: bool) {
    let clock = Instant::now();
    let setup = setup(case, root, quick);
    let read_secs = clock.elapsed().as_secs_f64();
    let timed = |policy: PolicyName| {
        let clock = Instant::now();
        let outcome = run_simulation(&setup, policy.build_policy(&Config::default()), &mut |_| {});
        (outcome, clock.elapsed().as_secs_f64())
    };
    let (bound, bound_secs) = timed(PolicyName::Bound);
    let (infill, infill_secs) = timed(PolicyName::InfillKnown);
    assert_eq!(infill.refused_plans, 0, "the checker passes all plans");
    let (start, end) = setup.queue.time_span();
    let days = setup.most_secs.map_or(end - start, |most| most.min(end - start)) / DAY_SECS;
    println!(
        "{:<12} {days:>6} {read_secs:>7.2} {bound_secs:>8.1} {infill_secs:>8.1} {:>10} {:>9.3} {:>10} {:>12.4}",
        case.name,
        infill.rounds,
        1e3 * infill_secs / infill.rounds.max(1) as f64,
        common::most_resident_kib().map_or_else(String::new, |kib| format!("{:.0}", kib as f64 / 1024.0)),
        infill.work / bound.work,
    );
}

fn setup(case: &Case, root: &Path, quick: bool) -> SimulationSetup {
    let curves = traces::read_curves(&root.join("scaling/summit.csv")).expect("curves").value;
    let supply = JobSupply::endless_jobs(10, &curves, (1, 64), SampleWorth::Sample).expect("jobs");
    let days = if quick { QUICK_DAYS } else { case.days };
    SimulationSetup {
        queue: queue(case, root),
        supply,
        costs: RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 },
        accounting: ChangeAccounting::Pause,
        warm_secs: 0.0,
        checkpoints: CheckpointCosts { save_secs: 1.0, interval_secs: 600.0, grace_secs: 2.0 },
        leave_secs: 5.0,
        save_shared: 0.0,
        noise: 0.02,
        seed: 1,
        most_secs: (days > 0).then_some(days * DAY_SECS),
        timeline_nodes: 0,
    }
}

fn queue(case: &Case, root: &Path) -> MainQueue {
    let path = root.join(case.log);
    if case.log == SUMMIT {
        let log = traces::read_idle(&path).expect("a log of idle nodes").value;
        return MainQueue::Idle(IdleQueue::new(&log, case.nodes));
    }
    let options = SwfOptions { layout: SwfLayout::Auto, procs_per_node: None };
    let mut log = traces::read_swf(&path, options).expect("a log of jobs").value;
    if case.read_days > 0 {
        let start = log.jobs.first().map_or(0, |j| j.start);
        log.jobs.retain(|j| j.start < start + case.read_days * DAY_SECS);
    }
    MainQueue::Log(LogQueue::new(&log, Some(case.nodes)))
}
