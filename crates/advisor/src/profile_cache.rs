//! The profiles in memory: the measurements of each program, and which changes are not stored yet.

use std::collections::BTreeMap;

use super::crossing_costs::{CrossingCosts, CrossingSlowdown};
use super::job_meters::JobMeasurement;
use super::profile_learning::{DoubtedPoints, LearnOutcome, MeasuredSize, batch_mode, learn_point};
use super::{change_costs, stops};
use infill_model::{
    BatchMode, ExecPlan, GenerationStop, LiveChange, LiveCosts, MeasuredCosts, NodeType, Profile,
    ProfileFilter, ProfileKey, RescaleCosts, RescaleMode, SizePoint, UnixTime,
};

/// Seconds between two drifts that each allow another probe.
const REFILL_SECS: f64 = 3600.0;

/// A drift by less than this (logarithm of its factor) allows no probe: the curve is still nearly right.
const REFILL_DRIFT: f64 = 0.2;

/// Most profiles in memory. Those longest unused go first, once they are stored.
const MOST_PROFILES: usize = 20_000;

/// Most sizes of a profile that are remembered not to fit into memory.
const MOST_UNFIT: usize = 64;

/// A profile in memory, with what is not stored of it.
#[derive(Clone, Debug)]
struct ProfileEntry {
    profile: Profile,
    /// What its points say about the cost of crossing hosts and switches.
    crossings: CrossingCosts,
    doubts: DoubtedPoints,
    unsaved: bool,
    used_at: UnixTime,
    /// When a drift last gave it another probe.
    refilled_at: Option<UnixTime>,
}

impl ProfileEntry {
    fn new(profile: Profile, now: UnixTime) -> Self {
        let crossings = crossing_costs(&profile);
        ProfileEntry {
            profile,
            crossings,
            doubts: DoubtedPoints::new(),
            unsaved: false,
            used_at: now,
            refilled_at: None,
        }
    }
}

fn crossing_costs(profile: &Profile) -> CrossingCosts {
    // The model of execution plans knows by itself how they run on several hosts (see `program_models`).
    let of_hosts = profile.key.exec_plan == ExecPlan::default();
    CrossingCosts::from_points(&profile.points, batch_mode(profile), of_hosts)
}

/// All profiles in memory, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfileCache {
    entries: BTreeMap<ProfileKey, ProfileEntry>,
}

impl ProfileCache {
    /// Takes in stored profiles. Profiles in memory are newer and stay. Returns the keys that it dropped
    /// because there were too many.
    pub(super) fn load(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        for profile in profiles {
            self.entries.entry(profile.key.clone()).or_insert(ProfileEntry::new(profile, now));
        }
        self.drop_surplus()
    }

    /// Drops the stored profiles that have been unused for longest, if there are too many.
    fn drop_surplus(&mut self) -> Vec<ProfileKey> {
        let surplus = self.entries.len().saturating_sub(MOST_PROFILES);
        if surplus == 0 {
            return Vec::new();
        }
        let stored = self.entries.iter().filter(|(_, entry)| !entry.unsaved);
        let mut oldest: Vec<(UnixTime, ProfileKey)> =
            stored.map(|(key, entry)| (entry.used_at, key.clone())).collect();
        oldest.sort();
        let dropped: Vec<ProfileKey> = oldest.into_iter().take(surplus).map(|(_, key)| key).collect();
        dropped.iter().for_each(|key| self.drop_profile(key));
        dropped
    }

    /// Takes in profiles that replace those in memory. Returns the keys that it dropped because there were
    /// too many.
    pub(super) fn replace(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        for profile in profiles {
            self.entries.insert(profile.key.clone(), ProfileEntry::new(profile, now));
        }
        self.drop_surplus()
    }

    /// Forgets the profiles that a filter selects.
    pub(super) fn forget_matching(&mut self, filter: &ProfileFilter) {
        self.entries.retain(|key, _| !filter.matches_key(key));
    }

    /// Drops a profile.
    pub(super) fn drop_profile(&mut self, key: &ProfileKey) {
        self.entries.remove(key);
    }

    /// The profiles that changed since the last call, to be stored.
    pub(super) fn take_unsaved(&mut self) -> Vec<Profile> {
        let mut unsaved = Vec::new();
        for entry in self.entries.values_mut() {
            if std::mem::take(&mut entry.unsaved) {
                unsaved.push(entry.profile.clone());
            }
        }
        unsaved
    }

    /// Marks profiles as changed again, because they could not be stored.
    pub(super) fn mark_unsaved(&mut self, profiles: &[Profile]) {
        for profile in profiles {
            if let Some(entry) = self.entries.get_mut(&profile.key) {
                entry.unsaved = true;
            }
        }
    }

    /// The profile with this key.
    pub(super) fn get(&self, key: &ProfileKey) -> Option<&Profile> {
        self.entries.get(key).map(|entry| &entry.profile)
    }

    /// The measured sizes of a profile.
    pub(super) fn points(&self, key: &ProfileKey) -> &[SizePoint] {
        self.get(key).map_or(&[], |p| &p.points)
    }

    /// The sizes at which programs of a profile do not fit into memory, ascending.
    pub(super) fn unfit_sizes(&self, key: &ProfileKey) -> &[u32] {
        self.get(key).map_or(&[], |p| &p.unfit)
    }

    /// How many times as long a step of a profile takes on several hosts, and on several leaf switches, as on
    /// one.
    pub(super) fn crossing_slowdown(&self, key: &ProfileKey) -> CrossingSlowdown {
        self.entries.get(key).map_or(CrossingSlowdown::NONE, |entry| entry.crossings.crossing_slowdown())
    }

