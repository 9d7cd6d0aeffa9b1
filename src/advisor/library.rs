//! All profiles in memory, the jobs that are being measured, and the probes under way. The daemon and the
//! simulator drive the same library.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::costs;
use super::fit::{Fitted, sizes_of_interest};
use super::learn::{Doubts, Learned, batch_mode, learn};
use super::meter::{Meter, Stretch};
use super::probe::{Stakes, best_probe};
use super::prospect::Prospect;
use crate::config::AdvisorConfig;
use crate::model::malleable::RateCurve;
use crate::model::{
    BatchMode, ChangeCost, Curve, ExecPlan, JobId, NodeName, NodeType, Profile, ProfileFilter, ProfileKey,
    RescaleCosts, SizePoint, Sizes, UnixTime,
};

/// Relative error of a curve that a user declares, where nothing was measured.
const DECLARED_ERROR: f64 = 0.03;

/// Relative error of what is known of the same program on another node type.
const OTHER_TYPE_ERROR: f64 = 0.2;

/// Relative error of what is known of another user's program of the same name.
const OTHER_USER_ERROR: f64 = 0.3;

/// A size counts as measured when its rate is known so well.
const MEASURED: f64 = 0.05;

/// Seconds that a probe may last from its first step, unless it is narrow before.
const LONGEST_PROBE_SECS: f64 = 30.0;

/// Seconds that one usually lasts: what it costs is reckoned with these.
const USUAL_PROBE_SECS: f64 = 15.0;

/// Seconds that the planner has to bring the job to the size that shall be tried.
const ARRIVAL_SECS: f64 = 60.0;

/// Seconds for which a size is left alone that the planner would not bring the job to.
const DECLINED_SECS: f64 = 600.0;

/// The hour of the whole budget.
const BUDGET_SECS: f64 = 3600.0;

/// Seconds between two drifts that each allow another probe.
const REFILL_SECS: f64 = 3600.0;

/// A drift by less (the logarithm of its factor) allows none: the curve is still nearly right.
const REFILLS: f64 = 0.2;

/// Rounds from which the usual supply of nodes is known.
const SUPPLIES_REMEMBERED: usize = 512;

/// Shares of the time at which the usual supply is looked at.
const SUPPLY_QUANTILES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];

/// Most sizes between which a choice is weighed; more are thinned out.
const MOST_SIZES: usize = 16;

/// Most profiles kept in memory; those longest unused go first, once they are stored.
const MOST_PROFILES: usize = 20_000;

/// A job as the advisor sees it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The lead.
    pub job: JobId,
    /// Its signature, on the node type that it runs on or would most likely.
    pub key: ProfileKey,
    /// Its allowed sizes.
    pub sizes: Sizes,
    /// The curve that the user declares.
    pub declared: Option<Curve>,
    /// Nodes of the present generation, if it runs undisturbed.
    pub running: Option<u32>,
    /// What its rescales cost.
    pub costs: RescaleCosts,
}

/// What a worker told of its progress.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The generation.
    pub generation: u64,
    /// Its number of nodes.
    pub nodes: u32,
    /// The worker.
    pub node: &'a NodeName,
    /// Samples since its last word.
    pub samples: f64,
    /// Seconds since its last word.
    pub secs: f64,
    /// Its step.
    pub step: Option<u64>,
    /// If it is the first of its generation: how that came about.
    pub opening: Option<Opening>,
}

/// How a generation came about, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opening {
    /// From the signal until the checkpoint was saved, if that is known.
    pub saved_secs: Option<f64>,
    /// From the signal until the old command had exited; `None` for a first start.
    pub stop_secs: Option<f64>,
    /// From there until the new command was started.
    pub idle_secs: f64,
    /// From there until its last word in this report.
    pub start_secs: f64,
    /// Samples that it had done by then.
    pub samples: f64,
    /// Whether it tells what a change costs; not where a command was started again because it had failed.
    pub counts: bool,
}

