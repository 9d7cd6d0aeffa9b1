//! Neighbouring versions work together: an upgrade of the daemon, and a downgrade, in the middle of jobs.

use std::path::PathBuf;

use infill_api::JobView;

use crate::harness::versions::{Version, Versions, older};
use crate::harness::{Settings, Site, Train};

/// Gives the cluster this version, and starts its daemon.
fn begin(site: &Site, older: PathBuf, first: Version) -> Versions<'_> {
    site.configure(&Settings::quick(site.port()));
    let versions = Versions::of(site, older, first);
    site.start();
    versions
}

/// Checks that no change cost a step, and no node was blamed.
fn nothing_was_lost(site: &Site, job: u32) {
    let diary = site.diary(job);
    assert!(diary.lost().iter().all(|lost| *lost == 0), "{:?}", diary.lost());
    diary.assert_no_overlap();
    let status = site.status().expect("the daemon answers");
    let failures: Vec<_> = status.nodes.iter().flat_map(|n| &n.failures).collect();
    assert!(failures.is_empty(), "{failures:?}");
}

/// Why the job does not grow, once the daemon has heard from its lead's agent.
fn until_reported_as_older(site: &Site, job: u32) -> JobView {
    site.wait("the lead's agent to be known as older", 20.0, || {
        let view = site.view(job)?;
        view.shortage.as_ref().is_some_and(|why| why.contains("older than the daemon")).then_some(view)
    })
}

#[test]
fn older_agents_train_on_under_a_newer_daemon_and_are_asked_for_no_wings() {
    let Some(older) = older() else { return };
    let site = Site::bare();
    let versions = begin(&site, older, Version::Older);
    let main = site.main_job(600, &["--nodes=5"]);
    site.starts_within(main, 10.0);
    let job = Train::on("1-8").submit(&site);
    let before = site.until_trains_on(job, 3, 40.0);
    versions.upgrade_daemon(Version::Present);
    until_reported_as_older(&site, job);
    // Five nodes become idle, which the job would use.
    site.must("bob", &["scancel", &main.id.to_string()]);
    site.until("five nodes to be idle", 20.0, || {
        site.run("root", &["sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N"]).lines().count() == 5
    });
    site.rounds_go_by(6);
    site.until_trains(job, 20, 20.0);
    let view = site.view(job).expect("the daemon knows it");
    assert_eq!((view.nodes, view.generation), (before.nodes, before.generation), "it trains on");
    assert_eq!(view.wings, before.wings, "no wing was ordered");
    let said = site.run("alice", &["infill", "explain", &job.to_string()]);
    assert!(said.contains("older than the daemon"), "{said}");
    // The main queue still takes its nodes when it wants them.
    let main = site.main_job(600, &["--nodes=6"]);
    site.starts_within(main, 10.0);
    site.until_trains_on(job, 2, 30.0);
    nothing_was_lost(&site, job);
    site.completes(job);
    site.until_nothing_leaks(10.0);
}

#[test]
fn a_job_of_older_agents_that_starts_again_grows_with_newer_ones() {
    let Some(older) = older() else { return };
    let site = Site::bare();
    let versions = begin(&site, older, Version::Older);
    let main = site.main_job(600, &["--nodes=7"]);
    site.starts_within(main, 10.0);
    let job = Train::on("1-8").submit(&site);
    site.until_trains_on(job, 1, 40.0);
    versions.upgrade_daemon(Version::Present);
    until_reported_as_older(&site, job);
    site.must("bob", &["scancel", &main.id.to_string()]);
    site.must("alice", &["scontrol", "requeue", &job.to_string()]);
    site.until_trains_on(job, 8, 90.0);
    assert_eq!(site.view(job).and_then(|v| v.shortage), None);
    nothing_was_lost(&site, job);
    site.completes(job);
}

#[test]
fn newer_agents_keep_their_size_while_the_daemon_is_an_older_one() {
    let Some(older) = older() else { return };
    let site = Site::bare();
    let versions = begin(&site, older, Version::Present);
    let main = site.main_job(600, &["--nodes=5"]);
    site.starts_within(main, 10.0);
    let job = Train::on("1-8").submit(&site);
    let before = site.until_trains_on(job, 3, 40.0);
    versions.upgrade_daemon(Version::Older);
    // Five nodes become idle. That daemon would give them to the job, but it cannot prove that it is infill's
    // daemon.
    site.must("bob", &["scancel", &main.id.to_string()]);
    site.rounds_go_by(12);
    site.until_trains(job, 30, 20.0);
    assert_eq!((site.nodes_of(job).len(), site.diary(job).worlds()), (3, vec![3]), "it obeys no one");
    versions.upgrade_daemon(Version::Present);
    let after = site.until_trains_on(job, 8, 60.0);
    assert!(after.generation > before.generation);
    nothing_was_lost(&site, job);
    site.completes(job);
    site.until_nothing_leaks(10.0);
}

#[test]
fn an_extended_main_job_lives_through_an_upgrade() {
    let Some(older) = older() else { return };
    let site = Site::bare();
    let versions = begin(&site, older, Version::Older);
    let extended = Train::on("2").in_main_queue().option("--time=30").run("--grace 10 --extend 1-4");
    let job = extended.submit(&site);
    site.until_trains_on(job, 6, 60.0);
    versions.upgrade_daemon(Version::Present);
    until_reported_as_older(&site, job);
    site.until_trains(job, 20, 20.0);
    // All nodes of the wings are taken, so the command starts again on the job's own two nodes.
    let main = site.main_job(15, &["--nodes=6"]);
    site.starts_within(main, 10.0);
    site.until_trains_on(job, 2, 30.0);
    assert_eq!(site.end_of(main.id, 40.0), "COMPLETED 0:0");
    site.rounds_go_by(6);
    site.until_trains(job, 20, 20.0);
    assert_eq!((site.field(job, "JobState"), site.nodes_of(job).len()), ("RUNNING".to_owned(), 2));
    nothing_was_lost(&site, job);
    site.completes(job);
}
