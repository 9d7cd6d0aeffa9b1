//! What is known of a program that can run by several execution plans on several types of nodes: one model of
//! all of them ([`super::plans`]), fitted to all that its user's jobs have measured of it.

use std::collections::BTreeMap;

use super::job_input::JobInput;
use super::plan_curve::PlanCurve;
use super::plans::gpu_memory::{USABLE_MEMORY_SHARE, gpu_memory_gib};
use super::plans::{PlacedPlan, PlanModel, PlanPredictions, PlanPriors};
use super::profile_cache::ProfileCache;
use super::rate_estimates::{ProgramName, program_name};
use super::scaling::sizes_of_interest;
use super::site_speeds::SiteSpeeds;
use infill_model::{
    BatchMode, DeclaredPlan, ExecPlan, ModelFacts, NodeType, ParallelStrategy, ProfileKey, SizePoint,
    UnixTime,
};

/// GPUs of a host where GPUs are lent, unless more were seen together.
const USUAL_GPUS_OF_A_HOST: u32 = 8;

/// Samples of a step as its size changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepBatch {
    /// Always so many.
    Global(f64),
    /// So many for each unit of the size.
    PerNode(f64),
}

impl StepBatch {
    /// As the owner says, else as was measured.
    fn from_job(subject: &JobInput, profiles: &ProfileCache) -> StepBatch {
        if let Some(samples) = subject.model.and_then(|model| model.global_batch) {
            return StepBatch::Global(f64::from(samples));
        }
        let per_node = profiles.batch_mode(&subject.key) == BatchMode::PerNode;
        let own = profiles.of_program(&subject.key);
        let mut told: Vec<f64> = own
            .flat_map(|p| &p.points)
            .filter_map(|p: &SizePoint| {
                p.step_samples
                    .map(|samples| if per_node { samples / f64::from(p.nodes.max(1)) } else { samples })
            })
            .filter(|s| s.is_normal())
            .collect();
        told.sort_by(f64::total_cmp);
        let samples = told.get(told.len() / 2).copied().unwrap_or(1.0);
        if per_node { StepBatch::PerNode(samples) } else { StepBatch::Global(samples) }
    }

    fn samples_at(self, nodes: u32) -> f64 {
        match self {
            StepBatch::Global(samples) => samples,
            StepBatch::PerNode(samples) => samples * f64::from(nodes),
        }
    }
}

/// Seconds after which a model is made anew when rates have changed that it knows; what it does not know yet
/// counts at once.
const REMAKE_SECS: f64 = 30.0;

/// Most models that one round makes: it takes some milliseconds.
const MOST_MADE: usize = 16;

/// What a model was made of: it is made anew when that changes.
#[derive(Clone, Debug, PartialEq)]
struct ModelBasis {
    plans: Vec<(ExecPlan, ParallelStrategy)>,
    facts: Option<ModelFacts>,
    gpus_per_node: u32,
    points: usize,
    types: Vec<NodeType>,
}

/// One program's.
#[derive(Clone, Debug)]
struct ProgramModel {
    made: ModelBasis,
    made_at: UnixTime,
    /// When anything of what was measured of it last changed.
    updated_at: UnixTime,
    model: PlanModel,
    batch: StepBatch,
    /// Units of the size that share a host, by what was seen.
    units_of_a_host: u32,
    /// What is believed of each plan on each type, at the sizes of the job that the model was made for:
    /// rounds ask for it again and again.
    curves: BTreeMap<(ExecPlan, NodeType), PlanCurve>,
}

/// Those of all programs at hand, by user and name.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramModels {
    known: BTreeMap<ProgramName, ProgramModel>,
}

