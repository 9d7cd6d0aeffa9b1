//! Places a schedule of numbers of nodes on named nodes, without migration.

use std::collections::BTreeMap;

use super::evaluate::{PlanValue, PresentNodes, count_by_type, evaluate_job};
use super::network_spread::{NetworkSpread, plan_spread};
use super::placement_request::NodeSlots;
use super::seats::{PlacementCriterion, SeatedJobs, seat_jobs};
use crate::plan::space::{
    cost,
    decision::{DecisionSpace, Schedule},
    job_option::{JobOption, OptionFamily},
    problem::PlanningProblem,
    slots,
    steps::TimeSteps,
    worker_places::{granted_share, plan_needs},
};
use infill_model::{
    ExecPlan, Gap, HeldNode, JobPlan, MalleableJob, NodeName, NodeType, Plan, PlannedNode, SolveStatus,
    SwitchId,
};

/// The largest number of attempts at seating. More than one is needed only when jobs must avoid nodes. Then a
/// job can be left without seats that the counts promise; in the next attempt it chooses first.
const MAX_ATTEMPTS: usize = 4;

/// Relative difference between two equal values that comes from rounding.
const ROUNDING: f64 = 1e-9;

/// A plan on named nodes, with its value.
#[derive(Clone, Debug)]
pub(crate) struct PlacementResult {
    /// The plan, without proof.
    pub plan: Plan,
    /// Its value.
    pub value: PlanValue,
    /// The part of the value that no plan can change: what busy jobs make.
    pub busy: PlanValue,
    /// Jobs of the space that got fewer nodes than the schedule says.
    pub short: Vec<usize>,
}

/// Places a schedule on nodes.
#[cfg(test)]
pub fn placed_plan(space: &DecisionSpace<'_>, schedule: &Schedule, status: SolveStatus) -> Plan {
    place_schedule(space, schedule, &status).plan
}

/// Places a schedule on nodes by their windows only.
#[cfg(test)]
pub fn placed_plan_by_windows(space: &DecisionSpace<'_>, schedule: &Schedule, status: SolveStatus) -> Plan {
    place_by(space, schedule, &status, PlacementCriterion::Windows).plan
}

/// Places a schedule on few switches and hosts. If that has a lower value than placing it by windows only, or
/// needs more switches and hosts, places it by windows.
pub(crate) fn place_schedule(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    status: &SolveStatus,
) -> PlacementResult {
    let by_windows = place_by(space, schedule, status, PlacementCriterion::Windows);
    let has_switches = space.problem.topology.is_some_and(|topology| !topology.is_empty());
    let is_relevant = has_switches || space.slots.iter().any(|slot| slot.gap.node.is_place());
    // Where hosts run short, workers go to hosts with enough capacity.
    if !is_relevant || space.shares.is_some() {
        return by_windows;
    }
    let nearby = place_by(space, schedule, status, PlacementCriterion::Nearness);
    let score = by_windows.value.score();
    let is_as_good = nearby.value.score() >= score - ROUNDING * score.abs();
    if is_as_good && spread_of(space, &nearby) <= spread_of(space, &by_windows) { nearby } else { by_windows }
}

fn spread_of(space: &DecisionSpace<'_>, placed: &PlacementResult) -> NetworkSpread {
    plan_spread(space.problem, &placed.plan.jobs)
}

fn place_by(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    status: &SolveStatus,
    criterion: PlacementCriterion,
) -> PlacementResult {
    let mut favoured = Vec::new();
    let mut best = attempt_placement(space, schedule, status, &favoured, criterion);
    let mut short = best.short.clone();
    for _ in 1..MAX_ATTEMPTS {
        short.retain(|job| !favoured.contains(job));
        if short.is_empty() {
            break;
        }
        favoured.append(&mut short);
        let next = attempt_placement(space, schedule, status, &favoured, criterion);
        short.clone_from(&next.short);
        if next.value.score() > best.value.score() {
            best = next;
        }
    }
    best
}

