//! Steps on the daemon's host: the packages, infill.toml, the services, and the first nodes.

use super::choices::{DeployChoices, ShareChoice};
use super::facts::SiteFacts;
use super::step::{PlanCommand, PlanStep, StepCheck, StepState, shell_word};
use super::toml_lines::{TomlCommands, TomlFile, TomlSetting};
use infill_model::DaemonMode;

/// The host on which the plan is made becomes the daemon's.
const HERE: &str = "this machine";
/// The port of the daemon.
const PORT: u16 = 6810;
/// The path of slurmrestd in the unit.
const SLURMRESTD: &str = "/usr/sbin/slurmrestd";
/// The folder of the site's changes to the unit.
const DROP_IN: &str = "/etc/systemd/system/infill-slurmrestd.service.d";
/// The socket of infill's own slurmrestd.
const SOCKET: &str = "/run/infill/slurmrestd.sock";

/// The steps in this order.
pub fn daemon_steps(site: &SiteFacts, choices: &DeployChoices) -> Vec<PlanStep> {
    let mut steps = Vec::new();
    if site.host.has_systemd {
        steps.push(package_step(site));
    }
    let mut file = TomlFile::new(&site.daemon.path, site.daemon.text.as_deref());
    steps.push(config_step(site, choices, &mut file));
    steps.push(start_step(site));
    steps.push(act_step(site, choices, &mut file));
    steps.push(job_step(site, choices));
    steps.push(widen_step(site, choices, &mut file));
    steps
}

fn here(command: impl Into<String>) -> PlanCommand {
    PlanCommand::root(HERE, command)
}

fn all_here(commands: Vec<String>) -> Vec<PlanCommand> {
    commands.into_iter().map(here).collect()
}

fn package_step(site: &SiteFacts) -> PlanStep {
    let is_debian = std::path::Path::new("/etc/debian_version").exists();
    let (install, remove) = if is_debian {
        ("apt install ./infill_*.deb ./infill-daemon_*.deb", "apt purge infill-daemon infill")
    } else {
        ("dnf install ./infill-*.rpm", "dnf remove infill-daemon infill")
    };
    let mut notes = Vec::new();
    if site.has_other_machines() {
        notes.push(
            "Nodes and login nodes need only the package infill (contrib/ansible installs both).".to_owned(),
        );
    }
    PlanStep {
        id: "packages",
        title: "the units of infill".to_owned(),
        state: StepState::known(Some(site.host.has_units)),
        why: "The package infill-daemon has the units and infill.toml; it starts nothing.".to_owned(),
        page: None,
        commands: vec![here(install)],
        effect: "None.".into(),
        check: StepCheck { command: here("systemctl cat infill"), prints: vec!["infill serve".to_owned()] },
        undo: vec![here(remove)],
        remains: Vec::new(),
        undo_note: None,
        notes,
    }
}

/// Whether nothing says on which nodes infill shall begin. Without nodes it would act on all.
fn lacks_canary(site: &SiteFacts, choices: &DeployChoices) -> bool {
    choices.canary.is_empty() && !site.is_wide()
}

/// The same step, without commands, until somebody has named the first nodes.
fn canary_decision(step: PlanStep) -> PlanStep {
    PlanStep {
        state: StepState::Decision,
        why: "No node works now, or Slurm does not show its nodes: choose --canary. Without first nodes infill \
              would use all."
            .to_owned(),
        commands: Vec::new(),
        undo: Vec::new(),
        ..step
    }
}

fn config_step(site: &SiteFacts, choices: &DeployChoices, file: &mut TomlFile) -> PlanStep {
    let step = config_step_for(site, choices, file);
    if !lacks_canary(site, choices) {
        return step;
    }
    let check = StepCheck { prints: Vec::new(), ..step.check.clone() };
    canary_decision(PlanStep { title: "infill.toml, with the first nodes".to_owned(), check, ..step })
}

