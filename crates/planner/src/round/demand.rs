//! From what is known of the malleable jobs to what the planner asks for: weights, rates and standing.

use std::collections::{BTreeMap, BTreeSet};

use super::crossing_limits::{CrossingLimits, CurveRequest};
use super::curves::{self, MOST_MEASURED};
use super::guarantees::{self, GuaranteeRequest, GuaranteeSupply};
use super::priorities::{JobPriorities, RemainingWork};
use super::{checkpoint_risk, extended_jobs, job_end, unit_rate};
use infill_advisor::{JobAdvisor, JobInput, NodeCapacity, ProbeAim};
use infill_model::{
    AllowedSizes, DeclaredPlan, ExecPlan, GapSet, JobFacts, MalleableJob, NodeType, PlanNeeds,
    PlanningObjective, Probe, ProfileKey, RescaleCosts, ScalingCurve, SchedulingState, Topology, TurnState,
    UnixTime, config::PlannerConfig, malleable::RateCurve,
};

/// A malleable job before it is known what it may ask for.
#[derive(Clone, Debug)]
pub(super) struct CandidateJob<'a> {
    /// The job as the advisor sees it.
    pub subject: JobInput,
    /// What is known of it.
    pub facts: &'a JobFacts,
}

/// A candidate, with what is known of its rates.
struct RatedJob<'a> {
    candidate: CandidateJob<'a>,
    rates: Vec<RateCurve>,
    /// Samples a second on one node of those that there are, or a guess.
    unit: f64,
    /// The same on the fastest type; 0 where it is a guess.
    known_unit: f64,
}

impl<'a> RatedJob<'a> {
    fn from_candidate(
        candidate: CandidateJob<'a>,
        library: &JobAdvisor,
        types: &[NodeType],
        lent: Option<&[NodeType]>,
        supply: &BTreeMap<&NodeType, u32>,
    ) -> Self {
        let rates = known_rates(&candidate.subject, candidate.block_size(), library, types);
        let only = candidate.own_type();
        let mut rates = rates_on_own_kind(rates, candidate.facts.program.on_cpus, lent, only.as_ref());
        for rate in &mut rates {
            rate.needs = declared_needs(&candidate.subject.plans, &rate.exec_plan);
        }
        let sizes = &candidate.subject.sizes;
        let unit = unit_rate::mean_unit_rate(&rates, sizes, supply);
        let prior = curves::prior_curve(sizes);
        let is_guess = rates.iter().all(|r| r.curve == prior);
        let known_unit = if is_guess { 0.0 } else { unit_rate::fastest_unit_rate(&rates, sizes) };
        RatedJob { candidate, rates, unit, known_unit }
    }
}

/// What one worker of a plan needs, as far as its owner says.
fn declared_needs(plans: &[DeclaredPlan], exec_plan: &ExecPlan) -> PlanNeeds {
    plans.iter().find(|plan| plan.name == *exec_plan).map_or(PlanNeeds::default(), |plan| plan.needs)
}

/// Samples a second that are believed of a job on one node; 0 where nothing can be said.
pub(super) fn believed_unit_rate(
    candidate: CandidateJob<'_>,
    library: &JobAdvisor,
    types: &[NodeType],
) -> f64 {
    RatedJob::from_candidate(candidate, library, types, None, &BTreeMap::new()).known_unit
}

impl CandidateJob<'_> {
    /// How many places each of its nodes takes.
    fn block_size(&self) -> u32 {
        self.facts.place.block.max(1)
    }

    /// The type of the places that are its own, where it is a job of the main queue that wings extend: it can
    /// be on no other.
    fn own_type(&self) -> Option<NodeType> {
        let own = self.facts.place.own.first().filter(|node| node.is_place());
        own.map(|_| self.subject.key.node_type.single_place().0)
    }
}

