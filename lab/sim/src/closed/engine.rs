//! From event to event: jobs come and end, and the policy is asked.

use std::collections::BTreeMap;

use super::job::{ActiveJob, ActiveRun};
use super::machine::ClosedMachine;
use super::outcome::{ClosedOutcome, JobOutcome};
use super::policy::{ClosedMachinePolicy, ClosedTarget, ClosedView, WorkReport};
use super::setup::ClosedSetup;
use super::speeds::RunChoice;
use crate::seeded_random::SeededRandom;

/// Seconds that a job must have run for its speed to be measured, and to be measured again.
const MIN_MEASURED_SECS: f64 = 10.0;

/// Reports of a job in each measurement.
const REPORTS_PER_MEASUREMENT: u32 = 6;

/// After so many rounds in which no job runs and none is to come, the rest can never run.
const MAX_IDLE_ROUNDS: u32 = 1000;

/// Simulates one policy. `visit` sees the share of the jobs that has ended, now and then.
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
    /// When the policy is asked next though nothing happens.
    tick: f64,
    /// Rounds since a job ran last.
    idle_rounds: u32,
    dice: SeededRandom,
    now: f64,
    outcome: ClosedOutcome,
}

impl<'a> ClosedEngine<'a> {
    fn new(setup: &'a ClosedSetup, policy: Box<dyn ClosedMachinePolicy>) -> Self {
        let outcome = ClosedOutcome::new(policy.name());
        let machine = setup.machine.clone();
        let jobs = BTreeMap::new();
        let dice = SeededRandom::new(setup.seed);
        ClosedEngine {
            setup,
            policy,
            machine,
            jobs,
            next_job: 0,
            tick: 0.0,
            idle_rounds: 0,
            dice,
            now: 0.0,
            outcome,
        }
    }

    fn submitted_at(&self, job: usize) -> Option<f64> {
        self.setup.jobs.get(job).map(|j| j.submit_secs / self.setup.speed_up)
    }

    /// When something happens next; `None` when all is over.
    fn next_event(&self) -> Option<f64> {
        let submission = self.submitted_at(self.next_job);
        let nobody_can = self.idle_rounds > MAX_IDLE_ROUNDS;
        if submission.is_none() && (self.jobs.is_empty() || nobody_can) {
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
        let mut ask = self.end_jobs();
        ask |= self.submit_jobs();
        let due = self.tick <= at;
        if due {
            // Rounds come at whole multiples, whenever the first job came.
            let every = self.policy.round_interval_secs();
            self.tick = (at / every).floor() * every + every;
        }
        if due || (ask && self.policy.reacts_to_events()) {
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
        let over: Vec<usize> = self.jobs.values().filter(|j| j.is_over()).map(|j| j.id).collect();
        for id in &over {
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
        !over.is_empty()
    }

    fn batch_size(&self, job: &ActiveJob) -> f64 {
        self.setup.speeds.for_model(&job.submitted.model).map_or(0.0, |m| m.batch)
    }

    /// What a job had is free, and how fast it was there is measured.
    fn release_gpus(&mut self, job: &ActiveJob) {
        let Some(run) = &job.run else { return };
        self.machine.release_gpus(&run.seat);
        self.report_work(job, run);
    }

    /// What the job did since it was last measured is reported.
    fn report_work(&mut self, job: &ActiveJob, run: &ActiveRun) {
        let secs = self.now - run.unmeasured;
        if !self.policy.learns_speeds() || secs < MIN_MEASURED_SECS {
            return;
        }
        // The mean of all reports has the noise of one measurement.
        let noise = self.setup.noise * f64::from(REPORTS_PER_MEASUREMENT).sqrt();
        let secs = secs / f64::from(REPORTS_PER_MEASUREMENT);
        for _ in 0..REPORTS_PER_MEASUREMENT {
            let steps = run.rate * secs / self.dice.log_normal_factor(noise);
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
        let wishes = {
            let now = self.now;
            let restart_secs = self.setup.restart_secs;
            let machine = &self.machine;
            let jobs = &self.jobs;
            let speeds = &self.setup.speeds;
            self.policy.decide_targets(&ClosedView { now, restart_secs, machine, jobs, speeds })
        };
        let mut wishes: Vec<ClosedTarget> = wishes
            .into_iter()
            .filter(|w: &ClosedTarget| {
                let now = self.jobs.get(&w.job).map(|j| j.run.as_ref().map(|r| &r.choice));
                now.is_some_and(|now| w.anew || now != w.choice.as_ref())
            })
            .collect();
        // First all that is given back, then all that is taken.
        let mut before: BTreeMap<usize, ActiveRun> =
            wishes.iter().filter_map(|w| Some((w.job, self.stop_job(w.job)?))).collect();
        wishes.sort_by_key(ClosedTarget::placement_order);
        for wish in &wishes {
            let started = wish.choice.as_ref().is_some_and(|choice| self.start_job(wish.job, choice));
            if !started && wish.choice.is_some() {
                // No room of the kind that it needs: it stays where it was, if nobody took that.
                before.remove(&wish.job).into_iter().for_each(|run| self.resume_job(wish.job, run));
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
            .filter(|run: &&mut ActiveRun| now - run.unmeasured >= MIN_MEASURED_SECS)
            .for_each(|run| run.unmeasured = now);
    }

    fn stop_job(&mut self, id: usize) -> Option<ActiveRun> {
        let run = self.jobs.get_mut(&id)?.run.take()?;
        self.machine.release_gpus(&run.seat);
        Some(run)
    }

    /// Starts a job, if there is room where it is known to run. Says whether there was.
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
        let some_left = !self.jobs.is_empty() || self.submitted_at(self.next_job).is_some();
        match self.setup.most_secs {
            Some(last) if some_left => self.advance_to(last.max(self.now)),
            // The rounds in which nobody could run any more are no part of it.
            None if some_left => self.now = self.outcome.jobs.last().map_or(0.0, |j| j.ended),
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
