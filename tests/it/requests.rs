//! Requests that users make with sbatch, and unusual names of users.

use crate::harness::jobs::clock;
use crate::harness::{Site, Slurm, Train};

#[test]
fn a_name_that_is_not_text_does_not_blind_the_daemon() {
    let site = Site::acting();
    let odd = r"sbatch --parsable --hold -p main -o /dev/null --job-name=$'caf\xe9' --comment=$'\xff\xc3(' \
                --wrap true";
    let odd: u32 = site.must("bob", &["bash", "-c", odd]).trim().parse().expect("a job id");
    let job = Train::on("1-4").option("--job-name=na\u{ef}ve").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    let status = site.status().expect("a status");
    assert!(status.problems.is_empty(), "{:?}", status.problems);
    assert!(site.logged(&["does not answer"]).is_empty());
    site.must("root", &["scancel", &odd.to_string()]);
    // The daemon must also know that the job has ended.
    site.must("alice", &["scancel", &job.to_string()]);
    site.until("the daemon to see that the job is gone", 15.0, || {
        site.view(job).is_none_or(|v| v.state == infill_model::MalleableState::Ended)
    });
}

/// Nodes that the daemon counts for this job, in any round since its submission.
fn takes_nothing(site: &Site, job: u32, why: &str) {
    let why = why.to_owned();
    site.until(&format!("the daemon to say {why:?}"), 15.0, || {
        site.view(job).is_some_and(|v| v.why.contains(&why))
    });
    for _ in 0..4 {
        site.rounds_go_by(1);
        let view = site.view(job).expect("the job");
        assert!(view.nodes.is_empty() && view.why.contains(&why), "{view:?}");
    }
    assert!(site.logged(&["did Launch", &format!("job={job}")]).is_empty(), "it was launched");
}

#[test]
fn constraints_and_exclusions_are_obeyed_by_leads_and_wings() {
    let site = Site::on(&Slurm::default().set("NodeName=n[5-7] Features=big,r1"), |s| s);
    let job = Train::on("1-8").option("--constraint=big").option("--exclude=n6").submit(&site);
    let view = site.until_trains_on(job, 2, 30.0);
    site.rounds_go_by(4);
    assert_eq!(site.nodes_of(job), ["n5", "n7"], "{view:?}");
    let wing = site.parts(job).into_iter().find(|j| j.lead().is_some()).expect("a wing");
    assert_eq!(site.field(wing.id, "Features"), "big");
    assert_eq!(site.field(wing.id, "ExcNodeList"), "n6");
    let none = Train::on("1-4").option("--constraint=big").option("--exclude=n[5-7]").submit(&site);
    takes_nothing(&site, none, "no node of the partition has that");
    site.completes(job);
}

#[test]
fn a_job_that_must_not_start_takes_nothing_from_the_first_round() {
    let site = Site::acting();
    let first = site.sbatch("alice", &["-p", "main", "--hold", "-N1"], "true");
    let after = format!("--dependency=afterok:{first}");
    let job = Train::on("1-8").option(after.leak()).submit(&site);
    takes_nothing(&site, job, "waits for its dependency afterok");
    site.must("root", &["scontrol", "release", &first.to_string()]);
    site.until_trains_on(job, 8, 40.0);
    site.completes(job);

    let job = Train::on("1-8").option("--begin=now+25").submit(&site);
    let submitted = clock();
    takes_nothing(&site, job, "must not begin for another");
    site.until_trains_on(job, 8, 60.0);
    let began = site.diary(job).all("start")[0].at - submitted;
    assert!(began >= 24.0, "it began after {began} s");
    site.completes(job);

    let job = Train::on("1-8").option("--hold").submit(&site);
    takes_nothing(&site, job, "is held by its owner");
    site.must("alice", &["scontrol", "release", &job.to_string()]);
    site.until_trains_on(job, 8, 40.0);
    site.completes(job);
}