/// What a report led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// A stretch was measured at this size.
    pub stretch: Option<(u32, Stretch)>,
    /// The job runs at another speed than before.
    pub drift: Option<f64>,
    /// It was measured because the advisor wanted to know it.
    pub probe: bool,
    /// A probe is over: the planner may choose again.
    pub probed: bool,
}

/// A profile in memory.
#[derive(Clone, Debug)]
struct Known {
    profile: Profile,
    doubts: Doubts,
    unsaved: bool,
    used_at: UnixTime,
    /// When a drift last gave it another probe.
    refilled_at: Option<UnixTime>,
}

impl Known {
    fn new(profile: Profile, now: UnixTime) -> Self {
        Known { profile, doubts: Doubts::new(), unsaved: false, used_at: now, refilled_at: None }
    }

    /// What is guessed of the other sizes after a drift may be tried once more, but not again and again.
    fn refill(&mut self, max_probes: u32, factor: f64, now: UnixTime) {
        let lately = self.refilled_at.is_some_and(|at| age(now, at) < REFILL_SECS);
        if factor.ln().abs() > REFILLS && !lately {
            self.refilled_at = Some(now);
            self.profile.probes = self.profile.probes.min(max_probes.saturating_sub(1));
            self.profile.probe_secs = (self.profile.probe_secs - LONGEST_PROBE_SECS).max(0.0);
        }
    }
}

/// Seconds that have passed; what lies in the future, because a clock was set back, is long past.
fn age(now: UnixTime, at: UnixTime) -> f64 {
    let secs = now.secs_since(at);
    if secs < 0.0 { f64::INFINITY } else { secs }
}

/// A job that is being measured.
#[derive(Clone, Debug, Default)]
struct Watch {
    generation: u64,
    nodes: u32,
    /// Nodes of the generation before.
    before: u32,
    /// To which profile it counts.
    key: Option<ProfileKey>,
    meter: Meter,
    opening: Option<Opening>,
    any: bool,
}

/// A size held to measure it.
#[derive(Clone, Debug, PartialEq)]
struct Probe {
    key: ProfileKey,
    nodes: u32,
    chosen_at: UnixTime,
    /// Seconds that the job may take to come to that size.
    arrival_secs: f64,
    /// First report at that size.
    since: Option<UnixTime>,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Library {
    settings: AdvisorConfig,
    known: BTreeMap<ProfileKey, Known>,
    watches: BTreeMap<JobId, Watch>,
    probes: BTreeMap<JobId, Probe>,
    /// When a job's last probe ended.
    probed_at: BTreeMap<JobId, UnixTime>,
    declined: BTreeMap<(ProfileKey, u32), UnixTime>,
    supplies: VecDeque<u32>,
    /// Seconds of the probes of the last hour, with their ends.
    spent: VecDeque<(UnixTime, f64)>,
    thoughts: BTreeMap<JobId, String>,
    /// Seconds for which what is learned now of a user's program will be of use.
    use_secs: BTreeMap<String, f64>,
}

impl Library {
    /// An empty library within these bounds.
    pub fn new(settings: AdvisorConfig) -> Self {
        Library {
            settings,
            known: BTreeMap::new(),
            watches: BTreeMap::new(),
            probes: BTreeMap::new(),
            probed_at: BTreeMap::new(),
            declined: BTreeMap::new(),
            supplies: VecDeque::new(),
            spent: VecDeque::new(),
            thoughts: BTreeMap::new(),
            use_secs: BTreeMap::new(),
        }
    }

    /// Takes in stored profiles. What is in memory is newer and stays. Returns what had to be given up for
    /// lack of room: it must be loaded again before it is learned of.
    pub fn load(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        for profile in profiles {
            self.known.entry(profile.key.clone()).or_insert(Known::new(profile, now));
        }
        self.make_room()
    }

    /// Takes profiles in, in place of what is known.
    pub fn replace(&mut self, profiles: Vec<Profile>, now: UnixTime) {
        for profile in profiles {
            self.known.insert(profile.key.clone(), Known::new(profile, now));
        }
    }

