//! Steps in slurm.conf: the plug-in, the lines for infill, and the configuration that slurmctld reads again.

use std::collections::BTreeSet;

use super::choices::{DeployChoices, PreemptChoice, ShareChoice};
use super::facts::{OURS, SiteFacts};
use super::step::{PlanCommand, PlanStep, StepCheck, StepState, shell_word, write_lines};
use super::toml_lines::escape_pattern;
use crate::doctor::site::list_contains;

/// The plug-in of this version.
const PLUGIN: &str = include_str!("../../../slurm/job_submit.lua");
/// The words that show a file to be the plug-in.
const PLUGIN_MARK: &str = "Infill's job submission plug-in";
/// A job_submit.lua that calls infill's functions and then the site's own.
const WRAPPER: &str = "\
-- Infill's functions first, then the site's own (job_submit_site.lua). Written by `infill doctor --plan`.
local folder = debug.getinfo(1, \"S\").source:match(\"^@(.*/)\") or \"/etc/slurm/\"
dofile(folder .. \"infill.lua\")
local infill_submit, infill_modify = slurm_job_submit, slurm_job_modify
dofile(folder .. \"job_submit_site.lua\")
local site_submit, site_modify = slurm_job_submit, slurm_job_modify

function slurm_job_submit(job, partitions, uid)
   local rc = infill_submit(job, partitions, uid)
   if rc ~= slurm.SUCCESS then return rc end
   return site_submit(job, partitions, uid)
end

function slurm_job_modify(job, record, partitions, uid)
   local rc = infill_modify(job, record, partitions, uid)
   if rc ~= slurm.SUCCESS then return rc end
   return site_modify(job, record, partitions, uid)
end

return slurm.SUCCESS
";
/// The name of the site's own job_submit.lua, once the wrapper has taken its place.
const SITE_PLUGIN: &str = "job_submit_site.lua";
/// The line that brings infill's lines into slurm.conf.
const INCLUDE: &str = "include slurm.conf.infill";
/// Stands before a line of the site that infill's lines replace.
const REPLACED: &str = "#infill# ";
/// The line that keeps partitions of the site from being preempted, where partitions decide.
const UNTOUCHED: &str = "PartitionName=DEFAULT PreemptMode=OFF";

/// The text of job_submit.lua with its constants set.
pub fn plugin_text(share: ShareChoice, own_account: Option<&str>) -> String {
    let mut text = PLUGIN.to_owned();
    if share == ShareChoice::Gpus {
        text = text.replace("local LEND = \"nodes\"", "local LEND = \"gpus\"");
    }
    if let Some(account) = own_account {
        text = text.replace("local ACCOUNT = nil", &format!("local ACCOUNT = \"{account}\""));
    }
    text
}

/// The text of a job_submit.lua that calls infill's functions and the site's.
pub fn wrapper_text() -> &'static str {
    WRAPPER
}

/// The command that prints the plug-in for these choices.
fn plugin_command(choices: &DeployChoices) -> String {
    let mut words = "infill doctor --plugin".to_owned();
    if choices.share == ShareChoice::Gpus {
        words.push_str(" --share gpus");
    }
    if let Some(account) = &choices.own_account {
        words.push_str(&format!(" --own-account {account}"));
    }
    words
}

/// The plug-in, beside slurm.conf.
pub fn plugin_step(site: &SiteFacts, choices: &DeployChoices) -> PlanStep {
    let host = site.controller();
    let wanted = plugin_text(choices.share, choices.own_account.as_deref());
    let submit = site.beside("job_submit.lua");
    let library = site.beside("infill.lua");
    let own = site.text_beside("job_submit.lua").filter(|text| !text.contains(PLUGIN_MARK));
    let is_wrapped = own.is_some_and(|text| text.contains("infill.lua"));
    let mut commands = Vec::new();
    let mut undo = Vec::new();
    let (file, why) = match own {
        None => (&submit, "It turns `sbatch -p infill --nodes=1-8` into a held job that infill starts."),
        Some(_) => (
            &library,
            "It turns `sbatch -p infill --nodes=1-8` into a held job. Your own job_submit.lua stays.",
        ),
    };
    commands.push(format!("{} >{}", plugin_command(choices), shell_word(file)));
    if own.is_some() {
        let kept = shell_word(&site.beside(SITE_PLUGIN));
        let submit = shell_word(&submit);
        if !is_wrapped {
            commands.push(format!("cp -p {submit} {kept}"));
            commands
                .push(format!("infill doctor --plugin-wrapper >{submit}.new && mv {submit}.new {submit}"));
        }
        undo.push(format!("mv {kept} {submit}"));
    }
    undo.push(format!("rm -f {}", shell_word(file)));
    let is_done = site.files.texts.get(file.as_str()).is_some_and(|text| *text == wanted)
        && (own.is_none() || is_wrapped);
    PlanStep {
        id: "plugin",
        title: "the job submission plug-in, beside slurm.conf".to_owned(),
        state: StepState::known(Some(is_done || site.host.has_lua == Some(false))),
        why: why.to_owned(),
        page: None,
        commands: commands.into_iter().map(|c| PlanCommand::root(&host, c)).collect(),
        effect: "None. Jobs of other partitions pass it untouched.",
        check: StepCheck {
            command: PlanCommand::root(&host, format!("head -n 1 {}", shell_word(file))),
            prints: vec![PLUGIN_MARK.to_owned()],
        },
        undo: undo.into_iter().map(|c| PlanCommand::root(&host, c)).collect(),
        notes: lua_note(site).into_iter().collect(),
    }
}

fn lua_note(site: &SiteFacts) -> Option<String> {
    (site.host.has_lua == Some(false)).then(|| {
        "This Slurm has no job_submit_lua.so, so the plan leaves the plug-in out. Users give the options themselves \
         (slurm/README.md, Without the plug-in)."
            .to_owned()
    })
}

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
        effect: "It changes how all preemptible jobs of this site are preempted.",
        check: StepCheck {
            command: PlanCommand::root(&host, "scontrol show config | grep PreemptMode"),
            prints: vec!["REQUEUE".to_owned()],
        },
        undo: Vec::new(),
        notes: vec!["The plan goes on once slurm.conf says how preempted jobs leave their nodes.".to_owned()],
    })
}

