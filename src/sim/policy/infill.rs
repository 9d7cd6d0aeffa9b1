//! infill itself: gap finder, survival model, advisor, demand, planner and checker, as in the daemon's
//! rounds.

use std::collections::VecDeque;

use super::mirror::{Mirror, NODE_TYPE, PARTITION};
use super::{Policy, PolicyName, Target, View};
use crate::advisor::{Library, Progress, Subject};
use crate::config::Config;
use crate::gaps::{GapContext, GapSample, Holders, Lookahead, Occupancy, Survival, Tracker, find};
use crate::model::malleable::RateCurve;
use crate::model::{
    BatchMode, EndedGap, ExecPlan, Gaps, HeldNode, JobId, MalleableJob, NodeName, NodeType, Plan, ProfileKey,
    Sizes, Snapshot, SolveStatus, Standing, UnixTime, UserId,
};
use crate::round::{Candidate, Question, demand, judge};
use crate::sim::job::{Cause, SimJob};
use crate::sim::queue::{Foresight, NodeIx};

/// Ended gaps that the survival model learns from, and seconds between two lessons: as in the daemon.
const GAPS_TO_LEARN_FROM: usize = 20_000;
const LESSON_SECS: i64 = 600;

/// A machine on which nothing happens is looked at again after so many seconds, then after twice as many, up
/// to the most.
const QUIET_SECS: (i64, i64) = (600, 3600);

/// The solver is not asked: its time limit would make plans depend on how fast this machine is, and the plan
/// that is in hand before it is asked is mostly proved to be within per mille.
const SOLVE_SECS: f64 = 0.0;

/// Seconds before a window's end at which the last round finds that the node lasts through no step.
const LAST_STEP_SECS: i64 = 4;

/// Seconds from the moment at which a job is changed, or loses nodes, until it can be changed again: it
/// stops, starts, and the next look at Slurm shows who has taken its nodes. As in the daemon, which looks
/// every 5 s.
const STOP_SECS: f64 = 5.0;

/// The owner of all simulated jobs.
const USER: &str = "user";

/// See the module's text.
#[derive(Debug)]
pub struct Infill {
    name: PolicyName,
    config: Config,
    mirror: Option<Mirror>,
    tracker: Tracker,
    survival: Survival,
    lookahead: Lookahead,
    history: VecDeque<GapSample>,
    lesson_at: Option<i64>,
    library: Library,
    gaps: Gaps,
    quiet_secs: i64,
    wake: Option<i64>,
    refused_plans: u64,
    worst_gap: f64,
}

impl Infill {
    /// One of infill's policies with a site's configuration.
    pub fn new(name: PolicyName, config: &Config) -> Self {
        let mut config = config.clone();
        config.planner.solve_secs = SOLVE_SECS;
        config.slurm.partition = PARTITION.to_owned();
        Infill {
            name,
            library: Library::new(config.advisor.clone()),
            config,
            mirror: None,
            tracker: Tracker::default(),
            survival: Survival::default(),
            lookahead: Lookahead::default(),
            history: VecDeque::new(),
            lesson_at: None,
            gaps: Gaps::default(),
            quiet_secs: QUIET_SECS.0,
            wake: None,
            refused_plans: 0,
            worst_gap: 0.0,
        }
    }

    fn knows_curves(&self) -> bool {
        self.name != PolicyName::Infill
    }

    /// Seconds before a window's end at which it leaves. The oracle is told the very second at which the main
    /// queue comes.
    fn leave_secs(&self) -> f64 {
        match self.name {
            PolicyName::InfillOracle => 0.0,
            _ => self.config.gaps.leave_secs + self.config.daemon.poll_interval_secs,
        }
    }

    fn learn(&mut self, ended: &[EndedGap], now: i64) {
        self.history.extend(ended.iter().map(EndedGap::sample));
        while self.history.len() > GAPS_TO_LEARN_FROM {
            self.history.pop_front();
        }
        if self.lesson_at.is_none_or(|at| now - at >= LESSON_SECS) && !self.history.is_empty() {
            self.lesson_at = Some(now);
            self.survival = Survival::fit(self.history.make_contiguous());
        }
    }