#[test]
fn a_hold_by_a_person_is_never_undone() {
    let site = Site::acting();
    // The job cannot start. It waits, released, for a node that is not free for it.
    let main = site.main_job(600, &["--nodes=8"]);
    site.starts_within(main, 20.0);
    let job = Train::on("1-8").submit(&site);
    site.until("the job to be known", 15.0, || site.view(job).is_some());
    site.must("root", &["scontrol", "hold", &job.to_string()]);
    site.must("root", &["scancel", &main.id.to_string()]);
    takes_nothing(&site, job, "is held by an administrator");
    site.kill_daemon();
    site.start();
    takes_nothing(&site, job, "is held by an administrator");
    site.must("root", &["scontrol", "release", &job.to_string()]);
    site.until_trains_on(job, 8, 40.0);
    // For a running job the limit counts as soon as it has to wait.
    site.must("root", &["scontrol", "hold", &job.to_string()]);
    site.rounds_go_by(2);
    site.must("root", &["scontrol", "requeue", &job.to_string()]);
    site.until("the job to be held", 30.0, || {
        site.view(job).is_some_and(|v| v.nodes.is_empty() && v.why.contains("held by an administrator"))
    });
    site.rounds_go_by(8);
    assert_eq!(site.field(job, "Reason"), "JobHeldAdmin");
    site.must("root", &["scontrol", "release", &job.to_string()]);
    site.until_trains_on(job, 8, 60.0);
    site.completes(job);
}

#[test]
fn a_suspended_lead_keeps_its_nodes_and_goes_on() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    let before = site.until_trains_on(job, 4, 30.0);
    site.must("root", &["scontrol", "suspend", &job.to_string()]);
    site.until("the job to be suspended", 10.0, || site.field(job, "JobState") == "SUSPENDED");
    // Longer than an agent may be silent.
    let since = clock();
    site.until("a minute to pass", 90.0, || clock() - since > 70.0);
    let view = site.view(job).expect("the job");
    assert_eq!((view.generation, view.nodes.len()), (before.generation, 4), "{view:?}");
    assert_eq!(site.field(job, "Restarts"), "0", "it was requeued");
    site.must("root", &["scontrol", "resume", &job.to_string()]);
    site.until_trains(job, 20, 30.0);
    assert_eq!(site.view(job).map(|v| v.generation), Some(before.generation));
    site.completes(job);
}

#[test]
fn the_users_own_time_limit_and_limits_of_the_qos_hold() {
    let site = Site::on(&Slurm::default().sacctmgr("modify qos infill set MaxJobsPerUser=1"), |s| s);
    let job = Train::on("1").option("--time=2").submit(&site);
    site.until_trains_on(job, 1, 30.0);
    site.rounds_go_by(4);
    assert_eq!(site.field(job, "TimeLimit"), "00:02:00");
    // The user may have one job, and has it.
    let second = Train::on("1-8").submit(&site);
    site.until("Slurm's reason to be shown", 30.0, || {
        site.view(second).is_some_and(|v| v.why.contains("Slurm says QOSMaxJobsPerUserLimit"))
    });
    site.until("its nodes to be another's", 30.0, || site.view(second).is_some_and(|v| v.nodes.is_empty()));
    let tries = site.logged(&["did Launch", &format!("job={second}")]).len();
    assert!(tries <= 3, "{tries} tries");
    site.completes(job);
}

#[test]
fn a_daemon_that_may_not_see_jobs_any_more_forgets_none() {
    let site = Site::on(&Slurm::default().set("PrivateData=jobs"), |s| s);
    let job = Train::on("1-4").submit(&site);
    // Readers without a proof see no job here, so the job itself reports its state.
    let trains = || site.nodes_of(job).len() == 4 && site.diary(job).worlds().last() == Some(&4);
    site.until("the job to train on 4 nodes", 40.0, trains);
    let generations = site.diary(job).worlds().len();
    let level = |level: &str| {
        let level = format!("adminlevel={level}");
        site.must("root", &["sacctmgr", "-i", "modify", "user", "infill", "set", &level]);
    };
    let problem = || site.status().map(|s| s.problems.iter().any(|p| p.contains("still an Operator")));
    level("None");
    site.until("the daemon to say what is wrong", 30.0, || problem() == Some(true));
    site.until_trains(job, 40, 60.0);
    assert!(site.logged(&["the lead has ended"]).is_empty(), "it was forgotten");
    level("Operator");
    site.until("all to be well", 30.0, || problem() == Some(false));
    site.until_trains(job, 10, 30.0);
    assert_eq!((site.diary(job).worlds().len(), site.nodes_of(job).len()), (generations, 4));
    site.completes(job);
}
