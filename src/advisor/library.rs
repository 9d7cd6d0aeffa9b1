//! What the advisor knows of all jobs and what it wants to try, round by round. The daemon, the simulator and
//! `infill advise` drive the same library.
//!
//! It holds together three parts that know nothing of each other: the meters of running jobs
//! ([`super::watching`]), the profiles that they fill ([`super::profiles`]), and the probes under way
//! ([`super::probing`]).

use std::collections::{BTreeMap, BTreeSet};

use super::belief::Belief;
use super::learn::Learned;
use super::probing::{EndedProbe, LONGEST_PROBE_SECS, Probing};
use super::profiles::Profiles;
use super::prospect::Prospect;
use super::room::Room;
use super::scaling::Fitted;
use super::subject::{News, Progress, Subject};
use super::supply::Supplies;
use super::watching::{Measured, Watching};
use super::worth::{Candidate, Stakes, best_probe};
use crate::config::AdvisorConfig;
use crate::model::malleable::RateCurve;
use crate::model::{
    JobId, LiveChange, LiveCosts, NodeType, Profile, ProfileFilter, ProfileKey, RescaleCosts, SizePoint,
    Stop, UnixTime, Way,
};

/// A size counts as measured when its rate is known so well.
const MEASURED: f64 = 0.05;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Library {
    settings: AdvisorConfig,
    profiles: Profiles,
    watching: Watching,
    probing: Probing,
    supplies: Supplies,
    thoughts: BTreeMap<JobId, String>,
    /// Seconds for which what is learned now of a user's program will be of use.
    use_secs: BTreeMap<String, f64>,
}

/// The profiles.
impl Library {
    /// An empty library within these bounds.
    pub fn new(settings: AdvisorConfig) -> Self {
        Library {
            settings,
            profiles: Profiles::default(),
            watching: Watching::default(),
            probing: Probing::default(),
            supplies: Supplies::default(),
            thoughts: BTreeMap::new(),
            use_secs: BTreeMap::new(),
        }
    }

    /// Takes in stored profiles. What is in memory is newer and stays. Returns what had to be given up for
    /// lack of room: it must be loaded again before it is learned of.
    pub fn load(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        self.profiles.load(profiles, now)
    }

    /// Takes profiles in, in place of what is known.
    pub fn replace(&mut self, profiles: Vec<Profile>, now: UnixTime) {
        self.profiles.replace(profiles, now);
    }

    /// Forgets the profiles that a filter names.
    pub fn forget(&mut self, filter: &ProfileFilter) {
        self.profiles.forget(filter);
    }

    /// Profiles that changed since the last call, to be stored.
    pub fn take_unsaved(&mut self) -> Vec<Profile> {
        self.profiles.take_unsaved()
    }

    /// Says that these could not be stored after all.
    pub fn not_saved(&mut self, profiles: &[Profile]) {
        self.profiles.not_saved(profiles);
    }

    /// Gives up a profile that the store refuses.
    pub fn drop_profile(&mut self, key: &ProfileKey) {
        self.profiles.drop_one(key);
    }

    /// A profile.
    pub fn profile(&self, key: &ProfileKey) -> Option<&Profile> {
        self.profiles.get(key)
    }

    /// The profile of a user's last job of this name: what a job that waits most likely is.
    pub fn last_of<'a>(&'a self, user: &'a str, job_name: &str) -> Option<&'a ProfileKey> {
        let alike = self.profiles.of_user(user).filter(|p| p.job_name == job_name);
        alike.max_by_key(|p| p.updated_at).map(|p| &p.key)
    }

    /// Notes under which name Slurm knows the jobs of a profile.
    pub fn set_job_name(&mut self, key: &ProfileKey, job_name: &str) {
        self.profiles.set_job_name(key, job_name);
    }

    /// What is believed of a job's scaling on a node type; `None` when nothing is known.
    pub fn fitted(&self, subject: &Subject, node_type: &NodeType) -> Option<Fitted> {
        self.belief().fitted(subject, node_type)
    }

    /// The job's rates for the planner, one curve a node type of which something is known; the first also
    /// serves for all others. Empty when nothing is known at all.
    pub fn rates(&self, subject: &Subject) -> Vec<RateCurve> {
        self.belief().rates(subject)
    }

