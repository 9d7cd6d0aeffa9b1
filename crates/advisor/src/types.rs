//! Estimates of programs on types of GPUs against a table of measurements, as if each program came to the
//! site for the first time: what `infill advise --types` runs.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;

use super::kinship::{Kin, Kinship};
use super::noise::normal;
use super::scaling::Estimate;
use infill_model::{EstimateRow, NodeType, SpeedRow};

/// A table of measurements, and one of estimates.
#[derive(Clone, Debug)]
pub struct TypesTrial {
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
pub struct TypePlace {
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
    pub place: TypePlace,
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
pub struct Known {
    /// Mean absolute relative error of those that were not measured, a fraction.
    pub mape: f64,
    /// Median of what is said ÷ the truth, over the same rows.
    pub ratio_median: f64,
    /// How fast what seems the best (type, size) of a model truly is ÷ the best's rate, mean over models.
    pub true_share_of_best: f64,
}

/// GPU-seconds of a step of everything.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Profiling {
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
pub struct TypesVerdict {
    /// Models with estimates.
    pub models: usize,
    /// All rows with an estimate, by model, type and size.
    pub points: Vec<TypePoint>,
    /// As estimated.
    pub estimated: Known,
    /// As predicted after one measurement a type.
    pub predicted: Known,
    /// What it cost.
    pub profiling: Profiling,
}

impl TypePlace {
    fn of(node_type: &NodeType, gpus_by_node: &[u32]) -> TypePlace {
        let (gpus, nodes) = (gpus_by_node.iter().sum(), gpus_by_node.len() as u32);
        TypePlace { node_type: node_type.clone(), gpus, nodes }
    }
}

impl TypesTrial {
    /// Runs it. `None` when there is no row with an estimate.
    pub fn run(&self) -> Option<TypesVerdict> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let seen: Vec<f64> = self.rows.iter().map(|_| (self.noise * normal(&mut random)).exp()).collect();
        let estimates = best_estimates(&self.rows, &self.estimates);
        let kinship = Kinship::new(self.kin(), self.noise).with_estimates(&estimates);
        let has = |row: &usize| estimates[*row].is_some();
        let models: BTreeSet<&str> =
            (0..self.rows.len()).filter(has).map(|row| self.rows[row].model.as_str()).collect();
        let mut points = Vec::new();
        for model in &models {
            let is_own = |row: &usize| has(row) && self.rows[*row].model == *model;
            let own: Vec<usize> = (0..self.rows.len()).filter(is_own).collect();
            points.extend(self.of_model(kinship.clone(), &own, &estimates, &seen));
        }
        Some(TypesVerdict {
            models: models.len(),
            estimated: known(&points, |p| p.estimated)?,
            predicted: known(&points, |p| if p.measured { p.truth } else { p.predicted })?,
            profiling: self.profiling(&points),
            points,
        })
    }

    fn kin(&self) -> Vec<Kin> {
        let types: BTreeSet<&NodeType> = self.rows.iter().filter_map(|row| row.node_type.as_ref()).collect();
        let number =
            |row: &SpeedRow| types.iter().position(|t| row.node_type.as_ref() == Some(*t)).unwrap_or(0);
        let kin =
            |row: &SpeedRow| Kin { program: row.model.clone(), node_type: number(row), gpus: row.gpus() };
        self.rows.iter().map(kin).collect()
    }

    /// One model: `own` are its rows, `seen` by what factor each row's measurement is off.
    fn of_model(
        &self,
        mut kinship: Kinship,
        own: &[usize],
        estimates: &[Option<f64>],
        seen: &[f64],
    ) -> Vec<TypePoint> {
        let measured = self.one_a_type(own);
        let model = own.first().map(|row| &self.rows[*row].model);
        for (number, row) in self.rows.iter().enumerate() {
            let other = self.others && Some(&row.model) != model;
            if other || measured.contains(&number) {
                kinship.measured(number, row.step_secs * seen[number]);
            }
        }
        kinship.update();
        let errors = kinship.errors();
        let point = |number: &usize| {
            let row = &self.rows[*number];
            let secs = kinship.step_secs(*number)?;
            let (low, high) = Estimate { rate: secs, error: errors[*number] }.interval();
            Some(TypePoint {
                model: row.model.clone(),
                place: TypePlace::of(row.node_type.as_ref()?, &row.gpus_by_node),
                measured: measured.contains(number),
                truth: row.step_secs,
                estimated: estimates[*number]?,
                predicted: secs,
                low,
                high,
            })
        };
        let mut points: Vec<TypePoint> = own.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.place.cmp(&b.place));
        points
    }

    /// The row of each type with the fewest GPUs, on the fewest nodes.
    fn one_a_type(&self, own: &[usize]) -> BTreeSet<usize> {
        let mut least: BTreeMap<TypePlace, usize> = BTreeMap::new();
        for number in own {
            let row = &self.rows[*number];
            let place = row.node_type.as_ref().map(|of| TypePlace::of(of, &row.gpus_by_node));
            least.extend(place.map(|place| (place, *number)));
        }
        let mut types: BTreeSet<NodeType> = BTreeSet::new();
        let first = |(place, number): (TypePlace, usize)| types.insert(place.node_type).then_some(number);
        least.into_iter().filter_map(first).collect()
    }

    fn profiling(&self, points: &[TypePoint]) -> Profiling {
        let (mut profiles, mut all) = (BTreeMap::new(), BTreeMap::new());
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
        let (profiles, all): (f64, f64) = (profiles.into_values().sum(), all.into_values().sum());
        let once = |point: &TypePoint| f64::from(point.place.gpus) * point.truth;
        let measured: f64 = points.iter().filter(|p| p.measured).map(once).sum();
        Profiling {
            profiles_gpu_secs: profiles,
            measured_gpu_secs: measured,
            all_gpu_secs: all,
            share: (profiles + measured) / all,
        }
    }
}

/// Seconds of a step as estimated, for each of these rows: of the quickest way to split its model that was
/// estimated for its type and placement.
pub fn best_estimates(rows: &[SpeedRow], estimates: &[EstimateRow]) -> Vec<Option<f64>> {
    let mut best: BTreeMap<(&str, TypePlace), f64> = BTreeMap::new();
    for row in estimates {
        let key = (row.model.as_str(), TypePlace::of(&row.node_type, &row.gpus_by_node));
        let secs = best.entry(key).or_insert(row.step_secs);
        *secs = secs.min(row.step_secs);
    }
    let of = |row: &SpeedRow| {
        let place = TypePlace::of(row.node_type.as_ref()?, &row.gpus_by_node);
        best.get(&(row.model.as_str(), place)).copied()
    };
    rows.iter().map(of).collect()
}

/// How well what `said` says is known. `None` where there is no row.
fn known(points: &[TypePoint], said: impl Fn(&TypePoint) -> f64) -> Option<Known> {
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
    (!points.is_empty()).then(|| Known {
        mape: wrong / others.len().max(1) as f64,
        ratio_median: ratios.get(ratios.len() / 2).copied().unwrap_or(1.0),
        true_share_of_best: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
    })
}
