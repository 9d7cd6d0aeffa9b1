//! The facts that infill gets about the models that jobs train: the owners' declarations, and profiles where
//! speeds are known.

use std::collections::{BTreeMap, BTreeSet};

use super::machine_snapshot::place_type;
use crate::closed::machine::ClosedMachine;
use crate::closed::setup::ClosedSetup;
use crate::closed::speeds::{ModelSpeeds, RunChoice, is_row_for};
use infill_advisor::PredictedRate;
use infill_model::{
    AllowedSizes, BatchMode, DeclaredPlan, ExecPlan, ModelFacts, NodeType, PlanNeeds, Profile, ProfileKey,
    SizePoint, Spread,
};

/// The owner of all jobs. The workloads do not name owners.
pub(super) const USER: &str = "user";

/// Relative error of a known speed, and the seconds of its measurement.
const KNOWN_SPEED_EVIDENCE: (f64, f64) = (0.006, 3_600.0);

/// The program that trains one model.
#[derive(Clone, Debug)]
pub(super) struct TrainingProgram {
    model: String,
    /// Numbers of GPUs with which it can run.
    pub sizes: Vec<u32>,
    /// Its execution plans; empty if it has only one.
    pub plans: Vec<DeclaredPlan>,
    /// Facts about the model.
    pub facts: Option<ModelFacts>,
    /// Samples per step, over all GPUs.
    pub batch: f64,
    /// Numbers of GPUs by plan and type.
    by_type: BTreeMap<(ExecPlan, NodeType), BTreeSet<u32>>,
}

impl TrainingProgram {
    /// The programs of all models of the table, by model.
    pub fn all_models(setup: &ClosedSetup) -> BTreeMap<String, TrainingProgram> {
        let models: BTreeSet<&String> = setup.speeds.rows.iter().map(|row| &row.model).collect();
        models
            .into_iter()
            .filter_map(|model| Some((model.clone(), TrainingProgram::for_model(setup, model)?)))
            .collect()
    }

    fn for_model(setup: &ClosedSetup, model: &str) -> Option<TrainingProgram> {
        let speeds = setup.speeds.for_model(model)?;
        let choices: Vec<&RunChoice> = speeds.run_choices().map(|(choice, _)| choice).collect();
        let names: BTreeSet<&ExecPlan> = choices.iter().map(|c| &c.plan).collect();
        let plans = if names.len() > 1 {
            names.into_iter().map(|name| declared_plan(setup, model, name, &choices)).collect()
        } else {
            Vec::new()
        };
        let mut program = TrainingProgram {
            model: model.to_owned(),
            sizes: distinct_sizes(choices.iter().copied()),
            plans,
            facts: setup.facts.get(model).copied(),
            batch: speeds.batch,
            by_type: BTreeMap::new(),
        };
        for choice in choices {
            let Some(node_type) = place_type(&setup.machine, choice.pool) else { continue };
            let way = (program.plan_name(&choice.plan), node_type);
            program.by_type.entry(way).or_default().insert(choice.gpus);
        }
        Some(program)
    }

    /// The name of a plan for the advisor: the default if the program has only one.
    pub fn plan_name(&self, plan: &ExecPlan) -> ExecPlan {
        if self.plans.is_empty() { ExecPlan::default() } else { plan.clone() }
    }

    /// Whether a plan of this name is this one.
    pub fn is_plan(&self, name: &ExecPlan, plan: &ExecPlan) -> bool {
        self.plan_name(plan) == *name
    }

    /// The signature of a job that runs it with this plan on places of a type.
    pub fn profile_key(&self, plan: &ExecPlan, node_type: NodeType) -> ProfileKey {
        ProfileKey {
            user: USER.to_owned(),
            name: self.model.clone(),
            node_type,
            exec_plan: self.plan_name(plan),
            batch: BatchMode::Global,
        }
    }

