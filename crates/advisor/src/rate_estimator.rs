//! How a job is believed to scale, from its program's measurements, its user's declarations, and profiles of
//! similar programs.

use std::collections::BTreeSet;

use super::believed_scaling::BelievedScaling;
use super::job_input::JobInput;
use super::plan_curve::PlanCurve;
use super::plans::gpu_memory::USABLE_MEMORY_SHARE;
use super::profile_cache::ProfileCache;
use super::program_models::{ProgramModels, plan_memory_gib};
use super::scaling::{FittedCurve, ScalingModel as _, SizeEstimate, sizes_of_interest};
use super::site_speeds::SiteSpeeds;
use infill_model::{
    AllowedSizes, BatchMode, DeclaredPlan, ExecPlan, NodeType, Profile, ProfileKey, RateSource, ScalingCurve,
    SizePoint, UnixTime, malleable::RateCurve,
};

/// Relative error of a declared curve where nothing was measured.
const DECLARED_ERROR: f64 = 0.03;

/// Relative error of rates from another user's program of the same name.
const OTHER_USER_ERROR: f64 = 0.3;

/// Relative error of rates from the same program with another execution plan.
const OTHER_PLAN_ERROR: f64 = 0.4;

/// The smallest share of its expected rate that an execution plan counts with while it was never tried.
const MIN_COUNTED: f64 = 0.5;

/// The profiles, and the sources that may speak for a job that has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateEstimator<'a> {
    /// All profiles.
    pub(super) profiles: &'a ProfileCache,
    /// The models of programs with several plans.
    pub(super) programs: &'a ProgramModels,
    /// The rates of programs on types where they never ran.
    pub(super) speeds: &'a SiteSpeeds,
    /// Whether profiles of other users' programs with the same name may help.
    pub(super) share_profiles: bool,
}

