//! The state that lasts from round to round, and the steps of a round in their order.
//!
//! [`RoundState::ingest_snapshot`] takes in a trusted snapshot: what each node is used for, which gaps ended,
//! how far ahead to count, which gaps exist, and what the advisor makes of them. Then
//! [`RoundState::round_input`] makes any number of inputs for the planner, each for its own moment: between
//! two snapshots jobs move on.

mod leave_times;
mod node_types;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::breaker::Breaker;
use super::curves::capped_declared_curve;
use super::demand::{self, CandidateJob};
use super::departures::{NodeDepartures, node_holders, saving_jobs};
use super::exclusions::NodeExclusions;
use super::extended_jobs;
use super::gap_history::GapHistory;
use super::node_times::NodeTimes;
use super::priorities::{JobPriorities, RemainingWork};
use super::round_input::{RoundConstraints, RoundInput};
use super::stop_times::SiteStops;
use crate::plan::SiteLimits;
use infill_advisor::{JobAdvisor, JobInput, NodeCapacity, ProgressOutcome};
use infill_gaps as gaps;
use infill_gaps::{
    ArrivalLookahead, GapContext, GapTracker, IdleBesideMain, IdleReserve, LeaveTimes, NodeOccupancy,
    SafetyLimits,
};
use infill_model::{
    BlackoutSpan, EndedGap, GapRefusal, GapSet, GenerationStop, JobFacts, JobId, NodeName, NodeType,
    PlaceShare, ProfileKey, ProgramIdentity, ProgressReport, RescaleCosts, RescaleMode, ScalingCurve,
    Snapshot, Topology, UnixTime, config::Config,
};

mod job_limits;
mod settling;

/// The note of a round without a trusted snapshot.
const NO_TRUSTED_SNAPSHOT: &str = "no trusted snapshot: nothing is started or grown";

/// What the advisor may do in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisorMode {
    /// Nothing: all curves are given.
    Unasked,
    /// Observe, without bringing a job to a size only to measure it.
    Watch,
    /// Choose sizes to try, as the configuration allows.
    Probe,
}

/// Everything that a round needs and that lasts longer than one round.
#[derive(Debug)]
pub struct RoundState {
    config: Arc<Config>,
    tracker: GapTracker,
    gap_history: GapHistory,
    lookahead: ArrivalLookahead,
    advisor: JobAdvisor,
    breaker: Breaker,
    stops: SiteStops,
    node_times: NodeTimes,
    /// Nodes that were left idle at the last snapshot.
    idle_reserve: IdleReserve,
    /// The time that leaving took each job, by the last snapshot.
    leave_times: LeaveTimes,
    /// The gaps of the last trusted snapshot, and the time at which they were found.
    gaps: Arc<GapSet>,
    gaps_at: UnixTime,
    findings: SnapshotFindings,
    nodes: NodeContext,
    priorities: JobPriorities,
}

/// What the last snapshot showed besides gaps.
#[derive(Debug, Default)]
struct SnapshotFindings {
    /// What was idle beside main jobs.
    beside: IdleBesideMain,
    /// What made windows less certain than usual.
    notes: Vec<String>,
}

/// Facts about nodes besides gaps: types, as far as profile keys of jobs need them, and switches.
#[derive(Clone, Debug, Default)]
struct NodeContext {
    /// Types of the nodes that leads are on.
    lead_types: BTreeMap<NodeName, NodeType>,
    /// What leads of the main queue have at each of their places.
    own_shares: BTreeMap<NodeName, PlaceShare>,
    /// The most common type of gaps: where a job that waits would most likely run.
    usual_type: Option<NodeType>,
    /// The most common type of places without GPUs.
    usual_cpu_type: Option<NodeType>,
    /// How switches connect the nodes.
    topology: Arc<Topology>,
    /// The administrator's limits, as windows follow them.
    limits: SafetyLimits,
    /// The administrator's limits that plans are judged by.
    site_limits: SiteLimits,
}

