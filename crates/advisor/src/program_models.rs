//! Models of programs that can run with several execution plans on several types of nodes. One model
//! ([`super::plans`]) covers all plans and types of a program, and is fitted to all measurements of its
//! user's jobs.

use std::collections::BTreeMap;

use super::job_input::JobInput;
use super::plan_curve::PlanCurve;
use super::plans::gpu_memory::{USABLE_MEMORY_SHARE, gpu_memory_gib};
use super::plans::{PlacedPlan, PlanModel, PlanPredictions, PlanPriors};
use super::predicted_rates::{ProgramName, program_name};
use super::profile_cache::ProfileCache;
use super::scaling::sizes_of_interest;
use super::site_speeds::SiteSpeeds;
use infill_model::{
    BatchMode, DeclaredPlan, ExecPlan, ModelFacts, NodeType, ParallelStrategy, ProfileKey, SizePoint,
    UnixTime,
};

/// GPUs of a host where GPUs are lent, unless more of them were seen on one host.
const USUAL_GPUS_OF_A_HOST: u32 = 8;

/// Samples of a step, as a function of the job's size.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepBatch {
    /// This number at each size.
    Global(f64),
    /// This number for each unit of the size.
    PerNode(f64),
}

impl StepBatch {
    /// As the user declares it, else as measured.
    fn from_job(input: &JobInput, profiles: &ProfileCache) -> StepBatch {
        if let Some(samples) = input.model.and_then(|model| model.global_batch) {
            return StepBatch::Global(f64::from(samples));
        }
        let per_node = profiles.batch_mode(&input.key) == BatchMode::PerNode;
        let own = profiles.of_program(&input.key);
        let mut measured: Vec<f64> = Vec::new();
        for point in own.flat_map(|p| &p.points) {
            let divisor = if per_node { f64::from(point.nodes.max(1)) } else { 1.0 };
            measured.extend(point.step_samples.map(|samples| samples / divisor).filter(|s| s.is_normal()));
        }
        measured.sort_by(f64::total_cmp);
        let samples = measured.get(measured.len() / 2).copied().unwrap_or(1.0);
        if per_node { StepBatch::PerNode(samples) } else { StepBatch::Global(samples) }
    }

    fn samples_at(self, nodes: u32) -> f64 {
        match self {
            StepBatch::Global(samples) => samples,
            StepBatch::PerNode(samples) => samples * f64::from(nodes),
        }
    }
}

/// Seconds after which a model is fitted again when known rates have changed. Rates that it does not know yet
/// count at once.
const REMAKE_SECS: f64 = 30.0;

/// Most models that one round fits. Each takes some milliseconds.
const MAX_MADE: usize = 16;

/// The inputs of a model. It is fitted again when they change.
#[derive(Clone, Debug, PartialEq)]
struct ModelBasis {
    plans: Vec<(ExecPlan, ParallelStrategy)>,
    facts: Option<ModelFacts>,
    gpus_per_node: u32,
    points: usize,
    types: Vec<NodeType>,
}

/// A model that the jobs of a round ask for.
struct ModelRequest<'a> {
    input: &'a JobInput,
    basis: ModelBasis,
    /// When a profile of the program last changed.
    updated_at: UnixTime,
}

/// The model of one program.
#[derive(Clone, Debug)]
struct ProgramModel {
    basis: ModelBasis,
    made_at: UnixTime,
    /// When a profile of the program had last changed by then.
    updated_at: UnixTime,
    model: PlanModel,
    batch: StepBatch,
    /// Units of the size that share a host, as far as seen.
    units_of_a_host: u32,
    /// The curve of each plan on each type, at the sizes of the job that the model was made for. Rounds need
    /// them often.
    curves: BTreeMap<(ExecPlan, NodeType), PlanCurve>,
}

/// The models of all programs with jobs, by user and name.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramModels {
    models: BTreeMap<ProgramName, ProgramModel>,
}