impl ProgramModels {
    /// Makes and forgets models as these jobs and what was measured want it. `types`: those of nodes at hand.
    pub(super) fn update_models(
        &mut self,
        subjects: &[JobInput],
        profiles: &ProfileCache,
        speeds: &SiteSpeeds,
        types: &[NodeType],
        now: UnixTime,
    ) {
        let mut wanted = BTreeMap::new();
        for subject in subjects {
            if let Some(made) = model_basis(subject, profiles, types) {
                wanted.entry(program_name(&subject.key)).or_insert((subject, made));
            }
        }
        self.known.retain(|name, _| wanted.contains_key(name));
        let mut due: Vec<_> = wanted
            .into_iter()
            .filter(|(name, (_, (made, updated_at))): &(_, (_, (ModelBasis, UnixTime)))| {
                self.known.get(name).is_none_or(|known| known.needs_refit(made, *updated_at, now))
            })
            .collect();
        // Those of which there is none yet come first, then the oldest.
        due.sort_by_key(|(name, _)| self.known.get(name).map(|known| known.made_at));
        for (name, (subject, made)) in due.into_iter().take(MOST_MADE) {
            match ProgramModel::new(subject, made, profiles, speeds, now) {
                Some(program) => self.known.insert(name, program),
                None => self.known.remove(&name),
            };
        }
    }

    /// What is believed of a job with this plan on a type of nodes, at these sizes; `None` where there is no
    /// model of it.
    pub(super) fn known_curve(
        &self,
        subject: &JobInput,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let program = self.known.get(&program_name(&subject.key))?;
        match program.curves.get(&(plan.name.clone(), node_type.clone())).filter(|curve: &&PlanCurve| {
            sizes.iter().all(|n| curve.has_size(*n) || program.placed_plan(plan, node_type, *n).is_none())
        }) {
            Some(curve) => Some(curve.with_points(points)),
            None => program.predict_curve(plan, node_type, sizes, points),
        }
    }
}

/// What a model of this job's program would be made of, and when that last changed; `None` where nothing was
/// measured, or its plans do not tell what they do.
fn model_basis(
    subject: &JobInput,
    profiles: &ProfileCache,
    types: &[NodeType],
) -> Option<(ModelBasis, UnixTime)> {
    let plans: Option<Vec<(ExecPlan, ParallelStrategy)>> =
        subject.plans.iter().map(|plan| Some((plan.name.clone(), plan.strategy?))).collect();
    let plans = plans.filter(|plans| !plans.is_empty())?;
    let own =
        profiles.of_program(&subject.key).filter(|p| plans.iter().any(|(plan, _)| *plan == p.key.exec_plan));
    let points = own.clone().map(|p| p.points.len()).sum();
    let updated_at = own.clone().map(|p| p.updated_at).max()?;
    let first = own
        .clone()
        .filter(|p| !p.points.is_empty())
        .min_by_key(|p| p.points.iter().map(|p| p.nodes).min())?;
    // The first is the one that others are compared with.
    let mut all = vec![first.key.node_type.clone()];
    let measured = own.filter(|p| !p.points.is_empty()).map(|p| &p.key.node_type);
    for node_type in measured.chain([&subject.key.node_type]).chain(types) {
        if !all.contains(node_type) {
            all.push(node_type.clone());
        }
    }
    let gpus_per_node = subject.gpus_per_node.unwrap_or(1).max(1);
    Some((ModelBasis { plans, facts: subject.model, gpus_per_node, points, types: all }, updated_at))
}

impl ProgramModel {
    /// Whether it is to be made anew of this.
    fn needs_refit(&self, made: &ModelBasis, updated_at: UnixTime, now: UnixTime) -> bool {
        let is_old = now.age_of(self.made_at) >= REMAKE_SECS;
        self.made != *made || (is_old && self.updated_at != updated_at)
    }

