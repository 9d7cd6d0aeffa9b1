//! The rates of a candidate: what the advisor knows, else a prior, on the types that the job may use.

use crate::round::curves::{self, MAX_MEASURED};
use infill_advisor::{JobAdvisor, JobInput};
use infill_model::{AllowedSizes, DeclaredPlan, ExecPlan, NodeType, ScalingCurve, malleable::RateCurve};

/// The job's rates, capped to what is believable; a prior where the advisor has none. `block` is the number
/// of places that each of the job's nodes takes; rates of other blocks do not apply. `types` are the present
/// types.
pub(super) fn known_rates(
    input: &JobInput,
    block: u32,
    advisor: &JobAdvisor,
    types: &[NodeType],
) -> Vec<RateCurve> {
    let of_blocks: Vec<NodeType> = types.iter().map(|t| t.clone().with_place_count(block)).collect();
    let mut rates = advisor.rate_curves(input, &of_blocks);
    rates.retain_mut(|rate| {
        let Some((single, width)) = rate.node_type.as_ref().map(NodeType::single_place) else { return true };
        rate.node_type = Some(single);
        width == block
    });
    for rate in &mut rates {
        rate.curve = curves::capped_measured_curve(&rate.curve, &input.sizes, MAX_MEASURED);
    }
    if rates.is_empty() {
        rates = prior_rates(input, types, |plan, node_type| {
            advisor.fitting_sizes(input, plan, &node_type.clone().with_place_count(block))
        });
    }
    rates
}

/// The rates of a job without measurements: the same with each of its execution plans. `fitting` returns the
/// sizes at which a plan fits into memory on a type of nodes, `None` for all sizes. Where nothing fits, the
/// limits are dropped, so that the job fails by itself.
fn prior_rates(
    input: &JobInput,
    types: &[NodeType],
    fitting: impl Fn(Option<&DeclaredPlan>, &NodeType) -> Option<AllowedSizes>,
) -> Vec<RateCurve> {
    let curve = curves::prior_curve(&input.sizes);
    let plans: Vec<Option<&DeclaredPlan>> =
        if input.plans.is_empty() { vec![None] } else { input.plans.iter().map(Some).collect() };
    let mut rates = Vec::new();
    for plan in &plans {
        rates.extend(prior_rates_of_plan(&curve, types, *plan, |node_type| fitting(*plan, node_type)));
    }
    rates.retain(|rate| rate.sizes.as_ref().is_none_or(|s| !s.up_to(u32::MAX).is_empty()));
    if rates.is_empty() {
        for plan in &plans {
            rates.extend(prior_rates_of_plan(&curve, types, *plan, |_| None));
        }
    }
    if rates.is_empty() {
        // None of its plans runs on the present types, so it waits for nodes of another type.
        let plan = input.plans[0].name.clone();
        rates.push(RateCurve::new(plan, Some(NodeType::new("")), curve, None));
    }
    rates
}

/// The prior rates of one plan: one entry for all types, or one for each type if the plan does not run on all
/// or its sizes differ by type.
fn prior_rates_of_plan(
    curve: &ScalingCurve,
    types: &[NodeType],
    plan: Option<&DeclaredPlan>,
    fitting: impl Fn(&NodeType) -> Option<AllowedSizes>,
) -> Vec<RateCurve> {
    let name = plan.map_or_else(ExecPlan::default, |plan| plan.name.clone());
    let declared = plan.and_then(|plan| plan.sizes.clone());
    let mut sized: Vec<(&NodeType, Option<AllowedSizes>)> = Vec::new();
    for node_type in types.iter().filter(|t| plan.is_none_or(|plan| plan.runs_on(t))) {
        sized.push((node_type, fitting(node_type).or_else(|| declared.clone())));
    }
    let is_for_all = plan.is_none_or(|plan| plan.node_types.is_empty());
    if is_for_all && sized.iter().all(|(_, sizes)| *sizes == sized[0].1) {
        let sizes = sized.into_iter().next().map_or(declared, |(_, sizes)| sizes);
        return vec![RateCurve::new(name, None, curve.clone(), sizes)];
    }
    sized
        .into_iter()
        .map(|(t, sizes)| RateCurve::new(name.clone(), Some(t.clone()), curve.clone(), sizes))
        .collect()
}

/// The rates on the kind of places that the job may use: those with GPUs or those without, or only those of
/// type `only`. `types` are the present types where places are lent; `None` where whole nodes are, which
/// every job may use.
pub(super) fn rates_on_own_kind(
    rates: Vec<RateCurve>,
    on_cpus: bool,
    types: Option<&[NodeType]>,
    only: Option<&NodeType>,
) -> Vec<RateCurve> {
    let Some(types) = types else { return rates };
    let mut others = Vec::new();
    for rate in rates.iter().filter(|rate| rate.node_type.is_none()) {
        for node_type in types.iter().filter(|t| is_own_kind(t, on_cpus, only)) {
            let has_own_rate = rates.iter().any(|other| {
                other.exec_plan == rate.exec_plan && other.node_type.as_ref() == Some(node_type)
            });
            if !has_own_rate {
                others.push(RateCurve { node_type: Some(node_type.clone()), ..rate.clone() });
            }
        }
    }
    let mut kept = rates;
    kept.retain(|rate| rate.node_type.as_ref().is_some_and(|t| is_own_kind(t, on_cpus, only)));
    kept.extend(others);
    if kept.is_empty() {
        // No place of its kind is lent now.
        let curve = ScalingCurve::linear();
        kept.push(RateCurve::new(ExecPlan::default(), Some(NodeType::new("")), curve, None));
    }
    kept
}

fn is_own_kind(node_type: &NodeType, on_cpus: bool, only: Option<&NodeType>) -> bool {
    node_type.has_gpus() != on_cpus && only.is_none_or(|only| only == node_type)
}
