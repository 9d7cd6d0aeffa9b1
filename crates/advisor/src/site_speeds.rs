//! How fast programs are on types of nodes where they never ran, by all measurements of the site. The model
//! is a Gaussian process over programs, types and sizes ([`super::gaussian_process`]), for jobs with and
//! without execution plans.
//!
//! Ratios reveal no program: from other programs only the differences between their own measurements count,
//! against their mean. Neither their names nor their speed is used. Similar names tell which programs are
//! related, among one user's programs, or among all where profiles are shared.
//!
//! Where programs were estimated beforehand, the model learns how wrong estimates are, over all programs.
//! Until a program has run, its estimates are believed with that uncertainty.

mod program_speed_model;
mod site_measurements;

use std::collections::BTreeMap;

use super::gaussian_process::{
    GaussianProcess, NameInterner, RunInput, RunObservation, covariance_of_errors, prior_covariance,
    run_covariance,
};
use super::job_input::JobInput;
use super::plan_curve::PlanCurve;
use super::predicted_rates::{PredictedRates, ProgramName, ProgramRates, program_name};
use super::profile_cache::ProfileCache;
use super::scaling::sizes_of_interest;
use infill_model::{ExecPlan, NodeType, Profile, ProfileKey, SizePoint, UnixTime};
use program_speed_model::ProgramSpeedModel;
use site_measurements::{
    SiteMeasurements, centered_observations, estimate_errors, estimates_as_measurements, mean_or_zero,
    program_measurements, run_input, run_names, spread_evenly, total_gpus,
};

/// Most measurements of the job's own program.
const MAX_OWN: usize = 96;

/// Curves after which a round computes those of no further program. Each takes some milliseconds.
const MAX_CURVES: usize = 16;

/// Seconds after which the curves of a program are computed again when known rates have changed. Rates that
/// are not known yet count at once.
const REMAKE_SECS: f64 = 30.0;

/// Seconds after which the measurements of the whole site are collected again.
const SITE_SECS: f64 = 60.0;

/// The logarithm of the ratio of a program's rates on two types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogRatio {
    /// Its mean.
    pub(super) mean: f64,
    /// Its standard deviation, for a program that is not measured on one of the types.
    pub(super) sd: f64,
}

/// The inputs of a program's curves. They are computed again when these change.
#[derive(Clone, Debug, PartialEq)]
struct CurveBasis {
    plans: Vec<ExecPlan>,
    points: usize,
    types: Vec<NodeType>,
    estimates: u64,
}

/// Curves that the jobs of a round ask for.
struct CurveRequest<'a> {
    input: &'a JobInput,
    basis: CurveBasis,
    /// When a profile of the program last changed.
    updated_at: UnixTime,
}

/// The curves of one program.
#[derive(Clone, Debug)]
struct ProgramCurves {
    basis: CurveBasis,
    made_at: UnixTime,
    updated_at: UnixTime,
    curves: BTreeMap<(ExecPlan, NodeType), PlanCurve>,
}

impl ProgramCurves {
    /// Whether the curves are to be computed again. `collected_at`: when the site's measurements were
    /// collected.
    fn is_due(&self, request: &CurveRequest<'_>, collected_at: Option<UnixTime>, now: UnixTime) -> bool {
        let is_old = now.age_of(self.made_at) >= REMAKE_SECS;
        let has_news = self.updated_at != request.updated_at || collected_at > Some(self.made_at);
        self.basis != request.basis || (is_old && has_news)
    }
}

/// The rates of programs on types where they never ran, and where they are estimated.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteSpeeds {
    names: NameInterner,
    measurements: SiteMeasurements,
    pub(super) estimates: PredictedRates,
    programs: BTreeMap<ProgramName, ProgramCurves>,
    /// Whether the names of all users' programs may be related.
    shares: bool,
}

