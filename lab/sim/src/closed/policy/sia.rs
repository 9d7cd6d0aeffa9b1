//! Sia (SOSP 2023): an integer program chooses at most one (type, size) for each job.
//!
//! The value of a configuration for a job is its rate as a multiple of its smallest rate, to the power p =
//! −1/2. If the job would have to change, the rate is multiplied by the restart factor (T − N·S) / (T + S),
//! with its age T, its restarts N and the cost S of a restart. A job without GPUs costs λ = 1.1. A job begins
//! with the GPUs that it asked for and at most doubles.

use std::collections::BTreeMap;

use super::{ClosedMachinePolicy, ClosedTarget, ClosedView, fastest_per_size, true_offers};
use crate::closed::{job::ActiveJob, speeds::RunChoice};
use infill_planner::plan::{Milp, MilpVariable, solver};

/// Seconds between two rounds.
const ROUND_INTERVAL_SECS: f64 = 60.0;

/// Power of the rates.
const RATE_POWER: f64 = -0.5;

/// Cost of a job without GPUs.
const IDLE_JOB_COST: f64 = 1.1;

/// Smallest restart factor.
const MIN_RESTART_FACTOR: f64 = 0.01;

/// Most jobs of a program, in the order of submission. Waiting jobs beyond it have to wait.
const MAX_PROGRAM_JOBS: usize = 128;

/// Limits of the solver. With so few jobs it never reaches the time limit, which would make results depend on
/// the machine.
const SOLVER_LIMITS: solver::Limits = solver::Limits { secs: 600.0, mip_gap: 1e-3 };

/// The published policy Sia.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiaPolicy;

/// The variable of a job's configuration.
struct ConfigurationVariable {
    job: usize,
    choice: RunChoice,
    variable: usize,
}

impl ClosedMachinePolicy for SiaPolicy {
    fn name(&self) -> String {
        "sia".to_owned()
    }

    fn round_interval_secs(&self) -> f64 {
        ROUND_INTERVAL_SECS
    }

    fn decide_targets(&mut self, view: &ClosedView<'_>) -> Vec<ClosedTarget> {
        let mut jobs: Vec<&ActiveJob> = view.jobs.values().collect();
        jobs.sort_by_key(|j| (j.run.is_none(), j.id));
        jobs.truncate(MAX_PROGRAM_JOBS);
        let (milp, configurations) = build_program(view, &jobs);
        let Some(solver) = solver::default_solver() else { return Vec::new() };
        let Ok(solution) = solver.solve(&milp, SOLVER_LIMITS, None) else { return Vec::new() };
        let chosen =
            configurations.iter().filter(|c| solution.values.get(c.variable).is_some_and(|v| *v > 0.5));
        let chosen: BTreeMap<usize, RunChoice> = chosen.map(|c| (c.job, c.choice.clone())).collect();
        jobs.iter().map(|job| ClosedTarget::with_choice(job.id, chosen.get(&job.id).cloned())).collect()
    }
}

fn build_program(view: &ClosedView<'_>, jobs: &[&ActiveJob]) -> (Milp, Vec<ConfigurationVariable>) {
    let mut milp = Milp::default();
    let mut found = Vec::new();
    let mut used: Vec<Vec<(usize, f64)>> = vec![Vec::new(); view.machine.pools.len()];
    for job in jobs {
        let all = fastest_per_size(true_offers(view, job));
        let unit = all.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        let mut one = Vec::new();
        let least = all.iter().map(|(choice, _)| choice.gpus).min().unwrap_or(1);
        for (choice, rate) in all.into_iter().filter(|(choice, _)| choice.gpus <= max_gpus(job).max(least)) {
            let gain = IDLE_JOB_COST - (restart_factor(view, job, &choice) * rate / unit).powf(RATE_POWER);
            let variable = milp.add_variable(MilpVariable { lower: 0.0, upper: 1.0, integer: true, gain });
            one.push((variable, 1.0));
            used[choice.pool].push((variable, f64::from(choice.gpus)));
            found.push(ConfigurationVariable { job: job.id, choice, variable });
        }
        milp.add_at_most(one, 1.0);
    }
    for (pool, terms) in view.machine.pools.iter().zip(used) {
        milp.add_at_most(terms, f64::from(pool.gpu_count()));
    }
    (milp, found)
}

/// Most GPUs that a job may have now: those that it asked for at its start, later twice its present number.
fn max_gpus(job: &ActiveJob) -> u32 {
    job.run.as_ref().map_or(job.submitted.gpus, |run| 2 * run.choice.gpus)
}

/// The restart factor for a change to this choice; 1 if the job need not change.
fn restart_factor(view: &ClosedView<'_>, job: &ActiveJob, choice: &RunChoice) -> f64 {
    if job.run.as_ref().is_none_or(|run| run.choice == *choice) {
        return 1.0;
    }
    let age = view.now - job.first_start.unwrap_or(view.now);
    let lost = f64::from(job.starts.saturating_sub(1)) * view.restart_secs;
    ((age - lost) / (age + view.restart_secs).max(1.0)).max(MIN_RESTART_FACTOR)
}
