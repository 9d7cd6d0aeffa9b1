//! Faults are assigned correctly: a bad node, a bad job, a lost record. No other job pays for them.

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Train};

#[test]
fn growth_onto_a_bad_node_goes_on_without_it() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=1", "--nodelist=n5"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    let job = Train::on("1-8").flags("--fail-node n5").submit(&site);
    site.until_trains_on(job, 7, 30.0);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until("a try with n5", 30.0, || !site.diary(job).all("broken").is_empty());
    let view = site.until_trains_on(job, 7, 30.0);
    assert!(view.nodes.iter().all(|n| n.as_str() != "n5") && view.restarts == 0, "{view:?}");
    // It was a growth, so the progress of the other workers was saved.
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    assert!(!site.logged(&["n5", "the command has not run there before"]).is_empty());
    let bad = site.run("infill", &["infill", "nodes", "--bad"]);
    assert!(bad.lines().any(|line| line.starts_with("n5 ")), "it is shown: {bad}");
    // Another job may use the node: one job's failure does not close a node to everyone.
    let other = Train::on("1").user("bob").option("--exclude=n[1-4,6-8]").submit(&site);
    site.until("the other job to train", 60.0, || site.diary(other).last_step() > 0);
    site.completes(other);
    site.completes(job);
}

#[test]
fn a_command_that_fails_everywhere_fails_as_itself() {
    let site = Site::acting();
    let job =
        Train::on("1-4").run("--grace 5 --max-restarts 1").flags("--fail-rank 0 --fail-step 0 --fail-always");
    let job = job.submit(&site);
    assert_eq!(site.end_of(job, 90.0), "FAILED 3:0");
    site.until_nothing_leaks(10.0);
}

#[test]
fn a_script_that_never_comes_to_infill_run_keeps_only_its_own_node() {
    let site = Site::acting();
    let script = "sleep 1d";
    let sleeper = site.sbatch("alice", &["-p", "infill", "--nodes=1-64"], script);
    site.until("the sleeper to run", 30.0, || site.queued(sleeper).is_some_and(|j| j.runs()));
    let job = Train::on("1-8").user("bob").submit(&site);
    site.until_trains_on(job, 7, 60.0);
    site.completes(job);
    // Slurm sends the signal to leave only to job steps, and there is none. The script would stay to the end.
    let main = site.main_job(5, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.end_of(main.id, 30.0);
    site.must("alice", &["scancel", &sleeper.to_string()]);
}

#[test]
fn jobs_whose_records_are_lost_are_taken_up() {
    let site = Site::acting();
    let job = Train::on("1-6").submit(&site);
    site.until_trains_on(job, 6, 30.0);
    let parts: Vec<u32> = site.parts(job).iter().map(|j| j.id).collect();
    assert_eq!(site.stop_daemon(), Some(0));
    let forget = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                  print(db.execute(\"update leads set state = '{}'\").rowcount); db.commit()";
    let changed = site.must("infill", &["python3", "-c", forget, "/var/lib/infill/infill.db"]);
    assert_eq!(changed.trim(), "1");
    site.start();
    site.until("the job to be taken up", 30.0, || site.view(job).is_some_and(|v| v.nodes.len() == 6));
    site.until_trains_on(job, 6, 40.0);
    assert_eq!(site.parts(job).iter().map(|j| j.id).collect::<Vec<_>>(), parts, "the same Slurm jobs");
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    site.completes(job);
}

#[test]
fn a_lead_is_given_its_limit_before_the_next_look() {
    let site = Site::with(|s| s.set("daemon.poll_interval_secs", 30.0));
    let job = Train::on("1-2").submit(&site);
    site.until("the job to train", 60.0, || site.diary(job).last_step() > 0);
    let limit = site.field(job, "TimeLimit");
    let minutes: u32 = limit.split(':').nth(1).and_then(|m| m.parse().ok()).expect("a limit");
    assert!(minutes >= 30, "{limit}");
    site.completes(job);
}