    /// The measured sizes of a profile as they would be on one host, where parts of nodes are lent, and on
    /// one switch.
    pub(super) fn normalized_points(&self, key: &ProfileKey) -> impl Iterator<Item = SizePoint> {
        let entry = self.entries.get(key);
        entry.into_iter().flat_map(|entry| entry.crossings.normalize_points(&entry.profile.points))
    }

    /// How the work of a profile's steps grows with the size.
    pub(super) fn batch_mode(&self, key: &ProfileKey) -> BatchMode {
        self.get(key).map_or(key.batch, batch_mode)
    }

    /// All profiles in memory.
    pub(super) fn all_profiles(&self) -> impl Iterator<Item = &Profile> {
        self.entries.values().map(|entry| &entry.profile)
    }

    /// The profiles of the program of a key, with all its plans on all types.
    pub(super) fn of_program<'a>(&'a self, key: &'a ProfileKey) -> impl Iterator<Item = &'a Profile> + Clone {
        self.of_user(&key.user).filter(|p| p.key.name == key.name && p.key.batch == key.batch)
    }

    /// The profiles of one user.
    pub(super) fn of_user<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a Profile> + Clone {
        let first = ProfileKey {
            user: user.to_owned(),
            name: String::new(),
            node_type: NodeType::new(""),
            exec_plan: ExecPlan(String::new()),
            batch: BatchMode::Auto,
        };
        let own = self.entries.range(first..).take_while(move |(key, _)| key.user == user);
        own.map(|(_, entry)| &entry.profile)
    }

    /// Records the name that Slurm has for the jobs of a profile.
    pub(super) fn set_job_name(&mut self, key: &ProfileKey, job_name: &str) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.profile.job_name != job_name) {
            job_name.clone_into(&mut entry.profile.job_name);
            entry.unsaved = true;
        }
    }

    /// The entry of a profile that changes now. It is created where it is missing.
    fn entry_mut(&mut self, key: &ProfileKey, now: UnixTime) -> &mut ProfileEntry {
        let entry = self
            .entries
            .entry(key.clone())
            .or_insert_with(|| ProfileEntry::new(Profile::new(key.clone()), now));
        entry.profile.updated_at = now;
        entry.unsaved = true;
        entry.used_at = now;
        entry
    }

    /// Takes in a measurement of a job.
    pub(super) fn learn_measurement(&mut self, measured: &JobMeasurement, now: UnixTime) -> LearnOutcome {
        let entry = self.entry_mut(&measured.key, now);
        let profile = &mut entry.profile;
        let JobMeasurement { nodes, hosts, apart, crosses, .. } = *measured;
        let size = MeasuredSize { nodes, hosts, apart, crosses };
        let learned = learn_point(profile, &mut entry.doubts, size, &measured.stretch, now);
        entry.crossings = crossing_costs(profile);
        profile.jobs += u32::from(measured.new_job);
        if let Some(change) = measured.change {
            change_costs::learn_cost(change.mean_mut(&mut profile.costs), &change.cost);
        }
        learned
    }

    /// Takes in that a program of this profile ran out of memory.
    pub(super) fn record_out_of_memory(&mut self, key: &ProfileKey, nodes: u32, now: UnixTime) {
        let unfit = &mut self.entry_mut(key, now).profile.unfit;
        if let Err(at) = unfit.binary_search(&nodes)
            && unfit.len() < MOST_UNFIT
        {
            unfit.insert(at, nodes);
        }
    }

    /// Takes in how a worker of a job of this profile stopped.
    pub(super) fn record_stop(&mut self, key: &ProfileKey, stop: &GenerationStop, now: UnixTime) {
        stops::learn_stop(&mut self.entry_mut(key, now).profile.stops, stop);
    }

    /// Takes in a change of a job of this profile during which its command stayed alive.
    pub(super) fn record_live_change(&mut self, key: &ProfileKey, change: &LiveChange, now: UnixTime) {
        change_costs::learn_live_change(&mut self.entry_mut(key, now).profile.costs, change);
    }

    /// What a profile's rescales cost in this mode: measured where possible, else `defaults`.
    pub(super) fn rescale_costs(
        &self,
        key: &ProfileKey,
        defaults: &(RescaleCosts, LiveCosts),
        mode: RescaleMode,
    ) -> RescaleCosts {
        let unmeasured = MeasuredCosts::default();
        let measured = self.get(key).map_or(&unmeasured, |p| &p.costs);
        let restarts = change_costs::believed_costs(measured, &defaults.0);
        match mode {
            RescaleMode::Restart => restarts,
            RescaleMode::Live => change_costs::believed_live_costs(measured, &restarts, &defaults.1),
        }
    }

    /// Counts a probe that has ended, with any result.
    pub(super) fn count_probe(&mut self, key: &ProfileKey, secs: f64) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.profile.probes += 1;
            entry.profile.probe_secs += secs;
            entry.unsaved = true;
        }
    }

    /// Allows one more probe of `secs` after a drift by `factor`, because the rates of the other sizes are
    /// guesses then. Small drifts, and those soon after another one, allow none.
    pub(super) fn refill_probes(
        &mut self,
        key: &ProfileKey,
        max_probes: u32,
        secs: f64,
        factor: f64,
        now: UnixTime,
    ) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_recent = entry.refilled_at.is_some_and(|at| now.age_of(at) < REFILL_SECS);
        if factor.ln().abs() > REFILL_DRIFT && !is_recent {
            entry.refilled_at = Some(now);
            entry.profile.probes = entry.profile.probes.min(max_probes.saturating_sub(1));
            entry.profile.probe_secs = (entry.profile.probe_secs - secs).max(0.0);
        }
    }
}
