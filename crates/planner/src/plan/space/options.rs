//! The options of a job: execution plan, node type, number of nodes, and how many of its present nodes it
//! keeps.
//!
//! For each type and size only the best execution plan is an option, besides keeping the present one. Any
//! change restarts the command anyway, so the better plan costs nothing more. There are three exceptions.
//! Where another plan costs more than another size, the present plan is an option at all sizes. Where CPUs or
//! memory of hosts run short, plans that need less are options. Where a job is promised a rate, so is the
//! best plan that makes it.

use super::decision::{DecisionSpace, JobSpace};
use super::host_shares::HostResource;
use super::job_option::{JobOption, OptionFamily};
use super::worker_places::{granted_share, plan_needs};
use super::{cost, limits};
use infill_model::{ChangeKind, ExecPlan, MalleableJob, malleable::RateCurve};

/// Sizes up to this are all options. Larger sizes are thinned to steps of an eighth: rates are known to a few
/// per cent, so a job on 30 nodes does not differ from one on 31.
const ALL_SIZES_UP_TO: u32 = 24;

/// All options of a job. The first one holds nothing.
pub(crate) fn job_options(space: &DecisionSpace<'_>, job: &JobSpace<'_>) -> Vec<JobOption> {
    let problem = space.problem;
    let barred = problem.drain || problem.is_barred(job.job);
    let mut found = vec![empty_option(space)];
    if !barred && !space.steps.is_empty() {
        add_stay_options(space, job, &mut found);
        if problem.may_grow {
            add_fresh_options(space, job, &mut found);
        }
    }
    for spec in &mut found {
        spec.raises = raises_share(space, job, spec);
    }
    let must_run = job.job.keeps_min_size() && !barred && found.iter().any(|spec| spec.keeps_some());
    let locked = job.can_stay && problem.stays_secs(job.job).is_some() && !barred;
    for spec in &mut found {
        let change = change_to_option(job, spec);
        let is_voluntary = change != ChangeKind::None && (job.can_stay || job.job.held.is_empty()) && !barred;
        spec.keeps = change == ChangeKind::None;
        spec.voluntary = is_voluntary;
        let reluctance = if spec.voluntary { job.reluctance } else { 0.0 };
        spec.first_cost = job.job.change_loss(change, spec.rate) * job.job.weight + reluctance;
        spec.now &= (!locked || spec.keeps) && !(must_run && spec.nodes == 0);
    }
    prune_options(&mut found, space, job);
    found
}

/// The change from what the job has now to an option.
fn change_to_option(job: &JobSpace<'_>, spec: &JobOption) -> ChangeKind {
    let had = job.job.held.len() as u32;
    match spec.family {
        OptionFamily::Nothing if had == 0 => ChangeKind::None,
        OptionFamily::Nothing => ChangeKind::Park,
        OptionFamily::Fresh => ChangeKind::Start,
        OptionFamily::Stay => {
            if had > 0 && spec.nodes > 0 && spec.replans {
                return ChangeKind::Replan;
            }
            let same = spec.kept == had && spec.exec_plan == job.job.exec_plan;
            ChangeKind::between_sizes(had, spec.nodes, same)
        }
    }
}

fn empty_option(space: &DecisionSpace<'_>) -> JobOption {
    JobOption {
        family: OptionFamily::Nothing,
        node_type: 0,
        nodes: 0,
        kept: 0,
        exec_plan: ExecPlan::default(),
        replans: false,
        rate: 0.0,
        keeps: false,
        lasts: space.steps.len(),
        now: true,
        later: true,
        voluntary: false,
        raises: false,
        first_cost: 0.0,
    }
}