    /// Takes in how a worker of a job of this profile has stopped.
    pub fn stopped(&mut self, key: &ProfileKey, stop: &Stop, now: UnixTime) {
        self.profiles.stopped(key, stop, now);
    }

    /// The last stops of a profile.
    pub fn stops(&self, key: &ProfileKey) -> &[Stop] {
        self.profiles.get(key).map_or(&[], |p| &p.stops)
    }

    /// The last stops of all profiles of a user, or only of those of one name.
    pub fn stops_of<'a>(
        &'a self,
        user: &'a str,
        name: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Stop> + Clone {
        let named = move |p: &&Profile| name.is_none_or(|name| p.key.name == name);
        self.profiles.of_user(user).filter(named).flat_map(|p| &p.stops)
    }

    /// Takes in a change of a job of this profile that its command lived through.
    pub fn lived_through(&mut self, key: &ProfileKey, change: &LiveChange, now: UnixTime) {
        self.profiles.lived_through(key, change, now);
    }

    /// What the job's rescales cost in this way: measured where it was, else `otherwise`.
    pub fn costs(&self, key: &ProfileKey, otherwise: &(RescaleCosts, LiveCosts), way: Way) -> RescaleCosts {
        self.profiles.costs(key, otherwise, way)
    }

    fn belief(&self) -> Belief<'_> {
        Belief { profiles: &self.profiles, share_profiles: self.settings.share_profiles }
    }
}

/// The jobs.
impl Library {
    /// Takes in progress of a job's worker.
    pub fn progress(&mut self, job: JobId, key: &ProfileKey, progress: &Progress<'_>, now: UnixTime) -> News {
        let mut news = News::default();
        if self.watching.is_past(job, progress.generation) {
            return news;
        }
        if let Some(last) = self.watching.begin(job, key, progress) {
            self.measured(job, &last, now, &mut news);
        }
        self.probing.arrived(job, progress.nodes, now);
        if let Some(measured) = self.watching.report(job, key, progress) {
            self.measured(job, &measured, now, &mut news);
        }
        let overdue = self.probing.end_overdue(job, now);
        news.probed |= self.count_probe(overdue);
        news
    }

    /// The job's generation has ended or was interrupted: what was measured of it counts, to the profile that
    /// is returned.
    pub fn interrupted(&mut self, job: JobId, now: UnixTime) -> Option<(ProfileKey, News)> {
        let measured = self.watching.interrupted(job)?;
        let mut news = News::default();
        self.measured(job, &measured, now, &mut news);
        Some((measured.key, news))
    }

    /// Forgets a job that has ended.
    pub fn ended(&mut self, job: JobId) {
        self.watching.ended(job);
        self.probing.ended(job);
        self.thoughts.remove(&job);
    }

    fn measured(&mut self, job: JobId, measured: &Measured, now: UnixTime, news: &mut News) {
        let (key, nodes) = (&measured.key, measured.nodes);
        if let Learned::Drifted(factor) = self.profiles.learn(measured, now) {
            self.profiles.refill(key, self.settings.max_probes, LONGEST_PROBE_SECS, factor, now);
            news.drift = Some(factor);
        }
        news.stretch = Some((nodes, measured.stretch));
        news.probe = self.probe_of(job) == Some(nodes);
        let ended = self.probing.end_at(job, nodes, now);
        news.probed |= self.count_probe(ended);
    }

    /// Counts a probe to its profile, if one is over; says whether.
    fn count_probe(&mut self, ended: Option<EndedProbe>) -> bool {
        let Some(ended) = ended else { return false };
        self.profiles.count_probe(&ended.key, ended.secs);
        true
    }
}

/// The probes.
impl Library {
    /// The size that the job shall be brought to, to measure it.
    pub fn probe_of(&self, job: JobId) -> Option<u32> {
        self.probing.size_of(job)
    }

    /// Whether the job tries sizes, or did so until a moment ago: then its last change says nothing against
    /// another.
    pub fn is_probing(&self, job: JobId, now: UnixTime) -> bool {
        self.probing.is_probing(job, now)
    }

    /// Whether a size of a profile is measured as well as it need be.
    pub fn is_measured(&self, key: &ProfileKey, nodes: u32) -> bool {
        self.profiles.points(key).iter().any(|p| p.nodes == nodes && p.error <= MEASURED)
    }

