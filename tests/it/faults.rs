//! Faults of a real site, one per test. After each the plan is right again, no job is lost, no wing is left
//! behind, no main job waits, and the log says once what happened.

use infill_model::{MalleableState, UnixTime};

use crate::harness::jobs::{PROMPTLY_SECS, clock};
use crate::harness::{Settings, Site, Train, processes::Process};

/// Two rounds of the tests' daemon, and the same time for Slurm and the agents to act on them.
const TWO_ROUNDS_SECS: f64 = 10.0;

/// The log says this exactly once.
#[track_caller]
fn assert_said_once(site: &Site, words: &[&str]) {
    let lines = site.logged(words);
    assert_eq!(lines.len(), 1, "the log should say {words:?} once: {lines:#?}");
}

/// No warning is repeated: a lasting problem is logged once.
#[track_caller]
fn assert_no_chatter(site: &Site) {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for line in site.log().lines().filter(|l| l.contains(" WARN ") || l.contains("ERROR ")) {
        // The message follows the level; the time precedes it.
        let message =
            line.split_once(" WARN ").or_else(|| line.split_once("ERROR ")).map_or(line, |(_, m)| m);
        *seen.entry(message.to_owned()).or_default() += 1;
    }
    let loud: Vec<_> = seen.iter().filter(|(_, n)| **n > 2).collect();
    assert!(loud.is_empty(), "the log repeats itself: {loud:#?}");
}

