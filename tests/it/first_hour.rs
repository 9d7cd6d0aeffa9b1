//! A stranger's first hour: a cluster that knows nothing of infill, observed by an ordinary user, then led to
//! malleable jobs on two canary nodes by `infill doctor --plan` alone, and back.
//!
//! | variable | default | what it does |
//! |---|---|---|
//! | `INFILL_ANSIBLE` | | a folder with ansible-core for the cluster's Python; else the role is skipped |

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

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
    let program =
        ["timeout", LIMIT_SECS, "python3", "/opt/infill/examples/first_hour.py", "--observe", "10", "--"];
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

/// The cluster is one machine with all roles. `other` is the same machine, as a host with nodes alone.
const INVENTORY: &str = "\
[slurm_controller]
minicluster ansible_connection=local
[infill_daemon]
minicluster
[slurm_nodes]
other ansible_connection=local
[slurm:children]
slurm_controller
infill_daemon
slurm_nodes
";

/// Folders of programs: all, all but that of infill, and first one that stands for it.
const ALL_PROGRAMS: &str = "PATH=/usr/local/bin:/usr/bin:/usr/sbin";
const WITHOUT_INFILL: &str = "PATH=/usr/bin:/usr/sbin";
const STAND_IN_FIRST: &str = "PATH=/scratch/stand-in:/usr/bin:/usr/sbin";

/// An infill that cannot read what Slurm has.
const UNREAD: &str =
    r#"case "$*" in *--plan*) echo '{"steps": [{"id": "qos", "state": "unknown"}]}' ;; esac"#;

/// Copies Ansible into the cluster; false if there is none.
fn bring_ansible(site: &Site) -> bool {
    let Some(folder) = std::env::var_os("INFILL_ANSIBLE").map(PathBuf::from).filter(|f| f.is_dir()) else {
        return false;
    };
    let copied = Command::new("cp").arg("-r").arg(&folder).arg(site.scratch().join("ansible")).status();
    assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", folder.display());
    std::fs::write(site.scratch().join("inventory.ini"), INVENTORY).expect("an inventory");
    true
}

/// Runs `ansible-playbook` with these words, and returns its output. It must succeed.
fn play(site: &Site, path: &str, words: &[&str]) -> String {
    let done = try_play(site, path, words);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    said
}

fn try_play(site: &Site, path: &str, words: &[&str]) -> Output {
    let environment = [
        "timeout",
        LIMIT_SECS,
        "env",
        "--chdir=/opt/infill/contrib/ansible",
        path,
        "PYTHONPATH=/scratch/ansible",
        "PYTHONDONTWRITEBYTECODE=1",
        "ANSIBLE_HOME=/scratch/ansible-home",
        "python3",
        "-m",
        "ansible",
        "playbook",
        // Both hosts are one machine.
        "--forks=1",
        "-i",
        "/scratch/inventory.ini",
        "site.yml",
        "-e",
        "infill_uid=980",
        "-e",
        "infill_canary=n[1-2]",
    ];
    let words: Vec<&str> = environment.into_iter().chain(words.iter().copied()).collect();
    site.cluster().command("root", &words).stdin(Stdio::null()).output().expect("nsenter can be run")
}

#[test]
fn the_ansible_role_makes_a_site_and_then_changes_nothing() {
    let site = Site::bare_on(&Slurm::default().untouched());
    if !bring_ansible(&site) {
        return infill_testkit::skips::skip_test("ansible-core (INFILL_ANSIBLE)");
    }
    play(&site, ALL_PROGRAMS, &["--syntax-check"]);
    // Looking changes nothing, whether infill is there or not.
    let fresh = play(&site, WITHOUT_INFILL, &["--check"]);
    assert!(!fresh.contains("Ask what Slurm lacks"), "{fresh}");
    let looked = play(&site, ALL_PROGRAMS, &["--check"]);
    assert!(looked.contains("Ask what Slurm lacks"), "{looked}");
    let plan = site.must("root", &["infill", "doctor", "--plan"]);
    assert!(plan.contains("0 of 11 steps done"), "{plan}");
    refuses_what_it_cannot_read(&site);
    acts_on_the_plans_first_nodes_without_a_choice(&site);
    let first = play(&site, ALL_PROGRAMS, &[]);
    assert!(first.contains("RUNNING HANDLER [infill : Reconfigure Slurm]"), "{first}");
    let config = site.must("root", &["cat", "/etc/infill/infill.toml"]);
    assert!(config.contains("nodes = \"n[1-2]\"") && config.contains("mode = \"observe\""), "{config}");
    let plan = site.must("root", &["infill", "doctor", "--plan"]);
    // The services need systemd, so the plan goes on from there.
    assert!(plan.contains("8 of 11 steps done"), "{plan}");
    let second = play(&site, ALL_PROGRAMS, &[]);
    assert_eq!(second.matches("changed=0").count(), 2, "{second}");
}

/// What infill.toml would say, by `--check`.
fn acts_on_the_plans_first_nodes_without_a_choice(site: &Site) {
    let would_write = |canary: &str| {
        let canary = format!("infill_canary={canary}");
        play(site, ALL_PROGRAMS, &["--check", "--diff", "-e", "infill_mode=act", "-e", &canary])
    };
    let said = would_write("");
    assert!(said.contains("+mode = \"act\"") && said.contains("+nodes = \"n[1-2]\""), "{said}");
    let said = would_write("all");
    assert!(said.contains("+mode = \"act\"") && said.contains("+nodes = \"\""), "{said}");
}

fn refuses_what_it_cannot_read(site: &Site) {
    let folder = site.scratch().join("stand-in");
    std::fs::create_dir(&folder).expect("a folder");
    infill_testkit::write_script(folder.join("infill"), UNREAD);
    let done = try_play(site, STAND_IN_FIRST, &["--check"]);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(!done.status.success() && said.contains("cannot read the state of qos"), "{said}");
}
