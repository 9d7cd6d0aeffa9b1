//! The cost of preemption itself: the same main queue over plain jobs of the malleable partition that end
//! when asked to. No scheduler that fills gaps can do better than this.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::balance::p99;
use super::queue::Queue;
use super::spec::Spec;
use crate::harness::{Site, jobs::clock};

/// Ends at the first signal, as a job step that Slurm asks to leave.
const FILLER: &str = "exec srun sleep 600";

/// Runs the main queue for this long, and reports how late its jobs were.
pub fn run(spec: &Spec, secs: f64, seed: u64) -> String {
    let site = Site::bare_on(&spec.slurm());
    if let Some(words) = spec.accounting() {
        site.must("root", &words);
    }
    let mut queue = Queue::new(&site, spec);
    let mut random = StdRng::seed_from_u64(seed);
    let end = clock() + secs;
    while clock() < end {
        let full = queue.waiting().is_none() && fill(&site);
        queue.turn(&mut random, full);
        // slurmctld looks at its queue at whole seconds, and submissions must not be in step with that.
        std::thread::sleep(Duration::from_secs_f64(random.random()));
    }
    queue.drain();
    let mut delays: Vec<f64> = queue.delays().into_iter().map(|(_, late)| late).collect();
    delays.sort_by(f64::total_cmp);
    assert!(!delays.is_empty(), "no main job was submitted");
    let median = delays[delays.len() / 2];
    let last = delays[delays.len() - 1];
    format!(
        "Slurm alone, site {}: {} main jobs, a start takes {:.2} s; half at most {median:.2} s late, 99 % {:.2}, \
         the last {last:.2}; seed {seed}",
        spec.name,
        delays.len(),
        queue.calm_secs(),
        p99(&delays)
    )
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
