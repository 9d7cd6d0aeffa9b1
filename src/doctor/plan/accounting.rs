//! Steps in Slurm's accounting: the user, the QOS, who preempts it, who may use it, and the Operator.

use super::choices::{DeployChoices, PreemptChoice};
use super::facts::{AccountRecord, OURS, SiteFacts};
use super::step::{PlanCommand, PlanStep, StepCheck, StepState, shell_word};
use crate::doctor::site::accounting::QosRecord;
use crate::doctor::site::list_contains;

/// What a change in accounting does to jobs that run.
const NO_EFFECT: &str = "None.";

/// The settings of the QOS; slurm/accounting.sh has the reasons.
const QOS_SETTINGS: &str = "preemptmode=requeue gracetime=30 flags=NoReserve priority=0 usagefactor=0";

/// The steps in this order.
pub fn accounting_steps(site: &SiteFacts, choices: &DeployChoices) -> Vec<PlanStep> {
    let mut steps = vec![user_step(site), qos_step(site)];
    if choices.preempt == PreemptChoice::Qos {
        steps.push(preempt_step(site));
    }
    steps.push(match &choices.own_account {
        Some(account) => own_account_step(site, account),
        None => accounts_step(site),
    });
    steps.push(operator_step(site));
    steps
}

fn user_step(site: &SiteFacts) -> PlanStep {
    let hosts = site.every_host();
    let uid = site.host.infill_uid.unwrap_or(site.host.free_uid);
    let mut notes = Vec::new();
    if site.has_other_machines() {
        notes.push(format!(
            "Uid {uid} is free here. `getent passwd {uid}` on the other hosts says whether it is free there."
        ));
    }
    let command =
        format!("useradd --system --uid {uid} --home-dir /var/lib/infill --shell /usr/sbin/nologin infill");
    PlanStep {
        id: "user",
        title: "the system user infill".to_owned(),
        state: StepState::known(Some(site.host.infill_uid.is_some())),
        why: "The daemon runs as this user, and MUNGE knows users by their uid, so it must be the same on every host."
            .to_owned(),
        page: None,
        commands: vec![PlanCommand::root(hosts, command)],
        effect: NO_EFFECT,
        check: StepCheck {
            command: PlanCommand::root(hosts, "id -u infill"),
            prints: vec![uid.to_string()],
        },
        undo: vec![PlanCommand::root(hosts, "userdel infill")],
        notes,
    }
}

fn sacctmgr(site: &SiteFacts, words: &str) -> PlanCommand {
    PlanCommand::root(&site.controller(), format!("sacctmgr -i {words}"))
}

fn sacctmgr_check(site: &SiteFacts, words: &str, prints: Vec<String>) -> StepCheck {
    StepCheck { command: PlanCommand::root(&site.controller(), format!("sacctmgr -nP show {words}")), prints }
}

fn find_qos<'a>(site: &'a SiteFacts, name: &str) -> Option<&'a QosRecord> {
    site.accounting.qoses.iter().flatten().find(|qos| qos.name == name)
}

fn qos_step(site: &SiteFacts) -> PlanStep {
    let is_right = |qos: &QosRecord| {
        list_contains(&qos.preempt_mode, "requeue")
            && list_contains(&qos.flags, "NoReserve")
            && (1..=120).contains(&qos.grace_secs)
    };
    let ours = find_qos(site, OURS);
    let change = if ours.is_some() { "modify qos infill set" } else { "add qos infill" };
    PlanStep {
        id: "qos",
        title: "a QOS for malleable jobs".to_owned(),
        state: StepState::known(site.accounting.qoses.as_ref().map(|_| ours.is_some_and(is_right))),
        why: "Jobs of this QOS return to the queue when a main job needs their nodes, after 30 s to save. Backfill \
              plans nothing for them."
            .to_owned(),
        page: None,
        commands: vec![sacctmgr(site, &format!("{change} {QOS_SETTINGS} maxsubmitjobsperuser=10000"))],
        effect: NO_EFFECT,
        check: sacctmgr_check(
            site,
            "qos infill format=name,preemptmode,gracetime,flags",
            vec!["infill|requeue|00:00:30|NoReserve".to_owned()],
        ),
        undo: vec![sacctmgr(site, "delete qos infill")],
        notes: Vec::new(),
    }
}

