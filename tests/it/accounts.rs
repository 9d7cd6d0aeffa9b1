//! Malleable jobs count neither in their users' fair share nor, in a separate account, in any limit of main
//! jobs. And the owner of a job learns what keeps wings from it.

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Slurm, Train};

const PLUGIN: &str = include_str!("../../slurm/job_submit.lua");

/// Seconds of a user's usage that fair share counts, in all accounts.
fn usage(site: &Site, user: &str) -> u64 {
    let text = site.must("root", &["sshare", "-a", "-h", "-P", "-o", "user,rawusage"]);
    let of_user = text.lines().filter_map(|l| l.split_once('|')).filter(|(name, _)| name.trim() == user);
    of_user.filter_map(|(_, secs)| secs.parse::<u64>().ok()).sum()
}

#[test]
fn harvested_time_counts_in_no_share_and_in_no_limit_of_main_jobs() {
    let plugin = PLUGIN.replace("local ACCOUNT = nil", "local ACCOUNT = \"harvest\"");
    assert_ne!(plugin, PLUGIN, "the plug-in's constant has another form");
    let slurm = Slurm::default()
        .file("job_submit.lua", &plugin)
        .set("PriorityCalcPeriod=1")
        .sacctmgr("modify account research set GrpTRES=node=4")
        .sacctmgr("modify user alice set MaxJobs=2 MaxSubmitJobs=3");
    let site = Site::bare_on(&slurm);
    let accounting =
        "/opt/infill/slurm/accounting.sh --main-qos main --account research --own-account harvest";
    let words: Vec<&str> = ["bash"].into_iter().chain(accounting.split(' ')).collect();
    site.must("root", &words);
    let most =
        |site: &Site| site.must("root", &["sacctmgr", "-nP", "show", "qos", "infill", "format=MaxSubmitPU"]);
    assert_eq!(most(&site).trim(), "10000");
    site.must("root", &[words.as_slice(), &["--max-submit", "50"]].concat());
    assert_eq!(most(&site).trim(), "50");
    site.configure(&crate::harness::Settings::quick(site.port()));
    site.start();
    let job = Train::on("1-6").submit(&site);
    site.until_trains_on(job, 6, 40.0);
    let doctor = site.must("infill", &["infill", "doctor"]);
    assert!(
        doctor.contains("no limit of an account or a user counts malleable and main jobs together"),
        "{doctor}"
    );
    assert!(doctor.contains("slurmctld runs infill's job_submit plug-in"), "{doctor}");
    let main = site.main_job(120, &["--nodes=4"]);
    site.starts_within(main, PROMPTLY_SECS);
    // Usage is counted each minute: bob's main job shows in it when that has happened.
    site.until("slurmctld to count", 130.0, || usage(&site, "bob") > 0);
    assert_eq!(usage(&site, "alice"), 0, "harvested time is free");
    site.completes(job);
}

#[test]
fn without_a_separate_account_doctor_and_explain_name_the_limits() {
    let slurm = Slurm::default().nodes(4).sacctmgr("modify account research set GrpTRES=node=2");
    let site = Site::on(&slurm, |settings| settings);
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    let id = job.to_string();
    let said = "short of nodes: Slurm keeps its wings waiting: AssocGrpNodeLimit";
    site.until("the owner to learn the reason", 60.0, || {
        site.run("alice", &["infill", "explain", &id]).contains(said)
    });
    let doctor = site.run("infill", &["infill", "doctor"]);
    assert!(doctor.contains("account research: 2 of GrpTRES=node 2 in use, 0 left"), "{doctor}");
    // A wing that waits in vain is given up, and asked for more and more rarely. Five times in two minutes
    // would be a loop.
    let given_up = |site: &Site| site.logged(&["did not come up in time"]).len();
    site.until("the first wing to be given up", 60.0, || given_up(&site) >= 1);
    let begun = given_up(&site);
    site.rounds_go_by(20);
    assert!(given_up(&site) - begun <= 4, "{:#?}", site.logged(&["did not come up in time"]));
    site.completes(job);
}

#[test]
fn a_refusal_of_the_sites_own_plugin_is_shown_to_the_owner() {
    let own = r#"
        dofile("/etc/slurm/infill.lua")
        local infill_submit = slurm_job_submit
        function slurm_job_submit(job, partitions, uid)
           local rc = infill_submit(job, partitions, uid)
           if rc ~= slurm.SUCCESS then return rc end
           if string.match(job.name or "", "^wing:") then
              slurm.log_user("every job needs a project")
              return slurm.ERROR
           end
           return slurm.SUCCESS
        end
    "#;
    let site = Site::on(&Slurm::default().nodes(3).file("job_submit.lua", own), |settings| settings);
    let job = Train::on("1-3").submit(&site);
    site.until_trains_on(job, 1, 60.0);
    let id = job.to_string();
    let explanation = || site.run("alice", &["infill", "explain", &id]);
    site.until("the owner to learn the reason", 60.0, || {
        explanation().contains("short of nodes: sbatch refuses its wings: ")
            && explanation().contains("every job needs a project")
    });
    site.rounds_go_by(20);
    // 2, 4, 8 and then every 10 s, for two nodes: not each round.
    let refused = site.logged(&["sbatch refused a wing"]).len();
    assert!(refused <= 12, "it asks again and again: {refused}");
    site.completes(job);
}

#[test]
fn accounts_change_on_one_cluster_only() {
    let site = Site::bare_on(
        &Slurm::default()
            .nodes(4)
            .sacctmgr("add cluster other")
            .sacctmgr("add account research cluster=other Description=x Organization=x")
            .sacctmgr("modify account research cluster=other set qos=main defaultqos=main")
            .sacctmgr("add user alice cluster=other account=research"),
    );
    let on_other = || {
        let words =
            ["sacctmgr", "-nP", "show", "assoc", "cluster=other", "format=account,user,qos,defaultqos"];
        site.must("root", &words)
    };
    let before = on_other();
    assert!(before.contains("research|alice|"), "{before}");
    let change = |more: &str| {
        let words = format!(
            "bash /opt/infill/slurm/accounting.sh --main-qos main --account research --own-account harvest {more}"
        );
        site.must("root", &words.split_whitespace().collect::<Vec<_>>())
    };
    change("");
    assert_eq!(on_other(), before);
    let here = ["sacctmgr", "-nP", "show", "assoc", "cluster=minicluster", "account=harvest", "format=user"];
    assert!(site.must("root", &here).contains("alice"));
    // An association on the other cluster stays there when it is taken back here.
    change("--cluster other");
    assert!(on_other().contains("harvest|alice|infill|infill"), "{}", on_other());
    change("--undo");
    assert_eq!(site.must("root", &here), "");
    assert!(on_other().contains("harvest|alice|infill|infill"), "{}", on_other());
    assert!(site.must("root", &["sacctmgr", "-nP", "show", "qos", "format=name"]).contains("infill"));
    change("--undo --cluster other");
    assert_eq!(on_other(), before);
    assert!(!site.must("root", &["sacctmgr", "-nP", "show", "qos", "format=name"]).contains("infill"));
}
