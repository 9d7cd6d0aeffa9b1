//! What the advisor knows of all jobs and what it wants to try, round by round. The daemon, the simulator and
//! `infill advise` drive the same library.
//!
//! It holds together three parts that know nothing of each other: the meters of running jobs
//! ([`super::watching`]), the profiles that they fill ([`super::profiles`]), and the probes under way
//! ([`super::probing`]).

use std::collections::{BTreeMap, BTreeSet};

use super::believed_scaling::UntriedPlan;
use super::crossing_costs::CrossingSlowdown;
use super::job_input::{JobInput, ProgressOutcome};
use super::job_meters::{JobMeasurement, JobMeters};
use super::layer_estimates::LayerEstimates;
use super::node_capacity::NodeCapacity;
use super::plan_offers::PlanOffer;
use super::probe_tracker::{EndedProbe, LONGEST_PROBE_SECS, ProbeAim, ProbeTracker, USUAL_PROBE_SECS};
use super::probe_value::{CurrentConfiguration, ProbeCandidate, ProbeContext, best_probe};
use super::profile_cache::ProfileCache;
use super::profile_learning::LearnOutcome;
use super::program_models::ProgramModels;
use super::rate_estimates::{RateEstimate, program_name};
use super::rate_estimator::{RateEstimator, WayToRun};
use super::scaling::{FittedCurve, ScalingModel as _, SizeEstimate};
use super::site_speeds::SiteSpeeds;
use super::supply_history::SupplyHistory;
use super::use_horizon::UseHorizon;
use infill_model::{
    AllowedSizes, DeclaredPlan, GenerationStop, JobId, LiveChange, LiveCosts, NodeType, Profile,
    ProfileFilter, ProfileKey, ProgressReport, RescaleCosts, RescaleMode, SiteCollectives, UnixTime,
    config::AdvisorConfig, malleable::RateCurve,
};

/// A size counts as measured when its rate is known so well.
const MEASURED_ERROR: f64 = 0.05;

/// Learns how fast jobs run at each size, and chooses which sizes to probe.
#[derive(Clone, Debug)]
pub struct JobAdvisor {
    settings: AdvisorConfig,
    profiles: ProfileCache,
    watching: JobMeters,
    probing: ProbeTracker,
    supplies: SupplyHistory,
    thoughts: BTreeMap<JobId, String>,
    programs: ProgramModels,
    speeds: SiteSpeeds,
    collectives: SiteCollectives,
    /// How often that has changed.
    collective_changes: u64,
    layer_estimates: LayerEstimates,
    /// Seconds for which what is learned now of a user's program will be of use.
    use_secs: BTreeMap<String, f64>,
}

impl JobAdvisor {
    /// An empty library within these bounds.
    pub fn new(settings: AdvisorConfig) -> Self {
        JobAdvisor {
            settings,
            profiles: ProfileCache::default(),
            watching: JobMeters::default(),
            probing: ProbeTracker::default(),
            supplies: SupplyHistory::default(),
            thoughts: BTreeMap::new(),
            programs: ProgramModels::default(),
            speeds: SiteSpeeds::default(),
            collectives: SiteCollectives::default(),
            collective_changes: 0,
            layer_estimates: LayerEstimates::default(),
            use_secs: BTreeMap::new(),
        }
    }