/// Every other QOS must preempt infill's, also one whose jobs are preemptible themselves.
fn preempt_step(site: &SiteFacts) -> PlanStep {
    let others: Vec<&QosRecord> =
        site.accounting.qoses.iter().flatten().filter(|qos| qos.name != OURS).collect();
    let waiting: Vec<&&QosRecord> = others.iter().filter(|qos| !list_contains(&qos.preempts, OURS)).collect();
    let chosen: Vec<&str> = if waiting.is_empty() {
        others.iter().map(|qos| qos.name.as_str()).collect()
    } else {
        waiting.iter().map(|qos| qos.name.as_str()).collect()
    };
    let change = |sign: char| {
        let each =
            chosen.iter().map(|name| format!("modify qos {} set preempt{sign}=infill", shell_word(name)));
        each.map(|words| sacctmgr(site, &words)).collect::<Vec<_>>()
    };
    let is_preempted =
        |qos: &&&QosRecord| others.iter().any(|other| list_contains(&other.preempts, &qos.name));
    let scavengers: Vec<&str> = others.iter().filter(is_preempted).map(|qos| qos.name.as_str()).collect();
    let mut notes = Vec::new();
    if !scavengers.is_empty() {
        notes.push(format!(
            "{} may be preempted already. Its jobs preempt infill's: infill takes only what they leave \
             (docs/deploy/scavenger.md).",
            scavengers.join(", ")
        ));
    }
    PlanStep {
        id: "preempt",
        title: "every other QOS may preempt it".to_owned(),
        state: StepState::known(site.accounting.qoses.as_ref().map(|_| waiting.is_empty())),
        why: "Jobs of a QOS that is left out would wait for malleable jobs.".to_owned(),
        page: Some("docs/deploy/preemption.md"),
        commands: change('+'),
        effect: "None. It takes effect once slurm.conf has PreemptType=preempt/qos.",
        check: sacctmgr_check(
            site,
            &format!("qos {} format=name,preempt", shell_word(&chosen.join(","))),
            chosen.iter().map(|name| format!("{name}|")).chain([OURS.to_owned()]).collect(),
        ),
        undo: change('-'),
        notes,
    }
}

fn is_operators(record: &AccountRecord) -> bool {
    record.account == OURS
}

/// Accounts that have QOSes of their own, and root for all that inherit.
fn accounts_step(site: &SiteFacts) -> PlanStep {
    let mine = |r: &&AccountRecord| {
        !is_operators(r) && (r.account == "root" && r.user.is_empty() || !r.qoses.is_empty())
    };
    let own: Vec<&AccountRecord> = site.accounting.associations.iter().flatten().filter(mine).collect();
    let lacking: Vec<&&AccountRecord> = own.iter().filter(|r| !list_contains(&r.qoses, OURS)).collect();
    let chosen: Vec<&AccountRecord> =
        if lacking.is_empty() { own.clone() } else { lacking.iter().map(|r| **r).collect() };
    let change = |sign: char| {
        let each = chosen.iter().map(|r| format!("modify {} set qos{sign}=infill", association(site, r)));
        each.map(|words| sacctmgr(site, &words)).collect::<Vec<_>>()
    };
    let mut notes = Vec::new();
    if !site.accounting.limits.is_empty() {
        notes.push(format!(
            "Malleable jobs count in these limits, and main jobs wait when they are used up: {}. With `--own-account \
             NAME` they do not count.",
            shortened(&site.accounting.limits)
        ));
    }
    let account = chosen.first().map_or("root", |r| r.account.as_str());
    PlanStep {
        id: "accounts",
        title: "accounts may use it".to_owned(),
        state: StepState::known(site.accounting.associations.as_ref().map(|_| lacking.is_empty())),
        why: "A user may only submit to a QOS that the user's account allows. Accounts without QOSes of their own \
              inherit from root."
            .to_owned(),
        page: Some("docs/deploy/own-account.md"),
        commands: change('+'),
        effect: NO_EFFECT,
        check: sacctmgr_check(
            site,
            &format!("assoc {} account={} format=account,qos", cluster_word(site), shell_word(account)),
            vec![OURS.to_owned()],
        ),
        undo: change('-'),
        notes,
    }
}

