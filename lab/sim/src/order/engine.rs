//! The event loop: jobs arrive and end, and the order decides which jobs run.

use super::live_job::LiveJob;
use super::rules::JobRanks;
use super::{OrderOutcome, QueueOrder, RigidJob};

/// Longest time between two decisions while jobs wait, seconds.
const TICK_SECS: f64 = 300.0;

/// A job with less time than this left is over, seconds.
const DONE_TOLERANCE_SECS: f64 = 1e-6;

/// Simulates an order on a machine with `units` units. A job that is stopped needs `stop_secs` more. The jobs
/// must be sorted by arrival, and none may need more units than the machine has. Calls `visit` with 1 less
/// the share of jobs that are waiting or running.
pub fn simulate_order(
    jobs: &[RigidJob],
    units: u32,
    order: QueueOrder,
    stop_secs: f64,
    visit: &mut dyn FnMut(f64),
) -> OrderOutcome {
    let mut engine = OrderEngine::new(jobs, units, order, stop_secs);
    while let Some(at) = engine.next_decision() {
        engine.step_to(at);
        visit(1.0 - engine.live.len() as f64 / jobs.len().max(1) as f64);
    }
    engine.outcome
}

struct OrderEngine<'a> {
    jobs: &'a [RigidJob],
    units: u32,
    stop_secs: f64,
    now: f64,
    next_job: usize,
    live: Vec<LiveJob>,
    ranks: JobRanks<'a>,
    outcome: OrderOutcome,
}

impl<'a> OrderEngine<'a> {
    fn new(jobs: &'a [RigidJob], units: u32, order: QueueOrder, stop_secs: f64) -> Self {
        let outcome = OrderOutcome { order, jct_secs: vec![0.0; jobs.len()], stops: 0, makespan_secs: 0.0 };
        let ranks = JobRanks::new(jobs, units, order);
        let now = jobs.first().map_or(0.0, |j| j.at);
        OrderEngine { jobs, units, stop_secs, now, next_job: 0, live: Vec::new(), ranks, outcome }
    }

    /// When the next decision is made; `None` when all jobs have ended.
    fn next_decision(&self) -> Option<f64> {
        let coming = self.jobs.get(self.next_job).map_or(f64::INFINITY, |j| j.at);
        let ends = self.live.iter().filter(|l| l.runs).map(|l| self.now + l.left_secs);
        let waits = self.outcome.order.stops_jobs() && self.live.iter().any(|l| !l.runs);
        let tick = if waits { self.now + TICK_SECS } else { f64::INFINITY };
        let at = ends.fold(coming.min(tick), f64::min).max(self.now);
        at.is_finite().then_some(at)
    }

    fn step_to(&mut self, at: f64) {
        let passed = at - self.now;
        self.now = at;
        for live in self.live.iter_mut().filter(|l| l.runs) {
            live.left_secs -= passed;
            live.done_secs += passed;
        }
        self.end_jobs();
        while let Some(job) = self.jobs.get(self.next_job).filter(|j| j.at <= at) {
            self.live.push(LiveJob { job: self.next_job, left_secs: job.secs, done_secs: 0.0, runs: false });
            self.next_job += 1;
        }
        self.assign_units();
    }

    fn end_jobs(&mut self) {
        let jobs = self.jobs;
        let now = self.now;
        let outcome = &mut self.outcome;
        self.live.retain(|live| {
            let is_over = live.runs && live.left_secs <= DONE_TOLERANCE_SECS;
            if is_over {
                outcome.jct_secs[live.job] = now - jobs[live.job].at;
                outcome.makespan_secs = now - jobs[0].at;
            }
            !is_over
        });
    }

    fn size_of(&self, live: &LiveJob) -> u32 {
        self.jobs[live.job].size
    }

    /// Runs the jobs that come first, while units are free. If the order does not stop jobs, those that run
    /// continue.
    fn assign_units(&mut self) {
        let may_stop = self.outcome.order.stops_jobs();
        let mut chosen: Vec<bool> = self.live.iter().map(|l| l.runs && !may_stop).collect();
        let continuing = self.live.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
        let held: u32 = continuing.map(|(live, _)| self.size_of(live)).sum();
        let mut free = self.units.saturating_sub(held);
        for place in self.ranks.sorted_positions(&self.live) {
            let size = self.size_of(&self.live[place]);
            if !chosen[place] && size <= free {
                chosen[place] = true;
                free -= size;
            }
            if free == 0 {
                break;
            }
        }
        for (live, chosen) in self.live.iter_mut().zip(chosen) {
            if live.runs && !chosen {
                self.outcome.stops += 1;
                live.left_secs += self.stop_secs;
            }
            live.runs = chosen;
        }
    }
}
