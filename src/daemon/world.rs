//! All that the daemon knows, behind one lock: machines, agents, the last round, orders of the administrator.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::advisor::Library;
use crate::api::{AgentEvent, AgentReport, Assignment, Control, Directive, Mode, RoundView, Secret};
use crate::config::Config;
use crate::gaps::{Lookahead, Survival, Tracker};
use crate::generation::{Arrival, Effect, Ground, Machine, OrderNumbers, Outcome, Phase, Settings};
use crate::model::{EndedGap, Gaps, JobId, NodeName, ProfileFilter, Snapshot, UnixTime, WindowEnd};
use crate::store::{GenerationRecord, LeadRecord, Measurement, RoundRecord};

use super::advice::OpenRow;
use super::breaker::Breaker;
use super::executor::{Batch, Sender};

/// Order numbers that are reserved in the store at a time.
pub const ORDERS_AT_ONCE: u64 = 1000;

/// How many measured stops the time to leave is taken from.
const STOPS_REMEMBERED: usize = 50;

/// Fewer measured stops than this say too little.
const STOPS_NEEDED: usize = 5;

/// Seconds from a worker's exit until Slurm shows its node idle: epilog and COMPLETING. Seen: 1–2 s.
const CLEANUP_SECS: f64 = 3.0;

/// Ended jobs that are still shown.
const MAX_ENDED: usize = 200;

/// The world behind its lock.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// Wraps a world.
    pub fn new(world: World) -> Self {
        Shared(Arc::new(Mutex::new(world)))
    }

    /// Locks it. A thread that panicked while holding the lock leaves the values whole: every change is made
    /// by replacing values.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a malleable job besides its generations.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Job name.
    pub name: String,
    /// Owner.
    pub user: String,
    /// Owner's id.
    pub user_id: u32,
    /// Submission.
    pub submitted_at: UnixTime,
    /// Samples reported in all.
    pub samples: f64,
    /// Last step.
    pub step: Option<u64>,
    /// Last loss.
    pub loss: Option<f64>,
    /// Samples a second over the last report of each node.
    pub rates: BTreeMap<NodeName, f64>,
    /// Why it has what it has.
    pub why: String,
    /// When its lead was last sent off to start.
    pub launched_at: Option<UnixTime>,
    /// Nodes of the partition that it cannot use.
    pub excluded: Vec<NodeName>,
}

/// What must be in the store before it is acted on: when it changes, the record is written.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    phase: Phase,
    generation: u64,
    wings: Vec<(u64, Option<JobId>)>,
}

impl Mark {
    fn of(machine: &Machine) -> Self {
        let wings = machine.wings.iter().map(|(order, w)| (*order, w.job)).collect();
        Mark { phase: machine.phase.clone(), generation: machine.generation.number, wings }
    }
}

/// An agent's line to the daemon.
struct Line {
    secret_hash: [u8; 32],
    sender: watch::Sender<Assignment>,
}

