//! How fast programs are on types of nodes where they never ran, by all that the site has measured: a
//! Gaussian process over programs, types and sizes ([`super::gaussian_process`]), for jobs with and without
//! execution plans.
//!
//! Ratios name nobody: of each program but one's own only the differences between its own measurements count,
//! against their mean, and neither its name nor how fast it is. Names tell of kin among the programs of one
//! user, or of all where profiles are shared.
//!
//! Where a program was estimated beforehand, what is learned is how wrong estimates are, of all programs.
//! Until it has run, its estimates are believed with that doubt.

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

/// Most measurements of the site that are looked at: those of the programs that were measured last, first of
/// those that ran on several types.
const MOST_ROWS: usize = 192;

/// Most of one profile of another program.
const MOST_OF_PROFILE: usize = 4;

/// Most of one's own program.
const MOST_OWN: usize = 96;

/// Curves after which a round looks at no further program: each takes some milliseconds.
const MOST_CURVES: usize = 16;

/// Seconds after which a program is looked at again when rates have changed that are known of it; what is not
/// known yet counts at once.
const REMAKE_SECS: f64 = 30.0;

/// Seconds after which all of the site is looked at again.
const SITE_SECS: f64 = 60.0;

/// Most estimates that tell of other types, and how wrong each is.
const MAX_ESTIMATES: usize = 24;
const ESTIMATE_ERROR: f64 = 0.25;

/// By more than a factor of that no estimate is wrong, but counts in another unit (steps, tokens).
const OTHER_UNIT_FACTOR: f64 = 3.0;

/// How a program's rates on two types compare: the logarithm of their ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogRatio {
    /// Its mean.
    pub(super) mean: f64,
    /// Its standard deviation, for a program of which nothing is known on one of them.
    pub(super) sd: f64,
}

/// GPUs, or nodes without any, of so many nodes of a type.
fn total_gpus(node_type: &NodeType, nodes: u32) -> u32 {
    nodes.saturating_mul(node_type.gpus().max(1)).max(1)
}

/// Logarithm of the GPU-seconds of a sample.
fn log_gpu_secs(node_type: &NodeType, nodes: u32, rate: f64) -> f64 {
    (f64::from(total_gpus(node_type, nodes)) / rate).ln()
}

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

fn run_input(register: &mut NameInterner, key: &ProfileKey, nodes: u32, shares: bool) -> RunInput {
    let (one, _) = key.node_type.single_place();
    register.intern_run(&run_names(key, &one, total_gpus(&key.node_type, nodes), shares))
}

/// A measurement, and by how much the estimate of it was wrong if there was one.
#[derive(Clone, Copy, Debug)]
struct SpeedMeasurement {
    row: RunInput,
    log_secs: f64,
    wrong: Option<f64>,
    variance: f64,
}

/// What was measured of one program.
fn program_measurements(
    register: &mut NameInterner,
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
            let estimate = estimated.and_then(|known| known.get(&way));
            let wrong = estimate.map(|rate| (rate / p.rate).ln());
            let variance = p.error.max(LEAST_ERROR).powi(2);
            if log_secs.is_finite() && variance.is_finite() {
                found.push(SpeedMeasurement {
                    row: run_input(register, key, p.nodes, shares),
                    log_secs,
                    wrong,
                    variance,
                });
            }
        }
    }
    found
}

/// A program as it was estimated, each estimate as a vague measurement.
fn estimates_as_measurements(
    register: &mut NameInterner,
    key: &ProfileKey,
    estimated: Option<&EstimatedRates>,
    shares: bool,
) -> Vec<SpeedMeasurement> {
    let mut all = Vec::new();
    for ((exec_plan, node_type, nodes), rate) in estimated.into_iter().flatten() {
        let key = ProfileKey { exec_plan: exec_plan.clone(), node_type: node_type.clone(), ..key.clone() };
        let row = run_input(register, &key, *nodes, shares);
        let log_secs = log_gpu_secs(node_type, *nodes, *rate);
        all.push(SpeedMeasurement { row, log_secs, wrong: None, variance: ESTIMATE_ERROR.powi(2) });
    }
    spread_evenly(&all, MAX_ESTIMATES)
}

/// At most so many of them, spread evenly.
fn spread_evenly<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    let at = |i: usize| i * all.len().saturating_sub(1) / count.saturating_sub(1).max(1);
    (0..count).map(|i| all[at(i)]).collect()
}

/// The mean of numbers; 0 of none.
fn mean_or_zero(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    sum / f64::from(count.max(1))
}

