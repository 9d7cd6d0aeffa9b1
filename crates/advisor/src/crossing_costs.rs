//! What it costs a program that its nodes are on several leaf switches, or are parts of several hosts. It is
//! measured where one size ran both ways, and else estimated from sizes that ran on one and others that ran
//! on several.

use super::rate::{MIN_RATE_ERROR, rates_contradict, weighted_mean_rate};
use super::scaling::{FittedCurve, ScalingModel as _};
use infill_model::{BatchMode, SizePoint, Spread};

/// Standard deviation of the logarithm of the cost of crossing switches, before anything is measured.
/// Published ratios lie between 0.7 and 7.5, and most of them near 1. It serves for hosts, too.
const PRIOR_SD: f64 = 0.3;

/// What a job's nodes cross.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CrossingLevel {
    Hosts,
    Switches,
}

impl CrossingLevel {
    fn spread_of(self, point: &SizePoint) -> Spread {
        match self {
            CrossingLevel::Hosts => point.over_hosts,
            CrossingLevel::Switches => point.spread,
        }
    }

    fn with_spread(self, point: &SizePoint, spread: Spread) -> SizePoint {
        match self {
            CrossingLevel::Hosts => SizePoint { over_hosts: spread, ..*point },
            CrossingLevel::Switches => SizePoint { spread, ..*point },
        }
    }
}

/// The level on which two rates differ in where they were measured; `None` where they do not. Nodes on
/// several switches are also on several hosts.
fn differing_level(old: &SizePoint, new: &SizePoint) -> Option<CrossingLevel> {
    if differs_on(CrossingLevel::Switches, old, new) {
        Some(CrossingLevel::Switches)
    } else if old.spread != Spread::Across && differs_on(CrossingLevel::Hosts, old, new) {
        Some(CrossingLevel::Hosts)
    } else {
        None
    }
}

/// Whether one of two rates was measured across this level and the other was not.
fn differs_on(level: CrossingLevel, old: &SizePoint, new: &SizePoint) -> bool {
    (level.spread_of(old) == Spread::Across) != (level.spread_of(new) == Spread::Across)
}

/// Whether a new measurement differs from a point in where it ran: one on one switch and the other on
/// several, or the same of hosts.
pub(crate) fn is_other_spread(old: &SizePoint, new: &SizePoint) -> bool {
    differing_level(old, new).is_some()
}

/// Combines a point with a new measurement of the other kind. The rate on one switch, or host, becomes the
/// point's rate. A new rate on several that contradicts the old one replaces it.
pub(crate) fn merge_spreads(old: &SizePoint, new: &SizePoint) -> SizePoint {
    let level = differing_level(old, new).unwrap_or(CrossingLevel::Switches);
    let here = (old.rate, old.error);
    let there = (new.rate, new.error);
    let (near, (rate, error)) = match level.spread_of(old) {
        Spread::Across => (new, here),
        Spread::Both { rate, error } if !rates_contradict((rate, error), there) => {
            (old, weighted_mean_rate((rate, error), there))
        }
        _ => (old, there),
    };
    let step_samples = new.step_samples.or(old.step_samples);
    let at = new.at.max(old.at);
    // The spread over switches is kept, because it also holds for one host.
    let spread = if level == CrossingLevel::Hosts { old.spread } else { near.spread };
    level.with_spread(&SizePoint { spread, step_samples, at, ..*near }, Spread::Both { rate, error })
}

/// The rates of a spread after the program's speed has changed by a factor.
pub(crate) fn scale_spread(spread: Spread, factor: f64) -> Spread {
    match spread {
        Spread::Both { rate, error } => Spread::Both { rate: rate * factor, error },
        spread => spread,
    }
}

/// How many times as long a step takes on several leaf switches as on one, or on several hosts as on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CrossingCost {
    pub times: f64,
    /// Relative error.
    error: f64,
}