    fn find_gaps(&mut self, snapshot: &Snapshot, view: &View<'_>) {
        let now = UnixTime(view.now);
        let before = std::mem::take(&mut self.gaps);
        let occupancy = Occupancy::of(snapshot, PARTITION);
        let ended = self.tracker.observe(&occupancy, &before, now);
        self.learn(&ended, view.now);
        let holders: Holders = view.jobs.values().flat_map(|j| held(view, j)).collect();
        self.lookahead.note(view.jobs.values().map(|j| UnixTime(j.submitted_at)));
        let costs = view.jobs.values().map(|_| *view.costs);
        let context = GapContext {
            config: &self.config.gaps,
            holders: &holders,
            tracker: &self.tracker,
            survival: &self.survival,
            leave_secs: self.leave_secs(),
            lookahead_secs: self.lookahead.secs(&self.config.gaps, costs, now),
        };
        self.gaps = find(&occupancy, &context, now);
    }

    fn subject(&self, job: &SimJob, view: &View<'_>) -> Subject {
        Subject {
            job: job.id,
            sizes: Sizes::Range { min: job.min_nodes, max: job.max_nodes },
            declared: None,
            running: job.runs(view.now).then(|| job.size()),
            // The first rescale tells them.
            costs: *view.costs,
            key: key(job),
        }
    }

    /// Takes the gaps out: there are thousands of nodes, and thousands of rounds.
    fn question(&mut self, view: &View<'_>) -> Question {
        let now = UnixTime(view.now);
        let subjects: Vec<Subject> = view.jobs.values().map(|j| self.subject(j, view)).collect();
        if !self.knows_curves() {
            let usable = self.gaps.gaps.len() as u32;
            let free = self.gaps.gaps.iter().filter(|g| g.holder.is_none()).count() as u32;
            self.library.round(&subjects, usable, free, self.config.advisor.probe, now);
        }
        let candidates = subjects.into_iter().zip(view.jobs.values()).map(|(s, j)| candidate(s, j, view));
        let mut jobs =
            demand::jobs(candidates.collect(), &self.library, &self.gaps, &self.config.planner, now);
        for job in &mut jobs {
            if let Some(truth) = view.jobs.get(&job.id) {
                self.value(job, truth);
            }
        }
        Question {
            gaps: std::mem::take(&mut self.gaps),
            jobs,
            at: now,
            may_grow: true,
            drain: false,
            notes: Vec::new(),
        }
    }

    /// Gives a job the weight that its samples have in this simulation, and its true curve where that is
    /// known.
    fn value(&self, job: &mut MalleableJob, truth: &SimJob) {
        let unit = truth.curve.rate(truth.min_nodes) / f64::from(truth.min_nodes);
        if self.knows_curves() {
            let (exec_plan, curve) = (ExecPlan::default(), (*truth.curve).clone());
            job.rates = vec![RateCurve { exec_plan, node_type: None, curve }];
            job.weight = truth.weight;
        } else {
            // What it believes of the unit times what a sample is worth: of an unmeasured job it believes a
            // rate of 1.
            job.weight *= truth.weight * unit;
        }
    }

    fn plan(&mut self, view: &View<'_>) -> Option<Plan> {
        let question = self.question(view);
        let solved = question.solve(&self.config);
        let judged = judge(&question, &self.config, Ok(solved));
        self.gaps = question.gaps;
        match judged {
            Ok(judged) => {
                self.refused_plans += u64::from(!judged.refused.is_empty());
                if let SolveStatus::TimeLimit { gap } = judged.plan.status {
                    self.worst_gap = self.worst_gap.max(gap.unwrap_or(f64::INFINITY));
                }
                Some(judged.plan)
            }
            Err(_) => {
                self.refused_plans += 1;
                None
            }
        }
    }

    /// When a window must be left, a job may be changed again, a probe goes on; else later and later.
    fn set_wake(&mut self, view: &View<'_>, acted: bool) {
        let now = view.now;
        let stay = self.config.planner.min_stay_secs as i64;
        let leave = self.gaps.gaps.iter().filter(|g| g.holder.is_some()).filter_map(|g| g.vacate_by);
        let leave = leave.map(|at| at.0 - LAST_STEP_SECS);
        // What pauses, and what was rescaled a moment ago, can be changed again from then on.
        let may_change =
            |j: &SimJob| stopped_at(j).max(j.last_change.map_or(i64::MIN, |at| at.saturating_add(stay)));
        let changes = view.jobs.values().filter(|j| j.size() > 0).map(may_change);
        let probes = view.jobs.values().filter(|j| self.library.probe_of(j.id).is_some());
        let probes = probes.map(|_| now + self.config.daemon.poll_interval_secs.ceil() as i64);
        self.quiet_secs = if acted { QUIET_SECS.0 } else { (self.quiet_secs * 2).min(QUIET_SECS.1) };
        let quiet = (!view.jobs.is_empty()).then_some(now + self.quiet_secs);
        let all = leave.chain(changes).chain(probes).chain(quiet);
        self.wake = all.filter(|at| *at > now).min();
    }