fn config_step_for(site: &SiteFacts, choices: &DeployChoices, file: &mut TomlFile) -> PlanStep {
    let config = &site.daemon.config;
    let listen = format!("\"0.0.0.0:{PORT}\"");
    let url = format!("\"http://{}:{PORT}\"", site.host.name);
    let canary = format!("\"{}\"", choices.canary);
    let mut settings = Vec::new();
    let is_local = |text: &str| text.contains("127.0.0.1") || text.contains("localhost");
    if site.has_other_machines() && is_local(&config.daemon.listen) {
        settings.push(TomlSetting { table: "daemon", key: "listen", value: &listen });
    }
    if site.has_other_machines() && is_local(&config.agent.url) {
        settings.push(TomlSetting { table: "agent", key: "url", value: &url });
    }
    if choices.share == ShareChoice::Gpus && config.gaps.lend != infill_model::LendingMode::Gpus {
        settings.push(TomlSetting { table: "gaps", key: "lend", value: "\"gpus\"" });
    }
    let remains = config_undo(site, file);
    // A pilot that is over is not begun again: no canary means all nodes here.
    if config.safety.nodes != choices.canary {
        settings.push(TomlSetting { table: "safety", key: "nodes", value: &canary });
    }
    let is_done = settings.is_empty();
    file.set_all(&settings);
    let TomlCommands { mut run, mut undo } = file.take();
    if is_done {
        undo.clone_from(&remains);
    }
    let mut notes = Vec::new();
    if site.has_other_machines() {
        let path = shell_word(&site.daemon.path);
        run.push(format!(
            "for host in $(sinfo -hN -o %N | sort -u); do ssh -n $host mkdir -p -m 755 /etc/infill; scp -p {path} $host:{path}; done"
        ));
        notes.push(format!(
            "Nodes and login nodes must reach port {PORT} of this machine, and have the same infill.toml and the program."
        ));
    }
    let title = if choices.canary.is_empty() {
        "infill.toml, with all nodes".to_owned()
    } else {
        format!("infill.toml, with {} as the only nodes", choices.canary)
    };
    PlanStep {
        id: "config",
        title,
        state: StepState::known(Some(is_done)),
        why: "The daemon observes all nodes, and may use only these.".to_owned(),
        page: Some("docs/deploy/pilot.md"),
        commands: all_here(run),
        effect: "None. It takes effect when the daemon starts.".into(),
        check: StepCheck {
            command: here("infill config show"),
            prints: vec![format!("nodes = \"{}\"", choices.canary)],
        },
        undo: all_here(undo),
        remains: all_here(remains),
        undo_note: None,
        notes,
    }
}

/// The keys that the plan sets.
const OUR_KEYS: [&str; 5] = ["listen", "url", "lend", "nodes", "mode"];

/// The way back from a finished file: what it said before is not known any more.
fn config_undo(site: &SiteFacts, file: &TomlFile) -> Vec<String> {
    let Some(text) = site.daemon.text.as_deref() else { return Vec::new() };
    let mut keys = text.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim());
    if keys.all(|key| OUR_KEYS.contains(&key)) && !text.contains('#') {
        return file.removal();
    }
    if site.daemon.config.safety.nodes.is_empty() {
        return Vec::new();
    }
    let mut wide = file.clone();
    wide.set_all(&[TomlSetting { table: "safety", key: "nodes", value: "\"\"" }]);
    wide.take().run
}

fn start_step(site: &SiteFacts) -> PlanStep {
    let mut undo = stop_commands(site);
    if has_other_path(site) {
        undo.push(format!("rm -rf {DROP_IN}"));
    }
    let mut notes = Vec::new();
    if !site.host.has_systemd {
        undo.push("rm -rf /run/infill /var/lib/infill".to_owned());
        notes.push(
            "There is no systemd here. Let what supervises your services run the two programs instead."
                .to_owned(),
        );
    }
    PlanStep {
        id: "start",
        title: "the daemon and its slurmrestd, which observe".to_owned(),
        state: StepState::known(Some(site.daemon.mode.is_some())),
        why: "infill asks Slurm through a slurmrestd of its own, on a socket that only user infill can open."
            .to_owned(),
        page: None,
        commands: all_here(start_commands(site)),
        effect: "None. The daemon observes and changes nothing.".into(),
        check: StepCheck {
            command: here("runuser -u infill -- infill doctor"),
            prints: vec!["errors: 0".to_owned(), "infill is Operator".to_owned()],
        },
        undo: all_here(undo),
        remains: Vec::new(),
        undo_note: None,
        notes,
    }
}

