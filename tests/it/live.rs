//! Jobs whose command stays alive when the size changes: no process is stopped, no step is lost, no main job
//! waits.

use std::collections::BTreeMap;

use infill_api::JobView;

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Train, processes::Process};

fn live() -> Train {
    Train::on("1-8").program("trainee_live.py")
}

/// The process of each node, as last reported.
fn pids(site: &Site, job: u32) -> BTreeMap<String, u32> {
    site.diary(job).all("start").into_iter().map(|e| (e.node.clone(), e.pid)).collect()
}

/// The process that runs the command on a node.
fn trainee_on(site: &Site, node: &str) -> Process {
    site.processes()
        .into_iter()
        .find(|p| p.node() == Some(node) && p.runs("trainee_live.py"))
        .unwrap_or_else(|| panic!("nothing runs on {node}"))
}

/// Steps follow each other over all changes of the job, and no process was asked to stop.
#[track_caller]
fn assert_nothing_stopped(site: &Site, job: u32) {
    let diary = site.diary(job);
    let steps: Vec<u64> = diary.all("step").into_iter().map(|e| e.step).collect();
    assert!(steps.windows(2).all(|two| two[1] == two[0] + 1), "{steps:?}");
    // A newcomer without a place may be asked to stop.
    let stops: Vec<_> = diary.all("stop").into_iter().filter(|e| e.world > 0).collect();
    assert!(stops.is_empty(), "{stops:?}");
    let view = site.view(job).expect("the job is known");
    assert_eq!((view.restarts, view.kills), (0, 0), "{view:?}");
}

/// Nodes that the job had before and after a change still have the same processes.
#[track_caller]
fn assert_same_processes(before: &BTreeMap<String, u32>, after: &BTreeMap<String, u32>, nodes: &JobView) {
    for node in nodes.nodes.iter().map(|n| n.as_str()) {
        if let Some(pid) = before.get(node) {
            assert_eq!(after.get(node), Some(pid), "{node}");
        }
    }
}

#[test]
fn grows_shrinks_and_gives_nodes_to_main_jobs_while_it_trains() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    let job = live().submit(&site);
    site.until_trains_on(job, 4, 40.0);
    let first = pids(&site, job);
    // It grows while it trains.
    site.must("root", &["scancel", &main.id.to_string()]);
    let view = site.until_trains_on(job, 8, 60.0);
    let grown = pids(&site, job);
    assert_same_processes(&first, &grown, &view);
    // Wings are preempted, and the main job starts as fast as ever.
    let lead = view.nodes[0].to_string();
    let other = site.main_job(20, &["--nodes=3", &format!("--exclude={lead}")]);
    site.starts_within(other, PROMPTLY_SECS);
    let view = site.until_trains_on(job, 5, 40.0);
    // Slurm may preempt on one node and start on another, which infill has left meanwhile.
    let after = pids(&site, job);
    let stayed = view.nodes.iter().filter(|n| after.get(n.as_str()) == grown.get(n.as_str())).count();
    assert!(stayed >= 4 && after.get(&lead) == grown.get(&lead), "{grown:?} became {after:?}");
    assert_nothing_stopped(&site, job);
    site.completes(job);
}

#[test]
fn a_lead_that_is_lost_comes_back_while_the_others_train() {
    let site = Site::acting();
    let job = live().submit(&site);
    let view = site.until_trains_on(job, 8, 60.0);
    let before = pids(&site, job);
    let lead = view.nodes[0].to_string();
    let main = site.main_job(600, &["--nodes=1", &format!("--nodelist={lead}")]);
    site.starts_within(main, PROMPTLY_SECS);
    site.wait("the others to train on", 20.0, || {
        site.diary(job).all("start").last().is_some_and(|e| e.world == 6).then_some(())
    });
    let view = site.until_trains_on(job, 7, 60.0);
    let came_back = view.nodes[0].to_string();
    let after = pids(&site, job);
    for (node, pid) in before.iter().filter(|(node, _)| **node != lead && **node != came_back) {
        assert_eq!(after.get(node), Some(pid), "{node}");
    }
    assert_nothing_stopped(&site, job);
    // It grows as before, and ends as a job with one lead.
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 8, 60.0);
    assert_nothing_stopped(&site, job);
    site.completes(job);
}

#[test]
fn a_process_that_is_killed_is_left_behind() {
    let site = Site::acting();
    let job = live().submit(&site);
    let view = site.until_trains_on(job, 8, 60.0);
    let before = pids(&site, job);
    let victim = view.nodes[3].to_string();
    trainee_on(&site, &victim).kill();
    site.wait("the others to go on", 20.0, || {
        let last = site.diary(job);
        last.all("start").last().is_some_and(|e| e.world == 7).then_some(())
    });
    site.until_trains(job, 5, 10.0);
    let after = pids(&site, job);
    assert!(before.iter().filter(|(node, _)| **node != victim).all(|(node, pid)| after[node] == *pid));
    assert_nothing_stopped(&site, job);
    site.completes(job);
}

#[test]
fn a_newcomer_that_fails_costs_the_others_nothing() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=6"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    let nodes = site.nodes_of(main.id);
    let flags = format!("--fail-warm {}", nodes[0]);
    let job = live().flags(&flags).submit(&site);
    site.until_trains_on(job, 2, 40.0);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.wait("it to grow as far as it can", 60.0, || {
        let diary = site.diary(job);
        diary.all("start").last().is_some_and(|e| e.world == 7).then_some(())
    });
    assert_nothing_stopped(&site, job);
    site.completes(job);
}

#[test]
fn a_command_that_sees_no_way_restarts_from_its_memory() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    let job = live().flags("--hopeless").submit(&site);
    site.until_trains_on(job, 4, 40.0);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 8, 60.0);
    let diary = site.diary(job);
    assert!(!diary.all("stop").is_empty(), "it was restarted");
    assert!(diary.lost().iter().all(|lost| *lost == 0), "{:?}", diary.lost());
    assert_eq!(site.view(job).map(|v| v.restarts), Some(0), "no process failed");
    site.completes(job);
}

#[test]
fn a_command_that_throws_at_once_fails_like_an_ordinary_one() {
    let site = Site::acting();
    let fails = |job: Train| {
        let job = job.run("--grace 5 --max-restarts 1").submit(&site);
        let end = site.end_of(job, 90.0);
        site.until_nothing_leaks(10.0);
        (end, site.view(job).map(|view| view.restarts))
    };
    let alive = fails(live().flags("--throw always"));
    let plain = fails(Train::on("1-8").flags("--fail-rank 0 --fail-step 0 --fail-always"));
    assert_eq!((alive.0.as_str(), plain.0.as_str()), ("FAILED 1:0", "FAILED 3:0"));
    assert_eq!(alive.1, plain.1);
}

#[test]
fn a_command_that_throws_in_a_step_restarts_from_the_others_state() {
    let site = Site::acting();
    let job = live().flags("--throw 25").submit(&site);
    site.until_trains_on(job, 8, 60.0);
    site.wait("a restart", 60.0, || site.view(job).filter(|view| view.restarts == 1));
    site.until_trains(job, 5, 30.0);
    assert_eq!(site.diary(job).lost().iter().max(), Some(&0), "its own last checkpoint is of step 20");
    site.completes(job);
}
