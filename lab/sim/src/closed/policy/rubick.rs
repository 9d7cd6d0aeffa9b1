//! Rubick (MLSys 2025), as far as it is public: sensitivity curves and their slopes.
//!
//! A job's curve is its best rate over plans at each size of the type that it asks for, made monotone; its
//! slope is the relative gain a GPU. In each round old jobs come first: each gets the fewest GPUs that keep
//! what was guaranteed, its rate as submitted divided by 1.5; where too few are free, whoever loses least
//! gives some up, but nobody falls below the guarantee. What is left over goes where the slope is steepest.

use std::collections::BTreeMap;

use super::{ClosedMachinePolicy, ClosedTarget, ClosedView, as_submitted, fastest_per_size, true_offers};
use crate::closed::{job::ActiveJob, speeds::RunChoice};

/// Seconds between two rounds.
const ROUND_INTERVAL_SECS: f64 = 60.0;

/// A job may run so many times slower than as submitted.
const GUARANTEED_SLOWDOWN: f64 = 1.5;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RubickPolicy;

/// A job's sensitivity curve: sizes at which it is faster than at all smaller ones, ascending.
struct SensitivityCurve {
    points: Vec<(RunChoice, f64)>,
    /// The first point that keeps what was guaranteed.
    least: usize,
}

impl SensitivityCurve {
    fn for_job(view: &ClosedView<'_>, job: &ActiveJob) -> Option<SensitivityCurve> {
        let (asked, rate) = as_submitted(view, job, false)?;
        let mut points: Vec<(RunChoice, f64)> = Vec::new();
        for (choice, rate) in
            fastest_per_size(true_offers(view, job)).into_iter().filter(|(c, _)| c.pool == asked.pool)
        {
            if points.last().is_none_or(|(_, known)| rate > *known) {
                points.push((choice, rate));
            }
        }
        let least = points.iter().position(|(_, r)| *r >= rate / GUARANTEED_SLOWDOWN)?;
        Some(SensitivityCurve { points, least })
    }

    fn gpus_at(&self, at: usize) -> u32 {
        self.points.get(at).map_or(0, |(choice, _)| choice.gpus)
    }

    /// The relative gain a GPU from one point to the next.
    fn slope_at(&self, at: usize) -> Option<f64> {
        let (_, rate) = self.points.get(at)?;
        let (_, next) = self.points.get(at + 1)?;
        Some((next - rate) / rate / f64::from(self.gpus_at(at + 1) - self.gpus_at(at)))
    }
}

/// A division of the machine as it is made.
struct GpuDivision {
    curves: BTreeMap<usize, SensitivityCurve>,
    /// The point of each job that has GPUs.
    at: BTreeMap<usize, usize>,
    /// Free GPUs by pool.
    free: Vec<u32>,
}

impl ClosedMachinePolicy for RubickPolicy {
    fn name(&self) -> String {
        "rubick".to_owned()
    }

    fn round_interval_secs(&self) -> f64 {
        ROUND_INTERVAL_SECS
    }

    fn decide_targets(&mut self, view: &ClosedView<'_>) -> Vec<ClosedTarget> {
        let mut division = GpuDivision::from_view(view);
        let waiting: Vec<usize> =
            division.curves.keys().copied().filter(|j| !division.at.contains_key(j)).collect();
        for job in waiting {
            division.admit_job(job);
        }
        division.distribute_rest();
        let choice = |job: usize| {
            let at = division.at.get(&job)?;
            division.curves.get(&job)?.points.get(*at).map(|(choice, _)| choice.clone())
        };
        division.at.keys().map(|job| ClosedTarget::with_choice(*job, choice(*job))).collect()
    }
}

impl GpuDivision {
    /// What jobs have now.
    fn from_view(view: &ClosedView<'_>) -> GpuDivision {
        let curves: BTreeMap<usize, SensitivityCurve> =
            view.jobs.values().filter_map(|j| Some((j.id, SensitivityCurve::for_job(view, j)?))).collect();
        let point = |job: &ActiveJob| {
            let run = job.run.as_ref()?;
            let curve = curves.get(&job.id)?;
            curve
                .points
                .iter()
                .enumerate()
                .rfind(|(_, (choice, _)): &(usize, &(RunChoice, f64))| choice.gpus <= run.choice.gpus)
                .map(|(at, _)| (job.id, at))
        };
        let at: BTreeMap<usize, usize> = view.jobs.values().filter_map(point).collect();
        let mut free: Vec<u32> = view.machine.pools.iter().map(|p| p.gpu_count()).collect();
        for (job, at) in &at {
            if let Some((choice, _)) = curves.get(job).and_then(|c| c.points.get(*at)) {
                free[choice.pool] = free[choice.pool].saturating_sub(choice.gpus);
            }
        }
        GpuDivision { curves, at, free }
    }

    /// Gives a job that waits what it is guaranteed, if others can spare it.
    fn admit_job(&mut self, job: usize) {
        let Some(curve) = self.curves.get(&job) else { return };
        let Some((choice, _)) = curve.points.get(curve.least) else { return };
        let pool = choice.pool;
        let gpus = choice.gpus;
        let least = curve.least;
        let before = (self.at.clone(), self.free.clone());
        while self.free[pool] < gpus {
            let Some(loser) = self.flattest_job(pool) else {
                (self.at, self.free) = before;
                return;
            };
            self.move_job(loser, -1);
        }
        self.free[pool] -= gpus;
        self.at.insert(job, least);
    }

    /// Who would lose least by one step down, and keeps what is guaranteed.
    fn flattest_job(&self, pool: usize) -> Option<usize> {
        let loss = |(job, at): (&usize, &usize)| {
            let curve = self.curves.get(job)?;
            let fits = curve.points.get(*at).is_some_and(|(c, _)| c.pool == pool) && *at > curve.least;
            Some((*job, curve.slope_at(at.checked_sub(1).filter(|_| fits)?)?))
        };
        self.at.iter().filter_map(loss).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(job, _)| job)
    }

    /// Gives what is left over where it is worth most.
    fn distribute_rest(&mut self) {
        loop {
            let gain = |(job, at): (&usize, &usize)| {
                let curve = self.curves.get(job)?;
                let pool = curve.points.get(*at)?.0.pool;
                let slope = curve.slope_at(*at)?;
                let needs = curve.gpus_at(*at + 1) - curve.gpus_at(*at);
                (needs <= self.free[pool]).then_some((*job, slope))
            };
            let Some((job, _)) = self.at.iter().filter_map(gain).max_by(|a, b| a.1.total_cmp(&b.1)) else {
                return;
            };
            self.move_job(job, 1);
        }
    }

    /// One point up or down a job's curve.
    fn move_job(&mut self, job: usize, by: isize) {
        let (Some(curve), Some(at)) = (self.curves.get(&job), self.at.get_mut(&job)) else { return };
        let to = at.saturating_add_signed(by);
        let (Some((from, _)), Some((into, _))) = (curve.points.get(*at), curve.points.get(to)) else {
            return;
        };
        self.free[into.pool] = (self.free[into.pool] + from.gpus).saturating_sub(into.gpus);
        *at = to;
    }
}