    /// The sizes among `among` at which it can run with a plan of this name on a type.
    pub fn sizes_on(&self, name: &ExecPlan, node_type: &NodeType, among: &AllowedSizes) -> AllowedSizes {
        let sizes = self.by_type.get(&(name.clone(), node_type.clone()));
        let sizes = sizes.into_iter().flatten().copied();
        AllowedSizes::Set(sizes.filter(|gpus| among.contains(*gpus)).collect())
    }

    /// Its speeds on the closest placements as profiles.
    pub fn known_profiles(&self, speeds: &ModelSpeeds, machine: &ClosedMachine) -> Vec<Profile> {
        let mut by_way: BTreeMap<(ExecPlan, usize), Vec<SizePoint>> = BTreeMap::new();
        for (choice, _) in speeds.run_choices() {
            let points = by_way.entry((choice.plan.clone(), choice.pool)).or_default();
            points.extend(speeds.closest_placement(choice).map(|closest| SizePoint {
                nodes: choice.gpus,
                rate: closest.rate * speeds.batch,
                error: KNOWN_SPEED_EVIDENCE.0,
                secs: KNOWN_SPEED_EVIDENCE.1,
                step_samples: Some(speeds.batch),
                hosts: Some(closest.by_node.len() as f64).filter(|hosts| *hosts < f64::from(choice.gpus)),
                spread: Spread::Near,
                over_hosts: Spread::Near,
                at: infill_model::UnixTime::default(),
            }));
        }
        by_way
            .into_iter()
            .filter_map(|((plan, pool), points)| {
                let key = self.profile_key(&plan, place_type(machine, pool)?);
                Some(Profile { points, ..Profile::new(key) })
            })
            .collect()
    }
}

/// The estimates for the rows of the table, as rates of the program. Of several placements of one number of
/// GPUs, the fastest counts.
pub(super) fn rate_estimates(setup: &ClosedSetup, program: &TrainingProgram) -> Vec<PredictedRate> {
    let mut best: BTreeMap<(ExecPlan, usize, u32), f64> = BTreeMap::new();
    for (row, secs) in setup.speeds.rows.iter().zip(&setup.estimates) {
        let Some(secs) = secs.filter(|secs| row.model == program.model && *secs > 0.0) else { continue };
        let pools = setup.machine.pools.iter().enumerate();
        for (pool, _) in pools.filter(|(_, pool)| is_row_for(row, pool)) {
            let rate = best.entry((program.plan_name(&row.plan), pool, row.gpus())).or_insert(0.0);
            *rate = rate.max(row.batch / secs);
        }
    }
    best.into_iter()
        .filter_map(|((exec_plan, pool, nodes), rate)| {
            Some(PredictedRate { exec_plan, node_type: place_type(&setup.machine, pool)?, nodes, rate })
        })
        .collect()
}

/// A plan as an owner would declare it.
fn declared_plan(setup: &ClosedSetup, model: &str, name: &ExecPlan, choices: &[&RunChoice]) -> DeclaredPlan {
    let own: Vec<&RunChoice> = choices.iter().copied().filter(|c| c.plan == *name).collect();
    let pools: BTreeSet<usize> = own.iter().map(|c| c.pool).collect();
    let is_everywhere = pools.len() == setup.machine.pools.len();
    let types = setup.machine.pools.iter().enumerate().filter(|(pool, _)| pools.contains(pool));
    let row = setup.speeds.rows.iter().find(|row| row.model == model && row.plan == *name);
    let strategy = row.and_then(|row| row.parallelism).map(|parallelism| parallelism.strategy);
    DeclaredPlan {
        name: name.clone(),
        sizes: Some(AllowedSizes::Set(distinct_sizes(own))),
        node_types: types.filter(|_| !is_everywhere).map(|(_, p)| p.node_type.to_string()).collect(),
        shards: strategy.is_some_and(|s| s.divides_model() || s.zero > 0),
        strategy,
        needs: PlanNeeds::default(),
    }
}

fn distinct_sizes<'c>(choices: impl IntoIterator<Item = &'c RunChoice>) -> Vec<u32> {
    choices.into_iter().map(|c| c.gpus).collect::<BTreeSet<u32>>().into_iter().collect()
}
