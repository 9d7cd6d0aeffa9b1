//! Steps in Slurm's accounting: the user, the QOS, who preempts it, who may use it, and the Operator.

use super::choices::{DeployChoices, PreemptChoice};
use super::facts::{AccountRecord, OURS, SiteFacts};
use super::step::{PlanCommand, PlanStep, StepCheck, StepState, shell_word};
use crate::doctor::site::accounting::QosRecord;
use crate::doctor::site::list_contains;
use crate::doctor::site::slurm_conf::SlurmConf;

/// What a change in accounting does to jobs that run.
const NO_EFFECT: &str = "None.";

/// The settings of the QOS; slurm/accounting.sh has the reasons.
const QOS_SETTINGS: &str =
    "preemptmode=requeue gracetime=30 flags=NoReserve priority=0 usagefactor=0 preemptexempttime=0";

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
        effect: NO_EFFECT.into(),
        check: StepCheck {
            command: PlanCommand::root(hosts, "id -u infill"),
            prints: vec![uid.to_string()],
        },
        undo: vec![PlanCommand::root(hosts, "userdel infill")],
        remains: Vec::new(),
        undo_note: None,
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

/// Why what belongs to all clusters of a slurmdbd stays, if others use it.
fn shared_note(site: &SiteFacts) -> Option<String> {
    match site.accounting.other_clusters.as_deref() {
        Some([]) => None,
        Some(names) => Some(format!(
            "Other clusters of this slurmdbd use infill too ({}): the QOS infill and the Operator stay.",
            names.join(", ")
        )),
        None => Some(
            "Nothing says here whether other clusters of this slurmdbd use infill: the QOS infill and the Operator stay."
                .to_owned(),
        ),
    }
}

/// Takes back what belongs to all clusters of a slurmdbd: only if no other cluster uses it.
fn undo_everywhere(site: &SiteFacts, words: &[String]) -> Vec<PlanCommand> {
    if shared_note(site).is_some() {
        return Vec::new();
    }
    words.iter().map(|words| sacctmgr(site, words)).collect()
}

fn qos_step(site: &SiteFacts) -> PlanStep {
    let site_exempt_secs = site.conf.as_ref().map_or(0, SlurmConf::exempt_secs);
    let is_right = |qos: &QosRecord| {
        list_contains(&qos.preempt_mode, "requeue")
            && list_contains(&qos.flags, "NoReserve")
            && (1..=120).contains(&qos.grace_secs)
            && qos.exempt_secs.unwrap_or(site_exempt_secs) == 0
    };
    let ours = find_qos(site, OURS);
    let undo = undo_everywhere(site, &["delete qos infill".to_owned()]);
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
        effect: NO_EFFECT.into(),
        check: sacctmgr_check(
            site,
            "qos infill format=name,preemptmode,gracetime,flags",
            vec!["infill|requeue|00:00:30|NoReserve".to_owned()],
        ),
        remains: if ours.is_some() { undo.clone() } else { Vec::new() },
        undo,
        undo_note: shared_note(site),
        notes: Vec::new(),
    }
}

/// Counts the QOSes besides infill's, and those of them that may preempt it.
const COUNT_PREEMPTING: &str = "awk -F'|' '$1 != \"infill\" { all++; if (\",\" $2 \",\" ~ /,infill,/) n++ } \
    END { print \"QOSes that may preempt infill: \" n + 0 \" of \" all + 0 \".\" }'";

