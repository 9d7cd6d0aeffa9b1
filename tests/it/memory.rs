//! Execution plans that need more memory than a host has: tried once and remembered, but not a failure.

use std::path::{Path, PathBuf};

use infill_testkit::skips::skip_test;
use serde_json::Value;

use crate::harness::Site;

/// Memory limit of the cluster's slurmd and their children together, bytes.
const LIMIT_BYTES: u64 = 1 << 30;

/// Host memory of a worker of the plan `offload`: twice the limit.
const HUNGRY: &str = "exec python3 -c 'held = bytearray(b\"x\") * (1 << 31)'";

/// Seconds within which the job has failed with one plan and ended with the other.
const ENDS_SECS: f64 = 180.0;

/// A cgroup with a limit, in which the slurmd of a cluster are.
struct Cgroup {
    dir: PathBuf,
    /// The file of processes of the cgroup that they came from.
    home: PathBuf,
}

impl Cgroup {
    /// Moves all slurmd of the site's cluster into a new cgroup. `None` where this machine does not allow it.
    fn of(site: &Site) -> Option<Cgroup> {
        let (top, limit) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let dir = Path::new(top).join(format!("infill-test-{}", std::process::id()));
        // Version 2: the controller may be off below the top.
        std::fs::write(Path::new(top).join("cgroup.subtree_control"), "+memory").ok();
        std::fs::create_dir(&dir).ok()?;
        let cgroup = Cgroup { dir, home: Path::new(top).join("cgroup.procs") };
        std::fs::write(cgroup.dir.join(limit), LIMIT_BYTES.to_string()).ok()?;
        // Otherwise the kernel swaps.
        std::fs::write(cgroup.dir.join("memory.swap.max"), "0").ok();
        for slurmd in site.processes().iter().filter(|p| p.name == "slurmd") {
            std::fs::write(cgroup.dir.join("cgroup.procs"), slurmd.pid.to_string()).ok()?;
        }
        Some(cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..50 {
            let inside = std::fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            inside.lines().for_each(|pid| drop(std::fs::write(&self.home, pid)));
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Runs a job on two nodes. The second worker of its first plan runs `hungry`; `said` is the job's output
/// then.
fn is_tried_once(site: &Site, hungry: &str, said: impl Fn(&str) -> bool) {
    let program = format!(
        "#!/bin/sh\n\
         [ \"$RANK\" = 0 ] && echo \"began with $INFILL_PLAN\"\n\
         if [ \"$INFILL_PLAN $RANK\" = 'offload 1' ]; then {hungry}; fi\n\
         [ \"$INFILL_PLAN\" = offload ] && exec sleep 600\n\
         exec python3 /opt/infill/examples/paced.py \"$@\"\n"
    );
    std::fs::write(site.scratch().join("program.sh"), program).expect("a file");
    let plans = "[[plan]]\nname = \"offload\"\n[[plan]]\nname = \"in_gpus\"\n";
    std::fs::write(site.scratch().join("plans.toml"), plans).expect("a file");
    let script = "infill run --grace 10 --max-restarts 0 --plans /scratch/plans.toml -- sh /scratch/program.sh \
                  --curve 1:10,2:20 --batch 4 --steps 60 --checkpoint /scratch/paced";
    let job = site.sbatch("alice", &["-p", "infill", "-J", "offloading", "--nodes=2"], script);
    let ended = site.end_of(job, ENDS_SECS);
    let output = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    assert_eq!(ended, "COMPLETED 0:0", "{output}");
    let began: Vec<&str> = output.lines().filter_map(|line| line.split("began with ").nth(1)).collect();
    assert_eq!(began.iter().filter(|plan| **plan == "offload").count(), 1, "once is enough: {output}");
    assert_eq!(began.last(), Some(&"in_gpus"), "{output}");
    assert!(said(&output), "{output}");
    let answer = site.must("root", &["infill", "profiles", "list", "--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("a document of profiles");
    let profiles = answer["profiles"].as_array().expect("profiles");
    let unfit: Vec<(&str, &Value)> = profiles
        .iter()
        .filter(|p| p["unfit"].is_array())
        .map(|p| (p["exec_plan"].as_str().unwrap_or_default(), &p["unfit"]))
        .collect();
    assert_eq!(unfit, [("offload", &serde_json::json!([2]))], "{profiles:?}");
}

#[test]
fn a_plan_that_the_kernel_kills_for_memory_is_tried_once() {
    let site = Site::acting();
    let Some(_cgroup) = Cgroup::of(&site) else {
        return skip_test("no cgroups with a memory controller in which root may make others");
    };
    // A process that the kernel kills reports nothing itself.
    is_tried_once(&site, HUNGRY, |output| {
        output.contains("the kernel has killed processes of the command") && !output.contains("MemoryError")
    });
}

#[test]
fn a_plan_whose_allocations_fail_is_tried_once() {
    let hungry = format!("ulimit -v 500000; {HUNGRY}");
    is_tried_once(&Site::acting(), &hungry, |output| output.contains("MemoryError"));
}