/// The end of each of these tests: a main job gets its nodes at once. The job grows back, loses nothing more
/// and ends.
fn all_is_well(site: &Site, job: u32, nodes: usize) {
    site.until_trains_on(job, nodes, 40.0);
    site.until_nothing_leaks(TWO_ROUNDS_SECS);
    let main = site.main_job(1, &["--nodes=3"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains_on(job, nodes, 40.0);
    site.until("all problems to be over", 20.0, || site.status().is_some_and(|s| s.problems.is_empty()));
    site.completes(job);
    site.diary(job).assert_no_overlap();
    assert_no_chatter(site);
}

fn agent_on(site: &Site, node: &str, word: &str) -> Option<Process> {
    site.processes()
        .into_iter()
        .find(|p| p.name == "infill" && p.node() == Some(node) && p.args.iter().any(|a| a == word))
}

fn is_trainee(process: &Process) -> bool {
    process.runs("trainee.py")
}

#[test]
fn the_daemon_is_killed_in_mid_rescale() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    // Saving takes long enough for a fault in the middle of it.
    let job = Train::on("1-8").flags("--save-secs 3").submit(&site);
    let lead = site.until_trains_on(job, 4, 30.0).nodes[0].to_string();
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until("a rescale to be under way", 30.0, || {
        site.view(job).is_some_and(|v| v.state == MalleableState::Rescaling)
    });
    site.kill_daemon();
    // No daemon answers, and Slurm still takes nodes back.
    // (Not the lead's node: saving takes longer there than a preempted worker may.)
    let other = site.main_job(1, &["--nodes=2", &format!("--exclude={lead}")]);
    site.starts_within(other, PROMPTLY_SECS);
    site.start();
    site.until_trains_on(job, 8, 60.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    all_is_well(&site, job, 8);
}

#[test]
fn slurmctld_is_killed_and_restarted() {
    let site = Site::acting();
    let job = Train::on("1-8").submit(&site);
    let before = site.until_trains_on(job, 8, 30.0);
    assert!(site.kill_slurmctld(), "slurmctld saves its state at some moment");
    site.until("the daemon to notice", 30.0, || site.status().is_some_and(|s| !s.problems.is_empty()));
    site.until_trains(job, 20, 15.0);
    site.revive("slurmctld");
    site.until("the problem to be over", 30.0, || site.status().is_some_and(|s| s.problems.is_empty()));
    site.rounds_go_by(2);
    let after = site.until_trains_on(job, 8, TWO_ROUNDS_SECS);
    assert_eq!(after.generation, before.generation, "the job was disturbed");
    assert_said_once(&site, &["WARN", "Slurm does not answer"]);
    assert_said_once(&site, &["Slurm answers again"]);
    all_is_well(&site, job, 8);
}

#[test]
fn a_lead_that_begins_while_slurmctld_is_away_begins_later() {
    let site = Site::acting();
    let before = "touch /scratch/here; until [ -e /scratch/go ]; do sleep 0.1; done";
    let job = Train::on("1-4").before(before).submit(&site);
    let scratch = site.scratch();
    site.until("the script to run", 40.0, || scratch.join("here").exists());
    assert!(site.kill_slurmctld(), "slurmctld saves its state at some moment");
    std::fs::write(scratch.join("go"), "").expect("the scratch directory is ours");
    let output = || std::fs::read_to_string(scratch.join(format!("{job}.out"))).unwrap_or_default();
    site.until("a step that Slurm does not start", 90.0, || output().contains("trying again"));
    site.revive("slurmctld");
    // Slurm's own srun waits for a minute if it comes before the nodes.
    site.until_trains_on(job, 4, 120.0);
    all_is_well(&site, job, 4);
}

#[test]
fn slurmrestd_is_away_for_a_while() {
    let away = std::env::var("INFILL_TEST_AWAY_SECS").ok().and_then(|s| s.parse().ok()).unwrap_or(20.0);
    let site = Site::acting();
    let job = Train::on("1-6").submit(&site);
    let view = site.until_trains_on(job, 6, 30.0);
    site.kill("slurmrestd");
    let gone = clock();
    site.until("the daemon to notice", 15.0, || site.status().is_some_and(|s| !s.problems.is_empty()));
    // Slurm itself takes the main queue's nodes back, and training continues on the others.
    // (The lead stays, because starting it elsewhere needs slurmrestd.)
    let main = site.main_job(1, &["--nodes=5", &format!("--exclude={}", view.nodes[0])]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains(job, 5, 30.0);
    let waiting = Train::on("1-2").user("bob").submit(&site);
    site.until("slurmrestd to have been away long enough", away, || clock() - gone >= away - 1.0);
    assert_eq!(site.queued(waiting).map(|j| j.state), Some("PENDING".to_owned()), "it acts without seeing");
    site.revive("slurmrestd");
    site.until("the problem to be over", 20.0, || site.status().is_some_and(|s| s.problems.is_empty()));
    site.until("the second job to train", 30.0, || site.diary(waiting).last_step() > 0);
    site.completes(waiting);
    assert_said_once(&site, &["WARN", "Slurm does not answer"]);
    assert_said_once(&site, &["Slurm answers again"]);
    all_is_well(&site, job, 6);
}

#[test]
fn a_node_of_a_wing_dies() {
    let site = Site::acting();
    let job = Train::on("1-8").submit(&site);
    let view = site.until_trains_on(job, 8, 30.0);
    let victim = view.nodes[3].as_str().to_owned();
    site.kill(&format!("node:{victim}"));
    site.until("Slurm to see that the node is down", 60.0, || {
        site.run("root", &["sinfo", "-h", "-n", &victim, "-o", "%T"]).starts_with("down")
    });
    let seen = UnixTime(clock() as i64);
    let round =
        site.wait("two more rounds", 10.0, || site.round().filter(|r| r.plan.at.secs_since(seen) >= 2.0));
    let planned: Vec<&str> =
        round.plan.jobs.iter().flat_map(|j| j.nodes.iter().map(|p| p.node.as_str())).collect();
    assert!(!planned.contains(&victim.as_str()), "the plan uses a dead node: {planned:?}");
    site.until_trains_on(job, 7, TWO_ROUNDS_SECS);
    let lost = site.diary(job).lost();
    assert!(lost.iter().all(|lost| *lost <= 1), "rank 0 lived and could save: {lost:?}");
    site.revive(&format!("node:{victim}"));
    all_is_well(&site, job, 8);
}

#[test]
fn the_node_of_the_lead_dies() {
    let site = Site::acting();
    let job = Train::on("1-8").submit(&site);
    let view = site.until_trains_on(job, 8, 30.0);
    let victim = view.nodes[0].as_str().to_owned();
    site.kill(&format!("node:{victim}"));
    // Slurm requeues the lead once it sees the node down. Then infill starts it elsewhere.
    site.until_trains_on(job, 7, 90.0);
    site.revive(&format!("node:{victim}"));
    let lost = site.diary(job).lost();
    // Rank 0 died with its node, so only the last periodic checkpoint is left.
    assert!(lost.iter().all(|lost| *lost <= 10), "{lost:?}");
    all_is_well(&site, job, 8);
}

#[test]
fn an_agent_of_a_wing_is_killed() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    let view = site.until_trains_on(job, 4, 30.0);
    let agent = agent_on(&site, view.nodes[2].as_str(), "worker").expect("an agent on a wing's node");
    agent.kill();
    site.until("the job to make a new generation", 30.0, || {
        site.view(job).is_some_and(|v| v.generation > view.generation)
    });
    site.until_trains_on(job, 4, 30.0);
    let left: Vec<Process> = site.processes().into_iter().filter(is_trainee).collect();
    let newest = site.view(job).expect("the job").generation.to_string();
    let stale: Vec<_> = left.iter().filter(|p| p.env.get("INFILL_GENERATION") != Some(&newest)).collect();
    assert!(stale.is_empty(), "commands of old generations run on: {stale:?}");
    all_is_well(&site, job, 4);
}

#[test]
fn the_agent_of_a_lead_is_killed() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    let view = site.until_trains_on(job, 4, 30.0);
    let agent = agent_on(&site, view.nodes[0].as_str(), "--in-step").expect("the lead's agent");
    agent.kill();
    site.until("the job to make a new generation", 40.0, || {
        site.view(job).is_some_and(|v| v.generation > view.generation)
    });
    let view = site.until_trains_on(job, 4, 40.0);
    assert_eq!(view.restarts, 0, "{view:?}");
    let lost = site.diary(job).lost();
    assert!(lost.iter().all(|lost| *lost <= 10), "more than since the last periodic checkpoint: {lost:?}");
    all_is_well(&site, job, 4);
}

#[test]
fn the_disk_of_the_store_is_full() {
    let site = Site::bare();
    site.must("root", &["mkdir", "/var/lib/infill/small"]);
    site.must(
        "root",
        &["mount", "-t", "tmpfs", "-o", "size=2M,uid=infill,gid=infill", "tmpfs", "/var/lib/infill/small"],
    );
    let settings =
        Settings::quick(site.port()).set("store.database_url", "sqlite:/var/lib/infill/small/infill.db");
    site.configure(&settings);
    site.start();
    let main = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to run", 10.0, || site.started_at(main).is_some());
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    // dd fails when the disk is full. That is its purpose here.
    site.exec("infill", &["dd", "if=/dev/zero", "of=/var/lib/infill/small/filler", "bs=4k"]);
    site.must("root", &["scancel", &main.id.to_string()]);
    let waiting = Train::on("1-4").user("bob").submit(&site);
    site.until("the daemon to notice", 30.0, || {
        site.status().is_some_and(|s| s.problems.iter().any(|p| p.contains("store")))
    });
    site.rounds_go_by(3);
    assert_eq!(
        site.queued(waiting).map(|j| j.state),
        Some("PENDING".to_owned()),
        "it started what it could not store"
    );
    site.until_trains(job, 5, 15.0);
    let taker = site.main_job(1, &["--nodes=7"]);
    site.starts_within(taker, PROMPTLY_SECS);
    site.must("root", &["rm", "/var/lib/infill/small/filler"]);
    site.until("the second job to train", 40.0, || site.diary(waiting).last_step() > 0);
    assert_said_once(&site, &["ERROR", "the store fails"]);
    assert_said_once(&site, &["the store works again"]);
    site.completes(waiting);
    all_is_well(&site, job, 4);
}

#[test]
fn a_worker_ignores_its_signal() {
    let site = Site::acting();
    let job = Train::on("1-4").run("--grace 3").flags("--ignore-signal 1").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    let main = site.main_job(5, &["--nodes=7"]);
    // It ignores Slurm's SIGTERM too. Its agent waits for preempt_leave_secs.
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains(job, 5, 40.0);
    let view = site.until_trains_on(job, 4, 40.0);
    assert!(view.kills >= 1, "it was not killed: {view:?}");
    let output = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    assert!(
        output.contains("the command ignores SIGUSR1, and is killed; choose another --signal"),
        "{output}"
    );
    assert_eq!(view.restarts, 0, "being killed at a rescale is no failure of the command: {view:?}");
    assert!(
        site.diary(job).lost().iter().all(|lost| *lost <= 1),
        "rank 0 could save: {:?}",
        site.diary(job).lost()
    );
    site.until_nothing_leaks(TWO_ROUNDS_SECS);
    site.completes(job);
}
