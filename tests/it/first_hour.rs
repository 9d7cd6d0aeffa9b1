//! A stranger's first hour: a cluster that knows nothing of infill, observed by an ordinary user, then led to
//! malleable jobs on two canary nodes by `infill doctor --plan` alone, and back.

use std::process::Stdio;

use crate::harness::{Site, Slurm};

/// Seconds for which the plan is followed at most; it takes a tenth.
const LIMIT_SECS: &str = "300";

/// A job_submit.lua of a site's own.
const SITE_PLUGIN: &str = "\
function slurm_job_submit(job, partitions, uid)
   if job.comment == 'forbidden' then
      slurm.log_user('the site says no')
      return slurm.ERROR
   end
   return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
return slurm.SUCCESS
";

/// Follows the plan with these decisions and takes it back. Returns what was printed.
fn follow_and_undo(site: &Site, choices: &[&str]) -> String {
    let program = ["timeout", LIMIT_SECS, "python3", "/opt/infill/examples/first_hour.py", "--observe", "10", "--"];
    let words: Vec<&str> = program.into_iter().chain(choices.iter().copied()).collect();
    let mut command = site.cluster().command("root", &words);
    let done = command.stdin(Stdio::null()).output().expect("nsenter can be run");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("malleable jobs on ['n1', 'n2']"), "{said}");
    assert!(said.contains("the site is as before"), "{said}");
    said
}

#[test]
fn a_stranger_observes_then_acts_on_two_nodes_by_the_plan_alone_and_goes_back() {
    let site = Site::bare_on(&Slurm::default().untouched());
    let as_user = site.must("alice", &["infill", "doctor", "--plan"]);
    assert!(as_user.contains("0 of 11 steps done"), "{as_user}");
    follow_and_undo(&site, &[]);
}

#[test]
fn a_site_with_a_plugin_accounts_and_preemption_of_its_own_keeps_them() {
    // A main job reaches this limit only if malleable jobs do not count in it.
    let slurm = Slurm::default()
        .untouched()
        .file("job_submit.lua", SITE_PLUGIN)
        .set("JobSubmitPlugins=lua")
        .set("PreemptMode=CANCEL")
        .set("PreemptType=preempt/partition_prio")
        .set("PartitionName=main PreemptMode=OFF")
        .sacctmgr("modify account research set GrpTRES=node=8");
    let site = Site::bare_on(&slurm);
    let text = site.must("root", &["infill", "doctor", "--plan"]);
    assert!(text.contains("account research: GrpTRES=node=8"), "{text}");
    follow_and_undo(&site, &["--own-account", "harvest"]);
    // The site's own rule held all along, and holds again.
    let refused = site.exec("alice", &["sbatch", "--comment=forbidden", "--wrap", "true"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the site says no"), "{refused:?}");
}
