//! The profiles in memory: what was measured of each, and which of it is not stored yet.

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

/// A drift by less (the logarithm of its factor) allows none: the curve is still nearly right.
const REFILL_DRIFT: f64 = 0.2;

/// Most profiles kept in memory; those longest unused go first, once they are stored.
const MOST_PROFILES: usize = 20_000;

/// Most sizes of a profile that are remembered not to fit into memory.
const MOST_UNFIT: usize = 64;

/// A profile in memory.
#[derive(Clone, Debug)]
struct ProfileEntry {
    profile: Profile,
    /// What its points tell of what crossing hosts and switches costs.
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
    // What is known of execution plans says by itself what they make on several hosts (see `program`).
    let of_hosts = profile.key.exec_plan == ExecPlan::default();
    CrossingCosts::from_points(&profile.points, batch_mode(profile), of_hosts)
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfileCache {
    known: BTreeMap<ProfileKey, ProfileEntry>,
}

impl ProfileCache {
    /// Takes in stored profiles. What is in memory is newer and stays. Returns what had to be given up for
    /// lack of room.
    pub(super) fn load(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        for profile in profiles {
            self.known.entry(profile.key.clone()).or_insert(ProfileEntry::new(profile, now));
        }
        self.make_room()
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
        given_up.iter().for_each(|key| self.drop_profile(key));
        given_up
    }

    /// Takes profiles in, in place of what is known. Returns what had to be given up for lack of room.
    pub(super) fn replace(&mut self, profiles: Vec<Profile>, now: UnixTime) -> Vec<ProfileKey> {
        for profile in profiles {
            self.known.insert(profile.key.clone(), ProfileEntry::new(profile, now));
        }
        self.make_room()
    }

    /// Forgets the profiles that a filter names.
    pub(super) fn forget_matching(&mut self, filter: &ProfileFilter) {
        self.known.retain(|key, _| !filter.matches_key(key));
    }

    /// Gives one up.
    pub(super) fn drop_profile(&mut self, key: &ProfileKey) {
        self.known.remove(key);
    }

    /// Those that changed since the last call, to be stored.
    pub(super) fn take_unsaved(&mut self) -> Vec<Profile> {
        self.known
            .values_mut()
            .filter_map(|k: &mut ProfileEntry| std::mem::take(&mut k.unsaved).then(|| k.profile.clone()))
            .collect()
    }

    /// Says that these could not be stored after all.
    pub(super) fn mark_unsaved(&mut self, profiles: &[Profile]) {
        for profile in profiles {
            if let Some(known) = self.known.get_mut(&profile.key) {
                known.unsaved = true;
            }
        }
    }

    /// One profile.
    pub(super) fn get(&self, key: &ProfileKey) -> Option<&Profile> {
        self.known.get(key).map(|k| &k.profile)
    }

    /// The measured sizes of a profile.
    pub(super) fn points(&self, key: &ProfileKey) -> &[SizePoint] {
        self.get(key).map_or(&[], |p| &p.points)
    }

    /// Sizes at which programs of a profile do not fit into memory, ascending.
    pub(super) fn unfit_sizes(&self, key: &ProfileKey) -> &[u32] {
        self.get(key).map_or(&[], |p| &p.unfit)
    }

    /// How many times as long a step of a profile takes on several hosts, and leaf switches.
    pub(super) fn crossing_slowdown(&self, key: &ProfileKey) -> CrossingSlowdown {
        self.known.get(key).map_or(CrossingSlowdown::NONE, |k| k.crossings.crossing_slowdown())
    }

    /// The measured sizes of a profile as they would be on one host, where parts of nodes are lent, and
    /// on one switch.
    pub(super) fn normalized_points(&self, key: &ProfileKey) -> impl Iterator<Item = SizePoint> {
        let known = self.known.get(key);
        known.into_iter().flat_map(|k| k.crossings.normalize_points(&k.profile.points))
    }

    /// How the work of a profile's steps grows with the size.
    pub(super) fn batch_mode(&self, key: &ProfileKey) -> BatchMode {
        self.get(key).map_or(key.batch, batch_mode)
    }

    /// All of them.
    pub(super) fn all_profiles(&self) -> impl Iterator<Item = &Profile> {
        self.known.values().map(|k| &k.profile)
    }

