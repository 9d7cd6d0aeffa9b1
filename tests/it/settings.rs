//! Clusters with special settings, and hanging daemons: the basis of other tests of real sites.

use crate::harness::{Settings, Site, Slurm, Train};

#[test]
fn a_cluster_has_the_settings_that_it_was_made_with() {
    let slurm = Slurm::default()
        .nodes(3)
        .set("PrivateData=jobs")
        .set("SchedulerParameters=bf_interval=2,bf_max_time=5")
        .set("NodeName=n[1-2] Features=big,fast")
        .set("PartitionName=main OverSubscribe=NO")
        .set("PartitionName=debug Nodes=n3 MaxTime=10")
        .waits("Prolog", 3)
        .sacctmgr("modify account research set GrpTRES=node=2");
    let site = Site::bare_on(&slurm);
    let config = site.must("root", &["scontrol", "show", "config"]);
    for (key, value) in [("PrivateData", "jobs"), ("SchedulerParameters", "bf_interval=2,bf_max_time=5")] {
        let line = config.lines().find(|l| l.starts_with(key)).unwrap_or_default();
        assert!(line.ends_with(&format!("= {value}")), "{line}");
    }
    let nodes = site.must("root", &["sinfo", "-h", "-N", "-p", "infill", "-o", "%N %f"]);
    assert_eq!(nodes.trim(), "n1 big,fast\nn2 big,fast\nn3 (null)");
    let partitions = site.must("root", &["sinfo", "-h", "-o", "%R %h %l %N"]);
    let lines: Vec<&str> = partitions.lines().collect();
    assert!(lines.contains(&"main NO infinite n[1-3]"), "{partitions}");
    assert!(lines.contains(&"debug NO 10:00 n3"), "{partitions}");
    let limits =
        site.must("root", &["sacctmgr", "-nP", "show", "assoc", "account=research", "format=user,grptres"]);
    assert!(limits.lines().any(|l| l == "|node=2"), "{limits}");
    let job = site.main_job(1, &["--nodes=1"]);
    let waited = site.wait("the main job to start", 30.0, || site.started_at(job)) - job.submitted_at;
    assert!(waited >= 3.0, "there was no prolog: the job started after {waited} s");
}

#[test]
fn without_munge_slurm_authenticates_by_itself_and_sleeping_nodes_wake_up() {
    let site = Site::bare_on(&Slurm::default().nodes(2).without_munge().saves_power(5));
    assert!(!site.exec("bob", &["munge", "-n"]).status.success(), "there is MUNGE");
    let states = || site.run("root", &["sinfo", "-h", "-N", "-p", "main", "-o", "%T"]);
    site.until("the nodes to be switched off", 40.0, || states() == "idle~\nidle~\n");
    let job = site.main_job(1, &["--nodes=1"]);
    let waited = site.wait("the main job to start", 60.0, || site.started_at(job)) - job.submitted_at;
    eprintln!("a node woke up in {waited:.1} s");
    assert!(
        site.run("root", &["sinfo", "-h", "-N", "-p", "main", "-o", "%T"]).contains("idle~"),
        "both woke"
    );
}

#[test]
fn a_stall_is_noticed_and_ends() {
    let site = Site::bare();
    let relay = site.relay();
    site.configure(
        &Settings::quick(site.port()).set("agent.url", format!("http://127.0.0.1:{}", relay.port)),
    );
    site.start();
    let job = Train::on("1-2").submit(&site);
    let generation = site.until_trains_on(job, 2, 40.0).generation;
    site.stall(&relay.name);
    site.stall("slurmrestd");
    site.until("the daemon to notice", 30.0, || site.status().is_some_and(|s| !s.problems.is_empty()));
    site.resume("slurmrestd");
    site.until("the problem to be over", 30.0, || site.status().is_some_and(|s| s.problems.is_empty()));
    site.resume(&relay.name);
    site.until_trains(job, 5, 30.0);
    assert_eq!(site.until_trains_on(job, 2, 30.0).generation, generation, "the job was disturbed");
    site.completes(job);
}

/// Jobs that wait for one node while backfill is slow.
const BACKLOG: usize = 14;

#[test]
fn gaps_are_filled_where_backfill_never_rests() {
    // Backfill sleeps for a second after each job, and begins again a second after its end.
    let slow = "SchedulerParameters=bf_interval=1,bf_yield_interval=1,bf_yield_sleep=1000000,bf_continue,\
                bf_resolution=60,sched_interval=5,batch_sched_delay=0";
    let slurm = Slurm::default().nodes(4).set(&slow.replace(char::is_whitespace, ""));
    let site = Site::on(&slurm, |settings| settings);
    let first = site.main_job(600, &["--nodelist=n1", "--time=30"]);
    site.until("the first main job to run", 30.0, || site.started_at(first).is_some());
    for _ in 0..BACKLOG {
        site.main_job(1, &["--nodelist=n1", "--time=30"]);
    }
    site.until("backfill to be at work", 30.0, || {
        site.run("root", &["sdiag"]).contains("Backfilling stats (WARNING: data obtained in the middle")
    });
    let job = Train::on("1-3").submit(&site);
    site.until_trains_on(job, 3, 150.0);
    // Until now, all snapshots may have fallen between two cycles.
    site.until("three looks while backfill is at work", 120.0, || {
        site.logged(&["backfill is active; the starts that it wiped come from its last cycle"]).len() >= 3
    });
    site.until_trains_on(job, 3, 10.0);
    site.completes(job);
}
