//! From the facts about malleable jobs to the input of the planner: weights, rates and scheduling states.

mod job_rates;

use std::collections::{BTreeMap, BTreeSet};

use super::crossing_limits::{CrossingLimits, CurveRequest};
use super::curves;
use super::guarantees::{self, GuaranteeRequest, GuaranteeSupply};
use super::priorities::{JobPriorities, RemainingWork};
use super::{checkpoint_risk, extended_jobs, job_end, unit_rate};
use infill_advisor::{JobAdvisor, JobInput, NodeCapacity, ProbeAim};
use infill_model::{
    DeclaredPlan, ExecPlan, GapSet, JobFacts, MalleableJob, NodeType, PlanNeeds, PlanningObjective, Probe,
    ProfileKey, RescaleCosts, SchedulingState, Topology, TurnState, UnixTime, config::PlannerConfig,
    malleable::RateCurve,
};
use job_rates::{known_rates, rates_on_own_kind};

/// A malleable job before the round has decided what it may ask for.
#[derive(Clone, Debug)]
pub(super) struct CandidateJob<'a> {
    /// The job as the advisor sees it.
    pub input: JobInput,
    /// The facts about the job.
    pub facts: &'a JobFacts,
}

/// A candidate with its rates.
struct RatedJob<'a> {
    candidate: CandidateJob<'a>,
    rates: Vec<RateCurve>,
    /// Samples a second on one node, on the mean of the present nodes; a guess where all curves are the
    /// prior.
    unit: f64,
    /// Samples a second on one node of the fastest type; 0 where all curves equal the prior curve, so that
    /// nothing is known about the job's rates.
    known_unit: f64,
}

impl<'a> RatedJob<'a> {
    fn from_candidate(
        candidate: CandidateJob<'a>,
        advisor: &JobAdvisor,
        types: &[NodeType],
        lent: Option<&[NodeType]>,
        supply: &BTreeMap<&NodeType, u32>,
    ) -> Self {
        let rates = known_rates(&candidate.input, candidate.block_size(), advisor, types);
        let only = candidate.own_type();
        let mut rates = rates_on_own_kind(rates, candidate.facts.program.on_cpus, lent, only.as_ref());
        for rate in &mut rates {
            rate.needs = declared_needs(&candidate.input.plans, &rate.exec_plan);
        }
        let sizes = &candidate.input.sizes;
        let unit = unit_rate::mean_unit_rate(&rates, sizes, supply);
        let prior = curves::prior_curve(sizes);
        let is_guess = rates.iter().all(|r| r.curve == prior);
        let known_unit = if is_guess { 0.0 } else { unit_rate::fastest_unit_rate(&rates, sizes) };
        RatedJob { candidate, rates, unit, known_unit }
    }

    fn user(&self) -> &str {
        &self.candidate.input.key.user
    }

    /// What a node-second of one place counts with this weight.
    fn place_second_value(&self, weight: f64) -> f64 {
        if self.unit > 0.0 { weight * self.unit / f64::from(self.candidate.block_size()) } else { weight }
    }
}

/// What one worker of a plan needs, as far as its owner declares it.
fn declared_needs(plans: &[DeclaredPlan], exec_plan: &ExecPlan) -> PlanNeeds {
    plans.iter().find(|plan| plan.name == *exec_plan).map_or(PlanNeeds::default(), |plan| plan.needs)
}

/// The believed rate of a job on one node, samples a second; 0 where nothing but the prior curve is known.
pub(super) fn believed_unit_rate(
    candidate: CandidateJob<'_>,
    advisor: &JobAdvisor,
    types: &[NodeType],
) -> f64 {
    RatedJob::from_candidate(candidate, advisor, types, None, &BTreeMap::new()).known_unit
}

impl CandidateJob<'_> {
    /// Number of places that each of its nodes takes.
    fn block_size(&self) -> u32 {
        self.facts.location.places_per_node.max(1)
    }

    /// The type of the job's own places, if it is a main job that wings extend. Such a job can be on no other
    /// type.
    fn own_type(&self) -> Option<NodeType> {
        let own = self.facts.location.own.first().filter(|node| node.is_place());
        own.map(|_| self.input.key.node_type.single_place().0)
    }
}

