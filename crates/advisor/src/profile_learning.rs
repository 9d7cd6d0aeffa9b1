//! How a measurement changes a profile.

use std::collections::BTreeMap;

use super::crossing_costs;
use super::rate::{MIN_RATE_ERROR, rates_contradict, weighted_mean_rate};
use super::rate_meter::RateStretch;
use infill_model::{BatchMode, Profile, SizePoint, Spread, UnixTime};

/// A rate with a larger relative error does not contradict a known rate. It is so noisy that part of the
/// stretch was probably a stall.
const VAGUE_ERROR: f64 = 0.1;

/// Seconds between the first measurement at another speed and the one that makes it a drift.
const LASTS_SECS: f64 = 10.0;

/// Seconds after which a contradiction without a successor is forgotten.
const DOUBT_SECS: f64 = 120.0;

/// Seconds from a generation's start during which no measurement contradicts a known rate.
const SETTLED_SECS: f64 = 30.0;

/// A contradicted point that rests on fewer seconds was wrong itself, and says nothing about the others.
const LITTLE_SECS: f64 = 20.0;

/// After a drift, the sizes that were not measured since are assumed to have changed by the same factor. This
/// share of its logarithm is added to their relative error.
const DRIFT_DOUBT: f64 = 0.3;

/// After a drift, the seconds behind these sizes are multiplied by this.
const DRIFT_WEIGHT: f64 = 0.25;

/// Most seconds of measurement that a point counts.
const MAX_SECS: f64 = 3600.0;

/// Slope of the logarithm of samples a step over the logarithm of nodes. Above it each node has its own
/// batch.
const PER_NODE_SLOPE: f64 = 0.75;

/// Below this slope the nodes share one batch.
const GLOBAL_SLOPE: f64 = 0.25;

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LearnOutcome {
    /// The size is measured for the first time.
    New,
    /// It fits the known rate and makes it more precise, or it confirms an earlier doubt and replaces the
    /// rate.
    Agrees,
    /// It contradicts the known rate. It is kept aside until the next one says which is right, unless it is
    /// vague or early: then it is dropped.
    Doubted,
    /// The job's speed has changed by this factor.
    Drifted(f64),
}

/// Measurements that contradict known rates, by size. They are kept aside until the next ones say which are
/// right.
pub(crate) type DoubtedPoints = BTreeMap<u32, SizePoint>;

/// The nodes on which a rate was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredSize {
    /// Number of nodes.
    pub nodes: u32,
    /// The number of hosts that they are on.
    pub hosts: u32,
    /// Whether they are parts of several hosts.
    pub apart: bool,
    /// Whether they are on several leaf switches.
    pub crosses: bool,
}

/// Learns a measurement at a size: updates the profile's point, or keeps the measurement aside.
pub(crate) fn learn_point(
    profile: &mut Profile,
    doubts: &mut DoubtedPoints,
    MeasuredSize { nodes, hosts, apart, crosses }: MeasuredSize,
    stretch: &RateStretch,
    at: UnixTime,
) -> LearnOutcome {
    let rate = &stretch.rate;
    let error = rate.error.max(MIN_RATE_ERROR);
    let new = SizePoint {
        nodes,
        rate: rate.rate,
        error,
        secs: rate.secs,
        step_samples: stretch.step_samples,
        hosts: (hosts < nodes).then_some(f64::from(hosts)),
        spread: spread_where(crosses),
        over_hosts: spread_where(apart),
        at,
    };
    let Some(old) = profile.points.iter_mut().find(|p| p.nodes == nodes) else {
        profile.points.push(new);
        profile.points.sort_by_key(|p| p.nodes);
        return LearnOutcome::New;
    };
    let is_other = crossing_costs::is_other_spread(old, &new);
    if !is_other && !rates_contradict((old.rate, old.error), (new.rate, new.error)) {
        *old = merge_points(old, &new);
        doubts.remove(&nodes);
        return LearnOutcome::Agrees;
    }
    // A vague rate is so noisy that part of the stretch was probably a stall. An early one may be a start
    // that is slower than any warm-up should be.
    if new.error > VAGUE_ERROR || stretch.age_secs < SETTLED_SECS {
        return LearnOutcome::Doubted;
    }
    if is_other {
        *old = crossing_costs::merge_spreads(old, &new);
        doubts.remove(&nodes);
        return LearnOutcome::Agrees;
    }
    let doubted = doubts.get(&nodes).copied().filter(|doubted| {
        (0.0..DOUBT_SECS).contains(&at.secs_since(doubted.at))
            && !rates_contradict((doubted.rate, doubted.error), (new.rate, new.error))
    });
    let Some(first) = doubted else {
        doubts.insert(nodes, new);
        return LearnOutcome::Doubted;
    };
    if at.secs_since(first.at) < LASTS_SECS {
        return LearnOutcome::Doubted;
    }
    doubts.remove(&nodes);
    let now = merge_points(&first, &new);
    let factor = new.rate / old.rate;
    if old.secs < LITTLE_SECS {
        *old = SizePoint { spread: old.spread, over_hosts: old.over_hosts, ..now };
        return LearnOutcome::Agrees;
    }
    apply_drift(profile, &now, factor);
    LearnOutcome::Drifted(factor)
}

