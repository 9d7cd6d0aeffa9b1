//! The measurements of a site as observations of the Gaussian process, by program.

use std::collections::BTreeMap;

use super::super::gaussian_process::{
    GaussianProcess, NameInterner, RunInput, RunNames, RunObservation, run_covariance,
};
use super::super::predicted_rates::{PredictedRates, ProgramName, ProgramRates};
use super::super::profile_cache::ProfileCache;
use super::super::step_models::MIN_FIT_ERROR;
use infill_model::{NodeType, Profile, ProfileKey, UnixTime};

/// Most measurements of the site that are used: those of the programs that were measured last, and first of
/// all those of programs that ran on several types.
const MAX_ROWS: usize = 192;

/// Most measurements of one profile of another program.
const MAX_OF_PROFILE: usize = 4;

/// Most estimates of a program that count as measurements.
const MAX_ESTIMATES: usize = 24;

/// The relative error of such an estimate.
const ESTIMATE_ERROR: f64 = 0.25;

/// An estimate that is wrong by more than this factor counts in another unit (steps, tokens).
const OTHER_UNIT_FACTOR: f64 = 3.0;

/// GPUs of a number of nodes of a type. A node without GPUs counts as one.
pub(super) fn total_gpus(node_type: &NodeType, nodes: u32) -> u32 {
    nodes.saturating_mul(node_type.gpus().max(1)).max(1)
}

/// Logarithm of the GPU-seconds a sample.
fn log_gpu_secs(node_type: &NodeType, nodes: u32, rate: f64) -> f64 {
    (f64::from(total_gpus(node_type, nodes)) / rate).ln()
}

/// The names of a way to run. `shares`: whether names of all users' programs may be related.
pub(super) fn run_names<'a>(key: &'a ProfileKey, one: &'a NodeType, gpus: u32, shares: bool) -> RunNames<'a> {
    RunNames {
        scope: if shares { "" } else { &key.user },
        user: &key.user,
        program: &key.name,
        plan: &key.exec_plan.0,
        node_type: one.gpu_model().unwrap_or(one.as_str()),
        nodes: one.as_str(),
        gpus,
    }
}

/// The numbers of a way to run, which are created where they are new.
pub(super) fn run_input(names: &mut NameInterner, key: &ProfileKey, nodes: u32, shares: bool) -> RunInput {
    let (one, _) = key.node_type.single_place();
    names.intern_run(&run_names(key, &one, total_gpus(&key.node_type, nodes), shares))
}

/// A measurement, and the error of the estimate where there was one.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpeedMeasurement {
    row: RunInput,
    pub(super) log_secs: f64,
    /// Logarithm of the estimated rate over the measured one.
    estimate_error: Option<f64>,
    variance: f64,
}

/// The measurements of one program.
pub(super) fn program_measurements(
    names: &mut NameInterner,
    profiles: &ProfileCache,
    own: &[&Profile],
    estimated: Option<&ProgramRates>,
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
            let variance = p.error.max(MIN_FIT_ERROR).powi(2);
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
pub(super) fn estimates_as_measurements(
    names: &mut NameInterner,
    key: &ProfileKey,
    estimated: Option<&ProgramRates>,
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
pub(super) fn spread_evenly<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    let last = all.len().saturating_sub(1);
    (0..count).map(|i| all[i * last / count.saturating_sub(1).max(1)]).collect()
}

/// The mean of these numbers; 0 if there are none.
pub(super) fn mean_or_zero(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    sum / f64::from(count.max(1))
}

/// The differences between a program's measurements and their mean.
pub(super) fn centered_observations(
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
pub(super) fn estimate_errors(measured: &[SpeedMeasurement]) -> (Vec<RunObservation>, f64) {
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
pub(super) struct SiteMeasurements {
    /// The differences between each program's measurements and their mean.
    pub(super) differences: BTreeMap<ProgramName, Vec<RunObservation>>,
    /// The errors of each program's estimates.
    pub(super) errors: BTreeMap<ProgramName, Vec<RunObservation>>,
    /// The process over the differences of all programs.
    pub(super) process: Option<GaussianProcess>,
    pub(super) collected_at: Option<UnixTime>,
}

impl SiteMeasurements {
    pub(super) fn from_profiles(
        names: &mut NameInterner,
        profiles: &ProfileCache,
        estimates: &PredictedRates,
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
        let mut left = MAX_ROWS;
        for ((user, name), own) in programs {
            let name = (user.to_owned(), name.to_owned());
            let estimated = estimates.rates_of(&name);
            let mut of_program: Vec<SpeedMeasurement> = Vec::new();
            for profile in &own {
                let of_profile = program_measurements(names, profiles, &[profile], estimated, shares);
                of_program.extend(spread_evenly(&of_profile, MAX_OF_PROFILE));
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