/// How many times as long a step takes when it crosses hosts or switches; 1 where unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossingSlowdown {
    /// On several hosts, compared with one, where parts of nodes are lent.
    pub hosts: f64,
    /// On several leaf switches, compared with several hosts of one.
    pub switches: f64,
}

impl CrossingSlowdown {
    /// No known slowdown.
    pub const NONE: CrossingSlowdown = CrossingSlowdown { hosts: 1.0, switches: 1.0 };
}

/// The costs of crossing by all measurements of a program; `None` where these say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CrossingCosts {
    hosts: Option<CrossingCost>,
    switches: Option<CrossingCost>,
}

impl CrossingCosts {
    /// Estimates the costs from measured points. `with_hosts`: whether to estimate the cost of crossing hosts
    /// at all.
    pub fn from_points(points: &[SizePoint], mode: BatchMode, with_hosts: bool) -> CrossingCosts {
        let hosts = if with_hosts {
            let on_one: Vec<SizePoint> =
                points.iter().filter(|point| point.spread != Spread::Across).copied().collect();
            estimate_crossing(&on_one, mode, CrossingLevel::Hosts)
        } else {
            None
        };
        let on_one_host: Vec<SizePoint> =
            points.iter().map(|point| normalize_to_host(point, hosts)).collect();
        CrossingCosts { hosts, switches: estimate_crossing(&on_one_host, mode, CrossingLevel::Switches) }
    }

    /// The costs as plain factors.
    pub fn crossing_slowdown(&self) -> CrossingSlowdown {
        CrossingSlowdown {
            hosts: self.hosts.map_or(1.0, |cost| cost.times),
            switches: self.switches.map_or(1.0, |cost| cost.times),
        }
    }

    /// The points as they would be on one host and one switch, as far as that is known. Curves are fitted to
    /// these.
    pub fn normalize_points(self, points: &[SizePoint]) -> impl Iterator<Item = SizePoint> {
        points.iter().map(move |point| {
            normalize_point(&normalize_to_host(point, self.hosts), self.switches, CrossingLevel::Switches)
        })
    }
}

/// A point as it would be on one host, with its rate across switches converted, too.
fn normalize_to_host(point: &SizePoint, crossing: Option<CrossingCost>) -> SizePoint {
    let spread = crossing.map_or(point.spread, |crossing| scale_spread(point.spread, crossing.times));
    normalize_point(&SizePoint { spread, ..*point }, crossing, CrossingLevel::Hosts)
}

/// A point as it would be on one host, or switch.
fn normalize_point(point: &SizePoint, crossing: Option<CrossingCost>, level: CrossingLevel) -> SizePoint {
    match crossing {
        Some(CrossingCost { times, error }) if level.spread_of(point) == Spread::Across => {
            SizePoint { rate: point.rate * times, error: point.error.hypot(error), ..*point }
        }
        _ => *point,
    }
}

/// The cost of crossing by all sizes that were measured both ways, and by the size that [`missed_ratio`]
/// finds; `None` where neither exists.
fn estimate_crossing(points: &[SizePoint], mode: BatchMode, level: CrossingLevel) -> Option<CrossingCost> {
    let both = points.iter().filter_map(|point| match level.spread_of(point) {
        Spread::Both { rate, error } => {
            Some(((point.rate / rate).ln(), point.error.hypot(error).max(MIN_RATE_ERROR)))
        }
        _ => None,
    });
    let mut ratios = both.chain(missed_ratio(points, mode, level)).peekable();
    ratios.peek()?;
    let (sum, weight) = ratios.fold((0.0, PRIOR_SD.powi(-2)), |(sum, weight), (ratio, error)| {
        let ratio_weight = error.powi(-2);
        (sum + ratio_weight * ratio, weight + ratio_weight)
    });
    Some(CrossingCost { times: (sum / weight).exp(), error: weight.powf(-0.5) })
}

