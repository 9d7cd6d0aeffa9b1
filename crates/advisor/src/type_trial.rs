//! A trial of estimates on types of GPUs: each program of a table comes to the site for the first time.
//! `infill advise --types` runs it.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;

use super::job_advisor::JobAdvisor;
use super::job_input::JobInput;
use super::node_capacity::NodeCapacity;
use super::noise::draw_normal;
use super::predicted_rates::PredictedRate;
use infill_model::{
    AllowedSizes, BatchMode, EstimateRow, ExecPlan, JobId, NodeType, Profile, ProfileKey, RescaleCosts,
    SizePoint, SpeedRow, Spread, UnixTime, config::AdvisorConfig,
};

/// The time of the whole trial.
const NOW: UnixTime = UnixTime(0);

/// A table of measurements, and one of estimates.
#[derive(Clone, Debug)]
pub struct TypeTrial {
    /// The results of all measurements that are possible. Rows without a type or an estimate only count as
    /// measurements of other models (`others`).
    pub rows: Vec<SpeedRow>,
    /// Estimates, one for each way to split a model. The fastest way on a placement is its estimate.
    pub estimates: Vec<EstimateRow>,
    /// Whether all other models of the table were measured before.
    pub with_others: bool,
    /// Micro-batches of a step. A stage is profiled with one.
    pub micro_batches: u32,
    /// Standard deviation of the logarithm of a measurement.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}

/// A number of GPUs of a type, on a number of nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TypePlacement {
    /// The type.
    #[serde(rename = "type")]
    pub node_type: NodeType,
    /// GPUs on all nodes.
    pub gpus: u32,
    /// Number of nodes.
    pub nodes: u32,
}

/// Truth, estimate and prediction of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypePoint {
    /// The model.
    pub model: String,
    /// The type and numbers of GPUs and nodes.
    #[serde(flatten)]
    pub place: TypePlacement,
    /// Whether it was the one measurement of its type.
    pub measured: bool,
    /// The table's seconds of a step.
    #[serde(rename = "true")]
    pub truth: f64,
    /// Estimated seconds of a step.
    pub estimated: f64,
    /// Predicted seconds of a step, after one measurement on each type.
    pub predicted: f64,
    /// Lower end of the prediction's 90 % interval, seconds.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The accuracy of one source of step times: the estimates or the predictions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TypeAccuracy {
    /// Mean absolute relative error of the rows that were not measured, a fraction.
    pub mape: f64,
    /// Median of the source's time ÷ the true time, over the same rows.
    pub ratio_median: f64,
    /// True rate of the (type, size) that seems best for a model ÷ the best true rate, mean over models.
    pub true_share_of_best: f64,
}

/// GPU-seconds that profiles and measurements cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProfilingCost {
    /// Profiles of each stage on one GPU, for one micro-batch.
    pub profiles_gpu_secs: f64,
    /// The measurements, one on each type.
    pub measured_gpu_secs: f64,
    /// Measurements of every way to split each model, at every size of each type.
    pub all_gpu_secs: f64,
    /// Profiles and measurements as a share of the third.
    pub share: f64,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeTrialResult {
    /// Number of models with estimates.
    pub models: usize,
    /// All rows with an estimate, by model, type and size.
    pub points: Vec<TypePoint>,
    /// Accuracy of the estimates.
    pub estimated: TypeAccuracy,
    /// Accuracy of the predictions after one measurement on each type.
    pub predicted: TypeAccuracy,
    /// What profiles and measurements cost.
    pub profiling: ProfilingCost,
}

impl TypePlacement {
    fn from_row(node_type: &NodeType, gpus_by_node: &[u32]) -> TypePlacement {
        let gpus = gpus_by_node.iter().sum();
        let nodes = gpus_by_node.len() as u32;
        TypePlacement { node_type: node_type.clone(), gpus, nodes }
    }
}

