//! A stranger on the network, beside a job that changes its size while it lives. Its messages are not
//! believed, and its pickles are not loaded.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde::Deserialize;

use crate::harness::Site;
use crate::harness::jobs::PROMPTLY_SECS;

/// Paths in the clusters.
const STRANGER: &str = "/opt/infill/contrib/python/tests/stranger.py";

/// The file in which bob finds the ports of this cluster's trainings, and no others.
const PORTS: &str = "/scratch/ports";

/// How long bob goes on: until the test ends the program.
const BOB_SECS: &str = "600";

/// Shortest time of a step.
const STEP_SECS: f64 = 0.2;

/// A line of `examples/train_live.py`.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    step: u64,
    world: u32,
    membership: u64,
    generation: u64,
}

/// A stranger's program; ended when it goes out of scope.
struct Stranger(Child);

impl Stranger {
    fn begin(site: &Site, user: &str, words: &[&str]) -> Stranger {
        let words: Vec<&str> = ["python3", "-B", STRANGER].iter().chain(words).copied().collect();
        let mut command = site.cluster().command(user, &words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Stranger(command.spawn().expect("nsenter cannot be run"))
    }

    /// Starts bob's program. Waits until it is connected to a store, and returns the port.
    fn connected(site: &Site, words: &[&str]) -> (Stranger, u16) {
        let mut bob = Stranger::begin(site, "bob", words);
        let mut lines = BufReader::new(bob.0.stdout.take().unwrap()).lines();
        let at = lines.find_map(|line| line.ok()?.strip_prefix("at ")?.parse().ok());
        // The program prints more, and must not fail over that.
        std::thread::spawn(move || lines.for_each(drop));
        (bob, at.expect("a store that bob can reach"))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn log(site: &Site, job: u32) -> Vec<Line> {
    let text = std::fs::read_to_string(site.scratch().join(format!("{job}.jsonl"))).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until the job trains on this many nodes. Returns its membership.
fn until_world(site: &Site, job: u32, world: u32) -> u64 {
    site.wait(&format!("PyTorch to train on {world} nodes"), 90.0, || {
        log(site, job).last().filter(|line| line.world == world).map(|line| line.membership)
    })
}

#[test]
fn a_stranger_at_a_live_jobs_store_neither_delays_it_nor_runs_code() {
    let site = Site::acting();
    let first = site.main_job(600, &["--nodes=6"]);
    site.until("the main job to run", 10.0, || site.started_at(first).is_some());
    let script = format!(
        "cd /scratch\n infill run --grace 20 --curve 1:10,2:19,3:27,4:35 -- python3 /opt/infill/examples/train_live.py \
         --steps 1000000 --step-secs {STEP_SECS} --checkpoint $SLURM_JOB_ID.pt --log $SLURM_JOB_ID.jsonl"
    );
    let options = ["-p", "infill", "--chdir=/tmp", "--output=/scratch/%j.out", "--nodes=1-4"];
    let job = site.sbatch("alice", &options, &script);
    let epoch = until_world(&site, job, 2);

    let _ports = Stranger::begin(&site, "root", &["ports", PORTS, BOB_SECS]);
    let (_flood, port) = Stranger::connected(&site, &["flood", PORTS, BOB_SECS]);
    // A process of alice's that reads bob's pickle would leave a trace here.
    let trace = "/scratch/called";
    let next = (epoch + 1).to_string();
    let port = port.to_string();
    let (_joins, _) = Stranger::connected(&site, &["join", &port, &next, "3", "4", trace, BOB_SECS]);
    site.must("root", &["scancel", &first.id.to_string()]);
    until_world(&site, job, 4);
    let lead = site.view(job).expect("the job").nodes[0].to_string();
    let second = site.main_job(600, &["--nodes=5", &format!("--exclude={lead}")]);
    site.starts_within(second, PROMPTLY_SECS);
    until_world(&site, job, 3);
    site.must("root", &["scancel", &second.id.to_string()]);
    until_world(&site, job, 4);

    assert!(!site.log().contains("meeting failed"), "each change came about at its first try");
    let lines = log(&site, job);
    for two in lines.windows(2) {
        assert_eq!(two[1].step, two[0].step + 1, "no step is done twice, and none is left out: {two:?}");
    }
    assert!(lines.iter().all(|line| line.generation == 1), "processes were started again");
    let view = site.view(job).expect("the job");
    assert_eq!((view.restarts, view.kills), (0, 0), "{view:?}");
    assert!(!site.scratch().join("called").exists(), "alice's processes have called what bob sent");
    let said = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap();
    assert!(!said.contains("hands out no secret") && !said.contains("first version"), "{said}");
}