impl RoundState {
    /// A state before the first snapshot.
    pub fn new(config: Arc<Config>, now: UnixTime) -> Self {
        RoundState {
            tracker: GapTracker::default(),
            gap_history: GapHistory::default(),
            lookahead: ArrivalLookahead::default(),
            advisor: JobAdvisor::new(config.advisor.clone()),
            breaker: Breaker::new(&config.daemon),
            stops: SiteStops::default(),
            node_times: NodeTimes::default(),
            idle_reserve: IdleReserve::default(),
            leave_times: LeaveTimes::default(),
            gaps: Arc::default(),
            gaps_at: now,
            findings: SnapshotFindings::default(),
            nodes: NodeContext {
                limits: SafetyLimits::from_config(&config.safety),
                site_limits: SiteLimits::from_config(&config.safety),
                ..NodeContext::default()
            },
            priorities: JobPriorities::default(),
            config,
        }
    }

    /// Learns from gaps that ended before, oldest first.
    pub fn learn_gaps(&mut self, ended: &[EndedGap], now: UnixTime) {
        self.gap_history.record_gaps(ended, now);
    }

    /// Sets how switches connect the nodes from now on. Returns whether that is new.
    pub fn set_topology(&mut self, topology: Topology) -> bool {
        let is_new = *self.nodes.topology != topology;
        if is_new {
            self.nodes.topology = Arc::new(topology);
        }
        is_new
    }

    /// Sets the blackout that is on, or that comes next.
    pub fn set_blackout(&mut self, blackout: Option<BlackoutSpan>) {
        self.nodes.limits.set_blackout(blackout);
        self.nodes.site_limits.blackout = blackout;
    }

    /// Whether these nodes are at several leaf switches.
    pub fn spans_leaves(&self, nodes: &[NodeName]) -> bool {
        let topology = &self.nodes.topology;
        !topology.is_empty() && topology.count_leaves(nodes) > 1
    }

    /// Takes in a trusted snapshot and the jobs as they are now. Returns the gaps that have ended since the
    /// previous snapshot.
    pub fn ingest_snapshot(
        &mut self,
        snapshot: &Snapshot,
        jobs: &[JobFacts],
        advice: AdvisorMode,
        now: UnixTime,
    ) -> Vec<EndedGap> {
        let config = self.config.clone();
        let occupancy = NodeOccupancy::from_snapshot(snapshot, &config.slurm.partition);
        let ended = self.tracker.observe_round(&occupancy, &self.gaps, now);
        self.gap_history.record_gaps(&ended, now);
        self.lookahead.record_arrivals(jobs.iter().map(|j| j.submitted_at));
        self.node_times.ingest_snapshot(snapshot, &config.slurm.partition, now);
        self.stops.shared.learn_contention();
        self.leave_times = self.times_to_leave(jobs);
        let found = self.find_gaps(&occupancy, jobs, now);
        self.idle_reserve = IdleReserve::from_gaps(&found);
        self.gaps = Arc::new(self.without_blocked(found, now));
        self.gaps_at = now;
        let beside = gaps::idle_beside_main(&occupancy);
        let notes = gaps::window_notes(snapshot, &self.config.gaps);
        self.findings = SnapshotFindings { beside, notes };
        self.record_types(snapshot, jobs);
        let jobs = &*self.limited_jobs(jobs, now);
        self.priorities.ingest_jobs(jobs, config.planner.usage_half_life_secs, now);
        self.run_advisor(jobs, advice, now);
        self.settle_turns(jobs, now);
        self.settle_guarantees(jobs, now);
        ended
    }

