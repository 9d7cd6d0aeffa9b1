//! Job arrays: each task is a malleable job of its own, and main arrays get their nodes in time.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Train};

/// A task that notes its place in the array, then counts some steps.
fn task_script(steps: u32) -> String {
    format!(
        "mkdir -p /scratch/$SLURM_JOB_ID\n\
         infill run --grace 10 -- sh -c 'echo \"$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $RANK\" >>/scratch/tasks; \
         exec python3 /opt/infill/tests/it/trainee.py --dir /scratch/$SLURM_JOB_ID --steps {steps}'"
    )
}

/// The job id of each task that has a record of its own.
fn jobs_of_tasks(site: &Site, array: u32) -> BTreeMap<u32, u32> {
    let text =
        site.run("root", &["squeue", "-h", "-a", "-t", "all", "-j", &array.to_string(), "-o", "%K %A"]);
    let rows = text.lines().filter_map(|line| line.split_once(' '));
    rows.filter_map(|(task, job)| Some((task.parse().ok()?, job.parse().ok()?))).collect()
}

/// How many of the array's tasks run.
fn running_tasks(site: &Site, array: u32) -> usize {
    let running = site.run("root", &["squeue", "-h", "-a", "-t", "R", "-j", &array.to_string(), "-o", "%K"]);
    running.lines().count()
}

#[test]
fn each_task_of_an_array_is_a_malleable_job() {
    let site = Site::acting();
    let options = ["-p", "infill", "-J", "sweep", "--nodes=1-3", "--array=0-9:3,20-27%3"];
    let array = site.sbatch("alice", &options, &task_script(40));
    site.until("the first tasks to run", 30.0, || running_tasks(&site, array) == 3);
    let waits = site.must("alice", &["infill", "explain", &format!("{array}_27")]);
    assert!(waits.contains(&format!("in squeue {array}_[")) && waits.contains("at most 3"), "{waits}");
    let runs = site.must("alice", &["infill", "explain", &format!("{array}_3")]);
    assert!(runs.contains(&format!("in squeue {array}_3 (sweep) of alice:")), "{runs}");
    let table = site.must("alice", &["infill", "jobs", "-j", &array.to_string(), "--noheader", "-o", "%i"]);
    assert!(table.lines().any(|name| name == format!("{array}_0")), "{table}");
    let mut most = 0;
    site.until("all tasks to end", 240.0, || {
        most = most.max(running_tasks(&site, array));
        site.queue().is_empty()
    });
    assert_eq!(most, 3, "tasks at a time");
    let ends = site.run("root", &["sacct", "-nPX", "-j", &array.to_string(), "-o", "JobID,State,ExitCode"]);
    assert_eq!(ends.lines().filter(|end| end.ends_with("|COMPLETED|0:0")).count(), 12, "{ends}");
    let noted = std::fs::read_to_string(site.scratch().join("tasks")).expect("the notes of the tasks");
    let places: Vec<Vec<u32>> =
        noted.lines().map(|line| line.split(' ').map(|word| word.parse().unwrap_or(99)).collect()).collect();
    let tasks: BTreeSet<u32> = places.iter().map(|place| place[1]).collect();
    assert_eq!(tasks, BTreeSet::from([0, 3, 6, 9, 20, 21, 22, 23, 24, 25, 26, 27]));
    assert!(places.iter().all(|place| place[0] == array), "{noted}");
    assert!(places.iter().any(|place| place[2] > 0), "no worker of a wing knew its task: {noted}");
}

/// Slurm gives the last task the array's id, and takes an order for that id as one for all tasks.
#[test]
fn the_last_task_is_parked_without_the_others() {
    let site = Site::acting();
    let others = site.main_job(600, &["--nodes=6"]);
    site.starts_within(others, PROMPTLY_SECS);
    let array = site.sbatch("alice", &["-p", "infill", "--array=1-2"], &task_script(100_000));
    site.until("both tasks to run", 40.0, || running_tasks(&site, array) == 2);
    let tasks = jobs_of_tasks(&site, array);
    let other = tasks[&1];
    assert_eq!(tasks[&2], array, "the last task has the array's id");
    site.until_trains(array, 5, 20.0);
    site.until_trains(other, 5, 20.0);
    let nodes = site.nodes_of(array);
    let main = site.main_job(600, &["--nodes=1", &format!("--nodelist={}", nodes[0])]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until("the last task to be parked", 30.0, || {
        site.queued(array).is_some_and(|job| job.state == "PENDING" && job.reason == "JobHeldUser")
    });
    site.rounds_go_by(3);
    site.until_trains(other, 5, 20.0);
    assert_ne!(site.field(other, "Priority"), "0", "the hold was for the last task alone");
    assert_eq!(site.field(other, "Restarts"), "0");
    site.must("alice", &["scancel", &format!("{array}_1")]);
    site.until_trains(array, 5, 40.0);
    site.must("alice", &["scancel", &array.to_string()]);
    site.until("the array to end", 30.0, || site.queue().iter().all(|job| job.user != "alice"));
}

/// Backfill plans each task of an array, and shows only the first one's nodes.
#[test]
fn infill_leaves_before_each_task_of_a_main_array() {
    let site = Site::acting();
    let first = site.main_job(57, &["--nodes=6", "--time=1", "--nodelist=n[1-6]"]);
    site.starts_within(first, PROMPTLY_SECS);
    let job = Train::on("1-2").submit(&site);
    site.until_trains_on(job, 2, 30.0);
    let script = "date +%s.%N >/scratch/started.$SLURM_ARRAY_TASK_ID; exec sleep 5";
    let array = site.sbatch("bob", &["-p", "main", "--nodes=4", "--time=1", "--array=0-1"], script);
    site.until("backfill to plan the array", 20.0, || {
        let planned = site.run("root", &["squeue", "-h", "--start", "-j", &array.to_string(), "-o", "%Y"]);
        planned.lines().any(|nodes| nodes.trim().starts_with('n'))
    });
    site.until("the daemon to expect both tasks", 10.0, || {
        site.status().is_some_and(|s| s.nodes.iter().all(|n| n.job.is_none() || n.window_end.is_some()))
    });
    let preempted = site.logged(&["Slurm takes the node back"]).len();
    for task in ["started.0", "started.1"] {
        site.until("both tasks to start", 90.0, || site.scratch().join(task).exists());
    }
    assert_eq!(site.logged(&["Slurm takes the node back"]).len(), preempted, "Slurm had to preempt");
    site.until_trains_on(job, 2, 60.0);
    site.completes(job);
}
