//! What infill has learned of models while their jobs ran.

use std::collections::BTreeMap;

use super::machine::Machine;
use super::setup::Setup;
use super::speeds::Speeds;
use infill_advisor::{
    kinship::{Kin, Kinship},
    plans::{PlacedPlan, PlanModel, PlanPredictions, PlanPriors},
};
use infill_model::{ModelFacts, PlanRun, SpeedRow};

/// The least that a way to run is counted on to make, in parts of what is expected.
const LEAST_COUNTED: f64 = 0.5;

/// What is known of the rows of the table of speeds.
#[derive(Clone, Debug)]
pub(crate) enum Learned {
    /// By what plans do, each model for itself: where the machine has one type, and the table says what plans
    /// do.
    Plans(BTreeMap<String, Model>),
    /// By what models and types have in common.
    Kin(Kinship),
}

/// What is known of one model.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    learner: PlanModel,
    runs: Vec<PlacedPlan>,
    noise: f64,
    /// Seconds of a step by each row, once something was measured.
    step_secs: Option<Vec<f64>>,
    /// Where the learner has each row of the table.
    place: BTreeMap<usize, usize>,
}

impl Learned {
    /// Knows nothing yet.
    pub fn of(setup: &Setup) -> Learned {
        let split = setup.speeds.rows.iter().all(|row| row.parallelism.is_some());
        match split && setup.machine.pools.len() == 1 {
            true => Learned::Plans(models(&setup.speeds, &setup.facts, setup.noise)),
            false => {
                let kinship = Kinship::new(kin(&setup.speeds, &setup.machine), setup.noise);
                Learned::Kin(kinship.with_estimates(&setup.estimates))
            }
        }
    }

    /// A row was measured, seconds a step.
    pub fn measured(&mut self, model: &str, row: usize, step_secs: f64) {
        match self {
            Learned::Kin(kinship) => kinship.measured(row, step_secs),
            Learned::Plans(models) => {
                let Some(model) = models.get_mut(model) else { return };
                if let Some(place) = model.place.get(&row) {
                    model.learner.measured(&model.runs[*place], step_secs, model.noise);
                    model.step_secs = None;
                }
            }
        }
    }

    /// To be called before rates are asked for.
    pub fn update(&mut self) {
        match self {
            Learned::Kin(kinship) => kinship.update(),
            Learned::Plans(models) => models.values_mut().for_each(Model::update),
        }
    }

    /// Steps a second by a row; `None` where nothing is known that would tell it.
    pub fn rate(&self, model: &str, row: usize) -> Option<f64> {
        let step_secs = match self {
            Learned::Kin(kinship) => kinship.step_secs(row),
            Learned::Plans(models) => {
                let model = models.get(model)?;
                model.step_secs.as_ref()?.get(*model.place.get(&row)?).copied()
            }
        };
        step_secs.map(|secs| 1.0 / secs).filter(|rate| rate.is_finite() && *rate > 0.0)
    }
}

impl Model {
    /// Fits what was measured since.
    fn update(&mut self) {
        if self.step_secs.is_none() && self.learner.update() {
            // What was never measured is counted on for less than is expected of it, as in the daemon.
            let counted = |p: &PlanPredictions, row: usize| {
                p.log_secs[row].exp() / (1.0 - p.error(row)).max(LEAST_COUNTED)
            };
            let all = |p: PlanPredictions| (0..p.log_secs.len()).map(|row| counted(&p, row)).collect();
            self.step_secs = self.learner.predict(&self.runs).map(all);
        }
    }
}

fn models(speeds: &Speeds, facts: &BTreeMap<String, ModelFacts>, noise: f64) -> BTreeMap<String, Model> {
    let mut rows: BTreeMap<String, Vec<(usize, PlanRun)>> = BTreeMap::new();
    for (number, row) in speeds.rows.iter().enumerate() {
        rows.entry(row.model.clone()).or_default().extend(run(row).map(|run| (number, run)));
    }
    let model = |(name, rows): (String, Vec<(usize, PlanRun)>)| {
        let place = rows.iter().enumerate().map(|(place, (number, _))| (*number, place)).collect();
        let runs: Vec<PlacedPlan> = rows.iter().map(|(_, run)| PlacedPlan::from(run)).collect();
        let learner = PlanModel::new(facts.get(&name).copied(), &PlanPriors::usual(), &[]);
        (name, Model { learner, runs, noise, step_secs: None, place })
    };
    rows.into_iter().map(model).collect()
}

fn run(row: &SpeedRow) -> Option<PlanRun> {
    Some(PlanRun {
        plan: row.plan.clone(),
        parallelism: row.parallelism?,
        global_batch: row.batch,
        gpus_by_node: row.gpus_by_node.clone(),
        cpus_per_gpu: None,
        rate: row.batch / row.step_secs,
    })
}

fn kin(speeds: &Speeds, machine: &Machine) -> Vec<Kin> {
    let kin = |row: &SpeedRow| {
        let node_type = machine.pools.iter().position(|p| Some(&p.node_type) == row.node_type.as_ref());
        Kin { program: row.model.clone(), node_type: node_type.unwrap_or(0), gpus: row.gpus() }
    };
    speeds.rows.iter().map(kin).collect()
}
