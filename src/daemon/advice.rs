//! What the daemon brings to the advisor, and takes from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::advisor::{Library, News, Opening, Progress, Subject};
use crate::api::{AgentEvent, Opening as Told};
use crate::generation::{Machine, Phase};
use crate::model::{
    ExecPlan, JobId, MalleableState, NodeName, NodeType, Profile, ProfileFilter, ProfileKey, RescaleCosts,
    Standing, UnixTime,
};
use crate::store::{Measurement, StoreError};

use super::books::MAX_WAITING_ROWS;
use super::world::{About, World};
use super::{Context, now};

/// Seconds of measuring that make one row of history.
const ROW_SECS: f64 = 60.0;

/// Most profiles of a user, or of a name, that are taken into memory: the last changed ones.
const MOST_PROFILES_A_LOOKUP: u32 = 1000;

/// Most users and names of which it is remembered that their profiles were read.
const MOST_LOOKUPS_REMEMBERED: usize = 10_000;

/// Most users and names whose profiles are read in one round: after a start all come at once.
const MOST_LOOKUPS_A_ROUND: usize = 20;

/// Most samples that one report may claim: a second of the fastest program that could be.
const MAX_SAMPLES: f64 = 1e15;

/// Measurements of a job that are not a row yet.
#[derive(Clone, Debug)]
pub struct OpenRow {
    row: Measurement,
}

/// Reads the stored profiles that may concern jobs which have come since the last round.
pub async fn load(context: &Context) {
    let filters = {
        let world = context.world.lock();
        // Asking a store that is away takes time, and the round waits.
        if world.problems.contains_key("store") {
            return;
        }
        world.profiles_to_load()
    };
    for filter in filters.into_iter().take(MOST_LOOKUPS_A_ROUND) {
        match context.store.profiles(&filter, MOST_PROFILES_A_LOOKUP).await {
            Ok(profiles) => context.world.lock().load_profiles(filter, profiles, now()),
            // Tried again in the next round.
            Err(e) => return super::executor::store_failed(context, &e),
        }
    }
}

/// Stores the profiles that have changed.
pub async fn save(context: &Context) {
    // Whoever deletes or replaces profiles meanwhile would get the old ones back.
    let _turn = context.saving.lock().await;
    let unsaved = context.world.lock().library.take_unsaved();
    if unsaved.is_empty() {
        return;
    }
    match context.store.put_profiles(&unsaved).await {
        Ok(()) => {}
        Err(StoreError::Corrupt { .. }) => save_each(context, &unsaved).await,
        Err(e) => {
            context.world.lock().library.not_saved(&unsaved);
            super::executor::store_failed(context, &e);
        }
    }
}

/// Stores profiles one by one: what the store will never take is given up, so that it holds up nothing else.
async fn save_each(context: &Context, profiles: &[Profile]) {
    for (i, profile) in profiles.iter().enumerate() {
        match context.store.put_profiles(std::slice::from_ref(profile)).await {
            Ok(()) => {}
            Err(e @ StoreError::Corrupt { .. }) => {
                tracing::error!(profile = ?profile.key, "a profile is given up, for the store refuses it: {e}");
                context.world.lock().library.drop_profile(&profile.key);
            }
            Err(e) => {
                context.world.lock().library.not_saved(&profiles[i..]);
                return super::executor::store_failed(context, &e);
            }
        }
    }
}

impl World {
    /// Takes in what a worker tells of its progress. Says whether the planner should look at once.
    pub(super) fn progress(
        &mut self,
        lead: JobId,
        node: &NodeName,
        event: &AgentEvent,
        now: UnixTime,
    ) -> bool {
        let AgentEvent::Progress { generation, samples, secs, step, loss, opening } = event else {
            return false;
        };
        let sound = (0.0..=MAX_SAMPLES).contains(samples) && secs.is_finite() && *secs > 0.0;
        if !sound || !self.machines.contains_key(&lead) {
            return false;
        }
        let Some(about) = self.about.get_mut(&lead) else { return false };
        about.samples = (about.samples + samples).min(f64::MAX);
        about.step = step.or(about.step).max(about.step);
        about.loss = loss.filter(|l| l.is_finite()).or(about.loss);
        if opening.is_none() {
            about.rates.insert(node.clone(), samples / secs);
        }
        let Some(machine) = self.machines.get(&lead) else { return false };
        let Phase::Running { members } = &machine.phase else { return false };
        if *generation != machine.generation.number {
            return false;
        }
        // What a change cost is told by the lead, which sees it whole.
        if opening.is_some() && machine.lead_node() != Some(node) {
            return false;
        }
        let opening = opening.as_ref().map(|told| {
            let launched_secs = about.launched_at.take().map(|t| now.secs_since(t) - secs);
            begun(told, *samples, *secs, launched_secs)
        });
        let nodes = members.len() as u32;
        let progress = Progress {
            generation: *generation,
            nodes,
            node,
            samples: *samples,
            secs: *secs,
            step: *step,
            opening,
        };
        let key = self.key_of(lead);
        // Just started: no snapshot has shown the node yet, or the store has not told what is known of such
        // jobs.
        if key.node_type.as_str().is_empty() || !self.loaded_profiles.contains(&own(&key)) {
            return false;
        }
        let news = self.library.progress(lead, &key, &progress, now);
        self.take_news(lead, &key, news, now)
    }