/// The candidates as the planner sees them.
pub(super) fn malleable_jobs(
    candidates: Vec<CandidateJob<'_>>,
    library: &JobAdvisor,
    turns: &JobPriorities,
    (gaps, topology): (&GapSet, &Topology),
    config: &PlannerConfig,
    now: UnixTime,
) -> Vec<MalleableJob> {
    let crossed = CrossingLimits::new(gaps, topology);
    let room = NodeCapacity::from_gaps(gaps);
    let supply = unit_rate::count_by_type(gaps);
    let all_types: Vec<NodeType> = supply.keys().map(|node_type| (*node_type).clone()).collect();
    let lent = gaps.gaps.first().is_some_and(|gap| gap.node.is_place()).then_some(all_types.as_slice());
    let rated =
        candidates.into_iter().map(|c| RatedJob::from_candidate(c, library, &all_types, lent, &supply));
    let rated: Vec<RatedJob<'_>> = rated.collect();
    let ahead = |r: &RatedJob<'_>| {
        turns.remaining_work(r.candidate.facts, r.known_unit, r.candidate.subject.costs.start_secs)
    };
    let ahead: Vec<RemainingWork> = rated.iter().map(ahead).collect();
    let weights = job_weights(&rated, &ahead, turns, config);
    // What a node-second of a job counts.
    let worth = |rated: &RatedJob<'_>, weight: f64| match rated.unit {
        unit if unit > 0.0 => weight * unit / f64::from(rated.candidate.block_size()),
        _ => weight,
    };
    let most = rated.iter().zip(&weights).map(|(r, weight)| worth(r, *weight)).fold(0.0, f64::max);
    let wish = |(rated, weight): (&RatedJob<'_>, &f64)| {
        let CandidateJob { subject, facts } = &rated.candidate;
        facts.claims.at_least?;
        let known = rates_with_crossing(rated.rates.clone(), &rated.candidate, &crossed, library);
        let more = most / worth(rated, *weight);
        GuaranteeRequest::from_claims(subject, facts, known, gaps, turns.rotation.turn_of(facts.job), more)
    };
    let mut wishes: Vec<Option<GuaranteeRequest>> = rated.iter().zip(&weights).map(wish).collect();
    let all: Vec<&JobFacts> = rated.iter().map(|rated| rated.candidate.facts).collect();
    let mut there = GuaranteeSupply::from_gaps(gaps, all.iter().copied());
    guarantees::grant_guarantees(&mut wishes, &all, &mut there, &turns.promises);
    let job = |(((rated, ahead), weight), wish): (
        ((RatedJob<'_>, RemainingWork), f64),
        Option<GuaranteeRequest>,
    )| {
        let outweighs = most / worth(&rated, weight);
        let RatedJob { candidate, rates, known_unit: unit, .. } = rated;
        let rates = rates_with_crossing(rates, &candidate, &crossed, library);
        let may_be_on =
            |aim: &ProbeAim| candidate.own_type().is_none_or(|own| own == aim.key.node_type.single_place().0);
        let is_allowed = |aim: &ProbeAim| may_be_on(aim) && guarantee_permits(wish.as_ref(), aim);
        let probe = library
            .aim_of(candidate.subject.job)
            .filter(|aim: &&ProbeAim| is_in_reach(aim, &candidate, &room) && is_allowed(aim));
        let turn = turns.rotation.turn_of(candidate.facts.job);
        let pushes = turn == Some(TurnState::Next) && turns.rotation.has_pressure();
        let bonus = waiting_bonus(candidate.facts, pushes, outweighs);
        let least = candidate.subject.sizes.min();
        let bonus = bonus.map(|times| times * rates.iter().map(|r| r.curve.rate(least)).fold(0.0, f64::max));
        let mut rates = raised_rates(rates, &candidate, probe, bonus, config);
        let assured = wish.map(|wish| wish.grant_bonus(&mut rates, &candidate.subject.sizes));
        let probing = library.is_probing(candidate.subject.job, now);
        let last_change = candidate.facts.changing.last_at.filter(|_| !probing);
        let mut job = malleable_job(&candidate, weight, rates, last_change, &config.costs, now);
        job.assured = assured;
        (job.turn, job.waiting_bonus) = (turn, bonus.unwrap_or(0.0));
        job.probe = probe.and_then(|aim| probe_for(aim, &candidate));
        job_end::raise_growth_cost(&mut job, &ahead, candidate.facts.running, unit, config.horizon_secs);
        checkpoint_risk::add_checkpoint_risk(
            &mut job,
            candidate.facts,
            library.profile_stops(&candidate.subject.key),
            now,
        );
        extended_jobs::merge_own_nodes(job, candidate.facts.place.extra_own_nodes())
    };
    rated.into_iter().zip(ahead).zip(weights).zip(wishes).map(job).collect()
}

/// What a sample of each job counts. Jobs count their samples in different units: a node-second at its
/// smallest size weighs the same for all of one share; that of a block so much as its places. A user's share
/// is divided over the user's jobs. Where jobs shall end soon, those that will count for a little more.
fn job_weights(
    rated: &[RatedJob<'_>],
    ahead: &[RemainingWork],
    turns: &JobPriorities,
    config: &PlannerConfig,
) -> Vec<f64> {
    let mut jobs_of: BTreeMap<&str, f64> = BTreeMap::new();
    for rated in rated {
        // What cannot start takes nothing from its owner's others.
        let counts = f64::from(u8::from(rated.candidate.facts.standing.is_in_play()));
        *jobs_of.entry(&rated.candidate.subject.key.user).or_default() += counts;
    }
    let share = |user: &str| config.user_share(user);
    let of_one = |rated: &RatedJob<'_>, jobs: f64| {
        let share = share(&rated.candidate.subject.key.user) / jobs * f64::from(rated.candidate.block_size());
        if rated.unit > 0.0 { share / rated.unit } else { share }
    };
    let jobs = |r: &RatedJob<'_>| jobs_of.get(user_of(r)).map_or(1.0, |jobs| jobs.max(1.0));
    let tilt = |r: &RatedJob<'_>| turns.rotation.weight_factor(r.candidate.facts.job);
    let soon = match config.objective {
        PlanningObjective::Completion => job_end::urgency_factors(
            &rated
                .iter()
                .zip(ahead)
                .map(|(r, ahead)| (user_of(r), left_at_best(r, ahead)))
                .collect::<Vec<_>>(),
        ),
        PlanningObjective::Throughput => vec![1.0; rated.len()],
    };
    rated.iter().zip(soon).map(|(r, soon)| of_one(r, jobs(r)) * tilt(r) * soon).collect()
}

fn user_of<'r>(rated: &'r RatedJob<'_>) -> &'r str {
    &rated.candidate.subject.key.user
}

/// Seconds of one node that a job has ahead, each start of it counted as those of all nodes of its fastest
/// size; `None` where that is not well known.
fn left_at_best(rated: &RatedJob<'_>, ahead: &RemainingWork) -> Option<f64> {
    let fastest = rated.rates.iter().map(|rate| curves::max_rate(&rate.curve)).fold(0.0, f64::max);
    let times = if rated.known_unit > 0.0 { (fastest / rated.known_unit).max(1.0) } else { 1.0 };
    ahead.is_well_known().then(|| ahead.remaining_secs() + times * ahead.stop_secs)
}

/// Whether the job can be brought there: it never takes another job's node.
fn is_in_reach(aim: &ProbeAim, candidate: &CandidateJob<'_>, room: &NodeCapacity) -> bool {
    let stays = aim.key.node_type == candidate.subject.key.node_type;
    let place = &candidate.facts.place;
    let held = if stays { place.held.len() as u32 + place.extra_own_nodes() } else { 0 };
    aim.nodes <= held + room.free_nodes(&aim.key.node_type)
}

/// Whether a job may try a size: not one at which it is taken to make less than it is promised.
fn guarantee_permits(wish: Option<&GuaranteeRequest>, aim: &ProbeAim) -> bool {
    let node_type = aim.key.node_type.single_place().0;
    wish.is_none_or(|wish| wish.permits_run(&node_type, &aim.key.exec_plan, aim.nodes))
}

/// What changes cost a job that makes no samples for so many seconds anyway.
fn costs_beyond(costs: &RescaleCosts, secs: f64) -> RescaleCosts {
    let more = |cost: f64| (cost - secs).max(0.0);
    RescaleCosts {
        up_secs: more(costs.up_secs),
        down_secs: more(costs.down_secs),
        start_secs: more(costs.start_secs),
    }
}

/// What is known of the job's rates, within reason; a prior where nothing is. `block`: how many places each
/// of its nodes takes; what is known of others says nothing of these. `types`: all that there are now.
fn known_rates(subject: &JobInput, block: u32, library: &JobAdvisor, types: &[NodeType]) -> Vec<RateCurve> {
    let of_blocks: Vec<NodeType> = types.iter().map(|t| t.clone().with_place_count(block)).collect();
    let mut rates = library.rate_curves(subject, &of_blocks);
    rates.retain_mut(|rate| {
        let Some((one, width)) = rate.node_type.as_ref().map(NodeType::single_place) else { return true };
        rate.node_type = Some(one);
        width == block
    });
    for rate in &mut rates {
        rate.curve = curves::capped_curve(&rate.curve, &subject.sizes, MOST_MEASURED);
    }
    if rates.is_empty() {
        let fitting = |plan: Option<&DeclaredPlan>, node_type: &NodeType| {
            library.fitting_sizes(subject, plan, &node_type.clone().with_place_count(block))
        };
        rates = prior_rates(subject, types, &fitting);
    }
    rates
}

/// The rates, less where the job would be on several hosts or leaf switches and is slower there.
fn rates_with_crossing(
    mut rates: Vec<RateCurve>,
    candidate: &CandidateJob<'_>,
    crossed: &CrossingLimits<'_>,
    library: &JobAdvisor,
) -> Vec<RateCurve> {
    let key = &candidate.subject.key;
    let block = candidate.block_size();
    let job = candidate.subject.job;
    let lead = candidate.facts.place.lead.as_ref();
    let asking = CurveRequest { job, lead, sizes: &candidate.subject.sizes, block };
    for rate in &mut rates {
        let node_type =
            rate.node_type.as_ref().map_or(key.node_type.clone(), |t| t.clone().with_place_count(block));
        let key = ProfileKey { node_type, exec_plan: rate.exec_plan.clone(), ..key.clone() };
        let node_type = rate.node_type.as_ref();
        rate.curve = crossed.slowed_curve(&rate.curve, &asking, node_type, library.crossing_slowdown(&key));
    }
    rates
}

/// The rates of a job of which nothing is known: with each of its execution plans the same. `fitting`: the
/// sizes at which a plan fits into memory on a type of nodes; `None` for all. Where nothing fits, it shall
/// fail as itself.
fn prior_rates(
    subject: &JobInput,
    types: &[NodeType],
    fitting: &impl Fn(Option<&DeclaredPlan>, &NodeType) -> Option<AllowedSizes>,
) -> Vec<RateCurve> {
    let curve = curves::prior_curve(&subject.sizes);
    let one = |exec_plan: ExecPlan, node_type: Option<NodeType>, sizes: Option<AllowedSizes>| RateCurve {
        exec_plan,
        node_type,
        curve: curve.clone(),
        sizes,
        needs: PlanNeeds::default(),
    };
    // Of one plan: one curve for all types, or one for each if it is not for all, or not with the same sizes.
    let on = |plan: Option<&DeclaredPlan>, fits: bool| {
        let name = plan.map_or_else(ExecPlan::default, |plan| plan.name.clone());
        let own = plan.and_then(|plan| plan.sizes.clone());
        let suiting = types.iter().filter(|t| plan.is_none_or(|plan| plan.runs_on(t)));
        let sized = suiting.map(|t| (t, fitting(plan, t).filter(|_| fits).or_else(|| own.clone())));
        let sized: Vec<(&NodeType, Option<AllowedSizes>)> = sized.collect();
        let is_for_all = plan.is_none_or(|plan| plan.node_types.is_empty());
        if is_for_all && sized.iter().all(|(_, sizes)| *sizes == sized[0].1) {
            let sizes = sized.into_iter().next().map_or(own, |(_, sizes)| sizes);
            return vec![one(name, None, sizes)];
        }
        sized.into_iter().map(|(t, sizes)| one(name.clone(), Some(t.clone()), sizes)).collect()
    };
    let of_all = |fits: bool| -> Vec<RateCurve> {
        let plans = subject.plans.iter().map(Some).chain(subject.plans.is_empty().then_some(None));
        plans.flat_map(|plan| on(plan, fits)).collect()
    };
    let mut all = of_all(true);
    all.retain(|rate: &RateCurve| rate.sizes.as_ref().is_none_or(|s| !s.up_to(u32::MAX).is_empty()));
    if all.is_empty() {
        all = of_all(false);
    }
    // Where none of its plans runs on what there is now, it waits for other nodes.
    let nowhere = || vec![one(subject.plans[0].name.clone(), Some(NodeType::new("")), None)];
    if all.is_empty() { nowhere() } else { all }
}

/// The types of all gaps.
pub(super) fn gap_types(gaps: &GapSet) -> Vec<NodeType> {
    let types: BTreeSet<&NodeType> = gaps.gaps.iter().map(|gap| &gap.node_type).collect();
    types.into_iter().cloned().collect()
}

/// The same rates, but none on parts of nodes that are for others: those with GPUs, or those without, or all
/// but those of one type, where it can be on these only.
fn rates_on_own_kind(
    rates: Vec<RateCurve>,
    on_cpus: bool,
    types: Option<&[NodeType]>,
    only: Option<&NodeType>,
) -> Vec<RateCurve> {
    let Some(types) = types else { return rates };
    let fits = |t: &NodeType| t.has_gpus() != on_cpus && only.is_none_or(|only| only == t);
    let is_known = |plan: &ExecPlan, t: &NodeType| {
        rates.iter().any(|rate| rate.exec_plan == *plan && rate.node_type.as_ref() == Some(t))
    };
    let on_others = |everywhere: &RateCurve| {
        let others = types.iter().filter(|t| fits(t) && !is_known(&everywhere.exec_plan, t));
        others
            .map(|t: &NodeType| RateCurve { node_type: Some(t.clone()), ..everywhere.clone() })
            .collect::<Vec<_>>()
    };
    let others: Vec<RateCurve> = rates.iter().filter(|r| r.node_type.is_none()).flat_map(on_others).collect();
    let known = rates.into_iter().filter(|rate| rate.node_type.as_ref().is_some_and(fits));
    let mut all: Vec<RateCurve> = known.chain(others).collect();
    if all.is_empty() {
        // Nothing is lent now that is for it.
        let curve = ScalingCurve::linear();
        let node_type = Some(NodeType::new(""));
        all.push(RateCurve::new(ExecPlan::default(), node_type, curve, None));
    }
    all
}

/// How many times more its smallest size counts of a job that waits; `None` if it does not. `pushes`: it is
/// its turn, and others hold what it needs. `outweighs`: how many times as much as its node-second somebody
/// else's counts.
fn waiting_bonus(facts: &JobFacts, pushes: bool, outweighs: f64) -> Option<f64> {
    facts.waits_since.map(|_| if pushes { curves::turn_bonus(outweighs) } else { 0.0 })
}

/// Whether a job with this standing may start.
pub(super) fn may_start(standing: &SchedulingState, now: UnixTime) -> bool {
    match standing {
        SchedulingState::Waiting | SchedulingState::Running => true,
        SchedulingState::BackOff(until) => *until <= now,
        SchedulingState::Busy | SchedulingState::Barred(_) => false,
    }
}

/// Rates with what waiting adds to them, or the wish to measure a size.
fn raised_rates(
    mut rates: Vec<RateCurve>,
    candidate: &CandidateJob<'_>,
    probe: Option<&ProbeAim>,
    bonus: Option<f64>,
    config: &PlannerConfig,
) -> Vec<RateCurve> {
    let JobInput { sizes, costs, swap_secs, .. } = &candidate.subject;
    let of_one = probe.is_some_and(|aim| is_of_one_way(aim, &candidate.subject));
    let fastest = rates.iter().map(|rate| curves::max_rate(&rate.curve)).fold(0.0, f64::max);
    for rate in &mut rates {
        rate.curve = match (bonus, probe) {
            // On its way to other nodes a job waits, too.
            (_, Some(aim)) if of_one && probes_curve(aim, rate) => {
                let moves = aim.key.node_type != candidate.subject.key.node_type;
                let replans = aim.key.exec_plan != candidate.subject.key.exec_plan;
                let dearer = if moves { Some(costs.start_secs) } else { swap_secs.filter(|_| replans) };
                let up_secs = costs.up_secs.max(dearer.unwrap_or(0.0));
                let costs = RescaleCosts { up_secs, ..*costs };
                curves::with_probe(&rate.curve, aim.nodes, fastest, &costs, config)
            }
            (_, Some(_)) if of_one => continue,
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

/// The size at which the rates are raised for a probe, if they are: a job that waits, and has but one way to
/// run, is raised at all sizes.
fn probe_for(aim: &ProbeAim, candidate: &CandidateJob<'_>) -> Option<Probe> {
    let of_one = is_of_one_way(aim, &candidate.subject);
    let with = of_one.then(|| (aim.key.exec_plan.clone(), aim.key.node_type.single_place().0));
    let is_raised = of_one || candidate.facts.waits_since.is_none();
    is_raised.then_some(Probe { nodes: aim.nodes, with })
}

/// Whether a probe is of one way to run among several: of a plan, or of another type of nodes.
fn is_of_one_way(aim: &ProbeAim, subject: &JobInput) -> bool {
    !subject.plans.is_empty() || aim.key.node_type != subject.key.node_type
}

/// Whether a probe is to measure this curve.
fn probes_curve(aim: &ProbeAim, rate: &RateCurve) -> bool {
    rate.exec_plan == aim.key.exec_plan
        && rate.node_type.as_ref() == Some(&aim.key.node_type.single_place().0)
}

/// How much of the configured hysteresis holds for a job: it is meant for changes that cost what is
/// configured.
fn change_reluctance(costs: &RescaleCosts, usual: &RescaleCosts) -> f64 {
    let change = |c: &RescaleCosts| c.up_secs.max(c.down_secs);
    match change(usual) {
        usual if usual > 0.0 => (change(costs) / usual).min(1.0),
        _ => 1.0,
    }
}

fn malleable_job(
    candidate: &CandidateJob<'_>,
    weight: f64,
    rates: Vec<RateCurve>,
    last_change: Option<UnixTime>,
    usual: &RescaleCosts,
    now: UnixTime,
) -> MalleableJob {
    let CandidateJob { subject, facts } = candidate;
    let pause_secs = facts.changing.pause.map_or(0.0, |pause| pause.remaining_secs(&subject.costs, now));
    MalleableJob {
        id: facts.job,
        user: facts.user,
        weight,
        sizes: subject.sizes.clone(),
        block: candidate.block_size(),
        rates,
        costs: costs_beyond(&subject.costs, pause_secs),
        swap_secs: subject.swap_secs.map(|secs| (secs - pause_secs).max(0.0)),
        reluctance: change_reluctance(&subject.costs, usual),
        standing: facts.standing.clone(),
        exec_plan: facts.changing.exec_plan.clone(),
        lead_node: facts.place.lead.clone(),
        lead_away: facts.place.lead_away,
        held: facts.place.held.clone(),
        submitted_at: facts.submitted_at,
        last_change,
        assured: None,
        probe: None,
        stay_secs: 0.0,
        turn: None,
        waiting_bonus: 0.0,
        excluded: facts.excluded.clone(),
    }
}

#[cfg(test)]
mod tests;
