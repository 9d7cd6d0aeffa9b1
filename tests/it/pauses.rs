//! Measures how long a training pauses when its size changes, with real PyTorch, and shows a table.
//!
//! A pause lasts from the last step before a change to the first one after it, less a usual step, in the
//! training's own log. `tests/run.sh --pauses` runs it.
//!
//! | variable | default | what it does |
//! |---|---|---|
//! | `INFILL_PAUSES` | 20 | changes that are asked for, of each kind |
//! | `INFILL_PAUSES_FAULTS` | 20 | losses, of each kind |
//! | `INFILL_PAUSES_ONLY` | all parts | parts with this in their name: `small`, `large killed`, `restart` |
//! | `INFILL_PAUSES_JSON` | `target/pauses.json` | where all of them go |

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::harness::jobs::clock;
use crate::harness::{Site, Slurm, Train, processes::Process};
use crate::sites::{self, write_summary};

/// Nodes of the cluster. The training may have all of them.
const NODES: usize = 4;

/// Shortest time of a step, seconds.
const STEP_SECS: f64 = 0.2;

/// Newcomers warm up for about this time before they join, seconds. The time is shorter if the nodes join a
/// younger membership.
const WARM_SECS: f64 = 4.0;

/// Number of losses of a training. Then a new training on a new cluster takes over, because a node on which
/// the command failed is avoided for longer each time.
const LOSSES_EACH: usize = 6;

/// Time limit for a change, including all of Slurm's work, seconds.
const CHANGE_SECS: f64 = 150.0;

/// A network, by the width of its middle layer. It has about the square of the width in parameters.
#[derive(Clone, Copy)]
struct Model {
    name: &'static str,
    width: usize,
    /// Steps at one size before the next change.
    steps_between: u64,
}

const SMALL: Model = Model { name: "small", width: 64, steps_between: 15 };
const LARGE: Model = Model { name: "25 M parameters", width: 5000, steps_between: 5 };

/// The reason for a change of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// The planner gives it a node.
    Grow,
    /// The planner takes a node.
    Shrink,
    /// A main job takes the node of a wing.
    Preempted,
    /// A main job takes the lead's node.
    LeadLost,
    /// kill -9 of the command of a wing.
    Killed,
    /// SIGSTOP of the command of a wing.
    Stopped,
    /// The node of a wing dies.
    NodeDied,
}

/// One change.
#[derive(Clone, Debug, Serialize)]
struct Change {
    model: &'static str,
    live: bool,
    kind: Kind,
    /// Seconds without a step, less a usual one.
    pause_secs: f64,
    /// The median of the steps before, seconds.
    step_secs: f64,
    /// Steps that were made again.
    lost: u64,
    /// Steps made while newcomers warmed up, as a share of the usual ones, if there were newcomers.
    while_warming: Option<f64>,
    /// Seconds from the submission of the main job to its start, if there was one.
    main_secs: Option<f64>,
}

/// A line of the log of `examples/train_live.py`.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    step: u64,
    world: usize,
    membership: u64,
    generation: u64,
    time: f64,
}

impl Line {
    fn place(&self) -> (u64, u64) {
        (self.generation, self.membership)
    }
}

/// A line of its trace.
#[derive(Debug, Deserialize)]
struct Traced {
    membership: u64,
    pid: u32,
    node: String,
}

/// The training under test, on a separate cluster.
struct Subject {
    site: Site,
    job: u32,
    model: Model,
    live: bool,
    changes: Vec<Change>,
}

fn times(name: &str) -> usize {
    sites::number(name).unwrap_or(20) as usize
}