/// The candidates as the planner sees them.
pub(super) fn malleable_jobs(
    candidates: Vec<CandidateJob<'_>>,
    advisor: &JobAdvisor,
    priorities: &JobPriorities,
    gaps: &GapSet,
    topology: &Topology,
    config: &PlannerConfig,
    now: UnixTime,
) -> Vec<MalleableJob> {
    let supply = unit_rate::count_by_type(gaps);
    let types: Vec<NodeType> = supply.keys().map(|node_type| (*node_type).clone()).collect();
    let lent = gaps.gaps.first().is_some_and(|gap| gap.node.is_place()).then_some(types.as_slice());
    let mut rated: Vec<RatedJob<'_>> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        rated.push(RatedJob::from_candidate(candidate, advisor, &types, lent, &supply));
    }
    let mut remaining: Vec<RemainingWork> = Vec::with_capacity(rated.len());
    for RatedJob { candidate: CandidateJob { input, facts }, known_unit, .. } in &rated {
        remaining.push(priorities.remaining_work(facts, *known_unit, input.costs.start_secs));
    }
    let weights = job_weights(&rated, &remaining, priorities, config);
    let values: Vec<f64> =
        rated.iter().zip(&weights).map(|(rated, weight)| rated.place_second_value(*weight)).collect();
    let highest_value = values.iter().copied().fold(0.0, f64::max);
    let round = DemandContext {
        advisor,
        priorities,
        gaps,
        crossing: CrossingLimits::new(gaps, topology),
        capacity: NodeCapacity::from_gaps(gaps),
        config,
        now,
    };
    let mut requests: Vec<Option<GuaranteeRequest>> = rated
        .iter()
        .zip(&values)
        .map(|(rated, value)| round.guarantee_request(rated, highest_value / value))
        .collect();
    let all: Vec<&JobFacts> = rated.iter().map(|rated| rated.candidate.facts).collect();
    let mut guarantee_supply = GuaranteeSupply::from_gaps(gaps, all.iter().copied());
    guarantees::grant_guarantees(&mut requests, &all, &mut guarantee_supply, &priorities.promises);
    let mut jobs = Vec::with_capacity(rated.len());
    for ((((rated, remaining), weight), request), value) in
        rated.into_iter().zip(remaining).zip(weights).zip(requests).zip(values)
    {
        jobs.push(round.malleable_job(rated, &remaining, weight, request, highest_value / value));
    }
    jobs
}

/// What all jobs of a round share.
struct DemandContext<'r> {
    advisor: &'r JobAdvisor,
    priorities: &'r JobPriorities,
    gaps: &'r GapSet,
    crossing: CrossingLimits<'r>,
    capacity: NodeCapacity,
    config: &'r PlannerConfig,
    now: UnixTime,
}

