//! Minimum rates that owners want for their jobs: which of them are promised, and how much more the sizes
//! that reach them count. The bonus of such a size outweighs whatever others gain above their own minimum.
//!
//! A promise is made only if its nodes exist beside those of all earlier promises and the minimum of the
//! other running jobs. No job is parked for it. Promises are made in the order of submission. A promise stays
//! while its own nodes and those of all promises before it exist, even when other jobs arrive later. A rule
//! of the checker keeps promises as well. A rate that is not promised makes no size count more, so it takes
//! nothing from other jobs.

use std::collections::{BTreeMap, BTreeSet};

use super::curves;
use infill_advisor::JobInput;
use infill_model::{
    AllowedSizes, CurvePoint, ExcludedNodes, ExecPlan, GapSet, GuaranteeProspect, JobFacts, JobId,
    MalleableJob, MinimumRate, NodeName, NodeType, RateGuarantee, RequestedRun, ScalingCurve,
    SchedulingState, SufficientSizes, TurnState, UnixTime, malleable::RateCurve,
};

/// The bonus of a promised rate for each node that it takes, in multiples of the rate per node at the
/// smallest size. Other jobs make little more of a node than of their first, and they also have changes to
/// pay for.
const BONUS_PER_NODE: f64 = 3.0;

/// The largest bonus, in multiples of the rate per node. A job that waits for very long counts more in the
/// end.
const MAX_BONUS_FACTOR: f64 = 80.0;

/// The largest factor on a bonus for the shares of other users.
const MAX_SHARE_FACTOR: f64 = 1e6;

/// A promise that was made and still stands.
#[derive(Clone, Copy, Debug)]
struct MadeGuarantee {
    /// The time at which it was made.
    at: UnixTime,
    /// Nodes that it takes; 0 until a round has computed that.
    needs: u32,
}

/// Promises that were made in earlier rounds and still stand.
#[derive(Clone, Debug, Default)]
pub(super) struct GuaranteeRecord {
    made: BTreeMap<JobId, MadeGuarantee>,
    /// Whether an earlier daemon made them, and this one has made no round yet.
    is_restored: bool,
}

impl GuaranteeRecord {
    /// Restores the promises that an earlier daemon made, each with its time.
    pub fn restore_guarantees(&mut self, made: impl Iterator<Item = (JobId, UnixTime)>) {
        self.made = made.map(|(job, at)| (job, MadeGuarantee { at, needs: 0 })).collect();
        self.is_restored = true;
    }

    /// Replaces the record by the promises of this round. A promise that stands keeps its time. The first
    /// round after a start comes before profiles are read, so it neither makes a promise nor takes one back.
    pub fn record_guarantees(&mut self, jobs: &[MalleableJob], now: UnixTime) {
        let is_first = std::mem::take(&mut self.is_restored);
        let kept = jobs.iter().filter(|job| {
            let is_unmeasured = prospect_of(job) == Some(GuaranteeProspect::Unmeasured);
            if is_first || is_unmeasured {
                self.has_guarantee(job.id)
            } else {
                job.active_guarantee().is_some()
            }
        });
        self.made = kept.map(|job| (job.id, self.continued(job, now))).collect();
    }

    /// The present promise of a job, with the nodes that this round has computed for it.
    fn continued(&self, job: &MalleableJob, now: UnixTime) -> MadeGuarantee {
        let before = self.made.get(&job.id);
        let needs = match prospect_of(job) {
            Some(GuaranteeProspect::Open { needs } | GuaranteeProspect::Waits { needs }) => needs,
            _ => before.map_or(0, |made| made.needs),
        };
        MadeGuarantee { at: before.map_or(now, |made| made.at), needs }
    }

    /// Forgets the promise to a job that has ended: Slurm may give its id to another job.
    pub fn forget_job(&mut self, job: JobId) {
        self.made.remove(&job);
    }

    /// The time at which a job was promised its rate; `None` without a promise.
    pub fn made_at(&self, job: JobId) -> Option<UnixTime> {
        self.made.get(&job).map(|made| made.at)
    }

    /// Places that the promise of a job takes, beyond those of a main job; `None` without a promise.
    pub fn promised_places(&self, facts: &JobFacts) -> Option<u32> {
        let made = self.made.get(&facts.job)?;
        Some(places_for(facts, made.needs))
    }

    fn has_guarantee(&self, job: JobId) -> bool {
        self.made.contains_key(&job)
    }

