//! The options of a job: execution plan, node type, number of nodes, and how many of its present nodes it
//! keeps.
//!
//! For each type and size only the best execution plan is an option, besides keeping the present one: any
//! change restarts the command anyway, so the better plan costs nothing more. Where another plan does cost
//! more than another size, the present one is an option at all sizes. Where CPUs or memory of hosts run
//! short, so are plans that need less; and where a job is promised a rate, the best that makes it.

use super::decision::{DecisionSpace, JobSpace};
use super::host_shares::HostResource;
use super::job_option::{JobOption, OptionFamily};
use super::worker_places::{granted_share, plan_needs};
use super::{cost, limits};
use infill_model::{ChangeKind, ExecPlan, MalleableJob, malleable::RateCurve};

/// Sizes up to this are all options; beyond, they are thinned to steps of an eighth. A job on 30 nodes or on
/// 31 is the same to a planner whose rates are known to a few per cent.
const ALL_SIZES_UP_TO: u32 = 24;

/// All options of a job. The first is to hold nothing.
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
    let keeps = job.job.keeps_min_size() && !barred && found.iter().any(|spec| spec.keeps_some());
    let locked = job.can_stay && problem.stays_secs(job.job).is_some() && !barred;
    for spec in &mut found {
        let change = change_to_option(job, spec);
        let own_choice = change != ChangeKind::None && (job.can_stay || job.job.held.is_empty()) && !barred;
        spec.keeps = change == ChangeKind::None;
        spec.voluntary = own_choice;
        let reluctance = if spec.voluntary { job.reluctance } else { 0.0 };
        spec.first_cost = job.job.change_loss(change, spec.rate) * job.job.weight + reluctance;
        spec.now &= (!locked || spec.keeps) && !(keeps && spec.nodes == 0);
    }
    prune_options(&mut found, space, job);
    found
}

/// The change from the present to an option.
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

/// Options that keep the lead. For each size, the kept nodes are those that last through some step: as many
/// variants as there are distinct answers.
fn add_stay_options(space: &DecisionSpace<'_>, job: &JobSpace<'_>, found: &mut Vec<JobOption>) {
    let lasts: Vec<usize> = job.kept_order.iter().map(|kept| kept.lasts).collect();
    let Some(lead) = space.lead_slot(job) else { return };
    let had = job.job.held.len() as u32;
    let mut counts: Vec<u32> = (0..space.steps.len())
        .map(|step| lasts.iter().skip(1).filter(|l| **l > step).count() as u32 + 1)
        .collect();
    counts.dedup();
    let keeps_plan = job.job.keeps_plan();
    // The options of other plans of a job that keeps its own: they follow those of that one.
    let mut others = Vec::new();
    for nodes in thinned_sizes(space, job, lead.node_type) {
        let mut kept: Vec<u32> = counts.iter().map(|count| nodes.min(*count)).collect();
        kept.dedup();
        for kept in kept {
            if !space.problem.may_grow && (nodes > kept || nodes > had) {
                continue;
            }
            let lasts = lasts.iter().take(kept as usize).copied().min().unwrap_or(0);
            let mut add = |(exec_plan, rate): (ExecPlan, f64), later| {
                let family = OptionFamily::Stay;
                let node_type = lead.node_type;
                let base = empty_option(space);
                let replans = keeps_plan && exec_plan != job.job.exec_plan;
                let all = if replans { &mut others } else { &mut *found };
                all.push(JobOption {
                    family,
                    node_type,
                    nodes,
                    kept,
                    exec_plan,
                    replans,
                    rate,
                    lasts,
                    later,
                    ..base
                });
            };
            let node_type = &space.types[lead.node_type];
            let best = plans_for_size(space, job.job, lead.node_type, nodes);
            let present = cost::rate_of(job.job, node_type, &job.job.exec_plan, nodes);
            let differs = best.iter().all(|(plan, _)| *plan != job.job.exec_plan) && !best.is_empty();
            best.into_iter().for_each(|b| add(b, true));
            if let Some(rate) = present.filter(|_| differs && (keeps_plan || nodes == had && kept == had)) {
                add((job.job.exec_plan.clone(), rate), true);
            }
        }
    }
    found.extend(others);
}