    /// The input of the planner at this moment, by the last snapshot.
    pub fn round_input(
        &self,
        facts: &[JobFacts],
        constraints: RoundConstraints,
        now: UnixTime,
    ) -> RoundInput {
        let facts = &*self.limited_jobs(facts, now);
        let gaps = extended_jobs::gaps_with_own(
            self.gaps_now(facts, now),
            facts,
            |node: &NodeName| self.type_at(node),
            &self.nodes.own_shares,
            now,
        );
        let candidates = facts
            .iter()
            .filter(|facts| !facts.ending && self.priorities.rotation.position_behind(facts.job).is_none())
            .map(|facts| CandidateJob { input: self.job_input(facts), facts })
            .collect();
        let mut jobs = demand::malleable_jobs(
            candidates,
            &self.advisor,
            &self.priorities,
            &gaps,
            &self.nodes.topology,
            &self.config.planner,
            now,
        );
        self.exclude_short(&mut jobs, &gaps, saving_jobs(facts).len(), now);
        let mut exclusions = NodeExclusions::new(&gaps, facts, &self.breaker, now);
        for job in &mut jobs {
            job.excluded = exclusions.excluded_for(job);
        }
        let mut notes = self.findings.notes.clone();
        if !constraints.snapshot_is_trusted {
            notes.push(NO_TRUSTED_SNAPSHOT.to_owned());
        }
        let mut waiting_in_line = Vec::new();
        for facts in facts.iter().filter(|facts| !facts.ending) {
            let position = self.priorities.rotation.position_behind(facts.job);
            waiting_in_line.extend(position.map(|position| (facts.job, position)));
        }
        RoundInput {
            gaps,
            jobs,
            waiting_in_line,
            topology: self.nodes.topology.clone(),
            at: now,
            may_grow: constraints.may_grow && constraints.snapshot_is_trusted,
            drain: constraints.drain,
            limits: self.limits_with_own(facts),
            notes,
        }
    }

    /// Records how a job runs, and under which profile key.
    pub fn record_progress(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
        now: UnixTime,
    ) -> ProgressOutcome {
        self.advisor.record_progress(job, key, progress, now)
    }

    /// Records how a worker has stopped. `counts` says that its profile key is known for certain, so that the
    /// stop counts for that profile.
    pub fn record_stop(&mut self, key: &ProfileKey, stop: &GenerationStop, counts: bool, now: UnixTime) {
        self.stops.record_stop(counts.then_some(key), stop, now);
        if counts {
            self.advisor.record_stop(key, stop, now);
        }
    }

    /// Records the seconds from an order until the agent on this node reported.
    pub fn record_start(&mut self, node: &NodeName, secs: f64) {
        if let Some(node_type) = self.type_at(node).cloned() {
            self.node_times.record_start(&node_type, secs);
        }
    }

    /// How long nodes take to come up and to become free.
    pub fn node_times(&self) -> &NodeTimes {
        &self.node_times
    }

    /// As [`RoundState::node_times`], mutable.
    pub fn node_times_mut(&mut self) -> &mut NodeTimes {
        &mut self.node_times
    }

    /// The gaps of the last snapshot.
    pub fn gaps(&self) -> &GapSet {
        &self.gaps
    }

    /// What was idle beside jobs of the main queue at the last snapshot.
    pub fn idle_beside_main(&self) -> &IdleBesideMain {
        &self.findings.beside
    }

    /// The advisor, which knows how jobs scale.
    pub fn job_advisor(&self) -> &JobAdvisor {
        &self.advisor
    }

    /// As [`RoundState::job_advisor`], mutable.
    pub fn job_advisor_mut(&mut self) -> &mut JobAdvisor {
        &mut self.advisor
    }

    /// How long jobs are expected to run, and how much users have used.
    pub fn priorities(&self) -> &JobPriorities {
        &self.priorities
    }

    /// As [`RoundState::priorities`], mutable.
    pub fn priorities_mut(&mut self) -> &mut JobPriorities {
        &mut self.priorities
    }

    /// The breaker, which keeps jobs off nodes.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// As [`RoundState::breaker`], mutable.
    pub fn breaker_mut(&mut self) -> &mut Breaker {
        &mut self.breaker
    }