/// The differences between a program's measurements.
fn centered_observations(
    seen: &[SpeedMeasurement],
    middle: f64,
) -> impl Iterator<Item = RunObservation> + '_ {
    seen.iter().map(move |s| RunObservation { row: s.row, value: s.log_secs - middle, variance: s.variance })
}

/// How wrong a program's estimates are, but for the unit that they count in; and that unit.
fn estimate_errors(seen: &[SpeedMeasurement]) -> (Vec<RunObservation>, f64) {
    let all = || seen.iter().filter_map(|s| s.wrong);
    let middle = mean_or_zero(all());
    let unit = if middle.abs() > OTHER_UNIT_FACTOR.ln() { middle } else { 0.0 };
    (
        seen.iter()
            .filter_map(|s: &SpeedMeasurement| {
                Some(RunObservation { row: s.row, value: s.wrong? - unit, variance: s.variance })
            })
            .collect(),
        unit,
    )
}

/// What the site has measured, program by program.
#[derive(Clone, Debug, Default)]
struct SiteMeasurements {
    /// The differences between each program's measurements.
    differences: BTreeMap<ProgramName, Vec<RunObservation>>,
    wrongs: BTreeMap<ProgramName, Vec<RunObservation>>,
    /// Of all of them.
    process: Option<GaussianProcess>,
    seen_at: Option<UnixTime>,
}

impl SiteMeasurements {
    fn from_profiles(
        register: &mut NameInterner,
        profiles: &ProfileCache,
        estimates: &RateEstimates,
        shares: bool,
        now: UnixTime,
    ) -> SiteMeasurements {
        let mut site = SiteMeasurements { seen_at: Some(now), ..SiteMeasurements::default() };
        let mut types = profiles.all_profiles().map(|p| &p.key.node_type);
        let first = types.next();
        if types.all(|other| Some(other) == first) {
            return site;
        }
        let mut programs: BTreeMap<(&str, &str), Vec<&Profile>> = BTreeMap::new();
        for profile in profiles.all_profiles().filter(|p| !p.points.is_empty()) {
            programs.entry((&profile.key.user, &profile.key.name)).or_default().push(profile);
        }
        let mut programs: Vec<_> = programs.into_iter().collect();
        programs.sort_by_key(|(_, own)| {
            let on_one = own.iter().all(|p| p.key.node_type == own[0].key.node_type);
            (on_one, std::cmp::Reverse(own.iter().map(|p| p.updated_at).max()))
        });
        let mut left = MOST_ROWS;
        for ((user, name), own) in programs {
            let name = (user.to_owned(), name.to_owned());
            let estimated = estimates.rates_of(&name);
            let of_program: Vec<SpeedMeasurement> = own
                .iter()
                .flat_map(|p: &&Profile| {
                    let of_it = program_measurements(register, profiles, &[p], estimated, shares);
                    spread_evenly(&of_it, MOST_OF_PROFILE)
                })
                .collect();
            // One measurement says nothing of others, but for how wrong its estimate was.
            let says = of_program.len() > 1 || of_program.iter().any(|s| s.wrong.is_some());
            if !says || of_program.len() > left {
                continue;
            }
            left -= of_program.len();
            let middle = mean_or_zero(of_program.iter().map(|s| s.log_secs));
            site.wrongs.insert(name.clone(), estimate_errors(&of_program).0);
            site.differences.insert(name, centered_observations(&of_program, middle).collect());
        }
        let all: Vec<RunObservation> = site.differences.values().flatten().copied().collect();
        site.process = GaussianProcess::new(&all, run_covariance);
        site
    }
}

/// What is made of one program: it is made anew when that changes.
#[derive(Clone, Debug, PartialEq)]
struct CurveBasis {
    plans: Vec<ExecPlan>,
    points: usize,
    types: Vec<NodeType>,
    estimates: u64,
}

