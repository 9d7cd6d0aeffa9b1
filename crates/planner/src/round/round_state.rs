//! What lasts from round to round, and the steps of a round in their order.
//!
//! A look at a trusted snapshot: what each node is used for, which gaps ended, how far ahead to count, which
//! gaps there are, what the advisor makes of them. Then any number of questions about it, each as of its own
//! moment: between two looks jobs move on.

mod leave_times;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::breaker::Breaker;
use super::curves::believable_curve;
use super::demand::{self, CandidateJob};
use super::departures::{NodeDepartures, node_holders, saving_jobs};
use super::exclusions::NodeExclusions;
use super::extended_jobs;
use super::gap_history::GapHistory;
use super::node_times::NodeTimes;
use super::priorities::{JobPriorities, RemainingWork};
use super::round_input::{RoundConstraints, RoundInput};
use super::stop_times::SiteStops;
use infill_advisor::{JobAdvisor, JobInput, NodeCapacity, ProgressOutcome};
use infill_gaps as gaps;
use infill_gaps::{
    ArrivalLookahead, GapContext, GapTracker, IdleBesideMain, IdleReserve, LeaveTimes, NodeOccupancy,
};
use infill_model::{
    EndedGap, Gap, GapRefusal, GapSet, GenerationStop, JobFacts, JobId, NodeName, NodeType, PlaceShare,
    Profile, ProfileKey, ProgramIdentity, ProgressReport, RescaleCosts, RescaleMode, ScalingCurve, Snapshot,
    Topology, UnixTime, config::Config,
};

mod settling;

/// What is said of a round without a trusted snapshot.
const NO_TRUSTED_SNAPSHOT: &str = "no trusted snapshot: nothing is started or grown";

/// What the advisor may do in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisorMode {
    /// Nothing: all curves are given.
    Unasked,
    /// Watch, and have no job brought to a size only to measure it.
    Watch,
    /// Choose sizes to be tried, as the configuration allows.
    Probe,
}

/// Everything that a round needs and that lasts longer than one.
#[derive(Debug)]
pub struct RoundState {
    config: Arc<Config>,
    tracker: GapTracker,
    experience: GapHistory,
    lookahead: ArrivalLookahead,
    library: JobAdvisor,
    breaker: Breaker,
    stops: SiteStops,
    node_times: NodeTimes,
    /// Nodes that were left alone at the last look.
    kept: IdleReserve,
    /// What leaving took each job at the last look.
    leave: LeaveTimes,
    /// The gaps of the last trusted snapshot, and when they were found.
    gaps: Arc<GapSet>,
    gaps_at: UnixTime,
    margin: SnapshotFindings,
    nodes: NodeContext,
    turns: JobPriorities,
}

/// What the last look found besides gaps.
#[derive(Debug, Default)]
struct SnapshotFindings {
    /// What was idle beside main jobs.
    beside: IdleBesideMain,
    /// What made windows less sure than usual.
    notes: Vec<String>,
}

/// What is known of nodes besides gaps: types, as far as signatures of jobs need them, and switches.
#[derive(Clone, Debug, Default)]
struct NodeContext {
    /// Types of the nodes that leads are on.
    of_leads: BTreeMap<NodeName, NodeType>,
    /// What leads of the main queue have at each of their places.
    own_shares: BTreeMap<NodeName, PlaceShare>,
    /// The type of most gaps: where a job that waits would most likely run.
    usual: Option<NodeType>,
    /// The same of parts of nodes without GPUs.
    usual_on_cpus: Option<NodeType>,
    /// How they hang together.
    topology: Arc<Topology>,
}

