//! What owners want of their jobs at the least: which of it is promised, and sizes that make so many samples
//! count more, by so much that nothing that others gain above their own least outweighs it.
//!
//! A promise is made only if the nodes that it takes are there beside those of all promises made before, and
//! beside the least of the others that run: nobody is parked for it. It is made in the order of submission,
//! and stays made while the nodes of all promises before it and its own are there, whoever comes later. What
//! is promised is kept by a rule of the judge as well; a rate that is not promised makes no size count more,
//! so it takes nothing from anybody.

use std::collections::{BTreeMap, BTreeSet};

use super::curves;
use infill_advisor::JobInput;
use infill_model::{
    AllowedSizes, CurvePoint, ExcludedNodes, ExecPlan, GapSet, GuaranteeProspect, JobFacts, JobId,
    MalleableJob, MinimumRate, NodeName, NodeType, RateGuarantee, RequestedRun, ScalingCurve,
    SchedulingState, SufficientSizes, TurnState, UnixTime, malleable::RateCurve,
};

/// How many times more than its smallest size each node that a rate takes counts. Others make little more of
/// a node than of their first, and have changes to pay for, too.
const BONUS_PER_NODE: f64 = 3.0;

/// No rate counts more than so many times a node: who waits for very long counts more in the end.
const MAX_BONUS_FACTOR: f64 = 80.0;

/// Nor does it for the sake of others' shares.
const MAX_SHARE_FACTOR: f64 = 1e6;

/// A promise that was made and still stands.
#[derive(Clone, Copy, Debug)]
struct MadeGuarantee {
    at: UnixTime,
    /// Nodes that it takes; 0 until a look says that.
    needs: u32,
}

/// Promises that were made at earlier looks and still stand.
#[derive(Clone, Debug, Default)]
pub(super) struct GuaranteeRecord {
    made: BTreeMap<JobId, MadeGuarantee>,
    /// Whether an earlier daemon made them, and this one has not looked yet.
    is_restored: bool,
}

impl GuaranteeRecord {
    /// Takes up what an earlier daemon promised.
    pub fn restore_guarantees(&mut self, made: impl Iterator<Item = (JobId, UnixTime)>) {
        self.made = made.map(|(job, at)| (job, MadeGuarantee { at, needs: 0 })).collect();
        self.is_restored = true;
    }

    /// Takes in what is promised now. The first look after a start comes before profiles are read, so it
    /// neither makes a promise nor takes one back.
    pub fn record_guarantees(&mut self, jobs: &[MalleableJob], now: UnixTime) {
        let is_first = std::mem::take(&mut self.is_restored);
        let standing = jobs.iter().filter(|job| {
            let is_made = self.has_guarantee(job.id);
            match prospect_of(job) {
                _ if is_first => is_made,
                Some(GuaranteeProspect::Unmeasured) => is_made,
                _ => job.active_guarantee().is_some(),
            }
        });
        self.made = standing.map(|job| (job.id, self.continued(job, now))).collect();
    }

    /// The promise of a job that stands, by what a look says of it.
    fn continued(&self, job: &MalleableJob, now: UnixTime) -> MadeGuarantee {
        let before = self.made.get(&job.id);
        let needs = match prospect_of(job) {
            Some(GuaranteeProspect::Open { needs } | GuaranteeProspect::Waits { needs }) => needs,
            _ => before.map_or(0, |made| made.needs),
        };
        MadeGuarantee { at: before.map_or(now, |made| made.at), needs }
    }

    /// Forgets what was promised to a job that is gone: its number may be another one's next.
    pub fn forget_job(&mut self, job: JobId) {
        self.made.remove(&job);
    }

    /// When a job was promised its rate.
    pub fn made_at(&self, job: JobId) -> Option<UnixTime> {
        self.made.get(&job).map(|made| made.at)
    }

    /// Places that the promise of a job takes, beyond those of a main job; `None` where nothing is promised.
    pub fn promised_places(&self, facts: &JobFacts) -> Option<u32> {
        let made = self.made.get(&facts.job)?;
        Some(places_for(facts, made.needs))
    }

    fn has_guarantee(&self, job: JobId) -> bool {
        self.made.contains_key(&job)
    }

