//! From event to event.

use std::collections::{BTreeMap, BTreeSet};

use super::chance::Dice;
use super::cluster::{Cluster, Usage};
use super::holding::Holding;
use super::job::{Accounting, Checkpoints, SimJob};
use super::policy::{Policy, Target, View};
use super::queue::{Foresight, MainQueue, Moment, NodeIx};
use super::saving::Saving;
use super::score::{Balance, JobScore, Series, Timeline};
use super::supply::Supply;
use infill_gaps::CLEANUP_SECS;
use infill_model::{JobId, RescaleCosts};

/// Seconds by which a window must have been known beyond what leaving takes: a round has to come, and to be
/// carried out.
const NOTICE_SECS: i64 = 10;

/// Seconds between a running job's reports at first, for so many reports, and then.
const REPORT_SECS: (i64, u32, i64) = (1, 45, 30);

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The main queue.
    pub queue: MainQueue,
    /// The malleable jobs.
    pub supply: Supply,
    /// What rescales truly cost.
    pub costs: RescaleCosts,
    /// How their seconds are charged.
    pub accounting: Accounting,
    /// Seconds that a newcomer warms up for on its own node, while the others train; 0: jobs restart at each
    /// change.
    pub warm_secs: f64,
    /// What saving costs.
    pub checkpoints: Checkpoints,
    /// Seconds that leaving a node truly takes when there is time for it.
    pub leave_secs: f64,
    /// How much jobs that leave at the same time slow each other down while they save, which is all of
    /// [`Setup::leave_secs`] but the clean-up: where k of them do, that takes 1 + c (k − 1) times as long,
    /// for this c from 0 to 1.
    pub save_shared: f64,
    /// Standard deviation of the logarithm of what is measured in a second.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Ends the simulation so many seconds after the log's start, if that is before the log's end.
    pub most_secs: Option<i64>,
    /// How many nodes, the first ones, the timeline shows.
    pub timeline_nodes: u32,
}

/// Simulates one policy. `visit` sees the share of the log that is done, now and then.
pub fn run(setup: &Setup, policy: Box<dyn Policy>, visit: &mut dyn FnMut(f64)) -> Balance {
    let mut engine = Engine::new(setup, policy);
    let (start, end) = engine.span;
    while let Some(at) = engine.next().filter(|at| *at < end) {
        // What the log says of the time before its start, such as submissions, is known at the start.
        engine.step(at.max(start));
        visit((at - start) as f64 / (end - start).max(1) as f64);
    }
    engine.finish()
}

/// What a running job has reported.
#[derive(Clone, Copy, Debug)]
struct Reporting {
    generation: u64,
    reports: u32,
    next: i64,
    last: i64,
    done: f64,
}

/// What is known of each node's window, and when the node was left.
struct Windows {
    /// When a malleable job last left each node of its own will.
    left_at: Vec<Option<i64>>,
    /// Seconds that this takes, until the next job can have it.
    leaves_secs: Vec<f64>,
    /// Since when the present window of each node has been known, as (end, since).
    told: Vec<Option<(i64, i64)>>,
    /// Number of the main queue's plan that these are of.
    plan_number: u64,
}

/// What it all comes to.
struct Books {
    balance: Balance,
    ended: Vec<(JobId, JobScore)>,
    holdings: BTreeMap<JobId, Holding>,
    series: Series,
    timeline: Timeline,
}

impl Books {
    /// What the simulation has come to, now that these jobs live on at its end.
    fn close(mut self, living: Vec<(JobId, JobScore)>, end: i64) -> Balance {
        let mut scores = self.ended;
        let balance = &mut self.balance;
        balance.finished = scores.len();
        scores.extend(living);
        scores.sort_by_key(|(id, _)| *id);
        balance.jobs = scores.into_iter().map(|(_, score)| score).collect();
        balance.work = balance.jobs.iter().map(|j| j.work).sum();
        balance.samples = balance.jobs.iter().map(|j| j.samples).sum();
        balance.rescales = balance.jobs.iter().map(|j| j.rescales).sum();
        balance.series = self.series.take();
        balance.timeline = self.timeline.take(end);
        self.balance
    }
}