    fn new(
        subject: &JobInput,
        (made, updated_at): (ModelBasis, UnixTime),
        profiles: &ProfileCache,
        speeds: &SiteSpeeds,
        made_at: UnixTime,
    ) -> Option<ProgramModel> {
        let first = ProfileKey { node_type: made.types[0].clone(), ..subject.key.clone() };
        let least = profiles.of_program(&first).filter(|p| p.key.node_type == first.node_type);
        let least = least.flat_map(|p| &p.points).map(|p| p.nodes).min().unwrap_or(1);
        let further: Vec<(f64, f64)> = made
            .types
            .iter()
            .skip(1)
            .map(|to: &NodeType| {
                let ratio = speeds.log_ratio(&first, to, least);
                (-ratio.mean, ratio.sd)
            })
            .collect();
        let model = PlanModel::new(made.facts, &PlanPriors::from_public_tables(), &further);
        let own = profiles.of_program(&subject.key);
        let together =
            own.clone().flat_map(|p| &p.points).filter_map(|p| Some(f64::from(p.nodes) / p.hosts?.max(1.0)));
        let together = together.map(|units| units.ceil() as u32);
        let units_of_a_host =
            together.max().map_or(1, |seen| seen.max(USUAL_GPUS_OF_A_HOST / made.gpus_per_node));
        let batch = StepBatch::from_job(subject, profiles);
        let mut program = ProgramModel {
            made,
            made_at,
            updated_at,
            model,
            batch,
            units_of_a_host,
            curves: BTreeMap::new(),
        };
        let mut measured: Vec<(PlacedPlan, f64, f64)> = Vec::new();
        for profile in own {
            let Some(plan) = subject.plans.iter().find(|plan| plan.name == profile.key.exec_plan) else {
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
        // Few GPUs of the first type come first: by them the rest is scaled.
        measured.sort_by_key(|(placed, ..)| (placed.node_type, placed.parallelism.gpus()));
        measured
            .iter()
            .for_each(|(placed, secs, error)| program.model.record_measurement(placed, *secs, *error));
        program.model.refit_model().then(|| program.with_curves(subject, profiles))
    }

    fn with_curves(mut self, subject: &JobInput, profiles: &ProfileCache) -> ProgramModel {
        for plan in &subject.plans {
            for node_type in self.made.types.clone() {
                let exec_plan = plan.name.clone();
                let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..subject.key.clone() };
                let points: Vec<SizePoint> = profiles.normalized_points(&key).collect();
                let sizes = sizes_of_interest(&subject.sizes, &points);
                if let Some(curve) = self.predict_curve(plan, &node_type, &sizes, points) {
                    self.curves.insert((plan.name.clone(), node_type), curve);
                }
            }
        }
        self
    }

    /// What is believed of a plan on a type, at those of these sizes by which it can be divided.
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

    /// The plan on so many units of a type, on so many hosts; `None` where it cannot be divided so.
    fn placed_on_hosts(
        &self,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        nodes: u32,
        hosts: Option<u32>,
    ) -> Option<PlacedPlan> {
        let gpus = self.made.gpus_per_node;
        let parallelism = plan.strategy?.on_gpus(nodes.checked_mul(gpus)?)?;
        let hosts = hosts.unwrap_or_else(|| nodes.div_ceil(self.units_of_a_host)).clamp(1, nodes.max(1));
        // As many on each, the rest one more.
        let on = |host: u32| gpus * (nodes / hosts + u32::from(host >= hosts - nodes % hosts));
        let cpus_per_gpu = plan.needs.cpus.map(|cpus| f64::from(cpus) / f64::from(gpus));
        Some(PlacedPlan {
            parallelism,
            gpus_by_node: (0..hosts).map(on).collect(),
            global_batch: self.batch.samples_at(nodes),
            cpus_per_gpu,
            node_type: self.made.types.iter().position(|t| t == node_type)?,
        })
    }
}

/// GiB that a plan of a job needs of each GPU on so many units, beside what else is there; `None` where
/// nothing tells.
pub(super) fn plan_memory_gib(subject: &JobInput, plan: &DeclaredPlan, nodes: u32) -> Option<f64> {
    if let Some(mib) = plan.needs.gpu_memory_mib {
        // Whoever says so has counted all.
        return Some(mib as f64 / 1024.0 * USABLE_MEMORY_SHARE);
    }
    let model = subject.model.as_ref()?;
    let parallelism = plan.strategy?.on_gpus(nodes.checked_mul(subject.gpus_per_node?)?)?;
    gpu_memory_gib(model, parallelism, f64::from(model.global_batch?))
}