    /// Takes in stored profiles. What is in memory is newer and stays. Returns what had to be given up for
    /// lack of room: it must be loaded again before it is learned of.
    pub fn load_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        self.profiles.load(profiles, now)
    }

    /// Takes profiles in, in place of what is known. Returns what had to be given up for lack of room, as
    /// [`Self::load`] does.
    pub fn replace_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        self.profiles.replace(profiles, now)
    }

    /// Forgets the profiles that a filter names.
    pub fn forget_profiles(&mut self, filter: &ProfileFilter) {
        self.profiles.forget_matching(filter);
    }

    /// Profiles that changed since the last call, to be stored.
    pub fn take_unsaved(&mut self) -> Vec<Profile> {
        self.profiles.take_unsaved()
    }

    /// Says that these could not be stored after all.
    pub fn mark_unsaved(&mut self, profiles: &[Profile]) {
        self.profiles.mark_unsaved(profiles);
    }

    /// Gives up a profile that the store refuses.
    pub fn drop_profile(&mut self, key: &ProfileKey) {
        self.profiles.drop_profile(key);
    }

    /// A profile.
    pub fn profile(&self, key: &ProfileKey) -> Option<&Profile> {
        self.profiles.get(key)
    }

    /// The profile of a user's last job of this name: what a job that waits most likely is.
    pub fn last_profile_of<'a>(&'a self, user: &'a str, job_name: &str) -> Option<&'a ProfileKey> {
        let alike = self.profiles.of_user(user).filter(|p| p.job_name == job_name);
        alike.max_by_key(|p| p.updated_at).map(|p| &p.key)
    }

    /// Notes under which name Slurm knows the jobs of a profile.
    pub fn set_job_name(&mut self, key: &ProfileKey, job_name: &str) {
        self.profiles.set_job_name(key, job_name);
    }

    /// What is believed of a job's scaling on a node type; `None` when nothing is known.
    pub fn fitted_curve(&self, subject: &JobInput, node_type: &NodeType) -> Option<FittedCurve> {
        self.rate_estimator().fitted_curve(subject, node_type)
    }

    /// What is believed of a job on so many nodes of a type, with one of its plans; `None` when nothing is
    /// known. `plan`: `None` of a program with but one.
    pub fn estimate_size(
        &self,
        subject: &JobInput,
        plan: Option<&DeclaredPlan>,
        node_type: &NodeType,
        nodes: u32,
    ) -> Option<SizeEstimate> {
        let belief = self.rate_estimator();
        let way = belief.way_to_run(subject, plan, node_type)?;
        way.sizes.contains(&nodes).then(|| belief.estimate_size(subject, &way, nodes))
    }

    /// Takes in how fast the program of a key was estimated to be, with all its plans on all types, in place
    /// of what was estimated of it before.
    pub fn set_estimates(&mut self, key: &ProfileKey, rates: Vec<RateEstimate>) {
        self.speeds.estimates.replace_program(program_name(key), rates);
    }

    /// How long collectives take on the site's nodes.
    pub fn collectives(&self) -> &SiteCollectives {
        &self.collectives
    }

    /// Takes in how long collectives take on the site's nodes, in place of what was known.
    pub fn set_collectives(&mut self, site: SiteCollectives) {
        self.collective_changes += u64::from(self.collectives != site);
        self.collectives = site;
    }

    /// The job's rates for the planner. Of a program with one execution plan one curve for each type of nodes
    /// where it ran, and for each of these that has GPUs if its own has; the first also serves for all
    /// others. Of one with several, one curve for each and each type of nodes, these types among them. Empty
    /// when nothing is known at all.
    pub fn rate_curves(&self, subject: &JobInput, types: &[NodeType]) -> Vec<RateCurve> {
        self.rate_estimator().rate_curves(subject, types)
    }

    /// The sizes of a job that one of its plans can have on a type of nodes and at which it fits into memory,
    /// as far as that is known; `None` for all. `plan`: `None` of a program with but one.
    pub fn fitting_sizes(
        &self,
        subject: &JobInput,
        plan: Option<&DeclaredPlan>,
        node_type: &NodeType,
    ) -> Option<AllowedSizes> {
        let exec_plan = plan.map_or_else(|| subject.key.exec_plan.clone(), |plan| plan.name.clone());
        let key = ProfileKey { node_type: node_type.clone(), exec_plan, ..subject.key.clone() };
        self.rate_estimator().fitting_sizes(subject, plan, &key)
    }

    /// How many times as long a step of a program takes on several hosts as on one, and on several leaf
    /// switches as on one.
    pub fn crossing_slowdown(&self, key: &ProfileKey) -> CrossingSlowdown {
        self.profiles.crossing_slowdown(key)
    }

    /// What each execution plan of a job gives on so many nodes of its type, the best first; none of a
    /// program with but one.
    pub fn plan_offers(&self, subject: &JobInput, nodes: u32) -> Vec<PlanOffer> {
        self.rate_estimator().plan_offers(subject, nodes)
    }

    /// Takes in how a worker of a job of this profile has stopped.
    pub fn record_stop(&mut self, key: &ProfileKey, stop: &GenerationStop, now: UnixTime) {
        self.profiles.record_stop(key, stop, now);
    }

    /// Takes in that a program of this profile ran out of memory: what does not fit is not tried again.
    pub fn record_out_of_memory(&mut self, key: &ProfileKey, nodes: u32, now: UnixTime) {
        self.profiles.record_out_of_memory(key, nodes, now);
        for ended in self.probing.end_unfit(key, nodes, now) {
            self.profiles.count_probe(&ended.key, ended.secs);
        }
    }

    /// The last stops of a profile.
    pub fn profile_stops(&self, key: &ProfileKey) -> &[GenerationStop] {
        self.profiles.get(key).map_or(&[], |p| &p.stops)
    }

    /// The last stops of all profiles of a user, or only of those of one name.
    pub fn user_stops<'a>(
        &'a self,
        user: &'a str,
        name: Option<&'a str>,
    ) -> impl Iterator<Item = &'a GenerationStop> + Clone {
        let named = move |p: &&Profile| name.is_none_or(|name| p.key.name == name);
        self.profiles.of_user(user).filter(named).flat_map(|p| &p.stops)
    }

    /// Takes in a change of a job of this profile that its command lived through.
    pub fn record_live_change(&mut self, key: &ProfileKey, change: &LiveChange, now: UnixTime) {
        self.profiles.record_live_change(key, change, now);
    }

    /// What the job's rescales cost in this way: measured where it was, else `otherwise`.
    pub fn rescale_costs(
        &self,
        key: &ProfileKey,
        otherwise: &(RescaleCosts, LiveCosts),
        way: RescaleMode,
    ) -> RescaleCosts {
        self.profiles.rescale_costs(key, otherwise, way)
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
    /// Takes in progress of a job's worker.
    pub fn record_progress(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
        now: UnixTime,
    ) -> ProgressOutcome {
        let mut news = ProgressOutcome::default();
        if self.watching.is_stale(job, progress.generation) {
            return news;
        }
        if let Some(last) = self.watching.begin_generation(job, key, progress) {
            self.record_measurement(job, &last, now, &mut news);
        }
        self.probing.record_arrival(job, key, progress.nodes, now);
        if let Some(measured) = self.watching.record_report(job, key, progress) {
            self.record_measurement(job, &measured, now, &mut news);
        }
        let overdue = self.probing.end_overdue(job, now);
        news.probed |= self.count_probe(overdue);
        news
    }

    /// The job's generation has ended or was interrupted: what was measured of it counts, to the profile that
    /// is returned.
    pub fn finish_generation(&mut self, job: JobId, now: UnixTime) -> Option<(ProfileKey, ProgressOutcome)> {
        let measured = self.watching.finish_generation(job)?;
        let mut news = ProgressOutcome::default();
        self.record_measurement(job, &measured, now, &mut news);
        Some((measured.key, news))
    }

    /// Forgets a job that has ended.
    pub fn forget_job(&mut self, job: JobId) {
        self.watching.forget_job(job);
        self.probing.forget_job(job);
        self.thoughts.remove(&job);
    }

    fn record_measurement(
        &mut self,
        job: JobId,
        measured: &JobMeasurement,
        now: UnixTime,
        news: &mut ProgressOutcome,
    ) {
        let (key, nodes) = (&measured.key, measured.nodes);
        if let LearnOutcome::Drifted(factor) = self.profiles.learn_measurement(measured, now) {
            self.profiles.refill_probes(key, self.settings.max_probes, LONGEST_PROBE_SECS, factor, now);
            news.drift = Some(factor);
        }
        news.stretch = Some((nodes, measured.stretch));
        news.probe = self.aim_of(job).is_some_and(|aim| aim.nodes == nodes && aim.key == *key);
        let ended = self.probing.end_at(job, key, nodes, now);
        news.probed |= self.count_probe(ended);
    }

    /// Counts a probe to its profile, if one is over; says whether.
    fn count_probe(&mut self, ended: Option<EndedProbe>) -> bool {
        let Some(ended) = ended else { return false };
        self.profiles.count_probe(&ended.key, ended.secs);
        true
    }
}

