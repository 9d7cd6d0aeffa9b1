//! Whether a plan keeps promises.
//!
//! A job that reaches its promised rate keeps that rate as long as its nodes last. A job that makes less is
//! brought there where that is possible: if free nodes and those that others hold above their minimum are
//! enough. This must fit into the budget of changes. It must not touch a job in the middle of a change, or
//! one that was changed a moment ago. Each round brings at least one such job to its promised rate. No job
//! grows beyond its minimum onto nodes that another job waits for.
//!
//! The last resort changes nothing, so it brings no job there. Where CPUs and memory of hosts are counted,
//! the checker cannot tell beforehand whether a host has enough left for a worker.

use std::collections::BTreeMap;

use super::checked_job::{CheckedJob, NodeGaps, best_rate};
use super::rules::Violation;
use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{Gap, JobId, MalleableJob, NodeName, NodeType, Plan, RateGuarantee, SolveStatus};

/// Adds each broken promise, and each job that grows while another waits for its promised nodes.
pub(super) fn check_guarantees(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    plan: &Plan,
    facts: &[CheckedJob<'_>],
    found: &mut Vec<Violation>,
) {
    let any = facts.iter().any(|f| f.job.active_guarantee().is_some());
    if !any || problem.drain || steps.is_empty() {
        return;
    }
    let round = GuaranteeCheck::new(problem, steps, facts);
    let mut in_line: Vec<&JobHolding<'_>> = round.holdings.iter().filter(|h| h.is_in_force()).collect();
    in_line.sort_by_key(|h| (h.facts.job.submitted_at, h.facts.job.id));
    let (held, short): (Vec<&JobHolding<'_>>, Vec<&JobHolding<'_>>) =
        in_line.into_iter().partition(|h| h.keeps_guarantee(round.counts_hosts));
    found.extend(held.into_iter().filter(|h| !h.is_met()).map(JobHolding::below_promise));
    let searched = !matches!(plan.status, SolveStatus::LastResort(_));
    if searched && short.iter().all(|h| !h.is_met()) {
        found.extend(short.iter().find(|h| round.can_bring(h)).map(|h| h.below_promise()));
    }
    for waits in short.into_iter().filter(|h| !h.is_met() && round.has_enough_nodes(h)) {
        found.extend(round.holdings.iter().filter_map(|other| round.grows_beside(other, waits)));
    }
}

/// A job with what it holds.
struct JobHolding<'a> {
    facts: &'a CheckedJob<'a>,
    /// The gap of its lead's node, if the job keeps that node through the first step.
    lead: Option<&'a Gap>,
    /// For each of its other nodes that it can keep through the first step, the gap that ends first.
    others: Vec<&'a Gap>,
    /// Whether it was changed a moment ago, and stays as it is.
    is_locked: bool,
}

impl<'a> JobHolding<'a> {
    fn from_checked(problem: &PlanningProblem<'a>, steps: &TimeSteps, facts: &'a CheckedJob<'a>) -> Self {
        let job = facts.job;
        let lead = job.lead_node.as_ref().and_then(|node| lasting_gap(problem, steps, job, node));
        let mut others: Vec<&Gap> = job
            .held
            .iter()
            .map(|held| &held.node)
            .filter(|node| Some(*node) != job.lead_node.as_ref())
            .filter_map(|node| lasting_gap(problem, steps, job, node))
            .filter(|gap| lead.is_some_and(|lead| lead.node_type == gap.node_type))
            .collect();
        others.dedup_by_key(|gap| &gap.node);
        let is_locked = facts.can_stay && problem.stays_secs(job).is_some();
        JobHolding { facts, lead, others, is_locked }
    }

    fn guarantee(&self) -> Option<&'a RateGuarantee> {
        self.facts.job.active_guarantee()
    }

    fn below_promise(&self) -> Violation {
        let promised = self.guarantee().map_or(0.0, |promise| promise.rate);
        Violation::BelowPromise { job: self.facts.job.id, promised }
    }

    /// Whether it has a promise and runs or may start.
    fn is_in_force(&self) -> bool {
        let job = self.facts.job;
        let in_line = job.held.is_empty() && job.turn.is_some_and(|turn| turn.queue_position().is_some());
        job.active_guarantee().is_some() && !self.facts.is_busy && !self.facts.is_barred && !in_line
    }

    /// Nodes that it can keep through the first step.
    fn lasting_nodes(&self) -> u32 {
        if self.lead.is_some() { self.others.len() as u32 + 1 } else { 0 }
    }

    /// Whether the plan gives it its promised rate.
    fn is_met(&self) -> bool {
        let CheckedJob { planned, gaps, .. } = self.facts;
        let node_type = self.facts.node_type().zip(self.guarantee());
        node_type.is_some_and(|(t, promise)| promise.is_enough(t, &planned.exec_plan, gaps.len() as u32))
    }

    /// Whether it reaches its promised rate as it is, or with what it can keep where it cannot stay as it is.
    fn keeps_guarantee(&self, counts_hosts: bool) -> bool {
        let Some(lead) = self.lead else { return false };
        let Some(promise) = self.guarantee() else { return false };
        let job = self.facts.job;
        if self.facts.can_stay {
            return promise.is_enough(&lead.node_type, &job.exec_plan, job.held.len() as u32);
        }
        !counts_hosts
            && promise.min_nodes_on(&lead.node_type).is_some_and(|nodes| nodes <= self.lasting_nodes())
    }
}