    /// Sort key: promises that were made come first, by their time. The others follow by submission.
    fn queue_rank(&self, facts: &JobFacts) -> (UnixTime, UnixTime, JobId) {
        let made = self.made_at(facts.job).unwrap_or(UnixTime(i64::MAX));
        (made, facts.submitted_at, facts.job)
    }
}

/// The prospect of a job's minimum rate in this round; `None` if it wants none.
fn prospect_of(job: &MalleableJob) -> Option<GuaranteeProspect> {
    job.guarantee.as_ref().map(|guarantee| guarantee.prospect)
}

/// Places that this number of a job's nodes takes. A main job's own nodes beyond its first take none.
fn places_for(facts: &JobFacts, nodes: u32) -> u32 {
    let others = nodes.saturating_sub(facts.location.extra_own_nodes()).max(1);
    others.saturating_mul(facts.location.places_per_node.max(1))
}

/// The nodes or places of a round, how many of them the running jobs keep, and how many are promised.
pub(super) struct GuaranteeSupply<'a> {
    gaps: &'a GapSet,
    /// Places of a type that each running job keeps in any case.
    kept: Vec<(JobId, &'a NodeType, u32)>,
    /// Places of a type that each job was promised in this round.
    promised: Vec<(JobId, &'a NodeType, u32)>,
}

impl<'a> GuaranteeSupply<'a> {
    /// The supply before any promise is made. `jobs` are all malleable jobs of the round.
    pub(super) fn from_gaps<'j>(gaps: &'a GapSet, jobs: impl Iterator<Item = &'j JobFacts>) -> Self {
        let types: BTreeMap<&NodeName, &NodeType> =
            gaps.gaps.iter().map(|gap| (&gap.node, &gap.node_type)).collect();
        let mut kept = Vec::new();
        for facts in jobs {
            let place = &facts.location;
            let Some(first) = place.held.first() else { continue };
            let node_type = first.node.single_places().first().and_then(|node| types.get(node).copied());
            // A job keeps its minimum in any case, or all that it has where that is less.
            let nodes = facts.sizes.min().min(place.held.len() as u32);
            kept.extend(
                node_type.map(|t| (facts.job, t, nodes.saturating_mul(place.places_per_node.max(1)))),
            );
        }
        GuaranteeSupply { gaps, kept, promised: Vec::new() }
    }

    /// The number of places of each type that a job may use, whichever job has them now.
    fn usable_places(&self, facts: &JobFacts) -> BTreeMap<&'a NodeType, u32> {
        let mut places = BTreeMap::new();
        for gap in self.gaps.gaps.iter().filter(|gap| !facts.excluded.contains(&gap.node)) {
            *places.entry(&gap.node_type).or_default() += 1;
        }
        places
    }

    /// Places of a type that other jobs were promised.
    fn promised_to_others(&self, job: JobId, node_type: &NodeType) -> u32 {
        let others = self.promised.iter().filter(|(other, t, _)| *other != job && *t == node_type);
        others.map(|(.., places)| places).sum()
    }

    /// Places of a type that the other running jobs keep, jobs with a promise left out.
    fn kept_by_others(&self, job: JobId, node_type: &NodeType) -> u32 {
        self.kept
            .iter()
            .filter(|(other, t, _)| *other != job && *t == node_type)
            .filter(|(other, ..)| !self.promised.iter().any(|(promised, ..)| promised == other))
            .map(|(.., places)| places)
            .sum()
    }

    /// The type of the node on which a job's lead is or was.
    fn lead_type(&self, facts: &JobFacts) -> Option<&'a NodeType> {
        let lead = facts.location.lead.as_ref()?.single_places();
        let gap = self.gaps.gaps.iter().find(|gap| lead.first() == Some(&gap.node))?;
        Some(&gap.node_type)
    }

    /// Decides about the next request in line, and takes its places if it is promised. `stands` says that it
    /// was promised in an earlier round.
    fn decide_prospect(
        &mut self,
        facts: &JobFacts,
        request: &GuaranteeRequest,
        stands: bool,
    ) -> GuaranteeProspect {
        let mut nearest: Option<(u32, GuaranteeProspect)> = None;
        let mut fitting: Option<(bool, u32, &NodeType)> = None;
        let lead_type = self.lead_type(facts);
        for (node_type, usable) in self.usable_places(facts) {
            let Some(needs) = request.guarantee.min_nodes_on(node_type) else { continue };
            let promised = self.promised_to_others(facts.job, node_type);
            let kept = if stands { 0 } else { self.kept_by_others(facts.job, node_type) };
            let available = nodes_from_places(facts, usable.saturating_sub(promised).saturating_sub(kept));
            if needs <= available {
                let moves = lead_type.is_some_and(|lead_type| lead_type != node_type);
                if fitting.is_none_or(|best| (moves, needs) < (best.0, best.1)) {
                    fitting = Some((moves, needs, node_type));
                }
                continue;
            }
            let missing = needs - available;
            let prospect = if nodes_from_places(facts, usable.saturating_sub(kept)) >= needs {
                GuaranteeProspect::Promised { needs, available }
            } else {
                GuaranteeProspect::TooFew { needs, available }
            };
            if nearest.as_ref().is_none_or(|(fewest, _)| missing < *fewest) {
                nearest = Some((missing, prospect));
            }
        }
        let Some((_, needs, node_type)) = fitting else {
            return nearest.map_or_else(|| request.prospect_without_nodes(), |(_, prospect)| prospect);
        };
        if !request.may_start {
            return GuaranteeProspect::Waits { needs };
        }
        self.promised.push((facts.job, node_type, places_for(facts, needs)));
        GuaranteeProspect::Open { needs }
    }
}