struct Engine<'a> {
    setup: &'a Setup,
    costs: RescaleCosts,
    policy: Box<dyn Policy>,
    queue: MainQueue,
    supply: Supply,
    cluster: Cluster,
    jobs: BTreeMap<JobId, SimJob>,
    reporting: BTreeMap<JobId, Reporting>,
    dice: Dice,
    span: (i64, i64),
    now: i64,
    windows: Windows,
    saving: Saving,
    books: Books,
}

impl<'a> Engine<'a> {
    fn new(setup: &'a Setup, policy: Box<dyn Policy>) -> Self {
        let queue = setup.queue.clone();
        let (start, end) = queue.span();
        let end = setup.most_secs.map_or(end, |most| end.min(start.saturating_add(most)));
        let nodes = queue.names().len();
        let all_free = matches!(queue, MainQueue::Log(_));
        let free = RescaleCosts { up_secs: 0.0, down_secs: 0.0, start_secs: 0.0 };
        let books = Books {
            balance: Balance { policy: policy.name(), ..Balance::default() },
            ended: Vec::new(),
            holdings: BTreeMap::new(),
            series: Series::default(),
            timeline: Timeline::new(setup.timeline_nodes),
        };
        Engine {
            setup,
            costs: if policy.pays() { setup.costs } else { free },
            cluster: Cluster::new(queue.names(), all_free),
            supply: setup.supply.starting_at(start),
            policy,
            queue,
            jobs: BTreeMap::new(),
            reporting: BTreeMap::new(),
            dice: Dice::new(setup.seed),
            span: (start, end),
            now: start,
            windows: Windows {
                left_at: vec![None; nodes],
                leaves_secs: vec![setup.leave_secs; nodes],
                told: vec![None; nodes],
                plan_number: 0,
            },
            saving: Saving::new(setup.save_shared, start as f64),
            books,
        }
    }

    /// When something happens next.
    fn next(&self) -> Option<i64> {
        let ends = self.jobs.values().map(|j| j.ends_at()).fold(f64::INFINITY, f64::min);
        let ends = (ends < 1e15).then(|| (ends.ceil() as i64).max(self.now + 1));
        let reports = self.reporting.values().map(|r| r.next).min();
        let wake = self.policy.wake().map(|at| at.max(self.now + 1));
        let joins = self.jobs.values().filter_map(|j| j.joins_at()).reduce(f64::min);
        let joins = joins.map(|at| (at.ceil() as i64).max(self.now + 1));
        let saves = self.saving.next().map(|at| (at.ceil() as i64).max(self.now + 1));
        let others = self.queue.next().into_iter().chain(self.supply.next()).chain(ends).chain(joins);
        others.chain(saves).chain(reports).chain(wake).min()
    }

    fn step(&mut self, at: i64) {
        self.pass(at);
        let mut ask = self.policy.wake().is_some_and(|wake| wake <= at);
        ask |= self.end_jobs();
        ask |= self.main_queue();
        ask |= self.submit();
        ask |= self.report();
        if ask {
            self.round();
        }
    }

    /// Lets time pass up to `at`.
    fn pass(&mut self, at: i64) {
        let secs = (at - self.now) as f64;
        for job in self.jobs.values_mut() {
            job.advance(at as f64, &self.setup.checkpoints, &mut self.books.balance.loss);
            self.books.holdings.entry(job.id).or_default().pass(secs, job.size());
        }
        if secs > 0.0 {
            let (idle, held) = (self.cluster.idle_count(), self.cluster.held_count());
            self.books.balance.idle_node_secs += secs * idle as f64;
            self.books.balance.held_node_secs += secs * held as f64;
            self.books.series.add(self.now as f64, secs, idle, held);
        }
        self.now = at;
        for (save, done_at) in self.saving.pass(at as f64) {
            self.policy.left(&save.job, done_at - save.began + CLEANUP_SECS, at);
        }
    }

    fn end_jobs(&mut self) -> bool {
        let over = |j: &&SimJob| j.done >= j.submitted.budget * (1.0 - 1e-12);
        let over: Vec<JobId> = self.jobs.values().filter(over).map(|j| j.id).collect();
        for id in &over {
            let Some(mut job) = self.jobs.remove(id) else { continue };
            job.done = job.submitted.budget;
            self.cluster.release(&job.nodes);
            self.reporting.remove(id);
            self.policy.ended(&job, self.now);
            self.supply.ended(&job, self.now);
            let score = self.score(&job, Some(self.now as f64));
            self.books.ended.push((*id, score));
        }
        !over.is_empty()
    }