    /// Where the promise of a job stands in line.
    fn queue_rank(&self, facts: &JobFacts) -> (UnixTime, UnixTime, JobId) {
        let made = self.made_at(facts.job).unwrap_or(UnixTime(i64::MAX));
        (made, facts.submitted_at, facts.job)
    }
}

/// What a round says of the wish of a job, if it has one.
fn prospect_of(job: &MalleableJob) -> Option<GuaranteeProspect> {
    job.assured.as_ref().map(|assured| assured.prospect)
}

/// Places that these nodes of a job take. Own nodes of a main job beyond its first take none.
fn places_for(facts: &JobFacts, nodes: u32) -> u32 {
    let (block, own) = (facts.place.block.max(1), facts.place.extra_own_nodes());
    nodes.saturating_sub(own).max(1).saturating_mul(block)
}

/// Nodes, or places of such, that there are, who has them, and which are promised.
pub(super) struct GuaranteeSupply<'a> {
    gaps: &'a GapSet,
    /// What each job that runs keeps in any case.
    kept: Vec<(JobId, &'a NodeType, u32)>,
    /// What is promised, and to whom.
    promised: Vec<(JobId, &'a NodeType, u32)>,
}

impl<'a> GuaranteeSupply<'a> {
    /// What these gaps are to these jobs.
    pub(super) fn from_gaps<'j>(gaps: &'a GapSet, jobs: impl Iterator<Item = &'j JobFacts>) -> Self {
        let types: BTreeMap<&NodeName, &NodeType> =
            gaps.gaps.iter().map(|gap| (&gap.node, &gap.node_type)).collect();
        // What a job keeps in any case: its least, if it has so much.
        let kept = |job: &JobFacts| {
            let place = &job.place;
            let node_type = *types.get(place.held.first()?.node.single_places().first()?)?;
            let nodes = job.sizes.min().min(place.held.len() as u32);
            Some((job.job, node_type, nodes.saturating_mul(place.block.max(1))))
        };
        GuaranteeSupply { gaps, kept: jobs.filter_map(kept).collect(), promised: Vec::new() }
    }

    /// Each type with the number of places of it that a job may have, whoever has them now.
    fn usable_places(&self, facts: &JobFacts) -> BTreeMap<&'a NodeType, u32> {
        let mut all = BTreeMap::new();
        for gap in self.gaps.gaps.iter().filter(|gap| !facts.excluded.contains(&gap.node)) {
            *all.entry(&gap.node_type).or_default() += 1;
        }
        all
    }

    /// Places of a type that others were promised.
    fn promised_to_others(&self, job: JobId, node_type: &NodeType) -> u32 {
        let others = self.promised.iter().filter(|(other, of, _)| *other != job && *of == node_type);
        others.map(|(.., places)| places).sum()
    }

    /// The least of others that run and were promised nothing.
    fn kept_by_others(&self, job: JobId, node_type: &NodeType) -> u32 {
        let is_promised = |other: &JobId| self.promised.iter().any(|(promised, ..)| promised == other);
        let others = self.kept.iter().filter(|(other, of, _)| *other != job && *of == node_type);
        others.filter(|(other, ..)| !is_promised(other)).map(|(.., places)| places).sum()
    }

    /// What becomes of a wish that is the next in line.
    fn decide_prospect(
        &mut self,
        facts: &JobFacts,
        wish: &GuaranteeRequest,
        stands: bool,
    ) -> GuaranteeProspect {
        let block = facts.place.block.max(1);
        let own = facts.place.extra_own_nodes();
        let mut nearest: Option<(u32, GuaranteeProspect)> = None;
        let mut fitting: Option<(bool, u32, &NodeType)> = None;
        let lead_type = || {
            let lead = facts.place.lead.as_ref()?.single_places();
            self.gaps.gaps.iter().find(|gap| lead.first() == Some(&gap.node)).map(|gap| &gap.node_type)
        };
        let lead_type = lead_type();
        for (node_type, all) in self.usable_places(facts) {
            let Some(needs) = wish.assured.min_nodes_on(node_type) else { continue };
            let nodes = |places: u32| (places / block).saturating_add(own);
            let promised = self.promised_to_others(facts.job, node_type);
            let kept = if stands { 0 } else { self.kept_by_others(facts.job, node_type) };
            let there = nodes(all.saturating_sub(promised).saturating_sub(kept));
            if needs <= there {
                let moves = lead_type.is_some_and(|of_lead| of_lead != node_type);
                if fitting.is_none_or(|best| (moves, needs) < (best.0, best.1)) {
                    fitting = Some((moves, needs, node_type));
                }
                continue;
            }
            let short = needs - there;
            let prospect = match nodes(all.saturating_sub(kept)) >= needs {
                true => GuaranteeProspect::Promised { needs, there },
                false => GuaranteeProspect::TooFew { needs, there },
            };
            if nearest.as_ref().is_none_or(|(least, _)| short < *least) {
                nearest = Some((short, prospect));
            }
        }
        let Some((_, needs, node_type)) = fitting else {
            return nearest.map_or_else(
                || match wish.assured.enough.iter().filter_map(SufficientSizes::min_nodes).min() {
                    Some(needs) => GuaranteeProspect::TooFew { needs, there: 0 },
                    None => GuaranteeProspect::TooSlow { most: wish.max_rate() },
                },
                |(_, prospect)| prospect,
            );
        };
        if !wish.may_start {
            return GuaranteeProspect::Waits { needs };
        }
        self.promised.push((facts.job, node_type, places_for(facts, needs)));
        GuaranteeProspect::Open { needs }
    }
}

