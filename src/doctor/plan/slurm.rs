//! The step in slurm.conf: the lines for infill, and the configuration that slurmctld reads again.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::choices::{DeployChoices, PreemptChoice, ShareChoice};
use super::facts::{OURS, SiteFacts, setting_keys};
use super::plugin::copy_command;
use super::step::{PlanCommand, PlanStep, SED, StepCheck, StepState, shell_word, write_lines};
use super::toml_lines::escape_pattern;
use crate::doctor::site::accounting::QosRecord;
use crate::doctor::site::list_contains;
use crate::doctor::site::partition::is_exclusive;

/// The line that brings infill's lines into slurm.conf.
const INCLUDE: &str = "include slurm.conf.infill";
/// Stands before a line of the site that infill's lines replace.
const REPLACED: &str = "#infill# ";
/// The line that keeps partitions of the site from being preempted, where partitions decide.
const UNTOUCHED: &str = "PartitionName=DEFAULT PreemptMode=OFF";

/// Ends all malleable jobs. Nothing new starts meanwhile, and a node that does not answer holds it up for ten
/// minutes at most.
const EMPTY_PARTITION: &str = "scontrol update partitionname=infill state=drain; scancel -p infill; \
    timeout 600 sh -c 'while squeue -h -p infill | grep -q .; do sleep 1; done'";

/// A setting that infill's file must have.
struct ConfChange {
    key: &'static str,
    value: String,
    /// Whether it is not in effect yet.
    is_open: bool,
}

/// Settings that are not as infill needs them, or that infill's file has already.
fn conf_changes(site: &SiteFacts, choices: &DeployChoices) -> Vec<ConfChange> {
    let preempt = match choices.preempt {
        PreemptChoice::Qos => "preempt/qos",
        PreemptChoice::Partition => "preempt/partition_prio",
    };
    let mut changes = Vec::new();
    let mut demand = |key: &'static str, is_right: bool, wanted: String| {
        let is_ours = site.our_file_sets(key);
        if !is_right || is_ours {
            let value = if is_right { site.setting(key).to_owned() } else { wanted };
            changes.push(ConfChange { key, value, is_open: !is_right });
        }
    };
    demand("PreemptType", site.setting("PreemptType") == preempt, preempt.to_owned());
    demand("PreemptMode", list_contains(site.setting("PreemptMode"), "REQUEUE"), "REQUEUE".to_owned());
    for (key, word) in [("PreemptParameters", "youngest_first"), ("JobSubmitPlugins", "lua")] {
        let present = site.setting(key);
        let is_wanted = key != "JobSubmitPlugins" || site.host.has_lua != Some(false);
        let wanted = if present.is_empty() { word.to_owned() } else { format!("{present},{word}") };
        demand(key, !is_wanted || list_contains(present, word), wanted);
    }
    changes
}

fn partition_line(site: &SiteFacts, choices: &DeployChoices) -> String {
    let mut line =
        "PartitionName=infill Nodes=ALL Default=NO State=UP PriorityTier=0 AllowQos=infill".to_owned();
    match (choices.share, site.nodes.gpu_share) {
        (ShareChoice::Exclusive, _) => line.push_str(" OverSubscribe=EXCLUSIVE"),
        (ShareChoice::Gpus, Some(share)) => line.push_str(&format!(
            " OverSubscribe=NO DefCpuPerGPU={} DefMemPerGPU={}",
            share.cpus, share.memory_mib
        )),
        (ShareChoice::Gpus, None) => line.push_str(" OverSubscribe=NO"),
    }
    if choices.preempt == PreemptChoice::Partition {
        line.push_str(" PreemptMode=REQUEUE GraceTime=30");
    }
    line.push_str(" DefaultTime=60 MaxTime=1-00:00:00");
    line
}