/// The first gap to end of a node that the job holds and can keep through the first step.
fn lasting_gap<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    job: &MalleableJob,
    node: &NodeName,
) -> Option<&'a Gap> {
    let gaps = NodeGaps::for_node(problem, node).filter(|gaps| gaps.is_held_by(job))?;
    let node_type = &gaps.first_to_end.node_type;
    let is_one_type = gaps.gaps.iter().all(|gap| gap.node_type == *node_type);
    let is_whole = gaps.gaps.len() == job.places_per_node.max(1) as usize;
    let lasts = steps.ends().first().is_some_and(|end| gaps.first_to_end.usable_until >= *end);
    (is_one_type && is_whole && lasts).then_some(gaps.first_to_end)
}

/// The round's problem with what each job holds.
struct GuaranteeCheck<'a> {
    problem: &'a PlanningProblem<'a>,
    steps: &'a TimeSteps,
    holdings: Vec<JobHolding<'a>>,
    /// The node types of the round, sorted.
    types: Vec<&'a NodeType>,
    /// For each job its minimum on each of these types.
    minimum: BTreeMap<JobId, Vec<u32>>,
    /// Whether CPUs and memory of hosts are counted.
    counts_hosts: bool,
}

impl<'a> GuaranteeCheck<'a> {
    fn new(problem: &'a PlanningProblem<'a>, steps: &'a TimeSteps, facts: &'a [CheckedJob<'a>]) -> Self {
        let has_shares = problem.gaps.gaps.iter().any(|gap| gap.share.is_some());
        let has_needs = problem.jobs.iter().any(|job| job.rates.iter().any(|rate| !rate.needs.is_empty()));
        let holdings = facts.iter().map(|facts| JobHolding::from_checked(problem, steps, facts)).collect();
        let mut types: Vec<&NodeType> = problem.gaps.gaps.iter().map(|gap| &gap.node_type).collect();
        types.sort_unstable();
        types.dedup();
        let mut minimum = BTreeMap::new();
        for CheckedJob { job, .. } in facts {
            minimum.insert(job.id, types.iter().map(|t| min_nodes_of(job, t)).collect());
        }
        GuaranteeCheck { problem, steps, holdings, types, minimum, counts_hosts: has_shares && has_needs }
    }

    /// The minimum of a job on a type, see [`min_nodes_of`].
    fn min_nodes_on(&self, job: &MalleableJob, node_type: &NodeType) -> u32 {
        let at = self.types.binary_search(&node_type).ok();
        at.and_then(|at| self.minimum.get(&job.id)?.get(at).copied()).unwrap_or(0)
    }

    /// Whether a job could take a node that it does not hold.
    fn is_usable(&self, job: &MalleableJob, gap: &Gap) -> bool {
        let lasts = self.steps.ends().first().is_some_and(|end| gap.usable_until >= *end);
        let is_long = gap.usable_until.secs_since(self.problem.now) >= self.problem.min_window_secs;
        lasts && is_long && !job.excluded.contains(&gap.node)
    }

    /// The number of nodes of a type that a job could make of free places.
    fn free_nodes(&self, job: &MalleableJob, node_type: &NodeType) -> u32 {
        let block = job.places_per_node.max(1);
        let gaps = self.problem.gaps.gaps.iter().filter(|gap| gap.node_type == *node_type);
        let mut on_host: BTreeMap<Option<NodeName>, u32> = BTreeMap::new();
        for gap in gaps.filter(|gap| gap.holder.is_none() && self.is_usable(job, gap)) {
            *on_host.entry((block > 1).then(|| gap.node.host())).or_default() += 1;
        }
        on_host.values().map(|places| places / block).sum()
    }

    /// The number of nodes of a type that another job can certainly give to this one while it keeps its own
    /// minimum. The other job may keep just those that this one could use.
    fn spare_nodes(&self, other: &JobHolding<'_>, job: &MalleableJob, node_type: &NodeType) -> u32 {
        let is_single = job.places_per_node <= 1 && other.facts.job.places_per_node <= 1;
        let is_of_type = other.lead.is_some_and(|lead| lead.node_type == *node_type);
        if !is_single || !is_of_type {
            return 0;
        }
        let usable = other.others.iter().filter(|gap| self.is_usable(job, gap)).count() as u32;
        let keeps = self.min_nodes_on(other.facts.job, node_type);
        usable.saturating_sub(keeps.saturating_sub(1))
    }

    /// Whether a job below its promised rate can be brought there in this round.
    fn can_bring(&self, short: &JobHolding<'_>) -> bool {
        let Some(promise) = short.guarantee() else { return false };
        let job = short.facts.job;
        let own_change = u32::from(short.facts.can_stay || job.held.is_empty());
        if short.is_locked || self.counts_hosts || own_change > self.problem.config.max_changes {
            return false;
        }
        let changes = self.problem.config.max_changes - own_change;
        self.types.iter().copied().any(|node_type| {
            let Some(needs) = promise.min_nodes_on(node_type) else { return false };
            let stays = short.lead.is_some_and(|lead| lead.node_type == *node_type);
            let fresh = needs.saturating_sub(if stays { short.lasting_nodes() } else { 0 });
            let pays = stays || job.costs.start_secs < self.steps.total_secs();
            let may = (self.problem.may_grow || (stays && fresh == 0)) && pays;
            may && fresh <= self.free_nodes(job, node_type) + self.givable_nodes(short, node_type, changes)
        })
    }

    /// Nodes that others can give in this round, with at most this number of voluntary changes.
    fn givable_nodes(&self, short: &JobHolding<'_>, node_type: &NodeType, changes: u32) -> u32 {
        let mut must = 0;
        let mut may = Vec::new();
        for other in self.holdings.iter().filter(|other| other.facts.job.id != short.facts.job.id) {
            let facts = other.facts;
            let is_short = other.is_in_force() && !other.keeps_guarantee(self.counts_hosts);
            if facts.is_busy || facts.is_barred || other.is_locked || is_short {
                continue;
            }
            let gives = self.spare_nodes(other, short.facts.job, node_type);
            if facts.can_stay { may.push(gives) } else { must += gives }
        }
        may.sort_unstable_by(|a, b| b.cmp(a));
        must + may.into_iter().take(changes as usize).sum::<u32>()
    }

    /// Whether enough nodes exist for a job beside the minimum of others, whatever else prevents it.
    fn has_enough_nodes(&self, short: &JobHolding<'_>) -> bool {
        let Some(promise) = short.guarantee() else { return false };
        let job = short.facts.job;
        self.types.iter().copied().any(|node_type| {
            let stays = short.lead.is_some_and(|lead| lead.node_type == *node_type);
            let own = if stays { short.lasting_nodes() } else { 0 };
            let others = self.holdings.iter().filter(|other| other.facts.job.id != job.id);
            let available = own
                + self.free_nodes(job, node_type)
                + others.map(|other| self.spare_nodes(other, job, node_type)).sum::<u32>();
            promise.min_nodes_on(node_type).is_some_and(|needs| needs <= available)
        })
    }

    /// The first node beyond its minimum that a job gets while another one waits for such a node.
    fn grows_beside(&self, other: &JobHolding<'_>, waits: &JobHolding<'_>) -> Option<Violation> {
        let facts = other.facts;
        let promise = waits.guarantee()?;
        if facts.job.id == waits.facts.job.id || facts.is_busy {
            return None;
        }
        let gets = facts.gaps.len() as u32;
        let placed = facts.gaps.iter().zip(&facts.planned.nodes);
        for ((gap, _), placement) in placed.filter(|((_, held), _)| !held) {
            let Some(gap) = gap else { continue };
            let is_wanted = promise.min_nodes_on(&gap.node_type).is_some();
            let is_beyond_minimum = gets > self.min_nodes_on(facts.job, &gap.node_type);
            if is_wanted && is_beyond_minimum && self.is_usable(waits.facts.job, gap) {
                let node = placement.node.clone();
                return Some(Violation::GrowsBesidePromise {
                    job: facts.job.id,
                    node,
                    waits: waits.facts.job.id,
                });
            }
        }
        None
    }
}

/// The minimum of a job on a type: its smallest size with a known rate, or with its promised rate. Other jobs
/// get their promised nodes before the job gets more than this.
fn min_nodes_of(job: &MalleableJob, node_type: &NodeType) -> u32 {
    let least = job
        .sizes
        .up_to(u32::MAX)
        .into_iter()
        .find(|nodes| best_rate(job, node_type, *nodes as usize) > 0.0)
        .unwrap_or(job.sizes.min());
    let promised = job.active_guarantee().and_then(|promise| promise.min_nodes_on(node_type));
    least.max(promised.unwrap_or(0))
}