    /// Forgets the profiles that a filter names.
    pub fn forget(&mut self, filter: &ProfileFilter) {
        self.known.retain(|key, _| !filter.matches(key));
    }

    /// Profiles that changed since the last call, to be stored.
    pub fn take_unsaved(&mut self) -> Vec<Profile> {
        let unsaved = |k: &mut Known| std::mem::take(&mut k.unsaved).then(|| k.profile.clone());
        self.known.values_mut().filter_map(unsaved).collect()
    }

    /// Says that these could not be stored after all.
    pub fn not_saved(&mut self, profiles: &[Profile]) {
        for profile in profiles {
            if let Some(known) = self.known.get_mut(&profile.key) {
                known.unsaved = true;
            }
        }
    }

    /// A profile.
    pub fn profile(&self, key: &ProfileKey) -> Option<&Profile> {
        self.known.get(key).map(|k| &k.profile)
    }

    fn make_room(&mut self) -> Vec<ProfileKey> {
        let surplus = self.known.len().saturating_sub(MOST_PROFILES);
        if surplus == 0 {
            return Vec::new();
        }
        let stored = self.known.iter().filter(|(_, k)| !k.unsaved);
        let mut oldest: Vec<(UnixTime, ProfileKey)> =
            stored.map(|(key, k)| (k.used_at, key.clone())).collect();
        oldest.sort();
        let given_up: Vec<ProfileKey> = oldest.into_iter().take(surplus).map(|(_, key)| key).collect();
        given_up.iter().for_each(|key| drop(self.known.remove(key)));
        given_up
    }

    /// Gives up a profile that the store refuses.
    pub fn drop_profile(&mut self, key: &ProfileKey) {
        self.known.remove(key);
    }

    /// Profiles of one user.
    fn of_user<'a>(&'a self, user: &'a str) -> impl Iterator<Item = (&'a ProfileKey, &'a Known)> {
        let first = ProfileKey {
            user: user.to_owned(),
            name: String::new(),
            node_type: NodeType::new(""),
            exec_plan: ExecPlan(String::new()),
            batch: BatchMode::Auto,
        };
        self.known.range(first..).take_while(move |(key, _)| key.user == user)
    }

    /// The profile of a user's last job of this name: what a job that waits most likely is.
    pub fn last_of<'a>(&'a self, user: &'a str, job_name: &str) -> Option<&'a ProfileKey> {
        let alike = self.of_user(user).filter(|(_, k)| k.profile.job_name == job_name);
        alike.max_by_key(|(_, k)| k.profile.updated_at).map(|(key, _)| key)
    }

    /// Notes under which name Slurm knows the jobs of a profile.
    pub fn set_job_name(&mut self, key: &ProfileKey, job_name: &str) {
        if let Some(known) = self.known.get_mut(key).filter(|k| k.profile.job_name != job_name) {
            job_name.clone_into(&mut known.profile.job_name);
            known.unsaved = true;
        }
    }

    /// Takes in progress of a job's worker.
    pub fn progress(&mut self, job: JobId, key: &ProfileKey, progress: &Progress<'_>, now: UnixTime) -> News {
        let watch = self.watches.entry(job).or_default();
        let mut news = News::default();
        if progress.generation < watch.generation {
            return news;
        }
        if progress.generation > watch.generation {
            let before = if watch.any { watch.nodes } else { 0 };
            let last = watch.meter.finish().map(|s| (watch.nodes, watch.key.clone(), s));
            *watch = Watch {
                generation: progress.generation,
                nodes: progress.nodes,
                before,
                any: true,
                key: Some(key.clone()),
                ..Watch::default()
            };
            if let Some((nodes, Some(key), stretch)) = last {
                self.measured(job, &key, nodes, &stretch, now, &mut news);
            }
        }
        self.arrived(job, progress.nodes, now);
        let Some(watch) = self.watches.get_mut(&job) else { return news };
        match progress.opening {
            Some(opening) => watch.opening = watch.opening.or(Some(opening)),
            None => {
                let stretch = watch.meter.add(progress.node, progress.samples, progress.secs, progress.step);
                if let Some(stretch) = stretch {
                    self.measured(job, key, progress.nodes, &stretch, now, &mut news);
                }
            }
        }
        news.probed |= self.end_overdue_probe(job, now);
        news
    }

