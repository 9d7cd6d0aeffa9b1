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

use std::collections::BTreeMap;

use super::gaussian_process::{
    GaussianProcess, NameInterner, RunInput, RunNames, RunObservation, covariance_of_errors,
    prior_covariance, run_covariance,
};
use super::job_input::JobInput;
use super::plan_curve::PlanCurve;
use super::profile_cache::ProfileCache;
use super::rate_estimates::{EstimatedRates, ProgramName, RateEstimates, program_name};
use super::scaling::sizes_of_interest;
use super::step_models::LEAST_ERROR;
use infill_model::{ExecPlan, NodeType, Profile, ProfileKey, SizePoint, UnixTime};
use program_speed_model::ProgramSpeedModel;

/// Most measurements of the site that are used: those of the programs that were measured last, and first of
/// all those of programs that ran on several types.
const MOST_ROWS: usize = 192;

/// Most measurements of one profile of another program.
const MOST_OF_PROFILE: usize = 4;

/// Most measurements of the job's own program.
const MOST_OWN: usize = 96;

/// Curves after which a round computes those of no further program. Each takes some milliseconds.
const MOST_CURVES: usize = 16;

/// Seconds after which the curves of a program are computed again when known rates have changed. Rates that
/// are not known yet count at once.
const REMAKE_SECS: f64 = 30.0;

/// Seconds after which the measurements of the whole site are collected again.
const SITE_SECS: f64 = 60.0;

/// Most estimates of a program that count as measurements.
const MAX_ESTIMATES: usize = 24;

/// The relative error of such an estimate.
const ESTIMATE_ERROR: f64 = 0.25;

/// An estimate that is wrong by more than this factor counts in another unit (steps, tokens).
const OTHER_UNIT_FACTOR: f64 = 3.0;

/// The logarithm of the ratio of a program's rates on two types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogRatio {
    /// Its mean.
    pub(super) mean: f64,
    /// Its standard deviation, for a program that is not measured on one of the types.
    pub(super) sd: f64,
}

/// GPUs of a number of nodes of a type. A node without GPUs counts as one.
fn total_gpus(node_type: &NodeType, nodes: u32) -> u32 {
    nodes.saturating_mul(node_type.gpus().max(1)).max(1)
}

/// Logarithm of the GPU-seconds a sample.
fn log_gpu_secs(node_type: &NodeType, nodes: u32, rate: f64) -> f64 {
    (f64::from(total_gpus(node_type, nodes)) / rate).ln()
}

/// The names of a way to run. `shares`: whether names of all users' programs may be related.
fn run_names<'a>(key: &'a ProfileKey, one: &'a NodeType, gpus: u32, shares: bool) -> RunNames<'a> {
    RunNames {
        scope: if shares { "" } else { &key.user },
        user: &key.user,
        program: &key.name,
        plan: &key.exec_plan.0,
        node_type: one.gpu_make().unwrap_or(one.as_str()),
        nodes: one.as_str(),
        gpus,
    }
}

/// The numbers of a way to run, which are created where they are new.
fn run_input(names: &mut NameInterner, key: &ProfileKey, nodes: u32, shares: bool) -> RunInput {
    let (one, _) = key.node_type.single_place();
    names.intern_run(&run_names(key, &one, total_gpus(&key.node_type, nodes), shares))
}

/// A measurement, and the error of the estimate where there was one.
#[derive(Clone, Copy, Debug)]
struct SpeedMeasurement {
    row: RunInput,
    log_secs: f64,
    /// Logarithm of the estimated rate over the measured one.
    estimate_error: Option<f64>,
    variance: f64,
}

/// The measurements of one program.
fn program_measurements(
    names: &mut NameInterner,
    profiles: &ProfileCache,
    own: &[&Profile],
    estimated: Option<&EstimatedRates>,
    shares: bool,
) -> Vec<SpeedMeasurement> {
    let mut found = Vec::new();
    for profile in own {
        let key = &profile.key;
        for p in profiles.normalized_points(key) {
            let log_secs = log_gpu_secs(&key.node_type, p.nodes, p.rate);
            let way = (key.exec_plan.clone(), key.node_type.clone(), p.nodes);
            let estimate = estimated.and_then(|rates| rates.get(&way));
            let estimate_error = estimate.map(|rate| (rate / p.rate).ln());
            let variance = p.error.max(LEAST_ERROR).powi(2);
            if log_secs.is_finite() && variance.is_finite() {
                found.push(SpeedMeasurement {
                    row: run_input(names, key, p.nodes, shares),
                    log_secs,
                    estimate_error,
                    variance,
                });
            }
        }
    }
    found
}