/// Every other QOS must preempt infill's, also one whose jobs are preemptible themselves.
fn preempt_step(site: &SiteFacts) -> PlanStep {
    let others: Vec<&QosRecord> =
        site.accounting.qoses.iter().flatten().filter(|qos| qos.name != OURS).collect();
    let mut waiting: Vec<&str> = Vec::new();
    let mut ready: Vec<&str> = Vec::new();
    for qos in &others {
        let list = if list_contains(&qos.preempts, OURS) { &mut ready } else { &mut waiting };
        list.push(&qos.name);
    }
    let chosen = if waiting.is_empty() { &ready } else { &waiting };
    let change = |names: &[&str], sign: char| -> Vec<String> {
        let each = names.iter().map(|n| format!("modify qos {} set preempt{sign}=infill", shell_word(n)));
        each.collect()
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
        commands: change(chosen, '+').iter().map(|words| sacctmgr(site, words)).collect(),
        effect: "None. It takes effect once slurm.conf has PreemptType=preempt/qos.".into(),
        check: sacctmgr_check(
            site,
            &format!("qos format=name,preempt | {COUNT_PREEMPTING}"),
            vec![format!("QOSes that may preempt infill: {0} of {0}.", others.len())],
        ),
        undo: undo_everywhere(site, &change(chosen, '-')),
        remains: undo_everywhere(site, &change(&ready, '-')),
        undo_note: shared_note(site),
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
    let ready: Vec<&AccountRecord> = own.iter().copied().filter(|r| list_contains(&r.qoses, OURS)).collect();
    let change = |records: &[&AccountRecord], sign: char| -> Vec<PlanCommand> {
        let each = records.iter().map(|r| format!("modify {} set qos{sign}=infill", association(site, r)));
        each.map(|words| sacctmgr(site, &words)).collect()
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
        commands: change(&chosen, '+'),
        effect: NO_EFFECT.into(),
        check: sacctmgr_check(
            site,
            &format!("assoc {} account={} format=account,qos", cluster_word(site), shell_word(account)),
            vec![OURS.to_owned()],
        ),
        undo: change(&chosen, '-'),
        remains: change(&ready, '-'),
        undo_note: None,
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
    let account = records.iter().find(|r| r.account == name && r.user.is_empty());
    if let Some(other) = account.filter(|account| account.qoses != OURS) {
        return other_account_decision(site, other);
    }
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
    if account.is_none() {
        // One command, so that there is never an account of this name with other QOSes.
        commands.push(format!(
            "add account {name} {cluster} Description=malleable Organization=infill qos=infill defaultqos=infill"
        ));
    }
    if !users.is_empty() {
        commands.push(format!("add user {} {cluster} account={name}", shell_word(&users.join(","))));
    }
    let undo = vec![sacctmgr(site, &format!("delete account {name} {cluster}"))];
    PlanStep {
        id: "accounts",
        title: format!("an account of their own for malleable jobs, {name}"),
        state: StepState::known(site.accounting.associations.as_ref().map(|_| commands.is_empty())),
        why: "Limits of accounts count every job of an account. In a separate account, malleable jobs use up no limit of \
              main jobs."
            .to_owned(),
        page: Some("docs/deploy/own-account.md"),
        commands: commands.iter().map(|words| sacctmgr(site, words)).collect(),
        effect: NO_EFFECT.into(),
        check: sacctmgr_check(
            site,
            &format!("assoc {cluster} account={name} user='' format=account,qos"),
            vec![format!("{name}|infill")],
        ),
        remains: if account.is_some() { undo.clone() } else { Vec::new() },
        undo,
        undo_note: None,
        notes: vec!["Run the plan again whenever users are added.".to_owned()],
    }
}

/// An account that has work of the site must not change, nor go away on the way back.
fn other_account_decision(site: &SiteFacts, account: &AccountRecord) -> PlanStep {
    let name = &account.account;
    let has = if account.qoses.is_empty() { "QOSes that it inherits" } else { account.qoses.as_str() };
    PlanStep {
        id: "accounts",
        title: format!("a decision: account {name} exists already"),
        state: StepState::Decision,
        why: format!(
            "It has {has}, so other jobs run there too. Choose a new name, or give it the QOS infill alone."
        ),
        page: Some("docs/deploy/own-account.md"),
        commands: Vec::new(),
        effect: NO_EFFECT.into(),
        check: sacctmgr_check(
            site,
            &format!("assoc {} account={name} user='' format=account,qos", cluster_word(site)),
            vec![format!("{name}|infill")],
        ),
        undo: Vec::new(),
        remains: Vec::new(),
        undo_note: None,
        notes: Vec::new(),
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
    let state = StepState::known(level.map(|level| level == "Operator"));
    PlanStep {
        id: "operator",
        title: "the daemon's user is an Operator".to_owned(),
        state,
        why: "An Operator may pin, hold, release and cancel jobs of others, and cannot submit or run anything as them."
            .to_owned(),
        page: Some("docs/security.md"),
        commands: commands.iter().map(|words| sacctmgr(site, words)).collect(),
        effect: NO_EFFECT.into(),
        check: sacctmgr_check(
            site,
            "user infill format=user,adminlevel",
            vec!["infill|Operator".to_owned()],
        ),
        undo: operator_undo(site, [true, has_account || state != StepState::Done]),
        remains: operator_undo(site, [level.is_some_and(|level| !level.is_empty()), has_account]),
        undo_note: shared_note(site),
        notes: Vec::new(),
    }
}

/// The way back for the parts that are there: the user and the account.
fn operator_undo(site: &SiteFacts, parts: [bool; 2]) -> Vec<PlanCommand> {
    let words = match shared_note(site) {
        None => ["delete user infill".to_owned(), "delete account infill".to_owned()],
        Some(_) => [String::new(), format!("delete account infill {}", cluster_word(site))],
    };
    let present = words.iter().zip(parts).filter(|(words, is_there)| *is_there && !words.is_empty());
    present.map(|(words, _)| sacctmgr(site, words)).collect()
}