impl Subject {
    fn start(model: Model, live: bool) -> Subject {
        let site = Site::on(&Slurm::default().nodes(NODES), |s| s.set("agent.preempt_leave_secs", 2.5));
        // Without the agent's socket it restarts, as any other program. Its steps take equally long on any
        // number of nodes, so its reports would say that further nodes are worth nothing.
        let way = if live { "env -u INFILL_PROGRESS" } else { "env -u INFILL_PROGRESS -u INFILL_CONTROL" };
        let script = format!(
            "cd /scratch\n infill run --grace 20 --curve 1:10,2:19,3:27,4:35 -- {way} \
             python3 /opt/infill/examples/train_live.py --steps 10000000 --step-secs {STEP_SECS} \
             --width {} --lr 0.0001 --checkpoint train.pt --checkpoint-secs 1000000 --log train.jsonl --trace train.trace",
            model.width
        );
        let options = ["-p", "infill", "-J", "spirals", "--chdir=/tmp", &format!("--nodes=1-{NODES}")];
        let job = site.sbatch("alice", &options, &script);
        Subject { site, job, model, live, changes: Vec::new() }
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Vec<T> {
        let text = std::fs::read_to_string(self.site.scratch().join(name)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn lines(&self) -> Vec<Line> {
        self.read("train.jsonl")
    }

    /// Waits until it trains on this many nodes and has made enough steps there. Returns the lead's node and
    /// the wings' nodes.
    fn until_settled(&self, nodes: usize) -> (String, Vec<String>) {
        self.site.until(&format!("the training to have {nodes} nodes"), CHANGE_SECS, || {
            let lines = self.lines();
            let Some(last) = lines.last().filter(|l| l.world >= nodes) else { return false };
            lines.iter().filter(|l| l.place() == last.place()).count() as u64 >= self.model.steps_between
        });
        let view = self.site.view(self.job).expect("the training is known");
        let mut nodes = view.nodes.iter().map(ToString::to_string);
        (nodes.next().expect("it has a lead"), nodes.collect())
    }

    /// Does something, waits for its effect, and records how long the steps paused. Returns the position in
    /// the list.
    fn change(&mut self, kind: Kind, act: impl FnOnce(&Site)) -> usize {
        let before = self.lines().last().expect("it has made steps").place();
        act(&self.site);
        self.site.until(&format!("{kind:?} to come about"), CHANGE_SECS, || {
            self.lines().last().is_some_and(|l| l.place() != before)
        });
        let lines = self.lines();
        let at = lines.iter().rposition(|l| l.place() == before).expect("it was there");
        let last = &lines[at];
        let first = &lines[at + 1];
        let old: Vec<&Line> = lines[..=at].iter().filter(|l| l.place() == before).collect();
        let step_secs = median(old.windows(2).map(|two| two[1].time - two[0].time));
        let warm_secs = WARM_SECS.min(last.time - old[0].time + step_secs);
        let warming = old.iter().filter(|l| l.time > last.time - warm_secs).count() as f64;
        self.changes.push(Change {
            model: self.model.name,
            live: self.live,
            kind,
            pause_secs: first.time - last.time - step_secs,
            step_secs,
            lost: (last.step + 1).saturating_sub(first.step),
            while_warming: (kind == Kind::Grow && self.live).then_some(warming * step_secs / warm_secs),
            main_secs: None,
        });
        if self.live {
            self.assert_survivors_stay(before.1, first.membership);
        }
        eprintln!("{:?}", self.changes[self.changes.len() - 1]);
        self.changes.len() - 1
    }

    /// On a node that is in both memberships the process is the same.
    fn assert_survivors_stay(&self, before: u64, after: u64) {
        let old = self.members(before);
        let new = self.members(after);
        let stays: Vec<&String> = old.keys().filter(|n| new.contains_key(*n)).collect();
        assert!(!stays.is_empty(), "no process stayed: {old:?} became {new:?}");
        assert!(stays.iter().all(|n| old[*n] == new[*n]), "{old:?} became {new:?}");
    }

    /// A main job takes a node and leaves at the end.
    fn preempt(&mut self, kind: Kind, node: &str) {
        let mut main = None;
        let at = self.change(kind, |site| {
            let job = site.main_job(600, &["--nodes=1", &format!("--nodelist={node}")]);
            let begun = site.wait("the main job to start", CHANGE_SECS, || site.started_at(job));
            main = Some((job, begun - job.submitted_at));
        });
        let (job, secs) = main.expect("it was submitted");
        self.changes[at].main_secs = Some(secs);
        self.grow(kind == Kind::LeadLost, |site| {
            site.must("root", &["scancel", &job.id.to_string()]);
        });
    }

    /// The training gets nodes. `again`: the lead has still to come back, so this is not a growth by the
    /// planner.
    fn grow(&mut self, again: bool, act: impl FnOnce(&Site)) {
        if again {
            act(&self.site);
        } else {
            self.change(Kind::Grow, act);
        }
        self.until_settled(NODES);
    }

    /// Another malleable job gets a node, and gives it back.
    fn share(&mut self) {
        let mut other = 0;
        self.change(Kind::Shrink, |site| {
            other = Train::on("1").user("bob").run("--grace 10 --curve 1:30").submit(site);
        });
        self.grow(false, |site| {
            site.must("root", &["scancel", &other.to_string()]);
        });
    }

    /// The processes of a membership, by node. A newcomer that still warms up is not part of it.
    fn members(&self, membership: u64) -> BTreeMap<String, u32> {
        let traced = self.read::<Traced>("train.trace").into_iter();
        traced.filter(|t| t.membership == membership).map(|t| (t.node, t.pid)).collect()
    }

    /// A wing that makes steps. The choice changes with the round.
    fn wing(&self, mut wings: Vec<String>, round: usize) -> String {
        let last = self.lines().pop().expect("it has made steps");
        let members = self.members(last.membership);
        wings.retain(|node| members.contains_key(node));
        assert!(!wings.is_empty(), "no wing makes steps: {members:?} do");
        wings.swap_remove(round % wings.len())
    }

    fn command_on(&self, node: &str) -> Process {
        self.site
            .processes()
            .into_iter()
            .find(|p| p.node() == Some(node) && p.runs("train_live.py"))
            .unwrap_or_else(|| panic!("nothing runs on {node}"))
    }

    /// Makes a wing fail without notice: kills or stops its command, or kills its node.
    fn lose(&mut self, kind: Kind, node: &str) {
        let command = self.command_on(node);
        let daemon = format!("node:{node}");
        self.change(kind, |site| match kind {
            Kind::Killed => command.kill(),
            Kind::Stopped => command.signal(libc::SIGSTOP),
            _ => site.kill(&daemon),
        });
        if kind == Kind::NodeDied {
            self.site.revive(&daemon);
            self.site.until("the node to be up again", CHANGE_SECS, || {
                self.site.run("root", &["scontrol", "update", &format!("node={node}"), "state=resume"]);
                let state = self.site.run("root", &["sinfo", "-h", "-n", node, "-o", "%T"]);
                ["idle", "mixed", "allocated"].contains(&state.trim())
            });
        }
    }

    /// The checkpoint is for restarts: no live change has written one.
    fn end(self) -> Vec<Change> {
        let wrote = self.site.scratch().join("train.pt").exists();
        assert_eq!(wrote, !self.live, "a checkpoint was written");
        self.site.must("root", &["scancel", &self.job.to_string()]);
        self.changes
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn measure(model: Model, live: bool) -> Vec<Change> {
    let begun = clock();
    let mut subject = Subject::start(model, live);
    for round in 0..times("INFILL_PAUSES") {
        let (_, wings) = subject.until_settled(NODES);
        subject.preempt(Kind::Preempted, &wings[round % wings.len()]);
        subject.share();
    }
    eprintln!("{} took {:.0} s", model.name, clock() - begun);
    subject.end()
}

/// Losses of one kind.
fn lose(model: Model, kind: Kind) -> Vec<Change> {
    let begun = clock();
    let rounds: Vec<usize> = (0..times("INFILL_PAUSES_FAULTS")).collect();
    let changes = rounds.chunks(LOSSES_EACH).flat_map(|some| lose_some(model, kind, some)).collect();
    eprintln!("{}, {kind:?} took {:.0} s", model.name, clock() - begun);
    changes
}

fn lose_some(model: Model, kind: Kind, rounds: &[usize]) -> Vec<Change> {
    let mut subject = Subject::start(model, true);
    for round in rounds {
        let (lead, wings) = subject.until_settled(if kind == Kind::LeadLost { NODES } else { NODES - 1 });
        match kind {
            Kind::LeadLost => subject.preempt(kind, &lead),
            _ => subject.lose(kind, &subject.wing(wings, *round)),
        }
    }
    subject.end()
}

fn table(changes: &[Change]) -> String {
    let mut rows = BTreeMap::<(&str, bool, Kind), Vec<&Change>>::new();
    for change in changes {
        rows.entry((change.model, !change.live, change.kind)).or_default().push(change);
    }
    let mut text = format!(
        "{:<16} {:<8} {:<10} {:>5} {:>7} {:>7} {:>5} {:>5} {:>8} {:>8}\n",
        "MODEL", "WAY", "CHANGE", "COUNT", "MEDIAN", "MOST", "STEP", "LOST", "WARMING", "MAIN JOB"
    );
    for ((model, restarts, kind), all) in rows {
        let most = all.iter().map(|c| c.pause_secs).fold(0.0, f64::max);
        let lost = all.iter().map(|c| c.lost).max().unwrap_or(0);
        let median_text = |value: &dyn Fn(&Change) -> Option<f64>| {
            let values: Vec<f64> = all.iter().filter_map(|c| value(c)).collect();
            if values.is_empty() { "-".to_owned() } else { format!("{:.2}", median(values.into_iter())) }
        };
        let _ = writeln!(
            text,
            "{model:<16} {:<8} {:<10} {:>5} {:>7} {most:>7.2} {:>5} {lost:>5} {:>8} {:>8}",
            if restarts { "restart" } else { "live" },
            format!("{kind:?}"),
            all.len(),
            median_text(&|c| Some(c.pause_secs)),
            median_text(&|c| Some(c.step_secs)),
            median_text(&|c| c.while_warming),
            median_text(&|c| c.main_secs),
        );
    }
    text
}

#[test]
#[ignore = "takes long: tests/run.sh --pauses"]
fn how_long_changes_take() {
    let parts: [(&str, &dyn Fn() -> Vec<Change>); 9] = [
        ("small live", &|| measure(SMALL, true)),
        ("small killed", &|| lose(SMALL, Kind::Killed)),
        ("small stopped", &|| lose(SMALL, Kind::Stopped)),
        ("small node", &|| lose(SMALL, Kind::NodeDied)),
        ("small lead", &|| lose(SMALL, Kind::LeadLost)),
        ("small restart", &|| measure(SMALL, false)),
        ("large live", &|| measure(LARGE, true)),
        ("large killed", &|| lose(LARGE, Kind::Killed)),
        ("large restart", &|| measure(LARGE, false)),
    ];
    let only = std::env::var("INFILL_PAUSES_ONLY").unwrap_or_default();
    let wanted = parts.iter().filter(|(name, _)| name.contains(&only));
    let changes: Vec<Change> = wanted.flat_map(|(_, part)| part()).collect();
    assert!(!changes.is_empty(), "no part is called {only:?}");
    println!("{}", table(&changes));
    let path = write_summary("INFILL_PAUSES_JSON", "pauses.json", &changes);
    println!("seconds; all of them are in {}", path.display());
    let lost = changes.iter().filter(|c| c.live).map(|c| c.lost).max();
    assert!(lost <= Some(1), "a change without a restart lost {lost:?} steps");
}
