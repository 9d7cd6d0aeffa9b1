//! More malleable jobs than nodes, on a real cluster with a main queue: the jobs take turns at little cost.

use std::time::{Duration, Instant};

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Slurm};

/// Numbers of jobs and of nodes for them.
const JOBS: usize = 16;
const NODES: u32 = 4;

/// Samples a second of a job on one node.
const RATE: f64 = 10.0;

/// How long they are watched, seconds. `INFILL_CROWD_SECS` says otherwise.
const SECS: u64 = 240;

/// Seconds from one main job to the next, and the run time of each.
const MAIN_EVERY_SECS: u64 = 50;
const MAIN_SECS: u32 = 20;

/// Least share of the available node time that must go into steps. In the first minutes all jobs have their
/// first turns, which are short.
const USEFUL: f64 = 0.7;

fn submit(site: &Site) -> u32 {
    let curve = "1:10,2:19,3:27,4:34";
    let script = format!(
        "infill run --grace 10 --curve {curve} -- python3 /opt/infill/examples/paced.py --curve {curve} --batch 5 \
         --steps 1000000 --checkpoint /scratch/crowd.$SLURM_JOB_ID"
    );
    let options = ["-p", "infill", "-J", "crowd", "--nodes=1-4", "--output=/scratch/crowd.%j.out"];
    site.sbatch("alice", &options, &script)
}

#[test]
fn jobs_of_a_crowd_take_turns_and_train_nearly_all_the_time() {
    let secs = std::env::var("INFILL_CROWD_SECS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(SECS);
    let site = Site::on(&Slurm::default().nodes(NODES as usize), |settings| settings);
    let jobs: Vec<u32> = (0..JOBS).map(|_| submit(&site)).collect();
    let began = Instant::now();
    let mut taken_secs = 0.0;
    let mut next = MAIN_EVERY_SECS;
    while began.elapsed() < Duration::from_secs(secs) {
        if began.elapsed() >= Duration::from_secs(next) {
            let nodes = 1 + (next / MAIN_EVERY_SECS) as u32 % 2;
            let main = site.main_job(MAIN_SECS, &[&format!("--nodes={nodes}")]);
            site.starts_within(main, PROMPTLY_SECS);
            taken_secs += f64::from(nodes * MAIN_SECS);
            next += MAIN_EVERY_SECS;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let left_secs = f64::from(NODES) * began.elapsed().as_secs_f64() - taken_secs;
    let samples: Vec<f64> = jobs.iter().map(|job| site.view(*job).map_or(0.0, |view| view.samples)).collect();
    let useful = samples.iter().sum::<f64>() / RATE / left_secs;
    println!(
        "{:.1} % of {left_secs:.0} node-seconds went into steps; seconds of each job: {samples:.0?}",
        100.0 * useful
    );
    assert!(useful >= USEFUL, "{useful}");
    if secs >= SECS {
        assert!(samples.iter().all(|samples| *samples > 0.0), "some had no turn: {samples:?}");
    }
    let waits = jobs.iter().find_map(|job| {
        let said = site.must("alice", &["infill", "explain", &job.to_string()]);
        said.contains("waits for its turn: it is number").then_some(said)
    });
    assert!(waits.is_some(), "some waiting job shows its place in line");
    site.must("root", &["scancel", "-u", "alice"]);
}
