//! The event loop of the simulation.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::cluster::{ClusterState, NodeOwner};
use super::holding::HoldingHistory;
use super::job::{ChangeAccounting, CheckpointCosts, SimJob};
use super::main_delays::{DelayRecord, WindowHistory};
use super::policy::{AllocationPolicy, PolicyView, Target};
use super::queue::{Foresight, MainQueue, NO_JOB, NodeIx, QueueChange};
use super::saving::ConcurrentSaves;
use super::score::{JobScore, NodeCountSeries, NodeSpan, NodeTimeline, PolicyScore};
use super::seeded_random::SeededRandom;
use super::supply::JobSupply;
use infill_gaps::CLEANUP_SECS;
use infill_model::{JobId, RescaleCosts};

/// Seconds between the first reports of a running job, number of these reports, and seconds between later
/// reports.
const REPORT_INTERVALS: (i64, u32, i64) = (1, 45, 30);

/// The input of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationSetup {
    /// The main queue.
    pub queue: MainQueue,
    /// The malleable jobs.
    pub supply: JobSupply,
    /// The true costs of rescales.
    pub costs: RescaleCosts,
    /// How the seconds of rescales are charged.
    pub accounting: ChangeAccounting,
    /// Seconds for which a newcomer warms up on its own node while the others train. With 0, jobs restart at
    /// each change.
    pub warm_secs: f64,
    /// The costs of saving.
    pub checkpoints: CheckpointCosts,
    /// Seconds that leaving a node takes if there is time for it.
    pub leave_secs: f64,
    /// How much jobs that leave at the same time slow each other down while they save. Saving is all of
    /// [`SimulationSetup::leave_secs`] but the clean-up. If k jobs save, it takes 1 + c (k − 1) times as
    /// long, where this is c, from 0 to 1.
    pub save_shared: f64,
    /// Standard deviation of the logarithm of a rate that is measured over one second.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Ends the simulation this many seconds after the log's start; `None` to run to the log's end.
    pub most_secs: Option<i64>,
    /// Number of nodes that the timeline shows, from the first one.
    pub timeline_nodes: u32,
}

/// Simulates one policy. Calls `visit` from time to time with the share of the log that is done, 0 to 1.
pub fn run_simulation(
    setup: &SimulationSetup,
    policy: Box<dyn AllocationPolicy>,
    visit: &mut dyn FnMut(f64),
) -> PolicyScore {
    let mut engine = SimulationEngine::new(Cow::Borrowed(setup), policy);
    let (start, end) = engine.span;
    while let Some(at) = engine.next_event().filter(|at| *at < end) {
        // Events before the log's start, such as submissions, are processed at the start.
        engine.step_to(at.max(start));
        visit((at - start) as f64 / (end - start).max(1) as f64);
    }
    engine.finish()
}

/// The last and the next report of a running job.
#[derive(Clone, Copy, Debug)]
struct ReportSchedule {
    generation: u64,
    reports: u32,
    next: i64,
    last: i64,
    done: f64,
}

/// Collects the score during the simulation.
struct ScoreAccumulator {
    score: PolicyScore,
    ended: Vec<(JobId, JobScore)>,
    holdings: BTreeMap<JobId, HoldingHistory>,
    series: NodeCountSeries,
    timeline: NodeTimeline,
}

impl ScoreAccumulator {
    /// The score of the simulation that ends now. `living` has the jobs that have not ended.
    fn into_score(mut self, living: Vec<(JobId, JobScore)>, end: i64) -> PolicyScore {
        let mut scores = self.ended;
        let score = &mut self.score;
        score.finished = scores.len();
        scores.extend(living);
        scores.sort_by_key(|(id, _)| *id);
        score.jobs = scores.into_iter().map(|(_, score)| score).collect();
        score.work = score.jobs.iter().map(|j| j.work).sum();
        score.samples = score.jobs.iter().map(|j| j.samples).sum();
        score.rescales = score.jobs.iter().map(|j| j.rescales).sum();
        score.series = self.series.into_points();
        score.timeline = self.timeline.into_spans(end);
        self.score
    }
}

pub(super) struct SimulationEngine<'a> {
    setup: Cow<'a, SimulationSetup>,
    costs: RescaleCosts,
    policy: Box<dyn AllocationPolicy>,
    pub(super) queue: MainQueue,
    supply: JobSupply,
    cluster: ClusterState,
    jobs: BTreeMap<JobId, SimJob>,
    reporting: BTreeMap<JobId, ReportSchedule>,
    random: SeededRandom,
    span: (i64, i64),
    now: i64,
    windows: WindowHistory,
    saving: ConcurrentSaves,
    accumulator: ScoreAccumulator,
    /// Main jobs that found a node held; `None` where only their sums are wanted.
    pub(super) delays: Option<Vec<DelayRecord>>,
}

