//! Sweeps beside a main queue: a job array of short trials with pruning, and a study of Optuna with four
//! drivers.
//!
//! | variable | default | what it does |
//! |---|---|---|
//! | `INFILL_SWEEP_TRIALS` | 200 | trials of each sweep of `tests/run.sh --sweep` |
//! | `INFILL_SWEEP_JSON` | `target/sweep.json` | where its figures go |
//! | `INFILL_OPTUNA` | | a folder with Optuna for the cluster's Python; without it the study is skipped |

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use infill_api::ProfilesView;
use serde::{Deserialize, Serialize};

use crate::harness::jobs::{MainJob, PROMPTLY_SECS, clock};
use crate::harness::{Site, record};
use crate::sites::write_summary;

/// Nodes of the cluster.
const NODES: f64 = 8.0;

/// Seconds between main jobs, and how long each runs.
const MAIN_EVERY_SECS: f64 = 25.0;
const MAIN_SECS: u32 = 12;

/// Least share of the nodes' time without main jobs that trials must have.
const LEAST_HARVEST: f64 = 0.8;

/// Longest time for each trial of a sweep, seconds, with room for a busy machine.
const SECS_A_TRIAL: f64 = 8.0;

/// Most probes of a profile, whatever number of trials share it.
const MOST_PROBES: u32 = 3;

/// How a sweep went.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    sweep: &'static str,
    trials: usize,
    pruned: usize,
    /// Seconds from the first start of a trial until none waits.
    secs: f64,
    /// Share of the time without main jobs that trials had.
    harvest: f64,
    main_jobs: usize,
    /// The longest wait of a main job, seconds.
    worst_delay_secs: f64,
    profiles: BTreeSet<String>,
}

/// A line of the trials' own log.
#[derive(Clone, Debug, Deserialize)]
struct EndedTrial {
    trial: u32,
    state: String,
}

