//! Whole nodes with GPUs: a job that says nothing about GPUs trains on all of them.

use std::collections::BTreeSet;

use infill_api::JobView;
use infill_model::{GpuUse, MalleableState};
use infill_testkit::skips::skip_test;
use serde::Deserialize;

use crate::guides;
use crate::harness::slurm::{self, CgroupVersion};
use crate::harness::{Site, Slurm};

/// Longest that a job may take to train on all that is idle, seconds.
const GROWS_SECS: f64 = 60.0;

/// One start of a rank, by the program's own log.
#[derive(Clone, Debug, Deserialize)]
struct Rank {
    generation: u64,
    rank: u32,
    world: u32,
    node: String,
    /// The GPU of its local rank.
    gpu: Option<String>,
    /// Whether it may open that GPU.
    opens: bool,
    /// How many GPUs `CUDA_VISIBLE_DEVICES` has.
    sees: u32,
    /// How many of the first four devices it may open.
    may_open: u32,
    /// The network interface that gloo shall use.
    interface: Option<String>,
}

/// The batch script that a new user reads first.
fn first_script() -> String {
    let all = guides::scripts(include_str!("../../README.md"));
    all.into_iter().next().expect("README has a batch script")
}

/// Nodes with these numbers of GPUs; jobs have whole nodes.
fn whole_nodes(gpus: &str) -> Slurm {
    Slurm::default().nodes(4).node_gpus(gpus).set("Epilog=/bin/true")
}

/// Submits a script whose `train.py` opens GPUs.
fn submit(site: &Site, script: &str, options: &[&str]) -> u32 {
    let folder = site.scratch().join("gpus");
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = include_str!("gpu_trainee.py");
    std::fs::write(folder.join("train.py"), program).expect("a program");
    std::fs::write(folder.join("job.sh"), script).expect("a script");
    // The script says `python`, which this root lacks.
    site.must("root", &["ln", "-sfn", "/usr/bin/python3", "/usr/local/bin/python"]);
    site.must("root", &["chmod", "-R", "a+rwX", "/scratch/gpus"]);
    let mut words = vec!["sbatch", "--parsable", "--chdir=/scratch/gpus", "--output=/scratch/gpus/out"];
    words.extend(options);
    words.push("/scratch/gpus/job.sh");
    let out = site.must("alice", &words);
    out.trim().parse().unwrap_or_else(|_| panic!("no number: {out}"))
}

/// The ranks of the newest generation.
fn ranks(site: &Site) -> Vec<Rank> {
    let text = std::fs::read_to_string(site.scratch().join("gpus/ranks.log")).unwrap_or_default();
    let all: Vec<Rank> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let newest = all.iter().map(|rank| rank.generation).max();
    all.into_iter().filter(|rank| Some(rank.generation) == newest).collect()
}

/// Waits until the job has `world` ranks on `nodes` nodes, and the daemon knows of its GPUs.
fn until_trains(site: &Site, job: u32, nodes: usize, world: u32) -> (Vec<Rank>, JobView) {
    site.wait(&format!("{world} ranks on {nodes} nodes"), GROWS_SECS, || {
        let view = site.view(job).filter(|v| v.state == MalleableState::Running && v.nodes.len() == nodes)?;
        let ranks = ranks(site);
        let numbers: BTreeSet<u32> = ranks.iter().map(|rank| rank.rank).collect();
        let complete = ranks.iter().all(|rank| rank.world == world) && numbers.into_iter().eq(0..world);
        let told = view.gpus.is_none_or(|gpus| gpus.held >= world);
        (complete && told).then_some((ranks, view))
    })
}

/// Ends the job, and returns its output.
fn output_after_end(site: &Site, job: u32) -> String {
    std::fs::write(site.scratch().join("gpus/enough"), "").expect("a file");
    assert_eq!(site.end_of(job, 40.0), "COMPLETED 0:0");
    std::fs::read_to_string(site.scratch().join("gpus/out")).unwrap_or_default()
}

fn gpus_of(ranks: &[Rank]) -> BTreeSet<(String, String)> {
    ranks.iter().filter_map(|rank| Some((rank.node.clone(), rank.gpu.clone()?))).collect()
}

/// The first script of README on four nodes with four GPUs: each GPU has a rank that may open it.
fn every_gpu_has_a_rank(slurm: &Slurm) {
    let site = Site::on(slurm, |s| s);
    let job = submit(&site, &first_script(), &[]);
    let (ranks, view) = until_trains(&site, job, 4, 16);
    assert_eq!(gpus_of(&ranks).len(), 16, "two ranks share a GPU: {ranks:?}");
    assert!(ranks.iter().all(|rank| rank.opens && rank.sees == 4), "{ranks:?}");
    assert!(ranks.iter().all(|rank| rank.interface.as_deref() == Some("lo")), "{ranks:?}");
    assert_eq!(view.gpus, Some(GpuUse { held: 16, used: 16 }));
    let explained = site.must("alice", &["infill", "explain", &job.to_string()]);
    assert!(explained.contains("GPUs: 16 of 16 used"), "{explained}");
    let listed = site.must("alice", &["infill", "jobs", "--noheader", "-o", "%i %G"]);
    assert_eq!(listed.trim(), format!("{job} 16/16"));

    // A main job takes a node: the others keep a rank on each of their GPUs.
    let main = site.main_job(600, &["-N1"]);
    site.starts_within(main, 5.0);
    let (ranks, _) = until_trains(&site, job, 3, 12);
    assert_eq!(gpus_of(&ranks).len(), 12, "{ranks:?}");
    let output = output_after_end(&site, job);
    assert!(!output.contains("GPUs on this node"), "nothing to warn of: {output}");
}