impl ProgramModels {
    /// Fits the models that these jobs need, and forgets those that none needs. `types`: the types of
    /// available nodes.
    pub(super) fn update_models(
        &mut self,
        inputs: &[JobInput],
        profiles: &ProfileCache,
        speeds: &SiteSpeeds,
        types: &[NodeType],
        now: UnixTime,
    ) {
        let mut wanted = BTreeMap::new();
        for input in inputs {
            if let Some(request) = ModelRequest::from_job(input, profiles, types) {
                wanted.entry(program_name(&input.key)).or_insert(request);
            }
        }
        self.models.retain(|name, _| wanted.contains_key(name));
        let mut due: Vec<(ProgramName, ModelRequest<'_>)> = wanted
            .into_iter()
            .filter(|(name, request)| {
                self.models.get(name).is_none_or(|model| model.needs_refit(request, now))
            })
            .collect();
        // Programs without a model come first, then those with the oldest.
        due.sort_by_key(|(name, _)| self.models.get(name).map(|model| model.made_at));
        for (name, request) in due.into_iter().take(MAX_MADE) {
            match ProgramModel::new(request, profiles, speeds, now) {
                Some(model) => self.models.insert(name, model),
                None => self.models.remove(&name),
            };
        }
    }

    /// The curve of a job with this plan on a type of nodes, at these sizes; `None` where there is no model
    /// of it.
    pub(super) fn known_curve(
        &self,
        input: &JobInput,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let model = self.models.get(&program_name(&input.key))?;
        let curve = model.curves.get(&(plan.name.clone(), node_type.clone())).filter(|curve| {
            sizes.iter().all(|n| curve.has_size(*n) || model.placed_plan(plan, node_type, *n).is_none())
        });
        match curve {
            Some(curve) => Some(curve.with_points(points)),
            None => model.predict_curve(plan, node_type, sizes, points),
        }
    }
}

impl ModelRequest<'_> {
    /// The request of a job; `None` where nothing was measured of its program, or one of its plans does not
    /// declare its parallelism.
    fn from_job<'a>(
        input: &'a JobInput,
        profiles: &ProfileCache,
        types: &[NodeType],
    ) -> Option<ModelRequest<'a>> {
        let plans: Option<Vec<(ExecPlan, ParallelStrategy)>> =
            input.plans.iter().map(|plan| Some((plan.name.clone(), plan.strategy?))).collect();
        let plans = plans.filter(|plans| !plans.is_empty())?;
        let own = profiles
            .of_program(&input.key)
            .filter(|p| plans.iter().any(|(plan, _)| *plan == p.key.exec_plan));
        let points = own.clone().map(|p| p.points.len()).sum();
        let updated_at = own.clone().map(|p| p.updated_at).max()?;
        let first = own
            .clone()
            .filter(|p| !p.points.is_empty())
            .min_by_key(|p| p.points.iter().map(|p| p.nodes).min())?;
        // The other types are compared with the first.
        let mut all = vec![first.key.node_type.clone()];
        let measured = own.filter(|p| !p.points.is_empty()).map(|p| &p.key.node_type);
        for node_type in measured.chain([&input.key.node_type]).chain(types) {
            if !all.contains(node_type) {
                all.push(node_type.clone());
            }
        }
        let gpus_per_node = input.gpus_per_node.unwrap_or(1).max(1);
        let basis = ModelBasis { plans, facts: input.model, gpus_per_node, points, types: all };
        Some(ModelRequest { input, basis, updated_at })
    }
}

impl ProgramModel {
    /// Whether the request needs a new fit.
    fn needs_refit(&self, request: &ModelRequest<'_>, now: UnixTime) -> bool {
        let is_old = now.age_of(self.made_at) >= REMAKE_SECS;
        self.basis != request.basis || (is_old && self.updated_at != request.updated_at)
    }

    /// Fits a model; `None` where that fails.
    fn new(
        request: ModelRequest<'_>,
        profiles: &ProfileCache,
        speeds: &SiteSpeeds,
        made_at: UnixTime,
    ) -> Option<ProgramModel> {
        let ModelRequest { input, basis, updated_at } = request;
        let first = ProfileKey { node_type: basis.types[0].clone(), ..input.key.clone() };
        let least = profiles.of_program(&first).filter(|p| p.key.node_type == first.node_type);
        let least = least.flat_map(|p| &p.points).map(|p| p.nodes).min().unwrap_or(1);
        let mut slowdowns: Vec<(f64, f64)> = Vec::new();
        for node_type in &basis.types[1..] {
            let ratio = speeds.log_ratio(&first, node_type, least);
            slowdowns.push((-ratio.mean, ratio.sd));
        }
        let model = PlanModel::new(basis.facts, &PlanPriors::from_public_tables(), &slowdowns);
        let own = profiles.of_program(&input.key);
        let units_per_host =
            own.clone().flat_map(|p| &p.points).filter_map(|p| Some(f64::from(p.nodes) / p.hosts?.max(1.0)));
        let most_together = units_per_host.map(|units| units.ceil() as u32).max();
        let units_of_a_host =
            most_together.map_or(1, |seen| seen.max(USUAL_GPUS_OF_A_HOST / basis.gpus_per_node));
        let batch = StepBatch::from_job(input, profiles);
        let mut program = ProgramModel {
            basis,
            made_at,
            updated_at,
            model,
            batch,
            units_of_a_host,
            curves: BTreeMap::new(),
        };
        let mut measured: Vec<(PlacedPlan, f64, f64)> = Vec::new();
        for profile in own {
            let Some(plan) = input.plans.iter().find(|plan| plan.name == profile.key.exec_plan) else {
                continue;
            };
            for point in profiles.normalized_points(&profile.key) {
                let placed = program.placed_on_hosts(
                    plan,
                    &profile.key.node_type,
                    point.nodes,
                    point.hosts.map(|h| h.round() as u32),
                );
                measured.extend(placed.map(|placed| {
                    let secs = placed.global_batch / point.rate;
                    (placed, secs, point.error)
                }));
            }
        }
        // Measurements on few GPUs of the first type come first, because the model's scale follows from them.
        measured.sort_by_key(|(placed, ..)| (placed.node_type, placed.parallelism.gpus()));
        measured
            .iter()
            .for_each(|(placed, secs, error)| program.model.record_measurement(placed, *secs, *error));
        program.model.refit_model().then(|| program.with_curves(input, profiles))
    }

