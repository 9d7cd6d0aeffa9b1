//! What is known of a program that can run by several execution plans on several types of nodes: one model of
//! all of them ([`super::plans`]), fitted to all that its user's jobs have measured of it.

use std::collections::BTreeMap;

use super::estimates::{ProgramName, name_of};
use super::plan_curve::PlanCurve;
use super::plans::memory::{USABLE, gpu_memory_gib};
use super::plans::{PlacedPlan, PlanModel, PlanPredictions, PlanPriors};
use super::profiles::Profiles;
use super::scaling::sizes_of_interest;
use super::site_speeds::SiteSpeeds;
use super::subject::Subject;
use infill_model::{
    BatchMode, DeclaredPlan, ExecPlan, ModelFacts, NodeType, ParallelStrategy, ProfileKey, SizePoint,
    UnixTime,
};

/// GPUs of a host where GPUs are lent, unless more were seen together.
const USUAL_GPUS_OF_A_HOST: u32 = 8;

/// Samples of a step as its size changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Batch {
    /// Always so many.
    Global(f64),
    /// So many for each unit of the size.
    PerNode(f64),
}

impl Batch {
    /// As the owner says, else as was measured.
    fn of(subject: &Subject, profiles: &Profiles) -> Batch {
        if let Some(samples) = subject.model.and_then(|model| model.global_batch) {
            return Batch::Global(f64::from(samples));
        }
        let per_node = profiles.batch_mode(&subject.key) == BatchMode::PerNode;
        let of = |p: &SizePoint| {
            p.step_samples.map(|samples| if per_node { samples / f64::from(p.nodes.max(1)) } else { samples })
        };
        let own = profiles.of_program(&subject.key);
        let mut told: Vec<f64> =
            own.flat_map(|p| &p.points).filter_map(of).filter(|s| s.is_normal()).collect();
        told.sort_by(f64::total_cmp);
        let samples = told.get(told.len() / 2).copied().unwrap_or(1.0);
        if per_node { Batch::PerNode(samples) } else { Batch::Global(samples) }
    }

