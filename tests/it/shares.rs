//! Nodes that jobs share: GPUs are lent, each with its share of a node.

use std::collections::BTreeSet;

use infill_api::JobView;

use crate::harness::jobs::{JobRow, MainJob};
use crate::harness::{Site, Slurm, Train};

/// Number of nodes.
const NODES: usize = 3;

/// Longest that a main job may wait for one of our GPUs, seconds.
const LATE_SECS: f64 = 3.0;

fn site() -> Site {
    let slurm = Slurm::default().nodes(NODES).set("Epilog=/bin/true").lends_gpus().kept();
    Site::on(&slurm, |s| s.set("gaps.lend", "gpus"))
}

/// As above, with a last node that has no GPUs.
fn site_with_a_cpu_node() -> Site {
    let slurm = Slurm::default().nodes(NODES).set("Epilog=/bin/true").lends_gpus().cpu_nodes(1).kept();
    Site::on(&slurm, |s| s.set("gaps.lend", "gpus").set("nodes.cpus", 4))
}

/// A training of alice's on 1 to 16 GPUs.
fn train(site: &Site) -> u32 {
    let curve = "--grace 10 --curve 1:10,2:19,4:36,8:68,16:120";
    Train::on("1").option("--comment=infill:gpus=1-16").run(curve).submit(site)
}

/// A main job with this many GPUs of the node and their share of it, which starts at once.
fn main_job_on(site: &Site, node: &str, gpus: u32) -> MainJob {
    let memory = format!("--mem={}", 4000 * gpus);
    let gpus = format!("--gpus-per-node={gpus}");
    let main = site.main_job(600, &["-N1", "-w", node, &gpus, "--cpus-per-gpu=4", &memory]);
    site.starts_within(main, LATE_SECS);
    main
}

fn ids(parts: &[JobRow]) -> BTreeSet<u32> {
    parts.iter().map(|p| p.id).collect()
}

#[test]
fn workers_of_two_gpus_are_on_one_node_each() {
    let site = site();
    main_job_on(&site, "n1", 1);
    let job = Train::on("1")
        .option("--comment=infill:gpus=2-12")
        .option("--gpus-per-node=2")
        .run("--grace 10 --curve 1:20,2:39,4:76,6:110")
        .submit(&site);
    let view = site.until_trains_on(job, 5, 60.0);
    assert!(places(&view).iter().all(|p| p.contains('+')), "{view:?}");
    let two_of = |part: &JobRow| {
        let text = site.run("root", &["scontrol", "-d", "-o", "show", "job", &part.id.to_string()]);
        text.contains("GRES=gpu:a100:2(IDX:")
    };
    let parts = site.parts(job);
    assert!(parts.len() == 5 && parts.iter().all(two_of), "{parts:?}");

    // The GPU that is left of n1 is too little for this job, and enough for another.
    let single = Train::on("1").user("bob").option("--gpus=1").run("--grace 10 --curve 1:9").submit(&site);
    site.until_trains_on(single, 1, 60.0);
    assert_eq!(site.view(job).expect("the job").nodes.len(), 5, "no job made room");

    // A main job for one GPU takes one worker. The worker's other GPU stays idle or is lent to a job that can
    // use it.
    let before = ids(&site.parts(job));
    let main = main_job_on(&site, "n2", 1);
    site.until_trains_on(job, 4, 30.0);
    assert_eq!(before.difference(&ids(&site.parts(job))).count(), 1, "one worker was enough");

    let generation = site.view(job).expect("the job").generation;
    site.kill_daemon();
    site.start();
    site.rounds_go_by(3);
    assert_eq!(site.view(job).expect("the job").generation, generation, "it trains on");
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 5, 40.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "steps were lost");
    site.completes(single);
    site.completes(job);
}