/// A human decides where the site suspends preempted jobs: infill needs them to leave their nodes.
pub fn suspend_decision(site: &SiteFacts) -> Option<PlanStep> {
    let mode = site.setting("PreemptMode");
    if !list_contains(mode, "SUSPEND") && !list_contains(mode, "GANG") {
        return None;
    }
    let host = site.controller();
    Some(PlanStep {
        id: "suspend",
        title: format!("a decision: this site suspends preempted jobs (PreemptMode={mode})"),
        state: StepState::Decision,
        why:
            "A suspended job keeps its GPUs and memory, so infill needs PreemptMode=REQUEUE for its own jobs."
                .to_owned(),
        page: Some("docs/deploy/preemption.md"),
        commands: Vec::new(),
        effect: "It changes how all preemptible jobs of this site are preempted.".into(),
        check: StepCheck {
            command: PlanCommand::root(&host, "scontrol show config | grep PreemptMode"),
            prints: vec!["REQUEUE".to_owned()],
        },
        undo: Vec::new(),
        remains: Vec::new(),
        undo_note: None,
        notes: vec!["The plan goes on once slurm.conf says how preempted jobs leave their nodes.".to_owned()],
    })
}

/// infill's lines in slurm.conf, and their use by slurmctld.
pub fn conf_step(site: &SiteFacts, choices: &DeployChoices) -> PlanStep {
    let host = site.controller();
    let changes = conf_changes(site, choices);
    let is_done = !changes.iter().any(|change| change.is_open) && is_partition_right(site, choices);
    let ConfEdits { run, undo } = conf_edits(site, choices, &changes);
    let as_root = |commands: Vec<String>| -> Vec<PlanCommand> {
        commands.into_iter().map(|c| PlanCommand::root(&host, c)).collect()
    };
    let undo = as_root(undo);
    let is_begun = site.partition(OURS).is_some() || site.text_beside("slurm.conf.infill").is_some();
    let page = match choices.share {
        ShareChoice::Exclusive => "docs/deploy/preemption.md",
        ShareChoice::Gpus => "docs/deploy/sharing.md",
    };
    let step = PlanStep {
        id: "slurm.conf",
        title: "preemption, the partition infill and the plug-in, in slurm.conf".to_owned(),
        state: StepState::known(site.conf.as_ref().map(|_| is_done)),
        why: "Only these lines let main jobs preempt malleable ones. The partition takes in no other jobs."
            .to_owned(),
        page: Some(page),
        commands: as_root(run),
        effect: conf_effect(site, choices, &changes),
        check: conf_check(site, choices),
        remains: if is_begun { undo.clone() } else { Vec::new() },
        undo,
        undo_note: None,
        notes: conf_notes(site, choices, &changes),
    };
    match line_decision(site, &changes).filter(|_| step.state == StepState::Open) {
        Some(why) => {
            PlanStep { state: StepState::Decision, why, commands: Vec::new(), undo: Vec::new(), ..step }
        }
        None => step,
    }
}

/// Whether the partition is as the decisions say. The rest of its line is the site's.
fn is_partition_right(site: &SiteFacts, choices: &DeployChoices) -> bool {
    site.partition(OURS).is_some_and(|ours| {
        let allows_ours = ours.get("AllowQos").is_some_and(|qoses| qoses == OURS);
        allows_ours && is_exclusive(ours) == (choices.share == ShareChoice::Exclusive)
    })
}

/// Why a human must edit a line of the site's own first. Commands can replace only lines with one setting.
fn line_decision(site: &SiteFacts, changes: &[ConfChange]) -> Option<String> {
    if let Some(line) = changes.iter().flat_map(|change| site.lines_that_mix(change.key)).next() {
        return Some(format!("A line has several settings. Write each on a line of its own first: {line}"));
    }
    let is_ours =
        |line: &str| setting_keys(line).len() > 1 && line.trim().starts_with("PartitionName=infill ");
    let file = *site.files_with(is_ours).first()?;
    Some(format!(
        "{file} has a line of partition infill, which Slurm takes once. Change or remove it there first."
    ))
}