    /// The job's generation has ended or was interrupted: what was measured of it counts, to the profile that
    /// is returned.
    pub fn interrupted(&mut self, job: JobId, now: UnixTime) -> Option<(ProfileKey, News)> {
        let watch = self.watches.get_mut(&job)?;
        let (key, nodes, stretch) = (watch.key.clone()?, watch.nodes, watch.meter.finish()?);
        let mut news = News::default();
        self.measured(job, &key, nodes, &stretch, now, &mut news);
        Some((key, news))
    }

    /// Forgets a job that has ended.
    pub fn ended(&mut self, job: JobId) {
        self.watches.remove(&job);
        self.thoughts.remove(&job);
        self.probed_at.remove(&job);
        self.probes.remove(&job);
    }

    fn measured(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        nodes: u32,
        stretch: &Stretch,
        now: UnixTime,
        news: &mut News,
    ) {
        let fresh = || Known::new(Profile::new(key.clone()), now);
        let new_job = self.watches.get(&job).is_some_and(|w| w.generation == 1) && stretch.first;
        let known = self.known.entry(key.clone()).or_insert_with(fresh);
        let learned = learn(&mut known.profile, &mut known.doubts, nodes, stretch, now);
        known.profile.jobs += u32::from(new_job);
        known.profile.updated_at = now;
        (known.unsaved, known.used_at) = (true, now);
        if let Learned::Drifted(factor) = learned {
            known.refill(self.settings.max_probes, factor, now);
            news.drift = Some(factor);
        }
        if stretch.first {
            self.learn_cost(job, key, stretch);
        }
        news.stretch = Some((nodes, *stretch));
        news.probe = self.probe_of(job) == Some(nodes);
        news.probed |= self.end_probe_at(job, nodes, now);
    }

    /// What the change to this generation cost, now that its steady rate is known.
    fn learn_cost(&mut self, job: JobId, key: &ProfileKey, stretch: &Stretch) {
        let Some(watch) = self.watches.get_mut(&job) else { return };
        let Some(opening) = watch.opening.take().filter(|o| o.counts) else { return };
        // After a start of the daemon nobody knows what was before.
        if opening.stop_secs.is_some() && watch.before == 0 {
            return;
        }
        let Some(known) = self.known.get_mut(key) else { return };
        let stopped = opening.stop_secs.unwrap_or(0.0);
        let saved = opening.saved_secs.unwrap_or(0.0).min(stopped);
        let share = 1.0 / watch.meter.workers().max(1) as f64;
        // What was done meanwhile would have been done at the steady rate in less time.
        let useful = opening.samples / (stretch.rate.rate * share);
        let cost = ChangeCost {
            checkpoint_secs: saved,
            exit_secs: stopped - saved,
            start_secs: opening.idle_secs + (opening.start_secs - useful).max(0.0),
            warmup_secs: stretch.rate.warmup_lost_secs,
            count: 1,
        };
        let all = &mut known.profile.costs;
        let mean = match (opening.stop_secs, watch.nodes.cmp(&watch.before)) {
            (None, _) => &mut all.start,
            (Some(_), std::cmp::Ordering::Greater) => &mut all.up,
            // Also a change of nodes at the same size.
            (Some(_), _) => &mut all.down,
        };
        costs::learn(mean, &cost);
    }

