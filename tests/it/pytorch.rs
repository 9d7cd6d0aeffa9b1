//! The PyTorch example, data-parallel over real processes: its learned state survives every rescale and
//! failure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::harness::Site;
use crate::harness::jobs::PROMPTLY_SECS;

/// Steps of the rescaled training: enough for four rescales on a busy machine.
const STEPS: u64 = 160;

/// Shortest time of a step. PyTorch's own is a few milliseconds.
const STEP_SECS: f64 = 0.2;

/// The rescaled and the undisturbed training sum the same numbers in another order.
const LOSS_TOLERANCE: f64 = 2e-3;

#[derive(Clone, Debug, Deserialize)]
struct Line {
    step: u64,
    loss: f64,
    world: u32,
    generation: u64,
}

fn log<L: DeserializeOwned>(site: &Site, name: &str) -> Vec<L> {
    let text = std::fs::read_to_string(site.scratch().join(name)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn submit(site: &Site, nodes: &str, run: &str, flags: &str) -> u32 {
    let script = format!(
        "cd /scratch\n infill run {run} -- python3 /opt/infill/examples/train_ddp.py \
         --checkpoint $SLURM_JOB_ID.pt --log $SLURM_JOB_ID.jsonl {flags}"
    );
    site.sbatch("alice", &["-p", "infill", "-J", "spirals", "--chdir=/tmp", nodes], &script)
}

fn until_world(site: &Site, job: u32, world: u32) {
    site.until(&format!("PyTorch to train on {world} nodes"), 60.0, || {
        log::<Line>(site, &format!("{job}.jsonl")).last().is_some_and(|line| line.world == world)
    });
}

#[test]
fn a_rescaled_training_learns_what_an_undisturbed_one_learns() {
    // PyTorch's interpreters take a second to exit when four of them share two cores.
    let site = Site::with(|s| s.set("agent.preempt_leave_secs", 2.5));
    let alone = format!(
        "cd /scratch && export MASTER_PORT={} && python3 /opt/infill/examples/train_ddp.py --steps {STEPS} --checkpoint alone.pt --log alone.jsonl",
        site.port() + 1
    );
    site.must("alice", &["bash", "-c", &alone]);
    let curve = log::<Line>(&site, "alone.jsonl");
    assert_eq!(curve.len() as u64, STEPS, "the undisturbed training");

    let flags = format!("--steps {STEPS} --step-secs {STEP_SECS}");
    let first = site.main_job(600, &["--nodes=6"]);
    site.until("the main job to run", 10.0, || site.started_at(first).is_some());
    let job = submit(&site, "--nodes=1-4", "--grace 20", &flags);
    until_world(&site, job, 2);
    site.must("root", &["scancel", &first.id.to_string()]);
    until_world(&site, job, 4);
    let second = site.main_job(600, &["--nodes=5"]);
    site.starts_within(second, PROMPTLY_SECS);
    until_world(&site, job, 3);
    site.must("root", &["scancel", &second.id.to_string()]);
    until_world(&site, job, 4);
    let view = site.view(job).expect("the job");
    assert!(view.rescales >= 3 && view.restarts == 0, "{view:?}");
    assert_eq!(site.end_of(job, 90.0), "COMPLETED 0:0");

    let lines = log::<Line>(&site, &format!("{job}.jsonl"));
    assert_eq!(lines.last().map(|l| l.step), Some(STEPS));
    let mut times_done = BTreeMap::<u64, u64>::new();
    lines.iter().for_each(|l| *times_done.entry(l.step).or_default() += 1);
    let missing: Vec<u64> = (1..=STEPS).filter(|s| !times_done.contains_key(s)).collect();
    assert!(missing.is_empty(), "steps were skipped: {missing:?}");
    let again: u64 = times_done.values().map(|n| n - 1).sum();
    let generations = lines.last().map_or(0, |l| l.generation);
    assert!(again < generations, "{again} steps were done again in {generations} generations");
    let reference: BTreeMap<u64, f64> = curve.iter().map(|l| (l.step, l.loss)).collect();
    for line in &lines {
        let apart = (line.loss - reference[&line.step]).abs();
        assert!(apart < LOSS_TOLERANCE, "at step {} the losses are {apart} apart: {line:?}", line.step);
    }
    let begin = lines[0].loss;
    let end = lines[lines.len() - 1].loss;
    assert!(end < 0.9 * begin, "it learned nothing: {begin} to {end}");
}

#[test]
fn a_failure_is_retried_and_is_no_rescale() {
    let site = Site::acting();
    let flags =
        "--steps 60 --step-secs 0.1 --checkpoint-every 5 --fail-at 20 --fail-rank 1 --fail-once failed-once";
    let job = submit(&site, "--nodes=2", "--grace 20", flags);
    site.until("the retry to train", 90.0, || {
        log::<Line>(&site, &format!("{job}.jsonl")).iter().any(|l| l.generation > 1)
    });
    let view = site.view(job).expect("the job");
    assert_eq!((view.restarts, view.rescales), (1, 0), "{view:?}");
    assert_eq!(site.end_of(job, 60.0), "COMPLETED 0:0");
    assert!(site.scratch().join("failed-once").exists());
    assert_eq!(log::<Line>(&site, &format!("{job}.jsonl")).last().map(|l| l.step), Some(60));
}

#[test]
fn a_failure_that_stays_fails_the_slurm_job_with_its_code() {
    let site = Site::acting();
    let flags = "--steps 60 --fail-at 5 --fail-rank 1";
    let job = submit(&site, "--nodes=2", "--grace 20 --max-restarts 1", flags);
    assert_eq!(site.end_of(job, 120.0), "FAILED 3:0");
    site.until("its wings to be gone", 15.0, || site.queue().is_empty());
    let view = site.view(job).expect("the job");
    assert_eq!((view.restarts, view.rescales), (1, 0), "{view:?}");
}

/// A line of `examples/train_live.py`: `membership` counts its changes, `generation` the starts of processes.
#[derive(Clone, Debug, Deserialize)]
struct LiveLine {
    step: u64,
    world: u32,
    membership: u64,
    generation: u64,
    time: f64,
}

#[test]
fn a_live_training_changes_its_size_without_a_restart() {
    let site = Site::acting();
    let until_world = |job, world: u32| {
        site.until(&format!("PyTorch to train on {world} nodes"), 90.0, || {
            log::<LiveLine>(&site, &format!("{job}.jsonl")).last().is_some_and(|line| line.world == world)
        });
    };
    let first = site.main_job(600, &["--nodes=6"]);
    site.until("the main job to run", 10.0, || site.started_at(first).is_some());
    let script = format!(
        "cd /scratch\n infill run --grace 20 --curve 1:10,2:19,3:27,4:35 -- python3 /opt/infill/examples/train_live.py \
         --steps 1000000 --step-secs {STEP_SECS} --checkpoint $SLURM_JOB_ID.pt --log $SLURM_JOB_ID.jsonl"
    );
    let options = ["-p", "infill", "-J", "spirals", "--chdir=/tmp", "--nodes=1-4"];
    let job = site.sbatch("alice", &options, &script);
    until_world(job, 2);
    site.must("root", &["scancel", &first.id.to_string()]);
    until_world(job, 4);
    // Only without the lead's node the lead is started again.
    let lead = site.view(job).expect("the daemon knows it").nodes[0].to_string();
    let exclude = format!("--exclude={lead}");
    let second = site.main_job(600, &["--nodes=5", &exclude]);
    site.starts_within(second, PROMPTLY_SECS);
    until_world(job, 3);
    site.must("root", &["scancel", &second.id.to_string()]);
    until_world(job, 4);
    let victim = site.view(job).expect("the daemon knows it").nodes[2].to_string();
    let processes = site.processes();
    let of_victim = processes.iter().filter(|p| p.node() == Some(&victim) && p.runs("live.py"));
    of_victim.for_each(|p| p.kill());
    until_world(job, 3);
    site.must("root", &["scancel", &job.to_string()]);
    let lines = log::<LiveLine>(&site, &format!("{job}.jsonl"));
    for (i, two) in lines.windows(2).enumerate() {
        assert_eq!(two[1].step, two[0].step + 1, "line {i}: no step is done twice, and none is left out");
        if two[0].membership != two[1].membership {
            let pause = two[1].time - two[0].time - STEP_SECS;
            eprintln!("{} to {} nodes: {pause:.2} s more than a step", two[0].world, two[1].world);
        }
    }
    assert!(lines.iter().all(|line| line.generation == 1), "processes were started again");
}
