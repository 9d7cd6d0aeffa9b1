//! What the advisor knows of all jobs, and which sizes it wants to try, round by round. The daemon, the
//! simulator and `infill advise` use the same advisor.
//!
//! It combines three parts that are independent of each other: the meters of running jobs
//! ([`super::job_meters`]), the profiles that they fill ([`super::profile_cache`]), and the active probes
//! ([`super::probe_tracker`]).

mod probe_rounds;

use std::collections::BTreeMap;

use super::crossing_costs::CrossingSlowdown;
use super::job_input::{JobInput, ProgressOutcome};
use super::job_meters::{JobMeasurement, JobMeters};
use super::layer_estimates::LayerEstimates;
use super::plan_offers::PlanOffer;
use super::predicted_rates::{PredictedRate, program_name};
use super::probe_tracker::{EndedProbe, LONGEST_PROBE_SECS, ProbeAim, ProbeTracker};
use super::profile_cache::ProfileCache;
use super::profile_learning::LearnOutcome;
use super::program_models::ProgramModels;
use super::rate_estimator::RateEstimator;
use super::scaling::{FittedCurve, SizeEstimate};
use super::site_speeds::SiteSpeeds;
use super::supply_history::SupplyHistory;
use infill_model::{
    AllowedSizes, DeclaredPlan, GenerationStop, JobId, LiveChange, LiveCosts, NodeType, Profile,
    ProfileFilter, ProfileKey, ProgressReport, RescaleCosts, RescaleMode, SiteCollectives, UnixTime,
    config::AdvisorConfig, malleable::RateCurve,
};

/// A size counts as measured when its relative standard error is at most this.
const MEASURED_ERROR: f64 = 0.05;

/// Learns how fast jobs run at each size, and chooses which sizes to probe.
#[derive(Clone, Debug)]
pub struct JobAdvisor {
    settings: AdvisorConfig,
    profiles: ProfileCache,
    meters: JobMeters,
    probes: ProbeTracker,
    supplies: SupplyHistory,
    /// What the advisor does about each job, and why, in a sentence for people.
    explanations: BTreeMap<JobId, String>,
    programs: ProgramModels,
    speeds: SiteSpeeds,
    collectives: SiteCollectives,
    /// How often `collectives` has changed.
    collective_changes: u64,
    layer_estimates: LayerEstimates,
    /// For each user, the seconds for which what is learned now of a program will be of use.
    use_secs: BTreeMap<String, f64>,
}

impl JobAdvisor {
    /// An advisor without profiles, with these bounds.
    pub fn new(settings: AdvisorConfig) -> Self {
        JobAdvisor {
            settings,
            profiles: ProfileCache::default(),
            meters: JobMeters::default(),
            probes: ProbeTracker::default(),
            supplies: SupplyHistory::default(),
            explanations: BTreeMap::new(),
            programs: ProgramModels::default(),
            speeds: SiteSpeeds::default(),
            collectives: SiteCollectives::default(),
            collective_changes: 0,
            layer_estimates: LayerEstimates::default(),
            use_secs: BTreeMap::new(),
        }
    }