impl RateEstimator<'_> {
    /// How a job scales on a node type; `None` when nothing is known.
    pub(super) fn fitted_curve(&self, input: &JobInput, node_type: &NodeType) -> Option<FittedCurve> {
        self.fitted_for_key(input, &ProfileKey { node_type: node_type.clone(), ..input.key.clone() })
    }

    /// How a job scales with the execution plan and on the node type of a key.
    fn fitted_for_key(&self, input: &JobInput, key: &ProfileKey) -> Option<FittedCurve> {
        FittedCurve::new(&self.evidence_points(input, key), self.profiles.batch_mode(key), input.sizes.max())
    }

    /// The job's rates for the planner; empty when nothing is known.
    ///
    /// A program with one execution plan has one curve for each type of nodes where it ran, and for each of
    /// `types`. Types with GPUs count only if its own type has GPUs, and types without only if its own has
    /// none. The first curve also serves for all other types. A program with several plans has one curve for
    /// each plan on each type, `types` included.
    pub(super) fn rate_curves(&self, input: &JobInput, types: &[NodeType]) -> Vec<RateCurve> {
        let own = self.profiles.of_user(&input.key.user).filter(|p| p.key.name == input.key.name);
        let mut all_types: BTreeSet<&NodeType> = own.map(|p| &p.key.node_type).collect();
        if !input.plans.is_empty() {
            let types: Vec<NodeType> = all_types.into_iter().chain(types).cloned().collect();
            return self
                .ways_to_run(input, &types)
                .iter()
                .filter_map(|way| self.rate_curve_of(input, way))
                .collect();
        }
        all_types.extend(types.iter().filter(|t| t.has_gpus() == input.key.node_type.has_gpus()));
        all_types.remove(&input.key.node_type);
        let mut rates = Vec::new();
        for (i, node_type) in std::iter::once(&input.key.node_type).chain(all_types).enumerate() {
            let Some((curve, sizes)) = self.rate_on_type(input, node_type) else { continue };
            let exec_plan = ExecPlan::default();
            rates.push(RateCurve::new(
                exec_plan.clone(),
                Some(node_type.clone()),
                curve.clone(),
                sizes.clone(),
            ));
            if i == 0 {
                rates.push(RateCurve::new(exec_plan, None, curve, sizes));
            }
        }
        rates
    }

    /// The rates of a job without plans on a type of nodes, and the sizes at which it fits there.
    fn rate_on_type(
        &self,
        input: &JobInput,
        node_type: &NodeType,
    ) -> Option<(ScalingCurve, Option<AllowedSizes>)> {
        let key = ProfileKey { node_type: node_type.clone(), ..input.key.clone() };
        if self.similar_curve(input, &key, &sizes_of_interest(&input.sizes, &[])).is_some()
            && let Some(way) = self.way_to_run(input, None, node_type)
        {
            return Some((self.believed_curve(input, &way)?, way.allowed));
        }
        let curve = curve_of_interest(&self.fitted_curve(input, node_type)?, &input.sizes)?;
        // Where no size fits, the job shall fail with its own out-of-memory error.
        let sizes = self.fitting_sizes(input, None, &key).filter(|sizes| !sizes.up_to(u32::MAX).is_empty());
        Some((curve, sizes))
    }

    /// What the site's other measurements say of a way to run, where the program ran this way on another type
    /// or was estimated. `None` where more than one size was measured this way, or a curve is declared for
    /// it.
    fn similar_curve(&self, input: &JobInput, key: &ProfileKey, sizes: &[u32]) -> Option<PlanCurve> {
        let is_declared = input.declared_curve.is_some() && is_first_plan(input, key);
        let measured_sizes = self.profiles.points(key).len();
        let has_other_source = self.speeds.is_estimated(key) || self.ran_elsewhere(key);
        if is_declared || measured_sizes > 1 || !has_other_source {
            return None;
        }
        self.speeds.known_curve(key, sizes, self.profiles.normalized_points(key).collect())
    }

    /// The profiles in which the program was measured with the plan of a key.
    fn measured_with_plan<'p>(&'p self, key: &'p ProfileKey) -> impl Iterator<Item = &'p Profile> {
        self.profiles
            .of_user(&key.user)
            .filter(|p| p.key.name == key.name && p.key.exec_plan == key.exec_plan)
            .filter(|p| !p.points.is_empty())
    }

    /// Whether the program ran with the plan of a key on another type.
    fn ran_elsewhere(&self, key: &ProfileKey) -> bool {
        self.measured_with_plan(key).any(|p| p.key.node_type != key.node_type)
    }

    /// The ways in which the job could run on its type of nodes and `types`: each of its plans on each type.
    /// A program with one plan runs on types with GPUs only if its own type has GPUs, and on types without
    /// only if its own has none.
    pub(super) fn ways_to_run(&self, input: &JobInput, types: &[NodeType]) -> Vec<WayToRun> {
        let own_type = &input.key.node_type;
        let others: BTreeSet<&NodeType> = types.iter().filter(|t| *t != own_type).collect();
        let mut all_types = vec![own_type];
        all_types.extend(others);
        if input.plans.is_empty() {
            let similar = all_types.into_iter().filter(|t| t.has_gpus() == own_type.has_gpus());
            return similar.filter_map(|t| self.way_to_run(input, None, t)).collect();
        }
        let mut ways = Vec::new();
        for plan in &input.plans {
            let usable = all_types.iter().filter(|t| plan.runs_on(t));
            ways.extend(usable.filter_map(|t| self.way_to_run(input, Some(plan), t)));
        }
        ways
    }

    /// A way to run with what is believed of it; `None` where nothing is, or no size fits.
    pub(super) fn way_to_run(
        &self,
        input: &JobInput,
        plan: Option<&DeclaredPlan>,
        node_type: &NodeType,
    ) -> Option<WayToRun> {
        let exec_plan = plan.map_or_else(|| input.key.exec_plan.clone(), |p| p.name.clone());
        let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..input.key.clone() };
        let allowed = self.fitting_sizes(input, plan, &key);
        let points: Vec<SizePoint> = self.profiles.normalized_points(&key).collect();
        let is_untried = points.is_empty();
        let mut sizes = fitting_sizes_of_interest(input, allowed.as_ref(), &points);
        let planned =
            plan.and_then(|plan| self.programs.known_curve(input, plan, node_type, &sizes, points.clone()));
        let believed = match planned {
            Some(curve) if is_untried && self.speeds.is_estimated(&key) => {
                match self.speeds.known_curve(&key, &sizes, points) {
                    Some(estimated) => BelievedScaling::FromPlanModel(curve.combine_with(&estimated)),
                    None => BelievedScaling::FromPlanModel(curve),
                }
            }
            Some(curve) => BelievedScaling::FromPlanModel(curve),
            None => match self.similar_curve(input, &key, &sizes) {
                Some(curve) => BelievedScaling::FromSimilar(curve),
                None => BelievedScaling::Fitted(self.fitted_for_key(input, &key)?),
            },
        };
        sizes = fitting_sizes_of_interest(input, allowed.as_ref(), believed.points());
        sizes.retain(|n| believed.covers_size(*n));
        (!sizes.is_empty()).then_some(WayToRun { key, believed, sizes, allowed })
    }

    /// The source of the rates of a way to run on this number of nodes.
    pub(super) fn rate_source(&self, input: &JobInput, way: &WayToRun, nodes: u32) -> RateSource {
        let key = &way.key;
        let points = self.profiles.points(key);
        let is_declared = input.declared_curve.is_some() && is_first_plan(input, key);
        let mut own =
            self.profiles.of_user(&key.user).filter(|p| p.key.name == key.name && !p.points.is_empty());
        let ran_here = own.clone().any(|p| p.key.node_type == key.node_type);
        let same_plan = own.any(|p| p.key.exec_plan == key.exec_plan);
        match &way.believed {
            _ if points.iter().any(|p| p.nodes == nodes) => RateSource::Measured,
            _ if !points.is_empty() => RateSource::OtherSizes,
            BelievedScaling::FromSimilar(_) if !self.ran_elsewhere(key) => RateSource::Estimated,
            BelievedScaling::FromPlanModel(_) if ran_here => RateSource::OtherPlans,
            BelievedScaling::FromPlanModel(_) | BelievedScaling::FromSimilar(_) => RateSource::OtherTypes,
            BelievedScaling::Fitted(_) if is_declared => RateSource::Declared,
            BelievedScaling::Fitted(_) if same_plan => RateSource::OtherTypes,
            BelievedScaling::Fitted(_) if self.same_plan_points(key).is_some() => RateSource::OtherUsers,
            BelievedScaling::Fitted(_) if ran_here => RateSource::OtherPlans,
            BelievedScaling::Fitted(_) => RateSource::OtherTypes,
        }
    }

    pub(super) fn rate_curve_of(&self, input: &JobInput, way: &WayToRun) -> Option<RateCurve> {
        let curve = self.believed_curve(input, way)?;
        let exec_plan = way.key.exec_plan.clone();
        let node_type = Some(way.key.node_type.clone());
        Some(RateCurve::new(exec_plan, node_type, curve, way.allowed.clone()))
    }

    /// The rates with which the planner may count on a way to run.
    fn believed_curve(&self, input: &JobInput, way: &WayToRun) -> Option<ScalingCurve> {
        if self.was_tried(input, way) {
            return way.believed.to_scaling_curve(&way.sizes, |_, estimate| estimate.rate);
        }
        // An untried way counts with no more than the highest rate a node was seen to make. Only a probe may
        // try more: it is bounded, and a plan that hopes for the best is not.
        let most = self.max_rate_per_node(&way.key);
        way.believed.to_scaling_curve(&way.sizes, |nodes, estimate| {
            way.counted_rate(estimate).min(most * f64::from(nodes))
        })
    }

    /// Whether the rates of a way to run rest on measurements of its plan or on a declared curve.
    fn was_tried(&self, input: &JobInput, way: &WayToRun) -> bool {
        !self.profiles.points(&way.key).is_empty()
            || match way.believed {
                BelievedScaling::FromPlanModel(_) => false,
                BelievedScaling::FromSimilar(_) => self.ran_elsewhere(&way.key),
                BelievedScaling::Fitted(_) => self.same_plan_points(&way.key).is_some(),
            }
            || (input.declared_curve.is_some() && is_first_plan(input, &way.key))
    }

    /// Whether a way to run has an execution plan that was measured on no type, and only the model of all
    /// plans says something about it.
    pub(super) fn is_untried_plan(&self, way: &WayToRun) -> bool {
        matches!(way.believed, BelievedScaling::FromPlanModel(_))
            && self.measured_with_plan(&way.key).next().is_none()
    }

    /// The estimate of a way to run on this number of nodes, with its whole uncertainty.
    pub(super) fn estimate_size(&self, input: &JobInput, way: &WayToRun, nodes: u32) -> SizeEstimate {
        let estimate = way.believed.estimate_at(nodes);
        let error = if self.was_tried(input, way) { estimate.error } else { way.believed_error(estimate) };
        SizeEstimate { error, ..estimate }
    }

    /// The highest rate that the program was seen to make, samples a second and node, converted to the type
    /// of the key; infinite where nothing was measured.
    fn max_rate_per_node(&self, key: &ProfileKey) -> f64 {
        let own = self.profiles.of_user(&key.user).filter(|p| p.key.name == key.name);
        let rates = own.flat_map(|p| {
            let ratio = self.rate_ratio(p, &key.node_type);
            p.points.iter().map(move |point| ratio * point.rate / f64::from(point.nodes.max(1)))
        });
        rates.reduce(f64::max).unwrap_or(f64::INFINITY)
    }

    /// The expected ratio of rates on another type to those on a profile's type, for the same number of
    /// nodes.
    fn rate_ratio(&self, from: &Profile, to: &NodeType) -> f64 {
        let log_ratio = self.speeds.mean_log_ratio(&from.key, to, fewest_nodes(from));
        log_ratio.exp() * gpu_ratio(&from.key.node_type, to)
    }

    /// The relative standard error of [`Self::rate_ratio`].
    fn ratio_error(&self, from: &Profile, to: &NodeType) -> f64 {
        self.speeds.log_ratio(&from.key, to, fewest_nodes(from)).sd
    }

    /// The allowed sizes that a plan can have and at which the job fits into memory, as far as that is known;
    /// `None` for all.
    pub(super) fn fitting_sizes(
        &self,
        input: &JobInput,
        plan: Option<&DeclaredPlan>,
        key: &ProfileKey,
    ) -> Option<AllowedSizes> {
        let unfit = self.profiles.unfit_sizes(key);
        let has_own_sizes = plan.is_some_and(|plan| plan.sizes.is_some());
        let all = input.sizes.up_to(u32::MAX);
        let too_large: BTreeSet<u32> = all
            .iter()
            .copied()
            .filter(|nodes| self.is_predicted_too_large(input, plan, key, *nodes))
            .collect();
        if unfit.is_empty() && !has_own_sizes && too_large.is_empty() {
            return None;
        }
        // A program that does not fit on some nodes does not fit on fewer either.
        let least = unfit.last().map_or(0, |n| plan.map_or(n + 1, |plan| plan.may_fit_from(*n)));
        let allowed = all.into_iter().filter(|n| plan.is_none_or(|plan| plan.allows_size(*n)));
        let fits = allowed.filter(|n| *n >= least && !too_large.contains(n)).collect();
        Some(AllowedSizes::Set(fits))
    }

    /// Whether a plan on this number of nodes is predicted to need more GPU memory than there is. Sizes from
    /// the smallest measured one on need no prediction.
    fn is_predicted_too_large(
        &self,
        input: &JobInput,
        plan: Option<&DeclaredPlan>,
        key: &ProfileKey,
        nodes: u32,
    ) -> bool {
        let Some(gpu_gib) = key.node_type.gpu_memory_gib() else { return false };
        let Some(needed_gib) = plan.and_then(|plan| plan_memory_gib(input, plan, nodes)) else {
            return false;
        };
        let runs = self.profiles.points(key).iter().any(|p| p.nodes <= nodes);
        needed_gib > gpu_gib * USABLE_MEMORY_SHARE && !runs
    }

    /// How much is known of a job, for people.
    pub(super) fn knowledge_summary(&self, input: &JobInput) -> String {
        let measured = self.profiles.points(&input.key).len();
        match (measured, &input.declared_curve, self.similar_points(&input.key)) {
            (0, Some(_), _) => "counts on the declared curve".to_owned(),
            (0, None, Some(_)) => "counts on the rates of similar programs".to_owned(),
            (0, None, None) => "knows nothing yet".to_owned(),
            (1, ..) => "knows 1 size".to_owned(),
            (n, ..) => format!("knows {n} sizes"),
        }
    }

    /// All that is known of a job's scaling under a key: its measurements, its declared curve, and similar
    /// programs.
    fn evidence_points(&self, input: &JobInput, key: &ProfileKey) -> Vec<SizePoint> {
        let mut points: Vec<SizePoint> = self.profiles.normalized_points(key).collect();
        let declared = input.declared_curve.as_ref().filter(|_| is_first_plan(input, key));
        let declared = declared.map(|curve| declared_points(curve, &input.sizes));
        for more in declared.into_iter().chain(self.similar_points(key)) {
            let (factor, misfit) = unit_scale(&points, &more, input.sizes.max());
            let missing: Vec<SizePoint> = more
                .into_iter()
                .filter(|m| points.iter().all(|p| p.nodes != m.nodes))
                .map(|m| SizePoint { rate: m.rate * factor, error: m.error.hypot(misfit), ..m })
                .collect();
            points.extend(missing);
        }
        points
    }

    /// Points of similar runs, with the uncertainty of the comparison added. Sources in this order: the same
    /// plan on another node type, another user's program, another plan.
    fn similar_points(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        self.same_plan_points(key).or_else(|| self.other_plan_points(key))
    }

    fn same_plan_points(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        let own = self.profiles.of_user(&key.user).filter(|p| is_other_run_of_plan(p, key));
        if let Some(own) = own.max_by_key(|p| p.updated_at) {
            let ratio = self.rate_ratio(own, &key.node_type);
            return Some(self.scaled_points(&own.key, ratio, self.ratio_error(own, &key.node_type)));
        }
        let others = self.profiles.all_profiles().filter(|p| self.share_profiles && p.key.user != key.user);
        let similar = others.filter(|p| is_other_run_of_plan(p, key)).max_by_key(|p| p.updated_at)?;
        Some(self.scaled_points(&similar.key, 1.0, OTHER_USER_ERROR))
    }

    /// The points of a profile with rates times `factor` and this relative error added.
    fn scaled_points(&self, key: &ProfileKey, factor: f64, error: f64) -> Vec<SizePoint> {
        let points = self.profiles.normalized_points(key);
        points.map(|p| SizePoint { rate: p.rate * factor, error: p.error.hypot(error), ..p }).collect()
    }

    /// The highest measured rate of the program with another plan at its smallest measured size, on the same
    /// type of nodes if possible. One plan's speed says something about another's; its scaling does not.
    fn other_plan_points(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        let own = self
            .profiles
            .of_user(&key.user)
            .filter(|p| p.key.name == key.name && p.key.exec_plan != key.exec_plan);
        let points = own.flat_map(|p| self.profiles.normalized_points(&p.key).map(move |point| (p, point)));
        let (profile, point) = points.min_by(|(p, a), (q, b)| {
            let p_elsewhere = p.key.node_type != key.node_type;
            let q_elsewhere = q.key.node_type != key.node_type;
            p_elsewhere.cmp(&q_elsewhere).then(a.nodes.cmp(&b.nodes)).then(b.rate.total_cmp(&a.rate))
        })?;
        Some(vec![SizePoint {
            rate: point.rate * self.rate_ratio(profile, &key.node_type),
            error: point.error.hypot(OTHER_PLAN_ERROR).hypot(self.ratio_error(profile, &key.node_type)),
            ..point
        }])
    }
}