/// The number of nodes that a job can make of these places, and the nodes of its own that it adds.
fn nodes_from_places(facts: &JobFacts, places: u32) -> u32 {
    (places / facts.location.places_per_node.max(1)).saturating_add(facts.location.extra_own_nodes())
}

/// The minimum rate that the owner of a job wants. Waiting and probing have not raised its rates yet.
pub(super) struct GuaranteeRequest {
    guarantee: RateGuarantee,
    /// The job's rates, without bonus.
    rates: Vec<RateCurve>,
    /// Sizes that the job allows, ascending.
    allowed: Vec<u32>,
    /// Whether the job runs, or may start now.
    may_start: bool,
    /// How many times more a node of another job may count than one of this job.
    share_factor: f64,
}

impl GuaranteeRequest {
    /// The request of a job, with nothing promised yet; `None` if its owner asks for no minimum.
    /// `share_factor` says how many times more a node of another job may count than one of this job.
    pub(super) fn from_claims(
        input: &JobInput,
        facts: &JobFacts,
        rates: Vec<RateCurve>,
        gaps: &GapSet,
        turn: Option<TurnState>,
        share_factor: f64,
    ) -> Option<GuaranteeRequest> {
        let minimum = facts.declaration.at_least?;
        let prior = curves::prior_curve(&input.sizes);
        let is_measured = rates.iter().any(|rate| rate.curve != prior);
        let requested = match minimum {
            MinimumRate::Rate(_) => None,
            MinimumRate::Requested(nodes) => {
                Some(RequestedRun { nodes, exec_plan: first_plan(input, &rates) })
            }
        };
        let rate = match (minimum, &requested) {
            (MinimumRate::Rate(rate), _) => Some(rate),
            (MinimumRate::Requested(_), Some(run)) if is_measured => {
                slowest_rate(run, &rates, gaps, &facts.excluded)
            }
            _ => None,
        };
        let prospect = match rate {
            None if is_measured => GuaranteeProspect::NoSuchRun,
            _ => GuaranteeProspect::Unmeasured,
        };
        let allowed = input.sizes.up_to(u32::MAX);
        let mut guarantee = RateGuarantee {
            rate: rate.unwrap_or(0.0),
            requested,
            prospect,
            bonus: 0.0,
            sufficient_sizes: Vec::new(),
        };
        if let Some(minimum) = rate.filter(|_| is_measured) {
            guarantee.sufficient_sizes =
                rates.iter().map(|rate| sufficient_sizes(rate, &allowed, minimum)).collect();
        }
        let in_line = turn.is_some_and(|turn| turn.queue_position().is_some());
        let may_start = facts.scheduling_state.is_in_play()
            && !(in_line && facts.scheduling_state == SchedulingState::Waiting);
        Some(GuaranteeRequest { guarantee, rates, allowed, may_start, share_factor })
    }

    /// The highest rate of any plan at any allowed size, samples a second.
    fn max_rate(&self) -> f64 {
        let rates = self.rates.iter().flat_map(|rate| self.allowed.iter().map(|nodes| rate.rate(*nodes)));
        rates.fold(0.0, f64::max)
    }

    /// The prospect where the round has no node that the job could use for its minimum.
    fn prospect_without_nodes(&self) -> GuaranteeProspect {
        match self.guarantee.sufficient_sizes.iter().filter_map(SufficientSizes::min_nodes).min() {
            Some(needs) => GuaranteeProspect::TooFew { needs, available: 0 },
            None => GuaranteeProspect::TooSlow { most: self.max_rate() },
        }
    }

