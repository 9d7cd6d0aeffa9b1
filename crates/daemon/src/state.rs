//! All that the daemon knows, as values behind one lock: the fleet, the scene, what is to be written, what is
//! wrong.
//!
//! What follows from a change of one of them reaches the others in [`State::absorb`], and the outside as
//! [`Errands`], which the [`super::context::Context`] hands on before it lets go of the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Level;

use super::attention::Attention;
use super::chronicle::Chronicle;
use super::health::{Health, Problem, Topic};
use super::ledger::Ledger;
use super::lines::Permit;
use super::lookups::Lookups;
use crate::timeline::{HOLDS_SECS, Hour, NodeUse, Planned};
use infill_advisor::News;
use infill_api::RoundView;
use infill_lifecycle::fleet::{Batch, Ended, Fleet, Gone, Lesson, Measured, Note, Output, Word};
use infill_model::{
    AgentEventKind, ControlState, DaemonMode, Gap, GenerationStop, JobId, LiveChange, NodeName, Profile,
    ProfileFilter, ProfileKey, RoundReport, Snapshot, UnixTime, UserId, WindowEnd, config::Config,
};
use infill_planner::round::{Advice, Question, Scene, Terms};
use infill_store::Measurement;

/// What has to be done outside after a change, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "errands are to be run"]
pub struct Errands {
    /// For the log.
    pub notes: Vec<Note>,
    /// What agents are to be told, and how much of it.
    pub words: Vec<(Vec<Word>, Permit)>,
    /// What is to be done at Slurm, once everything is stored.
    pub batches: Vec<Batch>,
    /// Whether the planner should look soon.
    pub urgent: bool,
}

/// See the module's text.
pub struct State {
    /// The configuration.
    pub config: Arc<Config>,
    /// Malleable jobs.
    pub fleet: Fleet,
    /// What rounds are made of.
    pub scene: Scene,
    /// What is to be written.
    pub ledger: Ledger,
    /// What is wrong.
    pub health: Health,
    /// Which stored profiles are known.
    pub lookups: Lookups,
    /// Order of an administrator.
    pub control: ControlState,
    /// The last trusted snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The last round.
    pub round: Option<RoundView>,
    /// Slurm's and REST's version.
    pub endpoint: Option<(String, String)>,
    /// Start of the daemon.
    pub started_at: UnixTime,
    /// Whether the daemon could have heard what was said.
    pub attention: Attention,
    /// What is recorded for people.
    pub chronicle: Chronicle,
    /// What agents said since the last round, for the metrics; `None`: hello.
    pub heard: BTreeMap<Option<AgentEventKind>, u64>,
}

impl State {
    /// Knows nothing yet.
    pub fn new(config: Arc<Config>, now: UnixTime) -> Self {
        State {
            fleet: Fleet::new(&config),
            scene: Scene::new(config.clone(), now),
            ledger: Ledger::default(),
            health: Health::default(),
            lookups: Lookups::default(),
            control: ControlState::Normal,
            snapshot: None,
            round: None,
            endpoint: None,
            started_at: now,
            attention: Attention::default(),
            chronicle: Chronicle::default(),
            heard: BTreeMap::new(),
            config,
        }
    }

    /// Whether anything may be done at all.
    pub fn acting(&self) -> bool {
        self.config.daemon.mode == DaemonMode::Act
    }

    /// Has the fleet take in a trusted snapshot that was read from `read_at` on.
    pub fn see(&mut self, snapshot: &Snapshot, read_at: UnixTime, now: UnixTime) -> Errands {
        let (out, unclear) = self.fleet.see(snapshot, read_at, now);
        if unclear.is_empty() {
            self.health.clear(Topic::Requests);
        } else {
            self.health.raise(Problem::Requests(unclear));
        }
        let mut errands = self.absorb(out, now);
        errands.notes.extend(self.note_unread(snapshot));
        errands
    }

    /// Takes note of records that Slurm shows and that cannot be read in full. Said once, and shown for as
    /// long as it is so.
    fn note_unread(&mut self, snapshot: &Snapshot) -> Option<Note> {
        let Some(which) = &snapshot.unread else {
            self.health.clear(Topic::Records);
            return None;
        };
        let problem = Problem::Records(which.clone());
        let text = problem.to_string();
        self.health.raise(problem).then_some(Note { level: Level::WARN, job: None, text })
    }

