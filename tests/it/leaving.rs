//! The costs of leaving: each job's own time to save, the site's epilog, and lost checkpoints.

use crate::harness::jobs::{PROMPTLY_SECS, clock};
use crate::harness::{Site, Slurm, Train};

/// Makes the job lose a node to a main job and get it back, this many times.
fn rescale(site: &Site, job: u32, nodes: usize, times: usize) {
    for _ in 0..times {
        let main = site.main_job(1, &["--nodes=1"]);
        site.starts_within(main, PROMPTLY_SECS);
        site.end_of(main.id, 20.0);
        site.until_trains_on(job, nodes, 30.0);
    }
}

/// The output of the job.
fn output(site: &Site, job: u32) -> String {
    std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default()
}

#[test]
fn a_job_that_saves_slowly_leaves_a_planned_start_in_time_whatever_others_take() {
    let site = Site::acting();
    let fast = Train::on("1-8").run("--grace 10 --profile fast").submit(&site);
    site.until_trains_on(fast, 8, 30.0);
    rescale(&site, fast, 8, 3);
    site.completes(fast);
    let first = site.main_job(57, &["--nodes=4", "--time=1"]);
    site.starts_within(first, PROMPTLY_SECS);
    let slow = Train::on("1-8").run("--grace 60 --profile slow").flags("--save-secs 20").submit(&site);
    site.until_trains_on(slow, 4, 25.0);
    let preempted = site.logged(&["Slurm takes the node back"]).len();
    let second = site.main_job(5, &["--nodes=8", "--time=1"]);
    site.wait("the second main job to start", 90.0, || site.started_at(second));
    let started = site.started_at(first).unwrap_or_default();
    let late = site.started_at(second).unwrap_or_default() - started - 57.0;
    eprintln!("the second main job started {late:.1} s after the first had ended");
    assert!(late <= PROMPTLY_SECS, "it had to wait {late:.1} s");
    assert_eq!(site.logged(&["Slurm takes the node back"]).len(), preempted, "Slurm had to preempt");
    site.end_of(second.id, 30.0);
    site.until_trains_on(slow, 8, 40.0);
    assert_eq!(site.view(slow).expect("the job").kills, 0);
    let lost = site.diary(slow).lost();
    assert!(lost.iter().all(|lost| *lost == 0), "steps were done again: {lost:?}");
    // Without a planned start the job would lose progress, and its owner learns that.
    site.until("the job to be warned", 20.0, || output(&site, slow).contains("saving takes 2"));
    let leaving = site.view(slow).expect("the job").leaving;
    assert!(leaving.contains("where Slurm takes a node back without a plan"), "{leaving}");
    site.finish(slow);
    assert_eq!(site.end_of(slow, 60.0), "COMPLETED 0:0");
}

/// Reserves nodes for bob, as a Slurm host list, this many seconds from now. Returns the time.
fn reserve(site: &Site, nodes: &str, secs: f64) -> f64 {
    let begin = clock().floor() + secs;
    let at = site.must("root", &["date", "-d", &format!("@{begin}"), "+%Y-%m-%dT%H:%M:%S"]);
    let start = format!("StartTime={}", at.trim());
    let wanted = format!("Nodes={nodes}");
    let words = ["ReservationName=service", &start, "Duration=10", "Users=bob", &wanted, "Flags=IGNORE_JOBS"];
    site.must("root", &[&["scontrol", "create", "reservation"], &words[..]].concat());
    begin
}

#[test]
fn jobs_that_save_through_one_pipe_leave_a_planned_start_in_time() {
    let site = Site::on(&Slurm::default().nodes(5), |settings| settings);
    let train = |sizes| {
        let job = Train::on(sizes).run("--grace 200 --profile piped");
        job.flags("--save-secs 6 --pipe /scratch/pipe").submit(&site)
    };
    // A single job shows how long saving takes: it saves to grow.
    let first = train("1-5");
    site.until_trains_on(first, 5, 40.0);
    for _ in 0..2 {
        let main = site.main_job(1, &["--nodes=1"]);
        site.starts_within(main, PROMPTLY_SECS);
        site.end_of(main.id, 20.0);
        site.until_trains_on(first, 5, 90.0);
    }
    site.completes(first);
    let jobs: Vec<u32> = (0..5).map(|_| train("1")).collect();
    jobs.iter().for_each(|job| drop(site.until_trains_on(*job, 1, 60.0)));
    let nodes: Vec<String> =
        site.status().expect("a status").nodes.iter().map(|n| n.node.to_string()).collect();
    let begin = reserve(&site, &nodes.join(","), 120.0);
    site.until("a job to learn of the others", 30.0, || {
        let leaving = site.view(jobs[0]).map(|view| view.leaving).unwrap_or_default();
        leaving.contains("because others will save at the same time")
    });
    let preempted = site.logged(&["Slurm takes the node back"]).len();
    let planned = site.main_job(1, &["--nodes=5", "--reservation=service"]);
    let started = site.wait("the planned main job to start", 180.0, || site.started_at(planned));
    let late = started - begin;
    eprintln!("the main job started {late:.1} s after the moment that was planned");
    // Five saves in a row take 30 s. From a job that plans for one save alone Slurm would take the node and
    // kill it.
    assert!(late <= 5.0, "it had to wait {late:.1} s");
    assert_eq!(site.logged(&["Slurm takes the node back"]).len(), preempted, "Slurm had to preempt");
    for job in jobs {
        let saved: Vec<f64> = site.diary(job).all("stop").iter().map(|event| event.at).collect();
        assert_eq!(saved.len(), 1, "it left once");
        assert!(saved[0] < begin, "it was done {:.1} s too late", saved[0] - begin);
        site.must("root", &["scancel", &job.to_string()]);
    }
}

