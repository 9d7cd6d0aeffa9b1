//! The event loop: jobs arrive and end, and the policy decides.

use std::collections::BTreeMap;

use super::job::{ActiveJob, ActiveRun};
use super::machine::ClosedMachine;
use super::outcome::{ClosedOutcome, JobOutcome};
use super::policy::{ClosedMachinePolicy, ClosedTarget, ClosedView, WorkReport};
use super::setup::ClosedSetup;
use super::speeds::RunChoice;
use crate::seeded_random::SeededRandom;

/// Seconds that a job must have run before its speed is measured, and measured again.
const MIN_MEASURED_SECS: f64 = 10.0;

/// Reports of a job in each measurement.
const REPORTS_PER_MEASUREMENT: u32 = 6;

/// After this number of rounds without a running job or a future submission, the remaining jobs cannot run.
const MAX_IDLE_ROUNDS: u32 = 1000;

/// Simulates one policy. Calls `visit` from time to time with the share of jobs that have ended, 0 to 1.
pub fn run_closed(
    setup: &ClosedSetup,
    policy: Box<dyn ClosedMachinePolicy>,
    visit: &mut dyn FnMut(f64),
) -> ClosedOutcome {
    let mut engine = ClosedEngine::new(setup, policy);
    while let Some(at) = engine.next_event() {
        engine.step_to(at);
        visit(engine.outcome.jobs.len() as f64 / setup.jobs.len().max(1) as f64);
    }
    engine.finish()
}

struct ClosedEngine<'a> {
    setup: &'a ClosedSetup,
    policy: Box<dyn ClosedMachinePolicy>,
    machine: ClosedMachine,
    jobs: BTreeMap<usize, ActiveJob>,
    /// The next job to be submitted.
    next_job: usize,
    /// When the next regular round is, s.
    tick: f64,
    /// Number of rounds since a job last ran.
    idle_rounds: u32,
    random: SeededRandom,
    now: f64,
    outcome: ClosedOutcome,
}

impl<'a> ClosedEngine<'a> {
    fn new(setup: &'a ClosedSetup, policy: Box<dyn ClosedMachinePolicy>) -> Self {
        let outcome = ClosedOutcome::new(policy.name());
        ClosedEngine {
            setup,
            policy,
            machine: setup.machine.clone(),
            jobs: BTreeMap::new(),
            next_job: 0,
            tick: 0.0,
            idle_rounds: 0,
            random: SeededRandom::new(setup.seed),
            now: 0.0,
            outcome,
        }
    }

    fn submitted_at(&self, job: usize) -> Option<f64> {
        self.setup.jobs.get(job).map(|j| j.submit_secs / self.setup.speed_up)
    }

    /// When the next event is, s; `None` when the simulation is over.
    fn next_event(&self) -> Option<f64> {
        let submission = self.submitted_at(self.next_job);
        let cannot_run = self.idle_rounds > MAX_IDLE_ROUNDS;
        if submission.is_none() && (self.jobs.is_empty() || cannot_run) {
            return None;
        }
        let ends = self.jobs.values().map(|j| j.ends_at(self.now)).fold(f64::INFINITY, f64::min);
        let tick = if self.jobs.is_empty() { f64::INFINITY } else { self.tick };
        let at = submission.unwrap_or(f64::INFINITY).min(ends).min(tick).max(self.now);
        let last = self.setup.most_secs.unwrap_or(f64::INFINITY);
        (at < last).then_some(at)
    }

    fn step_to(&mut self, at: f64) {
        self.advance_to(at);
        let mut has_events = self.end_jobs();
        has_events |= self.submit_jobs();
        let is_due = self.tick <= at;
        if is_due {
            // Regular rounds are at whole multiples of the interval, whenever the first job arrived.
            let interval = self.policy.round_interval_secs();
            self.tick = (at / interval).floor() * interval + interval;
        }
        if is_due || (has_events && self.policy.reacts_to_events()) {
            self.run_round();
        }
    }

    fn advance_to(&mut self, at: f64) {
        for job in self.jobs.values_mut() {
            self.outcome.gpu_secs += job.advance_between(self.now, at);
        }
        self.now = at;
    }

    fn end_jobs(&mut self) -> bool {
        let finished: Vec<usize> = self.jobs.values().filter(|j| j.is_over()).map(|j| j.id).collect();
        for id in &finished {
            let Some(job) = self.jobs.remove(id) else { continue };
            self.release_gpus(&job);
            self.policy.job_ended(&job, self.now);
            self.outcome.samples += job.steps * self.batch_size(&job);
            self.outcome.restarts += u64::from(job.starts.saturating_sub(1));
            self.outcome.jobs.push(JobOutcome {
                name: job.submitted.name.clone(),
                submitted: self.submitted_at(job.id).unwrap_or(0.0),
                started: job.first_start.unwrap_or(self.now),
                ended: self.now,
            });
        }
        !finished.is_empty()
    }

    fn batch_size(&self, job: &ActiveJob) -> f64 {
        self.setup.speeds.for_model(&job.submitted.model).map_or(0.0, |m| m.batch)
    }

    /// Frees the GPUs of a job and reports its speed there.
    fn release_gpus(&mut self, job: &ActiveJob) {
        let Some(run) = &job.run else { return };
        self.machine.release_gpus(&run.seat);
        self.report_work(job, run);
    }