    /// After a step of a job that `ran` before it: what was measured of a generation that was interrupted
    /// counts, and a job that has ended is measured no more.
    pub(super) fn stop_measuring(&mut self, job: JobId, ran: bool, now: UnixTime) {
        let Some(phase) = self.machines.get(&job).map(|m| m.phase.clone()) else { return };
        if ran && !matches!(phase, Phase::Running { .. }) {
            if let Some((key, news)) = self.library.interrupted(job, now) {
                let _ = self.take_news(job, &key, news, now);
            }
            self.close_row(job);
        }
        if phase == Phase::Ended {
            self.library.ended(job);
        }
    }

    fn take_news(&mut self, job: JobId, key: &ProfileKey, news: News, now: UnixTime) -> bool {
        if let Some(factor) = news.drift {
            tracing::info!(job = %job, profile = key.name, "runs at {factor:.2} times its old speed now");
        }
        if let Some((nodes, stretch)) = news.stretch {
            tracing::debug!(job = %job, nodes, rate = stretch.rate.rate, error = stretch.rate.error, "measured");
            let (samples, secs) = (stretch.samples, stretch.secs);
            let probe = news.probe;
            self.add_row(Measurement { key: key.clone(), job, nodes, samples, secs, probe, at: now });
            let name = self.about.get(&job).map(|a| a.name.clone()).unwrap_or_default();
            self.library.set_job_name(key, &name);
        }
        news.probed || news.drift.is_some()
    }

    fn add_row(&mut self, new: Measurement) {
        let job = new.job;
        let alike = |r: &Measurement| r.key == new.key && r.nodes == new.nodes && r.probe == new.probe;
        match self.open_rows.get_mut(&job).filter(|open| alike(&open.row)) {
            Some(open) => {
                open.row.samples += new.samples;
                open.row.secs += new.secs;
                open.row.at = new.at;
            }
            None => {
                self.close_row(job);
                self.open_rows.insert(job, OpenRow { row: new });
            }
        }
        if self.open_rows.get(&job).is_some_and(|open| open.row.secs >= ROW_SECS) {
            self.close_row(job);
        }
    }

    fn close_row(&mut self, job: JobId) {
        let Some(open) = self.open_rows.remove(&job) else { return };
        if self.measurements.len() >= MAX_WAITING_ROWS {
            self.measurements.pop_front();
            self.lose("measurements", 1);
        }
        self.measurements.push_back(open.row);
    }

    /// The signature of what a job runs. While it has told nothing, that of the last job of its name.
    pub(super) fn key_of(&self, job: JobId) -> ProfileKey {
        let machine = self.machines.get(&job);
        let node_type = machine.and_then(|m| self.type_of(m)).unwrap_or_else(|| NodeType::new(""));
        key(machine, self.about.get(&job), node_type, &self.library)
    }

