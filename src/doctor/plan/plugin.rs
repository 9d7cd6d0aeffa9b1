//! The job submission plug-in, beside slurm.conf: alone, or called from the site's own.

use super::choices::{DeployChoices, ShareChoice};
use super::facts::{OURS, SiteFacts};
use super::step::{PlanCommand, PlanStep, StepCheck, StepState, shell_word};
use crate::doctor::site::partition::is_exclusive;

/// The plug-in of this version.
const PLUGIN: &str = include_str!("../../../slurm/job_submit.lua");
/// The words that show a file to be the plug-in.
const PLUGIN_MARK: &str = "Infill's job submission plug-in";
/// The words that show a job_submit.lua to be the wrapper.
const WRAPPER_MARK: &str = "Written by `infill doctor --plan`";
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
pub const SITE_PLUGIN: &str = "job_submit_site.lua";
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

/// How infill's functions come into job_submit.lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PluginPlace {
    /// job_submit.lua is infill's, or there is none.
    Alone,
    /// The site's job_submit.lua stands alone.
    Unwrapped,
    /// The plan's wrapper calls infill.lua and the site's file.
    Wrapped,
    /// The site's file calls infill.lua by lines that somebody wrote.
    ByHand,
}

fn plugin_place(site: &SiteFacts) -> PluginPlace {
    match site.text_beside("job_submit.lua") {
        None => PluginPlace::Alone,
        Some(text) if text.contains(PLUGIN_MARK) => PluginPlace::Alone,
        Some(text) if text.contains(WRAPPER_MARK) => PluginPlace::Wrapped,
        Some(text) if text.contains("infill.lua") => PluginPlace::ByHand,
        Some(_) => PluginPlace::Unwrapped,
    }
}

/// The path of infill's part.
fn plugin_path(site: &SiteFacts, place: PluginPlace) -> String {
    site.beside(if place == PluginPlace::Alone { "job_submit.lua" } else { "infill.lua" })
}

/// The text of the plug-in that is installed, of whatever version.
fn installed_text(site: &SiteFacts) -> Option<&str> {
    let text = site.files.texts.get(&plugin_path(site, plugin_place(site)))?;
    text.contains(PLUGIN_MARK).then_some(text)
}

/// The decisions with which infill was installed here. `choices` stands in for what nothing shows.
pub fn installed_choices(site: &SiteFacts, choices: DeployChoices) -> DeployChoices {
    let constant = |name: &str| {
        let start = format!("local {name} = \"");
        let value = installed_text(site)?.lines().find_map(|line| line.strip_prefix(&start))?;
        value.split('"').next().map(str::to_owned)
    };
    let by_partition = site
        .partition(OURS)
        .map(|ours| if is_exclusive(ours) { ShareChoice::Exclusive } else { ShareChoice::Gpus });
    let share = match constant("LEND").as_deref() {
        Some("gpus") => ShareChoice::Gpus,
        Some(_) => ShareChoice::Exclusive,
        None => by_partition.unwrap_or(choices.share),
    };
    let made = site.accounting.own_accounts.first().cloned();
    let own_account = constant("ACCOUNT").or(made).or(choices.own_account);
    DeployChoices { share, own_account, ..choices }
}

/// The plug-in, beside slurm.conf.
pub fn plugin_step(site: &SiteFacts, choices: &DeployChoices) -> PlanStep {
    let place = plugin_place(site);
    let file = plugin_path(site, place);
    let wanted = plugin_text(choices.share, choices.own_account.as_deref());
    let is_called = place != PluginPlace::Unwrapped;
    let is_done = is_called && site.files.texts.get(&file).is_some_and(|text| *text == wanted);
    let is_left_out = site.host.has_lua == Some(false);
    let is_there = installed_text(site).is_some();
    let undo = plugin_undo(site, place);
    let remains = match place {
        _ if !is_there => Vec::new(),
        PluginPlace::Unwrapped => on_controllers(site, &[format!("rm -f {}", shell_word(&file))]),
        _ => undo.clone(),
    };
    let why = if place == PluginPlace::Alone {
        "It turns `sbatch -p infill --nodes=1-8` into a held job that infill starts."
    } else {
        "It turns `sbatch -p infill --nodes=1-8` into a held job. Your own job_submit.lua stays."
    };
    PlanStep {
        id: "plugin",
        title: "the job submission plug-in, beside slurm.conf".to_owned(),
        state: StepState::known(Some(is_done || is_left_out)),
        why: why.to_owned(),
        page: None,
        commands: plugin_commands(site, choices, place),
        effect: "None. Jobs of other partitions pass it untouched.".into(),
        check: StepCheck {
            command: PlanCommand::root(&site.controller(), format!("head -n 1 {}", shell_word(&file))),
            prints: vec![PLUGIN_MARK.to_owned()],
        },
        undo: if is_left_out && !is_there { Vec::new() } else { undo },
        remains,
        undo_note: (place == PluginPlace::ByHand).then(|| by_hand_note(site)),
        notes: lua_note(site).into_iter().collect(),
    }
}