    /// Those of the program of a key, with all its plans on all types.
    pub(super) fn of_program<'a>(&'a self, key: &'a ProfileKey) -> impl Iterator<Item = &'a Profile> + Clone {
        self.of_user(&key.user).filter(|p| p.key.name == key.name && p.key.batch == key.batch)
    }

    /// Those of one user.
    pub(super) fn of_user<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a Profile> + Clone {
        let first = ProfileKey {
            user: user.to_owned(),
            name: String::new(),
            node_type: NodeType::new(""),
            exec_plan: ExecPlan(String::new()),
            batch: BatchMode::Auto,
        };
        let from = self.known.range(first..).take_while(move |(key, _)| key.user == user);
        from.map(|(_, k)| &k.profile)
    }

    /// Notes under which name Slurm knows the jobs of a profile.
    pub(super) fn set_job_name(&mut self, key: &ProfileKey, job_name: &str) {
        if let Some(known) = self.known.get_mut(key).filter(|k| k.profile.job_name != job_name) {
            job_name.clone_into(&mut known.profile.job_name);
            known.unsaved = true;
        }
    }

    /// A profile of which something is learned now.
    fn entry_mut(&mut self, key: &ProfileKey, now: UnixTime) -> &mut ProfileEntry {
        let known = self
            .known
            .entry(key.clone())
            .or_insert_with(|| ProfileEntry::new(Profile::new(key.clone()), now));
        (known.profile.updated_at, known.unsaved, known.used_at) = (now, true, now);
        known
    }

    /// Takes in what was measured of a job.
    pub(super) fn learn_measurement(&mut self, measured: &JobMeasurement, now: UnixTime) -> LearnOutcome {
        let known = self.entry_mut(&measured.key, now);
        let profile = &mut known.profile;
        let JobMeasurement { nodes, hosts, apart, crosses, .. } = *measured;
        let size = MeasuredSize { nodes, hosts, apart, crosses };
        let learned = learn_point(profile, &mut known.doubts, size, &measured.stretch, now);
        known.crossings = crossing_costs(profile);
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

    /// Takes in how a worker of a job of this profile has stopped.
    pub(super) fn record_stop(&mut self, key: &ProfileKey, stop: &GenerationStop, now: UnixTime) {
        stops::learn_stop(&mut self.entry_mut(key, now).profile.stops, stop);
    }

    /// Takes in a change of a job of this profile that its command lived through.
    pub(super) fn record_live_change(&mut self, key: &ProfileKey, change: &LiveChange, now: UnixTime) {
        change_costs::learn_live_change(&mut self.entry_mut(key, now).profile.costs, change);
    }

    /// What a profile's rescales cost, in each way: measured where it was, else `otherwise`.
    pub(super) fn rescale_costs(
        &self,
        key: &ProfileKey,
        otherwise: &(RescaleCosts, LiveCosts),
        way: RescaleMode,
    ) -> RescaleCosts {
        let unmeasured = MeasuredCosts::default();
        let measured = self.get(key).map_or(&unmeasured, |p| &p.costs);
        let restarts = change_costs::believed_costs(measured, &otherwise.0);
        match way {
            RescaleMode::Restart => restarts,
            RescaleMode::Live => change_costs::believed_live_costs(measured, &restarts, &otherwise.1),
        }
    }

    /// Notes a probe that is over; a try is a try, whatever came of it.
    pub(super) fn count_probe(&mut self, key: &ProfileKey, secs: f64) {
        if let Some(known) = self.known.get_mut(key) {
            known.profile.probes += 1;
            known.profile.probe_secs += secs;
            known.unsaved = true;
        }
    }

    /// What is guessed of the other sizes after a drift by `factor` may be tried once more, for `secs`, but
    /// not again and again.
    pub(super) fn refill_probes(
        &mut self,
        key: &ProfileKey,
        max_probes: u32,
        secs: f64,
        factor: f64,
        now: UnixTime,
    ) {
        let Some(known) = self.known.get_mut(key) else { return };
        let lately = known.refilled_at.is_some_and(|at| now.age_of(at) < REFILL_SECS);
        if factor.ln().abs() > REFILL_DRIFT && !lately {
            known.refilled_at = Some(now);
            known.profile.probes = known.profile.probes.min(max_probes.saturating_sub(1));
            known.profile.probe_secs = (known.profile.probe_secs - secs).max(0.0);
        }
    }
}