#[test]
fn the_first_script_trains_on_every_gpu() {
    every_gpu_has_a_rank(&whole_nodes("4"));
}

#[test]
fn the_first_script_trains_on_every_gpu_where_cgroups_1_constrain_devices() {
    match slurm::device_cgroups() {
        Some(CgroupVersion::One) => every_gpu_has_a_rank(&whole_nodes("4").constrains_devices()),
        other => skip_test(&format!(
            "no cgroups of version 1 for devices in which root may make others: {other:?}"
        )),
    }
}

#[test]
fn the_first_script_trains_on_every_gpu_where_cgroups_2_constrain_devices() {
    match slurm::device_cgroups() {
        Some(CgroupVersion::Two) => every_gpu_has_a_rank(&whole_nodes("4").constrains_devices()),
        other => skip_test(&format!("no cgroups of version 2 with controllers: {other:?}")),
    }
}

#[test]
fn a_job_uses_the_gpus_of_whatever_node_it_runs_on() {
    let site = Site::on(&whole_nodes("4,4,2,0"), |s| s);
    // Nodes of three types: a job is on one of them at a time.
    for (node, gpus, workers) in [("n[2-4]", 4, 4), ("n[1-2],n4", 2, 2), ("n[1-3]", 0, 1)] {
        let exclude = format!("--exclude={node}");
        let job = submit(&site, &first_script(), &[&exclude]);
        let (ranks, view) = until_trains(&site, job, 1, workers);
        assert!(ranks.iter().all(|rank| rank.sees == gpus && (rank.opens || gpus == 0)), "{ranks:?}");
        assert_eq!(view.gpus, GpuUse::total([GpuUse { held: gpus, used: gpus }]), "excluding {node}");
        output_after_end(&site, job);
        std::fs::remove_dir_all(site.scratch().join("gpus")).expect("the folder is ours");
    }
    // Two jobs share the cluster. Wings have as many ranks as their lead.
    let job = submit(&site, &first_script(), &["--exclude=n[3-4]"]);
    let (ranks, _) = until_trains(&site, job, 2, 8);
    assert_eq!(gpus_of(&ranks).len(), 8, "{ranks:?}");
    output_after_end(&site, job);
}

#[test]
fn a_job_that_asks_for_less_gets_less_and_is_told() {
    let site = Site::on(&whole_nodes("4"), |s| s);
    let script = first_script().replace("--nodes=1-8", "--nodes=1-2\n#SBATCH --gres=gpu:2");
    let job = submit(&site, &script, &[]);
    let (ranks, view) = until_trains(&site, job, 2, 4);
    assert!(ranks.iter().all(|rank| rank.sees == 2), "as requested, on lead and wing: {ranks:?}");
    assert_eq!(view.gpus, Some(GpuUse { held: 8, used: 4 }));
    let output = output_after_end(&site, job);
    let told = output.matches("the job holds 4 GPUs on this node, and its processes use 2").count();
    assert_eq!(told, 2, "once by each agent: {output}");
    std::fs::remove_dir_all(site.scratch().join("gpus")).expect("the folder is ours");

    let script = first_script().replace("infill run --", "infill run --workers-per-node=1 --");
    let job = submit(&site, &script, &["--nodes=1"]);
    let (ranks, view) = until_trains(&site, job, 1, 1);
    assert!(ranks.iter().all(|rank| rank.sees == 4 && rank.may_open == 4), "{ranks:?}");
    assert_eq!(view.gpus, Some(GpuUse { held: 4, used: 1 }));
    let output = output_after_end(&site, job);
    assert_eq!(output.matches("--workers-per-node=4 starts one for each").count(), 1, "{output}");
}

#[test]
fn a_launcher_is_started_once_a_node_and_gets_the_number_of_gpus() {
    let site = Site::on(&whole_nodes("4"), |s| s);
    // It starts the workers as torchrun does, with PyTorch left out.
    let launcher = "#!/bin/sh\nfor i in $(seq 0 $((PET_NPROC_PER_NODE - 1))); do\n\
                    LOCAL_RANK=$i RANK=$((PET_NODE_RANK * PET_NPROC_PER_NODE + i)) \
                    WORLD_SIZE=$((PET_NNODES * PET_NPROC_PER_NODE)) python3 \"$@\" & done\ntrap : USR1\nwait; wait\n";
    let folder = site.scratch().join("bin");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("torchrun"), launcher).expect("a program");
    site.must("root", &["chmod", "-R", "a+rx", "/scratch/bin"]);
    let script = first_script().replace("-- python train.py", "-- /scratch/bin/torchrun train.py");
    assert!(script.contains("torchrun"), "{script}");
    let job = submit(&site, &script, &["--nodes=1-2"]);
    let (ranks, view) = until_trains(&site, job, 2, 8);
    assert_eq!(gpus_of(&ranks).len(), 8, "{ranks:?}");
    assert_eq!(view.gpus, Some(GpuUse { held: 8, used: 8 }));
    let output = output_after_end(&site, job);
    let told = output.matches("torchrun starts a node's processes itself").count();
    assert_eq!(told, 1, "the lead says it once: {output}");
}