/// An execution plan and a type of nodes with which a job could run.
#[derive(Clone, Debug)]
pub(super) struct WayToRun {
    /// The profile key that the job has when it runs this way.
    pub(super) key: ProfileKey,
    /// What is believed of its rates.
    pub(super) believed: BelievedScaling,
    /// The sizes of interest, ascending, at least one.
    pub(super) sizes: Vec<u32>,
    /// The sizes at which it can run; `None` for all that are allowed.
    allowed: Option<AllowedSizes>,
}

impl WayToRun {
    /// The rate that an untried way counts with: its expected rate less its standard error.
    fn counted_rate(&self, estimate: SizeEstimate) -> f64 {
        estimate.rate * (1.0 - self.believed_error(estimate)).max(MIN_COUNTED)
    }

    /// The relative standard error of an untried way.
    fn believed_error(&self, estimate: SizeEstimate) -> f64 {
        match self.believed {
            BelievedScaling::FromPlanModel(_) | BelievedScaling::FromSimilar(_) => estimate.error,
            // A curve says how sure its slope is, but not how sure its level is.
            BelievedScaling::Fitted(_) => OTHER_PLAN_ERROR,
        }
    }
}

/// The smallest measured size of a profile; 1 where none was measured.
fn fewest_nodes(profile: &Profile) -> u32 {
    profile.points.iter().map(|p| p.nodes).min().unwrap_or(1)
}