/// infill's lines in slurm.conf, and their use by slurmctld.
pub fn conf_step(site: &SiteFacts, choices: &DeployChoices) -> PlanStep {
    let host = site.controller();
    let changes = conf_changes(site, choices);
    let is_done = !changes.iter().any(|change| change.is_open) && site.partition(OURS).is_some();
    let ConfEdits { run, undo } = conf_edits(site, choices, &changes);
    let as_root = |commands: Vec<String>| commands.into_iter().map(|c| PlanCommand::root(&host, c)).collect();
    let page = match choices.share {
        ShareChoice::Exclusive => "docs/deploy/preemption.md",
        ShareChoice::Gpus => "docs/deploy/sharing.md",
    };
    PlanStep {
        id: "slurm.conf",
        title: "preemption, the partition infill and the plug-in, in slurm.conf".to_owned(),
        state: StepState::known(site.conf.as_ref().map(|_| is_done)),
        why: "Only these lines let main jobs preempt malleable ones. The partition takes in no other jobs."
            .to_owned(),
        page: Some(page),
        commands: as_root(run),
        effect: "None on running jobs. slurmctld and slurmd read their configuration, as after every change of \
                 slurm.conf; submissions wait for a second or two.",
        check: conf_check(site, choices),
        undo: as_root(undo),
        notes: conf_notes(site, choices, &changes),
    }
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
    let mut run = vec![write_lines(&conf_lines(site, choices, changes), ">", &ours)];
    let mut undo =
        vec!["scancel -p infill; while squeue -h -p infill | grep -q .; do sleep 1; done".to_owned()];
    let mut edited: BTreeSet<&str> = site.files_with(|line| line.starts_with(REPLACED)).into_iter().collect();
    for change in changes {
        for file in site.files_with_key(change.key) {
            let pattern = format!("s/^[[:space:]]*{}[[:space:]]*=/{REPLACED}&/I", change.key);
            run.push(format!("sed -i '{pattern}' {}", shell_word(file)));
            edited.insert(file);
        }
    }
    undo.extend(edited.iter().map(|file| format!("sed -i 's/^{REPLACED}//' {}", shell_word(file))));
    let is_guarded = text.starts_with(UNTOUCHED);
    let is_new_type = changes.iter().any(|change| change.key == "PreemptType" && change.is_open);
    let guards = choices.preempt == PreemptChoice::Partition && is_new_type && !is_guarded;
    if guards {
        run.push(format!("sed -i '1i {UNTOUCHED}' {conf}"));
    }
    if guards || is_guarded {
        undo.push(format!("sed -i '1{{/^{}$/d}}' {conf}", escape_pattern(UNTOUCHED)));
    }
    if !text.lines().any(|line| line.trim() == INCLUDE) {
        run.push(format!("sed -i '$a {INCLUDE}' {conf}"));
    }
    undo.push(format!("sed -i '/^{INCLUDE}$/d' {conf}"));
    undo.push(format!("rm -f {}", shell_word(&ours)));
    if site.has_other_machines() && !site.is_configless() {
        run.push(copy_command(site, &["slurm.conf", "slurm.conf.infill"]));
        undo.push(copy_command(site, &["slurm.conf"]));
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

/// Copies files of Slurm's folder to all nodes. Sites with a tool for that use it instead.
fn copy_command(site: &SiteFacts, names: &[&str]) -> String {
    let files: Vec<String> = names.iter().map(|name| shell_word(&site.beside(name))).collect();
    format!(
        "for host in $(sinfo -hN -o %N | sort -u); do scp -p {} $host:{}/; done",
        files.join(" "),
        shell_word(&site.files.folder)
    )
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
    if site.has_other_machines() && !site.is_configless() {
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