#[test]
fn jobs_are_on_as_few_nodes_as_they_can_be() {
    let site = site();
    // One, two and three GPUs are free. By name n3 comes first, and n1 last.
    let mains = [("n1", 2), ("n2", 3), ("n3", 1)].map(|(node, gpus)| main_job_on(&site, node, gpus));
    let hosts = |job: u32| {
        let view = site.view(job).expect("the job");
        view.nodes.iter().map(|n| n.host().to_string()).collect::<BTreeSet<String>>()
    };
    let two = Train::on("1").option("--gpus=2").run("--grace 10 --curve 1:10,2:19").submit(&site);
    site.until_trains_on(two, 2, 60.0);
    assert_eq!(hosts(two), BTreeSet::from(["n1".to_owned()]), "the tightest that takes both");
    let three = Train::on("1").user("bob").option("--gpus=3").run("--grace 10 --curve 1:10,3:28");
    let three = three.submit(&site);
    site.until_trains_on(three, 3, 60.0);
    assert_eq!(hosts(three), BTreeSet::from(["n3".to_owned()]), "all that is left of one");

    // This is why each of them is a separate Slurm job: Slurm takes no GPU from a running job.
    let [_, of_three, _] = &mains;
    for change in ["TresPerNode=gres/gpu:2", "Gres=gpu:2", "NumTasks=1"] {
        site.run("root", &["scontrol", "update", &format!("JobId={}", of_three.id), change]);
        let text = site.run("root", &["scontrol", "-d", "-o", "show", "job", &of_three.id.to_string()]);
        assert!(text.contains("GRES=gpu:a100:3(IDX:"), "{change} took a GPU from it: {text}");
    }
    site.completes(two);
    site.completes(three);
}

#[test]
fn the_partition_s_limit_on_the_cpus_of_a_node_is_kept() {
    // Four CPUs come with a GPU: this needs two of the four GPUs of each node.
    let slurm = Slurm::default().nodes(NODES).set("Epilog=/bin/true").lends_gpus();
    let slurm = slurm.set("PartitionName=infill MaxCPUsPerNode=8");
    let site = Site::on(&slurm, |s| s.set("gaps.lend", "gpus"));
    let job = train(&site);
    let mut most = 0;
    site.until("the job to have all that may be lent", 60.0, || {
        let planned = site.round().map_or(0, |r| r.plan.jobs.iter().map(|j| j.nodes.len()).sum());
        most = most.max(planned);
        site.view(job).is_some_and(|view| view.nodes.len() == 2 * NODES)
    });
    assert_eq!(most, 2 * NODES, "no more is ever planned");
    site.rounds_go_by(3);
    let parts = site.parts(job);
    assert!(parts.len() == 2 * NODES && parts.iter().all(JobRow::runs), "none waits for more: {parts:?}");
    site.completes(job);
}

/// The GPU that a job has, as Slurm numbers it on its node: `(node, index)`.
fn gpu_of(site: &Site, job: &JobRow) -> (String, String) {
    let text = site.run("root", &["scontrol", "-d", "-o", "show", "job", &job.id.to_string()]);
    let index = text.split("GRES=gpu:a100:1(IDX:").nth(1).and_then(|rest| rest.split(')').next());
    (job.nodes.join(","), index.unwrap_or_else(|| panic!("it has not one GPU: {text}")).to_owned())
}

fn places(view: &JobView) -> Vec<&str> {
    view.nodes.iter().map(|n| n.as_str()).collect()
}

#[test]
fn gpus_beside_main_jobs_are_lent_one_by_one() {
    let site = site();
    main_job_on(&site, "n1", 3);
    let job = train(&site);
    let view = site.until_trains_on(job, 9, 60.0);
    assert!(places(&view).iter().all(|p| p.contains(':')), "{view:?}");
    let parts = site.parts(job);
    let gpus: BTreeSet<(String, String)> = parts.iter().map(|p| gpu_of(&site, p)).collect();
    assert_eq!((parts.len(), gpus.len()), (9, 9), "each worker has a GPU of its own: {gpus:?}");
    let starts = site.diary(job);
    let last = starts.all("start").iter().map(|e| e.generation).max();
    let members: Vec<_> = starts.all("start").into_iter().filter(|e| Some(e.generation) == last).collect();
    let ranks: BTreeSet<u32> = members.iter().map(|e| e.rank).collect();
    assert_eq!(ranks, (0..9).collect(), "{members:?}");

    // A main job for one GPU takes one of ours, and the others train on.
    let before = ids(&site.parts(job));
    let main = main_job_on(&site, "n2", 1);
    site.until_trains_on(job, 8, 30.0);
    let gone = before.difference(&ids(&site.parts(job))).count();
    assert_eq!(gone, 1, "one GPU was wanted");
    let idle = site.metric("infill_idle_beside_gpus");
    assert_eq!(idle, 0.0, "all that is idle is lent");

    // The GPU that it leaves is lent again.
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 9, 40.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "steps were lost");
    site.completes(job);
}

