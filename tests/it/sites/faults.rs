//! Faults of a site, one at a time: each begins at random and is repaired after a while.

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::harness::jobs::{JobRow, clock, logged_at};
use crate::harness::{Site, processes::Process, site::Relay, wait};

/// Longest wait until Slurm works again after the repair, seconds. slurmctld waits a while for nodes.
const HEAL_SECS: f64 = 90.0;

/// Longest wait until a restarted slurmctld looks for nodes for jobs, seconds.
const SCHEDULES_SECS: f64 = 8.0;

/// Longest search for a job that slurmd has lost, seconds.
const LOST_SECS: f64 = 90.0;

/// Longest until slurmctld has asked every node for the end of its jobs, seconds.
const COMPLETES_SECS: f64 = 65.0;

/// A node reports the end of a job to slurmctld again after this time, seconds.
const RETRY_SECS: f64 = 16.0;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// kill -9 of the daemon.
    DaemonKilled,
    /// The daemon hangs.
    DaemonFrozen,
    /// The daemon's clock is wrong for a while.
    ClockStepped,
    /// kill -9 of slurmctld.
    ControllerKilled,
    /// slurmctld hangs.
    ControllerStalled,
    /// kill -9 of slurmrestd.
    RestKilled,
    /// slurmrestd hangs.
    RestStalled,
    /// A node dies, with all that runs on it.
    NodeKilled,
    /// All of a node hangs.
    NodeStalled,
    /// slurmd dies; jobs run on.
    SlurmdKilled,
    /// kill -9 of an agent.
    AgentKilled,
    /// An agent hangs.
    AgentStopped,
    /// A training command hangs.
    CommandStopped,
    /// Nothing passes between agents and daemon, and connections stay open.
    RelayStalled,
    /// Connections between agents and daemon break.
    RelayKilled,
}

/// Each kind, with its relative frequency and its duration, seconds.
const KINDS: [(Kind, u32, (f64, f64)); 15] = [
    (Kind::DaemonKilled, 3, (1.0, 12.0)),
    (Kind::DaemonFrozen, 3, (2.0, 70.0)),
    (Kind::ClockStepped, 2, (5.0, 12.0)),
    (Kind::ControllerKilled, 2, (2.0, 6.0)),
    (Kind::ControllerStalled, 2, (2.0, 8.0)),
    (Kind::RestKilled, 3, (2.0, 10.0)),
    (Kind::RestStalled, 3, (2.0, 20.0)),
    (Kind::NodeKilled, 2, (12.0, 20.0)),
    (Kind::NodeStalled, 2, (2.0, 8.0)),
    (Kind::SlurmdKilled, 2, (2.0, 8.0)),
    (Kind::AgentKilled, 3, (1.0, 1.0)),
    (Kind::AgentStopped, 2, (2.0, 12.0)),
    (Kind::CommandStopped, 2, (2.0, 10.0)),
    (Kind::RelayStalled, 3, (2.0, 70.0)),
    (Kind::RelayKilled, 2, (2.0, 10.0)),
];

impl Kind {
    /// Whether a main job would wait for this fault without infill too. For a hung agent it waits until the
    /// end of the site's grace time. No main job is submitted meanwhile.
    pub fn delays_anybody(self) -> bool {
        use Kind::*;
        matches!(
            self,
            ControllerKilled | ControllerStalled | NodeKilled | NodeStalled | SlurmdKilled | AgentStopped
        )
    }

    /// What is broken, for the table of main jobs' delays.
    pub fn case(self) -> &'static str {
        use Kind::*;
        match self {
            DaemonKilled | DaemonFrozen | ClockStepped => "daemon killed, hung, or with a wrong clock",
            RelayStalled | RelayKilled => "network to the daemon away",
            RestKilled | RestStalled => "slurmrestd killed or hung",
            AgentKilled => "agent killed",
            CommandStopped => "training command hung",
            ControllerKilled | ControllerStalled | NodeKilled | NodeStalled | SlurmdKilled | AgentStopped => {
                "Slurm or a node just back"
            }
        }
    }

    /// Whether Slurm may find that a node that has just come back cannot start a job.
    pub fn breaks_nodes(self) -> bool {
        matches!(self, Kind::NodeKilled | Kind::NodeStalled | Kind::SlurmdKilled)
    }

    /// Whether this fault may end a command before it has saved.
    pub fn takes_work(self) -> bool {
        use Kind::*;
        matches!(self, NodeKilled | NodeStalled | AgentKilled | AgentStopped | CommandStopped)
    }
}