/// What the owner of a job wants of it at the least, before waiting and probing raise its rates.
pub(super) struct GuaranteeRequest {
    assured: RateGuarantee,
    /// Its rates as they are known.
    known: Vec<RateCurve>,
    /// Its sizes.
    allowed: Vec<u32>,
    /// Whether it runs, or may start now.
    may_start: bool,
    /// How many times more than its own node somebody else's may count.
    more: f64,
}

impl GuaranteeRequest {
    /// The wish of a job, of which nothing is promised yet. `more`: how many times more than its own node
    /// somebody else's may count.
    pub(super) fn from_claims(
        (subject, facts): (&JobInput, &JobFacts),
        known: Vec<RateCurve>,
        gaps: &GapSet,
        turn: Option<TurnState>,
        more: f64,
    ) -> Option<GuaranteeRequest> {
        let at_least = facts.claims.at_least?;
        let prior = curves::prior_curve(&subject.sizes);
        let is_known = known.iter().any(|rate| rate.curve != prior);
        let first = || {
            let plans = subject.plans.first().map(|plan| &plan.name);
            plans.or(known.first().map(|rate| &rate.exec_plan)).cloned().unwrap_or_default()
        };
        let asked = match at_least {
            MinimumRate::Rate(_) => None,
            MinimumRate::Asked(nodes) => Some(RequestedRun { nodes, exec_plan: first() }),
        };
        let rate = match (at_least, &asked) {
            (MinimumRate::Rate(rate), _) => Some(rate),
            (MinimumRate::Asked(_), Some(run)) if is_known => {
                slowest_rate(run, &known, gaps, &facts.excluded)
            }
            _ => None,
        };
        let prospect = match rate {
            None if is_known => GuaranteeProspect::NoSuchRun,
            _ => GuaranteeProspect::Unmeasured,
        };
        let allowed = subject.sizes.up_to(u32::MAX);
        let mut assured =
            RateGuarantee { rate: rate.unwrap_or(0.0), asked, prospect, bonus: 0.0, enough: Vec::new() };
        if let Some(least) = rate.filter(|_| is_known) {
            assured.enough = known.iter().map(|rate| sufficient_sizes(rate, &allowed, least)).collect();
        }
        let in_line = turn.is_some_and(|turn| turn.queue_position().is_some());
        let may_start =
            facts.standing.is_in_play() && !(in_line && facts.standing == SchedulingState::Waiting);
        Some(GuaranteeRequest { assured, known, allowed, may_start, more })
    }

    /// The most samples a second that it makes with any plan at any size.
    fn max_rate(&self) -> f64 {
        let rates = self.known.iter().flat_map(|rate| self.allowed.iter().map(|n| rate.rate(*n)));
        rates.fold(0.0, f64::max)
    }

