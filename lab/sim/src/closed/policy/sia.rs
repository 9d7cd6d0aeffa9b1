//! Sia (SOSP 2023): an integer program chooses at most one (type, size) for each job.
//!
//! A job's value of a configuration is its rate there as a share of its smallest one, times the restart
//! factor (T − N·S) / (T + S) where it would have to change (T its age, N its restarts, S what one costs), to
//! the power p = −1/2; a job without GPUs costs λ = 1.1. A job begins with the fewest GPUs and at most
//! doubles.

use std::collections::BTreeMap;

use super::{Policy, View, Wish, fastest, offers};
use crate::closed::{job::Job, speeds::Choice};
use infill_planner::plan::{Milp, Variable, solver};

/// Seconds between two rounds.
const EVERY_SECS: f64 = 60.0;

/// Power of the rates.
const POWER: f64 = -0.5;

/// What it costs to give a job nothing.
const LAMBDA: f64 = 1.1;

/// The least that a restart leaves of a rate.
const LEAST_FACTOR: f64 = 0.01;

/// Jobs that a program holds, by submission: those that wait beyond them are not looked at yet.
const MOST_JOBS: usize = 128;

/// How long and how precisely a program is solved. The time is never up for so few jobs: it would make the
/// outcome depend on the machine.
const LIMITS: solver::Limits = solver::Limits { secs: 600.0, mip_gap: 1e-3 };

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sia;

/// The variable of a job's configuration.
struct Configuration {
    job: usize,
    choice: Choice,
    variable: usize,
}

impl Policy for Sia {
    fn name(&self) -> String {
        "sia".to_owned()
    }

    fn every_secs(&self) -> f64 {
        EVERY_SECS
    }

    fn decide(&mut self, view: &View<'_>) -> Vec<Wish> {
        let mut jobs: Vec<&Job> = view.jobs.values().collect();
        jobs.sort_by_key(|j| (j.run.is_none(), j.id));
        jobs.truncate(MOST_JOBS);
        let (milp, configurations) = program(view, &jobs);
        let Some(solver) = solver::default_solver() else { return Vec::new() };
        let Ok(solution) = solver.solve(&milp, LIMITS, None) else { return Vec::new() };
        let chosen = |c: &&Configuration| solution.values.get(c.variable).is_some_and(|v| *v > 0.5);
        let chosen: BTreeMap<usize, Choice> =
            configurations.iter().filter(chosen).map(|c| (c.job, c.choice.clone())).collect();
        jobs.iter().map(|job| Wish::to(job.id, chosen.get(&job.id).cloned())).collect()
    }
}

fn program(view: &View<'_>, jobs: &[&Job]) -> (Milp, Vec<Configuration>) {
    let (mut milp, mut found) = (Milp::default(), Vec::new());
    let mut used: Vec<Vec<(usize, f64)>> = vec![Vec::new(); view.machine.pools.len()];
    for job in jobs {
        let all = fastest(offers(view, job));
        let unit = all.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        let mut one = Vec::new();
        let least = all.iter().map(|(choice, _)| choice.gpus).min().unwrap_or(1);
        for (choice, rate) in all.into_iter().filter(|(choice, _)| choice.gpus <= most(job).max(least)) {
            let gain = LAMBDA - (factor(view, job, &choice) * rate / unit).powf(POWER);
            let variable = milp.add(Variable { lower: 0.0, upper: 1.0, integer: true, gain });
            one.push((variable, 1.0));
            used[choice.pool].push((variable, f64::from(choice.gpus)));
            found.push(Configuration { job: job.id, choice, variable });
        }
        milp.at_most(one, 1.0);
    }
    for (pool, terms) in view.machine.pools.iter().zip(used) {
        milp.at_most(terms, f64::from(pool.gpus()));
    }
    (milp, found)
}

/// The most GPUs that a job may have now: it begins with what it asked for, and doubles at most.
fn most(job: &Job) -> u32 {
    job.run.as_ref().map_or(job.submitted.gpus, |run| 2 * run.choice.gpus)
}

/// What a change leaves of a rate.
fn factor(view: &View<'_>, job: &Job, choice: &Choice) -> f64 {
    if job.run.as_ref().is_none_or(|run| run.choice == *choice) {
        return 1.0;
    }
    let age = view.now - job.first_start.unwrap_or(view.now);
    let lost = f64::from(job.starts.saturating_sub(1)) * view.restart_secs;
    ((age - lost) / (age + view.restart_secs).max(1.0)).max(LEAST_FACTOR)
}