    fn with_curves(mut self, input: &JobInput, profiles: &ProfileCache) -> ProgramModel {
        for plan in &input.plans {
            for node_type in self.basis.types.clone() {
                let exec_plan = plan.name.clone();
                let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..input.key.clone() };
                let points: Vec<SizePoint> = profiles.normalized_points(&key).collect();
                let sizes = sizes_of_interest(&input.sizes, &points);
                if let Some(curve) = self.predict_curve(plan, &node_type, &sizes, points) {
                    self.curves.insert((plan.name.clone(), node_type), curve);
                }
            }
        }
        self
    }

    /// The curve of a plan on a type, at those of these sizes over which it can be divided.
    fn predict_curve(
        &self,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let placed = sizes.iter().filter_map(|n| Some((*n, self.placed_plan(plan, node_type, *n)?)));
        let (sizes, placed): (Vec<u32>, Vec<PlacedPlan>) = placed.unzip();
        let PlanPredictions { log_secs, covariance } = self.model.predict_plans(&placed)?;
        let log_rates = placed.iter().zip(log_secs).map(|(p, log)| p.global_batch.ln() - log).collect();
        PlanCurve::new(sizes, log_rates, covariance, points)
    }

    fn placed_plan(&self, plan: &DeclaredPlan, node_type: &NodeType, nodes: u32) -> Option<PlacedPlan> {
        self.placed_on_hosts(plan, node_type, nodes, None)
    }

    /// The plan on a number of units of a type, on a number of hosts; `None` where it cannot be divided over
    /// them.
    fn placed_on_hosts(
        &self,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        nodes: u32,
        hosts: Option<u32>,
    ) -> Option<PlacedPlan> {
        let gpus = self.basis.gpus_per_node;
        let parallelism = plan.strategy?.on_gpus(nodes.checked_mul(gpus)?)?;
        let hosts = hosts.unwrap_or_else(|| nodes.div_ceil(self.units_of_a_host)).clamp(1, nodes.max(1));
        // Each host has the same number of units, and the last ones have one more.
        let gpus_of_host = |host: u32| gpus * (nodes / hosts + u32::from(host >= hosts - nodes % hosts));
        let cpus_per_gpu = plan.needs.cpus.map(|cpus| f64::from(cpus) / f64::from(gpus));
        Some(PlacedPlan {
            parallelism,
            gpus_by_node: (0..hosts).map(gpus_of_host).collect(),
            global_batch: self.batch.samples_at(nodes),
            cpus_per_gpu,
            node_type: self.basis.types.iter().position(|t| t == node_type)?,
        })
    }
}

/// GiB of each GPU that a plan of a job needs on this number of units, without fragments, buffers and
/// kernels; `None` where the declarations do not say enough.
pub(super) fn plan_memory_gib(input: &JobInput, plan: &DeclaredPlan, nodes: u32) -> Option<f64> {
    if let Some(mib) = plan.needs.gpu_memory_mib {
        // The declared memory includes fragments and buffers, whose share is taken off here.
        return Some(mib as f64 / 1024.0 * USABLE_MEMORY_SHARE);
    }
    let model = input.model.as_ref()?;
    let parallelism = plan.strategy?.on_gpus(nodes.checked_mul(input.gpus_per_node?)?)?;
    gpu_memory_gib(model, parallelism, f64::from(model.global_batch?))
}