    /// Everything that is known of a job's scaling: measured, declared, and of its likes.
    fn evidence(&self, subject: &Subject, node_type: &NodeType) -> Vec<SizePoint> {
        let key = ProfileKey { node_type: node_type.clone(), ..subject.key.clone() };
        let mut points = self.known.get(&key).map(|k| k.profile.points.clone()).unwrap_or_default();
        let others = subject.declared.as_ref().map(|curve| declared_points(curve, &subject.sizes));
        for more in others.into_iter().chain(self.likes(&key)) {
            let (factor, misfit) = scale(&points, &more, subject.sizes.max());
            let missing: Vec<SizePoint> = more
                .into_iter()
                .filter(|m| points.iter().all(|p| p.nodes != m.nodes))
                .map(|m| SizePoint { rate: m.rate * factor, error: m.error.hypot(misfit), ..m })
                .collect();
            points.extend(missing);
        }
        points
    }

    /// Points of profiles that are alike: other node types first, then other users, each with what it is
    /// doubted by.
    fn likes(&self, key: &ProfileKey) -> Option<Vec<SizePoint>> {
        let same = |k: &ProfileKey| k.name == key.name && k.exec_plan == key.exec_plan && k != key;
        let doubted = |known: &Known, error: f64| {
            known.profile.points.iter().map(|p| SizePoint { error: p.error.hypot(error), ..*p }).collect()
        };
        let measured = |(k, known): &(&ProfileKey, &Known)| same(k) && !known.profile.points.is_empty();
        let updated = |(_, known): &(&ProfileKey, &Known)| known.profile.updated_at;
        let own = self.of_user(&key.user).filter(measured).max_by_key(updated);
        let others = || {
            let others =
                self.known.iter().filter(|(k, _)| self.settings.share_profiles && k.user != key.user);
            others.filter(measured).max_by_key(updated)
        };
        let own = own.map(|(_, known)| doubted(known, OTHER_TYPE_ERROR));
        own.or_else(|| others().map(|(_, known)| doubted(known, OTHER_USER_ERROR)))
    }

    /// What is believed of a job's scaling on a node type; `None` when nothing is known.
    pub fn fitted(&self, subject: &Subject, node_type: &NodeType) -> Option<Fitted> {
        let key = ProfileKey { node_type: node_type.clone(), ..subject.key.clone() };
        let mode = self.known.get(&key).map_or(key.batch, |k| batch_mode(&k.profile));
        Fitted::new(&self.evidence(subject, node_type), mode, subject.sizes.max())
    }

    /// The job's rates for the planner, one curve a node type of which something is known; the first also
    /// serves for all others. Empty when nothing is known at all.
    pub fn rates(&self, subject: &Subject) -> Vec<RateCurve> {
        let own = self.of_user(&subject.key.user).filter(|(k, _)| k.name == subject.key.name);
        let mut types: BTreeSet<NodeType> = own.map(|(k, _)| k.node_type.clone()).collect();
        types.remove(&subject.key.node_type);
        let mut rates = Vec::new();
        for (i, node_type) in std::iter::once(&subject.key.node_type).chain(&types).enumerate() {
            let Some(curve) = self.fitted(subject, node_type).and_then(|f| curve(&f, &subject.sizes)) else {
                continue;
            };
            let exec_plan = ExecPlan::default();
            rates.push(RateCurve {
                exec_plan: exec_plan.clone(),
                node_type: Some(node_type.clone()),
                curve: curve.clone(),
            });
            if i == 0 {
                rates.push(RateCurve { exec_plan, node_type: None, curve });
            }
        }
        rates
    }

    /// What the job's rescales cost: measured where it was, else `otherwise`.
    pub fn costs(&self, key: &ProfileKey, otherwise: &RescaleCosts) -> RescaleCosts {
        self.known.get(key).map_or(*otherwise, |k| costs::believed(&k.profile.costs, otherwise))
    }

    /// The size that the job shall be brought to, to measure it.
    pub fn probe_of(&self, job: JobId) -> Option<u32> {
        self.probes.get(&job).map(|p| p.nodes)
    }