/// One program's.
#[derive(Clone, Debug)]
struct ProgramCurves {
    made: CurveBasis,
    made_at: UnixTime,
    updated_at: UnixTime,
    curves: BTreeMap<(ExecPlan, NodeType), PlanCurve>,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteSpeeds {
    register: NameInterner,
    site: SiteMeasurements,
    pub(super) estimates: RateEstimates,
    known: BTreeMap<ProgramName, ProgramCurves>,
    /// Whether names tell of kin among all users' programs.
    shares: bool,
}

impl SiteSpeeds {
    /// Looks at the site if it is time to, and at the programs of these jobs. `types`: those of nodes at
    /// hand.
    pub(super) fn update_curves(
        &mut self,
        subjects: &[JobInput],
        profiles: &ProfileCache,
        types: &[NodeType],
        shares: bool,
        now: UnixTime,
    ) {
        self.shares = shares;
        if self.site.seen_at.is_none_or(|at| now.age_of(at) >= SITE_SECS) {
            self.register = NameInterner::default();
            self.site =
                SiteMeasurements::from_profiles(&mut self.register, profiles, &self.estimates, shares, now);
        }
        let mut wanted = BTreeMap::new();
        for subject in subjects {
            if let Some(made) = self.curve_basis(subject, profiles, types) {
                wanted.entry(program_name(&subject.key)).or_insert((subject, made));
            }
        }
        self.known.retain(|name, _| wanted.contains_key(name));
        let is_due = |(name, (_, (made, updated_at))): &(_, (_, (CurveBasis, UnixTime)))| {
            let old = |known: &ProgramCurves| now.age_of(known.made_at) >= REMAKE_SECS;
            let new = |known: &ProgramCurves| {
                known.updated_at != *updated_at || self.site.seen_at > Some(known.made_at)
            };
            self.known.get(name).is_none_or(|known| known.made != *made || (old(known) && new(known)))
        };
        let mut due: Vec<_> = wanted.into_iter().filter(is_due).collect();
        due.sort_by_key(|(name, _)| self.known.get(name).map(|known| known.made_at));
        let mut curves_made = 0;
        for (name, (subject, (made, updated_at))) in due {
            if curves_made >= MOST_CURVES {
                break;
            }
            let curves = self.make_curves(subject, profiles, &made);
            curves_made += curves.len();
            self.known.insert(name, ProgramCurves { made, made_at: now, updated_at, curves });
        }
    }

    /// What is to be made of a job's program, and when that last changed; `None` where nothing could tell
    /// more than its profiles do: it was neither estimated nor measured, or there is but one type.
    fn curve_basis(
        &self,
        subject: &JobInput,
        profiles: &ProfileCache,
        types: &[NodeType],
    ) -> Option<(CurveBasis, UnixTime)> {
        let name = program_name(&subject.key);
        let key = &subject.key;
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
        let plans = match subject.plans.is_empty() {
            true => vec![key.exec_plan.clone()],
            false => subject.plans.iter().map(|plan| plan.name.clone()).collect(),
        };
        let estimated = self.estimates.rates_of(&name).is_some();
        let points = own.clone().map(|p| p.points.len()).sum();
        let updated_at = own.map(|p| p.updated_at).max();
        let tells = estimated || (updated_at.is_some() && all.len() > 1);
        let made = CurveBasis { plans, points, types: all, estimates: self.estimates.program_version(&name) };
        tells.then(|| (made, updated_at.unwrap_or_default()))
    }

    /// What is believed of the plans and types of which the site tells more than the program's own
    /// measurements, at the sizes of this job.
    fn make_curves(
        &mut self,
        subject: &JobInput,
        profiles: &ProfileCache,
        made: &CurveBasis,
    ) -> BTreeMap<(ExecPlan, NodeType), PlanCurve> {
        let name = program_name(&subject.key);
        let shares = self.shares;
        let estimated = self.estimates.rates_of(&name);
        let own: Vec<&Profile> = profiles.of_program(&subject.key).collect();
        let keys: Vec<ProfileKey> = keys_to_estimate(subject, &own, estimated, made);
        if keys.is_empty() {
            return BTreeMap::new();
        }
        let own = program_measurements(&mut self.register, profiles, &own, estimated, shares);
        let own = spread_evenly(&own, MOST_OWN);
        let of_others = |all: &BTreeMap<ProgramName, Vec<RunObservation>>| -> Vec<RunObservation> {
            all.iter().filter(|(other, _)| **other != name).flat_map(|(_, o)| o).copied().collect()
        };
        // Before anything was measured estimates tell how fast it is on types of which there are none.
        let told = if own.is_empty() {
            estimates_as_measurements(&mut self.register, &subject.key, estimated, shares)
        } else {
            own.clone()
        };
        let middle = mean_or_zero(told.iter().map(|s| s.log_secs));
        let mut all = of_others(&self.site.differences);
        all.extend(centered_observations(&told, middle));
        let plain = if told.is_empty() { None } else { GaussianProcess::new(&all, run_covariance) };
        let (own_wrongs, unit) = estimate_errors(&own);
        let wrong = estimated.and_then(|_| {
            let mut all = of_others(&self.site.wrongs);
            all.extend(own_wrongs);
            GaussianProcess::new(&all, covariance_of_errors)
        });
        let known = ProgramSpeedModel { plain, middle, wrong, unit, estimated };
        let mut curves = BTreeMap::new();
        for key in keys {
            let points: Vec<SizePoint> = profiles.normalized_points(&key).collect();
            let sizes = sizes_of_interest(&subject.sizes, &points);
            if let Some(curve) = known.predict_curve(&mut self.register, &key, &sizes, points, shares) {
                curves.insert((key.exec_plan, key.node_type), curve);
            }
        }
        curves
    }