/// What the lines do to jobs that run.
fn conf_effect(site: &SiteFacts, choices: &DeployChoices, changes: &[ConfChange]) -> Cow<'static, str> {
    let mut text =
        "None on running jobs. slurmctld and slurmd read their configuration, as after every change of \
                    slurm.conf; submissions wait for a second or two."
            .to_owned();
    let is_open = |key: &str| changes.iter().any(|change| change.key == key && change.is_open);
    let cancelled = is_open("PreemptMode") && list_contains(site.setting("PreemptMode"), "CANCEL");
    if choices.preempt == PreemptChoice::Partition {
        if cancelled {
            text.push_str(
                " Preempted jobs are then queued again, not cancelled. Partitions that shall keep that need \
                 PreemptMode=CANCEL on their lines first.",
            );
        }
        return text.into();
    }
    let kept: Vec<&str> = preempted_by_default(site).iter().map(|qos| qos.name.as_str()).collect();
    if kept.is_empty() || !(cancelled || is_open("PreemptType")) {
        return text.into();
    }
    if is_open("PreemptType") {
        text.push_str(&format!(
            " The Preempt lists of all QOSes take effect, so jobs of {} can be preempted from now on.",
            kept.join(", ")
        ));
    }
    text.push_str(&format!(
        " Preempted jobs of {} are then queued again, not cancelled. To have them cancelled, run first:",
        kept.join(", ")
    ));
    for name in kept {
        text.push_str(&format!(" `sacctmgr -i modify qos {} set preemptmode=cancel`", shell_word(name)));
    }
    text.into()
}

/// QOSes of the site that others may preempt, and whose jobs then fare as PreemptMode of slurm.conf says.
fn preempted_by_default(site: &SiteFacts) -> Vec<&QosRecord> {
    let others: Vec<&QosRecord> =
        site.accounting.qoses.iter().flatten().filter(|qos| qos.name != OURS).collect();
    let follows = |qos: &&&QosRecord| matches!(qos.preempt_mode.to_lowercase().as_str(), "" | "cluster");
    let is_preempted = |qos: &&&QosRecord| others.iter().any(|o| list_contains(&o.preempts, &qos.name));
    others.iter().filter(follows).filter(is_preempted).copied().collect()
}

/// Commands that change the files and let Slurm read them, and the way back.
struct ConfEdits {
    run: Vec<String>,
    undo: Vec<String>,
}

fn conf_edits(site: &SiteFacts, choices: &DeployChoices, changes: &[ConfChange]) -> ConfEdits {
    let conf = shell_word(&site.beside("slurm.conf"));
    let ours = site.beside("slurm.conf.infill");
    let text = site.text_beside("slurm.conf").unwrap_or_default();
    let mut run = vec![write_lines(&conf_lines(site, choices, changes), &ours)];
    let mut undo = vec![EMPTY_PARTITION.to_owned()];
    let mut edited: BTreeSet<&str> = site.files_with(|line| line.starts_with(REPLACED)).into_iter().collect();
    for change in changes {
        for file in site.files_with_key(change.key) {
            let pattern = format!("s/^[[:space:]]*{}[[:space:]]*=/{REPLACED}&/I", change.key);
            run.push(format!("{SED} '{pattern}' {}", shell_word(file)));
            edited.insert(file);
        }
    }
    undo.extend(edited.iter().map(|file| format!("{SED} 's/^{REPLACED}//' {}", shell_word(file))));
    let is_guarded = text.starts_with(UNTOUCHED);
    let is_new_type = changes.iter().any(|change| change.key == "PreemptType" && change.is_open);
    let guards = choices.preempt == PreemptChoice::Partition && is_new_type && !is_guarded;
    if guards {
        run.push(format!("{SED} '1i {UNTOUCHED}' {conf}"));
    }
    if guards || is_guarded {
        undo.push(format!("{SED} '1{{/^{}$/d}}' {conf}", escape_pattern(UNTOUCHED)));
    }
    if !text.lines().any(|line| line.trim() == INCLUDE) {
        run.push(format!("{SED} '$a {INCLUDE}' {conf}"));
    }
    undo.push(format!("{SED} '/^{INCLUDE}$/d' {conf}"));
    undo.push(format!("rm -f {}", shell_word(&ours)));
    if let Some(hosts) = other_hosts(site) {
        let changed = edited.iter().map(|file| (*file).to_owned()).chain([site.beside("slurm.conf")]);
        let mut files: Vec<String> = changed.collect::<BTreeSet<_>>().into_iter().collect();
        undo.push(copy_command(&hosts, &files));
        undo.push(format!("for host in {hosts}; do ssh -n $host rm -f {}; done", shell_word(&ours)));
        files.push(ours);
        run.push(copy_command(&hosts, &files));
    }
    for commands in [&mut run, &mut undo] {
        commands.push("scontrol reconfigure".to_owned());
    }
    ConfEdits { run, undo }
}