impl SiteSpeeds {
    /// Collects the site's measurements if it is time to, and computes the curves of these jobs' programs.
    /// `types`: the types of available nodes.
    pub(super) fn update_curves(
        &mut self,
        inputs: &[JobInput],
        profiles: &ProfileCache,
        types: &[NodeType],
        shares: bool,
        now: UnixTime,
    ) {
        self.shares = shares;
        if self.measurements.collected_at.is_none_or(|at| now.age_of(at) >= SITE_SECS) {
            self.names = NameInterner::default();
            self.measurements =
                SiteMeasurements::from_profiles(&mut self.names, profiles, &self.estimates, shares, now);
        }
        let mut wanted = BTreeMap::new();
        for input in inputs {
            if let Some(request) = self.curve_request(input, profiles, types) {
                wanted.entry(program_name(&input.key)).or_insert(request);
            }
        }
        self.programs.retain(|name, _| wanted.contains_key(name));
        let collected_at = self.measurements.collected_at;
        let mut due: Vec<(ProgramName, CurveRequest<'_>)> = wanted
            .into_iter()
            .filter(|(name, request)| {
                self.programs.get(name).is_none_or(|curves| curves.is_due(request, collected_at, now))
            })
            .collect();
        due.sort_by_key(|(name, _)| self.programs.get(name).map(|curves| curves.made_at));
        let mut curves_made = 0;
        for (name, CurveRequest { input, basis, updated_at }) in due {
            if curves_made >= MAX_CURVES {
                break;
            }
            let curves = self.make_curves(input, profiles, &basis);
            curves_made += curves.len();
            self.programs.insert(name, ProgramCurves { basis, made_at: now, updated_at, curves });
        }
    }

    /// The curves that a job asks for; `None` where they could say no more than the program's profiles do.
    /// This is so if the program was neither estimated nor measured, or if it was not estimated and there is
    /// only one type.
    fn curve_request<'a>(
        &self,
        input: &'a JobInput,
        profiles: &ProfileCache,
        types: &[NodeType],
    ) -> Option<CurveRequest<'a>> {
        let name = program_name(&input.key);
        let key = &input.key;
        let own = profiles.of_program(key).filter(|p| !p.points.is_empty());
        let (_, width) = key.node_type.single_place();
        let at_hand = types
            .iter()
            .map(|t| if t.single_place().1 == 1 { t.clone().with_place_count(width) } else { t.clone() });
        let mut all = vec![key.node_type.clone()];
        for node_type in own.clone().map(|p| p.key.node_type.clone()).chain(at_hand) {
            if node_type.has_gpus() == key.node_type.has_gpus() && !all.contains(&node_type) {
                all.push(node_type);
            }
        }
        let plans = if input.plans.is_empty() {
            vec![key.exec_plan.clone()]
        } else {
            input.plans.iter().map(|plan| plan.name.clone()).collect()
        };
        let is_estimated = self.estimates.rates_of(&name).is_some();
        let points = own.clone().map(|p| p.points.len()).sum();
        let updated_at = own.map(|p| p.updated_at).max();
        let is_useful = is_estimated || (updated_at.is_some() && all.len() > 1);
        let basis =
            CurveBasis { plans, points, types: all, estimates: self.estimates.program_version(&name) };
        is_useful.then(|| CurveRequest { input, basis, updated_at: updated_at.unwrap_or_default() })
    }

    /// The curves of the plans and types for which the site's measurements say more than the program's own,
    /// at the sizes of this job.
    fn make_curves(
        &mut self,
        input: &JobInput,
        profiles: &ProfileCache,
        basis: &CurveBasis,
    ) -> BTreeMap<(ExecPlan, NodeType), PlanCurve> {
        let name = program_name(&input.key);
        let shares = self.shares;
        let estimated = self.estimates.rates_of(&name);
        let own: Vec<&Profile> = profiles.of_program(&input.key).collect();
        let keys: Vec<ProfileKey> = keys_to_estimate(input, &own, estimated, basis);
        if keys.is_empty() {
            return BTreeMap::new();
        }
        let own = program_measurements(&mut self.names, profiles, &own, estimated, shares);
        let own = spread_evenly(&own, MAX_OWN);
        // Before anything is measured, estimates say how fast the program is on types without an estimate.
        let known = if own.is_empty() {
            estimates_as_measurements(&mut self.names, &input.key, estimated, shares)
        } else {
            own.clone()
        };
        let mean_log = mean_or_zero(known.iter().map(|s| s.log_secs));
        let mut observations = observations_of_others(&self.measurements.differences, &name);
        observations.extend(centered_observations(&known, mean_log));
        let rates = if known.is_empty() { None } else { GaussianProcess::new(&observations, run_covariance) };
        let (own_errors, unit) = estimate_errors(&own);
        let errors = estimated.and_then(|_| {
            let mut all = observations_of_others(&self.measurements.errors, &name);
            all.extend(own_errors);
            GaussianProcess::new(&all, covariance_of_errors)
        });
        let model = ProgramSpeedModel { rates, mean_log, errors, unit, estimated };
        let mut curves = BTreeMap::new();
        for key in keys {
            let points: Vec<SizePoint> = profiles.normalized_points(&key).collect();
            let sizes = sizes_of_interest(&input.sizes, &points);
            if let Some(curve) = model.predict_curve(&mut self.names, &key, &sizes, points, shares) {
                curves.insert((key.exec_plan, key.node_type), curve);
            }
        }
        curves
    }

    /// The curve of a job with the plan and on the type of a key, at these sizes; `None` where there is none.
    pub(super) fn known_curve(
        &self,
        key: &ProfileKey,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let program = self.programs.get(&program_name(key))?;
        let curve = program.curves.get(&(key.exec_plan.clone(), key.node_type.clone()))?;
        sizes.iter().any(|n| curve.has_size(*n)).then(|| curve.with_points(points))
    }

    /// Whether the plan of a key was estimated on any type.
    pub(super) fn is_estimated(&self, key: &ProfileKey) -> bool {
        self.estimates
            .rates_of(&program_name(key))
            .is_some_and(|rates| rates.keys().any(|(plan, ..)| *plan == key.exec_plan))
    }

    /// The ratio of a program's rates: on the GPUs of a number of nodes of its key's type, and on as many
    /// GPUs of another type. It follows from all measurements of the site.
    pub(super) fn log_ratio(&self, from: &ProfileKey, to: &NodeType, nodes: u32) -> LogRatio {
        if from.node_type == *to {
            return LogRatio { mean: 0.0, sd: 0.0 };
        }
        let rows = self.ratio_inputs(from, to, nodes);
        let remaining = match &self.measurements.process {
            Some(process) => process.posterior_covariance(&rows),
            None => prior_covariance(&rows, run_covariance),
        };
        let variance = remaining[(0, 0)] + remaining[(1, 1)] - 2.0 * remaining[(0, 1)];
        LogRatio { mean: self.posterior_log_ratio(&rows), sd: variance.max(0.0).sqrt() }
    }

    /// The mean of [`Self::log_ratio`] alone, which is much faster to compute.
    pub(super) fn mean_log_ratio(&self, from: &ProfileKey, to: &NodeType, nodes: u32) -> f64 {
        if from.node_type == *to {
            0.0
        } else {
            self.posterior_log_ratio(&self.ratio_inputs(from, to, nodes))
        }
    }

    /// The rows of the same number of GPUs of both types.
    fn ratio_inputs(&self, from: &ProfileKey, to: &NodeType, nodes: u32) -> [RunInput; 2] {
        let gpus = total_gpus(&from.node_type, nodes);
        let one = [from.node_type.single_place().0, to.single_place().0];
        [0, 1].map(|i| self.names.find_run(&run_names(from, &one[i], gpus, self.shares), i))
    }

    fn posterior_log_ratio(&self, rows: &[RunInput; 2]) -> f64 {
        let means = self.measurements.process.as_ref().map(|process| process.posterior_means(rows));
        means.map_or(0.0, |means| means[0] - means[1])
    }
}