impl JobAdvisor {
    /// What the job shall be brought to, to measure it.
    pub fn aim_of(&self, job: JobId) -> Option<&ProbeAim> {
        self.probing.aim_of(job)
    }

    /// The size that the job shall be brought to, to measure it.
    pub fn probe_size(&self, job: JobId) -> Option<u32> {
        self.aim_of(job).map(|aim| aim.nodes)
    }

    /// Whether the job tries sizes, or did so until a moment ago: then its last change says nothing against
    /// another.
    pub fn is_probing(&self, job: JobId, now: UnixTime) -> bool {
        self.probing.is_probing(job, now)
    }

    /// Whether a size of a profile is measured as well as it need be.
    pub fn is_measured(&self, key: &ProfileKey, nodes: u32) -> bool {
        self.profiles.points(key).iter().any(|p| p.nodes == nodes && p.error <= MEASURED_ERROR)
    }

    /// What the advisor thinks of a job, for people.
    pub fn describe_job(&self, job: JobId) -> &str {
        self.thoughts.get(&job).map_or("", String::as_str)
    }

    /// One round: notes the supply of nodes, gives up probes that come to nothing, and begins new ones.
    pub fn run_round(&mut self, subjects: &[JobInput], room: NodeCapacity, may_probe: bool, now: UnixTime) {
        self.supplies.record_round(&room);
        let jobs: BTreeSet<JobId> = subjects.iter().map(|s| s.job).collect();
        self.probing.retain(|job| jobs.contains(&job));
        for ended in self.probing.give_up_late(now) {
            self.profiles.count_probe(&ended.key, ended.secs);
        }
        self.use_secs = self.use_horizons(subjects);
        let types: Vec<NodeType> = room.usable_by_type().map(|(node_type, _)| node_type.clone()).collect();
        let table = (&self.collectives, self.collective_changes);
        for (name, rates) in self.layer_estimates.update_estimates(subjects, &types, table) {
            self.speeds.estimates.replace_program(name, rates);
        }
        self.speeds.update_curves(subjects, &self.profiles, &types, self.settings.share_profiles, now);
        self.programs.update_models(subjects, &self.profiles, &self.speeds, &types, now);
        let mut room = room;
        for subject in subjects {
            let present = subject.running.unwrap_or(0);
            let thought = self.consider_probe(subject, &room, may_probe, now);
            // What one probe needs is not free for another.
            if let Some(ProbeAim { key, nodes }) = self.aim_of(subject.job) {
                let has = if key.node_type == subject.key.node_type { present } else { 0 };
                room.take_nodes(&key.node_type, nodes.saturating_sub(has));
            }
            self.thoughts.insert(subject.job, thought);
        }
    }

