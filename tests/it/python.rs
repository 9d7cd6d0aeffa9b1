//! The Python package in use: the PyTorch example, rescaled at random moments, sees each sample of each epoch
//! once. It learns the same as an undisturbed training.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;

use infill_model::MalleableState;

use crate::harness::Site;

/// Rescales that must have happened before the training may come to its end.
const RESCALES: u32 = 10;

/// Samples of an epoch, as in the example.
const POINTS: u32 = 4096;

/// Divides neither by the numbers of ranks nor the epoch.
const GLOBAL_BATCH: u32 = 150;

/// Enough for all rescales on a busy machine.
const EPOCHS: u32 = 18;

/// Longest time that the job stays at one size, in steps.
const MOST_STEPS: u64 = 12;

/// As in the package's own tests: ranks sum 64-bit numbers in another order, and training lets the difference
/// grow to some 1e-12. A single wrong sample moves weights by 0.4.
const TOLERANCE: f64 = 1e-8;

/// One line of the example's trace: what one rank did in one step.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    step: u64,
    generation: u64,
    world: u32,
    rank: u32,
    epoch: u32,
    mine: Vec<u32>,
}

fn steps() -> u32 {
    EPOCHS * POINTS.div_ceil(GLOBAL_BATCH)
}

fn flags(name: &str) -> String {
    format!(
        "/opt/infill/examples/train_ddp.py --double --steps {} --global-batch {GLOBAL_BATCH} --micro-batch 40 \
         --checkpoint {name}.pt --log {name}.jsonl --trace {name}.trace",
        steps()
    )
}

fn trace(site: &Site, name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(site.scratch().join(format!("{name}.trace"))).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until it trains on this many nodes, and then for this many steps more. Before the end of the first
/// step, the signal just ends it.
fn until_trains(site: &Site, world: u32, steps: u64) {
    let lead = || trace(site, "job").into_iter().rfind(|l| l.rank == 0);
    let begun = site
        .wait(&format!("PyTorch to train on {world} nodes"), 90.0, || lead().filter(|l| l.world == world));
    site.until("some more steps", 60.0, || lead().is_some_and(|l| l.step >= begun.step + steps));
}

/// Checks that each sample comes once, each step comes from all ranks of one generation, and all ranks of a
/// generation end with the same step.
fn check(lines: &[Line]) {
    let mut seen = BTreeMap::<u32, Vec<u32>>::new();
    let mut ranks = BTreeMap::<(u64, u64, u32), BTreeSet<u32>>::new();
    for line in lines {
        seen.entry(line.epoch).or_default().extend(&line.mine);
        let new = ranks.entry((line.step, line.generation, line.world)).or_default().insert(line.rank);
        assert!(new, "rank {} did step {} twice", line.rank, line.step);
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (0..EPOCHS).collect::<Vec<_>>());
    for (epoch, mut samples) in seen {
        samples.sort_unstable();
        assert!(samples.into_iter().eq(0..POINTS), "epoch {epoch} skipped or repeated samples");
    }
    assert_eq!(ranks.len(), steps() as usize, "a step was done in two generations");
    for ((step, generation, world), ranks) in ranks {
        assert_eq!(ranks.len(), world as usize, "ranks of generation {generation} that did step {step}");
    }
}

#[test]
fn ten_rescales_at_random_moments_change_nothing_of_what_is_learned() {
    // Four interpreters with PyTorch share two cores, so no time may be cut off.
    let site = Site::with(|s| s.set("agent.preempt_leave_secs", 20.0));
    let alone =
        format!("cd /scratch && export MASTER_PORT={} && python3 {}", site.port() + 1, flags("alone"));
    site.must("alice", &["bash", "-c", &alone]);

    // Twice the nodes, half a step. A job that gains nothing from more nodes would be left with few.
    let pace = "--step-secs $(awk \"BEGIN { print 0.4 / $WORLD_SIZE }\")";
    let script =
        format!("cd /scratch\n infill run --grace 60 -- bash -c 'exec python3 {} {pace}'", flags("job"));
    let job =
        site.sbatch("alice", &["-p", "infill", "-J", "spirals", "--chdir=/tmp", "--nodes=1-4"], &script);
    let mut random = StdRng::seed_from_u64(1);
    until_trains(&site, 4, 1);
    while site.view(job).is_none_or(|view| view.rescales < RESCALES) {
        let world = random.random_range(1..4);
        let main = site.main_job(600, &[&format!("--nodes={}", 8 - world)]);
        until_trains(&site, world, random.random_range(1..=MOST_STEPS));
        site.must("root", &["scancel", &main.id.to_string()]);
        until_trains(&site, 4, random.random_range(1..=MOST_STEPS));
    }
    let view = site.view(job).expect("the job");
    assert_eq!((view.restarts, view.state), (0, MalleableState::Running), "{view:?}");
    assert_eq!(site.end_of(job, 180.0), "COMPLETED 0:0");

    check(&trace(&site, "job"));
    let compare = "import torch\n\
        a, b = (torch.load(f'/scratch/{n}.pt', weights_only=True)['model'].values() for n in ('alone', 'job'))\n\
        print(max((x - y).abs().max().item() for x, y in zip(a, b)))";
    let apart: f64 = site.must("alice", &["python3", "-c", compare]).trim().parse().expect("a number");
    eprintln!("after {} rescales the weights are {apart:e} apart", view.rescales);
    assert!(apart < TOLERANCE, "the weights are {apart:e} apart");
}