    /// The node type that the job runs on; for one that waits, the one of most gaps.
    fn type_of(&self, machine: &Machine) -> Option<NodeType> {
        let snapshot = self.snapshot.as_ref()?;
        let of = |n: &NodeName| snapshot.node(n).map(|n| n.node_type.clone());
        if let Some(node_type) = machine.lead_node().and_then(of) {
            return Some(node_type);
        }
        let mut counts: BTreeMap<NodeType, usize> = BTreeMap::new();
        for gap in &self.gaps.gaps {
            *counts.entry(gap.node_type.clone()).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, n)| *n).map(|(t, _)| t)
    }

    /// All jobs that have not ended, as the advisor sees them.
    pub(super) fn subjects(&self, now: UnixTime) -> Vec<Subject> {
        self.living().map(|machine| self.subject(machine, now)).collect()
    }

    /// The jobs that the advisor and the planner have to do with.
    pub(super) fn living(&self) -> impl Iterator<Item = &Machine> {
        self.machines
            .values()
            .filter(|m| !matches!(m.state(), MalleableState::Ended | MalleableState::Ending))
    }

    /// What the job's rescales cost, by what is known of its profile.
    pub(super) fn costs_of(&self, machine: &Machine, key: &ProfileKey) -> RescaleCosts {
        self.library.costs(key, &machine.spec.costs.unwrap_or(self.config().planner.costs))
    }

    pub(super) fn subject(&self, machine: &Machine, now: UnixTime) -> Subject {
        let key = self.key_of(machine.job);
        let members = match (&machine.phase, machine.standing(now)) {
            (Phase::Running { members }, Standing::Running) => Some(members.len() as u32),
            _ => None,
        };
        let planner = &self.config().planner;
        Subject {
            job: machine.job,
            sizes: machine.allowed().clone(),
            declared: super::demand::declared(machine, self.about.get(&machine.job), planner),
            running: members,
            costs: self.costs_of(machine, &key),
            key,
        }
    }

    /// Lets the advisor look at this round and choose what to try.
    pub(super) fn advise(&mut self, may_grow: bool, now: UnixTime) {
        let subjects = self.subjects(now);
        let usable = self.gaps.gaps.len() as u32;
        let held = self.gaps.gaps.iter().filter(|g| g.holder.is_some()).count() as u32;
        let may_probe = may_grow && self.acting() && self.config().advisor.probe;
        self.library.round(&subjects, usable, usable.saturating_sub(held), may_probe, now);
    }

    /// Which profiles may concern the jobs and are not in memory yet: those of their owners, their own, and,
    /// where they are shared, those of the same name.
    pub(super) fn profiles_to_load(&self) -> Vec<ProfileFilter> {
        let shared = self.config().advisor.share_profiles;
        let keys = self.machines.keys().map(|job| self.key_of(*job)).filter(|key| !key.user.is_empty());
        let wanted = keys.flat_map(|key| {
            let user = ProfileFilter { user: Some(key.user.clone()), ..ProfileFilter::default() };
            let name = ProfileFilter { name: Some(key.name.clone()), ..ProfileFilter::default() };
            let named = !key.name.is_empty();
            [Some(user), named.then(|| own(&key)), (named && shared).then_some(name)].into_iter().flatten()
        });
        let wanted: BTreeSet<ProfileFilter> = wanted.collect();
        wanted.difference(&self.loaded_profiles).cloned().collect()
    }

    /// Takes in the stored profiles that a filter names.
    pub(super) fn load_profiles(&mut self, filter: ProfileFilter, profiles: Vec<Profile>, now: UnixTime) {
        if self.loaded_profiles.len() >= MOST_LOOKUPS_REMEMBERED {
            // Those of living jobs are read again.
            self.loaded_profiles.clear();
        }
        self.loaded_profiles.insert(filter);
        for key in self.library.load(profiles, now) {
            self.loaded_profiles.remove(&own(&key));
        }
    }

    /// Forgets profiles that were deleted from the store, with the measurements that would bring them back
    /// there.
    pub fn forget_profiles(&mut self, filter: &ProfileFilter) {
        self.library.forget(filter);
        self.measurements.retain(|m| !filter.matches(&m.key));
        self.open_rows.retain(|_, open| !filter.matches(&open.row.key));
    }

    /// Takes in profiles that were written to the store.
    pub fn take_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) {
        self.library.replace(profiles, now);
    }
}

/// How a generation came about, with the time of its first report. Of a start the agent has seen only what
/// came after its own; the lead was launched `launched_secs` before the command. Without a launch and a stop
/// before it, the command had failed and was started again.
fn begun(told: &Told, samples: f64, start_secs: f64, launched_secs: Option<f64>) -> Opening {
    let sound = |secs: f64| if secs.is_finite() { secs.max(0.0) } else { 0.0 };
    let idle_secs = match (told.stop_secs, launched_secs) {
        (None, Some(launched)) => told.idle_secs.max(launched),
        _ => told.idle_secs,
    };
    Opening {
        saved_secs: told.saved_secs.map(sound),
        stop_secs: told.stop_secs.map(sound),
        idle_secs: sound(idle_secs),
        start_secs,
        samples,
        counts: told.stop_secs.is_some() || launched_secs.is_some(),
    }
}

/// The profiles of one name and user.
fn own(key: &ProfileKey) -> ProfileFilter {
    ProfileFilter { user: Some(key.user.clone()), name: Some(key.name.clone()), ..ProfileFilter::default() }
}

fn key(
    machine: Option<&Machine>,
    about: Option<&About>,
    node_type: NodeType,
    library: &Library,
) -> ProfileKey {
    let (user, job_name) = about.map_or(("", ""), |a| (a.user.as_str(), a.name.as_str()));
    let spec = machine.map(|m| &m.spec);
    let hash = || spec.map(|s| &s.command_hash).filter(|hash| !hash.is_empty());
    let told = spec.and_then(|s| s.profile.as_ref()).or_else(hash);
    let told = told.map(|name| (name.clone(), spec.map(|s| s.batch).unwrap_or_default()));
    let guessed = || library.last_of(user, job_name).map(|k| (k.name.clone(), k.batch));
    let (name, batch) = told.or_else(guessed).unwrap_or_default();
    ProfileKey { user: user.to_owned(), name, node_type, exec_plan: ExecPlan::default(), batch }
}
