//! Plans for made-up sites. tests/it/first_hour.rs follows plans on real ones.

use super::choices::{DeployChoices, PreemptChoice, ShareChoice};
use super::facts::{
    AccountingFacts, ConfigFiles, DaemonFacts, GpuShare, HostFacts, NodeFacts, SiteFacts, parse_accounts,
};
use super::plan_steps;
use super::render::{PlanText, render_plan};
use super::step::{PlanStep, StepState};
use crate::doctor::site::accounting::parse_qos;
use crate::doctor::site::partition::parse_partitions;
use crate::doctor::site::slurm_conf::SlurmConf;
use infill_model::NodeName;

const CONF: &str = "\
ClusterName             = big
JobSubmitPlugins        = require_timelimit
PreemptMode             = OFF
PreemptParameters       = (null)
PreemptType             = (null)
SLURM_CONF              = /etc/slurm/slurm.conf
";

/// A site of several machines, seen by root on its controller.
pub fn big_site() -> SiteFacts {
    let text = "ClusterName=big\nPreemptMode=OFF\nJobSubmitPlugins=require_timelimit\ninclude nodes.conf\n";
    SiteFacts {
        conf: Some(SlurmConf::parse(CONF)),
        partitions: Some(parse_partitions("PartitionName=main OverSubscribe=NO PriorityTier=1\n")),
        accounting: AccountingFacts {
            qoses: Some(parse_qos(
                "normal||cluster|00:00:00|scavenger|0|1.0|\nscavenger||cluster|00:00:00||0|1.0|\n",
            )),
            associations: Some(parse_accounts("root||normal\nphysics||normal,scavenger\nphysics|ann|\n")),
            admin_level: Some(String::new()),
            limits: vec!["account physics: GrpTRES=node=4".to_owned()],
            reservations: vec!["maintenance".to_owned()],
            had_jobs: Some(false),
            other_clusters: Some(Vec::new()),
            own_accounts: Vec::new(),
        },
        files: ConfigFiles {
            texts: [("/etc/slurm/slurm.conf".to_owned(), text.to_owned())].into(),
            folder: "/etc/slurm".to_owned(),
        },
        host: HostFacts {
            name: "ctl".to_owned(),
            controller: "ctl".to_owned(),
            backups: Vec::new(),
            has_systemd: true,
            has_units: true,
            slurmrestd: Some("/opt/slurm/sbin/slurmrestd".to_owned()),
            infill_uid: None,
            free_uid: 980,
            has_lua: Some(true),
        },
        nodes: NodeFacts {
            first: ["gpu1", "gpu2"].map(NodeName::new).into(),
            elsewhere: Some(true),
            gpu_share: Some(GpuShare { cpus: 16, memory_mib: 120_000 }),
        },
        daemon: DaemonFacts { path: "/etc/infill/infill.toml".to_owned(), ..DaemonFacts::default() },
        unread: Vec::new(),
    }
}

pub fn choices() -> DeployChoices {
    DeployChoices {
        preempt: PreemptChoice::Qos,
        share: ShareChoice::Exclusive,
        own_account: None,
        canary: "gpu[1-2]".to_owned(),
    }
}

pub fn step(site: &SiteFacts, choices: &DeployChoices, id: &str) -> PlanStep {
    let found = plan_steps(site, choices).into_iter().find(|step| step.id == id);
    found.unwrap_or_else(|| panic!("there is no step {id}"))
}

/// The commands of a step, or those that undo it, a line each.
pub fn lines(commands: &[super::step::PlanCommand]) -> String {
    commands.iter().map(|c| format!("{}: {}\n", c.on, c.command)).collect()
}