/// One attempt, in which `favoured` jobs choose first.
fn attempt_placement(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    status: &SolveStatus,
    favoured: &[usize],
    criterion: PlacementCriterion,
) -> PlacementResult {
    let problem = space.problem;
    let counts = count_by_type(problem, &space.steps);
    let mut jobs = Vec::with_capacity(problem.jobs.len());
    let mut short = Vec::new();
    let mut value = PlanValue::default();
    let mut busy = PlanValue::default();
    let SeatedJobs { nodes: seated, denied } = seat_jobs(space, schedule, favoured, criterion);
    for (number, (nodes, denied)) in seated.into_iter().zip(denied).enumerate() {
        let job = &space.jobs[number];
        let specs: Vec<&JobOption> = schedule[number].iter().filter_map(|o| job.options.get(*o)).collect();
        if denied || nodes.len() < specs.first().map_or(0, |s| s.nodes as usize) {
            short.push(number);
        }
        let (planned, nodes) = job_plan(space, job.job, &specs, nodes, denied);
        let present = PresentNodes {
            can_stay: job.can_stay,
            reluctance: job.reluctance,
            lasts: nodes.iter().map(|node| lasting_steps(space, node)).collect(),
            node_type: common_type(space, &nodes),
        };
        value.add_value(evaluate_job(problem, &space.steps, &counts, job.job, &planned, present));
        jobs.push(planned);
    }
    for job in problem.jobs.iter().filter(|j| problem.is_busy(j)) {
        let (planned, gaps) = busy_plan(problem, &space.steps, job);
        let present = PresentNodes {
            can_stay: false,
            reluctance: 0.0,
            lasts: gaps.iter().map(|g| space.steps.steps_through(g.usable_until)).collect(),
            node_type: gaps.first().map(|g| &g.node_type),
        };
        busy.add_value(evaluate_job(problem, &space.steps, &counts, job, &planned, present));
        jobs.push(planned);
    }
    value.add_value(busy);
    jobs.sort_by_key(|j| j.job);
    let at = problem.now;
    let steps = space.steps.ends().to_vec();
    let objective = value.net_samples();
    let plan = Plan { at, jobs, status: status.clone(), proof: None, objective, steps };
    PlacementResult { plan, value, busy, short }
}

/// Number of steps that all slots of a node last through.
fn lasting_steps(space: &DecisionSpace<'_>, node: &NodeSlots) -> usize {
    node.iter().map(|slot| space.slots[*slot].lasts).min().unwrap_or(0)
}

/// The type of all nodes of a job.
fn common_type<'s>(space: &'s DecisionSpace<'_>, nodes: &[NodeSlots]) -> Option<&'s NodeType> {
    nodes.first().and_then(|node| node.first()).map(|slot| &space.slots[*slot].gap.node_type)
}