/// All state of the daemon.
pub struct World {
    config: Config,
    /// What machines take from the configuration.
    pub(super) settings: Settings,
    /// Malleable jobs by lead.
    pub machines: BTreeMap<JobId, Machine>,
    /// What else is known of them.
    pub about: BTreeMap<JobId, About>,
    lines: BTreeMap<(JobId, NodeName), Line>,
    /// The last trusted snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Its gaps.
    pub gaps: Gaps,
    /// When they were found.
    pub(super) gaps_at: UnixTime,
    /// Watches gaps come and go.
    pub tracker: Tracker,
    /// How long gaps last here.
    pub survival: Survival,
    /// How far ahead nodes are counted on.
    pub(super) lookahead: Lookahead,
    /// Nodes that are left alone.
    pub breaker: Breaker,
    /// Order of an administrator.
    pub control: Control,
    /// The last round.
    pub round: Option<RoundView>,
    /// What is wrong now, by topic.
    pub problems: BTreeMap<&'static str, String>,
    /// Slurm's and REST's version.
    pub endpoint: Option<(String, String)>,
    /// Start of the daemon.
    pub started_at: UnixTime,
    /// What is known of how jobs scale.
    pub library: Library,
    /// Which stored profiles are in it.
    pub(super) loaded_profiles: BTreeSet<ProfileFilter>,
    /// Measurements by job that are not a row yet.
    pub(super) open_rows: BTreeMap<JobId, OpenRow>,
    /// Measurements that wait for the store.
    pub measurements: VecDeque<Measurement>,
    /// Rounds that wait for the store.
    pub rounds: Vec<RoundRecord>,
    /// Generations that wait for the store.
    pub generations: Vec<GenerationRecord>,
    /// Ended gaps that wait for the store.
    pub ended_gaps: Vec<EndedGap>,
    /// Events since the last look, for the metrics.
    pub counters: BTreeMap<&'static str, u64>,
    /// Rows of history that found no room while the store was away, by kind.
    pub lost: BTreeMap<&'static str, usize>,
    stops: VecDeque<f64>,
    /// Wings without a lead that were cancelled, and when.
    pub(super) orphans: BTreeMap<JobId, UnixTime>,
    /// When each node was last used by us.
    pub(super) left_at: BTreeMap<NodeName, UnixTime>,
    orders: Orders,
    dirty: BTreeSet<JobId>,
    marks: BTreeMap<JobId, Mark>,
    effects: Sender,
    version: u64,
}

/// Order numbers that the store has set aside.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    next: u64,
    end: u64,
}

impl Orders {
    /// Numbers left.
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Takes a fresh block of [`ORDERS_AT_ONCE`] numbers from `first` on.
    pub fn refill(&mut self, first: u64) {
        *self = Orders { next: first, end: first.saturating_add(ORDERS_AT_ONCE) };
    }
}