fn association(site: &SiteFacts, record: &AccountRecord) -> String {
    let cluster = cluster_word(site);
    let account = shell_word(&record.account);
    if record.user.is_empty() {
        return format!("account {account} {cluster}");
    }
    format!("user {} {cluster} account={account}", shell_word(&record.user))
}

fn cluster_word(site: &SiteFacts) -> String {
    format!("cluster={}", shell_word(site.cluster()))
}

/// The most limits that a note names.
const MAX_LIMITS: usize = 4;

fn shortened(limits: &[String]) -> String {
    let shown = limits.iter().take(MAX_LIMITS).cloned().collect::<Vec<_>>().join("; ");
    match limits.len().saturating_sub(MAX_LIMITS) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// An account in which malleable jobs count in no limit of main jobs.
fn own_account_step(site: &SiteFacts, name: &str) -> PlanStep {
    let records = site.accounting.associations.as_deref().unwrap_or_default();
    let is_there = records.iter().any(|r| r.account == name && r.user.is_empty() && r.qoses == OURS);
    let has = |user: &str| records.iter().any(|r| r.account == name && r.user == user);
    let mut users: Vec<&str> = records
        .iter()
        .filter(|r| !r.user.is_empty() && r.user != "root" && !is_operators(r) && !has(&r.user))
        .map(|r| r.user.as_str())
        .collect();
    users.sort_unstable();
    users.dedup();
    let cluster = cluster_word(site);
    let mut commands = Vec::new();
    if !records.iter().any(|r| r.account == name) {
        commands.push(format!("add account {name} {cluster} Description=malleable Organization=infill"));
    }
    if !is_there {
        commands.push(format!("modify account {name} {cluster} set qos=infill defaultqos=infill"));
    }
    if !users.is_empty() {
        commands.push(format!("add user {} {cluster} account={name}", shell_word(&users.join(","))));
    }
    PlanStep {
        id: "accounts",
        title: format!("an account of their own for malleable jobs, {name}"),
        state: StepState::known(site.accounting.associations.as_ref().map(|_| commands.is_empty())),
        why: "Limits of accounts count every job of an account. In a separate account, malleable jobs use up no limit of \
              main jobs."
            .to_owned(),
        page: Some("docs/deploy/own-account.md"),
        commands: commands.iter().map(|words| sacctmgr(site, words)).collect(),
        effect: NO_EFFECT,
        check: sacctmgr_check(
            site,
            &format!("assoc {cluster} account={name} user='' format=account,qos"),
            vec![format!("{name}|infill")],
        ),
        undo: vec![sacctmgr(site, &format!("delete account {name} {cluster}"))],
        notes: vec!["Run the plan again whenever users are added.".to_owned()],
    }
}

fn operator_step(site: &SiteFacts) -> PlanStep {
    let cluster = cluster_word(site);
    let level = site.accounting.admin_level.as_deref();
    let has_account = site.accounting.associations.iter().flatten().any(is_operators);
    let mut commands = Vec::new();
    if !has_account {
        commands.push(format!("add account infill {cluster} Description=infill Organization=infill"));
    }
    commands.push(match level {
        Some("") | None => format!("add user infill {cluster} account=infill adminlevel=operator"),
        Some(_) => "modify user infill set adminlevel=operator".to_owned(),
    });
    PlanStep {
        id: "operator",
        title: "the daemon's user is an Operator".to_owned(),
        state: StepState::known(level.map(|level| level == "Operator")),
        why: "An Operator may pin, hold, release and cancel jobs of others, and cannot submit or run anything as them."
            .to_owned(),
        page: Some("docs/security.md"),
        commands: commands.iter().map(|words| sacctmgr(site, words)).collect(),
        effect: NO_EFFECT,
        check: sacctmgr_check(
            site,
            "user infill format=user,adminlevel",
            vec!["infill|Operator".to_owned()],
        ),
        undo: ["delete user infill", "delete account infill"].map(|words| sacctmgr(site, words)).into(),
        notes: Vec::new(),
    }
}