/// The estimates of a program, each as a vague measurement.
fn estimates_as_measurements(
    names: &mut NameInterner,
    key: &ProfileKey,
    estimated: Option<&EstimatedRates>,
    shares: bool,
) -> Vec<SpeedMeasurement> {
    let mut all = Vec::new();
    for ((exec_plan, node_type, nodes), rate) in estimated.into_iter().flatten() {
        let key = ProfileKey { exec_plan: exec_plan.clone(), node_type: node_type.clone(), ..key.clone() };
        let row = run_input(names, &key, *nodes, shares);
        let log_secs = log_gpu_secs(node_type, *nodes, *rate);
        all.push(SpeedMeasurement { row, log_secs, estimate_error: None, variance: ESTIMATE_ERROR.powi(2) });
    }
    spread_evenly(&all, MAX_ESTIMATES)
}

/// At most `most` of these items, spread evenly.
fn spread_evenly<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    let last = all.len().saturating_sub(1);
    (0..count).map(|i| all[i * last / count.saturating_sub(1).max(1)]).collect()
}

/// The mean of these numbers; 0 if there are none.
fn mean_or_zero(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    sum / f64::from(count.max(1))
}

/// The differences between a program's measurements and their mean.
fn centered_observations(
    measured: &[SpeedMeasurement],
    mean_log: f64,
) -> impl Iterator<Item = RunObservation> + '_ {
    measured.iter().map(move |s| RunObservation {
        row: s.row,
        value: s.log_secs - mean_log,
        variance: s.variance,
    })
}

/// The errors of a program's estimates, without the unit that they count in; and the logarithm of that unit.
fn estimate_errors(measured: &[SpeedMeasurement]) -> (Vec<RunObservation>, f64) {
    let mean_error = mean_or_zero(measured.iter().filter_map(|s| s.estimate_error));
    let unit = if mean_error.abs() > OTHER_UNIT_FACTOR.ln() { mean_error } else { 0.0 };
    let mut errors = Vec::new();
    for SpeedMeasurement { row, estimate_error, variance, .. } in measured {
        let value = estimate_error.map(|error| error - unit);
        errors.extend(value.map(|value| RunObservation { row: *row, value, variance: *variance }));
    }
    (errors, unit)
}

/// The measurements of the site, by program.
#[derive(Clone, Debug, Default)]
struct SiteMeasurements {
    /// The differences between each program's measurements and their mean.
    differences: BTreeMap<ProgramName, Vec<RunObservation>>,
    /// The errors of each program's estimates.
    errors: BTreeMap<ProgramName, Vec<RunObservation>>,
    /// The process over the differences of all programs.
    process: Option<GaussianProcess>,
    collected_at: Option<UnixTime>,
}

impl SiteMeasurements {
    fn from_profiles(
        names: &mut NameInterner,
        profiles: &ProfileCache,
        estimates: &RateEstimates,
        shares: bool,
        now: UnixTime,
    ) -> SiteMeasurements {
        let mut measurements = SiteMeasurements { collected_at: Some(now), ..SiteMeasurements::default() };
        let mut types = profiles.all_profiles().map(|p| &p.key.node_type);
        let first = types.next();
        if types.all(|other| Some(other) == first) {
            return measurements;
        }
        let mut programs: BTreeMap<(&str, &str), Vec<&Profile>> = BTreeMap::new();
        for profile in profiles.all_profiles().filter(|p| !p.points.is_empty()) {
            programs.entry((&profile.key.user, &profile.key.name)).or_default().push(profile);
        }
        let mut programs: Vec<_> = programs.into_iter().collect();
        // Programs that ran on several types come first, then those that changed last.
        programs.sort_by_key(|(_, own)| {
            let is_on_one_type = own.iter().all(|p| p.key.node_type == own[0].key.node_type);
            (is_on_one_type, std::cmp::Reverse(own.iter().map(|p| p.updated_at).max()))
        });
        let mut left = MOST_ROWS;
        for ((user, name), own) in programs {
            let name = (user.to_owned(), name.to_owned());
            let estimated = estimates.rates_of(&name);
            let mut of_program: Vec<SpeedMeasurement> = Vec::new();
            for profile in &own {
                let of_profile = program_measurements(names, profiles, &[profile], estimated, shares);
                of_program.extend(spread_evenly(&of_profile, MOST_OF_PROFILE));
            }
            // A single measurement says nothing about other programs, except how wrong its estimate was.
            let is_useful = of_program.len() > 1 || of_program.iter().any(|s| s.estimate_error.is_some());
            if !is_useful || of_program.len() > left {
                continue;
            }
            left -= of_program.len();
            let mean_log = mean_or_zero(of_program.iter().map(|s| s.log_secs));
            measurements.errors.insert(name.clone(), estimate_errors(&of_program).0);
            measurements.differences.insert(name, centered_observations(&of_program, mean_log).collect());
        }
        let all: Vec<RunObservation> = measurements.differences.values().flatten().copied().collect();
        measurements.process = GaussianProcess::new(&all, run_covariance);
        measurements
    }
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
    pub(super) estimates: RateEstimates,
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
            if curves_made >= MOST_CURVES {
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
        let own = spread_evenly(&own, MOST_OWN);
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
    estimated: Option<&EstimatedRates>,
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
