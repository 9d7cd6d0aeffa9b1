//! Plays a script: at each moment it takes a snapshot of Slurm, the production code decides, and the jobs
//! change as decided.
//!
//! A change takes effect at once, and the job then pauses for the seconds that it costs. A main job that
//! starts takes its nodes at once from the jobs that hold them. A job that loses a wing continues with the
//! others. A job that loses its lead, or has too few nodes left, waits again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use infill_lifecycle::{CALM_SECS, PREEMPTED_BACKOFF_MAX_SECS, PREEMPTED_BACKOFF_SECS};
use infill_model::{
    BatchMode, ChangeKind, ChangePause, ControlState, EndedGap, ExcludedNodes, ExecPlan, GapSet, HeldNode,
    JobDeclaration, JobFacts, JobId, JobLocation, JobPlan, JobProgress, MalleableJob, MinimumRate, NodeName,
    NodeType, Profile, ProfileKey, ProgramIdentity, RescaleMode, ResizeState, RoundReport, SchedulingState,
    SizePoint, UnixTime, UserId, config::Config,
};
use infill_planner::{
    plan::first_change,
    round::{AdvisorMode, CheckedPlan, RoundConstraints, RoundState, check_solved_plan},
};

use crate::events::{Event, Happening, between};
use crate::script::{Main, Malleable, Script};
use crate::slurm::{self, PARTITION, moment};

/// Time limit of the solver, seconds. It is long, so that a golden does not depend on the speed of the
/// machine.
const SOLVE_SECS: f64 = 600.0;

/// Relative error of rates that a script calls measured, and the seconds behind them: as after an hour of
/// training.
const MEASURED: (f64, f64) = (0.006, 3600.0);

/// One round and the events before it.
#[derive(Clone, Debug)]
pub struct Round {
    /// The moment of the round.
    pub at: i64,
    /// Descriptions of the events since the round before.
    pub happened: Vec<(i64, String)>,
    /// Gaps that ended.
    pub ended: Vec<EndedGap>,
    /// The planner's view of the nodes.
    pub gaps: Arc<GapSet>,
    /// The plan.
    pub judged: CheckedPlan,
    /// The reasons for the plan.
    pub report: RoundReport,
    /// The changes of the round: the job, nodes that it takes, nodes that it leaves.
    pub changes: Vec<(JobId, ChangeKind, Vec<NodeName>, Vec<NodeName>)>,
    /// With the completion objective: the reason for the order of the jobs, as text.
    pub turns: Vec<(JobId, String)>,
}

/// A malleable job in its present state.
#[derive(Clone, Debug)]
struct Job<'a> {
    script_job: &'a Malleable,
    /// The held nodes, the lead's first.
    nodes: Vec<NodeName>,
    since: UnixTime,
    /// Its last change, and when the pause after it ends.
    pause: Option<ChangePause>,
    busy_until: UnixTime,
    backoff_until: UnixTime,
    preemptions: i32,
    last_change: Option<UnixTime>,
    course: JobProgress,
    /// Up to when its progress is known.
    seen_at: UnixTime,
}

/// The state that lasts from round to round.
struct World<'a> {
    script: &'a Script,
    config: Arc<Config>,
    state: RoundState,
    jobs: BTreeMap<JobId, Job<'a>>,
    last: Option<i64>,
}

/// Plays a whole script.
///
/// # Errors
/// The checker's reason, when it refuses a plan.
pub fn play(script: &Script) -> Result<Vec<Round>, String> {
    let mut config = script.config.clone();
    config.planner.solve_secs = SOLVE_SECS;
    PARTITION.clone_into(&mut config.slurm.partition);
    let config: Arc<Config> = Arc::new(config);
    let mut state = RoundState::new(config.clone(), UnixTime::default());
    state.job_advisor_mut().load_profiles(script.malleable.iter().flat_map(profiles).collect(), moment(0));
    let mut world = World { script, config, state, jobs: BTreeMap::new(), last: None };
    script.rounds.iter().map(|at| world.round(*at)).collect()
}