impl RoundState {
    /// A scene that nobody has looked at.
    pub fn new(config: Arc<Config>, now: UnixTime) -> Self {
        RoundState {
            tracker: GapTracker::default(),
            experience: GapHistory::default(),
            lookahead: ArrivalLookahead::default(),
            library: JobAdvisor::new(config.advisor.clone()),
            breaker: Breaker::new(&config.daemon),
            stops: SiteStops::default(),
            node_times: NodeTimes::default(),
            kept: IdleReserve::default(),
            leave: LeaveTimes::default(),
            gaps: Arc::default(),
            gaps_at: now,
            margin: SnapshotFindings::default(),
            nodes: NodeContext::default(),
            turns: JobPriorities::default(),
            config,
        }
    }

    /// Learns from gaps that ended before, oldest first.
    pub fn learn_gaps(&mut self, ended: &[EndedGap], now: UnixTime) {
        self.experience.record_gaps(ended, now);
    }

    /// From now on nodes hang together like this. Says whether that is new.
    pub fn set_topology(&mut self, topology: Topology) -> bool {
        let is_new = *self.nodes.topology != topology;
        if is_new {
            self.nodes.topology = Arc::new(topology);
        }
        is_new
    }

    /// Whether nodes hang on several leaf switches.
    pub fn spans_leaves(&self, nodes: &[NodeName]) -> bool {
        let topology = &self.nodes.topology;
        !topology.is_empty() && topology.count_leaves(nodes) > 1
    }

