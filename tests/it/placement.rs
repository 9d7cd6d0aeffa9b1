//! Jobs are laid on few switches, with the topology of a real slurmctld.

use std::collections::BTreeSet;

use infill_api::JobView;

use crate::harness::train::SUBLINEAR;
use crate::harness::{Site, Slurm, Train};

/// Nodes with consecutive names are on different switches.
const TREE: &str =
    "SwitchName=odd Nodes=n[1,3,5]\nSwitchName=even Nodes=n[2,4,6]\nSwitchName=top Switches=odd,even\n";

fn site(plugin: &str, topology: &str) -> Site {
    let slurm = Slurm::default().nodes(6).set(&format!("TopologyPlugin={plugin}"));
    Site::on(&slurm.file("topology.conf", topology).kept(), |s| s.set("advisor.probe", false))
}

/// The remainders of its nodes' numbers: nodes of one switch have the same.
fn switches(view: &JobView) -> BTreeSet<u32> {
    let number = |name: String| name.trim_start_matches('n').parse::<u32>().expect("a number") % 2;
    view.nodes.iter().map(|node| number(node.to_string())).collect()
}

fn each_job_is_on_one_switch(site: &Site) {
    site.until("the daemon to know of switches", 30.0, || !site.logged(&["Slurm's switches"]).is_empty());
    let jobs = ["alice", "bob"].map(|user| Train::on("3").user(user).submit(site));
    for job in jobs {
        let view = site.until_trains_on(job, 3, 60.0);
        assert_eq!(switches(&view).len(), 1, "job {job}: {:?}", view.nodes);
    }
    jobs.iter().for_each(|job| drop(site.must("root", &["scancel", &job.to_string()])));
}

#[test]
fn each_job_is_on_one_switch_of_a_tree() {
    each_job_is_on_one_switch(&site("topology/tree", TREE));
}

#[test]
fn each_job_is_in_one_block() {
    let blocks = "BlockName=odd Nodes=n[1,3,5]\nBlockName=even Nodes=n[2,4,6]\nBlockSizes=3\n";
    each_job_is_on_one_switch(&site("topology/block", blocks));
}

#[test]
fn jobs_grow_on_their_own_switches() {
    let site = site("topology/tree", TREE);
    let main = site.main_job(600, &["--nodes=4", "--nodelist=n3,n4,n5,n6"]);
    site.wait("the main job to start", 30.0, || site.started_at(main));
    let jobs = ["alice", "bob"].map(|user| Train::on("1-3").user(user).run(SUBLINEAR).submit(&site));
    jobs.iter().for_each(|job| drop(site.until_trains_on(*job, 1, 60.0)));
    site.must("root", &["scancel", &main.id.to_string()]);
    for job in jobs {
        let view = site.until_trains_on(job, 3, 90.0);
        assert_eq!(switches(&view).len(), 1, "job {job}: {:?}", view.nodes);
    }
    jobs.iter().for_each(|job| drop(site.must("root", &["scancel", &job.to_string()])));
}

#[test]
fn a_job_that_is_slow_across_switches_ends_on_one() {
    let site = site("topology/tree", TREE);
    let main = site.main_job(600, &["--nodes=3", "--nodelist=n2,n4,n6"]);
    site.wait("the main job to start", 30.0, || site.started_at(main));
    let script = "infill run --grace 10 -- python3 /opt/infill/examples/paced.py --steps 100000 --batch 5 \
                  --curve 1:10,2:19,3:28,4:36,5:44,6:52 --leaves 'n[135];n[246]' --spread 4 \
                  --checkpoint /scratch/spread.$SLURM_JOB_ID";
    let job =
        site.sbatch("alice", &["-p", "infill", "-J", "spread", "--nodes=1-6", "--open-mode=append"], script);
    // 28 samples a second, for half a minute.
    let is_known = || site.view(job).is_some_and(|v| v.nodes.len() == 3 && v.samples > 840.0);
    site.until("three nodes of one switch to be measured", 90.0, is_known);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until("it to try all six", 60.0, || site.view(job).is_some_and(|v| v.nodes.len() > 3));
    let view =
        site.wait("it to be back on one switch", 120.0, || site.view(job).filter(|v| v.nodes.len() <= 3));
    assert_eq!((view.nodes.len(), switches(&view).len()), (3, 1), "{:?}", view.nodes);
    site.must("root", &["scancel", &job.to_string()]);
}
