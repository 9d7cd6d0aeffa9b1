//! A trial of the model of execution plans: a table of measurements stands for a job. `infill advise --plans`
//! runs it.

use std::collections::BTreeMap;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;

use super::measurement_choice;
use super::plan_model::PlanModel;
use super::step_parameters::PlanPriors;
use super::step_terms::PlacedPlan;
use super::term_fit::PlanPredictions;
use crate::noise::draw_normal;
use crate::scaling::SizeEstimate;
use infill_model::{ExecPlan, ModelFacts, PlanMeasurement};

/// Measurements on several nodes, of all. Costs between nodes cannot be learned on one.
const LEAST_ON_SEVERAL_NODES: usize = 2;

/// A simulated job whose plans are measured one after another.
#[derive(Clone, Debug)]
pub struct PlanTrial {
    /// The results of all measurements that are possible, by plan and placement; at least one.
    pub runs: Vec<PlanMeasurement>,
    /// The declared facts of its model.
    pub facts: Option<ModelFacts>,
    /// Standard deviation of the logarithm of a measurement.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Most measurements.
    pub measurements: usize,
    /// The priors of the model.
    pub priors: PlanPriors,
}

/// A measured row, and the logarithm of the seconds of a step.
type MeasuredRow = (usize, f64);

/// One measurement of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanProbe {
    /// The plan and placement that were measured.
    #[serde(flatten)]
    pub place: PlanPlacement,
    /// The measured rate, noise included, samples a second.
    pub rate: f64,
}

/// A plan on a placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanPlacement {
    /// The plan's name.
    pub plan: ExecPlan,
    /// GPUs on all nodes.
    pub gpus: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// GPUs on each of the nodes.
    pub gpus_by_node: Vec<u32>,
}

/// Truth and prediction of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanPoint {
    /// The row's plan and placement.
    #[serde(flatten)]
    pub place: PlanPlacement,
    /// Whether it was one of the measurements.
    pub measured: bool,
    /// The table's rate, samples a second.
    #[serde(rename = "true")]
    pub truth: f64,
    /// The predicted rate, samples a second.
    pub predicted: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end of the 90 % interval.
    pub high: f64,
}

/// The plan that would run on a number of GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenPlan {
    /// The plan with the best predicted rate, and its placement.
    #[serde(flatten)]
    pub place: PlanPlacement,
    /// Its true rate ÷ the best true rate on this number of GPUs.
    pub true_share_of_best: f64,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanTrialResult {
    /// The measurements, in order.
    pub probes: Vec<PlanProbe>,
    /// Predictions for all rows of the table.
    pub points: Vec<PlanPoint>,
    /// Mean absolute relative error of the rates of all rows that were not measured, a fraction; 0 where all
    /// were.
    pub mape: f64,
    /// The chosen plan for each number of GPUs, ascending.
    pub chosen: Vec<ChosenPlan>,
}

impl PlanPlacement {
    fn from_run(run: &PlanMeasurement) -> Self {
        let plan = run.plan.clone();
        let gpus_by_node = run.gpus_by_node.clone();
        PlanPlacement { plan, gpus: run.gpus(), nodes: run.nodes(), gpus_by_node }
    }
}

impl PlanTrial {
    /// Runs the trial. `None` when there is nothing to measure, or numbers overflow.
    pub fn run(&self) -> Option<PlanTrialResult> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let rows: Vec<PlacedPlan> = self.runs.iter().map(PlacedPlan::from).collect();
        let mut model = PlanModel::new(self.facts, &self.priors, &[]);
        let mut seen: Vec<MeasuredRow> = Vec::new();
        let mut next = measurement_choice::first_measurement(&self.runs);
        while let Some(row) = next {
            let log_secs = self.measure_row(row, &mut random);
            seen.push((row, log_secs));
            model.record_measurement(&rows[row], log_secs.exp(), self.noise);
            model.refit_model();
            next = self.next_row(&model.predict_plans(&rows)?, &seen);
        }
        Some(self.build_result(&model.predict_plans(&rows)?, &seen))
    }

    fn next_row(&self, predicted: &PlanPredictions, seen: &[MeasuredRow]) -> Option<usize> {
        let left = self.measurements.checked_sub(seen.len()).filter(|left| *left > 0)?;
        let is_on_several: Vec<bool> = self.runs.iter().map(|run| run.nodes() > 1).collect();
        let mut is_measured = vec![false; self.runs.len()];
        for (row, _) in seen {
            is_measured[*row] = true;
        }
        let on_several = seen.iter().filter(|(row, _)| is_on_several[*row]).count();
        let is_due = LEAST_ON_SEVERAL_NODES.saturating_sub(on_several) >= left;
        let must_be_on_several =
            is_due && (0..self.runs.len()).any(|row| is_on_several[row] && !is_measured[row]);
        measurement_choice::next_measurement(&predicted.covariance, self.noise, |row| {
            !is_measured[row] && (!must_be_on_several || is_on_several[row])
        })
    }

    fn measure_row(&self, row: usize, random: &mut StdRng) -> f64 {
        let run = &self.runs[row];
        (run.global_batch / run.rate).ln() + self.noise * draw_normal(random)
    }

    fn build_result(&self, predicted: &PlanPredictions, seen: &[MeasuredRow]) -> PlanTrialResult {
        let estimates = self.rate_estimates(predicted);
        let mut points: Vec<PlanPoint> = Vec::new();
        for (i, (run, estimate)) in self.runs.iter().zip(&estimates).enumerate() {
            let (low, high) = estimate.interval_90();
            points.push(PlanPoint {
                place: PlanPlacement::from_run(run),
                measured: seen.iter().any(|(row, _)| *row == i),
                truth: run.rate,
                predicted: estimate.rate,
                low,
                high,
            });
        }
        let others: Vec<&PlanPoint> = points.iter().filter(|p| !p.measured).collect();
        let errors: f64 = others.iter().map(|p| (p.predicted / p.truth - 1.0).abs()).sum();
        let probes = seen.iter().map(|(row, log_secs)| {
            let run = &self.runs[*row];
            PlanProbe { place: PlanPlacement::from_run(run), rate: run.global_batch / log_secs.exp() }
        });
        PlanTrialResult {
            probes: probes.collect(),
            mape: errors / others.len().max(1) as f64,
            chosen: best_by_gpus(&points),
            points,
        }
    }

    fn rate_estimates(&self, predicted: &PlanPredictions) -> Vec<SizeEstimate> {
        let runs = self.runs.iter().enumerate();
        runs.map(|(i, run)| SizeEstimate {
            rate: run.global_batch / predicted.log_secs[i].exp(),
            error: predicted.standard_error(i),
        })
        .collect()
    }
}

/// For each number of GPUs, the row with the best predicted rate, compared with the best true one.
fn best_by_gpus(points: &[PlanPoint]) -> Vec<ChosenPlan> {
    let mut by_gpus: BTreeMap<u32, (&PlanPoint, f64)> = BTreeMap::new();
    for point in points {
        let (best, truth) = by_gpus.entry(point.place.gpus).or_insert((point, point.truth));
        *truth = truth.max(point.truth);
        if point.predicted > best.predicted {
            *best = point;
        }
    }
    let mut chosen = Vec::new();
    for (best, truth) in by_gpus.into_values() {
        chosen.push(ChosenPlan { place: best.place.clone(), true_share_of_best: best.truth / truth });
    }
    chosen
}