    /// Has the scene take it in, once the fleet has.
    pub fn look(&mut self, snapshot: Snapshot, now: UnixTime) {
        let ended = self.scene.look(&snapshot, &self.fleet.facts(now), self.advice(), now);
        self.ledger.add_gaps(ended);
        if let Some(secs) = self.scene.node_times().start_secs() {
            self.fleet.set_start_secs(secs);
        }
        let (partition, gaps) = (&self.config.slurm.partition, self.scene.gaps());
        let library = self.scene.library();
        let doing = |job| self.fleet.doing(job, library.probe_of(job).is_some());
        let noted = self.chronicle.look(&snapshot, partition, gaps, doing, now);
        self.ledger.add_noted(noted);
        self.snapshot = Some(Arc::new(snapshot));
    }

    /// What nodes were used for, of the hours that the store may not have yet.
    pub(crate) fn recent_hours(&self) -> Vec<Arc<Hour>> {
        self.ledger.hours().cloned().chain(self.chronicle.hour()).collect()
    }

    /// What gaps are planned to be used for after what was `seen`; nothing where that is too long ago to go
    /// on from there.
    pub fn planned(&self, seen: UnixTime, now: UnixTime) -> Vec<Planned> {
        if now.secs_since(seen) > HOLDS_SECS as f64 {
            return Vec::new();
        }
        let planned = |gap: &Gap| {
            let node = gap.node.host();
            let used = gap.holder.map_or(NodeUse::Idle, NodeUse::Job);
            let end = match gap.end {
                WindowEnd::Known { at, .. } => Some(at.max(seen)),
                WindowEnd::Unknown => None,
            };
            let wanted =
                end.map(|end| Planned { node: node.clone(), from: end, to: None, used: NodeUse::Wanted });
            std::iter::once(Planned { node, from: seen, to: end, used })
                .chain(wanted)
                .collect::<Vec<Planned>>()
        };
        self.scene.gaps().gaps.iter().filter(|gap| !gap.node.is_place()).flat_map(planned).collect()
    }

    /// Has everything that goes on stored as it is: the daemon ends.
    pub(crate) fn close_books(&mut self) {
        self.ledger.add_noted(self.chronicle.under_way());
        self.ledger.close_rows();
    }

    fn advice(&self) -> Advice {
        let probes = self.acting() && self.control == ControlState::Normal;
        if probes { Advice::Probe } else { Advice::Watch }
    }

    /// What the planner is to be asked now; `None` before the first trusted snapshot. `trusted`: whether that
    /// snapshot is of this round.
    pub fn question(&self, trusted: bool, now: UnixTime) -> Option<Question> {
        self.snapshot.as_ref()?;
        let terms = Terms {
            may_grow: self.control == ControlState::Normal && !self.health.ails(Topic::Store),
            drain: self.control == ControlState::Draining,
            trusted,
        };
        Some(self.scene.question(&self.fleet.facts(now), terms, now))
    }

