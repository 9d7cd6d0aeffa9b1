//! job_submit.lua on the real slurmctld: the result of each kind of submission.

use crate::harness::{Site, Slurm};

/// A job that only waits.
const SCRIPT: &str = "sleep 1000";

fn submit(site: &Site, options: &[&str]) -> Result<u32, String> {
    let options: Vec<&str> = ["-p", "infill"].iter().chain(options).copied().collect();
    site.try_sbatch("alice", &options, SCRIPT)
}

#[track_caller]
fn check_lead(site: &Site, options: &[&str], comment: &str) {
    let id = submit(site, options).unwrap_or_else(|e| panic!("{options:?} was refused: {e}"));
    let job = site.job(id);
    let field = |key: &str| job.get(key).map_or("", String::as_str);
    assert_eq!(field("AdminComment"), comment, "{options:?}");
    assert_eq!(
        [field("JobState"), field("Reason"), field("NumNodes"), field("Requeue"), field("QOS")],
        ["PENDING", "JobHeldUser", "1-1", "1", "infill"],
        "{options:?}"
    );
}

#[track_caller]
fn check_refused(site: &Site, options: &[&str], words: &str) {
    let said = submit(site, options).expect_err(&format!("{options:?} was accepted"));
    assert!(said.contains("infill: ") && said.contains(words), "{options:?}: {said}");
}

#[test]
fn sizes_become_one_held_node_and_a_comment() {
    let site = Site::bare();
    check_lead(&site, &["--nodes=2-8"], "infill:nodes=2-8");
    check_lead(&site, &["--nodes=4"], "infill:nodes=4");
    check_lead(&site, &["--nodes=3-3"], "infill:nodes=3");
    check_lead(&site, &[], "infill:nodes=1");
    check_lead(&site, &["--comment=infill:nodes=8,1,2,4,2"], "infill:nodes=1,2,4,8");
    check_lead(
        &site,
        &["--nodes=1-8", "--comment=infill:nodes=2-6;profile=resnet"],
        "infill:nodes=2-6;profile=resnet",
    );
    check_lead(&site, &["--nodes=1-2", "--comment=mine"], "infill:nodes=1-2");
    check_lead(&site, &["--nodes=1-2", "--time=1:30:00"], "infill:nodes=1-2;time=90");
    check_lead(&site, &["--nodes=1-2", "--time=UNLIMITED"], "infill:nodes=1-2");
    check_lead(&site, &["--nodes=1-2", "--hold", "--time=5"], "infill:nodes=1-2;time=5;held=owner");
    check_lead(&site, &["--nodes=2-8", "--ntasks-per-node=2", "--cpus-per-task=1"], "infill:nodes=2-8");
    check_lead(&site, &["--nodes=2-8", "--array=0-9%3"], "infill:nodes=2-8");
}

#[test]
fn invalid_requests_are_refused_with_advice() {
    let site = Site::bare();
    check_refused(&site, &["--nodes=1-99999"], "sizes are 1 to 10000");
    check_refused(&site, &["--comment=infill:nodes=8-2"], "the first is larger");
    check_refused(&site, &["--comment=infill:nodes=0"], "sizes are 1 to 10000");
    check_refused(&site, &["--comment=infill:nodes=1,x"], "bad number of nodes 'x'");
    check_refused(&site, &["--comment=infill:nodes=99999999999999999999"], "sizes are 1 to 10000");
    check_refused(&site, &["--comment=infill:wing=1"], "cannot read");
    check_refused(&site, &["--comment=infill:rm -rf /"], "cannot read");
    check_refused(&site, &["--comment=infill:50%d"], "cannot read '50%d'");
    let long = format!("--comment=infill:{}", "a=b;".repeat(200));
    check_refused(&site, &[&long], "longer than");
    check_refused(&site, &["--array=1-4", "--hold"], "leave out --hold");
    check_refused(&site, &["--array=1-4", "-J", "wing:77", "--nodelist=n1"], "cannot be a job array");
    check_refused(&site, &["--nodelist=n3"], "leave out --nodelist");
    check_refused(&site, &["--reservation=course"], "leave out --reservation");
    check_refused(&site, &["--ntasks=16"], "--ntasks-per-node");
    let two =
        site.try_sbatch("alice", &["-p", "main,infill"], SCRIPT).expect_err("two partitions were accepted");
    assert!(two.contains("name only the partition infill"), "{two}");
    let srun = site.exec("alice", &["srun", "-p", "infill", "-N1", "true"]);
    assert!(String::from_utf8_lossy(&srun.stderr).contains("only batch jobs here"), "{srun:?}");
    assert!(site.queue().is_empty(), "something was accepted: {:?}", site.queue());
}

