//! Sites on which a plan could do harm: nodes that fail, other clusters, files of the site, older versions.

use super::choices::{DeployChoices, PreemptChoice, ShareChoice};
use super::facts::{SiteFacts, parse_accounts};
use super::plugin::installed_choices;
use super::render::render_undo;
use super::step::StepState;
use super::tests::{big_site, choices, lines, step};
use super::{all_steps, plugin_text, wrapper_text};
use crate::doctor::site::accounting::parse_qos;
use crate::doctor::site::partition::parse_partitions;
use crate::doctor::site::slurm_conf::SlurmConf;
use infill_model::DaemonMode;

const SUBMIT: &str = "/etc/slurm/job_submit.lua";
const LIBRARY: &str = "/etc/slurm/infill.lua";

/// A site on which infill acts on all nodes.
fn wide_site() -> SiteFacts {
    let mut site = big_site();
    site.daemon.text =
        Some("[daemon]\nlisten = \"0.0.0.0:6810\"\nmode = \"act\"\n[safety]\nnodes = \"\"\n".to_owned());
    site.daemon.config.daemon.mode = DaemonMode::Act;
    site.daemon.config.daemon.listen = "0.0.0.0:6810".to_owned();
    site.daemon.config.agent.url = "http://ctl:6810".to_owned();
    site.daemon.mode = Some(DaemonMode::Act);
    site
}

fn with_canary(canary: String) -> DeployChoices {
    DeployChoices { canary, ..choices() }
}

fn put(site: &mut SiteFacts, path: &str, text: &str) {
    site.files.texts.insert(path.to_owned(), text.to_owned());
}