    /// What is believed of a job with the plan and on the type of a key, at these sizes; `None` where nothing
    /// tells.
    pub(super) fn known_curve(
        &self,
        key: &ProfileKey,
        sizes: &[u32],
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let program = self.known.get(&program_name(key))?;
        let curve = program.curves.get(&(key.exec_plan.clone(), key.node_type.clone()))?;
        sizes.iter().any(|n| curve.has_size(*n)).then(|| curve.with_points(points))
    }

    /// Whether anything was estimated of the plan of a key, on any type.
    pub(super) fn is_estimated(&self, key: &ProfileKey) -> bool {
        self.estimates
            .rates_of(&program_name(key))
            .is_some_and(|known: &EstimatedRates| known.keys().any(|(plan, ..)| *plan == key.exec_plan))
    }

    /// How a program's rates on the GPUs of so many nodes of the type of its key compare with those on as
    /// many GPUs of another type, by what the site has measured.
    pub(super) fn log_ratio(&self, from: &ProfileKey, to: &NodeType, nodes: u32) -> LogRatio {
        if from.node_type == *to {
            return LogRatio { mean: 0.0, sd: 0.0 };
        }
        let rows = self.ratio_inputs(from, to, nodes);
        let left = match &self.site.process {
            Some(process) => process.posterior_covariance(&rows),
            None => prior_covariance(&rows, run_covariance),
        };
        let variance = left[(0, 0)] + left[(1, 1)] - 2.0 * left[(0, 1)];
        LogRatio { mean: self.posterior_log_ratio(&rows), sd: variance.max(0.0).sqrt() }
    }

    /// The mean of [`Self::log_ratio`] alone, which takes much less.
    pub(super) fn mean_log_ratio(&self, from: &ProfileKey, to: &NodeType, nodes: u32) -> f64 {
        if from.node_type == *to {
            0.0
        } else {
            self.posterior_log_ratio(&self.ratio_inputs(from, to, nodes))
        }
    }

    /// The rows of as many GPUs of either type.
    fn ratio_inputs(&self, from: &ProfileKey, to: &NodeType, nodes: u32) -> [RunInput; 2] {
        let gpus = total_gpus(&from.node_type, nodes);
        let one = [from.node_type.single_place().0, to.single_place().0];
        [0, 1].map(|i| self.register.find_run(&run_names(from, &one[i], gpus, self.shares), i))
    }

    fn posterior_log_ratio(&self, rows: &[RunInput; 2]) -> f64 {
        let means = self.site.process.as_ref().map(|process| process.posterior_means(rows));
        means.map_or(0.0, |means| means[0] - means[1])
    }
}

/// The plans and types of which the site may tell more than the program's own measurements: at most one
/// size was measured so, and the plan ran on another type or was estimated. Where plans tell what they do, a
/// model of them all knows the rest.
fn keys_to_estimate(
    subject: &JobInput,
    own: &[&Profile],
    estimated: Option<&EstimatedRates>,
    made: &CurveBasis,
) -> Vec<ProfileKey> {
    let of_plan = |plan: &ExecPlan| own.iter().filter(move |p| p.key.exec_plan == *plan).collect::<Vec<_>>();
    let all_tell = !subject.plans.is_empty() && subject.plans.iter().all(|plan| plan.strategy.is_some());
    let modelled = all_tell && made.points > 0;
    let mut keys = Vec::new();
    for plan in &made.plans {
        let measured = of_plan(plan);
        let estimated = estimated.is_some_and(|known| known.keys().any(|(of, ..)| of == plan));
        for node_type in &made.types {
            let points = |on_it: bool| -> usize {
                let of_type = measured.iter().filter(|p| (p.key.node_type == *node_type) == on_it);
                of_type.map(|p| p.points.len()).sum()
            };
            if points(true) < 2 && (estimated || (points(false) > 0 && !modelled)) {
                let exec_plan = plan.clone();
                let node_type = node_type.clone();
                keys.push(ProfileKey { node_type, exec_plan, ..subject.key.clone() });
            }
        }
    }
    keys
}