/// A fault that lasts.
pub struct Fault {
    /// What it is.
    pub kind: Kind,
    /// When it began.
    begun: f64,
    /// When to repair it.
    pub until: f64,
    victim: Victim,
}

/// A fault that is over, for the search of causes.
pub struct Past {
    /// What it was.
    pub kind: Kind,
    /// When it began, by `clock`.
    pub begun: f64,
    /// When the repair began, and when Slurm worked again, by `clock`.
    pub repaired: (f64, f64),
    /// The victim, as text.
    pub victim: String,
}

impl Past {
    /// Shows the fault beside a moment: its kind, and three times in seconds from that moment (negative
    /// before it). These are its begin, the begin of the repair, and when Slurm worked again.
    pub fn seen_at(&self, at: f64) -> String {
        let repairing = self.repaired.0 - at;
        let whole = self.repaired.1 - at;
        let begun = self.begun - at;
        format!(
            "{:?}{} from {begun:+.1} to {repairing:+.1} s, whole at {whole:+.1} s",
            self.kind, self.victim
        )
    }
}

enum Victim {
    None,
    Daemon(String),
    Process(Process),
}

/// Begins a fault, if it finds a victim. `longest`: no fault lasts longer, seconds.
pub fn begin(site: &Site, relay: &Relay, random: &mut StdRng, longest: f64) -> Option<Fault> {
    let (kind, _, (from, to)) = choose(random);
    let to = to.min(longest).max(from);
    let secs = if to > from { random.random_range(from..to) } else { from };
    let begun = clock();
    let victim = hurt(site, relay, kind, random)?;
    eprintln!("fault: {kind:?} for {secs:.0} s{}", victim.text());
    Some(Fault { kind, begun, until: clock() + secs, victim })
}

fn choose(random: &mut StdRng) -> (Kind, u32, (f64, f64)) {
    let mut pick = random.random_range(0..KINDS.iter().map(|(_, weight, _)| weight).sum());
    for entry in KINDS {
        if pick < entry.1 {
            return entry;
        }
        pick -= entry.1;
    }
    KINDS[0]
}

fn hurt(site: &Site, relay: &Relay, kind: Kind, random: &mut StdRng) -> Option<Victim> {
    let kill = |name: String| {
        site.kill(&name);
        Some(Victim::Daemon(name))
    };
    let stall = |name: String| {
        site.stall(&name);
        Some(Victim::Daemon(name))
    };
    match kind {
        Kind::DaemonKilled => {
            site.kill_daemon();
            Some(Victim::None)
        }
        Kind::DaemonFrozen => {
            site.freeze_daemon();
            Some(Victim::None)
        }
        Kind::ClockStepped => {
            let secs = random.random_range(5..90) * if random.random_bool(0.5) { 1 } else { -1 };
            site.step_clock(secs);
            Some(Victim::None)
        }
        // A slurmctld that always has unsaved changes is not killed.
        Kind::ControllerKilled => site.kill_slurmctld().then(|| Victim::Daemon("slurmctld".to_owned())),
        Kind::ControllerStalled => stall("slurmctld".to_owned()),
        Kind::RestKilled => kill("slurmrestd".to_owned()),
        Kind::RestStalled => stall("slurmrestd".to_owned()),
        Kind::NodeKilled => kill(format!("node:{}", free_of_main(site, random)?)),
        Kind::NodeStalled => stall(format!("node:{}", free_of_main(site, random)?)),
        Kind::SlurmdKilled => kill(format!("slurmd:{}", free_of_main(site, random)?)),
        Kind::RelayStalled => stall(relay.name.clone()),
        Kind::RelayKilled => kill(relay.name.clone()),
        Kind::AgentKilled => {
            let agent = one_of(site, random, is_agent)?;
            agent.kill();
            Some(Victim::Process(agent))
        }
        Kind::AgentStopped => stopped(one_of(site, random, is_agent)?),
        Kind::CommandStopped => stopped(one_of(site, random, is_command)?),
    }
}

fn stopped(process: Process) -> Option<Victim> {
    process.signal(libc::SIGSTOP);
    Some(Victim::Process(process))
}

