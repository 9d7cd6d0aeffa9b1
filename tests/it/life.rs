//! The life of malleable jobs beside a main queue that comes and goes.

use crate::harness::jobs::{PROMPTLY_SECS, clock};
use crate::harness::{Site, Train, train::SUBLINEAR};

#[test]
fn a_job_grows_into_idle_nodes_shrinks_for_main_jobs_and_completes() {
    let site = Site::acting();
    let job = Train::on("1-8").submit(&site);
    site.until_trains_on(job, 8, 30.0);
    let main = site.main_job(8, &["--nodes=3"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains_on(job, 5, 30.0);
    site.end_of(main.id, 30.0);
    let view = site.until_trains_on(job, 8, 30.0);
    assert!(view.rescales >= 2 && view.restarts == 0 && view.kills == 0, "{view:?}");
    site.completes(job);
    let diary = site.diary(job);
    diary.assert_no_overlap();
    assert!(diary.lost().iter().all(|lost| *lost == 0), "steps were done again: {:?}", diary.lost());
    site.until("accounting to agree", 20.0, || {
        let text = site.run("root", &["sacct", "-nPX", "-j", &job.to_string(), "-o", "State,ExitCode"]);
        text.trim() == "COMPLETED|0:0"
    });
}

#[test]
fn two_users_share_the_gaps_and_wings_belong_to_their_owner() {
    let site = Site::acting();
    // The first four nodes are worth more to either than the last four to the other.
    let jobs = [("alice", "1-8"), ("bob", "2-8")]
        .map(|(user, nodes)| (user, Train::on(nodes).user(user).run(SUBLINEAR).submit(&site)));
    for (user, job) in jobs {
        site.until("both jobs to train", 40.0, || site.diary(job).last_step() > 0);
        site.wait("all nodes to be used", 30.0, || {
            let used: usize = jobs.iter().map(|(_, job)| site.nodes_of(*job).len()).sum();
            (used == 8).then_some(())
        });
        let parts = site.parts(job);
        assert!(parts.iter().all(|p| p.user == user), "{user}: {parts:?}");
        assert!(site.nodes_of(job).len() >= 2, "{user} has too little: {parts:?}");
    }
    site.completes(jobs[0].1);
    site.until_trains_on(jobs[1].1, 8, 30.0);
    site.completes(jobs[1].1);
}

#[test]
fn only_allowed_sizes_run() {
    let site = Site::acting();
    let main = site.main_job(120, &["--nodes=1"]);
    site.starts_within(main, PROMPTLY_SECS);
    let job = Train::on("1-8").option("--comment=infill:nodes=1,2,4,8").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    site.rounds_go_by(3);
    let worlds = site.diary(job).worlds();
    assert!(worlds.iter().all(|w| [1, 2, 4].contains(w)), "{worlds:?}");
    assert_eq!(site.nodes_of(job).len(), 4, "nodes are held that no allowed size can use");
    site.completes(job);
}

#[test]
fn infill_leaves_before_a_planned_start() {
    let site = Site::acting();
    // These are the nodes that infill holds when the main queue makes its plans. Slurm starts nothing that
    // would have less than a minute.
    let job = Train::on("1-8").submit(&site);
    let lead = site.until_trains_on(job, 8, 30.0).nodes[0].to_string();
    // Slurm uses whole seconds: a wing that began in the second of a preemption may be in the main job's way,
    // and leaves.
    site.rounds_go_by(3);
    // The first one ends a little before its limit, so that the second starts at the time that Slurm has
    // planned.
    let first = site.main_job(57, &["--nodes=4", "--time=1", &format!("--exclude={lead}")]);
    site.starts_within(first, PROMPTLY_SECS);
    let second = site.main_job(5, &["--nodes=8", "--time=1"]);
    site.until_trains_on(job, 4, 25.0);
    site.until("the daemon to see what backfill plans", 20.0, || {
        site.status().is_some_and(|s| s.nodes.iter().any(|n| n.job.is_some() && n.window_end.is_some()))
    });
    let preempted = site.logged(&["Slurm takes the node back"]).len();
    let window =
        site.status().expect("a status").nodes.into_iter().find(|n| n.job.is_some()).expect("a held node");
    assert!(window.window_end.is_some() && window.wanted_by.is_some(), "{window:?}");
    let started = site.wait("the second main job to start", 90.0, || site.started_at(second));
    let left = site.diary(job).all("stop").last().map_or(0.0, |e| e.at);
    assert!(left < started, "left at {left}, the main job started at {started}");
    assert_eq!(site.logged(&["Slurm takes the node back"]).len(), preempted, "Slurm had to preempt");
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0));
    site.end_of(second.id, 30.0);
    site.until_trains_on(job, 8, 40.0);
    site.completes(job);
}