    /// Begins a probe of a job, if one is worth it; says why or why not.
    fn consider_probe(
        &mut self,
        subject: &JobInput,
        room: &NodeCapacity,
        may_probe: bool,
        now: UnixTime,
    ) -> String {
        if let Some(words) = self.probing.describe_probe(subject.job, now) {
            return words;
        }
        let Some(present) = subject.running else { return self.rate_estimator().knowledge_summary(subject) };
        if !self.is_measured(&subject.key, present) {
            return match self.watching.has_reports(subject.job) {
                true => format!("measures its present {present} nodes"),
                false => "reports no progress, so nothing can be learned".to_owned(),
            };
        }
        if let Some(why) = self.probe_obstacle(subject, may_probe) {
            return format!("{}; no probe: {why}", self.rate_estimator().knowledge_summary(subject));
        }
        match self.best_candidate(subject, present, room) {
            Some((key, ProbeCandidate { nodes, gain, cost })) => {
                let aim = ProbeAim { key, nodes };
                let thought = format!("tries {aim}: worth {gain:.0} samples for {cost:.0}");
                self.probing.begin_probe(subject, aim, now);
                thought
            }
            None => format!(
                "{}; no probe: none is worth its cost",
                self.rate_estimator().knowledge_summary(subject)
            ),
        }
    }

