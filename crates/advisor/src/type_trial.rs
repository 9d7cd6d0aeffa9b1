//! Estimates of programs on types of GPUs against a table of measurements, as if each program came to the
//! site for the first time: what `infill advise --types` runs.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;

use super::job_advisor::JobAdvisor;
use super::job_input::JobInput;
use super::node_capacity::NodeCapacity;
use super::noise::draw_normal;
use super::rate_estimates::RateEstimate;
use infill_model::{
    AllowedSizes, BatchMode, EstimateRow, ExecPlan, JobId, NodeType, Profile, ProfileKey, RescaleCosts,
    SizePoint, SpeedRow, Spread, UnixTime, config::AdvisorConfig,
};

/// When all of it happens.
const NOW: UnixTime = UnixTime(0);

/// A table of measurements, and one of estimates.
#[derive(Clone, Debug)]
pub struct TypeTrial {
    /// What would be measured. Rows without a type, and those that nobody estimated, only count as what is
    /// known of the others (`others`).
    pub rows: Vec<SpeedRow>,
    /// What was estimated, by way to split the model: the quickest on a placement is its estimate.
    pub estimates: Vec<EstimateRow>,
    /// Whether all the other models of the table were measured before.
    pub others: bool,
    /// Micro-batches of a step: a stage is profiled with one.
    pub micro_batches: u32,
    /// Standard deviation of the logarithm of a measurement.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}

/// So many GPUs of a type, on so many nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TypePlacement {
    /// The type.
    #[serde(rename = "type")]
    pub node_type: NodeType,
    /// GPUs on all nodes.
    pub gpus: u32,
    /// Nodes.
    pub nodes: u32,
}

/// Truth, estimate and prediction of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypePoint {
    /// The model.
    pub model: String,
    /// Where.
    #[serde(flatten)]
    pub place: TypePlacement,
    /// Whether it was the measurement of its type.
    pub measured: bool,
    /// The table's seconds of a step.
    #[serde(rename = "true")]
    pub truth: f64,
    /// The same as estimated.
    pub estimated: f64,
    /// The same as predicted after one measurement a type.
    pub predicted: f64,
    /// Lower end of its 90 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How well seconds of a step are known in one of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TypeAccuracy {
    /// Mean absolute relative error of those that were not measured, a fraction.
    pub mape: f64,
    /// Median of what is said ÷ the truth, over the same rows.
    pub ratio_median: f64,
    /// How fast what seems the best (type, size) of a model truly is ÷ the best's rate, mean over models.
    pub true_share_of_best: f64,
}

/// GPU-seconds of a step of everything.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProfilingCost {
    /// Profiles of each stage on one GPU, for one micro-batch.
    pub profiles_gpu_secs: f64,
    /// The measurements, one a type.
    pub measured_gpu_secs: f64,
    /// Measuring every way to split each model at every size of each type.
    pub all_gpu_secs: f64,
    /// What the first two are of the third.
    pub share: f64,
}