fn has_other_path(site: &SiteFacts) -> bool {
    site.host.has_systemd && site.host.slurmrestd.as_deref().is_some_and(|path| path != SLURMRESTD)
}

fn start_commands(site: &SiteFacts) -> Vec<String> {
    let slurmrestd = site.host.slurmrestd.as_deref().unwrap_or(SLURMRESTD);
    let words = format!("{slurmrestd} -t 2 -s openapi/slurmctld -a rest_auth/local unix:{SOCKET}");
    if !site.host.has_systemd {
        return vec![
            "install -d -o infill -g infill -m 0750 /run/infill /var/lib/infill".to_owned(),
            background("slurmrestd", &format!("env MALLOC_ARENA_MAX=1 {words}")),
            background("daemon", "infill serve"),
        ];
    }
    let mut commands = Vec::new();
    if has_other_path(site) {
        commands.push(format!(
            "mkdir -p -m 755 {DROP_IN} && printf '%s\\n' '[Service]' ExecStart= 'ExecStart={words}' >{DROP_IN}/path.conf"
        ));
    }
    commands.push("systemctl daemon-reload".to_owned());
    commands.push("systemctl enable --now infill-slurmrestd infill".to_owned());
    commands
}

/// Starts a program of user infill that outlives the shell. Its pid and its log have the same name.
/// User infill writes both: in that user's folder, root would follow links to anywhere.
fn background(name: &str, words: &str) -> String {
    format!(
        "setsid -f runuser -u infill -- sh -c 'echo $$ >/run/infill/{name}.pid; \
         exec {words} >>/run/infill/{name}.log 2>&1' </dev/null >/dev/null 2>&1; \
         timeout 30 sh -c 'until [ -s /run/infill/{name}.pid ]; do sleep 0.1; done'"
    )
}

/// Ends the program of that pid, as its user, which can end nothing of others. Waits for its end.
fn stop_background(name: &str) -> String {
    format!(
        "runuser -u infill -- timeout 120 sh -c 'pid=$(cat /run/infill/{name}.pid) && kill \"$pid\" && \
         while kill -0 \"$pid\" 2>/dev/null; do sleep 0.2; done; rm -f /run/infill/{name}.pid'"
    )
}

fn stop_commands(site: &SiteFacts) -> Vec<String> {
    if site.host.has_systemd {
        return vec!["systemctl disable --now infill.socket infill infill-slurmrestd".to_owned()];
    }
    vec![stop_background("daemon"), stop_background("slurmrestd")]
}

/// The daemon reads its configuration when it starts.
fn restart_commands(site: &SiteFacts) -> Vec<String> {
    if site.host.has_systemd {
        return vec!["systemctl restart infill".to_owned()];
    }
    vec![stop_background("daemon"), background("daemon", "infill serve")]
}

fn act_step(site: &SiteFacts, choices: &DeployChoices, file: &mut TomlFile) -> PlanStep {
    let step = act_step_for(site, file);
    let is_acting = step.state == StepState::Done;
    if is_acting || !lacks_canary(site, choices) { step } else { canary_decision(step) }
}