fn spread_where(is_wide: bool) -> Spread {
    if is_wide { Spread::Across } else { Spread::Near }
}

/// How the work of a step grows with the size: as declared, or as samples and steps at several sizes show.
pub fn batch_mode(profile: &Profile) -> BatchMode {
    if profile.key.batch != BatchMode::Auto {
        return profile.key.batch;
    }
    let logs: Vec<(f64, f64)> = profile
        .points
        .iter()
        .filter_map(|p| Some((f64::from(p.nodes).ln(), p.step_samples.filter(|s| *s > 0.0)?.ln())))
        .collect();
    let n = logs.len() as f64;
    let (mean_x, mean_y) = logs.iter().fold((0.0, 0.0), |(x, y), l| (x + l.0 / n, y + l.1 / n));
    let width: f64 = logs.iter().map(|l| (l.0 - mean_x).powi(2)).sum();
    let slope = logs.iter().map(|l| (l.0 - mean_x) * (l.1 - mean_y)).sum::<f64>() / width;
    match slope {
        s if s > PER_NODE_SLOPE => BatchMode::PerNode,
        s if s < GLOBAL_SLOPE => BatchMode::Global,
        // Without two sizes to compare the slope is not a number.
        _ => BatchMode::Auto,
    }
}

/// Combines two points, weighted by their precision (the inverse of the variance).
fn merge_points(old: &SizePoint, new: &SizePoint) -> SizePoint {
    let (rate, error) = weighted_mean_rate((old.rate, old.error), (new.rate, new.error));
    SizePoint {
        nodes: new.nodes,
        rate,
        error,
        secs: (old.secs + new.secs).min(MAX_SECS),
        step_samples: new.step_samples.or(old.step_samples),
        hosts: mean_hosts(old, new),
        spread: old.spread,
        over_hosts: old.over_hosts,
        at: new.at.max(old.at),
    }
}

/// The mean number of hosts of two points, weighted by the seconds that each rests on; `None` where neither
/// has one.
fn mean_hosts(old: &SizePoint, new: &SizePoint) -> Option<f64> {
    let secs = old.secs + new.secs;
    let mean =
        if secs > 0.0 { (hosts_of(old) * old.secs + hosts_of(new) * new.secs) / secs } else { hosts_of(new) };
    (old.hosts.is_some() || new.hosts.is_some()).then_some(mean)
}

fn hosts_of(point: &SizePoint) -> f64 {
    point.hosts.unwrap_or(f64::from(point.nodes))
}

/// Applies a drift by `factor`: `now` is the new measurement, and the other points are scaled.
fn apply_drift(profile: &mut Profile, now: &SizePoint, factor: f64) {
    for point in &mut profile.points {
        point.spread = crossing_costs::scale_spread(point.spread, factor);
        point.over_hosts = crossing_costs::scale_spread(point.over_hosts, factor);
        if point.nodes == now.nodes {
            *point = SizePoint { spread: point.spread, over_hosts: point.over_hosts, ..*now };
        } else {
            point.rate *= factor;
            point.error = point.error.hypot(DRIFT_DOUBT * factor.ln().abs()).min(1.0);
            point.secs *= DRIFT_WEIGHT;
        }
    }
}