    /// Reports the job's work since it was last measured.
    fn report_work(&mut self, job: &ActiveJob, run: &ActiveRun) {
        let secs = self.now - run.unmeasured;
        if !self.policy.learns_speeds() || secs < MIN_MEASURED_SECS {
            return;
        }
        // The mean of all reports has the noise of one measurement.
        let noise = self.setup.noise * f64::from(REPORTS_PER_MEASUREMENT).sqrt();
        let secs = secs / f64::from(REPORTS_PER_MEASUREMENT);
        for _ in 0..REPORTS_PER_MEASUREMENT {
            let steps = run.rate * secs / self.random.log_normal_factor(noise);
            self.policy.record_progress(&self.machine, job, WorkReport { steps, secs }, self.now);
        }
    }

    fn submit_jobs(&mut self) -> bool {
        let before = self.next_job;
        while self.submitted_at(self.next_job).is_some_and(|at| at <= self.now) {
            let Some(submitted) = self.setup.jobs.get(self.next_job) else { break };
            let at = self.submitted_at(self.next_job).unwrap_or(self.now);
            let job = ActiveJob::new(self.next_job, submitted.clone(), self.setup.work, at);
            self.jobs.insert(self.next_job, job);
            self.next_job += 1;
            self.idle_rounds = 0;
        }
        self.next_job > before
    }

    fn run_round(&mut self) {
        if self.policy.learns_speeds() {
            self.measure_all();
        }
        let targets = {
            let now = self.now;
            let restart_secs = self.setup.restart_secs;
            let machine = &self.machine;
            let jobs = &self.jobs;
            let speeds = &self.setup.speeds;
            self.policy.decide_targets(&ClosedView { now, restart_secs, machine, jobs, speeds })
        };
        let mut targets: Vec<ClosedTarget> = targets
            .into_iter()
            .filter(|w| {
                let now = self.jobs.get(&w.job).map(|j| j.run.as_ref().map(|r| &r.choice));
                now.is_some_and(|now| w.relocates || now != w.choice.as_ref())
            })
            .collect();
        // First release all GPUs that are given back, then assign GPUs.
        let mut before: BTreeMap<usize, ActiveRun> =
            targets.iter().filter_map(|w| Some((w.job, self.stop_job(w.job)?))).collect();
        targets.sort_by_key(ClosedTarget::placement_order);
        for target in &targets {
            let started = target.choice.as_ref().is_some_and(|choice| self.start_job(target.job, choice));
            if !started
                && target.choice.is_some()
                && let Some(run) = before.remove(&target.job)
            {
                // There are no suitable GPUs: the job keeps its old ones, if no other job took them.
                self.resume_job(target.job, run);
            }
        }
        self.count_idle_rounds();
    }

    fn count_idle_rounds(&mut self) {
        let runs = self.jobs.values().any(|j| j.run.is_some());
        self.idle_rounds = if runs || self.jobs.is_empty() { 0 } else { self.idle_rounds + 1 };
    }

    fn measure_all(&mut self) {
        let running: Vec<(ActiveJob, ActiveRun)> =
            self.jobs.values().filter_map(|j| Some((j.clone(), j.run.clone()?))).collect();
        running.iter().for_each(|(job, run)| self.report_work(job, run));
        let now = self.now;
        self.jobs
            .values_mut()
            .filter_map(|j| j.run.as_mut())
            .filter(|run| now - run.unmeasured >= MIN_MEASURED_SECS)
            .for_each(|run| run.unmeasured = now);
    }

    fn stop_job(&mut self, id: usize) -> Option<ActiveRun> {
        let run = self.jobs.get_mut(&id)?.run.take()?;
        self.machine.release_gpus(&run.seat);
        Some(run)
    }

    /// Starts a job if there are free GPUs in a placement where it can run. Returns whether it started.
    fn start_job(&mut self, id: usize, choice: &RunChoice) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let model = self.setup.speeds.for_model(&job.submitted.model);
        let Some((seat, measured)) = model.and_then(|m| m.find_placement(&self.machine, choice)) else {
            return false;
        };
        self.machine.take_gpus(&seat);
        job.first_start.get_or_insert(self.now);
        job.starts += 1;
        job.run = Some(ActiveRun {
            choice: choice.clone(),
            seat,
            rate: measured.rate,
            ready: self.now + self.setup.restart_secs,
            unmeasured: self.now + self.setup.restart_secs,
        });
        true
    }

    fn resume_job(&mut self, id: usize, run: ActiveRun) {
        if self.machine.is_free(&run.seat) {
            self.machine.take_gpus(&run.seat);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.run = Some(run);
            }
        }
    }

    fn finish(mut self) -> ClosedOutcome {
        let are_jobs_left = !self.jobs.is_empty() || self.submitted_at(self.next_job).is_some();
        match self.setup.most_secs {
            Some(last) if are_jobs_left => self.advance_to(last.max(self.now)),
            // The rounds in which no job could run any more do not count.
            None if are_jobs_left => self.now = self.outcome.jobs.last().map_or(0.0, |j| j.ended),
            _ => {}
        }
        for job in self.jobs.values() {
            self.outcome.samples += job.done * self.batch_size(job);
            self.outcome.restarts += u64::from(job.starts.saturating_sub(1));
        }
        self.outcome.finish_at(self.now, self.setup.machine.gpu_count(), self.setup.jobs.len());
        self.outcome
    }
}