    /// Takes in stored profiles. Profiles in memory are newer and stay. Returns the keys that it dropped
    /// because memory for profiles is limited. These profiles must be loaded again before anything more is
    /// learned of them.
    pub fn load_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        self.profiles.load(profiles, now)
    }

    /// Takes in profiles that replace those in memory. Returns the keys that it dropped because memory for
    /// profiles is limited, as [`Self::load_profiles`] does.
    pub fn replace_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        self.profiles.replace(profiles, now)
    }

    /// Forgets the profiles that a filter selects.
    pub fn forget_profiles(&mut self, filter: &ProfileFilter) {
        self.profiles.forget_matching(filter);
    }

    /// The profiles that changed since the last call, to be stored.
    pub fn take_unsaved(&mut self) -> Vec<Profile> {
        self.profiles.take_unsaved()
    }

    /// Marks profiles as changed again, because they could not be stored.
    pub fn mark_unsaved(&mut self, profiles: &[Profile]) {
        self.profiles.mark_unsaved(profiles);
    }

    /// Drops a profile that the store refuses.
    pub fn drop_profile(&mut self, key: &ProfileKey) {
        self.profiles.drop_profile(key);
    }

    /// The profile with this key; `None` where nothing was learned of it.
    pub fn profile(&self, key: &ProfileKey) -> Option<&Profile> {
        self.profiles.get(key)
    }

    /// The profile of the user's last job with this name. A waiting job with the name most likely runs the
    /// same program.
    pub fn last_profile_of<'a>(&'a self, user: &'a str, job_name: &str) -> Option<&'a ProfileKey> {
        let alike = self.profiles.of_user(user).filter(|p| p.job_name == job_name);
        alike.max_by_key(|p| p.updated_at).map(|p| &p.key)
    }

    /// Records the name that Slurm has for the jobs of a profile.
    pub fn set_job_name(&mut self, key: &ProfileKey, job_name: &str) {
        self.profiles.set_job_name(key, job_name);
    }

    /// How a job scales on a node type; `None` when nothing is known.
    pub fn fitted_curve(&self, input: &JobInput, node_type: &NodeType) -> Option<FittedCurve> {
        self.rate_estimator().fitted_curve(input, node_type)
    }

    /// The rate of a job on a number of nodes of a type, with one of its plans; `None` when nothing is known.
    /// `plan` is `None` for a program with only one plan.
    pub fn estimate_size(
        &self,
        input: &JobInput,
        plan: Option<&DeclaredPlan>,
        node_type: &NodeType,
        nodes: u32,
    ) -> Option<SizeEstimate> {
        let estimator = self.rate_estimator();
        let way = estimator.way_to_run(input, plan, node_type)?;
        way.sizes.contains(&nodes).then(|| estimator.estimate_size(input, &way, nodes))
    }

    /// Takes in estimated rates of the program of a key, with all its plans on all types. They replace its
    /// earlier estimates.
    pub fn set_estimates(&mut self, key: &ProfileKey, rates: Vec<PredictedRate>) {
        self.speeds.estimates.replace_program(program_name(key), rates);
    }

    /// How long collectives take on the site's nodes.
    pub fn collectives(&self) -> &SiteCollectives {
        &self.collectives
    }

    /// Takes in how long collectives take on the site's nodes. It replaces the earlier times.
    pub fn set_collectives(&mut self, site: SiteCollectives) {
        self.collective_changes += u64::from(self.collectives != site);
        self.collectives = site;
    }

    /// The job's rates for the planner; empty when nothing is known.
    ///
    /// A program with one execution plan has one curve for each type of nodes where it ran, and for each of
    /// `types`. Types with GPUs count only if its own type has GPUs, and types without only if its own has
    /// none. The first curve also serves for all other types. A program with several plans has one curve for
    /// each plan on each type, `types` included.
    pub fn rate_curves(&self, input: &JobInput, types: &[NodeType]) -> Vec<RateCurve> {
        self.rate_estimator().rate_curves(input, types)
    }

    /// The allowed sizes of a job that one of its plans can have on a type of nodes and at which it fits into
    /// memory, as far as that is known; `None` for all. `plan` is `None` for a program with only one plan.
    pub fn fitting_sizes(
        &self,
        input: &JobInput,
        plan: Option<&DeclaredPlan>,
        node_type: &NodeType,
    ) -> Option<AllowedSizes> {
        let exec_plan = plan.map_or_else(|| input.key.exec_plan.clone(), |plan| plan.name.clone());
        let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..input.key.clone() };
        self.rate_estimator().fitting_sizes(input, plan, &key)
    }

    /// How many times as long a step of a program takes on several hosts as on one, and on several leaf
    /// switches as on one.
    pub fn crossing_slowdown(&self, key: &ProfileKey) -> CrossingSlowdown {
        self.profiles.crossing_slowdown(key)
    }

    /// What each execution plan of a job gives on this number of nodes of its type, the best first; empty for
    /// a program with only one plan.
    pub fn plan_offers(&self, input: &JobInput, nodes: u32) -> Vec<PlanOffer> {
        self.rate_estimator().plan_offers(input, nodes)
    }

    /// Takes in how a worker of a job of this profile stopped.
    pub fn record_stop(&mut self, key: &ProfileKey, stop: &GenerationStop, now: UnixTime) {
        self.profiles.record_stop(key, stop, now);
    }

    /// Takes in that a program of this profile ran out of memory. A size that does not fit is not tried
    /// again.
    pub fn record_out_of_memory(&mut self, key: &ProfileKey, nodes: u32, now: UnixTime) {
        self.profiles.record_out_of_memory(key, nodes, now);
        for ended in self.probes.end_unfit(key, nodes, now) {
            self.profiles.count_probe(&ended.key, ended.secs);
        }
    }

    /// The last stops of a profile.
    pub fn profile_stops(&self, key: &ProfileKey) -> &[GenerationStop] {
        self.profiles.get(key).map_or(&[], |p| &p.stops)
    }

    /// The last stops of all of a user's profiles, or only of those with this name.
    pub fn user_stops<'a>(
        &'a self,
        user: &'a str,
        name: Option<&'a str>,
    ) -> impl Iterator<Item = &'a GenerationStop> + Clone {
        let profiles = self.profiles.of_user(user);
        profiles.filter(move |p| name.is_none_or(|name| p.key.name == name)).flat_map(|p| &p.stops)
    }

    /// Takes in a change of a job of this profile during which its command stayed alive.
    pub fn record_live_change(&mut self, key: &ProfileKey, change: &LiveChange, now: UnixTime) {
        self.profiles.record_live_change(key, change, now);
    }

    /// What the job's rescales cost in this mode: measured where possible, else `defaults`.
    pub fn rescale_costs(
        &self,
        key: &ProfileKey,
        defaults: &(RescaleCosts, LiveCosts),
        mode: RescaleMode,
    ) -> RescaleCosts {
        self.profiles.rescale_costs(key, defaults, mode)
    }

    fn rate_estimator(&self) -> RateEstimator<'_> {
        RateEstimator {
            profiles: &self.profiles,
            programs: &self.programs,
            speeds: &self.speeds,
            share_profiles: self.settings.share_profiles,
        }
    }
}