    /// All that the main queue does at this moment. Says whether it concerns the policy.
    fn main_queue(&mut self) -> bool {
        let mut changed = false;
        while self.queue.next().is_some_and(|at| at <= self.now) {
            let Some(moment) = self.queue.advance() else { break };
            changed |= !moment.freed.is_empty() || !moment.taken.is_empty();
            // What the log tells of the time before the start concerns nobody.
            if moment.at >= self.span.0 {
                self.count_delays(&moment);
            }
            let lost = self.cluster.apply(&moment);
            for (id, nodes) in lost {
                self.preempt(id, nodes.into_iter().collect());
            }
        }
        let (_, number) = self.queue.plan();
        if number != self.windows.plan_number {
            self.windows.plan_number = number;
            changed |= self.policy.foresight() != Foresight::None;
            self.note_windows();
        }
        changed
    }

    fn preempt(&mut self, id: JobId, lost: BTreeSet<NodeIx>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        // Who pays for nothing has always saved.
        let free = Checkpoints { save_secs: 0.0, ..self.setup.checkpoints };
        let checkpoints = if self.policy.pays() { &self.setup.checkpoints } else { &free };
        let before = job.nodes.clone();
        let has_lead = self.policy.has_lead();
        job.preempt(&lost, has_lead, &self.costs, checkpoints, self.now, &mut self.books.balance.loss);
        let dropped: Vec<NodeIx> =
            before.into_iter().filter(|n| !lost.contains(n) && !job.nodes.contains(n)).collect();
        self.cluster.release(&dropped);
    }

    fn note_windows(&mut self) {
        for node in 0..self.windows.told.len() {
            let planned = self.queue.window(node as NodeIx, Foresight::Backfill).map(|p| p.at);
            let told = &mut self.windows.told[node];
            *told = match (planned, *told) {
                (None, _) => None,
                // Wanted no later than was said before: known at least as long.
                (Some(at), Some((before, since))) if at >= before => Some((at, since)),
                (Some(at), _) => Some((at, self.now)),
            };
        }
    }

    /// What jobs of the main queue find on the nodes that they take.
    fn count_delays(&mut self, moment: &Moment) {
        let checkpoints = &self.setup.checkpoints;
        let at_once = checkpoints.save_secs.min(checkpoints.grace_secs) + CLEANUP_SECS;
        let counts = &mut self.books.balance.preempted;
        for taken in &moment.taken {
            counts.jobs += 1;
            let (mut delay, mut late) = (0.0f64, false);
            for node in &taken.nodes {
                let place = *node as usize;
                let leaves = self.windows.leaves_secs[place];
                let leaving =
                    self.windows.left_at[place].map_or(0.0, |left| left as f64 + leaves - self.now as f64);
                let held = matches!(self.cluster.usage(*node), Usage::Held(_));
                let waits = if held { at_once } else { leaving.max(0.0) };
                let notice = leaves.ceil() as i64 + NOTICE_SECS;
                let known = |(at, since): (i64, i64)| at <= self.now && since <= self.now - notice;
                late |= waits > 0.0 && self.windows.told[place].is_some_and(known);
                delay = delay.max(waits);
            }
            counts.late += u64::from(late);
            counts.unforeseen += u64::from(!late && delay > 0.0);
            counts.longest_secs = counts.longest_secs.max(delay);
            counts.total_secs += delay;
        }
    }

    fn submit(&mut self) -> bool {
        let new = self.supply.submit(self.now);
        let any = !new.is_empty();
        let accounting = self.setup.accounting;
        let warm_secs = if self.policy.pays() { self.setup.warm_secs } else { 0.0 };
        self.jobs.extend(new.into_iter().map(|job| (job.id, job.charged(accounting).warmed(warm_secs))));
        any
    }