#[test]
fn a_pilot_that_is_over_is_not_begun_again() {
    let site = wide_site();
    let usual = with_canary(site.usual_canary());
    let config = step(&site, &usual, "config");
    assert_eq!(config.state, StepState::Done, "{config:?}");
    assert_eq!(step(&site, &usual, "widen").state, StepState::Done);
    let narrowed = step(&site, &choices(), "config");
    assert_eq!(narrowed.state, StepState::Open, "--canary narrows it");
    assert!(lines(&narrowed.commands).contains(r#"nodes = "gpu[1-2]""#), "{narrowed:?}");
}

#[test]
fn without_a_node_that_works_somebody_must_choose() {
    let mut site = big_site();
    site.nodes.first.clear();
    let usual = with_canary(site.usual_canary());
    for id in ["config", "act"] {
        let step = step(&site, &usual, id);
        assert_eq!(step.state, StepState::Decision, "{id}");
        assert!(step.commands.is_empty() && step.why.contains("choose --canary"), "{step:?}");
    }
    assert_eq!(step(&site, &choices(), "act").state, StepState::Open);
}

#[test]
fn what_other_clusters_use_stays() {
    let mut site = big_site();
    let records = "infill|NoReserve|requeue|00:00:30||0|0.0|\nnormal||cluster|00:00:00|infill|0|1.0|\n";
    site.accounting.qoses = Some(parse_qos(records));
    site.accounting.associations = Some(parse_accounts("root||normal,infill\ninfill||\n"));
    site.accounting.admin_level = Some("Operator".to_owned());
    let alone = render_undo(&all_steps(&site, &choices()));
    for command in ["delete qos infill", "preempt-=infill", "delete user infill", "delete account infill\n"] {
        assert!(alone.contains(command), "{command}: {alone}");
    }
    for others in [Some(vec!["west".to_owned()]), None] {
        site.accounting.other_clusters = others;
        let shared = render_undo(&all_steps(&site, &choices()));
        for command in ["delete qos", "preempt-=infill", "delete user", "delete account infill\n"] {
            assert!(!shared.contains(command), "{command}: {shared}");
        }
        assert!(shared.contains("modify account root cluster=big set qos-=infill"), "{shared}");
        assert!(shared.contains("delete account infill cluster=big\n"), "{shared}");
        assert!(shared.contains("the QOS infill and the Operator stay."), "{shared}");
    }
}

#[test]
fn an_account_with_other_work_is_left_alone() {
    let site = big_site();
    let own = |name: &str| DeployChoices { own_account: Some(name.to_owned()), ..choices() };
    let physics = step(&site, &own("physics"), "accounts");
    assert_eq!(physics.state, StepState::Decision);
    assert!(physics.commands.is_empty() && physics.undo.is_empty(), "{physics:?}");
    assert!(physics.why.contains("normal,scavenger"), "{physics:?}");
    assert_eq!(step(&site, &own("harvest"), "accounts").state, StepState::Open);
}

#[test]
fn lines_that_somebody_wrote_are_not_undone() {
    let mut site = big_site();
    put(&mut site, SUBMIT, "dofile(\"/etc/slurm/infill.lua\")\n");
    put(&mut site, LIBRARY, &plugin_text(ShareChoice::Exclusive, None));
    let plugin = step(&site, &choices(), "plugin");
    assert_eq!(plugin.state, StepState::Done);
    assert!(plugin.undo.is_empty(), "{plugin:?}");
    let undo = render_undo(&all_steps(&site, &choices()));
    assert!(undo.contains("remove the dofile lines first"), "{undo}");
    put(&mut site, SUBMIT, wrapper_text());
    let wrapped = lines(&step(&site, &choices(), "plugin").undo);
    assert!(wrapped.contains("mv /etc/slurm/job_submit_site.lua /etc/slurm/job_submit.lua"), "{wrapped}");
}

#[test]
fn files_of_slurm_can_be_read_whatever_the_umask() {
    let mut site = big_site();
    let alone = lines(&step(&site, &choices(), "plugin").commands);
    assert_eq!(alone, format!("this machine: infill doctor --plugin >{SUBMIT} && chmod 644 {SUBMIT}\n"));
    put(&mut site, SUBMIT, "-- the site's own\n");
    let wrapped = lines(&step(&site, &choices(), "plugin").commands);
    assert!(wrapped.contains(&format!("chmod 644 {LIBRARY}\n")), "{wrapped}");
    assert!(wrapped.contains(&format!("chmod 644 {SUBMIT}.new && mv {SUBMIT}.new {SUBMIT}")), "{wrapped}");
}

#[test]
fn the_way_back_is_that_of_what_is_installed() {
    let mut site = big_site();
    // An older version, for GPUs and with an account of its own.
    let older = plugin_text(ShareChoice::Gpus, Some("harvest")) + "-- an older line\n";
    put(&mut site, SUBMIT, &older);
    site.accounting.associations = Some(parse_accounts("root||normal\nharvest||infill\n"));
    let installed = installed_choices(&site, choices());
    assert_eq!(installed.share, ShareChoice::Gpus);
    assert_eq!(installed.own_account.as_deref(), Some("harvest"));
    let undo = render_undo(&all_steps(&site, &installed));
    assert!(undo.contains("rm -f /etc/slurm/job_submit.lua"), "{undo}");
    assert!(undo.contains("delete account harvest cluster=big"), "{undo}");
    assert!(undo.contains("skipped: a QOS for malleable jobs: it is not done"), "{undo}");
    // The plug-in goes first, so the account must be known without it.
    site.files.texts.remove(SUBMIT);
    site.accounting.own_accounts = vec!["harvest".to_owned()];
    assert_eq!(installed_choices(&site, choices()).own_account.as_deref(), Some("harvest"));
}

#[test]
fn an_order_to_drain_ends_before_infill_acts_again() {
    let mut site = big_site();
    site.daemon.mode = Some(DaemonMode::Observe);
    assert!(!lines(&step(&site, &choices(), "act").commands).contains("infill resume"));
    site.daemon.is_stopped = true;
    let act = lines(&step(&site, &choices(), "act").commands);
    assert!(act.starts_with("this machine: infill resume\n"), "{act}");
}

#[test]
fn the_effect_names_qoses_whose_jobs_fare_otherwise() {
    let mut site = big_site();
    let cancel = "`sacctmgr -i modify qos scavenger set preemptmode=cancel`";
    let inert = step(&site, &choices(), "slurm.conf").effect;
    assert!(
        inert.contains("jobs of scavenger can be preempted from now on") && inert.contains(cancel),
        "{inert}"
    );
    site.conf = Some(SlurmConf::parse("PreemptType = preempt/qos\nPreemptMode = CANCEL\n"));
    let cancelled = step(&site, &choices(), "slurm.conf").effect;
    assert!(!cancelled.contains("from now on") && cancelled.contains(cancel), "{cancelled}");
    let by_partition = DeployChoices { preempt: PreemptChoice::Partition, ..choices() };
    let partitions = step(&site, &by_partition, "slurm.conf").effect;
    assert!(partitions.contains("PreemptMode=CANCEL on their lines"), "{partitions}");
    site.conf = Some(SlurmConf::parse("PreemptType = preempt/qos\nPreemptMode = REQUEUE\n"));
    let same = step(&site, &choices(), "slurm.conf").effect;
    assert!(!same.contains("preemptmode"), "{same}");
}

#[test]
fn backup_controllers_get_the_files_too() {
    let mut site = big_site();
    site.host.backups = vec!["ctl2".to_owned()];
    put(&mut site, "/etc/slurm/nodes.conf", "JobSubmitPlugins=require_timelimit\n");
    let conf = step(&site, &choices(), "slurm.conf");
    let files = "/etc/slurm/nodes.conf /etc/slurm/slurm.conf /etc/slurm/slurm.conf.infill;";
    let run = lines(&conf.commands);
    assert!(
        run.contains(&format!("for host in ctl2 $(sinfo -hN -o %N | sort -u); do for file in {files}")),
        "{run}"
    );
    let plugin = step(&site, &choices(), "plugin");
    assert!(
        lines(&plugin.commands).contains(&format!("for host in ctl2; do for file in {SUBMIT};")),
        "{plugin:?}"
    );
    assert!(lines(&plugin.undo).contains(&format!("ctl2: rm -f {SUBMIT}")), "{plugin:?}");
}

#[test]
fn root_opens_nothing_in_the_folder_of_user_infill() {
    let mut site = big_site();
    site.host.has_systemd = false;
    site.daemon.mode = Some(DaemonMode::Observe);
    let start = step(&site, &choices(), "start");
    for command in start.commands.iter().filter(|c| c.command.contains("daemon.log")) {
        let inside = command.command.split('\'').nth(1).unwrap_or_default();
        assert!(inside.contains(">>/run/infill/daemon.log 2>&1"), "{command:?}");
    }
    for command in start.undo.iter().filter(|c| c.command.contains(".pid")) {
        assert!(command.command.starts_with("runuser -u infill -- timeout 120 sh -c 'pid="), "{command:?}");
    }
    assert_eq!(start.undo.iter().filter(|c| c.command.contains(".pid")).count(), 2);
}

#[test]
fn lines_with_several_settings_are_left_to_a_human() {
    let mut site = big_site();
    put(&mut site, "/etc/slurm/slurm.conf", "PreemptType=preempt/none PreemptMode=OFF\n");
    let conf = step(&site, &choices(), "slurm.conf");
    assert_eq!(conf.state, StepState::Decision);
    assert!(conf.commands.is_empty(), "{conf:?}");
    assert!(
        conf.why.ends_with("/etc/slurm/slurm.conf: PreemptType=preempt/none PreemptMode=OFF"),
        "{conf:?}"
    );
    put(&mut site, "/etc/slurm/slurm.conf", "PartitionName=infill Nodes=n1 AllowQos=infill\n");
    let conf = step(&site, &choices(), "slurm.conf");
    assert!(conf.state == StepState::Decision && conf.why.contains("a line of partition infill"), "{conf:?}");
}

#[test]
fn a_partition_that_lends_otherwise_is_to_change() {
    let conf = "PreemptType = preempt/qos\nPreemptMode = REQUEUE\nPreemptParameters = youngest_first\n\
                JobSubmitPlugins = lua\n";
    let mut site = big_site();
    site.conf = Some(SlurmConf::parse(conf));
    let gpus = DeployChoices { share: ShareChoice::Gpus, ..choices() };
    for (settings, nodes_state, gpus_state) in [
        ("AllowQos=infill OverSubscribe=EXCLUSIVE", StepState::Done, StepState::Open),
        ("AllowQos=infill OverSubscribe=NO Exclusive=NODE", StepState::Done, StepState::Open),
        ("AllowQos=infill OverSubscribe=NO", StepState::Open, StepState::Done),
        ("AllowQos=ALL OverSubscribe=EXCLUSIVE", StepState::Open, StepState::Open),
    ] {
        site.partitions = Some(parse_partitions(&format!("PartitionName=infill {settings}\n")));
        assert_eq!(step(&site, &choices(), "slurm.conf").state, nodes_state, "{settings}");
        assert_eq!(step(&site, &gpus, "slurm.conf").state, gpus_state, "{settings}");
    }
}

#[test]
fn the_check_of_preemption_counts_all_qoses() {
    let check = step(&big_site(), &choices(), "preempt").check;
    assert_eq!(check.prints, ["QOSes that may preempt infill: 2 of 2."]);
    let said = |records: &str| {
        let command = check.command.command.split_once('|').map_or("", |(_, filter)| filter);
        let words = ["-c", &format!("printf '{records}' | {command}")];
        let done = std::process::Command::new("sh").args(words).output().expect("a shell");
        String::from_utf8(done.stdout).expect("a text")
    };
    let one = said(r"infill|\nnormal|scavenger,infill\nscavenger|infillx\n");
    assert_eq!(one, "QOSes that may preempt infill: 1 of 2.\n");
    assert_eq!(
        said(r"infill|\nnormal|infill\nscavenger|infill\n"),
        "QOSes that may preempt infill: 2 of 2.\n"
    );
}