    fn targets(&self, view: &View<'_>, plan: &Plan) -> Vec<Target> {
        let Some(mirror) = &self.mirror else { return Vec::new() };
        let target = |planned: &crate::model::JobPlan| {
            let job = view.jobs.get(&planned.job)?;
            let nodes: Vec<NodeIx> = planned.nodes.iter().filter_map(|p| mirror.number(&p.node)).collect();
            let probing = self.library.is_probing(job.id, UnixTime(view.now)) && job.size() > 0;
            let cause = if probing { Cause::Probe } else { Cause::Rescale };
            (nodes != job.nodes).then_some(Target { job: job.id, nodes, cause })
        };
        plan.jobs.iter().filter_map(target).collect()
    }
}

impl Policy for Infill {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn foresight(&self) -> Foresight {
        match self.name {
            PolicyName::InfillBlind => Foresight::None,
            PolicyName::InfillOracle => Foresight::Truth,
            _ => Foresight::Backfill,
        }
    }

    fn has_lead(&self) -> bool {
        true
    }

    fn learns(&self) -> bool {
        !self.knows_curves()
    }

    fn wake(&self) -> Option<i64> {
        self.wake
    }

    fn progress(&mut self, job: &SimJob, samples: f64, secs: f64, now: i64) -> bool {
        let node = NodeName::new("lead");
        let progress = Progress {
            generation: job.generation,
            nodes: job.size(),
            node: &node,
            samples,
            secs,
            step: None,
            opening: None,
        };
        let news = self.library.progress(job.id, &key(job), &progress, UnixTime(now));
        news.probed || news.drift.is_some()
    }

    fn ended(&mut self, job: JobId) {
        self.library.ended(job);
    }

    fn defects(&self) -> (u64, f64) {
        (self.refused_plans, self.worst_gap)
    }

    fn decide(&mut self, view: &View<'_>) -> Vec<Target> {
        let foresight = self.foresight();
        let mut mirror = self.mirror.take().unwrap_or_else(|| Mirror::new(view.cluster.names()));
        self.find_gaps(mirror.look(view, foresight), view);
        self.mirror = Some(mirror);
        let plan = self.plan(view);
        let targets = plan.map(|plan| self.targets(view, &plan)).unwrap_or_default();
        self.set_wake(view, !view.changed.is_empty() || !targets.is_empty());
        targets
    }
}

/// When a job that is changed has stopped, and starts on its new nodes.
fn stopped_at(job: &SimJob) -> i64 {
    let began = job.busy_until - job.change_secs;
    (began + STOP_SECS.min(job.change_secs)).ceil() as i64
}

/// What a job runs.
fn key(job: &SimJob) -> ProfileKey {
    ProfileKey {
        user: USER.to_owned(),
        name: job.program.clone(),
        node_type: NodeType::new(NODE_TYPE),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

fn held<'a>(view: &'a View<'_>, job: &'a SimJob) -> impl Iterator<Item = (NodeName, JobId)> + 'a {
    let names = view.cluster.names();
    job.nodes.iter().filter_map(|n| Some((names.get(*n as usize)?.clone(), job.id)))
}

fn candidate(subject: Subject, job: &SimJob, view: &View<'_>) -> Candidate {
    let names = view.cluster.names();
    let mut nodes: Vec<HeldNode> =
        held(view, job).map(|(node, id)| HeldNode { node, slurm_job: id }).collect();
    nodes.sort_by(|a, b| a.node.cmp(&b.node));
    let standing = match job.size() {
        0 => Standing::Waiting,
        // Its commands are stopping; the next round finds them started, if not ready yet.
        _ if job.pauses(view.now) && view.now < stopped_at(job) => Standing::Busy,
        _ => Standing::Running,
    };
    Candidate {
        subject,
        user: UserId(0),
        standing,
        since: UnixTime(job.since),
        lead_node: job.nodes.first().and_then(|n| names.get(*n as usize).cloned()),
        held: nodes,
        exec_plan: ExecPlan::default(),
        submitted_at: UnixTime(job.submitted_at),
        last_change: job.changed_at(),
        excluded: Vec::new(),
        pause_secs: (job.busy_until - view.now as f64).max(0.0),
    }
}