impl<'a> SimulationEngine<'a> {
    pub(super) fn new(setup: Cow<'a, SimulationSetup>, policy: Box<dyn AllocationPolicy>) -> Self {
        let queue = setup.queue.clone();
        let (start, end) = queue.time_span();
        let end = setup.most_secs.map_or(end, |most| end.min(start.saturating_add(most)));
        let nodes = queue.node_names().len();
        let all_free = matches!(queue, MainQueue::Log(_));
        let free = RescaleCosts { up_secs: 0.0, down_secs: 0.0, start_secs: 0.0 };
        let accumulator = ScoreAccumulator {
            score: PolicyScore { policy: policy.name(), ..PolicyScore::default() },
            ended: Vec::new(),
            holdings: BTreeMap::new(),
            series: NodeCountSeries::default(),
            timeline: NodeTimeline::new(setup.timeline_nodes),
        };
        SimulationEngine {
            costs: if policy.pays_rescales() { setup.costs } else { free },
            cluster: ClusterState::new(queue.node_names(), all_free),
            supply: setup.supply.starting_at(start),
            policy,
            queue,
            jobs: BTreeMap::new(),
            reporting: BTreeMap::new(),
            random: SeededRandom::new(setup.seed),
            span: (start, end),
            now: start,
            windows: WindowHistory::new(nodes, setup.leave_secs),
            saving: ConcurrentSaves::new(setup.save_shared, start as f64),
            accumulator,
            delays: None,
            setup,
        }
    }

    /// The second of the next event.
    pub(super) fn next_event(&self) -> Option<i64> {
        let end = self.jobs.values().map(|j| j.ends_at()).fold(f64::INFINITY, f64::min);
        let end = Some(end).filter(|end| *end < 1e15);
        let join = self.jobs.values().filter_map(|j| j.joins_at()).reduce(f64::min);
        let save = self.saving.next_completion();
        let events = [
            self.queue.next_change(),
            self.supply.next_submission(),
            end.map(|at| self.next_second(at)),
            join.map(|at| self.next_second(at)),
            save.map(|at| self.next_second(at)),
            self.reporting.values().map(|r| r.next).min(),
            self.policy.wake_at().map(|at| at.max(self.now + 1)),
        ];
        events.into_iter().flatten().min()
    }

    /// The first whole second at or after `at` that lies in the future.
    fn next_second(&self, at: f64) -> i64 {
        (at.ceil() as i64).max(self.now + 1)
    }

    pub(super) fn step_to(&mut self, at: i64) {
        self.advance_to(at);
        let mut needs_round = self.policy.wake_at().is_some_and(|wake| wake <= at);
        needs_round |= self.end_jobs();
        needs_round |= self.advance_main_queue();
        needs_round |= self.submit_jobs();
        needs_round |= self.report_progress();
        if needs_round {
            self.run_round();
        }
    }

    /// Advances all jobs and sums to `at`.
    pub(super) fn advance_to(&mut self, at: i64) {
        let secs = (at - self.now) as f64;
        for job in self.jobs.values_mut() {
            job.advance_to(at as f64, &self.setup.checkpoints, &mut self.accumulator.score.loss);
            self.accumulator.holdings.entry(job.id).or_default().record_stretch(secs, job.size());
        }
        if secs > 0.0 {
            let idle = self.cluster.idle_count();
            let held = self.cluster.held_count();
            self.accumulator.score.idle_node_secs += secs * idle as f64;
            self.accumulator.score.held_node_secs += secs * held as f64;
            self.accumulator.series.add_stretch(self.now as f64, secs, idle, held);
        }
        self.now = at;
        for (save, done_at) in self.saving.advance_to(at as f64) {
            self.policy.record_leaving(&save.job, done_at - save.began + CLEANUP_SECS, at);
        }
    }

    fn end_jobs(&mut self) -> bool {
        let finished = self.jobs.values().filter(|j| j.done >= j.submitted.budget * (1.0 - 1e-12));
        let finished: Vec<JobId> = finished.map(|j| j.id).collect();
        for id in &finished {
            let Some(mut job) = self.jobs.remove(id) else { continue };
            job.done = job.submitted.budget;
            self.cluster.release_nodes(&job.nodes);
            self.reporting.remove(id);
            self.policy.job_ended(&job, self.now);
            self.supply.job_ended(&job, self.now);
            let score = self.score_job(&job, Some(self.now as f64));
            self.accumulator.ended.push((*id, score));
        }
        !finished.is_empty()
    }