#[test]
fn two_jobs_beside_each_other_and_a_daemon_that_is_killed() {
    let site = site();
    let first = train(&site);
    site.until_trains_on(first, 12, 60.0);
    let second =
        Train::on("1").user("bob").option("--gpus=2").run("--grace 10 --curve 1:90,2:180").submit(&site);
    site.until_trains_on(second, 2, 60.0);
    site.until_trains_on(first, 10, 60.0);
    let all: Vec<JobRow> = site.parts(first).into_iter().chain(site.parts(second)).collect();
    let gpus: BTreeSet<(String, String)> = all.iter().map(|p| gpu_of(&site, p)).collect();
    assert_eq!(gpus.len(), all.len(), "no two workers share a GPU: {gpus:?}");

    let before = [first, second].map(|job| {
        let view = site.view(job).expect("the job");
        (view.generation, places(&view).join(","))
    });
    site.kill_daemon();
    site.start();
    site.rounds_go_by(3);
    let after = [first, second].map(|job| {
        let view = site.view(job).expect("the job");
        (view.generation, places(&view).join(","))
    });
    assert_eq!(after[1], before[1], "the second trains on where it is");
    assert_eq!(after[0].0, before[0].0, "so does the first: {before:?} {after:?}");
    // Each worker stops alone.
    site.must("root", &["scancel", &second.to_string()]);
    site.until("the second to be gone", 20.0, || site.parts(second).is_empty());
    assert!(site.parts(first).len() >= 10);
    site.completes(first);
}

/// A main job with this many CPUs of the node without GPUs, which starts at once.
fn main_job_without_gpus(site: &Site, cpus: u32) -> MainJob {
    let memory = format!("--mem={}", 1000 * cpus);
    let cpus = format!("--cpus-per-task={cpus}");
    let main = site.main_job(600, &["-N1", "-n1", "-w", "n3", &cpus, &memory]);
    site.starts_within(main, LATE_SECS);
    main
}

#[test]
fn gpus_and_parts_of_nodes_without_gpus_are_in_one_plan() {
    let site = site_with_a_cpu_node();
    main_job_without_gpus(&site, 5);
    let gpus = train(&site);
    let cpus = Train::on("1")
        .user("bob")
        .option("--comment=infill:cpus=4-16")
        .option("--mem-per-cpu=900")
        .run("--grace 10 --curve 1:10,2:19,3:27,4:36")
        .submit(&site);
    let view = site.until_trains_on(cpus, 2, 60.0);
    assert!(places(&view).iter().all(|p| p.starts_with("n3:")), "{view:?}");
    let view = site.until_trains_on(gpus, 8, 60.0);
    assert!(places(&view).iter().all(|p| !p.starts_with("n3:")), "{view:?}");
    for part in site.parts(cpus) {
        let text = site.run("root", &["scontrol", "-d", "-o", "show", "job", &part.id.to_string()]);
        assert!(text.contains("NumCPUs=4 ") && !text.contains("gres/gpu"), "{text}");
        assert!(text.contains("mem=3600M"), "its share of the memory is the lead's: {text}");
    }

    // A main job takes the CPUs of one worker, and no GPU.
    let before = [cpus, gpus].map(|job| ids(&site.parts(job)));
    let main = main_job_without_gpus(&site, 4);
    site.until_trains_on(cpus, 1, 30.0);
    let after = [cpus, gpus].map(|job| ids(&site.parts(job)));
    assert_eq!(before[0].difference(&after[0]).count(), 1, "one worker was enough");
    assert_eq!(before[1], after[1], "GPUs are others' business");

    let generation = site.view(cpus).expect("the job").generation;
    site.kill_daemon();
    site.start();
    site.rounds_go_by(3);
    assert_eq!(site.view(cpus).expect("the job").generation, generation, "it trains on");
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(cpus, 2, 40.0);
    for job in [cpus, gpus] {
        assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "steps were lost");
        site.completes(job);
    }
}