impl DemandContext<'_> {
    /// The minimum rate that a job asks for; `None` if it asks for none. `share_factor` says how many times
    /// more a node-second of another job may count.
    fn guarantee_request(&self, rated: &RatedJob<'_>, share_factor: f64) -> Option<GuaranteeRequest> {
        let CandidateJob { input, facts } = &rated.candidate;
        facts.declaration.at_least?;
        let rates = self.rates_with_crossing(rated.rates.clone(), &rated.candidate);
        let turn = self.priorities.rotation.turn_of(facts.job);
        GuaranteeRequest::from_claims(input, facts, rates, self.gaps, turn, share_factor)
    }

    /// The job as the planner sees it. `outweighs` says how many times more a node-second of another job may
    /// count.
    fn malleable_job(
        &self,
        rated: RatedJob<'_>,
        remaining: &RemainingWork,
        weight: f64,
        request: Option<GuaranteeRequest>,
        outweighs: f64,
    ) -> MalleableJob {
        let RatedJob { candidate, rates, known_unit, .. } = rated;
        let CandidateJob { input, facts } = &candidate;
        let rates = self.rates_with_crossing(rates, &candidate);
        let probe = self.permitted_probe(&candidate, request.as_ref());
        let rotation = &self.priorities.rotation;
        let turn = rotation.turn_of(facts.job);
        let pushes = turn == Some(TurnState::Next) && rotation.has_pressure();
        let smallest_rate = rates.iter().map(|r| r.curve.rate(input.sizes.min())).fold(0.0, f64::max);
        let bonus = waiting_bonus(facts, pushes, outweighs).map(|times| times * smallest_rate);
        let mut rates = raised_rates(rates, &candidate, probe, bonus, self.config);
        let guarantee = request.map(|request| request.grant_bonus(&mut rates, &input.sizes));
        let is_probing = self.advisor.is_probing(input.job, self.now);
        let last_change = facts.resize.last_at.filter(|_| !is_probing);
        let mut job = base_job(&candidate, weight, rates, last_change, &self.config.costs, self.now);
        job.rates_are_assumed = known_unit == 0.0;
        job.guarantee = guarantee;
        job.turn = turn;
        job.waiting_bonus = bonus.unwrap_or(0.0);
        job.probe = probe.and_then(|aim| probe_for(aim, &candidate));
        job_end::raise_growth_cost(&mut job, remaining, facts.running, known_unit, self.config.horizon_secs);
        checkpoint_risk::add_checkpoint_risk(
            &mut job,
            facts,
            self.advisor.profile_stops(&input.key),
            self.now,
        );
        extended_jobs::merge_own_nodes(job, facts.location.extra_own_nodes())
    }

    /// The probe that the advisor wants for a job, if the job can be brought there and keeps its promise.
    fn permitted_probe(
        &self,
        candidate: &CandidateJob<'_>,
        request: Option<&GuaranteeRequest>,
    ) -> Option<&ProbeAim> {
        let aim = self.advisor.aim_of(candidate.input.job)?;
        let may_be_there = candidate.own_type().is_none_or(|own| own == aim.key.node_type.single_place().0);
        let is_permitted =
            is_in_reach(aim, candidate, &self.capacity) && may_be_there && guarantee_permits(request, aim);
        is_permitted.then_some(aim)
    }

    /// The rates, lower where the job would be on several hosts or leaf switches and is slower there.
    fn rates_with_crossing(&self, mut rates: Vec<RateCurve>, candidate: &CandidateJob<'_>) -> Vec<RateCurve> {
        let key = &candidate.input.key;
        let block = candidate.block_size();
        let job = candidate.input.job;
        let lead = candidate.facts.location.lead.as_ref();
        let request = CurveRequest { job, lead, sizes: &candidate.input.sizes, block };
        for rate in &mut rates {
            let node_type =
                rate.node_type.as_ref().map_or(key.node_type.clone(), |t| t.clone().with_place_count(block));
            let key = ProfileKey { node_type, exec_plan: rate.exec_plan.clone(), ..key.clone() };
            let slowdown = self.advisor.crossing_slowdown(&key);
            rate.curve = self.crossing.slowed_curve(&rate.curve, &request, rate.node_type.as_ref(), slowdown);
        }
        rates
    }
}