    /// Whether a run keeps what is promised, if anything is.
    pub(super) fn permits_run(&self, node_type: &NodeType, exec_plan: &ExecPlan, nodes: u32) -> bool {
        !self.assured.is_promised() || self.assured.is_enough(node_type, exec_plan, nodes)
    }

    /// Makes the sizes that it is about count more, if they are promised; `rates` are those that it was made
    /// for, raised or not.
    pub(super) fn grant_bonus(self, rates: &mut [RateCurve], sizes: &AllowedSizes) -> RateGuarantee {
        if self.assured.is_promised() {
            for ((rate, known), enough) in rates.iter_mut().zip(&self.known).zip(&self.assured.enough) {
                if enough.min_nodes().is_some() {
                    rate.curve = curve_with_bonus(&rate.curve, &known.curve, sizes, &self.assured);
                }
            }
        }
        self.assured
    }
}

/// Makes promises in the order in which they stand: those that were made before, then by submission.
pub(super) fn grant_guarantees(
    wishes: &mut [Option<GuaranteeRequest>],
    facts: &[&JobFacts],
    there: &mut GuaranteeSupply<'_>,
    made: &GuaranteeRecord,
) {
    let mut order: Vec<usize> = (0..wishes.len()).filter(|at| wishes[*at].is_some()).collect();
    order.sort_by_key(|at| made.queue_rank(facts[*at]));
    for at in order {
        let Some(wish) = wishes[at].as_mut().filter(|wish| !wish.assured.enough.is_empty()) else { continue };
        let prospect = there.decide_prospect(facts[at], wish, made.has_guarantee(facts[at].job));
        wish.assured.prospect = prospect;
        if let GuaranteeProspect::Open { needs } = prospect {
            let sizes = (wish.allowed.first().copied().unwrap_or(1)).max(1);
            let unit = wish.known.iter().map(|rate| rate.curve.rate(sizes) / f64::from(sizes));
            let margin = (BONUS_PER_NODE * f64::from(needs)).min(MAX_BONUS_FACTOR);
            wish.assured.bonus = margin * unit.fold(0.0, f64::max) * wish.more.clamp(1.0, MAX_SHARE_FACTOR);
        }
    }
}

/// The sizes at which a plan makes so much.
fn sufficient_sizes(rate: &RateCurve, allowed: &[u32], least: f64) -> SufficientSizes {
    let wanted = RateGuarantee {
        rate: least,
        asked: None,
        prospect: GuaranteeProspect::Unmeasured,
        bonus: 0.0,
        enough: Vec::new(),
    };
    let run = (rate.exec_plan.clone(), rate.node_type.clone());
    SufficientSizes::from_allowed(run, allowed, |nodes| wanted.is_met_by(rate.rate(nodes)))
}

/// What a run makes on the slowest type of nodes that the job may have; `None` where it runs on none of
/// them. On that it could have been put, and no type that it moves to makes it promised less.
fn slowest_rate(
    run: &RequestedRun,
    known: &[RateCurve],
    gaps: &GapSet,
    excluded: &ExcludedNodes,
) -> Option<f64> {
    let may_have = gaps.gaps.iter().filter(|gap| !excluded.contains(&gap.node));
    let types: BTreeSet<&NodeType> = may_have.map(|gap| &gap.node_type).collect();
    let on = |node_type: &NodeType| rate_on_type(known, &run.exec_plan, node_type).map(|r| r.rate(run.nodes));
    types.into_iter().filter_map(on).filter(|rate| *rate > 0.0).reduce(f64::min)
}

/// What is known of a plan on a type: what is said of the type goes before what is said of all.
fn rate_on_type<'r>(
    known: &'r [RateCurve],
    exec_plan: &ExecPlan,
    node_type: &NodeType,
) -> Option<&'r RateCurve> {
    let of_plan = || known.iter().filter(|rate| rate.exec_plan == *exec_plan);
    let of_type = of_plan().find(|rate| rate.node_type.as_ref() == Some(node_type));
    of_type.or_else(|| of_plan().find(|rate| rate.node_type.is_none()))
}

