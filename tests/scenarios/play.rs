//! Plays a script: at each moment Slurm is looked at, the production code decides, and jobs become what it
//! says.
//!
//! A change takes effect at once and the job then pauses for the seconds that it costs. A main job that
//! starts takes its nodes at once from whoever holds them: a job that loses a wing goes on with the others,
//! one that loses its lead, or has too few nodes left, waits again.

use std::collections::{BTreeMap, BTreeSet};

use infill::advisor::{Library, Subject};
use infill::api::Control;
use infill::config::Config;
use infill::gaps::{self, GapContext, Holders, Lookahead, Occupancy, Survival, Tracker};
use infill::generation::{CALM_SECS, PREEMPTED_BACKOFF_MAX_SECS, PREEMPTED_BACKOFF_SECS};
use infill::model::{
    BatchMode, EndedGap, ExecPlan, Gaps, HeldNode, JobId, JobPlan, MalleableJob, NodeName, NodeType, Profile,
    ProfileKey, Report, SizePoint, Snapshot, Standing, UnixTime, UserId,
};
use infill::plan::{Change, first_change};
use infill::round::{Candidate, Judged, Question, curves, demand, judge};

use crate::events::{Event, Happening, between};
use crate::script::{Main, Malleable, Script};
use crate::slurm::{self, PARTITION, moment};

/// Time limit of the solver, seconds. Long, so that a golden does not depend on how fast a machine is.
const SOLVE_SECS: f64 = 600.0;

/// Relative error of what a script calls measured, and the seconds behind it: as after an hour of training.
const MEASURED: (f64, f64) = (0.006, 3600.0);

/// One round and what led to it.
#[derive(Clone, Debug)]
pub struct Round {
    /// The moment.
    pub at: i64,
    /// What has happened since the round before, in words.
    pub happened: Vec<(i64, String)>,
    /// Gaps that ended.
    pub ended: Vec<EndedGap>,
    /// What the planner knew of the nodes.
    pub gaps: Gaps,
    /// What it decided.
    pub judged: Judged,
    /// Why.
    pub report: Report,
    /// What changed by that: the job, nodes that it takes, nodes that it leaves.
    pub changes: Vec<(JobId, Change, Vec<NodeName>, Vec<NodeName>)>,
}

/// A malleable job in its present state.
#[derive(Clone, Debug)]
struct Job<'a> {
    of: &'a Malleable,
    /// The lead's first.
    nodes: Vec<NodeName>,
    since: UnixTime,
    busy_until: UnixTime,
    backoff_until: UnixTime,
    preemptions: i32,
    last_change: Option<UnixTime>,
}

/// Everything that lasts from round to round.
struct World<'a> {
    script: &'a Script,
    config: Config,
    tracker: Tracker,
    survival: Survival,
    lookahead: Lookahead,
    library: Library,
    gaps: Gaps,
    gaps_at: UnixTime,
    jobs: BTreeMap<JobId, Job<'a>>,
    last: Option<i64>,
}

/// Plays a whole script.
///
/// # Errors
/// When the checker refuses a plan, with its words.
pub fn play(script: &Script) -> Result<Vec<Round>, String> {
    let mut config = script.config.clone();
    config.planner.solve_secs = SOLVE_SECS;
    PARTITION.clone_into(&mut config.slurm.partition);
    let mut library = Library::new(config.advisor.clone());
    library.load(script.malleable.iter().flat_map(profiles).collect(), moment(0));
    let mut world = World {
        script,
        config,
        tracker: Tracker::default(),
        survival: Survival::default(),
        lookahead: Lookahead::default(),
        library,
        gaps: Gaps::default(),
        gaps_at: UnixTime::default(),
        jobs: BTreeMap::new(),
        last: None,
    };
    script.rounds.iter().map(|at| world.round(*at)).collect()
}

impl<'a> World<'a> {
    fn round(&mut self, at: i64) -> Result<Round, String> {
        let happened = self.pass(at);
        let held = self.jobs.iter().map(|(id, j)| (*id, j.nodes.clone())).collect();
        let snapshot = slurm::snapshot(self.script, &held, at);
        let now = moment(at);
        let ended = self.look(&snapshot, now);
        let question = self.question(&snapshot, at);
        let solved = question.solve(&self.config);
        let judged = judge(&question, &self.config, Ok(solved))
            .map_err(|v| format!("{at} s: the checker refuses the fallback: {v:?}"))?;
        if !judged.refused.is_empty() {
            return Err(format!("{at} s: the checker refuses the plan: {:?}", judged.refused));
        }
        let changes =
            question.jobs.iter().filter_map(|job| self.carry_out(job, judged.plan.job(job.id)?, now));
        let changes = changes.collect();
        let report = question.explain(&self.config, &judged.plan);
        Ok(Round { at, happened, ended, gaps: question.gaps, judged, report, changes })
    }

