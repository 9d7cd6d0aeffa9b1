//! What infill has learned of models while their jobs ran.

use std::collections::BTreeMap;

use super::machine::Machine;
use super::setup::Setup;
use super::speeds::Speeds;
use infill_advisor::{
    kinship::{Kin, Kinship},
    plans::PlanLearner,
};
use infill_model::{ModelFacts, PlanRun, SpeedRow};

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
    learner: PlanLearner,
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
                    model.learner.measured(*place, step_secs);
                }
            }
        }
    }

    /// To be called before rates are asked for.
    pub fn update(&mut self) {
        if let Learned::Kin(kinship) = self {
            kinship.update();
        }
    }

    /// Steps a second by a row; `None` where nothing is known that would tell it.
    pub fn rate(&self, model: &str, row: usize) -> Option<f64> {
        let step_secs = match self {
            Learned::Kin(kinship) => kinship.step_secs(row),
            Learned::Plans(models) => {
                let model = models.get(model)?;
                model.learner.step_secs(*model.place.get(&row)?)
            }
        };
        step_secs.map(|secs| 1.0 / secs).filter(|rate| rate.is_finite() && *rate > 0.0)
    }
}

fn models(speeds: &Speeds, facts: &BTreeMap<String, ModelFacts>, noise: f64) -> BTreeMap<String, Model> {
    let mut rows: BTreeMap<String, Vec<(usize, PlanRun)>> = BTreeMap::new();
    for (number, row) in speeds.rows.iter().enumerate() {
        rows.entry(row.model.clone()).or_default().extend(run(row).map(|run| (number, run)));
    }
    let model = |(name, rows): (String, Vec<(usize, PlanRun)>)| {
        let place = rows.iter().enumerate().map(|(place, (number, _))| (*number, place)).collect();
        let runs: Vec<PlanRun> = rows.into_iter().map(|(_, run)| run).collect();
        let learner = PlanLearner::new(&runs, facts.get(&name).copied(), noise);
        (name, Model { learner, place })
    };
    rows.into_iter().map(model).collect()
}

fn run(row: &SpeedRow) -> Option<PlanRun> {
    Some(PlanRun {
        plan: row.plan.clone(),
        parallelism: row.parallelism?,
        global_batch: row.batch,
        gpus_by_node: row.gpus_by_node.clone(),
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