/// Options that start anew. A running job whose lead lasts has no use for one on its own type.
fn add_fresh_options(space: &DecisionSpace<'_>, job: &JobSpace<'_>, found: &mut Vec<JobOption>) {
    let lead = space.lead_slot(job);
    let lead_lasts = job.kept_order.first().map_or(0, |kept| kept.lasts);
    for node_type in 0..space.types.len() {
        if lead.is_some_and(|l| l.node_type == node_type && lead_lasts == space.steps.len()) {
            continue;
        }
        // It leaves its lead's node, so that one cannot be among its nodes.
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

/// The best execution plan for a size; and where CPUs and memory of hosts run short, of the others each that
/// is the best of those which need no more than it does.
fn plans_for_size(
    space: &DecisionSpace<'_>,
    job: &MalleableJob,
    node_type: usize,
    nodes: u32,
) -> Vec<(ExecPlan, f64)> {
    let name = &space.types[node_type];
    let best = cost::best_rate(job, name, nodes);
    let is_enough = |plan: &ExecPlan| job.active_guarantee().is_some_and(|p| p.is_enough(name, plan, nodes));
    let promised = cost::best_rate_of(job, name, nodes, is_enough).filter(|p| Some(p) != best.as_ref());
    let (Some(shares), Some(best)) = (&space.shares, &best) else {
        return best.into_iter().chain(promised).collect();
    };
    let own = shares.least[node_type].scaled_by(job.block.max(1));
    let needs = |plan: &ExecPlan| plan_needs(job, name, plan).host_portion(own);
    let mut others: Vec<(ExecPlan, f64)> = Vec::new();
    for plan in job.rates.iter().map(|rate| &rate.exec_plan) {
        let is_new = *plan != best.0 && others.iter().all(|(known, _)| known != plan);
        if let Some(rate) = cost::rate_of(job, name, plan, nodes).filter(|_| is_new) {
            others.push((plan.clone(), rate));
        }
    }
    // Of equal ones the first stays.
    others.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut found = vec![best.clone()];
    for (plan, rate) in others {
        if !found.iter().any(|(better, _)| needs(better).is_within(needs(&plan))) {
            found.push((plan, rate));
        }
    }
    let promised =
        promised.filter(|(plan, _): &(ExecPlan, f64)| found.iter().all(|(known, _)| known != plan));
    found.extend(promised);
    found
}

/// Whether an option's plan needs more of a worker that stays than that has, or may have at any time.
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

/// Allowed sizes of a job on a type, thinned: with all that lie near something special, such as the supply in
/// a step.
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
    allowed.into_iter().filter(|n: &u32| *n <= ALL_SIZES_UP_TO || special.binary_search(n).is_ok()).collect()
}

/// Drops options that can never pay: more nodes than another one of the same kind for no more samples, and
/// starts that cost more than they can earn in all the time there is.
fn prune_options(found: &mut Vec<JobOption>, space: &DecisionSpace<'_>, job: &JobSpace<'_>) {
    let secs = space.steps.total_secs();
    let promise = job.job.active_guarantee();
    let is_enough = |s: &JobOption| {
        promise.is_some_and(|p| p.is_enough(&space.types[s.node_type], &s.exec_plan, s.nodes))
    };
    let earns = |s: &JobOption| s.family != OptionFamily::Fresh || job.job.costs.start_secs < secs;
    let dominates = |a: &JobOption, b: &JobOption| {
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
            && (is_enough(a) || !is_enough(b))
            && takes_no_more(space, job, a, b)
    };
    let kept: Vec<JobOption> = found
        .iter()
        .filter(|b| b.keeps || (earns(b) && !found.iter().any(|a| a.nodes > 0 && dominates(a, b))))
        .cloned()
        .collect();
    *found = kept;
}

/// Whether an option takes no more CPUs and memory of hosts than another one of the same type.
fn takes_no_more(space: &DecisionSpace<'_>, job: &JobSpace<'_>, a: &JobOption, b: &JobOption) -> bool {
    let amount = |spec: &JobOption, part: HostResource| limits::host_units(space, job, spec, (part, 1));
    [HostResource::Cpus, HostResource::Memory].into_iter().all(|part| amount(a, part) <= amount(b, part))
}