/// A job's plan on these nodes, and the nodes in the plan's order.
fn job_plan(
    space: &DecisionSpace<'_>,
    job: &MalleableJob,
    specs: &[&JobOption],
    mut nodes: Vec<NodeSlots>,
    denied: bool,
) -> (JobPlan, Vec<NodeSlots>) {
    let spec = specs.first();
    let wanted = spec.map_or(0, |s| s.nodes);
    let mut exec_plan = spec.map_or_else(|| job.exec_plan.clone(), |s| s.exec_plan.clone());
    let mut rate = spec.map_or(0.0, |s| s.rate);
    let mut most = u32::MAX;
    if denied || (nodes.len() as u32) < wanted {
        // Exclusions and hosts can make a count impossible that the limits allow. Then the job takes the
        // largest size at which some execution plan runs that needs no more than there is.
        let run = common_type(space, &nodes).and_then(|node_type| {
            job.sizes.up_to(nodes.len() as u32).into_iter().rev().find_map(|size| {
                let run = cost::best_rate_of(job, node_type, size, |plan| {
                    plan_fits_hosts(space, job, specs, &nodes[..size as usize], denied, plan)
                })?;
                Some((size, run))
            })
        });
        (most, (exec_plan, rate)) = run.unwrap_or_else(|| (0, (job.exec_plan.clone(), 0.0)));
        nodes.truncate(most as usize);
    }
    if nodes.is_empty() {
        exec_plan = job.exec_plan.clone();
        rate = 0.0;
    }
    if spec.is_some_and(|s| s.family == OptionFamily::Fresh) {
        nodes
            .sort_by(|a, b| slots::compare_stability(least_stable_gap(space, b), least_stable_gap(space, a)));
    }
    // The lead stays first. Nodes of one switch and host are sorted by slot, as names are, so that equal
    // plans are equal values.
    if let Some((lead, others)) = nodes.split_first_mut() {
        let lead = first_node(space, lead);
        others.sort_by_cached_key(|node| {
            (leaf_order_key(space.problem, lead, first_node(space, node)), node.clone())
        });
    }
    let later = specs.iter().zip(space.steps.ends()).skip(1);
    let forecast = later.map(|(spec, end)| (*end, spec.nodes.min(most))).collect();
    let placements = nodes.iter().map(|node| planned_node_on(space, node)).collect();
    (JobPlan { job: job.id, nodes: placements, exec_plan, rate, probe: None, forecast }, nodes)
}

/// The gap of a node's slots that will end first, by [`slots::compare_stability`].
fn least_stable_gap<'a>(space: &DecisionSpace<'a>, node: &NodeSlots) -> &'a Gap {
    let gaps = node.iter().map(|slot| space.slots[*slot].gap);
    gaps.min_by(|a, b| slots::compare_stability(a, b)).unwrap_or(space.slots[node[0]].gap)
}

fn first_node<'a>(space: &DecisionSpace<'a>, node: &NodeSlots) -> Option<&'a NodeName> {
    node.first().map(|slot| &space.slots[*slot].gap.node)
}

/// Whether a plan on these nodes takes no more of their hosts than the schedule counts there. If the job is
/// `denied` more than the shares of its places, whether the plan takes no more than these.
fn plan_fits_hosts(
    space: &DecisionSpace<'_>,
    job: &MalleableJob,
    specs: &[&JobOption],
    nodes: &[NodeSlots],
    denied: bool,
    plan: &ExecPlan,
) -> bool {
    let Some(spec) = specs.first().filter(|_| space.shares.is_some()) else { return true };
    let name = &space.types[spec.node_type];
    let counted_needs = plan_needs(job, name, &spec.exec_plan);
    let needs = plan_needs(job, name, plan);
    nodes.iter().enumerate().all(|(at, node)| {
        let Some(worker) = space.worker_on(node) else { return true };
        let is_kept = at < spec.kept as usize;
        let is_held = space.are_held(job, node);
        let most = match denied {
            false if is_held => worker.share_for_kept(counted_needs),
            false => worker.share_for_new(counted_needs),
            true if is_kept => granted_share(job, name, &worker),
            true if is_held => worker.backed_share(),
            true => worker.own,
        };
        let takes = if is_held { worker.share_for_kept(needs) } else { worker.share_for_new(needs) };
        takes.is_within(most)
    })
}