fn conf_lines(site: &SiteFacts, choices: &DeployChoices, changes: &[ConfChange]) -> Vec<String> {
    let mut lines = vec![
        "# Lines for infill. slurm.conf includes this file; `infill doctor --plan` wrote it.".to_owned(),
    ];
    lines.extend(changes.iter().map(|change| format!("{}={}", change.key, change.value)));
    lines.push(partition_line(site, choices));
    lines
}

/// The other hosts that have a slurm.conf of their own, as words of a shell.
fn other_hosts(site: &SiteFacts) -> Option<String> {
    let mut hosts = site.host.backups.clone();
    if site.has_other_machines() && !site.is_configless() {
        hosts.push("$(sinfo -hN -o %N | sort -u)".to_owned());
    }
    (!hosts.is_empty()).then(|| hosts.join(" "))
}

fn conf_check(site: &SiteFacts, choices: &DeployChoices) -> StepCheck {
    let mut prints = vec![
        match choices.preempt {
            PreemptChoice::Qos => "preempt/qos",
            PreemptChoice::Partition => "preempt/partition_prio",
        }
        .to_owned(),
        "AllowQos=infill".to_owned(),
    ];
    let mut command = "scontrol show config | grep PreemptType; scontrol show partition infill".to_owned();
    if site.host.has_lua != Some(false) {
        // The plug-in refuses the size: nothing else would say this.
        let bad = match choices.share {
            ShareChoice::Exclusive => "nodes=0",
            ShareChoice::Gpus => "gpus=0",
        };
        command
            .push_str(&format!("; sbatch --test-only -p infill -N1 --comment=infill:{bad} --wrap true 2>&1"));
        prints.push("infill: bad number".to_owned());
    }
    StepCheck { command: PlanCommand::root(&site.controller(), command), prints }
}

fn conf_notes(site: &SiteFacts, choices: &DeployChoices, changes: &[ConfChange]) -> Vec<String> {
    let mut notes = Vec::new();
    if site.files.texts.is_empty() {
        notes.push(format!(
            "{} cannot be read here: delete the lines that set {} there already.",
            site.beside("slurm.conf"),
            changes.iter().map(|change| change.key).collect::<Vec<_>>().join(", ")
        ));
    }
    if other_hosts(site).is_some() {
        notes.push("Copy the files to all hosts in your own way, if you have one.".to_owned());
    }
    notes.extend(site.sharing_note(choices.share));
    let reservations = &site.accounting.reservations;
    let from_now = "From now on, create reservations with `flags=ignore_jobs` (docs/deploy/reservations.md).";
    notes.push(match reservations.len() {
        0 => from_now.to_owned(),
        _ => format!("Infill keeps out of the reservations here: {}. {from_now}", reservations.join(", ")),
    });
    notes.push(
        "If slurmctld does not come back, its log says why; the way back and a start of slurmctld restore the old state."
            .to_owned(),
    );
    notes
}