/// A node without a main job: a loss of a main job with its node is not infill's fault.
fn free_of_main(site: &Site, random: &mut StdRng) -> Option<String> {
    let queue = site.queue();
    let taken = |n: &String| queue.iter().any(|j| j.partition != "infill" && j.nodes.contains(n));
    let up = site.run("root", &["sinfo", "-h", "-N", "-p", "infill", "-t", "idle,alloc", "-o", "%N %T"]);
    let up =
        up.lines().filter_map(|l| l.split_once(' ')).filter(|(_, state)| !state.ends_with(['~', '#', '%']));
    let nodes: Vec<String> = up.map(|(n, _)| n.to_owned()).filter(|n| !taken(n)).collect();
    (!nodes.is_empty()).then(|| nodes[random.random_range(0..nodes.len())].clone())
}

fn is_agent(p: &Process) -> bool {
    p.name == "infill" && p.node().is_some() && p.args.iter().any(|a| a == "worker" || a == "--in-step")
}

fn is_command(p: &Process) -> bool {
    p.runs("trainee.py") || p.runs("trainee_live.py")
}

/// Processes of malleable jobs. None may be left at the end.
pub fn leftovers(site: &Site) -> Vec<Process> {
    site.processes().into_iter().filter(|p| is_agent(p) || is_command(p)).collect()
}

fn one_of(site: &Site, random: &mut StdRng, kind: impl Fn(&Process) -> bool) -> Option<Process> {
    let mut found: Vec<Process> = site.processes().into_iter().filter(|p| kind(p)).collect();
    // Sorted by properties that do not change from run to run.
    found.sort_by_key(|p| p.node().map(str::to_owned));
    (!found.is_empty()).then(|| found.swap_remove(random.random_range(0..found.len())))
}

impl Victim {
    /// The affected node, if the victim was a node.
    fn node(&self) -> Option<&str> {
        match self {
            Victim::Daemon(name) => name.strip_prefix("node:").or_else(|| name.strip_prefix("slurmd:")),
            Victim::None | Victim::Process(_) => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Victim::None => String::new(),
            Victim::Daemon(name) => format!(", {name}"),
            Victim::Process(p) => format!(", {} on {}", p.name, p.node().unwrap_or("?")),
        }
    }
}

/// Repairs it, and waits until Slurm works again.
pub fn end(site: &Site, fault: &Fault) -> Past {
    let repairing = clock();
    repair(site, fault);
    let repaired = (repairing, clock());
    Past { kind: fault.kind, begun: fault.begun, repaired, victim: fault.victim.text() }
}

fn repair(site: &Site, fault: &Fault) {
    match (&fault.kind, &fault.victim) {
        (Kind::DaemonKilled, _) => site.start(),
        (Kind::DaemonFrozen, _) => site.thaw_daemon(),
        (Kind::ClockStepped, _) => site.step_clock(0),
        (
            Kind::ControllerStalled | Kind::RestStalled | Kind::NodeStalled | Kind::RelayStalled,
            Victim::Daemon(name),
        ) => {
            site.resume(name);
        }
        (Kind::AgentStopped | Kind::CommandStopped, Victim::Process(p)) => p.signal(libc::SIGCONT),
        (Kind::AgentKilled, _) => {}
        (_, Victim::Daemon(name)) => site.revive(name),
        (_, _) => {}
    }
    if fault.kind.delays_anybody() {
        let healed = wait::look(HEAL_SECS, || whole(site, fault.victim.node()).then_some(()));
        assert!(healed.is_some(), "Slurm is not whole again {HEAL_SECS} s after {:?}", fault.kind);
    }
    if matches!(fault.kind, Kind::ControllerKilled | Kind::ControllerStalled) {
        // If it does not look for this long, it will not look at all.
        let _ = wait::look(SCHEDULES_SECS, || schedules(site).then_some(()));
        let _ = wait::look(RETRY_SECS + 5.0, || (!is_retrying(site)).then_some(()));
        // It asks the node once in a minute about a job whose end it heard of and forgot.
        let _ = wait::look(COMPLETES_SECS, || (!completes(site)).then_some(()));
    }
    let node = fault.victim.node();
    // slurmctld may die after recording where a job is and before it notifies the nodes.
    if fault.kind == Kind::ControllerKilled || fault.kind == Kind::SlurmdKilled && node.is_some() {
        let _ = wait::look(LOST_SECS, || (!has_lost_a_job(site, node)).then_some(()));
    }
}