    fn at(self, nodes: u32) -> f64 {
        match self {
            Batch::Global(samples) => samples,
            Batch::PerNode(samples) => samples * f64::from(nodes),
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
struct Made {
    plans: Vec<(ExecPlan, ParallelStrategy)>,
    facts: Option<ModelFacts>,
    gpus_per_node: u32,
    points: usize,
    types: Vec<NodeType>,
}

/// One program's.
#[derive(Clone, Debug)]
struct Program {
    made: Made,
    made_at: UnixTime,
    /// When anything of what was measured of it last changed.
    updated_at: UnixTime,
    model: PlanModel,
    batch: Batch,
    /// Units of the size that share a host, by what was seen.
    units_of_a_host: u32,
    /// What is believed of each plan on each type, at the sizes of the job that the model was made for:
    /// rounds ask for it again and again.
    curves: BTreeMap<(ExecPlan, NodeType), PlanCurve>,
}

/// Those of all programs at hand, by user and name.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    known: BTreeMap<ProgramName, Program>,
}

impl Programs {
    /// Makes and forgets models as these jobs and what was measured want it. `types`: those of nodes at hand.
    pub(super) fn update(
        &mut self,
        subjects: &[Subject],
        profiles: &Profiles,
        speeds: &SiteSpeeds,
        types: &[NodeType],
        now: UnixTime,
    ) {
        let mut wanted = BTreeMap::new();
        for subject in subjects {
            if let Some(made) = made(subject, profiles, types) {
                wanted.entry(name_of(&subject.key)).or_insert((subject, made));
            }
        }
        self.known.retain(|name, _| wanted.contains_key(name));
        let is_due = |(name, (_, (made, updated_at))): &(_, (_, (Made, UnixTime)))| {
            self.known.get(name).is_none_or(|known| known.is_due(made, *updated_at, now))
        };
        let mut due: Vec<_> = wanted.into_iter().filter(is_due).collect();
        // Those of which there is none yet come first, then the oldest.
        due.sort_by_key(|(name, _)| self.known.get(name).map(|known| known.made_at));
        for (name, (subject, made)) in due.into_iter().take(MOST_MADE) {
            match Program::new(subject, made, profiles, speeds, now) {
                Some(program) => self.known.insert(name, program),
                None => self.known.remove(&name),
            };
        }
    }

    /// What is believed of a job with this plan on a type of nodes, at these sizes; `None` where there is no
    /// model of it.
    pub(super) fn curve(
        &self,
        subject: &Subject,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let program = self.known.get(&name_of(&subject.key))?;
        let has = |curve: &&PlanCurve| {
            sizes.iter().all(|n| curve.has(*n) || program.placed(plan, node_type, *n).is_none())
        };
        match program.curves.get(&(plan.name.clone(), node_type.clone())).filter(has) {
            Some(curve) => Some(curve.with_points(points)),
            None => program.curve(plan, node_type, sizes, points),
        }
    }
}

/// What a model of this job's program would be made of, and when that last changed; `None` where nothing was
/// measured, or its plans do not tell what they do.
fn made(subject: &Subject, profiles: &Profiles, types: &[NodeType]) -> Option<(Made, UnixTime)> {
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
    Some((Made { plans, facts: subject.model, gpus_per_node, points, types: all }, updated_at))
}

impl Program {
    /// Whether it is to be made anew of this.
    fn is_due(&self, made: &Made, updated_at: UnixTime, now: UnixTime) -> bool {
        let is_old = now.age_of(self.made_at) >= REMAKE_SECS;
        self.made != *made || (is_old && self.updated_at != updated_at)
    }

    fn new(
        subject: &Subject,
        (made, updated_at): (Made, UnixTime),
        profiles: &Profiles,
        speeds: &SiteSpeeds,
        made_at: UnixTime,
    ) -> Option<Program> {
        let first = ProfileKey { node_type: made.types[0].clone(), ..subject.key.clone() };
        let least = profiles.of_program(&first).filter(|p| p.key.node_type == first.node_type);
        let least = least.flat_map(|p| &p.points).map(|p| p.nodes).min().unwrap_or(1);
        let slower = |to: &NodeType| {
            let ratio = speeds.log_ratio(&first, to, least);
            (-ratio.mean, ratio.sd)
        };
        let further: Vec<(f64, f64)> = made.types.iter().skip(1).map(slower).collect();
        let model = PlanModel::new(made.facts, &PlanPriors::usual(), &further);
        let own = profiles.of_program(&subject.key);
        let together =
            own.clone().flat_map(|p| &p.points).filter_map(|p| Some(f64::from(p.nodes) / p.hosts?.max(1.0)));
        let together = together.map(|units| units.ceil() as u32);
        let units_of_a_host =
            together.max().map_or(1, |seen| seen.max(USUAL_GPUS_OF_A_HOST / made.gpus_per_node));
        let batch = Batch::of(subject, profiles);
        let mut program =
            Program { made, made_at, updated_at, model, batch, units_of_a_host, curves: BTreeMap::new() };
        let mut measured: Vec<(PlacedPlan, f64, f64)> = Vec::new();
        for profile in own {
            let Some(plan) = subject.plans.iter().find(|plan| plan.name == profile.key.exec_plan) else {
                continue;
            };
            for point in profiles.near(&profile.key) {
                let placed = program.placed_on(
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
        measured.iter().for_each(|(placed, secs, error)| program.model.measured(placed, *secs, *error));
        program.model.update().then(|| program.with_curves(subject, profiles))
    }

    fn with_curves(mut self, subject: &Subject, profiles: &Profiles) -> Program {
        for plan in &subject.plans {
            for node_type in self.made.types.clone() {
                let exec_plan = plan.name.clone();
                let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..subject.key.clone() };
                let points: Vec<SizePoint> = profiles.near(&key).collect();
                let sizes = sizes_of_interest(&subject.sizes, &points);
                if let Some(curve) = self.curve(plan, &node_type, &sizes, points) {
                    self.curves.insert((plan.name.clone(), node_type), curve);
                }
            }
        }
        self
    }

    /// What is believed of a plan on a type, at those of these sizes by which it can be divided.
    fn curve(
        &self,
        plan: &DeclaredPlan,
        node_type: &NodeType,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let placed = sizes.iter().filter_map(|n| Some((*n, self.placed(plan, node_type, *n)?)));
        let (sizes, placed): (Vec<u32>, Vec<PlacedPlan>) = placed.unzip();
        let PlanPredictions { log_secs, covariance } = self.model.predict(&placed)?;
        let log_rates = placed.iter().zip(log_secs).map(|(p, log)| p.global_batch.ln() - log).collect();
        PlanCurve::new(sizes, log_rates, covariance, points)
    }

    fn placed(&self, plan: &DeclaredPlan, node_type: &NodeType, nodes: u32) -> Option<PlacedPlan> {
        self.placed_on(plan, node_type, nodes, None)
    }

    /// The plan on so many units of a type, on so many hosts; `None` where it cannot be divided so.
    fn placed_on(
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
            global_batch: self.batch.at(nodes),
            cpus_per_gpu,
            node_type: self.made.types.iter().position(|t| t == node_type)?,
        })
    }
}

/// GiB that a plan of a job needs of each GPU on so many units, beside what else is there; `None` where
/// nothing tells.
pub(super) fn memory_gib(subject: &Subject, plan: &DeclaredPlan, nodes: u32) -> Option<f64> {
    if let Some(mib) = plan.needs.gpu_memory_mib {
        // Whoever says so has counted all.
        return Some(mib as f64 / 1024.0 * USABLE);
    }
    let model = subject.model.as_ref()?;
    let parallelism = plan.strategy?.on_gpus(nodes.checked_mul(subject.gpus_per_node?)?)?;
    gpu_memory_gib(model, parallelism, f64::from(model.global_batch?))
}