fn plugin_commands(site: &SiteFacts, choices: &DeployChoices, place: PluginPlace) -> Vec<PlanCommand> {
    let path = plugin_path(site, place);
    let file = shell_word(&path);
    let submit = shell_word(&site.beside("job_submit.lua"));
    let kept = site.beside(SITE_PLUGIN);
    // slurmctld and all users read the files, whatever root's umask is.
    let mut commands = vec![format!("{} >{file} && chmod 644 {file}", plugin_command(choices))];
    let mut copied = vec![path.clone()];
    match place {
        PluginPlace::Alone => {}
        PluginPlace::Unwrapped => {
            commands.push(format!("cp -p {submit} {}", shell_word(&kept)));
            commands.push(format!(
                "infill doctor --plugin-wrapper >{submit}.new && chmod 644 {submit}.new && mv {submit}.new {submit}"
            ));
            copied.extend([kept, site.beside("job_submit.lua")]);
        }
        // slurmctld watches job_submit.lua alone.
        PluginPlace::Wrapped | PluginPlace::ByHand => commands.push(format!("touch {submit}")),
    }
    if !site.host.backups.is_empty() {
        commands.push(copy_command(&site.host.backups.join(" "), &copied));
    }
    let host = site.controller();
    commands.into_iter().map(|command| PlanCommand::root(&host, command)).collect()
}

/// The way back. Lines that somebody wrote are left to that person, and the file that they load stays.
fn plugin_undo(site: &SiteFacts, place: PluginPlace) -> Vec<PlanCommand> {
    let file = shell_word(&plugin_path(site, place));
    let submit = shell_word(&site.beside("job_submit.lua"));
    let kept = shell_word(&site.beside(SITE_PLUGIN));
    match place {
        PluginPlace::ByHand => Vec::new(),
        PluginPlace::Alone => on_controllers(site, &[format!("rm -f {file}")]),
        PluginPlace::Unwrapped | PluginPlace::Wrapped => on_controllers(
            site,
            &[
                format!("[ ! -e {kept} ] || {{ mv {kept} {submit} && touch {submit}; }}"),
                format!("rm -f {file}"),
            ],
        ),
    }
}

fn by_hand_note(site: &SiteFacts) -> String {
    format!(
        "{} loads infill.lua by lines that somebody wrote: remove the dofile lines first, then {}.",
        site.beside("job_submit.lua"),
        site.beside("infill.lua")
    )
}

fn on_controllers(site: &SiteFacts, commands: &[String]) -> Vec<PlanCommand> {
    let hosts = [site.controller()].into_iter().chain(site.host.backups.iter().cloned());
    hosts.flat_map(|host| commands.iter().map(move |command| PlanCommand::root(&host, command))).collect()
}

/// Copies files to the same paths on other hosts. It goes through a new name, so that a folder that hosts
/// share does not lose the file. Sites with a tool for that use it instead.
pub fn copy_command(hosts: &str, paths: &[String]) -> String {
    let files: Vec<String> = paths.iter().map(|path| shell_word(path)).collect();
    format!(
        "for host in {hosts}; do for file in {}; do scp -p $file $host:$file.new && ssh -n $host \
         \"cp -p $file.new $file && rm $file.new\"; done; done",
        files.join(" ")
    )
}

fn lua_note(site: &SiteFacts) -> Option<String> {
    (site.host.has_lua == Some(false)).then(|| {
        "This Slurm has no job_submit_lua.so, so the plan leaves the plug-in out. Users give the options themselves \
         (slurm/README.md, Without the plug-in)."
            .to_owned()
    })
}