/// Adds the options that keep the lead. For each size, the kept nodes are those that last through some step:
/// one option for each distinct number of them.
fn add_stay_options(space: &DecisionSpace<'_>, job: &JobSpace<'_>, found: &mut Vec<JobOption>) {
    let lasts: Vec<usize> = job.kept_order.iter().map(|kept| kept.lasts).collect();
    let Some(lead) = space.lead_slot(job) else { return };
    let had = job.job.held.len() as u32;
    let mut counts: Vec<u32> = (0..space.steps.len())
        .map(|step| lasts.iter().skip(1).filter(|l| **l > step).count() as u32 + 1)
        .collect();
    counts.dedup();
    let keeps_plan = job.job.keeps_plan();
    // Options with other plans, of a job that keeps its plan. They follow those with the present plan.
    let mut others = Vec::new();
    for nodes in thinned_sizes(space, job, lead.node_type) {
        let mut kept: Vec<u32> = counts.iter().map(|count| nodes.min(*count)).collect();
        kept.dedup();
        for kept in kept {
            if !space.problem.may_grow && (nodes > kept || nodes > had) {
                continue;
            }
            let lasts = lasts.iter().take(kept as usize).copied().min().unwrap_or(0);
            let node_type = &space.types[lead.node_type];
            let mut plans = plans_for_size(space, job.job, lead.node_type, nodes);
            let present = cost::rate_of(job.job, node_type, &job.job.exec_plan, nodes);
            let differs = plans.iter().all(|(plan, _)| *plan != job.job.exec_plan) && !plans.is_empty();
            if let Some(rate) = present.filter(|_| differs && (keeps_plan || nodes == had && kept == had)) {
                plans.push((job.job.exec_plan.clone(), rate));
            }
            for (exec_plan, rate) in plans {
                let replans = keeps_plan && exec_plan != job.job.exec_plan;
                let option = JobOption {
                    family: OptionFamily::Stay,
                    node_type: lead.node_type,
                    nodes,
                    kept,
                    exec_plan,
                    replans,
                    rate,
                    lasts,
                    ..empty_option(space)
                };
                if replans { others.push(option) } else { found.push(option) }
            }
        }
    }
    found.extend(others);
}

/// Adds the options that start again. A running job whose lead lasts needs none on its own type.
fn add_fresh_options(space: &DecisionSpace<'_>, job: &JobSpace<'_>, found: &mut Vec<JobOption>) {
    let lead = space.lead_slot(job);
    let lead_lasts = job.kept_order.first().map_or(0, |kept| kept.lasts);
    for node_type in 0..space.types.len() {
        if lead.is_some_and(|l| l.node_type == node_type && lead_lasts == space.steps.len()) {
            continue;
        }
        // It leaves its lead's node, so it cannot have that node.
        let left = u32::from(lead.is_some_and(|l| l.node_type == node_type));
        let supply =
            space.available_nodes(job.job, node_type).first().copied().unwrap_or(0).saturating_sub(left);
        for nodes in thinned_sizes(space, job, node_type).into_iter().filter(|n| *n <= supply) {
            for (exec_plan, rate) in plans_for_size(space, job.job, node_type, nodes) {
                let family = OptionFamily::Fresh;
                found.push(JobOption { family, node_type, nodes, exec_plan, rate, ..empty_option(space) });
            }
        }
    }
}

/// The best execution plan for a size, and the best one with the job's promised rate. Where CPUs and memory
/// of hosts run short, also each plan that is the best of those that need no more than it does.
fn plans_for_size(
    space: &DecisionSpace<'_>,
    job: &MalleableJob,
    node_type: usize,
    nodes: u32,
) -> Vec<(ExecPlan, f64)> {
    let name = &space.types[node_type];
    let best = cost::best_rate(job, name, nodes);
    let promised = cost::best_rate_of(job, name, nodes, |plan| {
        job.active_guarantee().is_some_and(|promise| promise.is_enough(name, plan, nodes))
    });
    let promised = promised.filter(|promised| Some(promised) != best.as_ref());
    let Some((shares, best)) = space.shares.as_ref().zip(best.as_ref()) else {
        return best.into_iter().chain(promised).collect();
    };
    let own = shares.smallest_shares[node_type].scaled_by(job.places_per_node.max(1));
    let mut others: Vec<(ExecPlan, f64)> = Vec::new();
    for plan in job.rates.iter().map(|rate| &rate.exec_plan) {
        let is_new = *plan != best.0 && others.iter().all(|(other, _)| other != plan);
        if let Some(rate) = cost::rate_of(job, name, plan, nodes).filter(|_| is_new) {
            others.push((plan.clone(), rate));
        }
    }
    // The sort is stable: among plans of equal rate the first stays first.
    others.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut found = vec![best.clone()];
    let mut found_needs = vec![plan_needs(job, name, &best.0).host_portion(own)];
    for (plan, rate) in others {
        let needs = plan_needs(job, name, &plan).host_portion(own);
        if !found_needs.iter().any(|better| better.is_within(needs)) {
            found.push((plan, rate));
            found_needs.push(needs);
        }
    }
    if let Some(promised) = promised.filter(|(plan, _)| found.iter().all(|(other, _)| other != plan)) {
        found.push(promised);
    }
    found
}