    /// Whether a run keeps the promise; always true where nothing is promised.
    pub(super) fn permits_run(&self, node_type: &NodeType, exec_plan: &ExecPlan, nodes: u32) -> bool {
        !self.guarantee.is_promised() || self.guarantee.is_enough(node_type, exec_plan, nodes)
    }

    /// Adds the bonus to the sizes that reach the promised rate, if it is promised. `rates` are those that
    /// the request was made for, raised or not.
    pub(super) fn grant_bonus(self, rates: &mut [RateCurve], sizes: &AllowedSizes) -> RateGuarantee {
        if self.guarantee.is_promised() {
            for ((rate, base), enough) in
                rates.iter_mut().zip(&self.rates).zip(&self.guarantee.sufficient_sizes)
            {
                if enough.min_nodes().is_some() {
                    rate.curve = curve_with_bonus(&rate.curve, &base.curve, sizes, &self.guarantee);
                }
            }
        }
        self.guarantee
    }
}

/// The execution plan that the job was submitted with.
fn first_plan(input: &JobInput, rates: &[RateCurve]) -> ExecPlan {
    let declared = input.plans.first().map(|plan| &plan.name);
    declared.or(rates.first().map(|rate| &rate.exec_plan)).cloned().unwrap_or_default()
}

/// Makes promises in the order of their rank: those of earlier rounds first, then by submission.
pub(super) fn grant_guarantees(
    requests: &mut [Option<GuaranteeRequest>],
    facts: &[&JobFacts],
    supply: &mut GuaranteeSupply<'_>,
    record: &GuaranteeRecord,
) {
    let mut order: Vec<usize> = (0..requests.len()).filter(|at| requests[*at].is_some()).collect();
    order.sort_by_key(|at| record.queue_rank(facts[*at]));
    for at in order {
        let Some(request) =
            requests[at].as_mut().filter(|request| !request.guarantee.sufficient_sizes.is_empty())
        else {
            continue;
        };
        let prospect = supply.decide_prospect(facts[at], request, record.has_guarantee(facts[at].job));
        request.guarantee.prospect = prospect;
        if let GuaranteeProspect::Open { needs } = prospect {
            let smallest = (request.allowed.first().copied().unwrap_or(1)).max(1);
            let per_node = request.rates.iter().map(|rate| rate.curve.rate(smallest) / f64::from(smallest));
            let margin = (BONUS_PER_NODE * f64::from(needs)).min(MAX_BONUS_FACTOR);
            let share_factor = request.share_factor.clamp(1.0, MAX_SHARE_FACTOR);
            request.guarantee.bonus = margin * per_node.fold(0.0, f64::max) * share_factor;
        }
    }
}

/// The allowed sizes at which a plan makes at least `minimum` samples a second.
fn sufficient_sizes(rate: &RateCurve, allowed: &[u32], minimum: f64) -> SufficientSizes {
    let wanted = RateGuarantee {
        rate: minimum,
        requested: None,
        prospect: GuaranteeProspect::Unmeasured,
        bonus: 0.0,
        sufficient_sizes: Vec::new(),
    };
    let exec_plan = rate.exec_plan.clone();
    SufficientSizes::from_allowed(exec_plan, rate.node_type.clone(), allowed, |nodes| {
        wanted.is_met_by(rate.rate(nodes))
    })
}

/// The rate of a run on the slowest type of nodes that the job may use; `None` where it runs on none of them.
/// The job could have been put on that type, and no type that it moves to lowers what it is promised.
fn slowest_rate(
    run: &RequestedRun,
    rates: &[RateCurve],
    gaps: &GapSet,
    excluded: &ExcludedNodes,
) -> Option<f64> {
    let usable = gaps.gaps.iter().filter(|gap| !excluded.contains(&gap.node));
    let types: BTreeSet<&NodeType> = usable.map(|gap| &gap.node_type).collect();
    types
        .into_iter()
        .filter_map(|node_type| rate_on_type(rates, &run.exec_plan, node_type))
        .map(|rate| rate.rate(run.nodes))
        .filter(|rate| *rate > 0.0)
        .reduce(f64::min)
}

/// The rates of a plan on a type. A curve for this type takes precedence over one for all types.
fn rate_on_type<'r>(
    rates: &'r [RateCurve],
    exec_plan: &ExecPlan,
    node_type: &NodeType,
) -> Option<&'r RateCurve> {
    let mut of_plan = rates.iter().filter(|rate| rate.exec_plan == *exec_plan);
    let for_all = of_plan.clone().find(|rate| rate.node_type.is_none());
    of_plan.find(|rate| rate.node_type.as_ref() == Some(node_type)).or(for_all)
}

