//! From event to event: jobs come and end, and the policy is asked.

use std::collections::BTreeMap;

use super::job::{Job, Run};
use super::machine::Machine;
use super::outcome::{JobOutcome, Outcome};
use super::policy::{Policy, View, Wish, WorkReport};
use super::setup::Setup;
use super::speeds::Choice;
use crate::chance::Dice;

/// Seconds that a job must have run for its speed to be measured, and to be measured again.
const MEASURED_SECS: f64 = 10.0;

/// Reports of a job in each measurement.
const REPORTS: u32 = 6;

/// After so many rounds in which no job runs and none is to come, the rest can never run.
const MAX_IDLE_ROUNDS: u32 = 1000;

/// Simulates one policy. `visit` sees the share of the jobs that has ended, now and then.
pub fn run(setup: &Setup, policy: Box<dyn Policy>, visit: &mut dyn FnMut(f64)) -> Outcome {
    let mut engine = Engine::new(setup, policy);
    while let Some(at) = engine.next() {
        engine.step(at);
        visit(engine.outcome.jobs.len() as f64 / setup.jobs.len().max(1) as f64);
    }
    engine.finish()
}

struct Engine<'a> {
    setup: &'a Setup,
    policy: Box<dyn Policy>,
    machine: Machine,
    jobs: BTreeMap<usize, Job>,
    /// The next job to be submitted.
    next_job: usize,
    /// When the policy is asked next though nothing happens.
    tick: f64,
    /// Rounds since a job ran last.
    idle_rounds: u32,
    dice: Dice,
    now: f64,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    fn new(setup: &'a Setup, policy: Box<dyn Policy>) -> Self {
        let outcome = Outcome::new(policy.name());
        let (machine, jobs, dice) = (setup.machine.clone(), BTreeMap::new(), Dice::new(setup.seed));
        Engine {
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

    fn submission(&self, job: usize) -> Option<f64> {
        self.setup.jobs.get(job).map(|j| j.submit_secs / self.setup.speed_up)
    }

    /// When something happens next; `None` when all is over.
    fn next(&self) -> Option<f64> {
        let submission = self.submission(self.next_job);
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

    fn step(&mut self, at: f64) {
        self.pass(at);
        let mut ask = self.end_jobs();
        ask |= self.submit();
        let due = self.tick <= at;
        if due {
            // Rounds come at whole multiples, whenever the first job came.
            let every = self.policy.every_secs();
            self.tick = (at / every).floor() * every + every;
        }
        if due || (ask && self.policy.hears_events()) {
            self.round();
        }
    }

    fn pass(&mut self, at: f64) {
        for job in self.jobs.values_mut() {
            self.outcome.gpu_secs += job.pass(self.now, at);
        }
        self.now = at;
    }

    fn end_jobs(&mut self) -> bool {
        let over: Vec<usize> = self.jobs.values().filter(|j| j.is_over()).map(|j| j.id).collect();
        for id in &over {
            let Some(job) = self.jobs.remove(id) else { continue };
            self.leave(&job);
            self.policy.ended(&job, self.now);
            self.outcome.samples += job.steps * self.batch(&job);
            self.outcome.restarts += u64::from(job.starts.saturating_sub(1));
            self.outcome.jobs.push(JobOutcome {
                name: job.submitted.name.clone(),
                submitted: self.submission(job.id).unwrap_or(0.0),
                started: job.first_start.unwrap_or(self.now),
                ended: self.now,
            });
        }
        !over.is_empty()
    }

    fn batch(&self, job: &Job) -> f64 {
        self.setup.speeds.of(&job.submitted.model).map_or(0.0, |m| m.batch)
    }

    /// What a job had is free, and how fast it was there is measured.
    fn leave(&mut self, job: &Job) {
        let Some(run) = &job.run else { return };
        self.machine.give_back(&run.seat);
        self.measure(job, run);
    }

    /// What the job did since it was last measured is reported.
    fn measure(&mut self, job: &Job, run: &Run) {
        let secs = self.now - run.unmeasured;
        if !self.policy.learns() || secs < MEASURED_SECS {
            return;
        }
        // The mean of all reports has the noise of one measurement.
        let noise = self.setup.noise * f64::from(REPORTS).sqrt();
        let secs = secs / f64::from(REPORTS);
        for _ in 0..REPORTS {
            let steps = run.rate * secs / self.dice.factor(noise);
            self.policy.progress(&self.machine, job, WorkReport { steps, secs }, self.now);
        }
    }

    fn submit(&mut self) -> bool {
        let before = self.next_job;
        while self.submission(self.next_job).is_some_and(|at| at <= self.now) {
            let Some(submitted) = self.setup.jobs.get(self.next_job) else { break };
            let at = self.submission(self.next_job).unwrap_or(self.now);
            let job = Job::new(self.next_job, submitted.clone(), self.setup.work, at);
            self.jobs.insert(self.next_job, job);
            self.next_job += 1;
            self.idle_rounds = 0;
        }
        self.next_job > before
    }

    fn round(&mut self) {
        if self.policy.learns() {
            self.measure_all();
        }
        let wishes = {
            let (now, restart_secs) = (self.now, self.setup.restart_secs);
            let (machine, jobs, speeds) = (&self.machine, &self.jobs, &self.setup.speeds);
            self.policy.decide(&View { now, restart_secs, machine, jobs, speeds })
        };
        let changes = |w: &Wish| {
            let now = self.jobs.get(&w.job).map(|j| j.run.as_ref().map(|r| &r.choice));
            now.is_some_and(|now| w.anew || now != w.choice.as_ref())
        };
        let mut wishes: Vec<Wish> = wishes.into_iter().filter(changes).collect();
        // First all that is given back, then all that is taken.
        let mut before: BTreeMap<usize, Run> =
            wishes.iter().filter_map(|w| Some((w.job, self.stop(w.job)?))).collect();
        wishes.sort_by_key(Wish::order);
        for wish in &wishes {
            let started = wish.choice.as_ref().is_some_and(|choice| self.start(wish.job, choice));
            if !started && wish.choice.is_some() {
                // No room of the kind that it needs: it stays where it was, if nobody took that.
                before.remove(&wish.job).into_iter().for_each(|run| self.resume(wish.job, run));
            }
        }
        self.count_idle_rounds();
    }

    fn count_idle_rounds(&mut self) {
        let runs = self.jobs.values().any(|j| j.run.is_some());
        self.idle_rounds = if runs || self.jobs.is_empty() { 0 } else { self.idle_rounds + 1 };
    }

    fn measure_all(&mut self) {
        let running: Vec<(Job, Run)> =
            self.jobs.values().filter_map(|j| Some((j.clone(), j.run.clone()?))).collect();
        running.iter().for_each(|(job, run)| self.measure(job, run));
        let now = self.now;
        let due = |run: &&mut Run| now - run.unmeasured >= MEASURED_SECS;
        self.jobs
            .values_mut()
            .filter_map(|j| j.run.as_mut())
            .filter(due)
            .for_each(|run| run.unmeasured = now);
    }

    fn stop(&mut self, id: usize) -> Option<Run> {
        let run = self.jobs.get_mut(&id)?.run.take()?;
        self.machine.give_back(&run.seat);
        Some(run)
    }

    /// Starts a job, if there is room where it is known to run. Says whether there was.
    fn start(&mut self, id: usize, choice: &Choice) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let model = self.setup.speeds.of(&job.submitted.model);
        let Some((seat, measured)) = model.and_then(|m| m.seat(&self.machine, choice)) else { return false };
        self.machine.take(&seat);
        job.first_start.get_or_insert(self.now);
        job.starts += 1;
        job.run = Some(Run {
            choice: choice.clone(),
            seat,
            rate: measured.rate,
            ready: self.now + self.setup.restart_secs,
            unmeasured: self.now + self.setup.restart_secs,
        });
        true
    }

    fn resume(&mut self, id: usize, run: Run) {
        if self.machine.is_free(&run.seat) {
            self.machine.take(&run.seat);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.run = Some(run);
            }
        }
    }

    fn finish(mut self) -> Outcome {
        let some_left = !self.jobs.is_empty() || self.submission(self.next_job).is_some();
        match self.setup.most_secs {
            Some(last) if some_left => self.pass(last.max(self.now)),
            // The rounds in which nobody could run any more are no part of it.
            None if some_left => self.now = self.outcome.jobs.last().map_or(0.0, |j| j.ended),
            _ => {}
        }
        for job in self.jobs.values() {
            self.outcome.samples += job.done * self.batch(job);
            self.outcome.restarts += u64::from(job.starts.saturating_sub(1));
        }
        self.outcome.close(self.now, self.setup.machine.gpus(), self.setup.jobs.len());
        self.outcome
    }
}