impl<'a> World<'a> {
    fn round(&mut self, at: i64) -> Result<Round, String> {
        let happened = self.pass(at);
        let held = self.jobs.iter().map(|(id, j)| (*id, j.nodes.clone())).collect();
        let snapshot = slurm::snapshot(self.script, &held, at);
        let now = moment(at);
        let jobs: Vec<JobFacts> = self.jobs.iter().map(|(id, job)| job.facts(*id, now)).collect();
        // A script does not say how fast programs are, so nothing can be measured.
        let trusted = snapshot.is_trusted();
        let ended = if trusted {
            self.state.ingest_snapshot(&snapshot, &jobs, AdvisorMode::Watch, now)
        } else {
            Vec::new()
        };
        let control = self.script.order(at);
        let may_grow = control == ControlState::Normal;
        let drain = control == ControlState::Draining;
        let input = self.state.round_input(&jobs, RoundConstraints { may_grow, drain, trusted }, now);
        let solved = input.solve_plan(&self.config);
        let judged = check_solved_plan(&input, &self.config, Ok(solved))
            .map_err(|v| format!("{at} s: the checker refuses the fallback: {v:?}"))?;
        if !judged.refused.is_empty() {
            return Err(format!("{at} s: the checker refuses the plan: {:?}", judged.refused));
        }
        let changes =
            input.jobs.iter().filter_map(|job| self.carry_out(job, judged.plan.job_plan(job.id)?, now));
        let changes = changes.collect();
        let report = input.explain_plan(&self.config, &judged.plan);
        let turns = self.turns(&jobs);
        Ok(Round { at, happened, ended, gaps: input.gaps, judged, report, changes, turns })
    }

    fn turns(&self, jobs: &[JobFacts]) -> Vec<(JobId, String)> {
        if self.script.malleable.iter().all(|m| m.says.is_none()) {
            return Vec::new();
        }
        let turn = |job| self.state.priorities().describe_turn(job, &self.state.remaining_work(job).0);
        jobs.iter().map(|job| (job.job, turn(job))).collect()
    }

    /// Applies all events up to this moment.
    fn pass(&mut self, to: i64) -> Vec<(i64, String)> {
        let script = self.script;
        let mut said = Vec::new();
        for Happening { at, event, text } in between(script, self.last, to) {
            said.extend(self.train(moment(at)));
            said.push((at, text));
            match event {
                Event::Seen => {}
                Event::JobsCome(m) => self.jobs.extend(m.ids().map(|id| (id, Job::new(m)))),
                Event::JobsEnd(m) => m.ids().for_each(|id| drop(self.jobs.remove(&id))),
                Event::MainStarts(main) => said.extend(self.preempt(main, at).map(|text| (at, text))),
            }
        }
        said.extend(self.train(moment(to)));
        // States from before infill's start are not events.
        if self.last.replace(to).is_none() { Vec::new() } else { said }
    }

    /// Lets the jobs make samples up to this moment. Jobs that have made all of them end and enter the
    /// history.
    fn train(&mut self, to: UnixTime) -> Vec<(i64, String)> {
        let done = self.jobs.iter_mut().filter_map(|(id, job)| Some((*id, job.train(to)?)));
        let mut done: Vec<(JobId, UnixTime)> = done.collect();
        done.sort_by_key(|(_, at)| *at);
        done.into_iter().map(|(id, at)| (at.secs_since(moment(0)) as i64, self.end(id, at))).collect()
    }

    fn end(&mut self, id: JobId, at: UnixTime) -> String {
        let Some(job) = self.jobs.remove(&id) else { return String::new() };
        let facts = job.facts(id, at);
        self.state.job_advisor_mut().forget_job(id);
        let unit = self.state.remaining_work(&facts).1;
        let secs = job.course.work_secs(unit);
        let word = job.course.first_estimate(unit);
        self.state.priorities_mut().outlook.record_end(id, at, secs, &word);
        format!("job {id} ends: it has made {:.0} samples", job.course.samples)
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

    /// Changes a job as planned. Returns what changed.
    fn carry_out(
        &mut self,
        asked: &MalleableJob,
        planned: &JobPlan,
        now: UnixTime,
    ) -> Option<(JobId, ChangeKind, Vec<NodeName>, Vec<NodeName>)> {
        let job = self.jobs.get_mut(&asked.id)?;
        let change = first_change(asked, planned);
        if change == ChangeKind::None {
            return None;
        }
        let nodes: Vec<NodeName> = planned.nodes.iter().map(|p| p.node.clone()).collect();
        let takes = nodes.iter().filter(|n| !job.nodes.contains(n)).cloned().collect();
        let leaves = job.nodes.iter().filter(|n| !nodes.contains(n)).cloned().collect();
        if job.nodes.is_empty() != nodes.is_empty() {
            job.since = now;
        }
        job.nodes = nodes;
        job.pause = Some(ChangePause { since: now, change });
        job.busy_until = now.plus_secs(change.pause_secs(&asked.costs));
        job.last_change = Some(now);
        Some((asked.id, change, takes, leaves))
    }
}

impl<'a> Job<'a> {
    fn new(script_job: &'a Malleable) -> Self {
        let long_ago = UnixTime::default();
        Job {
            script_job,
            nodes: Vec::new(),
            since: moment(script_job.submit),
            pause: None,
            busy_until: long_ago,
            backoff_until: long_ago,
            preemptions: 0,
            last_change: None,
            course: JobProgress::default(),
            seen_at: moment(script_job.submit),
        }
    }