    /// What the advisor thinks of a job, for people.
    pub fn thought(&self, job: JobId) -> &str {
        self.thoughts.get(&job).map_or("", String::as_str)
    }

    /// One round: notes the supply of nodes, gives up probes that come to nothing, and begins new ones.
    pub fn round(&mut self, subjects: &[Subject], room: Room, may_probe: bool, now: UnixTime) {
        self.supplies.note(&room);
        let jobs: BTreeSet<JobId> = subjects.iter().map(|s| s.job).collect();
        self.probing.retain(|job| jobs.contains(&job));
        for ended in self.probing.give_up_late(now) {
            self.profiles.count_probe(&ended.key, ended.secs);
        }
        self.use_secs = self.prospects(subjects);
        let mut room = room;
        for subject in subjects {
            let present = subject.running.unwrap_or(0);
            let node_type = &subject.key.node_type;
            let thought = self.consider(subject, room.free(node_type), may_probe, now);
            // What one probe needs is not free for another.
            let more = self.probe_of(subject.job).map_or(0, |n| n.saturating_sub(present));
            room.take(node_type, more);
            self.thoughts.insert(subject.job, thought);
        }
    }

    /// Begins a probe of a job, if one is worth it; says why or why not.
    fn consider(&mut self, subject: &Subject, free: u32, may_probe: bool, now: UnixTime) -> String {
        if let Some(words) = self.probing.words(subject.job, now) {
            return words;
        }
        let Some(present) = subject.running else { return self.belief().summary(subject) };
        if !self.is_measured(&subject.key, present) {
            return match self.watching.hears(subject.job) {
                true => format!("measures its present {present} nodes"),
                false => "reports no progress, so nothing can be learned".to_owned(),
            };
        }
        if let Some(why) = self.no_probe(subject, may_probe) {
            return format!("{}; no probe: {why}", self.belief().summary(subject));
        }
        let Some(fitted) = self.fitted(subject, &subject.key.node_type) else { return String::new() };
        match self.best(subject, &fitted, present, free) {
            Some(Candidate { nodes, gain, cost }) => {
                self.probing.begin(subject, nodes, now);
                format!("tries {nodes} nodes: worth {gain:.0} samples for {cost:.0}")
            }
            None => format!("{}; no probe: none is worth its cost", self.belief().summary(subject)),
        }
    }

    /// Why no probe may begin, if so.
    fn no_probe(&self, subject: &Subject, may_probe: bool) -> Option<&'static str> {
        let profile = self.profile(&subject.key)?;
        if may_probe { self.probing.forbidden(profile, &self.settings) } else { Some("nothing may grow now") }
    }

    /// The size that is most worth trying of those that can be reached.
    fn best(&self, subject: &Subject, fitted: &Fitted, present: u32, free: u32) -> Option<Candidate> {
        let key = &subject.key;
        let stakes = self.stakes(subject, present, fitted.points());
        let triable = |n: &u32| {
            *n <= present + free && !self.is_measured(key, *n) && !self.probing.is_declined(key, *n)
        };
        let triable: Vec<u32> = stakes.sizes.iter().copied().filter(triable).collect();
        best_probe(fitted, &Stakes { triable, ..stakes })
    }

    fn stakes(&self, subject: &Subject, present: u32, measured: &[SizePoint]) -> Stakes {
        let use_secs = self.use_secs.get(&subject.key.user).copied();
        self.supplies.stakes(subject, present, measured, use_secs.unwrap_or(self.settings.horizon_secs))
    }

    /// For how long what is learned now of a program of these users will be of use.
    fn prospects(&self, subjects: &[Subject]) -> BTreeMap<String, f64> {
        let programs: BTreeSet<&ProfileKey> = subjects.iter().map(|s| &s.key).collect();
        let users: BTreeSet<&String> = programs.iter().map(|key| &key.user).collect();
        let prospect = |user: &String| {
            let mut prospect = Prospect::default();
            for profile in self.profiles.of_user(user) {
                prospect.add(profile, programs.contains(&profile.key));
            }
            (user.clone(), prospect.use_secs(self.settings.horizon_secs))
        };
        users.into_iter().map(prospect).collect()
    }
}
