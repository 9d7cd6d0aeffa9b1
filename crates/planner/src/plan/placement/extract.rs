//! Lays a schedule of counts on named nodes, without migration.

use std::collections::BTreeMap;

use super::evaluate::{PlanValue, PresentNodes, count_by_type, evaluate_job};
use super::network_spread::plan_spread;
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
    ExecPlan, Gap, JobPlan, MalleableJob, NodeName, NodeType, Plan, PlannedNode, SolveStatus, SwitchId,
    Topology,
};

/// Most attempts at seating. Another one is needed only when jobs must avoid nodes: then a job can be left
/// without seats that the counts promise, and gets the first choice next time.
const MAX_ATTEMPTS: usize = 4;

/// Difference between two values that are the same but for rounding, as a share.
const ROUNDING: f64 = 1e-9;

/// A plan with what it is worth.
#[derive(Clone, Debug)]
pub(crate) struct PlacementResult {
    /// The plan.
    pub plan: Plan,
    /// Its value.
    pub value: PlanValue,
    /// The part of it that nobody can change: what busy jobs make.
    pub busy: PlanValue,
    /// Jobs that got fewer nodes than planned.
    pub short: Vec<usize>,
}

/// Lays a schedule on nodes.
#[cfg(test)]
pub fn placed_plan(space: &DecisionSpace<'_>, schedule: &Schedule, status: SolveStatus) -> Plan {
    place_schedule(space, schedule, &status).plan
}

/// Lays a schedule on nodes without regard to what is near.
#[cfg(test)]
pub fn placed_plan_by_windows(space: &DecisionSpace<'_>, schedule: &Schedule, status: SolveStatus) -> Plan {
    place_by(space, schedule, &status, PlacementCriterion::Windows).plan
}

/// Lays a schedule on nodes: on few switches and hosts, unless that is worth less than laying it without
/// regard to them, or comes to more of them.
pub(crate) fn place_schedule(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    status: &SolveStatus,
) -> PlacementResult {
    let anywhere = place_by(space, schedule, status, PlacementCriterion::Windows);
    let are_parts = || space.slots.iter().any(|slot| slot.gap.node.is_place());
    let are_alone = space.problem.topology.is_none_or(Topology::is_empty) && !are_parts();
    // Where hosts run short, workers go where these have room.
    if are_alone || space.shares.is_some() {
        return anywhere;
    }
    let near = place_by(space, schedule, status, PlacementCriterion::Nearness);
    let least = anywhere.value.score() - ROUNDING * anywhere.value.score().abs();
    let spread = |laid: &PlacementResult| plan_spread(space.problem, &laid.plan.jobs);
    if near.value.score() >= least && spread(&near) <= spread(&anywhere) { near } else { anywhere }
}

fn place_by(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    status: &SolveStatus,
    regard: PlacementCriterion,
) -> PlacementResult {
    let attempt = |favoured: &[usize]| attempt_placement(space, schedule, status, favoured, regard);
    let mut favoured = Vec::new();
    let mut best = attempt(&favoured);
    let mut short = best.short.clone();
    for _ in 1..MAX_ATTEMPTS {
        short.retain(|job| !favoured.contains(job));
        if short.is_empty() {
            break;
        }
        favoured.append(&mut short);
        let next = attempt(&favoured);
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
    regard: PlacementCriterion,
) -> PlacementResult {
    let (problem, counts) = (space.problem, count_by_type(space.problem, &space.steps));
    let mut jobs = Vec::with_capacity(problem.jobs.len());
    let mut short = Vec::new();
    let mut value = PlanValue::default();
    let mut busy = PlanValue::default();
    let SeatedJobs { nodes: seated, denied } = seat_jobs(space, schedule, favoured, regard);
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
        // Exclusions can make a count impossible that the limits allow, and so can hosts: take the largest
        // size that is possible, and at which some execution plan runs that needs no more than there is.
        let node_type = common_type(space, &nodes);
        let may_run =
            |plan: &ExecPlan, size: u32| plan_fits_hosts(space, job, specs, (&nodes, denied), (plan, size));
        let best =
            |size: u32| Some((size, cost::best_rate_of(job, node_type?, size, |plan| may_run(plan, size))?));
        let best = job.sizes.up_to(nodes.len() as u32).into_iter().rev().find_map(best);
        (most, (exec_plan, rate)) = best.unwrap_or_else(|| (0, (job.exec_plan.clone(), 0.0)));
        nodes.truncate(most as usize);
    }
    if nodes.is_empty() {
        (exec_plan, rate) = (job.exec_plan.clone(), 0.0);
    }
    if spec.is_some_and(|s| s.family == OptionFamily::Fresh) {
        let gap = |node: &NodeSlots| {
            let gaps = node.iter().map(|slot| space.slots[*slot].gap);
            gaps.min_by(|a, b| slots::compare_stability(a, b)).unwrap_or(space.slots[node[0]].gap)
        };
        nodes.sort_by(|a, b| slots::compare_stability(gap(b), gap(a)));
    }
    // The lead stays first; of others of one switch and host the slots are sorted as names are, so that equal
    // plans are equal values.
    if let Some((lead, others)) = nodes.split_first_mut() {
        let first = |node: &NodeSlots| node.first().map(|slot| &space.slots[*slot].gap.node);
        let lead = first(lead);
        others.sort_by_cached_key(|node| (leaf_order_key(space.problem, lead, first(node)), node.clone()));
    }
    let later = specs.iter().zip(space.steps.ends()).skip(1);
    let forecast = later.map(|(spec, end)| (*end, spec.nodes.min(most))).collect();
    let placements = nodes.iter().map(|node| planned_node_on(space, node)).collect();
    (JobPlan { job: job.id, nodes: placements, exec_plan, rate, probe: None, forecast }, nodes)
}

