//! What a measurement changes in a profile.

use std::collections::BTreeMap;

use super::crossing_costs;
use super::rate::{MIN_RATE_ERROR, rates_contradict, weighted_mean_rate};
use super::rate_meter::Stretch;
use infill_model::{BatchMode, Profile, SizePoint, Spread, UnixTime};

/// A rate with a larger relative error says nothing against what is known: half of it was a stall.
const VAGUE_ERROR: f64 = 0.1;

/// Seconds between the first measurement at another speed and the one that makes it a drift.
const LASTS_SECS: f64 = 10.0;

/// Seconds after which a contradiction that nothing followed is forgotten.
const DOUBT_SECS: f64 = 120.0;

/// Seconds from a generation's start in which nothing is contradicted.
const SETTLED_SECS: f64 = 30.0;

/// A point that rests on fewer seconds was wrong itself when it is contradicted, and says nothing of the
/// others.
const LITTLE_SECS: f64 = 20.0;

/// After a drift, the sizes that were not measured since are taken to have changed by the same factor, with
/// an added error of so much of it.
const DRIFT_DOUBT: f64 = 0.3;

/// The seconds behind them then count so much.
const DRIFT_WEIGHT: f64 = 0.25;

/// Seconds of measurement that a point remembers.
const MOST_SECS: f64 = 3600.0;

/// Slopes of log samples a step over log nodes: above, each node has its own batch; below, they share one.
const PER_NODE_SLOPE: f64 = 0.75;

/// See [`PER_NODE_SLOPE`].
const GLOBAL_SLOPE: f64 = 0.25;

/// What became of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LearnOutcome {
    /// The size is measured for the first time.
    New,
    /// It fits to what was known, and made it more exact.
    Agrees,
    /// It contradicts what was known: kept aside until the next one says which is right.
    Doubted,
    /// The job runs at this multiple of its old speed now.
    Drifted(f64),
}

/// Measurements that contradict what is known, by size: kept aside until the next ones say which is right.
pub(crate) type DoubtedPoints = BTreeMap<u32, SizePoint>;

/// On what something was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredSize {
    /// Number of nodes.
    pub nodes: u32,
    /// On how many hosts they are.
    pub hosts: u32,
    /// Whether they are parts of several hosts.
    pub apart: bool,
    /// Whether these hang on several leaf switches.
    pub crosses: bool,
}

/// Takes a measurement at a size into a profile.
pub(crate) fn learn_point(
    profile: &mut Profile,
    doubts: &mut DoubtedPoints,
    MeasuredSize { nodes, hosts, apart, crosses }: MeasuredSize,
    stretch: &Stretch,
    at: UnixTime,
) -> LearnOutcome {
    let rate = &stretch.rate;
    let error = rate.error.max(MIN_RATE_ERROR);
    let spread = |is_wide: bool| if is_wide { Spread::Across } else { Spread::Near };
    let new = SizePoint {
        nodes,
        rate: rate.rate,
        error,
        secs: rate.secs,
        step_samples: stretch.step_samples,
        hosts: (hosts < nodes).then_some(f64::from(hosts)),
        spread: spread(crosses),
        over_hosts: spread(apart),
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
    // Half a stall, or a start that is slower than any warm-up should be.
    if new.error > VAGUE_ERROR || stretch.age_secs < SETTLED_SECS {
        return LearnOutcome::Doubted;
    }
    if is_other {
        *old = crossing_costs::merge_spreads(old, &new);
        doubts.remove(&nodes);
        return LearnOutcome::Agrees;
    }
    let Some(first) = doubts.get(&nodes).copied().filter(|d: &SizePoint| {
        (0.0..DOUBT_SECS).contains(&at.secs_since(d.at))
            && !rates_contradict((d.rate, d.error), (new.rate, new.error))
    }) else {
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

/// How the work of a step grows with the size: as declared, else as samples and steps at several sizes show.
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
    let (x, y) = logs.iter().fold((0.0, 0.0), |(x, y), l| (x + l.0 / n, y + l.1 / n));
    let wide: f64 = logs.iter().map(|l| (l.0 - x).powi(2)).sum();
    let slope = logs.iter().map(|l| (l.0 - x) * (l.1 - y)).sum::<f64>() / wide;
    match slope {
        s if s > PER_NODE_SLOPE => BatchMode::PerNode,
        s if s < GLOBAL_SLOPE => BatchMode::Global,
        // Also where there are not two sizes to compare.
        _ => BatchMode::Auto,
    }
}

/// Both, weighted by how exact they are.
fn merge_points(old: &SizePoint, new: &SizePoint) -> SizePoint {
    let (rate, error) = weighted_mean_rate((old.rate, old.error), (new.rate, new.error));
    SizePoint {
        nodes: new.nodes,
        rate,
        error,
        secs: (old.secs + new.secs).min(MOST_SECS),
        step_samples: new.step_samples.or(old.step_samples),
        hosts: mean_hosts(old, new),
        spread: old.spread,
        over_hosts: old.over_hosts,
        at: new.at.max(old.at),
    }
}

/// On how many hosts the nodes of both were on average, by the seconds that each rests on.
fn mean_hosts(old: &SizePoint, new: &SizePoint) -> Option<f64> {
    let of = |p: &SizePoint| p.hosts.unwrap_or(f64::from(p.nodes));
    let secs = old.secs + new.secs;
    let mean = if secs > 0.0 { (of(old) * old.secs + of(new) * new.secs) / secs } else { of(new) };
    (old.hosts.is_some() || new.hosts.is_some()).then_some(mean)
}

/// The job runs at another speed: `now` is measured, the others are guessed from it.
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
