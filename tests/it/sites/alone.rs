//! What preemption takes by itself: the same main queue over plain jobs of the malleable partition that do
//! nothing but end when they are told to. Nobody who runs in gaps can do better than this.

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::balance::p99;
use super::drive::TURN;
use super::queue::Queue;
use super::spec::Spec;
use crate::harness::Site;
use crate::harness::jobs::clock;

/// Ends at the first signal, as a step that Slurm tells to leave.
const FILLER: &str = "exec srun sleep 600";

/// Runs the main queue for so long, and says by how much its jobs were late.
pub fn run(spec: &Spec, secs: f64, seed: u64) -> String {
    let site = Site::bare_on(&spec.slurm());
    let mut queue = Queue::new(&site, spec);
    let mut random = StdRng::seed_from_u64(seed);
    let end = clock() + secs;
    while clock() < end {
        if queue.waiting().is_none() {
            fill(&site);
        }
        queue.turn(&mut random, true);
        std::thread::sleep(TURN);
    }
    queue.drain();
    let mut delays: Vec<f64> = queue.delays().into_iter().map(|(_, late)| late).collect();
    delays.sort_by(f64::total_cmp);
    assert!(!delays.is_empty(), "no main job was submitted");
    let (median, last) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    format!(
        "Slurm alone, site {}: {} main jobs, a start takes {:.2} s; half at most {median:.2} s late, 99 % {:.2}, \
         the last {last:.2}; seed {seed}",
        spec.name,
        delays.len(),
        queue.calm_secs(),
        p99(&delays)
    )
}

/// A plain job on each idle node, as wings are: in the malleable partition, and with a node of its own.
fn fill(site: &Site) {
    let idle = site.run("root", &["sinfo", "-h", "-N", "-p", "infill", "-t", "idle", "-o", "%N"]);
    let rows = site.queue();
    let waits = rows.iter().any(|row| row.state == "PENDING" || row.state == "CONFIGURING");
    for node in idle.split_whitespace().filter(|_| !waits) {
        let options = ["-p", "infill", "-J", "wing:1", "-N1", "-w", node, "-t", "30", "-o", "/dev/null"];
        // The node may just have been given to a main job.
        drop(site.try_sbatch("alice", &options, FILLER));
    }
}