/// The curve with the bonus at every size whose measured rate reaches the guarantee. `base` is the curve
/// without raises.
fn curve_with_bonus(
    curve: &ScalingCurve,
    base: &ScalingCurve,
    sizes: &AllowedSizes,
    guarantee: &RateGuarantee,
) -> ScalingCurve {
    let all = sizes.up_to(u32::MAX);
    let borders = all
        .windows(2)
        .filter(|pair| guarantee.is_met_by(base.rate(pair[0])) != guarantee.is_met_by(base.rate(pair[1])))
        .flatten()
        .copied();
    let inner = curve.points().iter().map(|p| p.nodes).filter(|n| (sizes.min()..=sizes.max()).contains(n));
    let nodes: BTreeSet<u32> = borders.chain(inner).chain([sizes.min(), sizes.max()]).collect();
    let points = nodes.into_iter().map(|nodes| {
        let bonus = if guarantee.is_met_by(base.rate(nodes)) { guarantee.bonus } else { 0.0 };
        CurvePoint { nodes, rate: curve.rate(nodes) + bonus }
    });
    ScalingCurve::new(points.collect()).unwrap_or_else(|_| curve.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{Gap, WindowEnd};

    #[test]
    fn every_size_that_reaches_the_rate_gets_the_same_bonus() {
        let sizes = AllowedSizes::parse("1-16").unwrap();
        let prospect = GuaranteeProspect::Open { needs: 5 };
        let guarantee = RateGuarantee {
            rate: 33.0,
            requested: None,
            prospect,
            bonus: 150.0,
            sufficient_sizes: Vec::new(),
        };
        for (text, raised) in [("1:10,2:19,4:32,8:60,16:20", 5..=13), ("1:33,16:40", 1..=16)] {
            let curve = ScalingCurve::parse(text).unwrap();
            let stepped = curve_with_bonus(&curve, &curve, &sizes, &guarantee);
            for n in 1..=16 {
                let more = if raised.contains(&n) { 150.0 } else { 0.0 };
                assert!((stepped.rate(n) - curve.rate(n) - more).abs() < 1e-9, "{text} at {n}");
                assert!(
                    (guarantee.rate_without_bonus(stepped.rate(n)) - curve.rate(n)).abs() < 1e-9,
                    "{text} at {n}"
                );
            }
        }
    }

    fn gap(node: &str, node_type: &str) -> Gap {
        Gap {
            node: NodeName::from(node),
            node_type: NodeType::new(node_type),
            since: UnixTime(0),
            end: WindowEnd::Unknown,
            vacate_by: None,
            usable_until: UnixTime(900),
            expected_secs: 900.0,
            holder: None,
            share: None,
        }
    }

    fn rate(plan: &str, node_type: Option<&str>, curve: &str, sizes: Option<&str>) -> RateCurve {
        let plan = ExecPlan(plan.to_owned());
        let sizes = sizes.map(|sizes| AllowedSizes::parse(sizes).unwrap());
        RateCurve::new(plan, node_type.map(NodeType::new), ScalingCurve::parse(curve).unwrap(), sizes)
    }

    #[test]
    fn the_requested_rate_is_the_one_on_the_slowest_type_that_the_job_may_use() {
        let gaps = GapSet {
            gaps: vec![gap("n1", "fast"), gap("n2", "slow"), gap("n3", "old")],
            refused: Vec::new(),
        };
        let rates = [
            rate("dp", None, "1:10,4:40", None),
            rate("dp", Some("slow"), "1:5,4:20", None),
            // There it does not run at four nodes.
            rate("dp", Some("old"), "1:1", Some("1-2")),
            rate("tp", Some("fast"), "1:50,4:90", None),
        ];
        let slowest = |plan: &str, nodes: u32, excluded: &[&str]| {
            let run = RequestedRun { nodes, exec_plan: ExecPlan(plan.to_owned()) };
            let excluded = excluded.iter().map(|node| NodeName::from(*node)).collect();
            slowest_rate(&run, &rates, &gaps, &excluded)
        };
        assert_eq!(slowest("dp", 4, &[]), Some(20.0));
        assert_eq!(slowest("dp", 4, &["n2"]), Some(40.0), "a job that asked for other nodes");
        assert_eq!(slowest("dp", 1, &[]), Some(1.0));
        assert_eq!((slowest("tp", 4, &[]), slowest("tp", 4, &["n1"])), (Some(90.0), None));
        assert_eq!(slowest("dp", 4, &["n1", "n2"]), None);
    }
}