    /// Makes samples up to this moment, if its script has any, or until it has made all of them, if that is
    /// sooner. Returns when it had made all.
    fn train(&mut self, to: UnixTime) -> Option<UnixTime> {
        let from = std::mem::replace(&mut self.seen_at, to).max(self.busy_until);
        let all = self.script_job.makes.or(self.script_job.says.map(|_| f64::INFINITY))?;
        let nodes = self.nodes.len() as u32;
        let rate = self.script_job.curve.as_ref()?.rate(nodes);
        let has_secs = to.secs_since(from);
        if nodes == 0 || has_secs <= 0.0 {
            return None;
        }
        let needs_secs = (all - self.course.samples).max(0.0) / rate;
        let secs = has_secs.min(needs_secs);
        self.course.held_secs += secs * f64::from(nodes);
        self.course.record_progress(secs * rate, None, self.script_job.says);
        (needs_secs <= has_secs).then(|| from.plus_secs(secs))
    }

    fn standing(&self, now: UnixTime) -> SchedulingState {
        match self.nodes.len() {
            0 if self.backoff_until > now => SchedulingState::BackOff(self.backoff_until),
            0 => SchedulingState::Waiting,
            _ if self.busy_until > now => SchedulingState::Busy,
            _ => SchedulingState::Running,
        }
    }

    fn at_least(&self) -> Option<MinimumRate> {
        self.script_job.at_least.map(MinimumRate::Rate).or(self.script_job.as_asked.map(MinimumRate::Asked))
    }

    /// The facts that a daemon would have about it.
    fn facts(&self, id: JobId, now: UnixTime) -> JobFacts {
        let standing = self.standing(now);
        let mut held: Vec<HeldNode> =
            self.nodes.iter().map(|node| HeldNode { node: node.clone(), slurm_job: id }).collect();
        held.sort_by(|a, b| a.node.cmp(&b.node));
        let lead = self.nodes.first().cloned();
        JobFacts {
            job: id,
            user: UserId(0),
            program: program(self.script_job),
            sizes: self.script_job.sizes.clone(),
            claims: JobDeclaration {
                curve: self.script_job.curve.clone(),
                at_least: self.at_least(),
                ..JobDeclaration::default()
            },
            running: (standing == SchedulingState::Running).then_some(held.len() as u32),
            waits_since: (standing == SchedulingState::Waiting).then_some(self.since),
            standing,
            since: self.since,
            place: JobLocation { held, lead_now: lead.clone(), lead, ..JobLocation::default() },
            changing: ResizeState {
                exec_plan: ExecPlan::default(),
                way: RescaleMode::Restart,
                pause: self.pause,
                last_at: self.last_change,
            },
            course: self.course,
            submitted_at: moment(self.script_job.submit),
            excluded: ExcludedNodes::default(),
            ending: false,
        }
    }

    /// Removes nodes. Returns whether the job has to wait for others now.
    fn lose(&mut self, lost: &[NodeName], down_secs: f64, now: UnixTime) -> bool {
        let lead_lost = self.nodes.first().is_some_and(|lead| lost.contains(lead));
        self.nodes.retain(|n| !lost.contains(n));
        if !lead_lost && self.nodes.len() as u32 >= self.script_job.sizes.min() {
            self.pause = Some(ChangePause { since: now, change: ChangeKind::Shrink });
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

fn program(script_job: &Malleable) -> ProgramIdentity {
    let name = format!("program {}", script_job.id);
    ProgramIdentity {
        user: script_job.user.clone(),
        job_name: name.clone(),
        reported: Some((name, BatchMode::Auto)),
        block: 1,
        on_cpus: false,
        exec_plan: ExecPlan::default(),
    }
}

fn key(script_job: &Malleable, node_type: NodeType) -> ProfileKey {
    let user = script_job.user.clone();
    let name = format!("program {}", script_job.id);
    ProfileKey { user, name, node_type, exec_plan: ExecPlan::default(), batch: BatchMode::Auto }
}

/// Measurements of a job's program, as the store would give them.
fn profiles(script_job: &Malleable) -> impl Iterator<Item = Profile> {
    script_job.measured.iter().map(|(node_type, curve)| {
        let (error, secs) = MEASURED;
        let point = |p: &infill_model::CurvePoint| SizePoint {
            nodes: p.nodes,
            rate: p.rate,
            error,
            secs,
            step_samples: None,
            hosts: None,
            spread: infill_model::Spread::Near,
            over_hosts: infill_model::Spread::Near,
            at: moment(0),
        };
        let points = curve.points().iter().map(point).collect();
        Profile { points, jobs: 1, updated_at: moment(0), ..Profile::new(key(script_job, node_type.clone())) }
    })
}