impl JobAdvisor {
    /// Takes in a progress report of a job's worker.
    pub fn record_progress(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
        now: UnixTime,
    ) -> ProgressOutcome {
        let mut outcome = ProgressOutcome::default();
        if self.meters.is_stale(job, progress.generation) {
            return outcome;
        }
        if let Some(last) = self.meters.begin_generation(job, key, progress) {
            self.record_measurement(job, &last, now, &mut outcome);
        }
        self.probes.record_arrival(job, key, progress.nodes, now);
        if let Some(measured) = self.meters.record_report(job, key, progress) {
            self.record_measurement(job, &measured, now, &mut outcome);
        }
        let overdue = self.probes.end_overdue(job, now);
        outcome.probe_ended |= self.count_probe(overdue);
        outcome
    }

    /// Takes in that the job's generation has ended or was interrupted. The last measurement counts to the
    /// profile whose key is returned.
    pub fn finish_generation(&mut self, job: JobId, now: UnixTime) -> Option<(ProfileKey, ProgressOutcome)> {
        let measured = self.meters.finish_generation(job)?;
        let mut outcome = ProgressOutcome::default();
        self.record_measurement(job, &measured, now, &mut outcome);
        Some((measured.key, outcome))
    }

    /// Forgets a job that has ended.
    pub fn forget_job(&mut self, job: JobId) {
        self.meters.forget_job(job);
        self.probes.forget_job(job);
        self.explanations.remove(&job);
    }

    fn record_measurement(
        &mut self,
        job: JobId,
        measured: &JobMeasurement,
        now: UnixTime,
        outcome: &mut ProgressOutcome,
    ) {
        let key = &measured.key;
        let nodes = measured.nodes;
        if let LearnOutcome::Drifted(factor) = self.profiles.learn_measurement(measured, now) {
            self.profiles.refill_probes(key, self.settings.max_probes, LONGEST_PROBE_SECS, factor, now);
            outcome.drift = Some(factor);
        }
        outcome.stretch = Some((nodes, measured.stretch));
        outcome.measures_probe = self.aim_of(job).is_some_and(|aim| aim.nodes == nodes && aim.key == *key);
        let ended = self.probes.end_at(job, key, nodes, now);
        outcome.probe_ended |= self.count_probe(ended);
    }

    /// Counts a probe to its profile, if one has ended; returns whether one has.
    fn count_probe(&mut self, ended: Option<EndedProbe>) -> bool {
        let Some(ended) = ended else { return false };
        self.profiles.count_probe(&ended.key, ended.secs);
        true
    }
}

impl JobAdvisor {
    /// The size, execution plan and type of nodes to which the job shall be brought to measure it.
    pub fn aim_of(&self, job: JobId) -> Option<&ProbeAim> {
        self.probes.aim_of(job)
    }

    /// The size to which the job shall be brought to measure it.
    pub fn probe_size(&self, job: JobId) -> Option<u32> {
        self.aim_of(job).map(|aim| aim.nodes)
    }

    /// Whether the job tries sizes, or did so until a moment ago. Its last change then says nothing against
    /// another.
    pub fn is_probing(&self, job: JobId, now: UnixTime) -> bool {
        self.probes.is_probing(job, now)
    }

    /// Whether a size of a profile is measured exactly enough.
    pub fn is_measured(&self, key: &ProfileKey, nodes: u32) -> bool {
        self.profiles.points(key).iter().any(|p| p.nodes == nodes && p.error <= MEASURED_ERROR)
    }

    /// What the advisor does about a job, and why, for people; empty for a job that no round has seen.
    pub fn describe_job(&self, job: JobId) -> &str {
        self.explanations.get(&job).map_or("", String::as_str)
    }
}