    /// Brings what follows from a change of the fleet to where it belongs.
    pub(crate) fn absorb(&mut self, out: Output, now: UnixTime) -> Errands {
        let mut errands = Errands { notes: out.notes, ..Errands::default() };
        for measured in &out.measured {
            errands.urgent |= self.measured(measured, now, &mut errands.notes);
        }
        for job in out.interrupted {
            if let Some((key, news)) = self.scene.library_mut().interrupted(job, now) {
                self.take_news(job, &key, news, now, &mut errands.notes);
            }
            self.ledger.close_row(job);
        }
        for Ended { job, gone } in out.ended {
            gone.iter().for_each(|gone| self.gone(gone, now));
            self.scene.library_mut().ended(job);
        }
        out.stops.iter().for_each(|stopped| self.stopped(stopped, now));
        out.overflowed.iter().for_each(|overflowed| self.overflowed(overflowed, now));
        out.lived_through.iter().for_each(|lived| self.lived_through(lived, now));
        out.arrived.iter().for_each(|(node, secs)| self.scene.arrived(node, *secs));
        for (node, strike) in out.strikes {
            let why = strike.why.clone();
            if self.scene.breaker_mut().strike(&node, strike) {
                let text = format!("{node} is left alone for a while: {why}");
                errands.notes.push(Note { level: Level::WARN, job: None, text });
            }
        }
        out.acquitted.into_iter().for_each(|job| self.scene.breaker_mut().acquit(job));
        for (node, why) in out.trips {
            self.scene.breaker_mut().trip(&node, &why, now);
            let text = format!("{node} {why}: left alone");
            errands.notes.push(Note { level: Level::ERROR, job: None, text });
        }
        self.ledger.add_generations(out.generations);
        self.ledger.mark(out.changed);
        for job in &out.turned {
            let facts = self.fleet.facts_of(*job, now);
            let notice = facts.and_then(|facts| self.scene.warning(&facts)).map(|w| w.to_string());
            self.fleet.set_notice(*job, notice);
        }
        let told = |job: JobId| {
            let permit = if self.ledger.is_stored(job) { Permit::Order } else { Permit::Stop };
            (self.fleet.words(job), permit)
        };
        errands.words = out.turned.into_iter().map(told).collect();
        errands.batches = out.batches;
        if !self.acting() {
            errands.batches.iter_mut().for_each(|b| b.effects.clear());
        }
        errands
    }

    /// Whether something of a job whose lead is on this node may be learned for this signature: as below,
    /// what the store knows of its program must be known first.
    fn is_known(&self, key: &ProfileKey, lead: Option<&NodeName>) -> bool {
        let typed = lead.is_some_and(|node| self.scene.type_at(node).is_some());
        typed && !key.name.is_empty() && self.lookups.covers(key)
    }

    /// Takes in a change that a job's command lived through.
    fn lived_through(&mut self, lived: &Lesson<LiveChange>, now: UnixTime) {
        let key = self.scene.key(&lived.program, lived.lead.as_ref());
        if self.is_known(&key, lived.lead.as_ref()) {
            self.scene.library_mut().lived_through(&key, &lived.what, now);
        }
    }

    /// Takes in that a command ran out of memory.
    fn overflowed(&mut self, overflowed: &Lesson<u32>, now: UnixTime) {
        let key = self.scene.key(&overflowed.program, overflowed.lead.as_ref());
        if self.is_known(&key, overflowed.lead.as_ref()) {
            self.scene.library_mut().overflowed(&key, overflowed.what, now);
        }
    }

    /// Takes in a job that has ended: how long jobs like it will run follows from how long it did.
    fn gone(&mut self, gone: &Gone, now: UnixTime) {
        let (_, unit) = self.scene.ahead(&gone.facts);
        let ended = gone.ended_job(unit, now);
        let word = gone.facts.course.first_estimate(unit);
        self.scene.turns_mut().outlook.ended(ended.job, now, ended.work_secs, &word);
        self.ledger.add_ended(ended);
    }

    /// Takes in how a worker has stopped.
    fn stopped(&mut self, stopped: &Lesson<GenerationStop>, now: UnixTime) {
        let key = self.scene.key(&stopped.program, stopped.lead.as_ref());
        let counts = self.is_known(&key, stopped.lead.as_ref());
        self.scene.stopped(&key, &stopped.what, counts, now);
        if counts {
            self.scene.library_mut().set_job_name(&key, &stopped.program.job_name);
        }
    }

    /// Takes in how a job runs. Says whether the planner should look at once.
    fn measured(&mut self, measured: &Measured, now: UnixTime, notes: &mut Vec<Note>) -> bool {
        let key = self.scene.key(&measured.program, measured.lead.as_ref());
        // Just started: no look has shown the node yet, or the store has not told what is known of such jobs.
        let lead_is_known = measured.lead.as_ref().is_some_and(|node| self.scene.type_at(node).is_some());
        if !lead_is_known || !self.lookups.covers(&key) {
            return false;
        }
        let crosses = self.scene.crosses(&measured.hosts);
        let news = self.scene.progress(measured.job, &key, &measured.progress(crosses), now);
        let urgent = news.probed || news.drift.is_some();
        self.take_news(measured.job, &key, news, now, notes);
        urgent
    }

