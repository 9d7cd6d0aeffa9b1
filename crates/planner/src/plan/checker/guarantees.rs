//! Whether promises are kept.
//!
//! A job that makes what it is promised goes on to make so much, as long as its nodes last. One that makes
//! less is brought there where it can be: if free nodes and those that others hold above their least are
//! enough, within the budget of changes and without anybody who is in the middle of a change or was changed a
//! moment ago. In each round at least one such job is. Nobody grows beyond the least onto nodes that another
//! one waits for.
//!
//! The last resort changes nothing, so it brings nobody anywhere. And where CPUs and memory of hosts are
//! counted, nobody can tell beforehand whether there is room for a worker.

use std::collections::BTreeMap;

use super::checked_job::{CheckedJob, NodeGaps, best_rate};
use super::rules::Violation;
use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{Gap, JobId, MalleableJob, NodeName, NodeType, Plan, RateGuarantee, SolveStatus};

/// Adds each promise that is broken, and each job that grows beside one.
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
    let below = |holding: &JobHolding<'_>| {
        let promised = holding.guarantee().map_or(0.0, |promise| promise.rate);
        Violation::BelowPromise { job: holding.facts.job.id, promised }
    };
    found.extend(held.into_iter().filter(|h| !h.is_met()).map(below));
    let searched = !matches!(plan.status, SolveStatus::LastResort(_));
    if searched && short.iter().all(|h| !h.is_met()) {
        found.extend(short.iter().find(|h| round.can_bring(h)).map(|h| below(h)));
    }
    for waits in short.into_iter().filter(|h| !h.is_met() && round.has_enough_nodes(h)) {
        found.extend(round.holdings.iter().filter_map(|other| round.grows_beside(other, waits)));
    }
}

/// A job with what it holds.
struct JobHolding<'a> {
    facts: &'a CheckedJob<'a>,
    /// The gap of its lead's node, if the job keeps that through the first step.
    lead: Option<&'a Gap>,
    /// The first gap to end of each other of its nodes that it can keep so.
    others: Vec<&'a Gap>,
    /// Whether it was changed a moment ago, and stays as it is.
    is_locked: bool,
}

impl<'a> JobHolding<'a> {
    fn from_checked(problem: &PlanningProblem<'a>, steps: &TimeSteps, facts: &'a CheckedJob<'a>) -> Self {
        let job = facts.job;
        let lasting = |node: &NodeName| {
            let patch = NodeGaps::for_node(problem, node).filter(|patch| patch.is_held_by(job))?;
            let node_type = &patch.first_to_end.node_type;
            let is_one = patch.gaps.iter().all(|gap| gap.node_type == *node_type);
            let is_whole = is_one && patch.gaps.len() == job.block.max(1) as usize;
            let lasts = steps.ends().first().is_some_and(|end| patch.first_to_end.usable_until >= *end);
            (is_whole && lasts).then_some(patch.first_to_end)
        };
        let lead = job.lead_node.as_ref().and_then(lasting);
        let others =
            job.held.iter().map(|held| &held.node).filter(|node| Some(*node) != job.lead_node.as_ref());
        let mut others: Vec<&Gap> = others
            .filter_map(lasting)
            .filter(|gap: &&Gap| lead.is_some_and(|lead| lead.node_type == gap.node_type))
            .collect();
        others.dedup_by_key(|gap| &gap.node);
        let is_locked = facts.can_stay && problem.stays_secs(job).is_some();
        JobHolding { facts, lead, others, is_locked }
    }

    fn guarantee(&self) -> Option<&'a RateGuarantee> {
        self.facts.job.active_guarantee()
    }

    /// Whether it is promised anything and runs, or may start.
    fn is_in_force(&self) -> bool {
        let job = self.facts.job;
        let in_line = job.held.is_empty() && job.turn.is_some_and(|turn| turn.queue_position().is_some());
        job.active_guarantee().is_some() && !self.facts.is_busy && !self.facts.is_barred && !in_line
    }

    /// Nodes that it can keep through the first step.
    fn lasting_nodes(&self) -> u32 {
        if self.lead.is_some() { self.others.len() as u32 + 1 } else { 0 }
    }

    /// Whether the plan gives it what it is promised.
    fn is_met(&self) -> bool {
        let CheckedJob { planned, gaps, .. } = self.facts;
        let node_type = self.facts.node_type().zip(self.guarantee());
        node_type.is_some_and(|(t, promise)| promise.is_enough(t, &planned.exec_plan, gaps.len() as u32))
    }

    /// Whether it makes its promise as it is; or where it cannot stay so, with what it can keep.
    fn keeps_guarantee(&self, counts_hosts: bool) -> bool {
        let (Some(lead), Some(promise), job) = (self.lead, self.guarantee(), self.facts.job) else {
            return false;
        };
        if self.facts.can_stay {
            return promise.is_enough(&lead.node_type, &job.exec_plan, job.held.len() as u32);
        }
        !counts_hosts
            && promise.min_nodes_on(&lead.node_type).is_some_and(|nodes| nodes <= self.lasting_nodes())
    }
}

/// What is asked about again and again.
struct GuaranteeCheck<'a> {
    problem: &'a PlanningProblem<'a>,
    steps: &'a TimeSteps,
    holdings: Vec<JobHolding<'a>>,
    /// The types that there are.
    types: Vec<&'a NodeType>,
    /// For each holding its least on each of them.
    least: BTreeMap<JobId, Vec<u32>>,
    /// Whether CPUs and memory of hosts are counted.
    counts_hosts: bool,
}