    /// Lets jobs that are due tell the policy how they run. Says whether it wants to be asked now.
    fn report(&mut self) -> bool {
        if !self.policy.learns() {
            return false;
        }
        let mut urgent = false;
        for job in self.jobs.values().filter(|j| j.runs(self.now)) {
            let fresh = Reporting {
                generation: job.generation,
                reports: 0,
                next: self.now + REPORT_SECS.0,
                last: self.now,
                done: job.done,
            };
            let reporting = self.reporting.entry(job.id).or_insert(fresh);
            if reporting.generation != job.generation {
                *reporting = fresh;
            }
            if reporting.next <= self.now {
                let samples = (job.done - reporting.done).max(0.0) * self.dice.factor(self.setup.noise);
                let secs = (self.now - reporting.last) as f64;
                urgent |= self.policy.progress(job, samples, secs, self.now);
                let reports = reporting.reports + 1;
                let pause = if reports < REPORT_SECS.1 { REPORT_SECS.0 } else { REPORT_SECS.2 };
                *reporting = Reporting { reports, next: self.now + pause, ..fresh };
            }
        }
        let now = self.now;
        let jobs = &self.jobs;
        self.reporting.retain(|id, r| {
            jobs.get(id).is_some_and(|j| j.generation == r.generation && j.runs(now)) && r.next > now
        });
        // Those that pause report from the moment at which they run again.
        for job in jobs.values().filter(|j| j.size() > 0 && j.pauses(now)) {
            let next = job.pausing.until.ceil() as i64;
            let reporting = Reporting { generation: 0, reports: 0, next, last: next, done: job.done };
            self.reporting.entry(job.id).or_insert(reporting);
        }
        urgent
    }

    fn round(&mut self) {
        self.books.balance.rounds += 1;
        let changed = self.cluster.take_changed();
        let targets = {
            let view = View {
                now: self.now,
                cluster: &self.cluster,
                changed: &changed,
                queue: &self.queue,
                jobs: &self.jobs,
                costs: &self.costs,
            };
            self.policy.decide(&view)
        };
        // First all that is given back, then all that is taken.
        for target in &targets {
            self.give_back(target);
        }
        for (node, secs) in self.saving.forecast() {
            self.windows.leaves_secs[node as usize] = secs + CLEANUP_SECS;
        }
        for target in targets {
            self.go_over(target);
        }
        for node in changed.into_iter().chain(self.cluster.changed().clone()) {
            let who = match self.cluster.usage(node) {
                Usage::Main => None,
                Usage::Free => Some(None),
                Usage::Held(job) => Some(Some(job)),
            };
            self.books.timeline.note(node, self.now, who);
        }
    }

    fn give_back(&mut self, target: &Target) {
        let Some(job) = self.jobs.get(&target.job) else { return };
        let keeps: BTreeSet<NodeIx> = target.nodes.iter().copied().collect();
        let gone: Vec<NodeIx> = job.nodes.iter().copied().filter(|n| !keeps.contains(n)).collect();
        self.cluster.release(&gone);
        let leaves_secs = self.setup.leave_secs;
        for node in &gone {
            self.windows.left_at[*node as usize] = Some(self.now);
            self.windows.leaves_secs[*node as usize] = leaves_secs;
        }
        if gone.is_empty() {
            // Then it leaves nothing.
        } else if self.saving.is_shared() {
            self.saving.begin(job.clone(), gone, leaves_secs - CLEANUP_SECS);
        } else {
            self.policy.left(job, leaves_secs, self.now);
        }
    }

    fn go_over(&mut self, target: Target) {
        let Some(job) = self.jobs.get_mut(&target.job) else { return };
        let had: BTreeSet<NodeIx> = job.nodes.iter().copied().collect();
        let new: Vec<NodeIx> = target.nodes.iter().copied().filter(|n| !had.contains(n)).collect();
        let refused = self.cluster.hold(job.id, &new);
        let nodes: Vec<NodeIx> = target.nodes.into_iter().filter(|n| !refused.contains(n)).collect();
        if nodes.iter().copied().collect::<BTreeSet<_>>() != had || nodes.first() != job.nodes.first() {
            job.rescale(nodes, target.cause, &self.costs, self.now, &mut self.books.balance.loss);
        }
    }

    fn score(&self, job: &SimJob, ended_at: Option<f64>) -> JobScore {
        let held = self.books.holdings.get(&job.id).copied().unwrap_or_default();
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

    fn finish(mut self) -> Balance {
        self.pass(self.span.1);
        let living = self.jobs.values().map(|job| (job.id, self.score(job, None))).collect();
        let mut balance = self.books.close(living, self.span.1);
        (balance.refused_plans, balance.worst_gap) = self.policy.defects();
        balance
    }
}