/// The curve with the bonus at every size of which it is known to make what is assured.
fn curve_with_bonus(
    curve: &ScalingCurve,
    known: &ScalingCurve,
    sizes: &AllowedSizes,
    assured: &RateGuarantee,
) -> ScalingCurve {
    let meets = |n: u32| assured.is_met_by(known.rate(n));
    let all = sizes.up_to(u32::MAX);
    let turns = all.windows(2).filter(|pair| meets(pair[0]) != meets(pair[1])).flatten().copied();
    let inner = curve.points().iter().map(|p| p.nodes).filter(|n| (sizes.min()..=sizes.max()).contains(n));
    let nodes: BTreeSet<u32> = turns.chain(inner).chain([sizes.min(), sizes.max()]).collect();
    let bonus = |n: u32| if meets(n) { assured.bonus } else { 0.0 };
    let points = nodes.into_iter().map(|nodes| CurvePoint { nodes, rate: curve.rate(nodes) + bonus(nodes) });
    ScalingCurve::new(points.collect()).unwrap_or_else(|_| curve.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{Gap, WindowEnd};

    #[test]
    fn sizes_that_make_so_many_count_more_by_the_same() {
        let sizes = AllowedSizes::parse("1-16").unwrap();
        let prospect = GuaranteeProspect::Open { needs: 5 };
        let assured = RateGuarantee { rate: 33.0, asked: None, prospect, bonus: 150.0, enough: Vec::new() };
        for (text, raised) in [("1:10,2:19,4:32,8:60,16:20", 5..=13), ("1:33,16:40", 1..=16)] {
            let curve = ScalingCurve::parse(text).unwrap();
            let stepped = curve_with_bonus(&curve, &curve, &sizes, &assured);
            for n in 1..=16 {
                let more = if raised.contains(&n) { 150.0 } else { 0.0 };
                assert!((stepped.rate(n) - curve.rate(n) - more).abs() < 1e-9, "{text} at {n}");
                assert!(
                    (assured.rate_without_bonus(stepped.rate(n)) - curve.rate(n)).abs() < 1e-9,
                    "{text} at {n}"
                );
            }
        }
    }

    #[test]
    fn what_was_asked_for_is_what_the_slowest_type_makes_that_the_job_may_have() {
        let gap = |node: &str, node_type: &str| Gap {
            node: NodeName::from(node),
            node_type: NodeType::new(node_type),
            since: UnixTime(0),
            end: WindowEnd::Unknown,
            vacate_by: None,
            usable_until: UnixTime(900),
            expected_secs: 900.0,
            holder: None,
            share: None,
        };
        let gaps = GapSet {
            gaps: vec![gap("n1", "fast"), gap("n2", "slow"), gap("n3", "old")],
            refused: Vec::new(),
        };
        let rate = |plan: &str, node_type: Option<&str>, curve: &str, sizes: Option<&str>| {
            let plan = ExecPlan(plan.to_owned());
            let sizes = sizes.map(|sizes| AllowedSizes::parse(sizes).unwrap());
            RateCurve::new(plan, node_type.map(NodeType::new), ScalingCurve::parse(curve).unwrap(), sizes)
        };
        let known = [
            rate("dp", None, "1:10,4:40", None),
            rate("dp", Some("slow"), "1:5,4:20", None),
            // There it does not run at four nodes.
            rate("dp", Some("old"), "1:1", Some("1-2")),
            rate("tp", Some("fast"), "1:50,4:90", None),
        ];
        let makes = |plan: &str, nodes: u32, excluded: &[&str]| {
            let run = RequestedRun { nodes, exec_plan: ExecPlan(plan.to_owned()) };
            let excluded = excluded.iter().map(|node| NodeName::from(*node)).collect();
            slowest_rate(&run, &known, &gaps, &excluded)
        };
        assert_eq!(makes("dp", 4, &[]), Some(20.0));
        assert_eq!(makes("dp", 4, &["n2"]), Some(40.0), "a job that asked for other nodes");
        assert_eq!(makes("dp", 1, &[]), Some(1.0));
        assert_eq!((makes("tp", 4, &[]), makes("tp", 4, &["n1"])), (Some(90.0), None));
        assert_eq!(makes("dp", 4, &["n1", "n2"]), None);
    }
}
