//! Agents without their daemon, at their time limit, beside other users, and in scripts that do more than
//! train.

use crate::harness::jobs::{PROMPTLY_SECS, clock};
use crate::harness::{Settings, Site, Slurm, Train};

/// The usual name of the private directory on each node, of this job and later ones.
fn usual_names(job: u32) -> Vec<String> {
    let jobs = job..job + 12;
    jobs.flat_map(|job| (1..=8).map(move |n| format!("/tmp/infill-6101-{job}.n{n}"))).collect()
}

#[test]
fn a_name_in_tmp_that_another_user_took_first() {
    let site = Site::bare();
    site.configure(&Settings::quick(site.port()));
    let job = Train::on("1-4").submit(&site);
    let names = usual_names(job);
    let words: Vec<&str> = ["mkdir"].into_iter().chain(names.iter().map(String::as_str)).collect();
    site.must("bob", &words);
    site.start();
    site.until_trains_on(job, 4, 40.0);
    let output = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    assert!(output.contains("not a private directory of ours"), "it says nothing: {output}");
    assert_eq!(site.diary(job).all("untold").len(), 0, "progress did not arrive");
    site.completes(job);
    let left = site.run("root", &["sh", "-c", &format!("ls -d /tmp/infill-6101-{job}.n?.* 2>/dev/null")]);
    site.must("bob", &["rmdir", "--"].into_iter().chain(words[1..].iter().copied()).collect::<Vec<_>>());
    assert_eq!(left, "", "a private directory was left behind");
}