    /// Why no probe may begin, if so.
    fn probe_obstacle(&self, subject: &JobInput, may_probe: bool) -> Option<&'static str> {
        if !may_probe {
            return Some("nothing may grow now");
        }
        // Where there are several plans, each has its own bounds.
        let profile = self.profile(&subject.key).filter(|_| subject.plans.is_empty())?;
        self.probing.why_forbidden(profile, &self.settings)
    }

    /// What is most worth trying of what can be reached: a size, with the signature that the job has then.
    fn best_candidate(
        &self,
        subject: &JobInput,
        present: u32,
        room: &NodeCapacity,
    ) -> Option<(ProfileKey, ProbeCandidate)> {
        let width = subject.key.node_type.single_place().1;
        let types: Vec<NodeType> =
            room.usable_by_type().map(|(t, _)| t.clone().with_place_count(width)).collect();
        let ways = self.rate_estimator().ways_to_run(subject, &types);
        let rate =
            ways.iter().find(|way| way.key == subject.key).map(|way| way.believed.estimate_at(present).rate);
        let best = |(i, way): (usize, &WayToRun)| {
            let stakes = self.probe_context(subject, way, present, rate?, room);
            let others = ways.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other);
            let rivals =
                others.flat_map(|w| w.sizes.iter().map(|n| (*n, w.believed.estimate_at(*n).rate))).collect();
            let stakes = ProbeContext { rivals, ..stakes };
            let found = match self.rate_estimator().is_untried_plan(way) {
                true => best_probe(&UntriedPlan(&way.believed), &stakes),
                false => best_probe(&way.believed, &stakes),
            };
            found.map(|candidate| (way.key.clone(), candidate))
        };
        let worth = |c: &ProbeCandidate| c.gain - c.cost;
        ways.iter().enumerate().filter_map(best).max_by(|(_, a), (_, b)| worth(a).total_cmp(&worth(b)))
    }

    /// What is at stake for a job that makes `rate` on its `present` nodes, if it tries to run this way.
    fn probe_context(
        &self,
        subject: &JobInput,
        way: &WayToRun,
        present: u32,
        rate: f64,
        room: &NodeCapacity,
    ) -> ProbeContext {
        let key = &way.key;
        let use_secs = self.use_secs.get(&key.user).copied().unwrap_or(self.settings.horizon_secs);
        let stakes =
            self.supplies.probe_context(subject, &key.node_type, way.sizes.clone(), present, use_secs);
        let stays = key.node_type == subject.key.node_type;
        let most = room.free_nodes(&key.node_type) + if stays { present } else { 0 };
        let triable =
            |n: &u32| *n <= most && !self.is_measured(key, *n) && !self.probing.is_declined(key, *n);
        let is_own = subject.plans.is_empty() && *key == subject.key;
        let may = is_own || self.is_within_budget(key, subject.plans.len());
        let triable = stakes.sizes.iter().copied().filter(|n| may && triable(n)).collect();
        let RescaleCosts { up_secs, start_secs, .. } = subject.costs;
        let change_secs = if stays { subject.swap_secs.unwrap_or(up_secs) } else { start_secs };
        let elsewhere = (*key != subject.key).then_some(CurrentConfiguration { rate, change_secs });
        ProbeContext { triable, elsewhere, ..stakes }
    }

    /// Whether a probe of a job that has so many plans is within the bounds that each of them has, and that
    /// all have together: each further plan allows for one more probe.
    fn is_within_budget(&self, key: &ProfileKey, plans: usize) -> bool {
        let own = self.profiles.of_user(&key.user).filter(|p| p.key.name == key.name);
        let tried_secs: f64 = own.map(|p| p.probe_secs).sum();
        let most_secs = self.settings.max_probe_secs + plans.saturating_sub(1) as f64 * USUAL_PROBE_SECS;
        if tried_secs + USUAL_PROBE_SECS > most_secs {
            return false;
        }
        let allowed = |profile: &Profile| self.probing.why_forbidden(profile, &self.settings).is_none();
        self.profile(key).map_or_else(|| allowed(&Profile::new(key.clone())), allowed)
    }

    /// For how long what is learned now of a program of these users will be of use.
    fn use_horizons(&self, subjects: &[JobInput]) -> BTreeMap<String, f64> {
        // A program has a profile for each of its plans on each type of nodes: its life is that of all.
        let alive: BTreeSet<(&String, &String)> =
            subjects.iter().map(|s| (&s.key.user, &s.key.name)).collect();
        let users: BTreeSet<&String> = alive.iter().map(|(user, _)| *user).collect();
        let prospect = |user: &String| {
            let (mut prospect, mut ended) = (UseHorizon::default(), BTreeSet::new());
            for profile in self.profiles.of_user(user) {
                let name = &profile.key.name;
                let counts =
                    !profile.points.is_empty() && !alive.contains(&(user, name)) && ended.insert(name);
                prospect.add_profile(profile, !counts);
            }
            (user.clone(), prospect.use_secs(self.settings.horizon_secs))
        };
        users.into_iter().map(prospect).collect()
    }
}