/// Whether a plan on the first `size` of these nodes takes no more of their hosts than was counted there.
fn plan_fits_hosts(
    space: &DecisionSpace<'_>,
    job: &MalleableJob,
    specs: &[&JobOption],
    (nodes, denied): (&[NodeSlots], bool),
    (plan, size): (&ExecPlan, u32),
) -> bool {
    let (Some(spec), true) = (specs.first(), space.shares.is_some()) else { return true };
    let name = &space.types[spec.node_type];
    let counted = plan_needs(job, name, &spec.exec_plan);
    let needs = plan_needs(job, name, plan);
    nodes.iter().take(size as usize).enumerate().all(|(at, node)| {
        let Some(worker) = space.worker_on(node) else { return true };
        let is_kept = at < spec.kept as usize;
        let is_held = space.are_held(job, node);
        let takes = |needs| if is_held { worker.share_for_kept(needs) } else { worker.share_for_new(needs) };
        let most = match denied {
            false => takes(counted),
            true if is_kept => granted_share(job, name, &worker),
            true if is_held => worker.backed_share(),
            true => worker.own,
        };
        takes(needs).is_within(most)
    })
}

/// A busy job keeps what it holds, except nodes whose window has ended; without its lead's it has nothing,
/// unless the lead is away. Returns its gaps in the plan's order too.
pub(super) fn busy_plan<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    job: &MalleableJob,
) -> (JobPlan, Vec<&'a Gap>) {
    let alive = |node: &NodeName| problem.held_gap(job, node).filter(|gap| gap.usable_until > problem.now);
    let mut held: BTreeMap<&NodeName, _> =
        job.held.iter().filter_map(|h| Some((&h.node, alive(&h.node)?))).collect();
    let lead = job.lead_node.as_ref().and_then(|lead| held.remove_entry(lead));
    if lead.is_none() && !job.lead_away {
        held.clear();
    }
    let first = lead.map(|(name, _)| name);
    let mut held: Vec<(&NodeName, &Gap)> = held.into_iter().collect();
    held.sort_by_key(|(name, _)| leaf_order_key(problem, first, Some(*name)));
    let (names, gaps): (Vec<&NodeName>, Vec<&Gap>) = lead.into_iter().chain(held).unzip();
    let lasting = |step: usize| gaps.iter().filter(|g| steps.steps_through(g.usable_until) > step).count();
    let ends = steps.ends().iter().enumerate().skip(1);
    let rate = gaps.first().and_then(|g| cost::rate_of(job, &g.node_type, &job.exec_plan, gaps.len() as u32));
    let planned = JobPlan {
        job: job.id,
        nodes: names.into_iter().map(|name| planned_node(problem, name.clone())).collect(),
        exec_plan: job.exec_plan.clone(),
        rate: rate.unwrap_or(0.0),
        probe: None,
        forecast: ends.map(|(step, end)| (*end, lasting(step) as u32)).collect(),
    };
    (planned, gaps)
}

/// Ranks follow the plan's order, and rings of workers follow ranks: so the nodes of a job that hang on
/// one leaf come one after the other, those on the lead's first; and so do parts of one host, by their
/// names, those of the lead's first.
pub(super) fn leaf_order_key(
    problem: &PlanningProblem<'_>,
    lead: Option<&NodeName>,
    node: Option<&NodeName>,
) -> (bool, Option<SwitchId>, bool) {
    let leaf = |node: Option<&NodeName>| problem.topology?.leaf_of(node?);
    let is_with_lead = node.zip(lead).is_some_and(|(node, lead)| node.shares_host_with(lead));
    (leaf(node) != leaf(lead), leaf(node), !is_with_lead)
}

fn planned_node_on(space: &DecisionSpace<'_>, node: &NodeSlots) -> PlannedNode {
    let gaps = node.iter().map(|slot| space.slots[*slot].gap);
    leased_node(space.problem, node_name(space, node), gaps)
}

/// A node by its name, as [`leased_node`].
pub(super) fn planned_node(problem: &PlanningProblem<'_>, node: NodeName) -> PlannedNode {
    let gaps = problem.gaps_of(&node).unwrap_or_default();
    leased_node(problem, node, gaps.into_iter())
}

/// A node until the first of its places must be left, or until the next renewal.
fn leased_node<'g>(
    problem: &PlanningProblem<'_>,
    node: NodeName,
    gaps: impl Iterator<Item = &'g Gap>,
) -> PlannedNode {
    let renewed = problem.now.plus_secs(problem.config.lease_secs);
    PlannedNode { node, lease_until: gaps.filter_map(|gap| gap.vacate_by).min().unwrap_or(renewed) }
}

/// The name of one slot's node, or of several slots of one node.
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
