//! Surprising effects of Slurm on jobs, and how infill prevents the loss of work.

use crate::harness::{Site, Slurm, Train, jobs::PROMPTLY_SECS};

/// Seconds for which a job must still exist that Slurm would end.
const OUTLIVES_ROUNDS: usize = 3;

/// Removes a node with its own line from Slurm's configuration.
fn take_out(site: &Site, node: &str) {
    site.kill(&format!("slurmd:{node}"));
    site.must("root", &["sed", "-i", &format!("/^NodeName={node} /d"), "/etc/slurm/slurm.conf"]);
    site.must("root", &["scontrol", "reconfigure"]);
    site.until("the node to be gone", 20.0, || {
        !site.run("root", &["sinfo", "-h", "-N", "-o", "%N"]).lines().any(|line| line == node)
    });
}

#[test]
fn a_parked_job_outlives_the_node_that_it_was_on() {
    // Each node has its own line, so that one can be removed.
    let site = Site::on(&Slurm::default().nodes(3).set("NodeName=n3 Features=old"), |settings| settings);
    let others = site.main_job(600, &["--nodelist=n[1-2]", "--nodes=2"]);
    site.starts_within(others, PROMPTLY_SECS);
    let job = Train::on("1").submit(&site);
    let view = site.until_trains_on(job, 1, 40.0);
    assert_eq!(view.nodes[0].as_str(), "n3");
    let main = site.main_job(600, &["--nodelist=n3", "--nodes=1"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until("the job to be parked", 30.0, || {
        site.queued(job).is_some_and(|j| j.state == "PENDING" && j.reason.contains("eld"))
    });
    site.rounds_go_by(OUTLIVES_ROUNDS);
    // The node is removed for good.
    site.must("root", &["scontrol", "update", "nodename=n3", "state=drain", "reason=it is sold"]);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.end_of(main.id, 30.0);
    take_out(&site, "n3");
    site.rounds_go_by(OUTLIVES_ROUNDS);
    assert_eq!(site.field(job, "JobState"), "PENDING", "Slurm ended it: {:?}", site.job(job));
    assert_eq!(site.field(job, "ReqNodeList"), "(null)");
    // The job trains elsewhere, and has lost nothing.
    site.must("root", &["scancel", &others.id.to_string()]);
    site.until_trains_on(job, 1, 60.0);
    assert_ne!(site.nodes_of(job), ["n3"]);
    site.completes(job);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
}

#[test]
fn no_limit_of_requeues_ends_a_job_that_is_pushed_away_again_and_again() {
    // The prolog fails once. Slurm itself then holds the job whose start failed for good.
    let prolog =
        "#!/bin/sh\n[ -e /scratch/failed ] || { : >/scratch/failed; chmod a+w /scratch/failed; exit 1; }\n";
    let slurm = Slurm::default()
        .nodes(2)
        .set("MaxBatchRequeue=0")
        .set("SchedulerParameters=bf_interval=2,bf_resolution=60,sched_interval=5,bf_continue,nohold_on_prolog_fail")
        .file("prolog", prolog)
        .set("Prolog=/etc/slurm/prolog");
    let site = Site::on(&slurm, |settings| settings);
    let job = Train::on("1").submit(&site);
    let held = ["JobHoldMaxRequeue (launch failure limit exceeded"];
    site.until("Slurm to hold the job", 40.0, || !site.logged(&held).is_empty());
    site.until_trains_on(job, 1, 90.0);
    // Slurm drains a node whose prolog fails.
    site.run("root", &["scontrol", "update", "nodename=n[1-2]", "state=resume"]);
    for _ in 0..3 {
        let main = site.main_job(1, &["--nodes=2"]);
        site.starts_within(main, PROMPTLY_SECS);
        site.until_trains_on(job, 1, 60.0);
    }
    let requeues: u32 = site.field(job, "Restarts").parse().expect("a number");
    assert!(requeues >= 4, "{requeues} requeues");
    site.completes(job);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
}

#[test]
fn a_node_that_vanishes_while_a_wing_starts_there_costs_nothing() {
    let slurm = Slurm::default().nodes(3).set("NodeName=n3 Features=old").waits("Prolog", 8);
    let site = Site::on(&slurm, |settings| settings);
    // The lead is elsewhere. It starts once the prolog has ended.
    let main = site.main_job(600, &["--nodelist=n3", "--nodes=1"]);
    site.until("the main job to run", 30.0, || site.started_at(main).is_some());
    let job = Train::on("1-3").submit(&site);
    site.until_trains_on(job, 2, 90.0);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until("a wing to start on the node", 40.0, || {
        site.queue().into_iter().any(|j| j.lead() == Some(job) && j.runs() && j.nodes == ["n3"])
    });
    take_out(&site, "n3");
    site.rounds_go_by(OUTLIVES_ROUNDS);
    site.until_trains_on(job, 2, 60.0);
    let shown = site.status().expect("a status");
    assert!(shown.problems.is_empty() && shown.nodes.iter().all(|n| n.node.as_str() != "n3"), "{shown:?}");
    site.until_nothing_leaks(20.0);
    site.completes(job);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
}