/// The observations of all programs except the named one.
fn observations_of_others(
    all: &BTreeMap<ProgramName, Vec<RunObservation>>,
    name: &ProgramName,
) -> Vec<RunObservation> {
    all.iter().filter(|(other, _)| *other != name).flat_map(|(_, own)| own).copied().collect()
}
/// The plans and types for which the site may know more than the program's own measurements. At most one size
/// was measured there, and the plan ran on another type or was estimated. Where all plans declare their
/// parallelism and something was measured, the model of all plans covers the other types.
fn keys_to_estimate(
    input: &JobInput,
    own: &[&Profile],
    estimated: Option<&ProgramRates>,
    basis: &CurveBasis,
) -> Vec<ProfileKey> {
    let all_have_strategy = !input.plans.is_empty() && input.plans.iter().all(|plan| plan.strategy.is_some());
    let is_modelled = all_have_strategy && basis.points > 0;
    let mut keys = Vec::new();
    for plan in &basis.plans {
        let measured: Vec<&Profile> = own.iter().copied().filter(|p| p.key.exec_plan == *plan).collect();
        let is_estimated = estimated.is_some_and(|rates| rates.keys().any(|(other, ..)| other == plan));
        for node_type in &basis.types {
            let (here, elsewhere): (Vec<&Profile>, Vec<&Profile>) =
                measured.iter().partition(|p| p.key.node_type == *node_type);
            let points_here: usize = here.iter().map(|p| p.points.len()).sum();
            let ran_elsewhere = elsewhere.iter().any(|p| !p.points.is_empty());
            if points_here < 2 && (is_estimated || (ran_elsewhere && !is_modelled)) {
                let exec_plan = plan.clone();
                let node_type = node_type.clone();
                keys.push(ProfileKey { node_type, exec_plan, ..input.key.clone() });
            }
        }
    }
    keys
}