impl TypeTrial {
    /// Runs the trial. `None` when no row has an estimate.
    pub fn run(&self) -> Option<TypeTrialResult> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let noise_factors: Vec<f64> =
            self.rows.iter().map(|_| (self.noise * draw_normal(&mut random)).exp()).collect();
        let estimates = best_estimates(&self.rows, &self.estimates);
        let with_estimate: Vec<usize> =
            (0..self.rows.len()).filter(|row| estimates[*row].is_some()).collect();
        let models: BTreeSet<&str> = with_estimate.iter().map(|row| self.rows[*row].model.as_str()).collect();
        let mut points = Vec::new();
        for model in &models {
            let own: Vec<usize> =
                with_estimate.iter().copied().filter(|row| self.rows[*row].model == *model).collect();
            points.extend(self.model_points(&own, &estimates, &noise_factors));
        }
        Some(TypeTrialResult {
            models: models.len(),
            estimated: type_accuracy(&points, |p| p.estimated)?,
            predicted: type_accuracy(&points, |p| if p.measured { p.truth } else { p.predicted })?,
            profiling: self.profiling_cost(&points),
            points,
        })
    }

    /// The points of one model. `own`: its rows; `noise_factors`: by what factor each row's measurement is
    /// wrong.
    fn model_points(
        &self,
        own: &[usize],
        estimates: &[Option<f64>],
        noise_factors: &[f64],
    ) -> Vec<TypePoint> {
        let measured = self.smallest_of_each_type(own);
        let Some(model) = own.first().map(|row| self.rows[*row].model.as_str()) else { return Vec::new() };
        let known: Vec<usize> = (0..self.rows.len())
            .filter(|row| measured.contains(row) || (self.with_others && self.rows[*row].model != model))
            .collect();
        let mut advisor = JobAdvisor::new(AdvisorConfig::default());
        let profiles = self.measured_profiles(&known, noise_factors);
        let others: BTreeSet<&str> = known.iter().map(|row| self.rows[*row].model.as_str()).collect();
        for other in others {
            advisor.set_estimates(
                &profile_key(other, &NodeType::new("")),
                self.model_estimates(other, estimates),
            );
        }
        advisor.replace_profiles(profiles, NOW);
        let input = self.job_input(model, own);
        let types: BTreeSet<NodeType> =
            own.iter().filter_map(|row| row_node_type(&self.rows[*row])).collect();
        let capacity = NodeCapacity::from_types(types.into_iter().map(|t| (t, input.sizes.max())));
        advisor.run_round(std::slice::from_ref(&input), capacity, false, NOW);
        let points = own.iter().filter_map(|index| {
            let row = &self.rows[*index];
            let node_type = row.node_type.as_ref()?;
            let estimate =
                advisor.estimate_size(&input, None, &row_node_type(row)?, row.gpus_by_node.len() as u32)?;
            let (slow, fast) = estimate.interval_90();
            Some(TypePoint {
                model: row.model.clone(),
                place: TypePlacement::from_row(node_type, &row.gpus_by_node),
                measured: measured.contains(index),
                truth: row.step_secs,
                estimated: estimates[*index]?,
                predicted: row.batch / estimate.rate,
                low: row.batch / fast,
                high: row.batch / slow,
            })
        });
        let mut points: Vec<TypePoint> = points.collect();
        points.sort_by(|a, b| a.place.cmp(&b.place));
        points
    }

    /// The measurements of these rows, as a profile for each model and type of nodes.
    fn measured_profiles(&self, known: &[usize], noise_factors: &[f64]) -> Vec<Profile> {
        let mut rates: BTreeMap<(&str, NodeType), BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
        for index in known {
            let row = &self.rows[*index];
            let Some(node_type) = row_node_type(row) else { continue };
            let log = (row.batch / (row.step_secs * noise_factors[*index])).ln();
            let of_type = rates.entry((&row.model, node_type)).or_default();
            of_type.entry(row.gpus_by_node.len() as u32).or_default().push(log);
        }
        let mut profiles = Vec::new();
        for ((model, node_type), sizes) in rates {
            let mut profile = Profile::new(profile_key(model, &node_type));
            for (nodes, logs) in sizes {
                profile.points.push(SizePoint {
                    nodes,
                    rate: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
                    error: self.noise / (logs.len() as f64).sqrt(),
                    secs: 0.0,
                    step_samples: None,
                    hosts: None,
                    spread: Spread::Near,
                    over_hosts: Spread::Near,
                    at: NOW,
                });
            }
            profiles.push(profile);
        }
        profiles
    }

    /// The estimates of a model, on the GPUs of each row.
    fn model_estimates(&self, model: &str, estimates: &[Option<f64>]) -> Vec<PredictedRate> {
        let own = self.rows.iter().zip(estimates).filter(|(row, _)| row.model == model);
        own.filter_map(|(row, secs)| {
            Some(PredictedRate {
                exec_plan: ExecPlan::default(),
                node_type: row_node_type(row)?,
                nodes: row.gpus_by_node.len() as u32,
                rate: row.batch / (*secs)?,
            })
        })
        .collect()
    }

    /// The model as a job that may have any number of nodes of its rows.
    fn job_input(&self, model: &str, own: &[usize]) -> JobInput {
        let mut sizes: Vec<u32> = own.iter().map(|row| self.rows[*row].gpus_by_node.len() as u32).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let first = own.iter().find_map(|row| row_node_type(&self.rows[*row]));
        JobInput {
            job: JobId(1),
            key: profile_key(model, &first.unwrap_or_else(|| NodeType::new(""))),
            sizes: AllowedSizes::Set(sizes),
            plans: Vec::new(),
            model: None,
            layers: None,
            gpus_per_node: None,
            declared_curve: None,
            running_nodes: None,
            costs: RescaleCosts { up_secs: 0.0, down_secs: 0.0, start_secs: 0.0 },
            swap_secs: None,
        }
    }

    /// The row of each type with the fewest GPUs, on the fewest nodes.
    fn smallest_of_each_type(&self, own: &[usize]) -> BTreeSet<usize> {
        let mut by_place: BTreeMap<TypePlacement, usize> = BTreeMap::new();
        for index in own {
            let row = &self.rows[*index];
            if let Some(node_type) = &row.node_type {
                by_place.insert(TypePlacement::from_row(node_type, &row.gpus_by_node), *index);
            }
        }
        let mut types: BTreeSet<NodeType> = BTreeSet::new();
        let mut smallest = BTreeSet::new();
        for (place, index) in by_place {
            if types.insert(place.node_type) {
                smallest.insert(index);
            }
        }
        smallest
    }

    fn profiling_cost(&self, points: &[TypePoint]) -> ProfilingCost {
        let mut profiles = BTreeMap::new();
        let mut all = BTreeMap::new();
        for row in &self.estimates {
            let split = [row.parallelism.strategy.pp, row.parallelism.dp, row.parallelism.strategy.tp];
            let stages = f64::from(row.parallelism.strategy.pp);
            // The seconds of all stages for one micro-batch. The pipeline takes the time of one stage for
            // each micro-batch, and `stages - 1` times more to fill and drain.
            let one = row.compute_secs * stages / (f64::from(self.micro_batches) + stages - 1.0);
            profiles.insert((&row.model, &row.node_type, split), one);
            let gpus: u32 = row.gpus_by_node.iter().sum();
            let place = (&row.model, &row.node_type, &row.gpus_by_node, split);
            all.insert(place, f64::from(gpus) * row.step_secs);
        }
        let profiles: f64 = profiles.into_values().sum();
        let all: f64 = all.into_values().sum();
        let measured = points.iter().filter(|p| p.measured);
        let measured: f64 = measured.map(|point| f64::from(point.place.gpus) * point.truth).sum();
        ProfilingCost {
            profiles_gpu_secs: profiles,
            measured_gpu_secs: measured,
            all_gpu_secs: all,
            share: (profiles + measured) / all,
        }
    }
}