/// How a trial went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeTrialResult {
    /// Models with estimates.
    pub models: usize,
    /// All rows with an estimate, by model, type and size.
    pub points: Vec<TypePoint>,
    /// As estimated.
    pub estimated: TypeAccuracy,
    /// As predicted after one measurement a type.
    pub predicted: TypeAccuracy,
    /// What it cost.
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
    /// Runs it. `None` when there is no row with an estimate.
    pub fn run(&self) -> Option<TypeTrialResult> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let seen: Vec<f64> =
            self.rows.iter().map(|_| (self.noise * draw_normal(&mut random)).exp()).collect();
        let estimates = best_estimates(&self.rows, &self.estimates);
        let has = |row: &usize| estimates[*row].is_some();
        let models: BTreeSet<&str> =
            (0..self.rows.len()).filter(has).map(|row| self.rows[row].model.as_str()).collect();
        let mut points = Vec::new();
        for model in &models {
            let own: Vec<usize> = (0..self.rows.len())
                .filter(|row: &usize| has(row) && self.rows[*row].model == *model)
                .collect();
            points.extend(self.model_points(&own, &estimates, &seen));
        }
        Some(TypeTrialResult {
            models: models.len(),
            estimated: type_accuracy(&points, |p| p.estimated)?,
            predicted: type_accuracy(&points, |p| if p.measured { p.truth } else { p.predicted })?,
            profiling: self.profiling_cost(&points),
            points,
        })
    }

    /// One model: `own` are its rows, `seen` by what factor each row's measurement is off.
    fn model_points(&self, own: &[usize], estimates: &[Option<f64>], seen: &[f64]) -> Vec<TypePoint> {
        let measured = self.smallest_of_each_type(own);
        let Some(model) = own.first().map(|row| self.rows[*row].model.as_str()) else { return Vec::new() };
        let known: Vec<usize> = (0..self.rows.len())
            .filter(|number: &usize| {
                measured.contains(number) || (self.others && self.rows[*number].model != model)
            })
            .collect();
        let mut library = JobAdvisor::new(AdvisorConfig::default());
        let profiles = self.measured_profiles(&known, seen);
        let others: BTreeSet<&str> = known.iter().map(|row| self.rows[*row].model.as_str()).collect();
        for other in others {
            library.set_estimates(
                &profile_key(other, &NodeType::new("")),
                self.model_estimates(other, estimates),
            );
        }
        library.replace_profiles(profiles, NOW);
        let input = self.job_input(model, own);
        let types: BTreeSet<NodeType> =
            own.iter().filter_map(|row| row_node_type(&self.rows[*row])).collect();
        let room = NodeCapacity::from_types(types.into_iter().map(|t| (t, input.sizes.max())));
        library.run_round(std::slice::from_ref(&input), room, false, NOW);
        let point = |number: &usize| {
            let row = &self.rows[*number];
            let node_type = row.node_type.as_ref()?;
            let estimate =
                library.estimate_size(&input, None, &row_node_type(row)?, row.gpus_by_node.len() as u32)?;
            let (slow, fast) = estimate.interval_90();
            Some(TypePoint {
                model: row.model.clone(),
                place: TypePlacement::from_row(node_type, &row.gpus_by_node),
                measured: measured.contains(number),
                truth: row.step_secs,
                estimated: estimates[*number]?,
                predicted: row.batch / estimate.rate,
                low: row.batch / fast,
                high: row.batch / slow,
            })
        };
        let mut points: Vec<TypePoint> = own.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.place.cmp(&b.place));
        points
    }

    /// What these rows were measured as, a profile for each model and type of nodes.
    fn measured_profiles(&self, known: &[usize], seen: &[f64]) -> Vec<Profile> {
        let mut rates: BTreeMap<(&str, NodeType), BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
        for number in known {
            let row = &self.rows[*number];
            let Some(node_type) = row_node_type(row) else { continue };
            let log = (row.batch / (row.step_secs * seen[*number])).ln();
            let of_type = rates.entry((&row.model, node_type)).or_default();
            of_type.entry(row.gpus_by_node.len() as u32).or_default().push(log);
        }
        let profile = |((model, node_type), sizes): ((&str, NodeType), BTreeMap<u32, Vec<f64>>)| {
            let point = |(nodes, logs): (u32, Vec<f64>)| SizePoint {
                nodes,
                rate: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
                error: self.noise / (logs.len() as f64).sqrt(),
                secs: 0.0,
                step_samples: None,
                hosts: None,
                spread: Spread::Near,
                over_hosts: Spread::Near,
                at: NOW,
            };
            Profile {
                points: sizes.into_iter().map(point).collect(),
                ..Profile::new(profile_key(model, &node_type))
            }
        };
        rates.into_iter().map(profile).collect()
    }

    /// What was estimated of a model, on as many GPUs of each type as were.
    fn model_estimates(&self, model: &str, estimates: &[Option<f64>]) -> Vec<RateEstimate> {
        let of = |(row, secs): (&SpeedRow, &Option<f64>)| {
            Some(RateEstimate {
                exec_plan: ExecPlan::default(),
                node_type: row_node_type(row)?,
                nodes: row.gpus_by_node.len() as u32,
                rate: row.batch / (*secs)?,
            })
        };
        let all = self.rows.iter().zip(estimates).filter(|(row, _)| row.model == model);
        all.filter_map(of).collect()
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
            declared: None,
            running: None,
            costs: RescaleCosts { up_secs: 0.0, down_secs: 0.0, start_secs: 0.0 },
            swap_secs: None,
        }
    }

    /// The row of each type with the fewest GPUs, on the fewest nodes.
    fn smallest_of_each_type(&self, own: &[usize]) -> BTreeSet<usize> {
        let mut least: BTreeMap<TypePlacement, usize> = BTreeMap::new();
        for number in own {
            let row = &self.rows[*number];
            let place = row.node_type.as_ref().map(|of| TypePlacement::from_row(of, &row.gpus_by_node));
            least.extend(place.map(|place| (place, *number)));
        }
        let mut types: BTreeSet<NodeType> = BTreeSet::new();
        least
            .into_iter()
            .filter_map(|(place, number): (TypePlacement, usize)| {
                types.insert(place.node_type).then_some(number)
            })
            .collect()
    }

    fn profiling_cost(&self, points: &[TypePoint]) -> ProfilingCost {
        let mut profiles = BTreeMap::new();
        let mut all = BTreeMap::new();
        for row in &self.estimates {
            let split = [row.parallelism.strategy.pp, row.parallelism.dp, row.parallelism.strategy.tp];
            let stages = f64::from(row.parallelism.strategy.pp);
            // Stages take as long for the first micro-batch as the whole pipeline for all of them, but for
            // what fills and drains it.
            let one = row.compute_secs * stages / (f64::from(self.micro_batches) + stages - 1.0);
            profiles.insert((&row.model, &row.node_type, split), one);
            let gpus: u32 = row.gpus_by_node.iter().sum();
            let place = (&row.model, &row.node_type, &row.gpus_by_node, split);
            all.insert(place, f64::from(gpus) * row.step_secs);
        }
        let profiles: f64 = profiles.into_values().sum();
        let all: f64 = all.into_values().sum();
        let measured: f64 = points
            .iter()
            .filter(|p| p.measured)
            .map(|point: &TypePoint| f64::from(point.place.gpus) * point.truth)
            .sum();
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
    let together = row.gpus_by_node.last()?;
    Some(NodeType::new(format!("gpu:{}:{together}/table", row.node_type.as_ref()?)))
}