/// Makes Slurm preempt the lead while no daemon runs, and start it again.
fn restart_without_daemon(site: &Site, job: u32) {
    let main = site.main_job(2, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until("Slurm to have requeued the lead", 20.0, || {
        site.queued(job).is_some_and(|j| j.state == "PENDING")
    });
    site.until("the lead to run again", 60.0, || {
        // Otherwise Slurm lets it wait for two minutes. Slurm accepts this only once the job is cleaned up.
        site.exec("root", &["scontrol", "update", &format!("job={job}"), "StartTime=now"]);
        site.queued(job).is_some_and(|j| j.state == "RUNNING")
    });
}

/// Each start continued where the one before had stopped.
fn assert_nothing_lost(site: &Site, job: u32) {
    let mut reached = 0;
    let mut starts = 0;
    for e in site.diary(job).0.iter().filter(|e| e.rank == 0) {
        match e.event.as_str() {
            "start" => {
                assert!(e.step + 1 >= reached, "step {reached} was reached, and it began at {e:?}");
                starts += 1;
            }
            "step" => reached = e.step,
            _ => {}
        }
    }
    assert!(starts > 1, "it was never started again");
}

#[test]
fn ranks_that_leave_together_are_not_done_while_the_daemon_is_away() {
    let site = Site::acting();
    let run = "--grace 10 --daemon-patience 3";
    let job = Train::on("1-2").program("agreeing.py").run(run).submit(&site);
    let output = || std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    site.until("two ranks", 40.0, || output().contains("with 2 ranks") && site.nodes_of(job).len() == 2);
    site.rounds_go_by(5);
    let lead = site.view(job).expect("a job").nodes[0].clone();
    let before = output().len();
    // The step in the last line of rank 0 since then that contains this word.
    let step_after = |word: &str| -> Option<u64> {
        let text = output();
        let mut lines = text.get(before..)?.lines();
        let line = lines.rfind(|line| line.starts_with("[0]") && line.contains(word))?;
        line.split(word).nth(1)?.split_whitespace().next()?.parse().ok()
    };
    site.kill_daemon();
    let main = site.main_job(30, &["--nodes=7", &format!("--exclude={lead}")]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until("the lead's rank to save, too", 20.0, || step_after(" saved at ").is_some());
    let saved = step_after(" saved at ").expect("a step");
    let since = clock();
    site.until("the lead's patience to be over", 20.0, || clock() - since > 8.0);
    assert_eq!(site.queued(job).map(|j| j.state), Some("RUNNING".to_owned()), "{}", output());
    site.start();
    site.until("training to go on", 60.0, || step_after(" from ").is_some());
    assert!(saved > 0 && step_after(" from ") >= Some(saved), "{}", output());
    site.must("alice", &["scancel", &job.to_string()]);
}

#[test]
fn a_lead_that_starts_while_the_daemon_is_away_waits() {
    let site = Site::acting();
    let job = Train::on("1-2").run("--grace 10 --daemon-patience 3").submit(&site);
    site.until_trains_on(job, 2, 30.0);
    site.kill_daemon();
    restart_without_daemon(&site, job);
    let steps = site.diary(job).last_step();
    let since = clock();
    site.until("the lead's patience to be over", 20.0, || clock() - since > 12.0);
    assert_eq!(site.queued(job).map(|j| j.state), Some("RUNNING".to_owned()));
    assert_eq!(site.diary(job).last_step(), steps, "it was not to train alone");
    let output = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    // After 3 s, and each time that the absence has doubled.
    assert!((1..=3).contains(&output.matches("waiting for it").count()), "said once, then rarely: {output}");
    site.start();
    site.until_trains_on(job, 2, 40.0);
    assert_nothing_lost(&site, job);
    site.completes(job);
}

#[test]
fn a_lead_may_train_alone_while_the_daemon_is_away() {
    let site = Site::acting();
    let job = Train::on("1-2").run("--grace 10 --daemon-patience 3 --alone").submit(&site);
    site.until_trains_on(job, 2, 30.0);
    site.kill_daemon();
    restart_without_daemon(&site, job);
    site.until_trains(job, 30, 40.0);
    let alone = site.diary(job).0.iter().rev().find(|e| e.event == "step").map(|e| (e.generation, e.world));
    assert_eq!(alone, Some((0, 1)));
    site.start();
    site.until_trains_on(job, 2, 40.0);
    assert_nothing_lost(&site, job);
    site.until_nothing_leaks(10.0);
    site.completes(job);
}

#[test]
fn a_lead_without_daemon_does_not_meet_its_limit() {
    let site = Site::with(|settings| settings.set("daemon.poll_interval_secs", 30.0));
    site.must(
        "root",
        &[
            "scontrol",
            "create",
            "reservation=soon",
            "starttime=now+130",
            "duration=5",
            "nodes=ALL",
            "users=root",
        ],
    );
    let job = Train::on("1-4").submit(&site);
    site.until("the lead to train", 60.0, || site.diary(job).last_step() > 0);
    site.kill_daemon();
    site.must("root", &["scontrol", "update", &format!("job={job}"), "TimeLimit=1"]);
    let since = clock();
    site.until("its limit to be over, and Slurm to have looked", 120.0, || clock() - since > 95.0);
    assert_eq!(site.field(job, "JobState"), "PENDING");
    assert_eq!(site.field(job, "Reason"), "job_requeued_in_held_state");
    let account = site.must("root", &["sacct", "-nDXP", "-j", &job.to_string(), "-o", "State"]);
    assert!(!account.contains("TIMEOUT"), "{account}");
    site.must("root", &["scontrol", "delete", "reservation=soon"]);
    let steps = site.diary(job).last_step();
    site.start();
    site.until("it to train on", 120.0, || site.diary(job).last_step() > steps + 5);
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    site.completes(job);
}

#[test]
fn commands_beside_and_after_infill_run_hold_no_node() {
    let site = Site::acting();
    let job = Train::on("1-4")
        .before("sleep 300 & (trap '' TERM; sleep 301) &")
        .after("echo over; sleep 60; echo rest")
        .submit(&site);
    site.until_trains_on(job, 4, 30.0);
    let main = site.main_job(1, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains_on(job, 4, 60.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 1), "{:?}", site.diary(job).lost());
    // Now the script is idle, and no step of infill runs any more.
    site.finish(job);
    let output = || std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    site.until("the script to go on", 20.0, || output().contains("\nover\n"));
    let since = clock();
    site.until("some time to go by", 10.0, || clock() - since > 4.0);
    let main = site.main_job(1, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until("the job to be back in the queue", 20.0, || {
        site.queued(job).is_some_and(|j| j.state == "PENDING" || j.state == "RUNNING")
    });
    assert!(!output().contains("rest"), "{}", output());
    site.must("root", &["scancel", &job.to_string()]);
    site.until("the sentry to be gone", 20.0, || {
        !site.processes().iter().any(|p| p.args.iter().any(|a| a == "sentry"))
    });
}

#[test]
fn a_sentry_makes_no_job_longer() {
    let site = Site::acting();
    let job = Train::on("1").flags("--steps 5").after("sleep 3; date +%s.%N >/scratch/over").submit(&site);
    assert_eq!(site.end_of(job, 60.0), "COMPLETED 0:0");
    let over: f64 = std::fs::read_to_string(site.scratch().join("over")).unwrap().trim().parse().unwrap();
    let ended = clock();
    eprintln!("the job was over {:.2} s after its script", ended - over);
    assert!(ended - over < 3.0, "{:.2} s", ended - over);
    site.until("the sentry to be gone", 10.0, || {
        !site.processes().iter().any(|p| p.args.iter().any(|a| a == "sentry"))
    });
}

/// Nodes for wings, drained until the lead's directory is gone.
const WINGS_NODES: &str = "n[2-8]";

/// Submits a job whose script changes to a directory of the lead, which its wings will not find. On a real
/// site they do not see other nodes' disks; here it is gone before they come. `before`: lines for the script.
fn submit_in_own_directory(site: &Site, train: Train, before: &str) -> u32 {
    site.must("alice", &["mkdir", "-p", "/tmp/own", "/tmp/out"]);
    let nodes = format!("node={WINGS_NODES}");
    site.must("root", &["scontrol", "update", &nodes, "state=drain", "reason=later"]);
    let script = format!("mkdir -p /tmp/own/$SLURM_JOB_ID; cd /tmp/own/$SLURM_JOB_ID\n{before}");
    let job = train.before(&script).submit(site);
    site.until("the lead to train", 60.0, || site.diary(job).last_step() > 0);
    site.must("alice", &["rm", "-r", &format!("/tmp/own/{job}"), "/tmp/out"]);
    site.must("root", &["scontrol", "update", &nodes, "state=resume"]);
    job
}

#[test]
fn wings_without_the_leads_directory_and_output_train_where_they_can() {
    let site = Site::acting();
    let job = submit_in_own_directory(&site, Train::on("1-4").option("--output=/tmp/out/%j.out"), "");
    site.until_trains_on(job, 4, 40.0);
    site.completes(job);
}

#[test]
fn wings_that_need_the_leads_directory_are_the_jobs_fault() {
    let site = Site::acting();
    // The command's first word names a file in that directory.
    let job = submit_in_own_directory(&site, Train::on("1-4"), "touch python3");
    let said = || site.logged(&["nothing can be started there", "/tmp/own"]).len();
    site.until("the daemon to know why", 40.0, || said() > 0);
    let steps = site.diary(job).last_step();
    site.until("the lead to train on", 40.0, || site.diary(job).last_step() > steps + 100);
    let wings =
        site.run("root", &["sacct", "-nXP", "-u", "alice", "--name", &format!("wing:{job}"), "-o", "JobID"]);
    let count = wings.lines().count();
    eprintln!("{count} wings came to nothing in 20 s");
    assert!(count <= 15, "{count} wings in 20 s");
    assert_eq!(site.logged(&["is left alone"]).len(), 0, "a node got the blame");
    // All nodes are available to others.
    let other = Train::on("1-7").user("bob").submit(&site);
    site.until_trains_on(other, 7, 40.0);
    site.completes(other);
    site.completes(job);
}

#[test]
fn jobs_train_on_a_site_without_munge() {
    let site = Site::on(&Slurm::default().nodes(2).without_munge(), |settings| settings);
    let job = Train::on("1-2").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    site.completes(job);
}

#[test]
fn a_preemption_that_comes_as_the_users_own_signal() {
    let slurm = Slurm::default().nodes(2).set("PreemptParameters=youngest_first,send_user_signal");
    let site = Site::on(&slurm, |settings| settings);
    let job = Train::on("1-2").option("--signal=USR2@10").submit(&site);
    site.until_trains_on(job, 2, 40.0);
    let main = site.main_job(1, &["--nodes=2"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains_on(job, 2, 60.0);
    // The signal ends a command that does not handle it. So only its own last checkpoint is left.
    assert!(site.diary(job).lost().iter().all(|lost| *lost <= 10), "{:?}", site.diary(job).lost());
    site.completes(job);
}