    fn take_news(&mut self, job: JobId, key: &ProfileKey, news: News, now: UnixTime, notes: &mut Vec<Note>) {
        if let Some(factor) = news.drift {
            let text = format!("profile {}: runs at {factor:.2} times its old speed now", key.name);
            notes.push(Note { level: Level::INFO, job: Some(job), text });
        }
        let Some((nodes, stretch)) = news.stretch else { return };
        let (rate, error) = (stretch.rate.rate, stretch.rate.error);
        let text = format!("measured on {nodes} nodes: {rate} samples/s, error {error}");
        notes.push(Note { level: Level::DEBUG, job: Some(job), text });
        let (samples, secs, probe) = (stretch.samples, stretch.secs, news.probe);
        self.ledger.add_measurement(Measurement {
            key: key.clone(),
            job,
            nodes,
            samples,
            secs,
            probe,
            at: now,
        });
        let name = self.fleet.about(job).map(|a| a.name.clone()).unwrap_or_default();
        self.scene.library_mut().set_job_name(key, &name);
    }

    /// What agents may be told now that these jobs' records were stored, or could not be: while the store
    /// fails, training still goes on in new generations, but nothing is ordered.
    pub fn saved(&self, jobs: impl IntoIterator<Item = JobId>, stored: bool) -> Errands {
        let permit = if stored { Permit::Order } else { Permit::Run };
        let settled = jobs.into_iter().filter(|job| !stored || self.ledger.is_stored(*job));
        Errands { words: settled.map(|job| (self.fleet.words(job), permit)).collect(), ..Errands::default() }
    }

    /// Profiles in the store that may concern the present jobs and were not read yet.
    pub(crate) fn profiles_to_load(&self, now: UnixTime) -> Vec<ProfileFilter> {
        let facts = self.fleet.facts(now);
        let keys = facts.iter().map(|f| self.scene.key(&f.program, f.place.lead_now.as_ref()));
        self.lookups.missing(keys, self.config.advisor.share_profiles)
    }

    /// Takes in the stored profiles that a filter names.
    pub(crate) fn load_profiles(&mut self, filter: ProfileFilter, profiles: Vec<Profile>, now: UnixTime) {
        self.lookups.add(filter);
        let dropped = self.scene.library_mut().load(profiles, now);
        dropped.iter().for_each(|key| self.lookups.drop_key(key));
    }

    /// Takes in profiles that somebody has brought, in place of what is known of them.
    pub(crate) fn replace_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) {
        let dropped = self.scene.library_mut().replace(profiles, now);
        dropped.iter().for_each(|key| self.lookups.drop_key(key));
    }

    /// Forgets profiles that were deleted from the store, with the measurements that would bring them back
    /// there.
    pub fn forget_profiles(&mut self, filter: &ProfileFilter) {
        self.scene.library_mut().forget(filter);
        self.ledger.forget(filter);
    }

    /// Forgets jobs that ended long ago.
    pub fn sweep(&mut self) {
        for job in self.fleet.sweep(|job| self.ledger.is_stored(job)) {
            self.scene.library_mut().ended(job);
        }
    }

    /// Whose job it is, of the main queue or ours; `None` for one that nobody knows here.
    pub fn owner(&self, job: JobId) -> Option<UserId> {
        let ours = self.fleet.about(job).and_then(|a| a.user_id);
        ours.or_else(|| self.snapshot.as_ref()?.job(job).map(|j| j.user_id))
    }

    /// Whose the malleable jobs of a report are.
    pub fn owners(&self, report: &RoundReport) -> BTreeMap<JobId, UserId> {
        report.jobs.iter().filter_map(|v| Some((v.job, self.owner(v.job)?))).collect()
    }

    /// Host at which other nodes reach a node.
    pub fn address(&self, node: &NodeName) -> String {
        let shown = |s: &Arc<Snapshot>| Some(s.node(node.single_places().first()?)?.address.clone());
        let known = self.snapshot.as_ref().and_then(shown);
        known.filter(|a| !a.is_empty()).unwrap_or_else(|| node.host().to_string())
    }

    /// Counts what an agent said, for the metrics.
    pub fn hear(&mut self, what: Option<AgentEventKind>) {
        *self.heard.entry(what).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