/// The plan of a busy job, which keeps what it holds, except nodes whose window has ended. Without its lead's
/// node it has nothing, unless the lead is away. Also returns its gaps in the plan's order.
pub(super) fn busy_plan<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    job: &MalleableJob,
) -> (JobPlan, Vec<&'a Gap>) {
    let mut held: BTreeMap<&NodeName, &Gap> = BTreeMap::new();
    for HeldNode { node, .. } in &job.held {
        let gap = problem.held_gap(job, node).filter(|gap| gap.usable_until > problem.now);
        held.extend(gap.map(|gap| (node, gap)));
    }
    let lead = job.lead_node.as_ref().and_then(|lead| held.remove_entry(lead));
    if lead.is_none() && !job.lead_away {
        held.clear();
    }
    let first = lead.map(|(name, _)| name);
    let mut held: Vec<(&NodeName, &Gap)> = held.into_iter().collect();
    held.sort_by_key(|(name, _)| leaf_order_key(problem, first, Some(*name)));
    let (names, gaps): (Vec<&NodeName>, Vec<&Gap>) = lead.into_iter().chain(held).unzip();
    let mut forecast = Vec::new();
    for (step, end) in steps.ends().iter().enumerate().skip(1) {
        let lasting = gaps.iter().filter(|gap| steps.steps_through(gap.usable_until) > step);
        forecast.push((*end, lasting.count() as u32));
    }
    let rate = gaps.first().and_then(|g| cost::rate_of(job, &g.node_type, &job.exec_plan, gaps.len() as u32));
    let planned = JobPlan {
        job: job.id,
        nodes: names.into_iter().map(|name| planned_node(problem, name.clone())).collect(),
        exec_plan: job.exec_plan.clone(),
        rate: rate.unwrap_or(0.0),
        probe: None,
        forecast,
    };
    (planned, gaps)
}

/// Sort key of a job's nodes in a plan. Ranks follow the plan's order, and rings of workers follow ranks. So
/// nodes on one leaf switch are neighbours, those on the lead's switch come first. Places of one host are
/// neighbours too, sorted by name, those on the lead's host first.
pub(super) fn leaf_order_key(
    problem: &PlanningProblem<'_>,
    lead: Option<&NodeName>,
    node: Option<&NodeName>,
) -> (bool, Option<SwitchId>, bool) {
    let leaf = leaf_switch(problem, node);
    let lead_leaf = leaf_switch(problem, lead);
    let is_with_lead = node.zip(lead).is_some_and(|(node, lead)| node.shares_host_with(lead));
    (leaf != lead_leaf, leaf, !is_with_lead)
}

fn leaf_switch(problem: &PlanningProblem<'_>, node: Option<&NodeName>) -> Option<SwitchId> {
    problem.topology?.leaf_of(node?)
}

fn planned_node_on(space: &DecisionSpace<'_>, node: &NodeSlots) -> PlannedNode {
    let gaps = node.iter().map(|slot| space.slots[*slot].gap);
    leased_node(space.problem, node_name(space, node), gaps)
}

/// A node in a plan, by its name. See [`leased_node`].
pub(super) fn planned_node(problem: &PlanningProblem<'_>, node: NodeName) -> PlannedNode {
    let gaps = problem.gaps_of(&node).unwrap_or_default();
    leased_node(problem, node, gaps.into_iter())
}

/// A node in a plan, leased until the first of its places must be left, or until the next renewal.
fn leased_node<'g>(
    problem: &PlanningProblem<'_>,
    node: NodeName,
    gaps: impl Iterator<Item = &'g Gap>,
) -> PlannedNode {
    let renewed = problem.now.plus_secs(problem.config.lease_secs);
    PlannedNode { node, lease_until: gaps.filter_map(|gap| gap.vacate_by).min().unwrap_or(renewed) }
}

/// The name of one slot's node, or of the block of several slots on one host.
fn node_name(space: &DecisionSpace<'_>, node: &NodeSlots) -> NodeName {
    let names: Vec<&NodeName> = node.iter().map(|slot| &space.slots[*slot].gap.node).collect();
    match names.as_slice() {
        [name] => (*name).clone(),
        names => {
            let mut numbers: Vec<usize> = names.iter().flat_map(|name| name.place_numbers()).collect();
            numbers.sort_unstable();
            names.first().map_or_else(|| NodeName::new(""), |name| name.host().block_name(&numbers))
        }
    }
}
