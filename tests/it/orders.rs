//! Observe mode, and the administrator's pause, resume and drain.

use infill_model::ControlState;

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Train, train::SUBLINEAR};

/// Slurm's record of a job, without the parts that change by themselves.
fn record(site: &Site, job: u32) -> Vec<(String, String)> {
    let moving =
        ["EligibleTime", "AccrueTime", "LastSchedEval", "StartTime", "EndTime", "Scheduler", "RunTime"];
    site.job(job).into_iter().filter(|(key, _)| !moving.contains(&key.as_str())).collect()
}

#[test]
fn observing_touches_nothing() {
    let site = Site::with(|s| s.set("daemon.mode", "observe"));
    let held = Train::on("1-8").submit(&site);
    let running = Train::on("1-8").submit(&site);
    site.must("alice", &["scontrol", "release", &running.to_string()]);
    site.until("the released lead to run", 20.0, || site.queued(running).is_some_and(|j| j.runs()));
    site.until("the daemon to know both jobs", 15.0, || {
        site.view(held).is_some() && site.view(running).is_some()
    });
    let before = (record(&site, held), record(&site, running));
    site.rounds_go_by(6);
    assert_eq!(before, (record(&site, held), record(&site, running)));
    assert!(site.queue().iter().all(|j| j.lead().is_none()), "there are wings: {:?}", site.queue());
    let round = site.round().expect("a round");
    assert!(!round.acting);
    assert!(round.plan.jobs.iter().any(|j| !j.nodes.is_empty()), "it still plans: {:?}", round.plan);
}

fn order(site: &Site, user: &str, word: &str) -> (Option<i32>, String) {
    let output = site.exec(user, &["infill", word]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn pause_resume_and_drain() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    let job = Train::on("1-8").run(SUBLINEAR).submit(&site);
    site.until_trains_on(job, 4, 30.0);

    assert_eq!(order(&site, "root", "pause").0, Some(0));
    assert_eq!(site.status().expect("a status").control, ControlState::Paused);
    site.must("root", &["scancel", &main.id.to_string()]);
    let waiting = Train::on("1-2").user("bob").run(SUBLINEAR).submit(&site);
    site.until("the daemon to know the second job", 15.0, || site.view(waiting).is_some());
    site.rounds_go_by(5);
    assert_eq!(site.nodes_of(job).len(), 4, "it grew while paused");
    assert_eq!(site.queued(waiting).map(|j| j.state), Some("PENDING".to_owned()));
    site.until_trains(job, 5, 10.0);
    // Leaving is not paused.
    let lead = site.view(job).expect("the job").nodes[0].to_string();
    let taker = site.main_job(1, &["--nodes=6", &format!("--exclude={lead}")]);
    site.starts_within(taker, PROMPTLY_SECS);
    site.until_trains_on(job, 2, 30.0);

    assert_eq!(order(&site, "infill", "resume").0, Some(0));
    site.until("both jobs to fill the cluster", 40.0, || {
        site.nodes_of(job).len() + site.nodes_of(waiting).len() == 8 && site.diary(waiting).last_step() > 0
    });

    assert_eq!(order(&site, "root", "drain").0, Some(0));
    site.until("everything to be parked", 30.0, || {
        let queue = site.queue();
        // JobHeldUser, JobHeldAdmin or "job requeued in held state".
        queue.len() == 2
            && queue.iter().all(|j| j.state == "PENDING" && j.reason.to_lowercase().contains("held"))
    });
    // The order stays after a restart of the daemon.
    site.kill_daemon();
    site.start();
    assert_eq!(site.status().expect("a status").control, ControlState::Draining);
    site.rounds_go_by(4);
    assert!(site.queue().iter().all(|j| j.state == "PENDING"), "{:?}", site.queue());

    assert_eq!(order(&site, "root", "resume").0, Some(0));
    for id in [job, waiting] {
        site.until_trains(id, 3, 40.0);
        assert!(site.diary(id).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(id).lost());
    }
}

#[test]
fn a_graceful_stop_leaves_running_jobs_running() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    let before = site.until_trains_on(job, 4, 30.0);
    assert_eq!(site.stop_daemon(), Some(0));
    site.until_trains(job, 20, 20.0);
    site.start();
    let after = site.until_trains_on(job, 4, 30.0);
    assert_eq!((after.generation, after.rescales), (before.generation, before.rescales), "it was disturbed");
    site.completes(job);
}