    /// Lets everything happen up to this moment.
    fn pass(&mut self, to: i64) -> Vec<(i64, String)> {
        let script = self.script;
        let mut said = Vec::new();
        for Happening { at, event, text } in between(script, self.last, to) {
            said.push((at, text));
            match event {
                Event::Seen => {}
                Event::JobsCome(m) => self.jobs.extend(m.ids().map(|id| (id, Job::new(m)))),
                Event::JobsEnd(m) => m.ids().for_each(|id| drop(self.jobs.remove(&id))),
                Event::MainStarts(main) => said.extend(self.preempt(main, at).map(|text| (at, text))),
            }
        }
        // All that was there when infill came is no news.
        if self.last.replace(to).is_none() { Vec::new() } else { said }
    }

    fn preempt(&mut self, main: &Main, at: i64) -> impl Iterator<Item = String> {
        let taken: BTreeSet<&NodeName> = main.nodes.0.iter().collect();
        let losers = self.jobs.iter_mut().filter(|(_, j)| j.nodes.iter().any(|n| taken.contains(n)));
        let mut said = Vec::new();
        for (id, job) in losers {
            let lost: Vec<NodeName> = job.nodes.iter().filter(|n| taken.contains(n)).cloned().collect();
            let down_secs = self.config.planner.costs.down_secs;
            let waits = if job.lose(&lost, down_secs, moment(at)) { ", and waits" } else { "" };
            said.push(format!("job {id} is preempted on {}{waits}", crate::show::hosts(&lost)));
        }
        said.into_iter()
    }

    /// Takes in a snapshot that can be trusted; with one that cannot, what was known of the nodes stays. As
    /// `daemon/look.rs` does it.
    fn look(&mut self, snapshot: &Snapshot, now: UnixTime) -> Vec<EndedGap> {
        let holders = self.holders();
        if !snapshot.is_trusted() {
            self.gaps.gaps.iter_mut().for_each(|g| g.holder = holders.get(&g.node).copied());
            gaps::carried_over(&mut self.gaps, now.secs_since(self.gaps_at));
            self.gaps_at = now;
            return Vec::new();
        }
        let occupancy = Occupancy::of(snapshot, PARTITION);
        let ended = self.tracker.observe(&occupancy, &self.gaps, now);
        self.lookahead.note(self.jobs.values().map(|j| moment(j.of.submit)));
        let costs = self.jobs.values().map(|_| self.config.planner.costs);
        let lookahead_secs = self.lookahead.secs(&self.config.gaps, costs, now);
        let context = GapContext {
            config: &self.config.gaps,
            holders: &holders,
            tracker: &self.tracker,
            survival: &self.survival,
            leave_secs: self.config.daemon.poll_interval_secs + self.config.gaps.leave_secs,
            lookahead_secs,
        };
        self.gaps = gaps::find(&occupancy, &context, now);
        self.gaps_at = now;
        ended
    }

    fn holders(&self) -> Holders {
        self.jobs.iter().flat_map(|(id, j)| j.nodes.iter().map(|n| (n.clone(), *id))).collect()
    }

    /// What the planner is asked. As `daemon/rounds.rs` does it.
    fn question(&self, snapshot: &Snapshot, at: i64) -> Question {
        let (now, control) = (moment(at), self.script.order(at));
        let candidates = self.jobs.iter().map(|(id, job)| self.candidate(*id, job, snapshot, now)).collect();
        let jobs = demand::jobs(candidates, &self.library, &self.gaps, &self.config.planner, now);
        let mut notes = gaps::notes(snapshot, &self.config.gaps);
        if !snapshot.is_trusted() {
            notes.push("no trusted snapshot: nothing is started or grown".to_owned());
        }
        let may_grow = control == Control::Normal && snapshot.is_trusted();
        Question {
            gaps: self.gaps.clone(),
            jobs,
            at: now,
            may_grow,
            drain: control == Control::Draining,
            notes,
        }
    }

    fn candidate(&self, id: JobId, job: &Job<'_>, snapshot: &Snapshot, now: UnixTime) -> Candidate {
        let node_type = self.type_of(job, snapshot).unwrap_or_else(|| NodeType::new(""));
        let key = key(job.of, node_type);
        let standing = job.standing(now);
        let mut held: Vec<HeldNode> =
            job.nodes.iter().map(|node| HeldNode { node: node.clone(), slurm_job: id }).collect();
        held.sort_by(|a, b| a.node.cmp(&b.node));
        let subject = Subject {
            job: id,
            sizes: job.of.sizes.clone(),
            declared: job.of.curve.as_ref().and_then(|c| curves::believed(c, &job.of.sizes)),
            running: (standing == Standing::Running).then_some(held.len() as u32),
            costs: self.library.costs(&key, &self.config.planner.costs),
            key,
        };
        Candidate {
            subject,
            user: UserId(0),
            standing,
            since: job.since,
            held,
            lead_node: job.nodes.first().cloned(),
            exec_plan: ExecPlan::default(),
            submitted_at: moment(job.of.submit),
            last_change: job.last_change,
            excluded: Vec::new(),
            pause_secs: 0.0,
        }
    }