#[test]
fn a_worker_keeps_to_the_cpus_that_it_was_given() {
    let slurm = Slurm::default().nodes(2).set("Epilog=/bin/true").lends_gpus().cpu_nodes(1);
    let slurm = slurm.set("NodeName=n2 CPUs=2 RealMemory=4000");
    let site = Site::on(&slurm, |s| s.set("gaps.lend", "gpus").set("nodes.cpus", 1));
    let machine = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(machine > 1, "with one CPU there is nothing to keep to");
    // Both workers write what they may use, and wait for each other.
    let command = "grep Cpus_allowed_list /proc/self/status >/scratch/cpus.$RANK; \
                   echo \"threads $OMP_NUM_THREADS\" >>/scratch/cpus.$RANK; sleep 600";
    let script = format!("exec infill run --curve 1:1,2:2 -- sh -c '{}'", command.replace('\'', "'\\''"));
    let options = ["-p", "infill", "--comment=infill:cpus=2;each=1", "-c1", "--output=/scratch/cpus.out"];
    let job = site.sbatch("alice", &options, &script);
    let read = |rank: u32| site.run("root", &["cat", &format!("/scratch/cpus.{rank}")]);
    site.until("two workers to tell their CPUs", 60.0, || (0..2).all(|rank| read(rank).contains("threads")));
    let mut cpus: Vec<String> = (0..2).map(read).collect();
    cpus.sort();
    let said = |cpu: u32| format!("Cpus_allowed_list:\t{cpu}\nthreads 1\n");
    assert_eq!(cpus, [said(0), said(1)]);
    site.must("root", &["scancel", &job.to_string()]);
}

#[test]
fn requests_on_nodes_without_gpus_are_translated_or_refused() {
    let site = site_with_a_cpu_node();
    let comment_of = |options: &[&str]| match site.try_sbatch("alice", options, "sleep 60") {
        Ok(job) => site.field(job, "AdminComment"),
        Err(said) => said.lines().next().unwrap_or_default().to_owned(),
    };
    for (options, expected) in [
        (&["--comment=infill:cpus=4-16"][..], "infill:cpus=4-16;each=4"),
        (&["--comment=infill:cpus=8,16;profile=md", "-c8"], "infill:cpus=8,16;profile=md;each=8"),
        (&["--comment=infill:cpus=8-64;each=8", "--time=30"], "infill:cpus=8-64;each=8;time=30"),
        (&["--comment=infill:cpus=8-64;each=8", "--mem-per-cpu=500"], "infill:cpus=8-64;each=8"),
        (&["--comment=infill:cpus=8-64;each=8", "-c4"], "--cpus-per-task=4 contradicts each=8"),
        (&["--comment=infill:cpus=6"], "no size of 6 CPUs is a multiple of 4, the CPUs of a worker"),
        (&["--comment=infill:cpus=4-8;each=few"], "cannot read each=few in the comment"),
        (&["--comment=infill:cpus=4-8", "-n1", "--gpus-per-task=1"], "leave out --gpus and --gres=gpu"),
        (&["--comment=infill:cpus=4-8;each=5000"], "each worker must have 1 to 4096 CPUs of one node"),
        (&["--comment=infill:cpus=0"], "bad number of nodes '0'"),
        (&["--comment=infill:cpus=4-8", "--gpus=1"], "leave out --gpus and --gres=gpu"),
        (&["--comment=infill:cpus=4-8", "--exclusive"], "leave out --exclusive"),
        (&["--comment=infill:gpus=1-4;cpus=8"], "cannot read 'cpus=8' in the comment"),
        (&["--gpus=2"], "infill:gpus=2"),
    ] {
        let options: Vec<&str> = ["-p", "infill"].iter().chain(options).copied().collect();
        let said = comment_of(&options);
        assert!(said == expected || said.contains(expected), "{options:?}: {said}");
    }
    let lead = site.sbatch("alice", &["-p", "infill", "--comment=infill:cpus=8-16", "-c8"], "true");
    assert_eq!([site.field(lead, "NumCPUs"), site.field(lead, "CPUs/Task")], ["8", "8"]);
    // The site's settings agree with its plug-in.
    let doctor = site.run("infill", &["infill", "doctor"]);
    assert!(doctor.contains("slurmctld runs infill's job_submit plug-in"), "{doctor}");
}

