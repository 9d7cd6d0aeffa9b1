//! Rubick (MLSys 2025), as far as it is public: sensitivity curves and their slopes.
//!
//! A job's curve is its best rate over plans at each size of the type that it asks for, made monotone. Its
//! slope is the relative gain per GPU. In each round, waiting jobs come first, by age: each gets the fewest
//! GPUs that keep its guarantee, its rate as submitted divided by 1.5. If too few are free, the job that
//! loses least gives some up, but no job falls below its guarantee. The rest goes where the slope is
//! steepest.

use std::collections::BTreeMap;

use super::{ClosedMachinePolicy, ClosedTarget, ClosedView, as_submitted, fastest_per_size, true_offers};
use crate::closed::{job::ActiveJob, speeds::RunChoice};

/// Seconds between two rounds.
const ROUND_INTERVAL_SECS: f64 = 60.0;

/// A job may be slower than as submitted by at most this factor.
const GUARANTEED_SLOWDOWN: f64 = 1.5;

/// The published policy Rubick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RubickPolicy;

/// A job's sensitivity curve: sizes at which it is faster than at all smaller ones, ascending.
struct SensitivityCurve {
    points: Vec<(RunChoice, f64)>,
    /// The first point that keeps the guarantee.
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

    /// The relative gain per GPU from one point to the next.
    fn slope_at(&self, at: usize) -> Option<f64> {
        let (_, rate) = self.points.get(at)?;
        let (_, next) = self.points.get(at + 1)?;
        Some((next - rate) / rate / f64::from(self.gpus_at(at + 1) - self.gpus_at(at)))
    }
}

/// The division of the machine's GPUs among jobs.
struct GpuDivision {
    curves: BTreeMap<usize, SensitivityCurve>,
    /// The point on the curve of each job that has GPUs.
    points: BTreeMap<usize, usize>,
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
            division.curves.keys().copied().filter(|j| !division.points.contains_key(j)).collect();
        for job in waiting {
            division.admit_job(job);
        }
        division.distribute_rest();
        division.points.keys().map(|job| ClosedTarget::with_choice(*job, division.choice_of(*job))).collect()
    }
}

impl GpuDivision {
    /// The division that jobs have now.
    fn from_view(view: &ClosedView<'_>) -> GpuDivision {
        let curves: BTreeMap<usize, SensitivityCurve> =
            view.jobs.values().filter_map(|j| Some((j.id, SensitivityCurve::for_job(view, j)?))).collect();
        let mut points = BTreeMap::new();
        let mut free: Vec<u32> = view.machine.pools.iter().map(|p| p.gpu_count()).collect();
        for job in view.jobs.values() {
            let Some(run) = &job.run else { continue };
            let Some(curve) = curves.get(&job.id) else { continue };
            let Some(point) = curve.points.iter().rposition(|(choice, _)| choice.gpus <= run.choice.gpus)
            else {
                continue;
            };
            points.insert(job.id, point);
            let (choice, _) = &curve.points[point];
            free[choice.pool] = free[choice.pool].saturating_sub(choice.gpus);
        }
        GpuDivision { curves, points, free }
    }

    /// The choice at the point of a job.
    fn choice_of(&self, job: usize) -> Option<RunChoice> {
        let point = self.points.get(&job)?;
        let (choice, _) = self.curves.get(&job)?.points.get(*point)?;
        Some(choice.clone())
    }

    /// Gives a waiting job its guaranteed GPUs, if other jobs can spare them.
    fn admit_job(&mut self, job: usize) {
        let Some(curve) = self.curves.get(&job) else { return };
        let Some((choice, _)) = curve.points.get(curve.least) else { return };
        let pool = choice.pool;
        let gpus = choice.gpus;
        let least = curve.least;
        let points_before = self.points.clone();
        let free_before = self.free.clone();
        while self.free[pool] < gpus {
            let Some(loser) = self.flattest_job(pool) else {
                self.points = points_before;
                self.free = free_before;
                return;
            };
            self.move_job(loser, -1);
        }
        self.free[pool] -= gpus;
        self.points.insert(job, least);
    }

    /// The job in this pool that loses least by one step down and still keeps its guarantee.
    fn flattest_job(&self, pool: usize) -> Option<usize> {
        let mut losses: Vec<(usize, f64)> = Vec::new();
        for (job, point) in &self.points {
            losses.extend(self.loss_of_step_down(*job, *point, pool).map(|loss| (*job, loss)));
        }
        let least = losses.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
        least.map(|(job, _)| job)
    }

    /// The loss of a job by one step down; `None` if it is in another pool, or at its guarantee.
    fn loss_of_step_down(&self, job: usize, point: usize, pool: usize) -> Option<f64> {
        let curve = self.curves.get(&job)?;
        let (choice, _) = curve.points.get(point)?;
        if choice.pool != pool || point <= curve.least {
            return None;
        }
        curve.slope_at(point - 1)
    }

    /// Gives the remaining GPUs to the jobs that gain most.
    fn distribute_rest(&mut self) {
        loop {
            let mut gains: Vec<(usize, f64)> = Vec::new();
            for (job, point) in &self.points {
                gains.extend(self.gain_of_step_up(*job, *point).map(|gain| (*job, gain)));
            }
            let Some((job, _)) = gains.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b)) else { return };
            self.move_job(job, 1);
        }
    }

    /// The gain of a job by one step up; `None` if too few GPUs are free.
    fn gain_of_step_up(&self, job: usize, point: usize) -> Option<f64> {
        let curve = self.curves.get(&job)?;
        let (choice, _) = curve.points.get(point)?;
        let slope = curve.slope_at(point)?;
        let needed = curve.gpus_at(point + 1) - curve.gpus_at(point);
        if needed <= self.free[choice.pool] { Some(slope) } else { None }
    }

    /// Moves a job by one point up or down its curve.
    fn move_job(&mut self, job: usize, step: isize) {
        let Some(curve) = self.curves.get(&job) else { return };
        let Some(point) = self.points.get_mut(&job) else { return };
        let target = point.saturating_add_signed(step);
        let Some((from, _)) = curve.points.get(*point) else { return };
        let Some((into, _)) = curve.points.get(target) else { return };
        self.free[into.pool] = (self.free[into.pool] + from.gpus).saturating_sub(into.gpus);
        *point = target;
    }
}