#[test]
fn wings_pass_unheld_and_others_gain_nothing_by_their_name() {
    let site = Site::bare();
    let wing = submit(&site, &["-J", "wing:77", "--nodes=2", "--nodelist=n3,n4"]).unwrap();
    site.until("the wing to run", 20.0, || site.queued(wing).is_some_and(|j| j.runs()));
    assert_eq!(site.queued(wing).unwrap().nodes, ["n3", "n4"]);
    assert_eq!(site.field(wing, "AdminComment"), "infill:wing=77");
    assert_eq!(site.field(wing, "Requeue"), "0");
    check_refused(&site, &["-J", "wing:77"], "a wing needs --nodelist");
    check_lead(&site, &["-J", "wing:x"], "infill:nodes=1");
    // It is preemptible like all here: a main job takes its nodes.
    let main = site.main_job(60, &["--nodes=8"]);
    site.until("the forged wing to make way", 60.0, || site.started_at(main).is_some());
}

#[test]
fn other_partitions_are_untouched() {
    let site = Site::bare();
    let id = site.sbatch("alice", &["-p", "main", "--nodes=2-4", "--comment=infill:nodes=1-2"], SCRIPT);
    site.until("the main job to run", 20.0, || site.queued(id).is_some_and(|j| j.runs()));
    let job = site.job(id);
    assert_eq!(job.get("AdminComment"), None);
    assert_eq!(job["NumNodes"], "4");
    let array = site.sbatch("alice", &["-p", "main", "--array=1-2", "-N1"], SCRIPT);
    site.until("the main array to run", 20.0, || site.queued(array).is_some_and(|j| j.runs()));
}

#[test]
fn owners_cannot_change_what_infill_relies_on() {
    let site = Site::bare();
    let id = submit(&site, &["--nodes=1-4"]).unwrap().to_string();
    let update = |user: &str, job: &str, change: &str| {
        let output = site.exec(user, &["scontrol", "update", &format!("JobId={job}"), change]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for change in ["AdminComment=infill:nodes=8", "NumNodes=8", "MinNodes=2-8"] {
        let (done, said) = update("alice", &id, change);
        assert!(!done, "{change} was accepted: {said}");
    }
    assert!(update("alice", &id, "Name=other").0, "a name is the owner's own");
    let main = site.sbatch("alice", &["-p", "main", "--hold", "-N1"], SCRIPT).to_string();
    let (done, said) = update("alice", &main, "Partition=infill");
    assert!(!done && said.contains("cannot move into this partition"), "{said}");
    assert_eq!(site.field(id.parse().unwrap(), "AdminComment"), "infill:nodes=1-4");
}

#[test]
fn an_error_in_the_plugin_refuses_no_main_job() {
    let plugin = include_str!("../../slurm/job_submit.lua");
    let broken = |function: &str| {
        let head = format!("local function {function}\n");
        assert_eq!(plugin.matches(&head).count(), 1, "the plug-in has no {function}");
        plugin.replace(&head, &format!("{head}   error('planted')\n"))
    };
    // The first one is called for every job, the second one only for malleable jobs.
    for function in ["names_partition(list)", "make_lead(job)"] {
        let site = Site::bare_on(&Slurm::default().file("job_submit.lua", &broken(function)));
        let main = site.try_sbatch("alice", &["-p", "main", "-N1"], SCRIPT).expect("a main job is accepted");
        let renamed = site.exec("alice", &["scontrol", "update", &format!("JobId={main}"), "Name=other"]);
        assert!(renamed.status.success(), "{renamed:?}");
        let said =
            submit(&site, &["--nodes=1-4"]).expect_err("a malleable job was accepted without its sizes");
        assert!(said.contains("infill: ") && said.contains("slurmctld's log"), "{function}: {said}");
        let log = std::fs::read_to_string(site.cluster().dir.join("log/slurmctld.log")).expect("a log");
        assert!(log.contains("planted"), "{function}: slurmctld's log does not say why");
    }
}