#[test]
fn other_machines_need_the_user_the_files_and_the_daemons_name() {
    let site = big_site();
    assert!(
        lines(&step(&site, &choices(), "user").commands)
            .starts_with("every host: useradd --system --uid 980")
    );
    insta::assert_snapshot!(lines(&step(&site, &choices(), "config").commands), @r##"
    this machine: mkdir -p -m 755 /etc/infill
    this machine: printf '%s\n' '[daemon]' \
        'listen = "0.0.0.0:6810"' \
        '[agent]' \
        'url = "http://ctl:6810"' \
        '[safety]' \
        'nodes = "gpu[1-2]"' >/etc/infill/infill.toml && chmod 644 /etc/infill/infill.toml
    this machine: for host in $(sinfo -hN -o %N | sort -u); do ssh -n $host mkdir -p -m 755 /etc/infill; scp -p /etc/infill/infill.toml $host:/etc/infill/infill.toml; done
    "##);
    insta::assert_snapshot!(lines(&step(&site, &choices(), "start").commands), @r##"
    this machine: mkdir -p -m 755 /etc/systemd/system/infill-slurmrestd.service.d && printf '%s\n' '[Service]' ExecStart= 'ExecStart=/opt/slurm/sbin/slurmrestd -t 2 -s openapi/slurmctld -a rest_auth/local unix:/run/infill/slurmrestd.sock' >/etc/systemd/system/infill-slurmrestd.service.d/path.conf
    this machine: systemctl daemon-reload
    this machine: systemctl enable --now infill-slurmrestd infill
    "##);
}

#[test]
fn settings_of_the_site_are_kept_and_come_back() {
    let conf = step(&big_site(), &choices(), "slurm.conf");
    insta::assert_snapshot!(lines(&conf.commands), @r##"
    this machine: printf '%s\n' '# Lines for infill. slurm.conf includes this file; `infill doctor --plan` wrote it.' \
        PreemptType=preempt/qos \
        PreemptMode=REQUEUE \
        PreemptParameters=youngest_first \
        JobSubmitPlugins=require_timelimit,lua \
        'PartitionName=infill Nodes=ALL Default=NO State=UP PriorityTier=0 AllowQos=infill OverSubscribe=EXCLUSIVE DefaultTime=60 MaxTime=1-00:00:00' >/etc/slurm/slurm.conf.infill && chmod 644 /etc/slurm/slurm.conf.infill
    this machine: sed -i --follow-symlinks 's/^[[:space:]]*PreemptMode[[:space:]]*=/#infill# &/I' /etc/slurm/slurm.conf
    this machine: sed -i --follow-symlinks 's/^[[:space:]]*JobSubmitPlugins[[:space:]]*=/#infill# &/I' /etc/slurm/slurm.conf
    this machine: sed -i --follow-symlinks '$a include slurm.conf.infill' /etc/slurm/slurm.conf
    this machine: for host in $(sinfo -hN -o %N | sort -u); do for file in /etc/slurm/slurm.conf /etc/slurm/slurm.conf.infill; do scp -p $file $host:$file.new && ssh -n $host "cp -p $file.new $file && rm $file.new"; done; done
    this machine: scontrol reconfigure
    "##);
    insta::assert_snapshot!(lines(&conf.undo), @r##"
    this machine: scontrol update partitionname=infill state=drain; scancel -p infill; timeout 600 sh -c 'while squeue -h -p infill | grep -q .; do sleep 1; done'
    this machine: sed -i --follow-symlinks 's/^#infill# //' /etc/slurm/slurm.conf
    this machine: sed -i --follow-symlinks '/^include slurm.conf.infill$/d' /etc/slurm/slurm.conf
    this machine: rm -f /etc/slurm/slurm.conf.infill
    this machine: for host in $(sinfo -hN -o %N | sort -u); do for file in /etc/slurm/slurm.conf; do scp -p $file $host:$file.new && ssh -n $host "cp -p $file.new $file && rm $file.new"; done; done
    this machine: for host in $(sinfo -hN -o %N | sort -u); do ssh -n $host rm -f /etc/slurm/slurm.conf.infill; done
    this machine: scontrol reconfigure
    "##);
    let notes = conf.notes.join("\n");
    assert!(
        notes.contains("reservations here: maintenance.") && notes.contains("Jobs share nodes here"),
        "{notes}"
    );
}

#[test]
fn a_scavenger_qos_preempts_infill_too() {
    let preempt = step(&big_site(), &choices(), "preempt");
    assert_eq!(
        lines(&preempt.commands),
        "this machine: sacctmgr -i modify qos normal set preempt+=infill\n\
         this machine: sacctmgr -i modify qos scavenger set preempt+=infill\n"
    );
    assert!(preempt.notes[0].starts_with("scavenger may be preempted already."), "{preempt:?}");
    let accounts = step(&big_site(), &choices(), "accounts");
    assert!(accounts.notes[0].contains("account physics: GrpTRES=node=4"), "{accounts:?}");
}

#[test]
fn each_decision_changes_what_it_is_about() {
    let site = big_site();
    let by_partition = DeployChoices { preempt: PreemptChoice::Partition, ..choices() };
    assert!(!plan_steps(&site, &by_partition).iter().any(|step| step.id == "preempt"));
    let conf = lines(&step(&site, &by_partition, "slurm.conf").commands);
    assert!(
        conf.contains("PreemptMode=REQUEUE GraceTime=30")
            && conf.contains("1i PartitionName=DEFAULT PreemptMode=OFF"),
        "{conf}"
    );
    let gpus = DeployChoices { share: ShareChoice::Gpus, ..choices() };
    let conf = lines(&step(&site, &gpus, "slurm.conf").commands);
    assert!(conf.contains("OverSubscribe=NO DefCpuPerGPU=16 DefMemPerGPU=120000"), "{conf}");
    assert!(lines(&step(&site, &gpus, "config").commands).contains(r#"'lend = "gpus"'"#));
    assert!(lines(&step(&site, &gpus, "plugin").commands).contains("--plugin --share gpus >"));
    let own = DeployChoices { own_account: Some("harvest".to_owned()), ..choices() };
    insta::assert_snapshot!(lines(&step(&site, &own, "accounts").commands), @r##"
    this machine: sacctmgr -i add account harvest cluster=big Description=malleable Organization=infill qos=infill defaultqos=infill
    this machine: sacctmgr -i add user ann cluster=big account=harvest
    "##);
}

#[test]
fn the_constants_of_the_plug_in_follow_the_decisions() {
    let text = super::plugin_text(ShareChoice::Gpus, Some("harvest"));
    assert!(text.contains("\nlocal LEND = \"gpus\"\n") && text.contains("\nlocal ACCOUNT = \"harvest\"\n"));
    let plain = super::plugin_text(ShareChoice::Exclusive, None);
    assert_eq!(plain, include_str!("../../../slurm/job_submit.lua"));
}

#[test]
fn what_suspends_jobs_is_left_to_a_human() {
    let mut site = big_site();
    site.conf = Some(SlurmConf::parse("PreemptMode = GANG,SUSPEND\n"));
    let steps = plan_steps(&site, &choices());
    assert_eq!(steps.iter().map(|step| step.state).collect::<Vec<_>>(), [StepState::Decision]);
    assert!(steps[0].commands.is_empty() && steps[0].page == Some("docs/deploy/preemption.md"));
}

#[test]
fn what_cannot_be_read_is_said_and_not_guessed() {
    let site = SiteFacts {
        conf: None,
        partitions: None,
        accounting: AccountingFacts::default(),
        files: ConfigFiles { folder: "/etc/slurm".to_owned(), ..ConfigFiles::default() },
        unread: vec!["sacctmgr: access denied".to_owned()],
        ..big_site()
    };
    let steps = plan_steps(&site, &choices());
    for id in ["qos", "preempt", "accounts", "operator", "slurm.conf", "job"] {
        let state = steps.iter().find(|step| step.id == id).map(|step| step.state);
        assert_eq!(state, Some(StepState::Unknown), "{id}");
    }
    let text = render_plan(&PlanText {
        cluster: site.cluster(),
        choices: &choices(),
        steps: &steps,
        unread: &site.unread,
    });
    assert!(text.starts_with("plan for cluster (unknown): 1 of 12 steps done\n"), "{text}");
    assert!(
        text.contains("could not read: sacctmgr: access denied\n")
            && text.contains("Run this as root on the controller"),
        "{text}"
    );
}

#[test]
fn every_page_of_a_decision_exists() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = DeployChoices { own_account: Some("harvest".to_owned()), ..choices() };
    for step in plan_steps(&big_site(), &choices()).iter().chain(&plan_steps(&big_site(), &own)) {
        let pages = step.page.into_iter().map(str::to_owned);
        let noted = step.notes.iter().flat_map(|note| note.split(['(', ')', ' ']).map(str::to_owned));
        for page in pages.chain(noted.filter(|word| word.starts_with("docs/"))) {
            assert!(folder.join(&page).is_file(), "{}: there is no {page}", step.id);
        }
    }
}
