//! The model of execution plans against a table of measurements, as if it were a job: what
//! `infill advise --plans` runs.

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

/// Measurements on several nodes, of all: what lies between nodes cannot be told from one.
const LEAST_ON_SEVERAL_NODES: usize = 2;

/// A job as it is imagined.
#[derive(Clone, Debug)]
pub struct PlanTrial {
    /// What would be measured, by plan and placement: at least one row.
    pub runs: Vec<PlanMeasurement>,
    /// What is known of its model.
    pub facts: Option<ModelFacts>,
    /// Standard deviation of the logarithm of a measurement.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Most measurements.
    pub measurements: usize,
    /// What is usual.
    pub priors: PlanPriors,
}

/// A measured row, and the logarithm of the seconds of a step.
type MeasuredRow = (usize, f64);

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanProbe {
    /// What was measured.
    #[serde(flatten)]
    pub place: PlanPlacement,
    /// The rate that was measured, samples a second.
    pub rate: f64,
}

/// A plan on a placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanPlacement {
    /// The plan.
    pub plan: ExecPlan,
    /// GPUs on all nodes.
    pub gpus: u32,
    /// Nodes.
    pub nodes: u32,
    /// GPUs on each of them.
    pub gpus_by_node: Vec<u32>,
}

/// Truth and prediction of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanPoint {
    /// The row.
    #[serde(flatten)]
    pub place: PlanPlacement,
    /// Whether it was one of the measurements.
    pub measured: bool,
    /// The table's rate, samples a second.
    #[serde(rename = "true")]
    pub truth: f64,
    /// The predicted rate.
    pub predicted: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What would be run on so many GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenPlan {
    /// The plan of the best predicted rate, and its placement.
    #[serde(flatten)]
    pub place: PlanPlacement,
    /// Its true rate ÷ the best true rate at so many GPUs.
    pub true_share_of_best: f64,
}

/// How a trial went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanTrialResult {
    /// What was measured, in order.
    pub probes: Vec<PlanProbe>,
    /// All rows of the table.
    pub points: Vec<PlanPoint>,
    /// Mean absolute relative error of the rates of all rows that were not measured, a fraction; 0 where all
    /// were.
    pub mape: f64,
    /// By GPUs, ascending.
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
    /// Runs it. `None` when there is nothing to measure, or numbers overflow.
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
        let several = |row: usize| self.runs[row].nodes() > 1;
        let measured = |row: usize| seen.iter().any(|(seen, _)| *seen == row);
        let lacking =
            LEAST_ON_SEVERAL_NODES.saturating_sub(seen.iter().filter(|(row, _)| several(*row)).count());
        let must = lacking >= left && (0..self.runs.len()).any(|r| several(r) && !measured(r));
        measurement_choice::next_measurement(&predicted.covariance, self.noise, |r| {
            !measured(r) && (!must || several(r))
        })
    }

    fn measure_row(&self, row: usize, random: &mut StdRng) -> f64 {
        let run = &self.runs[row];
        (run.global_batch / run.rate).ln() + self.noise * draw_normal(random)
    }

    fn build_result(&self, predicted: &PlanPredictions, seen: &[MeasuredRow]) -> PlanTrialResult {
        let estimates = self.rate_estimates(predicted);
        let point = |(i, (run, estimate)): (usize, (&PlanMeasurement, &SizeEstimate))| {
            let (low, high) = estimate.interval_90();
            let measured = seen.iter().any(|(row, _)| *row == i);
            PlanPoint {
                place: PlanPlacement::from_run(run),
                measured,
                truth: run.rate,
                predicted: estimate.rate,
                low,
                high,
            }
        };
        let points: Vec<PlanPoint> = self.runs.iter().zip(&estimates).enumerate().map(point).collect();
        let others: Vec<&PlanPoint> = points.iter().filter(|p| !p.measured).collect();
        let wrong: f64 = others.iter().map(|p| (p.predicted / p.truth - 1.0).abs()).sum();
        PlanTrialResult {
            probes: seen
                .iter()
                .map(|(row, log_secs): &MeasuredRow| {
                    let run = &self.runs[*row];
                    PlanProbe { place: PlanPlacement::from_run(run), rate: run.global_batch / log_secs.exp() }
                })
                .collect(),
            mape: wrong / others.len().max(1) as f64,
            chosen: best_by_gpus(&points),
            points,
        }
    }

    fn rate_estimates(&self, predicted: &PlanPredictions) -> Vec<SizeEstimate> {
        self.runs
            .iter()
            .enumerate()
            .map(|(i, run): (usize, &PlanMeasurement)| SizeEstimate {
                rate: run.global_batch / predicted.log_secs[i].exp(),
                error: predicted.standard_error(i),
            })
            .collect()
    }
}

fn best_by_gpus(points: &[PlanPoint]) -> Vec<ChosenPlan> {
    let mut by_gpus: BTreeMap<u32, (&PlanPoint, f64)> = BTreeMap::new();
    for point in points {
        let (best, truth) = by_gpus.entry(point.place.gpus).or_insert((point, point.truth));
        *truth = truth.max(point.truth);
        if point.predicted > best.predicted {
            *best = point;
        }
    }
    by_gpus
        .into_values()
        .map(|(best, truth): (&PlanPoint, f64)| ChosenPlan {
            place: best.place.clone(),
            true_share_of_best: best.truth / truth,
        })
        .collect()
}