    /// Whether the job tries sizes, or did so until a moment ago: then its last change says nothing against
    /// another.
    pub fn is_probing(&self, job: JobId, now: UnixTime) -> bool {
        let lately = |at: &UnixTime| age(now, *at) < ARRIVAL_SECS;
        self.probes.contains_key(&job) || self.probed_at.get(&job).is_some_and(lately)
    }

    /// What the advisor thinks of a job, for people.
    pub fn thought(&self, job: JobId) -> &str {
        self.thoughts.get(&job).map_or("", String::as_str)
    }

    /// One round: notes the supply of nodes, gives up probes that come to nothing, and begins new ones.
    /// `usable`: nodes that malleable jobs hold or could; `free`: those that none holds.
    pub fn round(&mut self, subjects: &[Subject], usable: u32, free: u32, may_probe: bool, now: UnixTime) {
        self.supplies.push_back(usable);
        if self.supplies.len() > SUPPLIES_REMEMBERED {
            self.supplies.pop_front();
        }
        let jobs: BTreeSet<JobId> = subjects.iter().map(|s| s.job).collect();
        self.probes.retain(|job, _| jobs.contains(job));
        self.give_up_probes(now);
        self.use_secs = self.prospects(subjects);
        let mut free = free;
        for subject in subjects {
            let present = subject.running.unwrap_or(0);
            let thought = self.consider(subject, free, may_probe, now);
            // What one probe needs is not free for another.
            free = free.saturating_sub(self.probe_of(subject.job).map_or(0, |n| n.saturating_sub(present)));
            self.thoughts.insert(subject.job, thought);
        }
    }

    /// Begins a probe of a job, if one is worth it; says why or why not.
    fn consider(&mut self, subject: &Subject, free: u32, may_probe: bool, now: UnixTime) -> String {
        if let Some(probe) = self.probes.get(&subject.job) {
            return match probe.since {
                Some(since) => format!("measures {} nodes for {} s", probe.nodes, now.secs_since(since)),
                None => format!("is on its way to {} nodes, to measure them", probe.nodes),
            };
        }
        let Some(present) = subject.running else { return self.summary(subject) };
        let points = self.profile(&subject.key).map(|p| p.points.clone()).unwrap_or_default();
        let is_measured = |n: u32| points.iter().any(|p| p.nodes == n && p.error <= MEASURED);
        if !is_measured(present) {
            return match self.watches.get(&subject.job).is_some_and(|w| w.any) {
                true => format!("measures its present {present} nodes"),
                false => "reports no progress, so nothing can be learned".to_owned(),
            };
        }
        if let Some(why) = self.no_probe(subject, may_probe) {
            return format!("{}; no probe: {why}", self.summary(subject));
        }
        let reachable = |n: &u32| *n <= present + free;
        let declined = |n: &u32| self.declined.contains_key(&(subject.key.clone(), *n));
        let Some(fitted) = self.fitted(subject, &subject.key.node_type) else { return String::new() };
        let stakes = self.stakes(subject, present, fitted.points());
        let triable = stakes.sizes.iter().copied();
        let triable: Vec<u32> =
            triable.filter(|n| !is_measured(*n)).filter(reachable).filter(|n| !declined(n)).collect();
        match best_probe(&fitted, &Stakes { triable, ..stakes }) {
            Some(candidate) => {
                let nodes = candidate.nodes;
                let changes = subject.costs.up_secs.max(subject.costs.down_secs);
                let arrival_secs = ARRIVAL_SECS + 2.0 * changes;
                let key = subject.key.clone();
                let probe = Probe { key, nodes, chosen_at: now, arrival_secs, since: None };
                self.probes.insert(subject.job, probe);
                format!("tries {nodes} nodes: worth {:.0} samples for {:.0}", candidate.gain, candidate.cost)
            }
            None => format!("{}; no probe: none is worth its cost", self.summary(subject)),
        }
    }