/// Whether an option's plan needs more for a kept worker than that worker has or may have at any time.
fn raises_share(space: &DecisionSpace<'_>, job: &JobSpace<'_>, spec: &JobOption) -> bool {
    if space.shares.is_none() || spec.kept == 0 {
        return false;
    }
    let name = &space.types[spec.node_type];
    let needs = plan_needs(job.job, name, &spec.exec_plan);
    let kept = job.kept_order.iter().take(spec.kept as usize);
    let mut workers = kept.filter_map(|kept| space.worker_on(&kept.slots));
    workers.any(|worker| !worker.share_for_kept(needs).is_within(granted_share(job.job, name, &worker)))
}

/// Allowed sizes of a job on a type, thinned. Sizes of special meaning stay, such as the supply in a step or
/// the breakpoints of a curve.
fn thinned_sizes(space: &DecisionSpace<'_>, job: &JobSpace<'_>, node_type: usize) -> Vec<u32> {
    let had = job.job.held.len() as u32;
    let supply = space.available_nodes(job.job, node_type);
    let allowed = job.job.sizes.up_to(supply.first().copied().unwrap_or(0));
    let mut special = vec![had, job.job.sizes.min(), job.job.sizes.max()];
    special.extend(&supply);
    special
        .extend(job.job.active_guarantee().and_then(|promise| promise.min_nodes_on(&space.types[node_type])));
    special.extend(job.job.rates.iter().flat_map(RateCurve::curve_breakpoints));
    special.extend((1..64).map(|i| (f64::from(ALL_SIZES_UP_TO) * 1.125f64.powi(i)) as u32));
    special.sort_unstable();
    allowed.into_iter().filter(|n| *n <= ALL_SIZES_UP_TO || special.binary_search(n).is_ok()).collect()
}

/// Drops options that can never pay: more nodes than another one of the same kind for no more samples, and
/// starts that cost more than they can earn over all steps.
fn prune_options(found: &mut Vec<JobOption>, space: &DecisionSpace<'_>, job: &JobSpace<'_>) {
    let secs = space.steps.total_secs();
    let mut kept = Vec::with_capacity(found.len());
    for b in found.iter() {
        let can_earn = b.family != OptionFamily::Fresh || job.job.costs.start_secs < secs;
        let pays = can_earn && !found.iter().any(|a| a.nodes > 0 && dominates(space, job, a, b));
        if b.keeps || pays {
            kept.push(b.clone());
        }
    }
    *found = kept;
}

/// Whether option `a` makes option `b` superfluous: fewer nodes for at least as many samples.
fn dominates(space: &DecisionSpace<'_>, job: &JobSpace<'_>, a: &JobOption, b: &JobOption) -> bool {
    a.family == b.family
        && a.node_type == b.node_type
        && a.replans == b.replans
        && a.nodes < b.nodes
        && a.rate >= b.rate
        && a.lasts >= b.lasts
        && a.first_cost <= b.first_cost
        && !b.keeps
        // Fewer kept nodes would use more of the others.
        && a.nodes - a.kept <= b.nodes - b.kept
        && (a.now || !b.now)
        && (keeps_promise(space, job, a) || !keeps_promise(space, job, b))
        && takes_no_more(space, job, a, b)
}

/// Whether an option reaches the promised rate of its job; false without a promise.
fn keeps_promise(space: &DecisionSpace<'_>, job: &JobSpace<'_>, spec: &JobOption) -> bool {
    let promise = job.job.active_guarantee();
    promise.is_some_and(|p| p.is_enough(&space.types[spec.node_type], &spec.exec_plan, spec.nodes))
}

/// Whether an option takes no more CPUs and memory of hosts than another one of the same type.
fn takes_no_more(space: &DecisionSpace<'_>, job: &JobSpace<'_>, a: &JobOption, b: &JobOption) -> bool {
    [HostResource::Cpus, HostResource::Memory].into_iter().all(|host_resource| {
        limits::host_units(space, job, a, host_resource, 1)
            <= limits::host_units(space, job, b, host_resource, 1)
    })
}