/// The signature of a model on a type.
fn profile_key(model: &str, node_type: &NodeType) -> ProfileKey {
    ProfileKey {
        user: String::new(),
        name: model.to_owned(),
        node_type: node_type.clone(),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

/// Seconds of a step as estimated, for each of these rows: of the quickest way to split its model that was
/// estimated for its type and placement.
pub fn best_estimates(rows: &[SpeedRow], estimates: &[EstimateRow]) -> Vec<Option<f64>> {
    let mut best: BTreeMap<(&str, TypePlacement), f64> = BTreeMap::new();
    for row in estimates {
        let key = (row.model.as_str(), TypePlacement::from_row(&row.node_type, &row.gpus_by_node));
        let secs = best.entry(key).or_insert(row.step_secs);
        *secs = secs.min(row.step_secs);
    }
    rows.iter()
        .map(|row: &SpeedRow| {
            let place = TypePlacement::from_row(row.node_type.as_ref()?, &row.gpus_by_node);
            best.get(&(row.model.as_str(), place)).copied()
        })
        .collect()
}

/// How well what `said` says is known. `None` where there is no row.
fn type_accuracy(points: &[TypePoint], said: impl Fn(&TypePoint) -> f64) -> Option<TypeAccuracy> {
    let others: Vec<&TypePoint> = points.iter().filter(|p| !p.measured).collect();
    let wrong: f64 = others.iter().map(|p| (said(p) / p.truth - 1.0).abs()).sum();
    let mut ratios: Vec<f64> = others.iter().map(|p| said(p) / p.truth).collect();
    ratios.sort_by(f64::total_cmp);
    let mut models: BTreeMap<&str, Vec<&TypePoint>> = BTreeMap::new();
    points.iter().for_each(|p| models.entry(&p.model).or_default().push(p));
    let share = |of: &Vec<&TypePoint>| {
        let best = of.iter().map(|p| p.truth).fold(f64::INFINITY, f64::min);
        let seems = of.iter().min_by(|a, b| said(a).total_cmp(&said(b)))?;
        Some(best / seems.truth)
    };
    let shares: Vec<f64> = models.values().filter(|of| of.len() > 1).filter_map(share).collect();
    (!points.is_empty()).then(|| TypeAccuracy {
        mape: wrong / others.len().max(1) as f64,
        ratio_median: ratios.get(ratios.len() / 2).copied().unwrap_or(1.0),
        true_share_of_best: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
    })
}
