//! Main jobs that wings extend, as the planner sees them. All own nodes of such a job are one gap that no
//! other job can have and that never ends. Where GPUs are lent, each of its own places is such a gap, and all
//! of them are one worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use infill_model::{
    AllowedSizes, CurvePoint, Gap, GapSet, JobFacts, MalleableJob, NodeName, NodeType, PlaceShare, Probe,
    ScalingCurve, Snapshot, UnixTime, WindowEnd, malleable::RateCurve,
};

/// Seconds for which a main job's own nodes are counted on: longer than any horizon.
const OWN_SECS: f64 = 86_400.0;

/// The largest number of points of a shifted curve.
const MAX_POINTS: usize = 64;

/// The CPUs and memory that main jobs have at each of their places in a snapshot. Where Slurm reports
/// nothing, it is what comes with the place.
pub(super) fn place_shares(snapshot: &Snapshot, jobs: &[JobFacts]) -> BTreeMap<NodeName, PlaceShare> {
    let mut shares = BTreeMap::new();
    for place in jobs.iter().flat_map(|job| job.location.own_places()) {
        let Some(share) = snapshot.node(&place).and_then(|node| node.share) else { continue };
        let held = if share.held.is_none() { share.own } else { share.held };
        shares.insert(place, PlaceShare { held, ..share });
    }
    shares
}

/// The gaps plus one gap for each job's own nodes, or one for each of its own places. `type_at` returns the
/// type of a node that a lead is on. `shares` are the shares of own places.
pub(super) fn gaps_with_own<'a>(
    mut gaps: Arc<GapSet>,
    jobs: &[JobFacts],
    type_at: impl Fn(&NodeName) -> Option<&'a NodeType>,
    shares: &BTreeMap<NodeName, PlaceShare>,
    now: UnixTime,
) -> Arc<GapSet> {
    let mut own: Vec<Gap> = Vec::new();
    for facts in jobs {
        let Some(node) = facts.location.own.first() else { continue };
        let Some(node_type) = type_at(node) else { continue };
        for place in node.single_places() {
            own.push(Gap {
                share: shares.get(&place).copied(),
                node: place,
                node_type: node_type.clone(),
                since: facts.since,
                end: WindowEnd::Unknown,
                vacate_by: None,
                usable_until: now.plus_secs(OWN_SECS),
                expected_secs: OWN_SECS,
                holder: Some(facts.job),
            });
        }
    }
    if !own.is_empty() {
        let all = Arc::make_mut(&mut gaps);
        all.refused.retain(|(node, _)| !own.iter().any(|gap| gap.node == *node));
        all.gaps.retain(|gap| !own.iter().any(|own| own.node == gap.node));
        all.gaps.extend(own);
        all.gaps.sort_by(|a, b| a.node.cmp(&b.node));
    }
    gaps
}

/// The job with its own nodes merged into one: sizes and rates for `fewer` nodes less. Its weight stays: the
/// value of a further node is what it adds to the own nodes.
pub(super) fn merge_own_nodes(job: MalleableJob, fewer: u32) -> MalleableJob {
    let Some(sizes) = job.sizes.shifted_down(fewer).filter(|_| fewer > 0) else { return job };
    let rates: Vec<RateCurve> =
        job.rates.iter().filter_map(|rate| shifted_rate(rate, fewer, &sizes)).collect();
    if rates.is_empty() {
        return job;
    }
    let probe = job.probe.as_ref().and_then(|probe| probe_less(probe, fewer));
    let mut guarantee = job.guarantee.clone();
    if let Some(guarantee) = &mut guarantee {
        guarantee.sufficient_sizes = std::mem::take(&mut guarantee.sufficient_sizes)
            .into_iter()
            .map(|e| e.shifted_down(fewer))
            .collect();
    }
    MalleableJob { rates, sizes, probe, guarantee, ..job }
}

/// A rate for `fewer` nodes less; `None` where the plan runs at none of these sizes.
fn shifted_rate(rate: &RateCurve, fewer: u32, sizes: &AllowedSizes) -> Option<RateCurve> {
    let plan_sizes = match &rate.sizes {
        Some(all) => Some(all.shifted_down(fewer)?),
        None => None,
    };
    let curve = curve_less(&rate.curve, fewer, sizes)?;
    Some(RateCurve { curve, sizes: plan_sizes, ..rate.clone() })
}

/// The probe for `fewer` nodes less; `None` if no node is left.
fn probe_less(probe: &Probe, fewer: u32) -> Option<Probe> {
    let nodes = probe.nodes.checked_sub(fewer).filter(|nodes| *nodes > 0)?;
    Some(Probe { nodes, with: probe.with.clone() })
}

/// The curve for `fewer` nodes less: at all sizes if those are few, else at the sizes that the curve names.
fn curve_less(curve: &ScalingCurve, fewer: u32, sizes: &AllowedSizes) -> Option<ScalingCurve> {
    let mut nodes = sizes.up_to(sizes.max().min(sizes.min().saturating_add(MAX_POINTS as u32)));
    nodes.extend(curve.points().iter().filter_map(|p| p.nodes.checked_sub(fewer)).filter(|n| *n > 0));
    nodes.push(sizes.max());
    nodes.sort_unstable();
    nodes.dedup();
    ScalingCurve::new(
        nodes
            .into_iter()
            .map(|nodes: u32| CurvePoint { nodes, rate: curve.rate(nodes.saturating_add(fewer)) })
            .collect(),
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_nodes_of_a_main_job_are_one() {
        let curve = ScalingCurve::parse("1:10,2:18,4:32,8:50").unwrap();
        let less = curve_less(&curve, 3, &AllowedSizes::parse("1-5").unwrap()).unwrap();
        for extra in 0..5 {
            assert!((less.rate(1 + extra) - curve.rate(4 + extra)).abs() < 1e-9, "{extra}");
        }
        for (sizes, less) in
            [("4-12", Some("1-9")), ("2-3", None), ("4,6,8", Some("1,3,5")), ("1-9", Some("1-6"))]
        {
            let left = AllowedSizes::parse(sizes).unwrap().shifted_down(3).map(|s| s.to_string());
            assert_eq!(left.as_deref(), less, "{sizes}");
        }
        let probe = |nodes| Probe { nodes, with: None };
        assert_eq!(probe_less(&probe(5), 3), Some(probe(2)));
        assert_eq!((probe_less(&probe(3), 3), probe_less(&probe(2), 3)), (None, None));
        assert_eq!(AllowedSizes::parse("1,3,5").unwrap().shifted_up(3).to_string(), "4,6,8");
        for (extend, all) in [("1-16", "1-17"), ("4", "1,5"), ("2-4", "1,3,4,5"), ("1,2,4", "1,2,3,5")] {
            assert_eq!(AllowedSizes::parse(extend).unwrap().added_to_one().to_string(), all, "{extend}");
        }
    }
}
