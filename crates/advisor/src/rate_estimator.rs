//! What is believed of a job's scaling: what was measured of its program, what its user declares, and what is
//! known of programs like it.

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

/// Relative error of a curve that a user declares, where nothing was measured.
const DECLARED_ERROR: f64 = 0.03;

/// Relative error of what is known of another user's program of the same name.
const OTHER_USER_ERROR: f64 = 0.3;

/// Relative error of what is known of the same program with another execution plan.
const OTHER_PLAN_ERROR: f64 = 0.4;

/// The least that an execution plan which was never tried is counted on to make, in parts of what is
/// expected.
const LEAST_COUNTED: f64 = 0.5;

/// The profiles, and which of them may speak for a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateEstimator<'a> {
    /// All profiles.
    pub(super) profiles: &'a ProfileCache,
    /// The models of programs with several plans.
    pub(super) programs: &'a ProgramModels,
    /// How fast programs are on types where they never ran.
    pub(super) speeds: &'a SiteSpeeds,
    /// Whether what is known of other users' programs of the same name may help.
    pub(super) share_profiles: bool,
}

impl RateEstimator<'_> {
    /// What is believed of a job's scaling on a node type; `None` when nothing is known.
    pub(super) fn fitted_curve(&self, subject: &JobInput, node_type: &NodeType) -> Option<FittedCurve> {
        self.fitted_for_key(subject, &ProfileKey { node_type: node_type.clone(), ..subject.key.clone() })
    }

    /// The same with the execution plan of the key.
    fn fitted_for_key(&self, subject: &JobInput, key: &ProfileKey) -> Option<FittedCurve> {
        FittedCurve::new(
            &self.evidence_points(subject, key),
            self.profiles.batch_mode(key),
            subject.sizes.max(),
        )
    }

    /// The job's rates for the planner. Of a program with one execution plan one curve for each type of nodes
    /// where it ran, and for each of these that has GPUs if its own has; the first also serves for all
    /// others. Of one with several, one curve for each and each type of nodes, these types among them. Empty
    /// when nothing is known at all.
    pub(super) fn rate_curves(&self, subject: &JobInput, types: &[NodeType]) -> Vec<RateCurve> {
        let own = self.profiles.of_user(&subject.key.user).filter(|p| p.key.name == subject.key.name);
        let mut known: BTreeSet<&NodeType> = own.map(|p| &p.key.node_type).collect();
        if !subject.plans.is_empty() {
            let types: Vec<NodeType> = known.into_iter().chain(types).cloned().collect();
            return self
                .ways_to_run(subject, &types)
                .iter()
                .filter_map(|way| self.rate_curve_of(subject, way))
                .collect();
        }
        known.extend(types.iter().filter(|t| t.has_gpus() == subject.key.node_type.has_gpus()));
        known.remove(&subject.key.node_type);
        let mut rates = Vec::new();
        for (i, node_type) in std::iter::once(&subject.key.node_type).chain(known).enumerate() {
            let Some((curve, sizes)) = self.rate_on_type(subject, node_type) else { continue };
            let on = |node_type: Option<NodeType>| {
                let exec_plan = ExecPlan::default();
                let curve = curve.clone();
                let sizes = sizes.clone();
                RateCurve::new(exec_plan, node_type, curve, sizes)
            };
            rates.push(on(Some(node_type.clone())));
            rates.extend((i == 0).then(|| on(None)));
        }
        rates
    }

    /// The rates of a job without plans on a type of nodes, and the sizes at which it fits there.
    fn rate_on_type(
        &self,
        subject: &JobInput,
        node_type: &NodeType,
    ) -> Option<(ScalingCurve, Option<AllowedSizes>)> {
        let key = ProfileKey { node_type: node_type.clone(), ..subject.key.clone() };
        if self.similar_curve(subject, &key, &sizes_of_interest(&subject.sizes, &[])).is_some()
            && let Some(way) = self.way_to_run(subject, None, node_type)
        {
            return Some((self.believed_curve(subject, &way)?, way.allowed));
        }
        let curve = curve_of_interest(&self.fitted_curve(subject, node_type)?, &subject.sizes)?;
        // Where none is left, it shall fail as itself.
        let sizes = self.fitting_sizes(subject, None, &key).filter(|sizes| !sizes.up_to(u32::MAX).is_empty());
        Some((curve, sizes))
    }

    /// What the site tells of a way to run of which itself no more than one size was measured: where the
    /// program ran so on another type, or was estimated.
    fn similar_curve(&self, subject: &JobInput, key: &ProfileKey, sizes: &[u32]) -> Option<PlanCurve> {
        let is_declared = subject.declared.is_some() && is_first_plan(subject, key);
        let own = self.profiles.points(key).len();
        if is_declared || own > 1 || !(self.speeds.is_estimated(key) || self.ran_elsewhere(key)) {
            return None;
        }
        self.speeds.known_curve(key, sizes, self.profiles.normalized_points(key).collect())
    }

    /// Where the program was measured with the plan of a key.
    fn measured_with_plan<'p>(&'p self, key: &'p ProfileKey) -> impl Iterator<Item = &'p Profile> {
        self.profiles
            .of_user(&key.user)
            .filter(|p: &&Profile| p.key.name == key.name && p.key.exec_plan == key.exec_plan)
            .filter(|p| !p.points.is_empty())
    }

    /// Whether the program ran with the plan of a key on another type.
    fn ran_elsewhere(&self, key: &ProfileKey) -> bool {
        self.measured_with_plan(key).any(|p| p.key.node_type != key.node_type)
    }

    /// What the job could run as, on its type of nodes and these others: each of its plans on each type. Of a
    /// program with one plan only that, on types that have GPUs if its own has.
    pub(super) fn ways_to_run(&self, subject: &JobInput, types: &[NodeType]) -> Vec<WayToRun> {
        let types: BTreeSet<&NodeType> = types.iter().filter(|t| **t != subject.key.node_type).collect();
        let own = || std::iter::once(&subject.key.node_type);
        if subject.plans.is_empty() {
            let kin = types.iter().copied().filter(|t| t.has_gpus() == subject.key.node_type.has_gpus());
            return own().chain(kin).filter_map(|t| self.way_to_run(subject, None, t)).collect();
        }
        let pairs = subject.plans.iter().flat_map(|plan| {
            own().chain(types.iter().copied()).filter(|t| plan.runs_on(t)).map(move |t| (plan, t))
        });
        pairs.filter_map(|(plan, node_type)| self.way_to_run(subject, Some(plan), node_type)).collect()
    }

    pub(super) fn way_to_run(
        &self,
        subject: &JobInput,
        plan: Option<&DeclaredPlan>,
        node_type: &NodeType,
    ) -> Option<WayToRun> {
        let exec_plan = plan.map_or_else(|| subject.key.exec_plan.clone(), |p| p.name.clone());
        let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..subject.key.clone() };
        let allowed = self.fitting_sizes(subject, plan, &key);
        let of_interest = |points: &[SizePoint]| {
            let mut sizes = sizes_of_interest(&subject.sizes, points);
            sizes.retain(|n| allowed.as_ref().is_none_or(|sizes| sizes.contains(*n)));
            sizes
        };
        let planned = plan.and_then(|plan| {
            let points: Vec<SizePoint> = self.profiles.normalized_points(&key).collect();
            let sizes = of_interest(&points);
            Some(BelievedScaling::Planned(
                self.programs.known_curve(subject, plan, node_type, &sizes, points)?,
            ))
        });
        let alike = || {
            let points: Vec<SizePoint> = self.profiles.normalized_points(&key).collect();
            Some(BelievedScaling::Alike(self.similar_curve(subject, &key, &of_interest(&points))?))
        };
        let is_untried = self.profiles.points(&key).is_empty();
        let planned = planned.map(|planned| match planned {
            BelievedScaling::Planned(curve) if is_untried && self.speeds.is_estimated(&key) => {
                let points = self.profiles.normalized_points(&key).collect();
                let estimated = self.speeds.known_curve(&key, &of_interest(&[]), points);
                BelievedScaling::Planned(estimated.map_or(curve.clone(), |other| curve.combine_with(&other)))
            }
            other => other,
        });
        let believed = planned
            .or_else(alike)
            .or_else(|| Some(BelievedScaling::Fitted(self.fitted_for_key(subject, &key)?)))?;
        let mut sizes = of_interest(believed.points());
        sizes.retain(|n| believed.covers_size(*n));
        (!sizes.is_empty()).then_some(WayToRun { key, believed, sizes, allowed })
    }

    /// From what the rates of a way to run are known on so many nodes.
    pub(super) fn rate_source(&self, subject: &JobInput, way: &WayToRun, nodes: u32) -> RateSource {
        let key = &way.key;
        let points = self.profiles.points(key);
        let is_declared = subject.declared.is_some() && is_first_plan(subject, key);
        let mut own = self
            .profiles
            .of_user(&key.user)
            .filter(|p: &&Profile| p.key.name == key.name && !p.points.is_empty());
        let ran_here = own.clone().any(|p| p.key.node_type == key.node_type);
        let same_plan = own.any(|p| p.key.exec_plan == key.exec_plan);
        match &way.believed {
            _ if points.iter().any(|p| p.nodes == nodes) => RateSource::Measured,
            _ if !points.is_empty() => RateSource::OtherSizes,
            BelievedScaling::Alike(_) if !self.ran_elsewhere(key) => RateSource::Estimated,
            BelievedScaling::Planned(_) if ran_here => RateSource::OtherPlans,
            BelievedScaling::Planned(_) | BelievedScaling::Alike(_) => RateSource::OtherTypes,
            BelievedScaling::Fitted(_) if is_declared => RateSource::Declared,
            BelievedScaling::Fitted(_) if same_plan => RateSource::OtherTypes,
            BelievedScaling::Fitted(_) if self.same_plan_points(key).is_some() => RateSource::OtherUsers,
            BelievedScaling::Fitted(_) if ran_here => RateSource::OtherPlans,
            BelievedScaling::Fitted(_) => RateSource::OtherTypes,
        }
    }

    pub(super) fn rate_curve_of(&self, subject: &JobInput, way: &WayToRun) -> Option<RateCurve> {
        let curve = self.believed_curve(subject, way)?;
        let exec_plan = way.key.exec_plan.clone();
        let node_type = Some(way.key.node_type.clone());
        Some(RateCurve::new(exec_plan, node_type, curve, way.allowed.clone()))
    }

    /// What a way to run is counted on to make.
    fn believed_curve(&self, subject: &JobInput, way: &WayToRun) -> Option<ScalingCurve> {
        match self.was_tried(subject, way) {
            true => way.believed.to_scaling_curve(&way.sizes, |_, estimate| estimate.rate),
            // More than was ever seen of a node is nothing to count on.
            // It is to be tried by a probe, which is bounded, and not by a plan that hopes for the best.
            false => {
                let most = self.max_rate_per_node(&way.key);
                way.believed.to_scaling_curve(&way.sizes, |n, estimate| {
                    way.counted_rate(estimate).min(most * f64::from(n))
                })
            }
        }
    }

    fn was_tried(&self, subject: &JobInput, way: &WayToRun) -> bool {
        !self.profiles.points(&way.key).is_empty()
            || match way.believed {
                BelievedScaling::Planned(_) => false,
                BelievedScaling::Alike(_) => self.ran_elsewhere(&way.key),
                BelievedScaling::Fitted(_) => self.same_plan_points(&way.key).is_some(),
            }
            || (subject.declared.is_some() && is_first_plan(subject, &way.key))
    }

    /// Whether a way to run is of an execution plan of which nothing was measured on any type, as far as the
    /// model of all plans tells of it.
    pub(super) fn is_untried_plan(&self, way: &WayToRun) -> bool {
        matches!(way.believed, BelievedScaling::Planned(_))
            && self.measured_with_plan(&way.key).next().is_none()
    }

    /// What is believed of a way to run on so many nodes, with all that it is doubted by.
    pub(super) fn estimate_size(&self, subject: &JobInput, way: &WayToRun, nodes: u32) -> SizeEstimate {
        let estimate = way.believed.estimate_at(nodes);
        let error = if self.was_tried(subject, way) { estimate.error } else { way.believed_error(estimate) };
        SizeEstimate { error, ..estimate }
    }

    /// The most samples a second and node that the program was seen to make, as it would be on the type of
    /// the key; infinite where nothing was measured.
    fn max_rate_per_node(&self, key: &ProfileKey) -> f64 {
        let own = self.profiles.of_user(&key.user).filter(|p| p.key.name == key.name);
        let rates = own.flat_map(|p| {
            let ratio = self.rate_ratio(p, &key.node_type);
            p.points.iter().map(move |point| ratio * point.rate / f64::from(point.nodes.max(1)))
        });
        rates.reduce(f64::max).unwrap_or(f64::INFINITY)
    }

    /// By what factor rates are expected to change from the type of a profile to another one, for as many
    /// nodes.
    fn rate_ratio(&self, from: &Profile, to: &NodeType) -> f64 {
        let log_ratio = self.speeds.mean_log_ratio(&from.key, to, fewest_nodes(from));
        log_ratio.exp() * gpu_ratio(&from.key.node_type, to)
    }

    /// The relative standard error of that.
    fn ratio_error(&self, from: &Profile, to: &NodeType) -> f64 {
        self.speeds.log_ratio(&from.key, to, fewest_nodes(from)).sd
    }

    /// The sizes of a job that a plan can have and at which it fits into memory, as far as that is known;
    /// `None` for all.
    pub(super) fn fitting_sizes(
        &self,
        subject: &JobInput,
        plan: Option<&DeclaredPlan>,
        key: &ProfileKey,
    ) -> Option<AllowedSizes> {
        let unfit = self.profiles.unfit_sizes(key);
        let has_gib = key.node_type.gpu_memory_gib().map(|gib| gib * USABLE_MEMORY_SHARE);
        let needs_gib = |nodes: u32| plan_memory_gib(subject, plan?, nodes);
        let may_lack = |nodes: &u32| has_gib.zip(needs_gib(*nodes)).is_some_and(|(has, needs)| needs > has);
        // What runs needs no prediction.
        let runs = |nodes: &u32| self.profiles.points(key).iter().any(|p| p.nodes <= *nodes);
        let limits = plan.is_some_and(|plan| plan.sizes.is_some());
        let all = subject.sizes.up_to(u32::MAX);
        let predicted = plan.is_some() && all.iter().any(|n| may_lack(n) && !runs(n));
        if unfit.is_empty() && !limits && !predicted {
            return None;
        }
        let allowed = all.into_iter().filter(|n| plan.is_none_or(|plan| plan.allows_size(*n)));
        // What does not fit on some nodes does not on fewer either.
        let least = unfit.last().map_or(0, |n| plan.map_or(n + 1, |plan| plan.may_fit_from(*n)));
        let fits = allowed.filter(|n| *n >= least && (!may_lack(n) || runs(n))).collect();
        Some(AllowedSizes::Set(fits))
    }

    /// In how far a job is known, for people.
    pub(super) fn knowledge_summary(&self, subject: &JobInput) -> String {
        let measured = self.profiles.points(&subject.key).len();
        match (measured, &subject.declared, self.similar_points(&subject.key)) {
            (0, Some(_), _) => "counts on the declared curve".to_owned(),
            (0, None, Some(_)) => "counts on what is known of similar programs".to_owned(),
            (0, None, None) => "knows nothing yet".to_owned(),
            (1, ..) => "knows 1 size".to_owned(),
            (n, ..) => format!("knows {n} sizes"),
        }
    }

    /// Everything that is known of a job's scaling under a key: measured, declared, and of programs alike.
    fn evidence_points(&self, subject: &JobInput, key: &ProfileKey) -> Vec<SizePoint> {
        let mut points: Vec<SizePoint> = self.profiles.normalized_points(key).collect();
        let declared = subject.declared.as_ref().filter(|_| is_first_plan(subject, key));
        let declared = declared.map(|curve| declared_points(curve, &subject.sizes));
        for more in declared.into_iter().chain(self.similar_points(key)) {
            let (factor, misfit) = unit_scale(&points, &more, subject.sizes.max());
            let missing: Vec<SizePoint> = more
                .into_iter()
                .filter(|m| points.iter().all(|p| p.nodes != m.nodes))
                .map(|m| SizePoint { rate: m.rate * factor, error: m.error.hypot(misfit), ..m })
                .collect();
            points.extend(missing);
        }
        points
    }

    /// Points of what is alike, each with what it is doubted by: of the same plan on another node type first,
    /// then of another user's program, then of another plan.
    fn similar_points(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        self.same_plan_points(key).or_else(|| self.other_plan_points(key))
    }

    fn same_plan_points(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        let alike = |p: &&Profile| {
            p.key.name == key.name
                && p.key.exec_plan == key.exec_plan
                && p.key != *key
                && !p.points.is_empty()
        };
        let updated = |p: &&Profile| p.updated_at;
        let doubted = |p: &Profile, factor: f64, error: f64| {
            self.profiles
                .normalized_points(&p.key)
                .map(|p: SizePoint| SizePoint { rate: p.rate * factor, error: p.error.hypot(error), ..p })
                .collect()
        };
        if let Some(own) = self.profiles.of_user(&key.user).filter(alike).max_by_key(updated) {
            return Some(doubted(
                own,
                self.rate_ratio(own, &key.node_type),
                self.ratio_error(own, &key.node_type),
            ));
        }
        let others = self.profiles.all_profiles().filter(|p| self.share_profiles && p.key.user != key.user);
        others.filter(alike).max_by_key(updated).map(|p| doubted(p, 1.0, OTHER_USER_ERROR))
    }

    /// The fastest that the program was seen to be with another plan at its smallest measured size, on the
    /// same type of nodes if possible: how fast it is says something of a plan, how it scales does not.
    fn other_plan_points(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        let own = self
            .profiles
            .of_user(&key.user)
            .filter(|p: &&Profile| p.key.name == key.name && p.key.exec_plan != key.exec_plan);
        let points = own.flat_map(|p| self.profiles.normalized_points(&p.key).map(move |point| (p, point)));
        let (profile, point) = points.min_by(|(p, a), (q, b)| {
            let elsewhere = |p: &Profile| p.key.node_type != key.node_type;
            elsewhere(p).cmp(&elsewhere(q)).then(a.nodes.cmp(&b.nodes)).then(b.rate.total_cmp(&a.rate))
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
    /// The signature that it has then.
    pub(super) key: ProfileKey,
    /// What is believed of its rates.
    pub(super) believed: BelievedScaling,
    /// The sizes that are worth a look, ascending, at least one.
    pub(super) sizes: Vec<u32>,
    /// The sizes at which it can run; `None` for all that the job may have.
    allowed: Option<AllowedSizes>,
}

impl WayToRun {
    /// What it is counted on to make though it was never tried: what is expected less its standard error.
    fn counted_rate(&self, estimate: SizeEstimate) -> f64 {
        estimate.rate * (1.0 - self.believed_error(estimate)).max(LEAST_COUNTED)
    }

    /// Its relative standard error then.
    fn believed_error(&self, estimate: SizeEstimate) -> f64 {
        match self.believed {
            BelievedScaling::Planned(_) | BelievedScaling::Alike(_) => estimate.error,
            // A curve knows how sure its slope is, and not its level.
            BelievedScaling::Fitted(_) => OTHER_PLAN_ERROR,
        }
    }
}

/// The smallest size of a profile that was measured; 1 where none was.
fn fewest_nodes(profile: &Profile) -> u32 {
    profile.points.iter().map(|p| p.nodes).min().unwrap_or(1)
}

/// How many GPUs a node of one type has for each of the other; 1 where they have none.
fn gpu_ratio(from: &NodeType, to: &NodeType) -> f64 {
    f64::from(to.gpus().max(1)) / f64::from(from.gpus().max(1))
}

/// Whether the key is of the job's first plan: what its owner declares is said of that.
fn is_first_plan(subject: &JobInput, key: &ProfileKey) -> bool {
    subject.plans.first().is_none_or(|first| first.name == key.exec_plan)
}

/// The curve over all sizes of interest.
fn curve_of_interest(fitted: &FittedCurve, sizes: &AllowedSizes) -> Option<ScalingCurve> {
    fitted.to_scaling_curve(&sizes_of_interest(sizes, fitted.points()))
}

/// What a declared curve says of the sizes that it names, within the allowed ones.
fn declared_points(curve: &ScalingCurve, sizes: &AllowedSizes) -> Vec<SizePoint> {
    let named = curve.points().iter().map(|p| p.nodes).filter(|n| !curve.is_default() && *n <= sizes.max());
    let point = |nodes| SizePoint {
        nodes,
        rate: curve.rate(nodes),
        error: DECLARED_ERROR,
        secs: 0.0,
        step_samples: None,
        hosts: None,
        spread: infill_model::Spread::Near,
        over_hosts: infill_model::Spread::Near,
        at: UnixTime::default(),
    };
    named.map(point).collect()
}

/// The factor that brings `other` to the level of what was measured, for it may count in another unit; and by
/// how much, relatively, it then still misses it.
fn unit_scale(measured: &[SizePoint], other: &[SizePoint], largest: u32) -> (f64, f64) {
    let fitted = FittedCurve::new(other, BatchMode::Auto, largest);
    let Some(fitted) = fitted.filter(|_| !measured.is_empty()) else { return (1.0, 0.0) };
    let n = measured.len() as f64;
    let logs: Vec<f64> = measured.iter().map(|p| (p.rate / fitted.estimate_at(p.nodes).rate).ln()).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let misfit = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean.exp(), misfit)
}