fn act_step_for(site: &SiteFacts, file: &mut TomlFile) -> PlanStep {
    file.set_all(&[TomlSetting { table: "daemon", key: "mode", value: "\"act\"" }]);
    let TomlCommands { mut run, mut undo } = file.take();
    if site.daemon.config.daemon.mode == DaemonMode::Act {
        let mut observing = file.clone();
        observing.set_all(&[TomlSetting { table: "daemon", key: "mode", value: "\"observe\"" }]);
        undo = observing.take().run;
    }
    run.extend(restart_commands(site));
    undo.extend(restart_commands(site));
    undo.insert(0, "infill drain; scancel -p infill".to_owned());
    let mut notes = vec!["`infill pause` and `infill drain` stop it at once (docs/emergency.md).".to_owned()];
    if site.daemon.is_stopped {
        // Such an order survives a restart: the way back of this step gives one.
        run.insert(0, "infill resume".to_owned());
        notes.push("An order to pause or drain is in force. `infill resume` ends it.".to_owned());
    }
    PlanStep {
        id: "act",
        title: "mode act, on the canary nodes".to_owned(),
        state: StepState::known(Some(site.daemon.mode == Some(DaemonMode::Act))),
        why: "From now on infill starts malleable jobs, on these nodes alone.".to_owned(),
        page: Some("docs/deploy/pilot.md"),
        commands: all_here(run),
        effect: "None. Main jobs preempt malleable jobs on these nodes.".into(),
        check: StepCheck {
            command: here("infill status --json"),
            prints: vec!["\"mode\": \"act\"".to_owned()],
        },
        undo: all_here(undo),
        remains: Vec::new(),
        undo_note: None,
        notes,
    }
}

fn job_step(site: &SiteFacts, choices: &DeployChoices) -> PlanStep {
    let size = match choices.share {
        ShareChoice::Exclusive => "--nodes=1-2",
        ShareChoice::Gpus => "--comment=infill:gpus=1-2",
    };
    let job = format!(
        "cd /tmp && sbatch -p infill {size} --time=10 --output=/dev/null --job-name=infill-trial --wrap 'infill run -- sleep 300'"
    );
    let anyone = "any login node";
    let host = if site.has_other_machines() { anyone } else { HERE };
    PlanStep {
        id: "job",
        title: "a test job on the canary nodes".to_owned(),
        state: StepState::known(site.accounting.had_jobs),
        why: "One malleable job shows that all parts work together.".to_owned(),
        page: Some("docs/deploy/pilot.md"),
        commands: vec![PlanCommand::user(host, job)],
        effect: "None. It waits, held, until its nodes are idle.".into(),
        check: StepCheck {
            command: PlanCommand::root(&site.controller(), "squeue -h -p infill -t R -o 'runs on %N'"),
            prints: vec!["runs on ".to_owned()],
        },
        undo: vec![PlanCommand::root(&site.controller(), "scancel -p infill --name=infill-trial")],
        remains: Vec::new(),
        undo_note: None,
        notes: Vec::new(),
    }
}

fn widen_step(site: &SiteFacts, choices: &DeployChoices, file: &mut TomlFile) -> PlanStep {
    file.set_all(&[TomlSetting { table: "safety", key: "nodes", value: "\"\"" }]);
    let TomlCommands { mut run, mut undo } = file.take();
    let is_wide = site.daemon.mode == Some(DaemonMode::Act) && site.daemon.config.safety.nodes.is_empty();
    if is_wide {
        undo.clear();
    } else {
        undo.extend(restart_commands(site));
    }
    run.extend(restart_commands(site));
    let first = if choices.canary.is_empty() { "The first nodes" } else { &choices.canary };
    PlanStep {
        id: "widen",
        title: "more nodes: a rack, a tenth, then all".to_owned(),
        state: if is_wide { StepState::Done } else { StepState::Later },
        why: format!("{first} come first, and the next nodes once the pilot's criteria are met."),
        page: Some("docs/deploy/pilot.md"),
        commands: all_here(run),
        effect: "None. Malleable jobs may then run on all nodes.".into(),
        check: StepCheck { command: here("infill nodes"), prints: Vec::new() },
        undo: all_here(undo),
        remains: Vec::new(),
        undo_note: is_wide
            .then(|| "To narrow it again, name nodes in infill.toml (safety.nodes).".to_owned()),
        notes: vec!["For a rack, write its nodes instead of \"\".".to_owned()],
    }
}