    /// The profile key of what a job runs, with its lead on this node. A program that has not reported its
    /// name gets the name and batch size of the user's last job of the same name.
    pub fn profile_key(&self, program: &ProgramIdentity, lead_now: Option<&NodeName>) -> ProfileKey {
        let reported = program.reported_profile.clone();
        let (name, batch) = reported.unwrap_or_else(|| {
            let last = self.advisor.last_profile_of(&program.user, &program.job_name);
            last.map(|key| (key.name.clone(), key.batch)).unwrap_or_default()
        });
        let lead_type = self.lead_or_usual_type(lead_now, program.on_cpus).cloned();
        let node_type =
            lead_type.unwrap_or_else(|| NodeType::new("")).with_place_count(program.places_per_node);
        let user = program.user.clone();
        let exec_plan = program.exec_plan.clone();
        ProfileKey { user, name, node_type, exec_plan, batch }
    }

    /// The job as the advisor sees it.
    pub fn job_input(&self, facts: &JobFacts) -> JobInput {
        let key = self.profile_key(&facts.program, facts.location.lead_now.as_ref());
        JobInput {
            job: facts.job,
            sizes: facts.sizes.clone(),
            plans: facts.declaration.plans.clone(),
            model: facts.declaration.model,
            layers: facts.declaration.layers.clone(),
            gpus_per_node: facts.declaration.gpus_per_node,
            declared_curve: self.declared_curve(facts),
            running_nodes: facts.running,
            costs: self.rescale_costs(facts, &key),
            swap_secs: self.swap_secs(facts, &key),
            key,
        }
    }

    /// The remaining work of a job, and its believed rate on one node, samples a second.
    pub fn remaining_work(&self, facts: &JobFacts) -> (RemainingWork, f64) {
        self.remaining_work_on(facts, &demand::gap_types(&self.gaps))
    }

    /// As [`RoundState::remaining_work`], with gaps of these types.
    fn remaining_work_on(&self, facts: &JobFacts, types: &[NodeType]) -> (RemainingWork, f64) {
        let input = self.job_input(facts);
        let stop_secs = input.costs.start_secs;
        let unit = demand::believed_unit_rate(CandidateJob { input, facts }, &self.advisor, types);
        (self.priorities.remaining_work(facts, unit, stop_secs), unit)
    }

    /// The costs of the job's rescales: measured, else declared, else configured.
    fn rescale_costs(&self, facts: &JobFacts, key: &ProfileKey) -> RescaleCosts {
        self.rescale_costs_by(facts, key, self.rescale_mode(facts, key))
    }

    fn rescale_costs_by(&self, facts: &JobFacts, key: &ProfileKey, mode: RescaleMode) -> RescaleCosts {
        let planner = &self.config.planner;
        let defaults = (facts.declaration.costs.unwrap_or(planner.costs), planner.live_costs);
        self.advisor.rescale_costs(key, &defaults, mode)
    }

    /// Seconds that a change to another execution plan costs; `None` unless the job has several plans and
    /// stays alive when it changes its size. Another plan needs a restart.
    fn swap_secs(&self, facts: &JobFacts, key: &ProfileKey) -> Option<f64> {
        let needs_restart =
            facts.declaration.plans.len() > 1 && self.rescale_mode(facts, key) == RescaleMode::Live;
        needs_restart.then(|| self.rescale_costs_by(facts, key, RescaleMode::Restart).up_secs)
    }

    /// How the job changes its size. While it waits, as the last job of its profile did.
    fn rescale_mode(&self, facts: &JobFacts, key: &ProfileKey) -> RescaleMode {
        let waits = facts.location.lead_now.is_none();
        let profile = self.advisor.profile(key).filter(|_| waits);
        let stayed_alive = profile.is_some_and(|p| p.costs.live_up.count > 0 || p.costs.live_down.count > 0);
        if stayed_alive { RescaleMode::Live } else { facts.resize.mode }
    }

    /// Says how the job changes its size, and what that costs.
    pub fn describe_rescale(&self, facts: &JobFacts) -> String {
        let key = self.profile_key(&facts.program, facts.location.lead_now.as_ref());
        let RescaleCosts { up_secs, down_secs, start_secs } = self.rescale_costs(facts, &key);
        let how = match self.rescale_mode(facts, &key) {
            RescaleMode::Live => "its processes stay alive",
            RescaleMode::Restart => "its processes restart",
        };
        let swap = self.swap_secs(facts, &key).map(|secs| format!(", {secs:.0} s to change its plan"));
        let swap = swap.unwrap_or_default();
        format!("{how}: {up_secs:.1} s to grow, {down_secs:.1} s to shrink, {start_secs:.0} s to start{swap}")
    }