impl OrderNumbers for Orders {
    fn next(&mut self) -> Option<u64> {
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl World {
    /// An empty world.
    pub fn new(config: &Config, effects: Sender, now: UnixTime) -> Self {
        let qos = &config.slurm.qos;
        let settings = Settings {
            partition: config.slurm.partition.clone(),
            qos: (!qos.is_empty()).then(|| qos.clone()),
            wing_start_secs: config.agent.wing_start_secs,
            lead_start_secs: config.agent.lead_start_secs,
            backoff_secs: config.daemon.backoff_secs,
            backoff_max_secs: config.daemon.backoff_max_secs,
        };
        World {
            settings,
            machines: BTreeMap::new(),
            about: BTreeMap::new(),
            lines: BTreeMap::new(),
            snapshot: None,
            gaps: Gaps::default(),
            gaps_at: now,
            tracker: Tracker::default(),
            survival: Survival::default(),
            lookahead: Lookahead::default(),
            breaker: Breaker::new(&config.daemon),
            control: Control::Normal,
            round: None,
            problems: BTreeMap::new(),
            endpoint: None,
            started_at: now,
            library: Library::new(config.advisor.clone()),
            loaded_profiles: BTreeSet::new(),
            open_rows: BTreeMap::new(),
            measurements: VecDeque::new(),
            rounds: Vec::new(),
            generations: Vec::new(),
            ended_gaps: Vec::new(),
            counters: BTreeMap::new(),
            lost: BTreeMap::new(),
            stops: VecDeque::new(),
            left_at: BTreeMap::new(),
            orphans: BTreeMap::new(),
            orders: Orders::default(),
            dirty: BTreeSet::new(),
            marks: BTreeMap::new(),
            effects,
            // Agents of an earlier daemon have seen smaller versions.
            version: u64::try_from(now.0).unwrap_or(0) << 20,
            config: config.clone(),
        }
    }

    /// Takes up what the store kept.
    pub fn restore(
        &mut self,
        leads: Vec<LeadRecord>,
        gaps: &[EndedGap],
        first_order: u64,
        control: Control,
        now: UnixTime,
    ) {
        for lead in leads {
            match Machine::from_record(lead.state) {
                Ok(mut machine) => {
                    machine.resume(now);
                    let about = About { submitted_at: lead.submitted_at, ..About::default() };
                    self.about.insert(lead.job, about);
                    self.machines.insert(lead.job, machine);
                }
                Err(e) => tracing::warn!(job = %lead.job, "left out a job whose record is unreadable: {e}"),
            }
        }
        self.learn(gaps);
        self.orders.refill(first_order);
        self.control = control;
    }

    /// Learns how long gaps last from these.
    pub fn learn(&mut self, gaps: &[EndedGap]) {
        let samples: Vec<_> = gaps.iter().map(EndedGap::sample).collect();
        self.survival = Survival::fit(&samples);
    }

    /// The order numbers that are left.
    pub fn orders_mut(&mut self) -> &mut Orders {
        &mut self.orders
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether anything may be done at all.
    pub fn acting(&self) -> bool {
        self.config.daemon.mode == Mode::Act
    }

    /// Seconds before the end of a window at which it must be left: what leaving takes, measured where enough
    /// was measured, and the time until the next round, for a window that is just long enough now is not in
    /// the next one.
    pub fn leave_secs(&self) -> f64 {
        self.config.daemon.poll_interval_secs + self.measured_leave_secs()
    }

    fn measured_leave_secs(&self) -> f64 {
        if self.stops.len() < STOPS_NEEDED {
            return self.config.gaps.leave_secs;
        }
        let mut stops: Vec<f64> = self.stops.iter().copied().collect();
        stops.sort_by(f64::total_cmp);
        stops[(stops.len() - 1) * 95 / 100] + CLEANUP_SECS
    }

    /// Lets time pass for all machines.
    pub fn tick(&mut self, now: UnixTime) {
        for job in self.machines.keys().copied().collect::<Vec<_>>() {
            self.turn(job, now, Outcome::default());
        }
    }

    /// Takes in an agent whose identity was proved; returns its secret, or `None` when it has no place.
    pub fn arrive(&mut self, lead: JobId, arrival: Arrival, secret: &Secret, now: UnixTime) -> bool {
        let (node, slurm_job) = (arrival.node.clone(), arrival.slurm_job);
        let Some(machine) = self.machines.get_mut(&lead) else { return false };
        let mut out = Outcome::default();
        if !machine.hello(arrival, now, &mut out) {
            return false;
        }
        self.count("hello");
        self.version += 1;
        let first = Assignment { version: self.version, directive: Directive::Hold, wings: Vec::new() };
        let line = Line { secret_hash: hash(secret), sender: watch::Sender::new(first) };
        self.lines.insert((slurm_job, node), line);
        self.turn(lead, now, out);
        true
    }

    /// Whether `secret` is this agent's. Takes the same time whether it is right or wrong.
    pub fn knows(&self, job: JobId, node: &NodeName, secret: &Secret) -> bool {
        use subtle::ConstantTimeEq as _;
        let line = self.lines.get(&(job, node.clone()));
        line.is_some_and(|l| bool::from(l.secret_hash.ct_eq(&hash(secret))))
    }

    /// The agent's assignments from now on.
    pub fn watch(&self, job: JobId, node: &NodeName) -> Option<watch::Receiver<Assignment>> {
        self.lines.get(&(job, node.clone())).map(|l| l.sender.subscribe())
    }

    /// Notes a sign of life; `false` when the agent's job is gone.
    pub fn seen(&mut self, job: JobId, node: &NodeName, now: UnixTime) -> bool {
        let Some(lead) = self.lead_of(job) else { return false };
        self.machines.get_mut(&lead).is_some_and(|m| m.seen(node, job, now))
    }

    /// Takes in an agent's report. Says whether something happened that the planner should know at once.
    pub fn report(&mut self, report: &AgentReport, now: UnixTime) -> bool {
        let Some(lead) = self.lead_of(report.job) else { return false };
        let mut out = Outcome::default();
        let mut urgent = false;
        for event in &report.events {
            self.count(event_name(event));
            match event {
                AgentEvent::Progress { .. } => urgent |= self.progress(lead, &report.node, event, now),
                AgentEvent::Leaving => urgent = true,
                _ => {}
            }
            if let Some(machine) = self.machines.get_mut(&lead) {
                machine.event(&report.node, event, &self.settings, now, &mut out);
            }
        }
        self.turn(lead, now, out);
        urgent
    }

    fn lead_of(&self, job: JobId) -> Option<JobId> {
        if self.machines.contains_key(&job) {
            return Some(job);
        }
        // Only agents that have proved themselves: what a lead says of its wings is not enough.
        let owns = |m: &Machine| m.workers.values().any(|w| w.slurm_job == job);
        self.machines.iter().find(|(_, m)| owns(m)).map(|(id, _)| *id)
    }

    /// Applies the planner's word to one job.
    pub fn set_target(&mut self, plan: &crate::model::JobPlan, now: UnixTime) {
        let others: BTreeSet<NodeName> = self
            .machines
            .iter()
            .filter(|(id, _)| **id != plan.job)
            .flat_map(|(_, m)| m.occupied().into_keys())
            .collect();
        let gaps = &self.gaps;
        let window = |n: &NodeName| gaps.get(n).map_or(WindowEnd::Unknown, |g| g.end.clone());
        let free = |n: &NodeName| !others.contains(n);
        let Some(machine) = self.machines.get_mut(&plan.job) else { return };
        let mut out = Outcome::default();
        let ground = Ground { window: &window, free: &free };
        machine.set_target(plan, &ground, &mut self.orders, &self.settings, now, &mut out);
        self.turn(plan.job, now, out);
    }

    /// Steps one machine, logs what happened, sends its effects off and tells its agents.
    pub fn turn(&mut self, job: JobId, now: UnixTime, mut out: Outcome) {
        let Some(machine) = self.machines.get_mut(&job) else { return };
        machine.step(&self.settings, now, &mut out);
        let ran = self.marks.get(&job).is_some_and(|m| matches!(m.phase, Phase::Running { .. }));
        self.stop_measuring(job, ran, now);
        for note in &out.notes {
            tracing::info!(job = %job, "{note}");
        }
        if let Some((generation, nodes, why)) = out.started.take() {
            tracing::info!(job = %job, generation, nodes = nodes.len(), "generation begins: {why}");
            if let Some(about) = self.about.get_mut(&job) {
                about.rates.clear();
            }
            let started_at = now;
            self.generations.push(GenerationRecord { job, generation, started_at, nodes, why });
        }
        for secs in &out.stop_secs {
            self.stops.push_back(*secs);
            if self.stops.len() > STOPS_REMEMBERED {
                self.stops.pop_front();
            }
        }
        for (node, why) in &out.strikes {
            if self.breaker.strike(node, why, now) {
                tracing::warn!(%node, "left alone for a while: {why}");
            }
        }
        let Some(machine) = self.machines.get(&job) else { return };
        if out.effects.iter().any(|e| matches!(e, Effect::Launch { .. })) {
            self.about.entry(job).or_default().launched_at = Some(now);
        }
        let mark = Mark::of(machine);
        let changed = self.marks.get(&job) != Some(&mark);
        if changed || !out.effects.is_empty() {
            self.marks.insert(job, mark);
            self.dirty.insert(job);
        }
        self.tell_agents(job, false);
        if changed || !out.effects.is_empty() {
            self.send(job, out.effects);
        }
    }

    /// Has what changed stored, and then these effects carried out.
    pub(super) fn send(&mut self, job: JobId, effects: Vec<Effect>) {
        let effects = if self.acting() { effects } else { Vec::new() };
        if self.effects.try_send(Batch { job, effects }).is_err() {
            // The machine asks again after a while: a full queue loses nothing.
            tracing::warn!(job = %job, "the action queue is full");
        }
    }

    /// Tells agents what had to wait until it was stored. While the store fails, training still goes on in
    /// new generations, but nothing is ordered.
    pub fn saved(&mut self, jobs: impl IntoIterator<Item = JobId>, stored: bool) {
        for job in jobs {
            if !self.dirty.contains(&job) || !stored {
                self.tell(job, true, stored);
            }
        }
    }

    /// Takes in that an effect failed.
    pub fn effect_failed(&mut self, job: JobId, effect: &Effect, why: &str, passing: bool, now: UnixTime) {
        let mut out = Outcome::default();
        if let Some(machine) = self.machines.get_mut(&job) {
            machine.effect_failed(effect, why, passing, &self.settings, now, &mut out);
        }
        self.turn(job, now, out);
    }

    /// Tells agents at once what stops or holds them. What takes something up waits until it is stored.
    fn tell_agents(&mut self, job: JobId, stored: bool) {
        let stored = stored || !self.dirty.contains(&job);
        self.tell(job, stored, stored);
    }

    fn tell(&mut self, job: JobId, may_run: bool, may_order: bool) {
        let Some(machine) = self.machines.get(&job) else { return };
        for (node, worker) in &machine.workers {
            let Some(line) = self.lines.get(&(worker.slurm_job, node.clone())) else { continue };
            let wings = if worker.slurm_job == job { machine.orders() } else { Vec::new() };
            let directive = machine.directive(node);
            let version = &mut self.version;
            line.sender.send_if_modified(|a| {
                let runs = matches!(directive, Directive::Run(_)) && !may_run;
                let directive = if runs { a.directive.clone() } else { directive.clone() };
                let wings = if may_order { wings.clone() } else { a.wings.clone() };
                let changed = a.directive != directive || a.wings != wings;
                if changed {
                    *version += 1;
                    *a = Assignment { version: *version, directive, wings };
                }
                changed
            });
        }
    }

    /// Records that changed since the last call, to be stored before anything is done about them.
    pub fn take_dirty(&mut self, now: UnixTime) -> Vec<LeadRecord> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.iter().filter_map(|job| self.record(*job, now)).collect()
    }

    /// Marks jobs as not stored yet.
    pub fn mark_dirty(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        self.dirty.extend(jobs);
    }

    fn record(&self, job: JobId, now: UnixTime) -> Option<LeadRecord> {
        let machine = self.machines.get(&job)?;
        Some(LeadRecord {
            job,
            submitted_at: self.about.get(&job).map(|a| a.submitted_at).unwrap_or_default(),
            updated_at: now,
            ended: machine.phase == Phase::Ended,
            state: machine.record(),
        })
    }

    /// Forgets lines to agents that are gone, and the oldest ended jobs.
    pub fn sweep(&mut self) {
        let machines = &self.machines;
        let alive = |(job, node): &(JobId, NodeName)| {
            machines.values().any(|m| m.workers.get(node).is_some_and(|w| w.slurm_job == *job))
        };
        self.lines.retain(|key, _| alive(key));
        let mut ended: Vec<(UnixTime, JobId)> =
            machines.iter().filter(|(_, m)| m.phase == Phase::Ended).map(|(id, m)| (m.since, *id)).collect();
        ended.sort_unstable();
        for (_, job) in ended.iter().take(ended.len().saturating_sub(MAX_ENDED)) {
            if !self.dirty.contains(job) {
                self.machines.remove(job);
                self.about.remove(job);
                self.marks.remove(job);
                self.library.ended(*job);
            }
        }
    }

    /// Counts history that is lost: `rounds`, `gaps`, `measurements` or `generations`.
    pub fn lose(&mut self, kind: &'static str, rows: usize) {
        *self.lost.entry(kind).or_default() += rows;
    }

    /// Counts an event for the metrics.
    pub fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }
}

fn hash(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

fn event_name(event: &AgentEvent) -> &'static str {
    match event {
        AgentEvent::Started { .. } => "started",
        AgentEvent::Stopped { .. } => "stopped",
        AgentEvent::Leaving => "leaving",
        AgentEvent::Progress { .. } => "progress",
        AgentEvent::WingSubmitted { .. } => "wing_submitted",
        AgentEvent::WingRefused { .. } => "wing_refused",
    }
}