#[test]
fn the_epilog_is_part_of_leaving() {
    let site = Site::on(&Slurm::default().waits("Epilog", 20), |settings| settings);
    let job = Train::on("1-8").submit(&site);
    site.until_trains_on(job, 8, 40.0);
    // Leaving three nodes at once shows how long the epilog is.
    let main = site.main_job(1, &["--nodes=3"]);
    site.wait("the main job to start", 60.0, || site.started_at(main));
    let view = site.until_trains_on(job, 8, 90.0);
    let nodes = view.nodes[6..].iter().map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let begin = reserve(&site, &nodes, 60.0);
    let planned = site.main_job(1, &["--nodes=2", "--reservation=service"]);
    let started = site.wait("the planned main job to start", 120.0, || site.started_at(planned));
    let late = started - begin;
    eprintln!("the main job started {late:.1} s after the moment that was planned");
    // Without counting the epilog the job would leave 20 s late.
    assert!(late <= 10.0, "it had to wait {late:.1} s");
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    site.must("root", &["scancel", &job.to_string()]);
}

#[test]
fn a_prolog_that_takes_longer_than_a_wing_may_is_waited_for_and_no_node_is_blamed() {
    let slurm = Slurm::default().nodes(3).waits("Prolog", 25);
    let site = Site::on(&slurm, |settings| settings.set("agent.wing_start_secs", 15.0));
    let job = Train::on("1-3").submit(&site);
    let view = site.until_trains_on(job, 3, 120.0);
    assert_eq!(view.restarts, 0, "{view:?}");
    let blamed = site.logged(&["did not come up"]);
    assert!(blamed.is_empty() && site.logged(&["left alone"]).is_empty(), "{blamed:?}");
    site.finish(job);
    assert_eq!(site.end_of(job, 60.0), "COMPLETED 0:0");
}

#[test]
fn a_job_that_loses_its_checkpoints_is_warned_and_left_alone() {
    let site = Site::acting();
    let job = Train::on("1-8").run("--grace 3 --profile loses").flags("--save-secs 10").submit(&site);
    site.until_trains_on(job, 8, 30.0);
    // A node that is lost within the first half second is a bad place for a job that then loses much.
    site.until_trains(job, 20, 30.0);
    for nodes in 1..=4 {
        let main = site.main_job(600, &[&format!("--nodes={nodes}")]);
        site.wait("the main job to start", 30.0, || site.started_at(main));
        site.until_trains_on(job, 8 - nodes, 30.0);
        site.must("root", &["scancel", &main.id.to_string()]);
        site.end_of(main.id, 20.0);
    }
    // It would grow back within seconds if it did not lose its progress.
    for _ in 0..20 {
        site.rounds_go_by(1);
        assert_eq!(site.view(job).map_or(0, |v| v.nodes.len()), 4, "it was rescaled again");
    }
    let view = site.view(job).expect("the job");
    assert!(view.kills >= 4 && view.leaving.contains("checkpoints were lost"), "{view:?}");
    site.until("the job to learn it", 10.0, || {
        output(&site, job).contains("of the last 4 checkpoints were lost")
    });
    site.completes(job);
}

#[test]
fn idle_nodes_fall_asleep_and_are_not_woken() {
    // Enough time for the second agent to begin, before Slurm switches its node off.
    let slurm = Slurm::default().nodes(4).saves_power(15);
    let site = Site::on(&slurm, |settings| settings.set("gaps.keep_idle", 2));
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 2, 40.0);
    let asleep =
        || site.run("root", &["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"]).matches("idle~").count();
    site.until("two nodes to be switched off", 60.0, || asleep() == 2);
    site.rounds_go_by(10);
    assert_eq!((asleep(), site.nodes_of(job).len()), (2, 2), "a node was woken");
    let status = site.status().expect("a status");
    let refused =
        status.nodes.iter().filter(|n| n.why.as_deref().is_some_and(|w| w.contains("switched off")));
    assert_eq!(refused.count(), 2, "{:?}", status.nodes);
    site.completes(job);
}