/// How much slower a size ran across than expected from the sizes on one (logarithm and relative error). If
/// several sizes ran across only, the one with the smallest error counts. Sizes that were faster than
/// expected say nothing.
fn missed_ratio(points: &[SizePoint], mode: BatchMode, level: CrossingLevel) -> Option<(f64, f64)> {
    let (across, near): (Vec<SizePoint>, Vec<SizePoint>) =
        points.iter().partition(|point| level.spread_of(point) == Spread::Across);
    let largest = across.iter().map(|point| point.nodes).max()?;
    let fitted = FittedCurve::new(&near, mode, largest)?;
    let ratios = across.iter().map(|point| {
        let expected = fitted.estimate_at(point.nodes);
        ((expected.rate / point.rate).ln(), expected.error.hypot(point.error).max(MIN_RATE_ERROR))
    });
    ratios.filter(|(ratio, _)| *ratio > 0.0).min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::UnixTime;

    fn point(rate: f64, spread: Spread) -> SizePoint {
        let at = UnixTime(0);
        SizePoint {
            nodes: 4,
            rate,
            error: 0.02,
            secs: 30.0,
            step_samples: None,
            hosts: None,
            spread,
            over_hosts: Spread::Near,
            at,
        }
    }

    fn slowdown(points: &[SizePoint]) -> f64 {
        CrossingCosts::from_points(points, BatchMode::Auto, true).crossing_slowdown().switches
    }

    fn on_one(points: &[SizePoint]) -> Vec<SizePoint> {
        CrossingCosts::from_points(points, BatchMode::Auto, true).normalize_points(points).collect()
    }

    #[test]
    fn what_crossing_costs_is_measured_where_a_size_ran_both_ways() {
        assert_eq!(slowdown(&[point(5.0, Spread::Across)]), 1.0);
        for (old, new) in [
            (point(10.0, Spread::Near), point(5.0, Spread::Across)),
            (point(5.0, Spread::Across), point(10.0, Spread::Near)),
        ] {
            assert!(is_other_spread(&old, &new));
            let both = merge_spreads(&old, &new);
            assert_eq!((both.rate, both.spread), (10.0, Spread::Both { rate: 5.0, error: 0.02 }));
            assert!((1.95..2.0).contains(&slowdown(&[both])), "{}", slowdown(&[both]));
            let more = merge_spreads(&both, &point(5.2, Spread::Across));
            assert!(matches!(more.spread, Spread::Both { rate, error } if rate > 5.0 && error < 0.02));
            assert_eq!(scale_spread(both.spread, 2.0), Spread::Both { rate: 10.0, error: 0.02 });
        }
    }

    #[test]
    fn a_curve_is_of_one_switch() {
        let across = SizePoint { nodes: 8, ..point(8.0, Spread::Across) };
        assert_eq!(on_one(&[across]), [across], "the cost of crossing is unknown");
        let both = point(10.0, Spread::Both { rate: 5.0, error: 0.02 });
        let found = on_one(&[both, across]);
        assert_eq!(found[0], both);
        assert!((15.9..16.2).contains(&found[1].rate) && found[1].error > across.error, "{found:?}");
        assert_eq!(found[1].nodes, 8);
    }

    #[test]
    fn other_sizes_show_what_crossing_costs() {
        let near = |nodes, rate| SizePoint { nodes, ..point(rate, Spread::Near) };
        let across = |nodes, rate| SizePoint { nodes, ..point(rate, Spread::Across) };
        // Four nodes make 36, and so eight would make some 65.
        let known = [near(1, 10.0), near(2, 19.0), near(4, 36.0)];
        let slow = slowdown(&[known.as_slice(), &[across(8, 16.0)]].concat());
        assert!((2.0..4.0).contains(&slow), "{slow}");
        let one = [near(3, 28.0), across(6, 13.0)];
        assert!((1.5..4.0).contains(&slowdown(&one)), "{}", slowdown(&one));
        let fitted = FittedCurve::new(&on_one(&one), BatchMode::Auto, 6).unwrap();
        assert!(
            fitted.estimate_at(1).rate < 20.0,
            "fewer nodes are not expected to be quicker: {:?}",
            fitted.estimate_at(1)
        );
        let quick = slowdown(&[known.as_slice(), &[across(8, 75.0)]].concat());
        assert!((0.99..1.01).contains(&quick), "{quick}");
    }

    #[test]
    fn what_crossing_costs_now_replaces_what_it_cost_before() {
        let both = point(10.0, Spread::Both { rate: 5.0, error: 0.02 });
        let now = merge_spreads(&both, &point(9.0, Spread::Across));
        assert_eq!(now.spread, Spread::Both { rate: 9.0, error: 0.02 });
    }

    #[test]
    fn hosts_are_crossed_as_switches_are() {
        let point_on = |nodes, rate, over_hosts| SizePoint { nodes, over_hosts, ..point(rate, Spread::Near) };
        let one = point_on(4, 36.0, Spread::Near);
        let several = point_on(4, 18.0, Spread::Across);
        assert!(
            is_other_spread(&one, &several)
                && is_other_spread(&several, &one)
                && !is_other_spread(&one, &one)
        );
        let both = merge_spreads(&several, &one);
        assert_eq!((both.rate, both.over_hosts), (36.0, Spread::Both { rate: 18.0, error: 0.02 }));
        assert_eq!((both, both.spread), (merge_spreads(&one, &several), Spread::Near));
        let CrossingSlowdown { hosts, switches } =
            CrossingCosts::from_points(&[both], BatchMode::Auto, true).crossing_slowdown();
        assert!((1.95..2.0).contains(&hosts) && switches == 1.0, "{hosts}, {switches}");
        assert_eq!(
            CrossingCosts::from_points(&[both], BatchMode::Auto, false).crossing_slowdown(),
            CrossingSlowdown::NONE
        );
        // Two on one host make 19, four would make 36: eight on two point_on them are measured at 33.
        let known = [point_on(1, 10.0, Spread::Near), point_on(2, 19.0, Spread::Near), both];
        let eight = point_on(8, 33.0, Spread::Across);
        let near: Vec<SizePoint> =
            CrossingCosts::from_points(&[known.as_slice(), &[eight]].concat(), BatchMode::Auto, true)
                .normalize_points(&[eight])
                .collect();
        assert!((63.0..67.0).contains(&near[0].rate), "{near:?}");
    }

    #[test]
    fn what_switches_cost_is_beside_what_hosts_cost() {
        let four = |rate, over_hosts, spread| SizePoint { over_hosts, ..point(rate, spread) };
        let one = four(36.0, Spread::Near, Spread::Near);
        let hosts = four(18.0, Spread::Across, Spread::Near);
        let leaves = four(12.0, Spread::Across, Spread::Across);
        let orders = [[one, hosts, leaves], [leaves, hosts, one], [hosts, leaves, one], [one, leaves, hosts]];
        for [first, second, third] in orders {
            let all = merge_spreads(&merge_spreads(&first, &second), &third);
            let expected =
                (36.0, Spread::Both { rate: 18.0, error: 0.02 }, Spread::Both { rate: 12.0, error: 0.02 });
            assert_eq!((all.rate, all.over_hosts, all.spread), expected);
            let CrossingSlowdown { hosts, switches } =
                CrossingCosts::from_points(&[all], BatchMode::Auto, true).crossing_slowdown();
            assert!((1.95..2.0).contains(&hosts) && (1.45..1.55).contains(&switches), "{hosts}, {switches}");
        }
        let more = merge_spreads(&merge_spreads(&one, &leaves), &four(11.8, Spread::Across, Spread::Across));
        assert!(matches!(more.spread, Spread::Both { rate, .. } if rate < 12.0), "{more:?}");
        assert!(more.over_hosts == Spread::Near && !is_other_spread(&leaves, &leaves));
    }
}