/// GPUs of a node of type `to` for each GPU of a node of type `from`; types without GPUs count as one.
fn gpu_ratio(from: &NodeType, to: &NodeType) -> f64 {
    f64::from(to.gpus().max(1)) / f64::from(from.gpus().max(1))
}

/// Whether the key has the job's first plan, to which the declared curve belongs.
fn is_first_plan(input: &JobInput, key: &ProfileKey) -> bool {
    input.plans.first().is_none_or(|first| first.name == key.exec_plan)
}

/// Whether a profile has measurements of the program and plan of a key, but is not the key's own.
fn is_other_run_of_plan(profile: &Profile, key: &ProfileKey) -> bool {
    profile.key.name == key.name
        && profile.key.exec_plan == key.exec_plan
        && profile.key != *key
        && !profile.points.is_empty()
}

/// The sizes of interest of a job, measured ones included, at which it can run.
fn fitting_sizes_of_interest(
    input: &JobInput,
    allowed: Option<&AllowedSizes>,
    points: &[SizePoint],
) -> Vec<u32> {
    let mut sizes = sizes_of_interest(&input.sizes, points);
    sizes.retain(|n| allowed.is_none_or(|allowed| allowed.contains(*n)));
    sizes
}
/// The curve over all sizes of interest.
fn curve_of_interest(fitted: &FittedCurve, sizes: &AllowedSizes) -> Option<ScalingCurve> {
    fitted.to_scaling_curve(&sizes_of_interest(sizes, fitted.points()))
}