/// The weight of a sample of each job. Jobs count their samples in different units. So a node-second at the
/// smallest size weighs the same for all jobs of one share; a block weighs as much as its places. A user's
/// share is divided over the user's jobs, by the weights that their programs report. If the objective is
/// completion, jobs that end soon count for a little more.
fn job_weights(
    rated: &[RatedJob<'_>],
    remaining: &[RemainingWork],
    priorities: &JobPriorities,
    config: &PlannerConfig,
) -> Vec<f64> {
    let mut weight_of: BTreeMap<&str, f64> = BTreeMap::new();
    for rated in rated {
        // A job that cannot start takes nothing from its owner's other jobs.
        if rated.candidate.facts.scheduling_state.is_in_play() {
            *weight_of.entry(rated.user()).or_default() += rated.candidate.facts.progress.owner_weight();
        }
    }
    let urgency = match config.objective {
        PlanningObjective::Completion => {
            let remaining_secs = rated
                .iter()
                .zip(remaining)
                .map(|(rated, remaining)| (rated.user(), remaining_at_best(rated, remaining)));
            job_end::urgency_factors(&remaining_secs.collect::<Vec<_>>())
        }
        PlanningObjective::Throughput => vec![1.0; rated.len()],
    };
    let mut weights = Vec::with_capacity(rated.len());
    for (rated, urgency) in rated.iter().zip(urgency) {
        let own = rated.candidate.facts.progress.owner_weight();
        let all = weight_of.get(rated.user()).map_or(own, |all| all.max(own));
        let share = config.user_share(rated.user()) * own / all * f64::from(rated.candidate.block_size());
        let weight = if rated.unit > 0.0 { share / rated.unit } else { share };
        let factor = priorities.rotation.weight_factor(rated.candidate.facts.job);
        weights.push(weight * factor * urgency);
    }
    weights
}

/// Seconds on one node that a job still needs. Each start counts for all nodes of its fastest size. `None`
/// where that is not well known.
fn remaining_at_best(rated: &RatedJob<'_>, remaining: &RemainingWork) -> Option<f64> {
    let fastest = rated.rates.iter().map(|rate| curves::max_rate(&rate.curve)).fold(0.0, f64::max);
    let nodes = if rated.known_unit > 0.0 { (fastest / rated.known_unit).max(1.0) } else { 1.0 };
    remaining.is_well_known().then(|| remaining.remaining_secs() + nodes * remaining.stop_secs)
}

/// Whether enough free nodes bring the job to a probe's size. It never takes another job's node.
fn is_in_reach(aim: &ProbeAim, candidate: &CandidateJob<'_>, capacity: &NodeCapacity) -> bool {
    let stays = aim.key.node_type == candidate.input.key.node_type;
    let place = &candidate.facts.location;
    let held = if stays { place.held.len() as u32 + place.extra_own_nodes() } else { 0 };
    aim.nodes <= held + capacity.free_nodes(&aim.key.node_type)
}

/// Whether a job may try a size: not one that is expected to stay below its promised rate.
fn guarantee_permits(request: Option<&GuaranteeRequest>, aim: &ProbeAim) -> bool {
    let node_type = aim.key.node_type.single_place().0;
    request.is_none_or(|request| request.permits_run(&node_type, &aim.key.exec_plan, aim.nodes))
}

/// The costs of changes for a job that makes no samples for `secs` seconds anyway.
fn costs_beyond(costs: &RescaleCosts, secs: f64) -> RescaleCosts {
    RescaleCosts {
        up_secs: (costs.up_secs - secs).max(0.0),
        down_secs: (costs.down_secs - secs).max(0.0),
        start_secs: (costs.start_secs - secs).max(0.0),
    }
}

/// The types of all gaps, sorted.
pub(super) fn gap_types(gaps: &GapSet) -> Vec<NodeType> {
    let types: BTreeSet<&NodeType> = gaps.gaps.iter().map(|gap| &gap.node_type).collect();
    types.into_iter().cloned().collect()
}

/// How many times more the smallest size of a waiting job counts; `None` if the job does not wait. `pushes`
/// says that it has its turn and other jobs hold what it needs. `outweighs` says how many times more a
/// node-second of another job may count.
fn waiting_bonus(facts: &JobFacts, pushes: bool, outweighs: f64) -> Option<f64> {
    facts.waits_since.map(|_| if pushes { curves::turn_bonus(outweighs) } else { 0.0 })
}

/// Whether a job in this scheduling state may start.
pub(super) fn may_start(scheduling_state: &SchedulingState, now: UnixTime) -> bool {
    match scheduling_state {
        SchedulingState::Waiting | SchedulingState::Running => true,
        SchedulingState::BackOff(until) => *until <= now,
        SchedulingState::Busy | SchedulingState::Blocked(_) => false,
    }
}

/// The rates, raised for a job that waits, or for a size that the advisor wants to measure.
fn raised_rates(
    mut rates: Vec<RateCurve>,
    candidate: &CandidateJob<'_>,
    probe: Option<&ProbeAim>,
    bonus: Option<f64>,
    config: &PlannerConfig,
) -> Vec<RateCurve> {
    let JobInput { sizes, costs, swap_secs, .. } = &candidate.input;
    let is_specific = probe.is_some_and(|aim| is_of_one_run(aim, &candidate.input));
    let fastest = rates.iter().map(|rate| curves::max_rate(&rate.curve)).fold(0.0, f64::max);
    for rate in &mut rates {
        rate.curve = match (bonus, probe) {
            // A job that moves to other nodes waits, too.
            (_, Some(aim)) if is_specific && probes_curve(aim, rate) => {
                let moves = aim.key.node_type != candidate.input.key.node_type;
                let replans = aim.key.exec_plan != candidate.input.key.exec_plan;
                let special = if moves { Some(costs.start_secs) } else { swap_secs.filter(|_| replans) };
                let up_secs = costs.up_secs.max(special.unwrap_or(0.0));
                let costs = RescaleCosts { up_secs, ..*costs };
                curves::with_probe(&rate.curve, aim.nodes, fastest, &costs, config)
            }
            (_, Some(_)) if is_specific => continue,
            (Some(bonus), _) => curves::with_bonus(&rate.curve, sizes, bonus),
            (None, Some(aim)) => {
                let fastest = curves::max_rate(&rate.curve);
                curves::with_probe(&rate.curve, aim.nodes, fastest, costs, config)
            }
            (None, None) => continue,
        };
    }
    rates
}

/// The size at which the rates are raised for a probe, if they are. The rates of a waiting job with only one
/// way to run are raised at all sizes instead.
fn probe_for(aim: &ProbeAim, candidate: &CandidateJob<'_>) -> Option<Probe> {
    let is_specific = is_of_one_run(aim, &candidate.input);
    let with = is_specific.then(|| (aim.key.exec_plan.clone(), aim.key.node_type.single_place().0));
    let is_raised = is_specific || candidate.facts.waits_since.is_none();
    is_raised.then_some(Probe { nodes: aim.nodes, with })
}

/// Whether a probe is about one way to run among several: one plan, or another type of nodes.
fn is_of_one_run(aim: &ProbeAim, input: &JobInput) -> bool {
    !input.plans.is_empty() || aim.key.node_type != input.key.node_type
}

/// Whether a probe measures this curve.
fn probes_curve(aim: &ProbeAim, rate: &RateCurve) -> bool {
    rate.exec_plan == aim.key.exec_plan
        && rate.node_type.as_ref() == Some(&aim.key.node_type.single_place().0)
}

/// The share of the configured hysteresis that holds for a job: it is meant for changes that cost as much as
/// configured.
fn change_reluctance(costs: &RescaleCosts, usual: &RescaleCosts) -> f64 {
    let usual_secs = usual.up_secs.max(usual.down_secs);
    if usual_secs > 0.0 { (costs.up_secs.max(costs.down_secs) / usual_secs).min(1.0) } else { 1.0 }
}

/// A job with its facts, weight and rates; without turn, promise, probe and risk.
fn base_job(
    candidate: &CandidateJob<'_>,
    weight: f64,
    rates: Vec<RateCurve>,
    last_change: Option<UnixTime>,
    usual: &RescaleCosts,
    now: UnixTime,
) -> MalleableJob {
    let CandidateJob { input, facts } = candidate;
    let pause_secs = facts.resize.pause.map_or(0.0, |pause| pause.remaining_secs(&input.costs, now));
    MalleableJob {
        id: facts.job,
        user: facts.user,
        weight,
        sizes: input.sizes.clone(),
        places_per_node: candidate.block_size(),
        rates,
        rates_are_assumed: false,
        costs: costs_beyond(&input.costs, pause_secs),
        swap_secs: input.swap_secs.map(|secs| (secs - pause_secs).max(0.0)),
        hysteresis_share: change_reluctance(&input.costs, usual),
        scheduling_state: facts.scheduling_state.clone(),
        exec_plan: facts.resize.exec_plan.clone(),
        lead_node: facts.location.lead.clone(),
        lead_away: facts.location.lead_away,
        held: facts.location.held.clone(),
        submitted_at: facts.submitted_at,
        last_change,
        guarantee: None,
        probe: None,
        stay_secs: 0.0,
        turn: None,
        waiting_bonus: 0.0,
        excluded: facts.excluded.clone(),
    }
}

#[cfg(test)]
mod tests;