/// Whether Slurm shows a job of ours on a node, this one or any, on which nothing of it runs. Its slurmd has
/// died in the prolog and does not start the job any more, or was never notified. The node then gets no
/// preemption, so a main job would wait until the end of the site's grace time.
fn has_lost_a_job(site: &Site, only: Option<&str>) -> bool {
    let processes = site.processes();
    let runs = |job: &JobRow, node: &str| {
        let id = job.id.to_string();
        processes.iter().any(|p| p.node() == Some(node) && p.env.get("SLURM_JOB_ID") == Some(&id))
    };
    site.queue().iter().any(|job| {
        let mut nodes = job.nodes.iter().filter(|node| only.is_none_or(|only| only == node.as_str()));
        job.partition == "infill" && job.runs() && nodes.any(|node| !runs(job, node))
    })
}

/// Whether any node waits for the end of a job.
fn completes(site: &Site) -> bool {
    !site.run("root", &["sinfo", "-h", "-N", "-t", "completing", "-o", "%N"]).trim().is_empty()
}

/// Whether slurmctld has looked for nodes for waiting jobs since it was started. At first it waits for its
/// nodes.
fn schedules(site: &Site) -> bool {
    let said = site.run("root", &["sdiag"]);
    let cycles =
        said.lines().filter_map(|l| l.trim().strip_prefix("Total cycles:")?.trim().parse::<u64>().ok());
    cycles.min().is_some_and(|least| least > 0)
}

/// Whether a node still has a job whose end slurmctld did not hear while it hung. The node reports it again
/// after 15 s, and is only free then.
fn is_retrying(site: &Site) -> bool {
    let logs = std::fs::read_dir(site.cluster().dir.join("log")).into_iter().flatten().flatten();
    let logs = logs.map(|e| e.path()).filter(|p| p.to_string_lossy().contains("slurmd:"));
    let texts = logs.filter_map(|path| std::fs::read_to_string(path).ok());
    texts.into_iter().any(|text| retries(&text, clock()))
}

/// As above, in the log of one node.
fn retries(log: &str, now: f64) -> bool {
    let is_young = |line: &str| logged_at(line).is_some_and(|at| now - at < RETRY_SECS);
    let Some(last) = log.lines().rfind(|line| line.contains("Retrying job complete RPC")) else {
        return false;
    };
    let step = last.split("] ").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("no step");
    is_young(last)
        && !log
            .lines()
            .rev()
            .take_while(|line| *line != last)
            .any(|line| line.contains(step) && line.contains("done with step"))
}

#[test]
fn a_node_retries_until_its_step_is_done() {
    let said =
        "[2026-11-23T11:58:57.146] [43.batch] Retrying job complete RPC for StepId=43.batch [sleeping 15s]\n";
    let at = |secs: u32| logged_at(&format!("[2026-11-23T11:59:{secs:02}.000] ")).expect("a time");
    assert!(retries(said, at(5)));
    assert!(!retries(said, at(20)), "it was long ago");
    let done = format!("{said}[2026-11-23T11:59:02.149] [43.batch] done with step\n");
    assert!(!retries(&done, at(5)));
    assert!(!retries("", at(5)));
}

/// Whether slurmctld answers, no node is down, and the dead node has finished its jobs. (A node that came
/// back may have to be resumed by hand.)
///
/// If slurmctld did not hear of a job's end at first, it notifies the node once in a minute. The job shows as
/// COMPLETING for that time, and no command makes it try sooner.
fn whole(site: &Site, died: Option<&str>) -> bool {
    let states = site.run("root", &["sinfo", "-h", "-N", "-p", "main", "-o", "%T %N"]);
    let nodes: Vec<(&str, &str)> = states.lines().filter_map(|line| line.split_once(' ')).collect();
    let bad = ["down", "drained", "draining", "fail", "unknown"];
    let is_ill = |state: &str| state.contains('*') || bad.iter().any(|b| state.starts_with(b));
    let ill: Vec<_> = nodes.iter().filter(|(state, _)| is_ill(state)).collect();
    // A slurmctld that has not heard of a node yet refuses to resume it.
    for (_, node) in ill.iter().filter(|(state, _)| !state.starts_with("unknown")) {
        site.run("root", &["scontrol", "update", &format!("node={node}"), "state=resume"]);
    }
    let completes = nodes.iter().any(|(state, node)| state.starts_with("comp") && died == Some(node));
    !nodes.is_empty() && ill.is_empty() && !completes
}