    /// Takes in a trusted snapshot and the jobs as they are now. Returns the gaps that have ended since the
    /// last.
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
        self.experience.record_gaps(&ended, now);
        self.lookahead.record_arrivals(jobs.iter().map(|j| j.submitted_at));
        self.node_times.ingest_snapshot(snapshot, &config.slurm.partition, now);
        self.stops.shared.learn_contention();
        self.leave = self.times_to_leave(jobs);
        let found = self.find_gaps(&occupancy, jobs, now);
        self.kept = IdleReserve::from_gaps(&found);
        self.gaps = Arc::new(self.without_blocked(found, now));
        self.gaps_at = now;
        let beside = gaps::idle_beside_main(&occupancy);
        let notes = gaps::window_notes(snapshot, &self.config.gaps);
        self.margin = SnapshotFindings { beside, notes };
        self.record_types(snapshot, jobs);
        self.turns.ingest_jobs(jobs, config.planner.usage_half_life_secs, now);
        self.run_advisor(jobs, advice, now);
        self.settle_turns(jobs, now);
        self.settle_guarantees(jobs, now);
        ended
    }

    /// What the planner is to be asked at this moment about the snapshot that was last looked at.
    pub fn round_input(&self, facts: &[JobFacts], terms: RoundConstraints, now: UnixTime) -> RoundInput {
        let gaps = extended_jobs::gaps_with_own(
            self.gaps_now(facts, now),
            facts,
            |node: &NodeName| self.type_at(node),
            &self.nodes.own_shares,
            now,
        );
        let candidates = facts
            .iter()
            .filter(|facts: &&JobFacts| {
                !facts.ending && self.turns.rotation.position_behind(facts.job).is_none()
            })
            .map(|facts| CandidateJob { subject: self.job_input(facts), facts })
            .collect();
        let ground = (&*gaps, &*self.nodes.topology);
        let mut jobs =
            demand::malleable_jobs(candidates, &self.library, &self.turns, ground, &self.config.planner, now);
        self.exclude_short(&mut jobs, &gaps, saving_jobs(facts).len(), now);
        let mut avoiding = NodeExclusions::new(&gaps, facts, &self.breaker, now);
        jobs.iter_mut().for_each(|job| job.excluded = avoiding.excluded_for(job));
        let notes = self
            .margin
            .notes
            .iter()
            .cloned()
            .chain((!terms.trusted).then(|| NO_TRUSTED_SNAPSHOT.to_owned()))
            .collect();
        let may_grow = terms.may_grow && terms.trusted;
        let topology = self.nodes.topology.clone();
        let in_line = facts
            .iter()
            .filter(|j| !j.ending)
            .filter_map(|j: &JobFacts| self.turns.rotation.position_behind(j.job).map(|place| (j.job, place)))
            .collect();
        RoundInput { gaps, jobs, in_line, topology, at: now, may_grow, drain: terms.drain, notes }
    }

    /// Takes in how a job runs, and under which signature that is known.
    pub fn record_progress(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
        now: UnixTime,
    ) -> ProgressOutcome {
        self.library.record_progress(job, key, progress, now)
    }

    /// Takes in how a worker has stopped. `counts`: whether its signature is known for good, so that it is
    /// learned for that.
    pub fn record_stop(&mut self, key: &ProfileKey, stop: &GenerationStop, counts: bool, now: UnixTime) {
        self.stops.record_stop(counts.then_some(key), stop, now);
        if counts {
            self.library.record_stop(key, stop, now);
        }
    }

    /// Takes in how long it took from an order until the agent on this node said hello.
    pub fn record_start(&mut self, node: &NodeName, secs: f64) {
        if let Some(node_type) = self.type_at(node).cloned() {
            self.node_times.record_start(&node_type, secs);
        }
    }

    /// How long nodes take to come up and to become free.
    pub fn node_times(&self) -> &NodeTimes {
        &self.node_times
    }

    /// The same, to be changed.
    pub fn node_times_mut(&mut self) -> &mut NodeTimes {
        &mut self.node_times
    }

    /// The gaps of the last look.
    pub fn gaps(&self) -> &GapSet {
        &self.gaps
    }

    /// What was idle beside jobs of the main queue at the last look.
    pub fn idle_beside_main(&self) -> &IdleBesideMain {
        &self.margin.beside
    }

    /// What is known of how jobs scale.
    pub fn job_advisor(&self) -> &JobAdvisor {
        &self.library
    }

    /// The same, to be changed.
    pub fn job_advisor_mut(&mut self) -> &mut JobAdvisor {
        &mut self.library
    }

    /// How long jobs are expected to run, and what users have had.
    pub fn priorities(&self) -> &JobPriorities {
        &self.turns
    }

    /// The same, to be changed.
    pub fn priorities_mut(&mut self) -> &mut JobPriorities {
        &mut self.turns
    }

    /// Nodes that are left alone.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The same, to be changed.
    pub fn breaker_mut(&mut self) -> &mut Breaker {
        &mut self.breaker
    }

    /// The signature of what a job runs, whose lead is on this node. While it has told nothing, that of the
    /// last job of its name.
    pub fn profile_key(&self, program: &ProgramIdentity, lead_now: Option<&NodeName>) -> ProfileKey {
        let last = || self.library.last_profile_of(&program.user, &program.job_name);
        let guessed = || last().map(|k| (k.name.clone(), k.batch));
        let (name, batch) = program.told.clone().or_else(guessed).unwrap_or_default();
        let one =
            self.lead_or_usual_type(lead_now, program.on_cpus).cloned().unwrap_or_else(|| NodeType::new(""));
        let node_type = one.with_place_count(program.block);
        let user = program.user.clone();
        let exec_plan = program.exec_plan.clone();
        ProfileKey { user, name, node_type, exec_plan, batch }
    }

    /// The job as the advisor sees it.
    pub fn job_input(&self, facts: &JobFacts) -> JobInput {
        let key = self.profile_key(&facts.program, facts.place.lead_now.as_ref());
        JobInput {
            job: facts.job,
            sizes: facts.sizes.clone(),
            plans: facts.claims.plans.clone(),
            model: facts.claims.model,
            layers: facts.claims.layers.clone(),
            gpus_per_node: facts.claims.gpus_per_node,
            declared: self.declared_curve(facts),
            running: facts.running,
            costs: self.rescale_costs(facts, &key),
            swap_secs: self.swap_secs(facts, &key),
            key,
        }
    }

    /// The work that a job has ahead, and how many samples a second are believed of it on one node.
    pub fn remaining_work(&self, facts: &JobFacts) -> (RemainingWork, f64) {
        self.remaining_work_on(facts, &demand::gap_types(&self.gaps))
    }

    /// The same, where gaps are of these types.
    fn remaining_work_on(&self, facts: &JobFacts, types: &[NodeType]) -> (RemainingWork, f64) {
        let subject = self.job_input(facts);
        let stop_secs = subject.costs.start_secs;
        let unit = demand::believed_unit_rate(CandidateJob { subject, facts }, &self.library, types);
        (self.turns.remaining_work(facts, unit, stop_secs), unit)
    }

    /// What the job's rescales cost: measured, else declared, else configured.
    fn rescale_costs(&self, facts: &JobFacts, key: &ProfileKey) -> RescaleCosts {
        self.rescale_costs_by(facts, key, self.rescale_mode(facts, key))
    }

    fn rescale_costs_by(&self, facts: &JobFacts, key: &ProfileKey, way: RescaleMode) -> RescaleCosts {
        let planner = &self.config.planner;
        let otherwise = (facts.claims.costs.unwrap_or(planner.costs), planner.live_costs);
        self.library.rescale_costs(key, &otherwise, way)
    }

    /// What another execution plan costs a job that has several and stays alive with the one: a restart.
    fn swap_secs(&self, facts: &JobFacts, key: &ProfileKey) -> Option<f64> {
        let is_dear = facts.claims.plans.len() > 1 && self.rescale_mode(facts, key) == RescaleMode::Live;
        is_dear.then(|| self.rescale_costs_by(facts, key, RescaleMode::Restart).up_secs)
    }

    /// How the job changes its size. While it waits, as the last of its profile did.
    fn rescale_mode(&self, facts: &JobFacts, key: &ProfileKey) -> RescaleMode {
        match facts.place.lead_now {
            None if self
                .library
                .profile(key)
                .is_some_and(|p: &Profile| p.costs.live_up.count > 0 || p.costs.live_down.count > 0) =>
            {
                RescaleMode::Live
            }
            _ => facts.changing.way,
        }
    }

    /// How the job changes its size, and what that costs, in words.
    pub fn describe_rescale(&self, facts: &JobFacts) -> String {
        let key = self.profile_key(&facts.program, facts.place.lead_now.as_ref());
        let RescaleCosts { up_secs, down_secs, start_secs } = self.rescale_costs(facts, &key);
        let how = match self.rescale_mode(facts, &key) {
            RescaleMode::Live => "stays alive",
            RescaleMode::Restart => "restarts",
        };
        let swap = self.swap_secs(facts, &key).map(|secs| format!(", {secs:.0} s for another plan"));
        let swap = swap.unwrap_or_default();
        format!("{how}: {up_secs:.1} s to grow, {down_secs:.1} s to shrink, {start_secs:.0} s to start{swap}")
    }

    /// What the owner declares, else what the configuration says of the profile or name, within what can be
    /// believed.
    fn declared_curve(&self, facts: &JobFacts) -> Option<ScalingCurve> {
        let ProgramIdentity { told, job_name, .. } = &facts.program;
        let names = told.as_ref().map(|(name, _)| name).into_iter().chain([job_name]);
        facts
            .claims
            .curve
            .as_ref()
            .or_else(|| names.into_iter().find_map(|n| self.config.planner.curves.get(n)))
            .and_then(|c| believable_curve(c, &facts.sizes))
    }

    fn lead_or_usual_type(&self, lead_now: Option<&NodeName>, on_cpus: bool) -> Option<&NodeType> {
        let usual = if on_cpus { &self.nodes.usual_on_cpus } else { &self.nodes.usual };
        lead_now.and_then(|n| self.type_at(n)).or(usual.as_ref())
    }

    /// The type of a node that a lead was on at the last look, or that was a gap then.
    pub fn type_at(&self, node: &NodeName) -> Option<&NodeType> {
        self.nodes
            .of_leads
            .get(node)
            .or_else(|| self.gaps.get(node.single_places().first()?).map(|g| &g.node_type))
    }

    fn record_types(&mut self, snapshot: &Snapshot, jobs: &[JobFacts]) {
        let leads = jobs.iter().filter_map(|j| j.place.lead_now.as_ref());
        let node_type = |n: &NodeName| Some(snapshot.node(n.single_places().first()?)?.node_type.clone());
        let known = leads.filter_map(|n| Some((n.clone(), node_type(n)?)));
        let of_leads = known.collect();
        let usual = self.most_common_type(false).or(self.nodes.usual.take());
        let usual_on_cpus = self.most_common_type(true).or(self.nodes.usual_on_cpus.take());
        let own_shares = extended_jobs::place_shares(snapshot, jobs);
        let topology = self.nodes.topology.clone();
        self.nodes = NodeContext { of_leads, own_shares, usual, usual_on_cpus, topology };
    }

    /// The type of most gaps, of those that are parts of nodes without GPUs or of the others.
    fn most_common_type(&self, on_cpus: bool) -> Option<NodeType> {
        let is_on_cpus = |gap: &Gap| gap.node.is_place() && !gap.node_type.has_gpus();
        let mut counts: BTreeMap<&NodeType, usize> = BTreeMap::new();
        let gaps = self.gaps.gaps.iter().filter(|gap| is_on_cpus(gap) == on_cpus);
        gaps.for_each(|gap| *counts.entry(&gap.node_type).or_default() += 1);
        counts.into_iter().max_by_key(|(_, n)| *n).map(|(t, _)| t.clone())
    }

    fn find_gaps(&self, occupancy: &NodeOccupancy<'_>, jobs: &[JobFacts], now: UnixTime) -> GapSet {
        let key = |j: &JobFacts| self.profile_key(&j.program, j.place.lead_now.as_ref());
        let costs = jobs.iter().filter(|j| !j.ending).map(|j| self.rescale_costs(j, &key(j)));
        let context = GapContext {
            config: &self.config.gaps,
            holders: &node_holders(jobs),
            promised: &jobs.iter().flat_map(JobFacts::promised_nodes).collect(),
            tracker: &self.tracker,
            kept: &self.kept,
            survival: self.experience.survival_model(),
            leave: &self.leave,
            saving: &saving_jobs(jobs),
            lookahead_secs: self.lookahead.lookahead_secs(&self.config.gaps, costs, now),
        };
        gaps::find_gaps(occupancy, &context, now)
    }

    /// Takes out the free nodes that the circuit breaker keeps us from.
    fn without_blocked(&self, mut gaps: GapSet, now: UnixTime) -> GapSet {
        let breaker = &self.breaker;
        gaps.refuse_gaps(|gap| {
            let why = breaker.block_reason(&gap.node, now).filter(|_| gap.holder.is_none());
            why.map(GapRefusal::from)
        });
        gaps
    }

    /// Lets the advisor look at this round and choose what to try.
    fn run_advisor(&mut self, jobs: &[JobFacts], advice: AdvisorMode, now: UnixTime) {
        if advice == AdvisorMode::Unasked {
            return;
        }
        let subjects: Vec<JobInput> = jobs.iter().filter(|j| !j.ending).map(|j| self.job_input(j)).collect();
        let may_probe = advice == AdvisorMode::Probe && self.config.advisor.probe;
        self.library.run_round(&subjects, NodeCapacity::from_gaps(&self.gaps), may_probe, now);
    }

    /// The gaps as of now: what has happened since the snapshot is taken in, nodes that were given up,
    /// promised, or taken back by Slurm.
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
            gaps::set_leave_times(gaps, &self.leave, &saving_jobs(jobs), self.gaps_at);
        }
        gaps
    }
}