/// The type of a row's nodes.
fn row_node_type(row: &SpeedRow) -> Option<NodeType> {
    let gpus_of_node = row.gpus_by_node.last()?;
    Some(NodeType::new(format!("gpu:{}:{gpus_of_node}/table", row.node_type.as_ref()?)))
}

/// The profile key of a model on a type.
fn profile_key(model: &str, node_type: &NodeType) -> ProfileKey {
    ProfileKey {
        user: String::new(),
        name: model.to_owned(),
        node_type: node_type.clone(),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

/// Estimated seconds of a step for each of these rows: those of the fastest way to split its model that was
/// estimated for its type and placement.
pub fn best_estimates(rows: &[SpeedRow], estimates: &[EstimateRow]) -> Vec<Option<f64>> {
    let mut best: BTreeMap<(&str, TypePlacement), f64> = BTreeMap::new();
    for row in estimates {
        let key = (row.model.as_str(), TypePlacement::from_row(&row.node_type, &row.gpus_by_node));
        let secs = best.entry(key).or_insert(row.step_secs);
        *secs = secs.min(row.step_secs);
    }
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let place = row.node_type.as_ref().map(|of| TypePlacement::from_row(of, &row.gpus_by_node));
        found.push(place.and_then(|place| best.get(&(row.model.as_str(), place)).copied()));
    }
    found
}

/// The accuracy of `seconds_of`, which gives a source's seconds of a step. `None` where there is no row.
fn type_accuracy(points: &[TypePoint], seconds_of: impl Fn(&TypePoint) -> f64) -> Option<TypeAccuracy> {
    let others: Vec<&TypePoint> = points.iter().filter(|p| !p.measured).collect();
    let errors: f64 = others.iter().map(|p| (seconds_of(p) / p.truth - 1.0).abs()).sum();
    let mut ratios: Vec<f64> = others.iter().map(|p| seconds_of(p) / p.truth).collect();
    ratios.sort_by(f64::total_cmp);
    let mut models: BTreeMap<&str, Vec<&TypePoint>> = BTreeMap::new();
    points.iter().for_each(|p| models.entry(&p.model).or_default().push(p));
    let mut shares: Vec<f64> = Vec::new();
    for own in models.values().filter(|own| own.len() > 1) {
        let best = own.iter().map(|p| p.truth).fold(f64::INFINITY, f64::min);
        let seems_best = own.iter().min_by(|a, b| seconds_of(a).total_cmp(&seconds_of(b)));
        shares.extend(seems_best.map(|chosen| best / chosen.truth));
    }
    (!points.is_empty()).then(|| TypeAccuracy {
        mape: errors / others.len().max(1) as f64,
        ratio_median: ratios.get(ratios.len() / 2).copied().unwrap_or(1.0),
        true_share_of_best: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
    })
}