/// The points of a declared curve at the sizes that it names, up to the largest allowed one.
fn declared_points(curve: &ScalingCurve, sizes: &AllowedSizes) -> Vec<SizePoint> {
    let named = curve.points().iter().map(|p| p.nodes).filter(|n| !curve.is_linear() && *n <= sizes.max());
    named
        .map(|nodes| SizePoint {
            nodes,
            rate: curve.rate(nodes),
            error: DECLARED_ERROR,
            secs: 0.0,
            step_samples: None,
            hosts: None,
            spread: infill_model::Spread::Near,
            over_hosts: infill_model::Spread::Near,
            at: UnixTime::default(),
        })
        .collect()
}

/// The factor that brings `other` to the level of the measurements, because it may count in another unit; and
/// the relative error that then remains.
fn unit_scale(measured: &[SizePoint], other: &[SizePoint], largest: u32) -> (f64, f64) {
    let fitted = FittedCurve::new(other, BatchMode::Auto, largest);
    let Some(fitted) = fitted.filter(|_| !measured.is_empty()) else { return (1.0, 0.0) };
    let n = measured.len() as f64;
    let logs: Vec<f64> = measured.iter().map(|p| (p.rate / fitted.estimate_at(p.nodes).rate).ln()).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let misfit = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean.exp(), misfit)
}