    /// Why no probe may begin, if so.
    fn no_probe(&self, subject: &Subject, may_probe: bool) -> Option<&'static str> {
        let profile = self.profile(&subject.key)?;
        if !may_probe {
            Some("nothing may grow now")
        } else if profile.probes >= self.settings.max_probes {
            Some("as many sizes were tried as may be")
        } else if profile.probe_secs + USUAL_PROBE_SECS > self.settings.max_probe_secs {
            Some("as long was tried as may be")
        } else if self.probes.values().any(|p| p.key == subject.key) {
            Some("another job of the same kind tries a size")
        } else if self.probes.len() >= self.settings.max_at_once as usize {
            Some("enough other jobs try sizes")
        } else if self.spent.iter().map(|(_, secs)| secs).sum::<f64>() >= self.settings.max_secs_an_hour {
            Some("in this hour enough was tried")
        } else {
            None
        }
    }

    fn summary(&self, subject: &Subject) -> String {
        let measured = self.profile(&subject.key).map_or(0, |p| p.points.len());
        match (measured, &subject.declared, self.likes(&subject.key)) {
            (0, Some(_), _) => "counts on the declared curve".to_owned(),
            (0, None, Some(_)) => "counts on what is known of its likes".to_owned(),
            (0, None, None) => "knows nothing yet".to_owned(),
            (1, ..) => "knows 1 size".to_owned(),
            (n, ..) => format!("knows {n} sizes"),
        }
    }

    /// For how long what is learned now of a program of these users will be of use.
    fn prospects(&self, subjects: &[Subject]) -> BTreeMap<String, f64> {
        let programs: BTreeSet<&ProfileKey> = subjects.iter().map(|s| &s.key).collect();
        let users: BTreeSet<&String> = programs.iter().map(|key| &key.user).collect();
        let prospect = |user: &String| {
            let mut prospect = Prospect::default();
            for (key, known) in self.of_user(user) {
                prospect.add(&known.profile, programs.contains(key));
            }
            (user.clone(), prospect.use_secs(self.settings.horizon_secs))
        };
        users.into_iter().map(prospect).collect()
    }

    fn stakes(&self, subject: &Subject, present: u32, measured: &[SizePoint]) -> Stakes {
        let sizes = thinned(sizes_of_interest(&subject.sizes, measured), present);
        let mut seen: Vec<u32> = self.supplies.iter().copied().collect();
        seen.sort_unstable();
        let quantile = |q: f64| seen.get(((seen.len().max(1) - 1) as f64 * q).round() as usize).copied();
        let usual = SUPPLY_QUANTILES.iter().filter_map(|q| quantile(*q));
        let usual: Vec<u32> = usual.collect();
        let shares = |of: &[u32]| {
            let share = 0.5 / of.len().max(1) as f64;
            of.iter().map(|n| (*n, share)).collect::<Vec<_>>()
        };
        // What the main queue leaves is one thing, what other jobs leave of that another: any size may be the
        // largest.
        let supplies = [shares(&usual), shares(&sizes)].concat();
        Stakes {
            triable: Vec::new(),
            sizes,
            supplies,
            present,
            horizon_secs: self.use_secs.get(&subject.key.user).copied().unwrap_or(self.settings.horizon_secs),
            probe_secs: USUAL_PROBE_SECS,
            costs: subject.costs,
        }
    }

    /// Notes that the job reports at the size that shall be tried.
    fn arrived(&mut self, job: JobId, nodes: u32, now: UnixTime) {
        let Some(probe) = self.probes.get_mut(&job).filter(|p| p.nodes == nodes && p.since.is_none()) else {
            return;
        };
        probe.since = Some(now);
    }

    fn end_probe_at(&mut self, job: JobId, nodes: u32, now: UnixTime) -> bool {
        let there = self.probes.get(&job).is_some_and(|p| p.nodes == nodes && p.since.is_some());
        there && self.end_probe(job, now)
    }

    fn end_overdue_probe(&mut self, job: JobId, now: UnixTime) -> bool {
        let over = self.probes.get(&job).is_some_and(|p| p.since.is_some() && p.is_late(now));
        over && self.decline_probe(job, now)
    }

    /// Ends a probe; a try is a try, whatever came of it.
    fn end_probe(&mut self, job: JobId, now: UnixTime) -> bool {
        let Some(probe) = self.probes.remove(&job) else { return false };
        self.probed_at.insert(job, now);
        let secs = probe.since.map_or(0.0, |since| now.secs_since(since).clamp(0.0, LONGEST_PROBE_SECS));
        self.spent.push_back((now, secs));
        if let Some(known) = self.known.get_mut(&probe.key) {
            known.profile.probes += 1;
            known.profile.probe_secs += secs;
            known.unsaved = true;
        }
        true
    }

    /// Ends a probe of which nothing came, and leaves its size alone for a while.
    fn decline_probe(&mut self, job: JobId, now: UnixTime) -> bool {
        if let Some(probe) = self.probes.get(&job) {
            self.declined.insert((probe.key.clone(), probe.nodes), now);
        }
        self.end_probe(job, now)
    }

    /// Ends probes that the planner does not come to, or that were interrupted.
    fn give_up_probes(&mut self, now: UnixTime) {
        self.declined.retain(|_, at| age(now, *at) < DECLINED_SECS);
        self.spent.retain(|(at, _)| age(now, *at) < BUDGET_SECS);
        let late: Vec<JobId> =
            self.probes.iter().filter(|(_, p)| p.is_late(now)).map(|(job, _)| *job).collect();
        for job in late {
            self.decline_probe(job, now);
        }
    }
}