fn ended_trials(site: &Site) -> Vec<EndedTrial> {
    let text = std::fs::read_to_string(site.scratch().join("sweep/ended")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Seconds of nodes that the jobs of a partition had between two moments, by Slurm's accounting.
fn node_secs(site: &Site, partition: &str, from: f64, to: f64) -> f64 {
    let words = [
        "env",
        "SLURM_TIME_FORMAT=%s",
        "sacct",
        "-nPXaD",
        "-S",
        "now-2hours",
        "-r",
        partition,
        "-o",
        "Start,End,NNodes",
    ];
    let text = site.run("root", &words);
    let overlap = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        let begin: f64 = fields.first()?.parse().ok()?;
        let end: f64 = fields.get(1)?.parse().unwrap_or(to);
        let nodes: f64 = fields.get(2)?.parse().ok()?;
        Some((end.min(to) - begin.max(from)).max(0.0) * nodes)
    };
    text.lines().filter_map(overlap).sum()
}

/// The names of the profiles that have measurements.
fn profile_names(site: &Site) -> BTreeSet<String> {
    let text = site.must("alice", &["infill", "profiles", "list", "--json", "--me"]);
    let mut view: ProfilesView = serde_json::from_str(&text).expect("a document of profiles");
    view.profiles.retain(|view| !view.profile.points.is_empty());
    let probes: Vec<u32> = view.profiles.iter().map(|view| view.profile.probes).collect();
    assert!(probes.iter().all(|probes| *probes <= MOST_PROBES), "a family was probed too often: {probes:?}");
    view.profiles
        .into_iter()
        .map(|view| view.profile.key.name)
        .filter(|name| name.starts_with("sweep"))
        .collect()
}

/// Watches a sweep to its end, beside a main queue. `waits` tells whether trials still wait for nodes.
fn watch(site: &Site, sweep: &'static str, trials: usize, waits: impl Fn() -> bool) -> Outcome {
    let mut mains: Vec<MainJob> = Vec::new();
    let mut next_main = clock() + MAIN_EVERY_SECS / 2.0;
    site.until("the first trials to run", 40.0, || {
        site.queue().iter().any(|job| job.user == "alice" && job.runs())
    });
    // Slurm's times are whole seconds.
    let from = clock().ceil();
    let mut to = None;
    let limit = clock() + 60.0 + trials as f64 * SECS_A_TRIAL;
    while site.queue().iter().any(|job| job.user == "alice") {
        assert!(clock() < limit, "the sweep takes too long: {} trials have ended", ended_trials(site).len());
        if to.is_none() && !waits() {
            to = Some(clock().floor());
        }
        if to.is_none() && clock() >= next_main {
            next_main += MAIN_EVERY_SECS;
            let nodes = 1 + mains.len() % 3;
            mains.push(site.main_job(MAIN_SECS, &[&format!("--nodes={nodes}"), "--time=5"]));
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let to = to.unwrap_or_else(clock);
    let mut worst_delay_secs = 0.0f64;
    for main in &mains {
        let started = site.wait("a main job to have started", 60.0, || site.started_at(*main));
        let delay = started - main.submitted_at;
        record::delay(main.id, delay);
        worst_delay_secs = worst_delay_secs.max(delay);
    }
    let idle = NODES * (to - from) - node_secs(site, "main", from, to);
    let ended = ended_trials(site);
    Outcome {
        sweep,
        trials: ended.iter().map(|end| end.trial).collect::<BTreeSet<u32>>().len(),
        pruned: ended.iter().filter(|end| end.state == "PRUNED").count(),
        secs: to - from,
        harvest: node_secs(site, "infill", from, to) / idle,
        main_jobs: mains.len(),
        worst_delay_secs,
        profiles: profile_names(site),
    }
}

/// An array of trials. `flags` are those of `trial.py`.
fn array_sweep(site: &Site, trials: usize, flags: &str) -> Outcome {
    let script = format!(
        "infill run --grace 5 --profile sweep --profile-by layers -- python3 /opt/infill/tests/it/trial.py \
         --dir /scratch/sweep --trial $SLURM_ARRAY_TASK_ID --layers $((SLURM_ARRAY_TASK_ID % 2 * 3 + 1)) {flags}"
    );
    std::fs::create_dir_all(site.scratch().join("sweep")).expect("cannot write into /scratch");
    site.must("root", &["chmod", "777", "/scratch/sweep"]);
    let range = format!("--array=0-{}", trials - 1);
    let array =
        site.sbatch("alice", &["-p", "infill", "-J", "sweep", "--nodes=1-2", &range], &script).to_string();
    watch(site, "array", trials, || {
        !site.run("root", &["squeue", "-h", "-a", "-t", "PD", "-j", &array, "-o", "%K"]).trim().is_empty()
    })
}

/// A study of Optuna with four drivers.
fn study_sweep(site: &Site, trials: usize, flags: &str) -> Outcome {
    let script = format!(
        "export PYTHONPATH=/scratch/optuna\n\
         infill run --grace 5 --profile sweep -- python3 /opt/infill/tests/it/trial.py --dir /scratch/sweep \
         --study /scratch/sweep/journal --total {trials} {flags}"
    );
    std::fs::create_dir_all(site.scratch().join("sweep")).expect("cannot write into /scratch");
    site.must("root", &["chmod", "777", "/scratch/sweep"]);
    site.sbatch("alice", &["-p", "infill", "-J", "sweep", "--nodes=1-2", "--array=0-3"], &script);
    // With fewer trials left than drivers, some drivers have ended.
    watch(site, "study", trials, || ended_trials(site).len() + 4 < trials)
}

/// Copies Optuna into the cluster; false if there is none.
fn bring_optuna(site: &Site) -> bool {
    let Some(folder) = std::env::var_os("INFILL_OPTUNA").map(PathBuf::from).filter(|f| f.is_dir()) else {
        return false;
    };
    let copied = Command::new("cp").arg("-r").arg(&folder).arg(site.scratch().join("optuna")).status();
    assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", folder.display());
    true
}

fn check(outcome: &Outcome, trials: usize, profiles: &[&str]) {
    eprintln!("{outcome:?}");
    assert!(outcome.trials >= trials, "{outcome:?}");
    assert!(outcome.pruned > 0, "no trial was pruned: {outcome:?}");
    assert!(outcome.worst_delay_secs <= PROMPTLY_SECS, "a main job was late: {outcome:?}");
    let expected: BTreeSet<String> = profiles.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(outcome.profiles, expected, "one profile a family");
}

const FAMILIES: [&str; 2] = ["sweep:layers=1", "sweep:layers=4"];

#[test]
fn an_array_of_trials_fills_idle_nodes_and_learns_one_profile_a_family() {
    let site = Site::acting();
    let outcome = array_sweep(&site, 24, "");
    check(&outcome, 24, &FAMILIES);
    // The beginning and the end of so small a sweep weigh more.
    assert!(outcome.harvest >= LEAST_HARVEST - 0.15, "{outcome:?}");
}

#[test]
fn four_drivers_share_a_study() {
    let site = Site::acting();
    if !bring_optuna(&site) {
        return infill_testkit::skips::skip_test("Optuna (INFILL_OPTUNA)");
    }
    let outcome = study_sweep(&site, 16, "--rung 10 --steps 40");
    check(&outcome, 16, &["sweep"]);
}

#[test]
#[ignore = "takes long: tests/run.sh --sweep"]
fn two_hundred_trials_fill_the_gaps() {
    let trials =
        std::env::var("INFILL_SWEEP_TRIALS").map_or(200, |text| text.parse().expect("a number of trials"));
    let mut outcomes = Vec::new();
    {
        let site = Site::with(|settings| settings.set("advisor.probe", true));
        outcomes.push(array_sweep(&site, trials, ""));
    }
    let site = Site::acting();
    if bring_optuna(&site) {
        outcomes.push(study_sweep(&site, trials, ""));
    }
    write_summary("INFILL_SWEEP_JSON", "sweep.json", &outcomes);
    for outcome in &outcomes {
        let profiles: &[&str] = if outcome.sweep == "array" { &FAMILIES } else { &["sweep"] };
        check(outcome, trials, profiles);
        assert!(outcome.harvest >= LEAST_HARVEST, "{outcome:?}");
    }
    assert_eq!(outcomes.len(), 2, "Optuna is missing (INFILL_OPTUNA)");
}