    /// The curve that the owner declares, else the configured one for the reported name or the job name.
    /// Limited to what is believable.
    fn declared_curve(&self, facts: &JobFacts) -> Option<ScalingCurve> {
        let ProgramIdentity { reported_profile, job_name, .. } = &facts.program;
        let names = reported_profile.as_ref().map(|(name, _)| name).into_iter().chain([job_name]);
        facts
            .declaration
            .curve
            .as_ref()
            .or_else(|| names.into_iter().find_map(|n| self.config.planner.curves.get(n)))
            .and_then(|c| capped_declared_curve(c, &facts.sizes))
    }

    fn find_gaps(&self, occupancy: &NodeOccupancy<'_>, jobs: &[JobFacts], now: UnixTime) -> GapSet {
        let costs = jobs.iter().filter(|j| !j.ending).map(|j| {
            let key = self.profile_key(&j.program, j.location.lead_now.as_ref());
            self.rescale_costs(j, &key)
        });
        let context = GapContext {
            config: &self.config.gaps,
            safety: &self.nodes.limits,
            holders: &node_holders(jobs),
            promised_nodes: &jobs.iter().flat_map(JobFacts::promised_nodes).collect(),
            tracker: &self.tracker,
            idle_reserve: &self.idle_reserve,
            survival: self.gap_history.survival_model(),
            leave_times: &self.leave_times,
            saving_jobs: &saving_jobs(jobs),
            lookahead_secs: self.lookahead.lookahead_secs(&self.config.gaps, costs, now),
        };
        gaps::find_gaps(occupancy, &context, now)
    }

    /// Removes free nodes that the circuit breaker closes.
    fn without_blocked(&self, mut gaps: GapSet, now: UnixTime) -> GapSet {
        let breaker = &self.breaker;
        gaps.refuse_gaps(|gap| {
            let why = breaker.block_reason(&gap.node, now).filter(|_| gap.holder.is_none());
            why.map(GapRefusal::from)
        });
        gaps
    }

    /// Lets the advisor read this round and choose what to try.
    fn run_advisor(&mut self, jobs: &[JobFacts], advice: AdvisorMode, now: UnixTime) {
        if advice == AdvisorMode::Unasked {
            return;
        }
        let inputs: Vec<JobInput> = jobs.iter().filter(|j| !j.ending).map(|j| self.job_input(j)).collect();
        let may_probe = advice == AdvisorMode::Probe && self.config.advisor.probe;
        self.advisor.run_round(&inputs, NodeCapacity::from_gaps(&self.gaps), may_probe, now);
    }

    /// The gaps as of now. Takes in what has happened since the snapshot: nodes that jobs gave up, that were
    /// promised to jobs, or that Slurm took back.
    fn gaps_now(&self, jobs: &[JobFacts], now: UnixTime) -> Arc<GapSet> {
        let holders = node_holders(jobs);
        let mut gaps = self.gaps.clone();
        let age_secs = now.secs_since(self.gaps_at);
        if age_secs > 0.0 {
            gaps::carry_over(Arc::make_mut(&mut gaps), age_secs);
        }
        let departures = NodeDepartures::from_jobs(jobs, &holders);
        if !departures.is_empty() {
            Arc::make_mut(&mut gaps).refuse_gaps(|gap| departures.refusal_for(&gap.node));
        }
        if gaps.gaps.iter().any(|g| g.holder.as_ref() != holders.get(&g.node)) {
            let gaps = &mut Arc::make_mut(&mut gaps).gaps;
            gaps.iter_mut().for_each(|gap| gap.holder = holders.get(&gap.node).copied());
            gaps::set_leave_times(gaps, &self.leave_times, &saving_jobs(jobs), self.gaps_at);
        }
        gaps
    }
}