#[test]
fn requests_where_gpus_are_lent_are_translated_or_refused() {
    let site = site();
    let comment_of = |options: &[&str]| match site.try_sbatch("alice", options, "sleep 60") {
        Ok(job) => site.field(job, "AdminComment"),
        Err(said) => said.lines().next().unwrap_or_default().to_owned(),
    };
    for (options, expected) in [
        (&["--gpus=2"][..], "infill:gpus=2"),
        (&[], "infill:gpus=1"),
        (&["--comment=infill:gpus=1-16"], "infill:gpus=1-16"),
        (&["--comment=infill:gpus=1,2,4;profile=bert"], "infill:gpus=1,2,4;profile=bert"),
        (&["--gres=gpu:a100:1", "--time=30"], "infill:gpus=1;time=30"),
        (&["--gpus=3", "--cpus-per-gpu=2", "--mem-per-gpu=1000"], "infill:gpus=3"),
        (&["--nodes=1-3"], "GPUs are lent here, not nodes: use --comment=infill:gpus=MIN-MAX"),
        (&["--nodes=2"], "GPUs are lent here, not nodes: use --comment=infill:gpus=MIN-MAX"),
        (&["--comment=infill:nodes=2"], "cannot read 'nodes=2' in the comment; expected infill:gpus=SIZES"),
        (&["--exclusive"], "GPUs are lent here, not nodes: leave out --exclusive"),
        (&["--mem=0"], "GPUs are lent here, not nodes: leave out --mem=0"),
        (&["--mem=2000", "--cpus-per-task=2"], "infill:gpus=1"),
        (&["--gpus-per-node=4"], "infill:gpus=4;each=4"),
        (&["--gpus-per-node=2", "--comment=infill:gpus=2-8"], "infill:gpus=2-8;each=2"),
        (&["--gpus-per-node=2", "--gpus=6"], "infill:gpus=6;each=2"),
        (&["--comment=infill:gpus=2-8;each=2"], "infill:gpus=2-8;each=2"),
        (&["--gres=gpu:a100:2", "--comment=infill:gpus=2-8;each=4"], "contradicts each=4"),
        (
            &["--gpus-per-node=2", "--comment=infill:gpus=3"],
            "no size of 3 GPUs is a multiple of 2, the GPUs of a worker",
        ),
        (&["--comment=infill:gpus=2-8;each=99"], "each worker must have 1 to 64 GPUs of one node"),
        (&["--gpus=a100:2"], "use --gpus=N, and --constraint for a type"),
    ] {
        let options: Vec<&str> = ["-p", "infill"].iter().chain(options).copied().collect();
        let said = comment_of(&options);
        assert!(said == expected || said.contains(expected), "{options:?}: {said}");
    }
    let whole =
        site.sbatch("alice", &["-p", "infill", "--gpus=2", "--cpus-per-gpu=2", "--mem-per-gpu=1000"], "true");
    assert_eq!(site.field(whole, "TresPerNode"), "gres/gpu:1", "its lead has one");
}
