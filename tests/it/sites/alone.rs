//! The cost of preemption itself: the same main queue over plain jobs of the malleable partition that end
//! when asked to. No scheduler that fills gaps can do better than this. And the main queue by itself, which
//! shows how exact the measurement is.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use serde::Serialize;

use super::balance::{heads_of_delays, row_of_delays};
use super::queue::Queue;
use super::spec::Spec;
use crate::harness::{Site, jobs::clock};

/// Ends at the first signal, as a job step that Slurm asks to leave.
const FILLER: &str = "exec srun sleep 600";

/// The delays of main jobs without infill, seconds.
#[derive(Debug, Serialize)]
pub struct WithoutInfill {
    version: u32,
    site: String,
    secs: f64,
    seed: u64,
    /// On nodes that are idle or have other main jobs.
    alone: Vec<f64>,
    /// Over plain jobs that end when asked to.
    over_plain_jobs: Vec<f64>,
}

impl WithoutInfill {
    /// The delays as a table.
    pub fn show(&self) -> String {
        format!(
            "site {}, {} s each, seed {}\n{}{}{}",
            self.site,
            self.secs,
            self.seed,
            heads_of_delays(),
            row_of_delays("the main queue by itself", &self.alone),
            row_of_delays("over plain jobs that end at once", &self.over_plain_jobs)
        )
    }
}

/// Runs the main queue twice for this long, by itself and over plain jobs.
pub fn run(spec: &Spec, secs: f64, seed: u64) -> WithoutInfill {
    WithoutInfill {
        version: 1,
        site: spec.name.clone(),
        secs,
        seed,
        alone: delays(spec, secs, seed, false),
        over_plain_jobs: delays(spec, secs, seed, true),
    }
}

/// Runs the main queue for this long, and returns how late its jobs were. `filled`: over plain jobs.
fn delays(spec: &Spec, secs: f64, seed: u64, filled: bool) -> Vec<f64> {
    let site = Site::bare_on(&spec.slurm());
    if let Some(words) = spec.accounting() {
        site.must("root", &words);
    }
    let mut queue = Queue::new(&site, spec);
    let mut random = StdRng::seed_from_u64(seed);
    let end = clock() + secs;
    while clock() < end {
        let may = queue.waiting().is_none() && (!filled || fill(&site));
        queue.turn(&mut random, may);
        // slurmctld looks at its queue at whole seconds, and submissions must not be in step with that.
        std::thread::sleep(Duration::from_secs_f64(random.random()));
    }
    queue.drain();
    let delays: Vec<f64> = queue.delays().into_iter().map(|(_, late)| late).collect();
    assert!(!delays.is_empty(), "no main job was submitted");
    delays
}

/// Puts a plain job on each idle node, as wings are: in the malleable partition, each on its own node.
/// Returns whether all nodes are in use.
fn fill(site: &Site) -> bool {
    let states = site.run("root", &["sinfo", "-h", "-N", "-p", "infill", "-o", "%T %N"]);
    let idle = states.lines().filter_map(|line| line.strip_prefix("idle "));
    let waits = site.queue().iter().any(|row| !row.runs());
    for node in idle.filter(|_| !waits) {
        let options = ["-p", "infill", "-J", "wing:1", "-N1", "-w", node, "-t", "30", "-o", "/dev/null"];
        // A main job may just have got the node.
        drop(site.try_sbatch("alice", &options, FILLER));
    }
    states.lines().all(|line| ["allocated", "mixed"].iter().any(|state| line.starts_with(state)))
}