#[test]
fn a_lead_moves_off_a_node_that_a_reservation_wants() {
    let site = Site::acting();
    let job = Train::on("1-8").submit(&site);
    let view = site.until_trains_on(job, 8, 30.0);
    let lead = view.nodes[0].as_str().to_owned();
    let other = view.nodes[1].as_str().to_owned();
    let begin = clock() + 40.0;
    let words = [
        "scontrol".to_owned(),
        "create".to_owned(),
        "reservation".to_owned(),
        "ReservationName=service".to_owned(),
        "StartTime=now+40".to_owned(),
        "Duration=10".to_owned(),
        "Users=root".to_owned(),
        format!("Nodes={lead},{other}"),
        "Flags=IGNORE_JOBS".to_owned(),
    ];
    site.must("root", &words.each_ref().map(String::as_str));
    let view = site.until_trains_on(job, 6, 60.0);
    let now = clock();
    assert!(now < begin, "left {:.1} s after the reservation began", now - begin);
    assert!(view.nodes.iter().all(|n| n.as_str() != lead && n.as_str() != other), "{view:?}");
    assert_eq!(site.diary(job).lost().iter().sum::<u64>(), 0, "work was lost");
    site.must("root", &["scontrol", "delete", "reservation=service"]);
    site.until_trains_on(job, 8, 30.0);
    site.completes(job);
}

#[test]
fn a_lead_that_its_owner_released_is_taken_up() {
    let site = Site::bare();
    site.configure(&crate::harness::Settings::quick(site.port()));
    let job = Train::on("1-4").submit(&site);
    site.must("alice", &["scontrol", "release", &job.to_string()]);
    site.until("the released lead to run", 20.0, || site.queued(job).is_some_and(|j| j.runs()));
    site.start();
    site.until_trains_on(job, 4, 30.0);
    assert_eq!(site.field(job, "Restarts"), "0", "it was started again");
    site.completes(job);
}

#[test]
fn a_main_job_on_the_leads_node_sends_the_lead_elsewhere() {
    let site = Site::acting();
    let job = Train::on("1-8").submit(&site);
    let view = site.until_trains_on(job, 8, 30.0);
    let lead = format!("--nodelist={}", view.nodes[0]);
    let main = site.main_job(60, &["--nodes=1", &lead]);
    site.starts_within(main, PROMPTLY_SECS);
    let view = site.until_trains_on(job, 7, 40.0);
    assert_eq!(view.restarts, 0, "a preemption counts as a failure");
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    site.completes(job);
}

/// Acceptance: it took 32.9 s with agents that are not job steps.
#[test]
fn a_main_job_that_needs_all_nodes_runs_at_once() {
    let site = Site::acting();
    let job = Train::on("1-7").submit(&site);
    site.until_trains_on(job, 7, 30.0);
    let main = site.main_job(5, &["--nodes=8"]);
    // About 2 s; three with a second suite beside it on two cores.
    site.starts_within(main, PROMPTLY_SECS);
    site.end_of(main.id, 20.0);
    site.until_trains_on(job, 7, 40.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    site.completes(job);
}
