//! What it costs a program that its nodes hang on several leaf switches: measured where one size ran both
//! ways, else estimated from sizes that ran on one switch and others that ran on several.

use super::rate::{FLOOR, contradict, mean};
use super::scaling::{Fitted, Scaling as _};
use infill_model::{BatchMode, SizePoint, Spread};

/// How far steps across switches are from those on one before anything is measured: standard deviation of the
/// logarithm. Published ratios lie between 0.7 and 7.5, and most of them near 1.
const PRIOR: f64 = 0.3;

/// Whether a new measurement says something else than the rate of a point: that was on one switch, and this
/// on several, or the other way round.
pub(crate) fn is_other(old: &SizePoint, new: &SizePoint) -> bool {
    (old.spread == Spread::Across) != (new.spread == Spread::Across)
}

/// A point, and a new measurement of the other kind. What was measured on one switch is the point's rate. A
/// rate on several that contradicts the one that was known replaces it.
pub(crate) fn beside(old: &SizePoint, new: &SizePoint) -> SizePoint {
    let (here, there) = ((old.rate, old.error), (new.rate, new.error));
    let (near, (rate, error)) = match old.spread {
        Spread::Across => (new, here),
        Spread::Both { rate, error } if !contradict((rate, error), there) => {
            (old, mean((rate, error), there))
        }
        _ => (old, there),
    };
    let (step_samples, at) = (new.step_samples.or(old.step_samples), new.at.max(old.at));
    SizePoint { spread: Spread::Both { rate, error }, step_samples, at, ..*near }
}

/// The same of a program that runs at this multiple of its old speed.
pub(crate) fn drifted(spread: Spread, factor: f64) -> Spread {
    match spread {
        Spread::Both { rate, error } => Spread::Both { rate: rate * factor, error },
        spread => spread,
    }
}

/// How many times as long a step takes on several leaf switches as on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crossing {
    /// So many times.
    pub times: f64,
    /// Relative error.
    error: f64,
}

/// What crossing costs by all sizes that were measured both ways, and by what those on one switch let expect
/// of one that was measured across; `None` where neither is known.
pub(crate) fn crossing(points: &[SizePoint], mode: BatchMode) -> Option<Crossing> {
    let both = points.iter().filter_map(|point| match point.spread {
        Spread::Both { rate, error } => Some(((point.rate / rate).ln(), point.error.hypot(error).max(FLOOR))),
        _ => None,
    });
    let mut ratios = both.chain(missed(points, mode)).peekable();
    ratios.peek()?;
    let (sum, weight) = ratios.fold((0.0, PRIOR.powi(-2)), |(sum, weight), (ratio, error)| {
        let w = error.powi(-2);
        (sum + w * ratio, weight + w)
    });
    Some(Crossing { times: (sum / weight).exp(), error: weight.powf(-0.5) })
}

/// By how much a size that ran across switches only is below what those on one let expect of it (logarithm,
/// relative error): of several the one of which they tell most. That it is above says nothing.
fn missed(points: &[SizePoint], mode: BatchMode) -> Option<(f64, f64)> {
    let (across, near): (Vec<SizePoint>, Vec<SizePoint>) =
        points.iter().partition(|point| point.spread == Spread::Across);
    let largest = across.iter().map(|point| point.nodes).max()?;
    let fitted = Fitted::new(&near, mode, largest)?;
    let ratio = |point: &SizePoint| {
        let expected = fitted.at(point.nodes);
        ((expected.rate / point.rate).ln(), expected.error.hypot(point.error).max(FLOOR))
    };
    across.iter().map(ratio).filter(|(ratio, _)| *ratio > 0.0).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// The points as they would be on one switch, as far as that is known: a curve is of such.
pub(crate) fn on_one_switch(
    points: &[SizePoint],
    crossing: Option<Crossing>,
) -> impl Iterator<Item = SizePoint> {
    points.iter().map(move |point| match crossing {
        Some(Crossing { times, error }) if point.spread == Spread::Across => {
            SizePoint { rate: point.rate * times, error: point.error.hypot(error), ..*point }
        }
        _ => *point,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::UnixTime;

    fn point(rate: f64, spread: Spread) -> SizePoint {
        let at = UnixTime(0);
        SizePoint { nodes: 4, rate, error: 0.02, secs: 30.0, step_samples: None, hosts: None, spread, at }
    }

    fn slowdown(points: &[SizePoint]) -> f64 {
        crossing(points, BatchMode::Auto).map_or(1.0, |crossing| crossing.times)
    }

    fn on_one(points: &[SizePoint]) -> Vec<SizePoint> {
        on_one_switch(points, crossing(points, BatchMode::Auto)).collect()
    }

    #[test]
    fn what_crossing_costs_is_measured_where_a_size_ran_both_ways() {
        assert_eq!(slowdown(&[point(5.0, Spread::Across)]), 1.0);
        for (old, new) in [
            (point(10.0, Spread::Near), point(5.0, Spread::Across)),
            (point(5.0, Spread::Across), point(10.0, Spread::Near)),
        ] {
            assert!(is_other(&old, &new));
            let both = beside(&old, &new);
            assert_eq!((both.rate, both.spread), (10.0, Spread::Both { rate: 5.0, error: 0.02 }));
            assert!((1.95..2.0).contains(&slowdown(&[both])), "{}", slowdown(&[both]));
            let more = beside(&both, &point(5.2, Spread::Across));
            assert!(matches!(more.spread, Spread::Both { rate, error } if rate > 5.0 && error < 0.02));
            assert_eq!(drifted(both.spread, 2.0), Spread::Both { rate: 10.0, error: 0.02 });
        }
    }

    #[test]
    fn a_curve_is_of_one_switch() {
        let across = SizePoint { nodes: 8, ..point(8.0, Spread::Across) };
        assert_eq!(on_one(&[across]), [across], "nobody knows what it costs");
        let both = point(10.0, Spread::Both { rate: 5.0, error: 0.02 });
        let found = on_one(&[both, across]);
        assert_eq!(found[0], both);
        assert!((15.9..16.2).contains(&found[1].rate) && found[1].error > across.error, "{found:?}");
        assert_eq!(found[1].nodes, 8);
    }

    #[test]
    fn other_sizes_let_expect_what_crossing_costs() {
        let near = |nodes, rate| SizePoint { nodes, ..point(rate, Spread::Near) };
        let across = |nodes, rate| SizePoint { nodes, ..point(rate, Spread::Across) };
        // Four nodes make 36, and so eight would make some 65.
        let known = [near(1, 10.0), near(2, 19.0), near(4, 36.0)];
        let slow = slowdown(&[known.as_slice(), &[across(8, 16.0)]].concat());
        assert!((2.0..4.0).contains(&slow), "{slow}");
        let one = [near(3, 28.0), across(6, 13.0)];
        assert!((1.5..4.0).contains(&slowdown(&one)), "{}", slowdown(&one));
        let fitted = Fitted::new(&on_one(&one), BatchMode::Auto, 6).unwrap();
        assert!(fitted.at(1).rate < 20.0, "fewer nodes are not thought to be quicker: {:?}", fitted.at(1));
        let quick = slowdown(&[known.as_slice(), &[across(8, 75.0)]].concat());
        assert!((0.99..1.01).contains(&quick), "{quick}");
    }

    #[test]
    fn what_crossing_costs_now_replaces_what_it_cost_before() {
        let both = point(10.0, Spread::Both { rate: 5.0, error: 0.02 });
        let now = beside(&both, &point(9.0, Spread::Across));
        assert_eq!(now.spread, Spread::Both { rate: 9.0, error: 0.02 });
    }
}