    /// Replays the main queue's events of this moment. Returns whether the policy needs a round for them.
    fn advance_main_queue(&mut self) -> bool {
        let mut changed = false;
        while self.queue.next_change().is_some_and(|at| at <= self.now) {
            let Some(moment) = self.queue.advance() else { break };
            changed |= !moment.freed.is_empty() || !moment.taken.is_empty();
            // Events before the simulation's start do not count.
            if moment.at >= self.span.0 {
                self.count_delays(&moment);
            }
            let lost = self.cluster.apply_queue_change(&moment);
            for (id, nodes) in lost {
                self.preempt_job(id, nodes.into_iter().collect());
            }
        }
        let (_, number) = self.queue.backfill_plan();
        if number != self.windows.plan_number {
            changed |= self.policy.foresight() != Foresight::None;
            self.windows.note_plan(&self.queue, number, self.now);
        }
        changed
    }

    fn preempt_job(&mut self, id: JobId, lost: BTreeSet<NodeIx>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        // A policy that pays no costs always has time to save.
        let free = CheckpointCosts { save_secs: 0.0, ..self.setup.checkpoints };
        let checkpoints = if self.policy.pays_rescales() { &self.setup.checkpoints } else { &free };
        let before = job.nodes.clone();
        let has_lead = self.policy.has_lead();
        job.lose_nodes(&lost, has_lead, &self.costs, checkpoints, self.now, &mut self.accumulator.score.loss);
        let dropped: Vec<NodeIx> =
            before.into_iter().filter(|n| !lost.contains(n) && !job.nodes.contains(n)).collect();
        self.cluster.release_nodes(&dropped);
    }

    /// Counts how long main jobs wait for the nodes that they take.
    fn count_delays(&mut self, moment: &QueueChange) {
        for taken in moment.taken.iter().filter(|taken| taken.job != NO_JOB) {
            let (worst, is_late) =
                self.windows.longest_delay(taken, &self.cluster, &self.setup.checkpoints, self.now);
            let secs = worst.as_ref().map_or(0.0, |worst| worst.secs);
            let counts = &mut self.accumulator.score.preempted;
            counts.jobs += 1;
            counts.late += u64::from(is_late);
            counts.unforeseen += u64::from(!is_late && secs > 0.0);
            counts.longest_secs = counts.longest_secs.max(secs);
            counts.total_secs += secs;
            if let Some(delays) = &mut self.delays {
                delays.extend(worst);
            }
        }
    }

    fn submit_jobs(&mut self) -> bool {
        let new = self.supply.submit_due(self.now);
        let any = !new.is_empty();
        let accounting = self.setup.accounting;
        let warm_secs = if self.policy.pays_rescales() { self.setup.warm_secs } else { 0.0 };
        self.jobs.extend(
            new.into_iter().map(|job| (job.id, job.with_accounting(accounting).with_warmup(warm_secs))),
        );
        any
    }

    /// Passes the due reports of running jobs to the policy. Returns whether it needs a round now.
    fn report_progress(&mut self) -> bool {
        if !self.policy.learns_rates() {
            return false;
        }
        let mut urgent = false;
        for job in self.jobs.values().filter(|j| j.is_running(self.now)) {
            let fresh = ReportSchedule {
                generation: job.generation,
                reports: 0,
                next: self.now + REPORT_INTERVALS.0,
                last: self.now,
                done: job.done,
            };
            let reporting = self.reporting.entry(job.id).or_insert(fresh);
            if reporting.generation != job.generation {
                *reporting = fresh;
            }
            if reporting.next <= self.now {
                let samples =
                    (job.done - reporting.done).max(0.0) * self.random.log_normal_factor(self.setup.noise);
                let secs = (self.now - reporting.last) as f64;
                urgent |= self.policy.record_progress(job, samples, secs, self.now);
                let reports = reporting.reports + 1;
                let pause =
                    if reports < REPORT_INTERVALS.1 { REPORT_INTERVALS.0 } else { REPORT_INTERVALS.2 };
                *reporting = ReportSchedule { reports, next: self.now + pause, ..fresh };
            }
        }
        let now = self.now;
        let jobs = &self.jobs;
        self.reporting.retain(|id, r| {
            jobs.get(id).is_some_and(|j| j.generation == r.generation && j.is_running(now)) && r.next > now
        });
        // Jobs in a pause report again from its end.
        for job in jobs.values().filter(|j| j.size() > 0 && j.is_pausing(now)) {
            let next = job.pausing.until.ceil() as i64;
            let reporting = ReportSchedule { generation: 0, reports: 0, next, last: next, done: job.done };
            self.reporting.entry(job.id).or_insert(reporting);
        }
        urgent
    }