impl<'a> GuaranteeCheck<'a> {
    fn new(problem: &'a PlanningProblem<'a>, steps: &'a TimeSteps, facts: &'a [CheckedJob<'a>]) -> Self {
        let counts_hosts = problem.gaps.gaps.iter().any(|gap| gap.share.is_some());
        let holdings = facts.iter().map(|facts| JobHolding::from_checked(problem, steps, facts)).collect();
        let counts_hosts = counts_hosts
            && problem
                .jobs
                .iter()
                .any(|job: &MalleableJob| job.rates.iter().any(|rate| !rate.needs.is_empty()));
        let mut types: Vec<&NodeType> = problem.gaps.gaps.iter().map(|gap| &gap.node_type).collect();
        types.sort_unstable();
        types.dedup();
        let on_all = |job: &MalleableJob| types.iter().map(|t| min_nodes_of(job, t)).collect();
        let least = facts.iter().map(|facts| (facts.job.id, on_all(facts.job))).collect();
        GuaranteeCheck { problem, steps, holdings, types, least, counts_hosts }
    }

    /// The fewest nodes of a type that a job has while others are to have theirs.
    fn min_nodes_on(&self, job: &MalleableJob, node_type: &NodeType) -> u32 {
        let at = self.types.binary_search(&node_type).ok();
        at.and_then(|at| self.least.get(&job.id)?.get(at).copied()).unwrap_or(0)
    }

    /// Whether a job could take a node that it does not hold.
    fn is_usable(&self, job: &MalleableJob, gap: &Gap) -> bool {
        let lasts = self.steps.ends().first().is_some_and(|end| gap.usable_until >= *end);
        let is_long = gap.usable_until.secs_since(self.problem.now) >= self.problem.min_window_secs;
        lasts && is_long && !job.excluded.contains(&gap.node)
    }

    /// How many nodes of a type a job could make of free places.
    fn free_nodes(&self, job: &MalleableJob, node_type: &NodeType) -> u32 {
        let block = job.block.max(1);
        let gaps = self.problem.gaps.gaps.iter().filter(|gap| gap.node_type == *node_type);
        let mut on_host: BTreeMap<Option<NodeName>, u32> = BTreeMap::new();
        for gap in gaps.filter(|gap| gap.holder.is_none() && self.is_usable(job, gap)) {
            *on_host.entry((block > 1).then(|| gap.node.host())).or_default() += 1;
        }
        on_host.values().map(|places| places / block).sum()
    }

    /// How many nodes of a type another job has to give to this one, at the least, if it keeps its own least:
    /// it may keep those that are of use.
    fn spare_nodes(&self, other: &JobHolding<'_>, job: &MalleableJob, node_type: &NodeType) -> u32 {
        let is_single = job.block <= 1 && other.facts.job.block <= 1;
        let is_of_type = other.lead.is_some_and(|lead| lead.node_type == *node_type);
        if !is_single || !is_of_type {
            return 0;
        }
        let of_use = other.others.iter().filter(|gap| self.is_usable(job, gap)).count() as u32;
        let keeps = self.min_nodes_on(other.facts.job, node_type);
        of_use.saturating_sub(keeps.saturating_sub(1))
    }

    /// Whether a job that makes less than it is promised can be brought there in this round.
    fn can_bring(&self, short: &JobHolding<'_>) -> bool {
        let (job, Some(promise)) = (short.facts.job, short.guarantee()) else { return false };
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

    /// Nodes that others can give in this round, with so many changes of their own choice.
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

    /// Whether nodes enough are there for a job beside the least of others, whatever else stands against it.
    fn has_enough_nodes(&self, short: &JobHolding<'_>) -> bool {
        let (job, Some(promise)) = (short.facts.job, short.guarantee()) else { return false };
        self.types.iter().copied().any(|node_type| {
            let stays = short.lead.is_some_and(|lead| lead.node_type == *node_type);
            let own = if stays { short.lasting_nodes() } else { 0 };
            let others = self.holdings.iter().filter(|other| other.facts.job.id != job.id);
            let there = own
                + self.free_nodes(job, node_type)
                + others.map(|other: &JobHolding<'_>| self.spare_nodes(other, job, node_type)).sum::<u32>();
            promise.min_nodes_on(node_type).is_some_and(|needs| needs <= there)
        })
    }

    /// The first node beyond its least that a job gets while another one waits for such.
    fn grows_beside(&self, other: &JobHolding<'_>, waits: &JobHolding<'_>) -> Option<Violation> {
        let facts = other.facts;
        let promise = waits.guarantee()?;
        let is_other = facts.job.id != waits.facts.job.id && !facts.is_busy;
        let is_more = |gap: &Gap| facts.gaps.len() as u32 > self.min_nodes_on(facts.job, &gap.node_type);
        let waits_for = |gap: &Gap| {
            promise.min_nodes_on(&gap.node_type).is_some() && self.is_usable(waits.facts.job, gap)
        };
        let mut fresh =
            facts.gaps.iter().zip(&facts.planned.nodes).filter(|((_, held), _)| is_other && !held);
        let (_, placement) =
            fresh.find(|((gap, _), _)| gap.is_some_and(|gap| waits_for(gap) && is_more(gap)))?;
        let (job, node, waits) = (facts.job.id, placement.node.clone(), waits.facts.job.id);
        Some(Violation::GrowsBesidePromise { job, node, waits })
    }
}

/// The fewest nodes of a type that a job has while others are to have theirs: its smallest size that is known
/// to run, or that makes its promise.
fn min_nodes_of(job: &MalleableJob, node_type: &NodeType) -> u32 {
    let least = job
        .sizes
        .up_to(u32::MAX)
        .into_iter()
        .find(|nodes: &u32| best_rate(job, node_type, *nodes as usize) > 0.0)
        .unwrap_or(job.sizes.min());
    let promised = job.active_guarantee().and_then(|promise| promise.min_nodes_on(node_type));
    least.max(promised.unwrap_or(0))
}