    /// The type of the lead's node; of a job that waits that of most gaps. As `daemon/advice.rs` does it.
    fn type_of(&self, job: &Job<'_>, snapshot: &Snapshot) -> Option<NodeType> {
        if let Some(node) = job.nodes.first().and_then(|n| snapshot.node(n)) {
            return Some(node.node_type.clone());
        }
        let mut counts: BTreeMap<&NodeType, usize> = BTreeMap::new();
        self.gaps.gaps.iter().for_each(|gap| *counts.entry(&gap.node_type).or_default() += 1);
        counts.into_iter().max_by_key(|(_, n)| *n).map(|(t, _)| t.clone())
    }

    /// Makes a job what the plan says; tells what that changed.
    fn carry_out(
        &mut self,
        asked: &MalleableJob,
        planned: &JobPlan,
        now: UnixTime,
    ) -> Option<(JobId, Change, Vec<NodeName>, Vec<NodeName>)> {
        let job = self.jobs.get_mut(&asked.id)?;
        let change = first_change(asked, planned);
        if change == Change::None {
            return None;
        }
        let nodes: Vec<NodeName> = planned.nodes.iter().map(|p| p.node.clone()).collect();
        let takes = nodes.iter().filter(|n| !job.nodes.contains(n)).cloned().collect();
        let leaves = job.nodes.iter().filter(|n| !nodes.contains(n)).cloned().collect();
        if job.nodes.is_empty() != nodes.is_empty() {
            job.since = now;
        }
        job.nodes = nodes;
        job.busy_until = now.plus_secs(change.secs(&asked.costs));
        job.last_change = Some(now);
        Some((asked.id, change, takes, leaves))
    }
}

impl<'a> Job<'a> {
    fn new(of: &'a Malleable) -> Self {
        let long_ago = UnixTime::default();
        Job {
            of,
            nodes: Vec::new(),
            since: moment(of.submit),
            busy_until: long_ago,
            backoff_until: long_ago,
            preemptions: 0,
            last_change: None,
        }
    }

    fn standing(&self, now: UnixTime) -> Standing {
        match self.nodes.len() {
            0 if self.backoff_until > now => Standing::BackOff(self.backoff_until),
            0 => Standing::Waiting,
            _ if self.busy_until > now => Standing::Busy,
            _ => Standing::Running,
        }
    }

    /// Loses nodes; whether it has to wait for others now.
    fn lose(&mut self, lost: &[NodeName], down_secs: f64, now: UnixTime) -> bool {
        let lead_lost = self.nodes.first().is_some_and(|lead| lost.contains(lead));
        self.nodes.retain(|n| !lost.contains(n));
        if !lead_lost && self.nodes.len() as u32 >= self.of.sizes.min() {
            self.busy_until = now.plus_secs(down_secs);
            return false;
        }
        self.nodes.clear();
        self.since = now;
        if self.last_change.is_some_and(|t| now.secs_since(t) > CALM_SECS) {
            self.preemptions = 0;
        }
        self.preemptions += 1;
        let doubled = PREEMPTED_BACKOFF_SECS * f64::powi(2.0, self.preemptions.min(10) - 1);
        self.backoff_until = now.plus_secs(doubled.min(PREEMPTED_BACKOFF_MAX_SECS));
        true
    }
}

fn key(of: &Malleable, node_type: NodeType) -> ProfileKey {
    let (user, name) = (of.user.clone(), format!("program {}", of.id));
    ProfileKey { user, name, node_type, exec_plan: ExecPlan::default(), batch: BatchMode::Auto }
}

/// What was measured of a job's program, as the store would give it.
fn profiles(of: &Malleable) -> impl Iterator<Item = Profile> {
    of.measured.iter().map(|(node_type, curve)| {
        let (error, secs) = MEASURED;
        let point = |p: &infill::model::CurvePoint| SizePoint {
            nodes: p.nodes,
            rate: p.rate,
            error,
            secs,
            step_samples: None,
            at: moment(0),
        };
        let points = curve.points().iter().map(point).collect();
        Profile { points, jobs: 1, updated_at: moment(0), ..Profile::new(key(of, node_type.clone())) }
    })
}