    fn run_round(&mut self) {
        self.accumulator.score.rounds += 1;
        let changed = self.cluster.take_changed();
        let targets = {
            let view = PolicyView {
                now: self.now,
                cluster: &self.cluster,
                changed: &changed,
                queue: &self.queue,
                jobs: &self.jobs,
                costs: &self.costs,
            };
            self.policy.decide_targets(&view)
        };
        // First release all nodes that are given back, then assign nodes.
        for target in &targets {
            self.release_given_nodes(target);
        }
        for (node, secs) in self.saving.forecast_leaving() {
            self.windows.set_leave_secs(node, secs + CLEANUP_SECS);
        }
        for target in targets {
            self.apply_target(target);
        }
        for node in changed.into_iter().chain(self.cluster.changed_nodes().clone()) {
            let who = match self.cluster.node_owner(node) {
                NodeOwner::Main => None,
                NodeOwner::Free => Some(None),
                NodeOwner::Held(job) => Some(Some(job)),
            };
            self.accumulator.timeline.note_owner(node, self.now, who);
        }
    }

    fn release_given_nodes(&mut self, target: &Target) {
        let Some(job) = self.jobs.get(&target.job) else { return };
        let keeps: BTreeSet<NodeIx> = target.nodes.iter().copied().collect();
        let gone: Vec<NodeIx> = job.nodes.iter().copied().filter(|n| !keeps.contains(n)).collect();
        self.cluster.release_nodes(&gone);
        let leaves_secs = self.setup.leave_secs;
        for node in &gone {
            self.windows.note_departure(*node, job.id, leaves_secs, self.now);
        }
        if gone.is_empty() {
            return;
        }
        if self.saving.is_shared() {
            self.saving.begin_save(job.clone(), gone, leaves_secs - CLEANUP_SECS);
        } else {
            self.policy.record_leaving(job, leaves_secs, self.now);
        }
    }

    fn apply_target(&mut self, target: Target) {
        let Some(job) = self.jobs.get_mut(&target.job) else { return };
        let had: BTreeSet<NodeIx> = job.nodes.iter().copied().collect();
        let new: Vec<NodeIx> = target.nodes.iter().copied().filter(|n| !had.contains(n)).collect();
        let refused = self.cluster.hold_nodes(job.id, &new);
        let nodes: Vec<NodeIx> = target.nodes.into_iter().filter(|n| !refused.contains(n)).collect();
        if nodes.iter().copied().collect::<BTreeSet<_>>() != had || nodes.first() != job.nodes.first() {
            job.rescale_to(nodes, target.cause, &self.costs, self.now, &mut self.accumulator.score.loss);
        }
    }

    fn score_job(&self, job: &SimJob, ended_at: Option<f64>) -> JobScore {
        let held = self.accumulator.holdings.get(&job.id).copied().unwrap_or_default();
        JobScore {
            id: job.id,
            name: job.submitted.name.clone(),
            user: job.submitted.user.clone(),
            samples: job.done,
            work: job.done * job.submitted.weight,
            submitted_at: job.submitted.at,
            ended_at,
            rescales: job.rescales,
            present_secs: held.present_secs,
            node_secs: held.node_secs,
            turns: held.turns,
            first_wait_secs: held.first_wait_secs,
            longest_wait_secs: held.longest_wait_secs,
            waited_secs: held.waited_secs,
            changing_secs: job.changing_secs,
        }
    }

    /// The present moment, s.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// The sums so far.
    pub(super) fn score(&self) -> &PolicyScore {
        &self.accumulator.score
    }

    /// The name of a job that has not ended.
    pub(super) fn job_name(&self, job: JobId) -> Option<&str> {
        self.jobs.get(&job).map(|job| job.submitted.name.as_str())
    }

    /// Rescales of all jobs so far.
    pub(super) fn rescales(&self) -> u64 {
        let ended = self.accumulator.ended.iter().map(|(_, score)| score.rescales);
        ended.chain(self.jobs.values().map(|job| job.rescales)).sum()
    }

    /// Who was on the first nodes, until now.
    pub(super) fn timeline(&self) -> Vec<NodeSpan> {
        self.accumulator.timeline.clone().into_spans(self.now)
    }

    fn finish(mut self) -> PolicyScore {
        self.advance_to(self.span.1);
        let living = self.jobs.values().map(|job| (job.id, self.score_job(job, None))).collect();
        let mut score = self.accumulator.into_score(living, self.span.1);
        let (refused_plans, worst_gap) = self.policy.plan_defects();
        score.refused_plans = refused_plans;
        score.worst_gap = worst_gap;
        score
    }
}