impl Probe {
    fn is_late(&self, now: UnixTime) -> bool {
        match self.since {
            Some(since) => age(now, since) > LONGEST_PROBE_SECS,
            None => age(now, self.chosen_at) > self.arrival_secs,
        }
    }
}

/// The curve over all sizes of interest.
fn curve(fitted: &Fitted, sizes: &Sizes) -> Option<Curve> {
    fitted.curve(&sizes_of_interest(sizes, fitted.points()))
}

/// What a declared curve says of the sizes that it names, within the allowed ones.
fn declared_points(curve: &Curve, sizes: &Sizes) -> Vec<SizePoint> {
    let named = curve.points().iter().map(|p| p.nodes).filter(|n| !curve.is_default() && *n <= sizes.max());
    let point = |nodes| SizePoint {
        nodes,
        rate: curve.rate(nodes),
        error: DECLARED_ERROR,
        secs: 0.0,
        step_samples: None,
        at: UnixTime::default(),
    };
    named.map(point).collect()
}

/// The factor that brings `other` to the level of what was measured, for it may count in another unit; and by
/// how much, relatively, it then still misses it.
fn scale(measured: &[SizePoint], other: &[SizePoint], largest: u32) -> (f64, f64) {
    let fitted = Fitted::new(other, BatchMode::Auto, largest);
    let Some(fitted) = fitted.filter(|_| !measured.is_empty()) else { return (1.0, 0.0) };
    let n = measured.len() as f64;
    let logs: Vec<f64> = measured.iter().map(|p| (p.rate / fitted.at(p.nodes).rate).ln()).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let misfit = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean.exp(), misfit)
}

/// At most [`MOST_SIZES`] of these, spread evenly, the present one among them.
fn thinned(sizes: Vec<u32>, present: u32) -> Vec<u32> {
    let every = sizes.len().div_ceil(MOST_SIZES).max(1);
    let last = sizes.len().saturating_sub(1);
    let powers = |n: u32| n.is_power_of_two();
    let keep = |i: usize, n: u32| {
        every == 1 || i == 0 || i == last || n == present || powers(n) || i.is_multiple_of(2 * every)
    };
    sizes.into_iter().enumerate().filter(|(i, n)| keep(*i, *n)).map(|(_, n)| n).collect()
}
