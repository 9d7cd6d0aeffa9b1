//! What it costs a program that its nodes hang on several leaf switches: measured, where one size ran both
//! ways.

use super::rate::{FLOOR, contradict};
use crate::model::{SizePoint, Spread};

/// How far steps across switches are from those on one before anything is measured: standard deviation of the
/// logarithm. Published ratios lie between 0.7 and 7.5, and most of them near 1.
const PRIOR: f64 = 0.3;

/// Whether a new measurement says something else than the rate of a point: that was on one switch, and this
/// on several, or the other way round.
pub fn is_other(old: &SizePoint, new: &SizePoint) -> bool {
    (old.spread == Spread::Across) != (new.spread == Spread::Across)
}

/// A point, and a new measurement of the other kind. What was measured on one switch is the point's rate. A
/// rate on several that contradicts the one that was known replaces it.
pub fn beside(old: &SizePoint, new: &SizePoint) -> SizePoint {
    let (here, there) = ((old.rate, old.error), (new.rate, new.error));
    let (near, (rate, error)) = match old.spread {
        Spread::Across => (new, here),
        Spread::Both { rate, error } if !contradict((rate, error), there) => {
            (old, mean((rate, error), there))
        }
        _ => (old, there),
    };
    SizePoint { spread: Spread::Both { rate, error }, ..*near }
}

/// Both rates with their relative errors, weighted by how exact they are.
fn mean(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let weight = |error: f64| error.max(FLOOR).powi(-2);
    let (wa, wb) = (weight(a.1), weight(b.1));
    (((wa * a.0.ln() + wb * b.0.ln()) / (wa + wb)).exp(), (wa + wb).powf(-0.5).max(FLOOR))
}

/// The same of a program that runs at this multiple of its old speed.
pub fn drifted(spread: Spread, factor: f64) -> Spread {
    match spread {
        Spread::Both { rate, error } => Spread::Both { rate: rate * factor, error },
        spread => spread,
    }
}

/// How many times as long a step takes on several leaf switches as on one, by all sizes that were measured
/// both ways; 1 where none was.
pub fn slowdown(points: &[SizePoint]) -> f64 {
    crossing(points).map_or(1.0, |(times, _)| times)
}

/// The same with its relative error; `None` where no size was measured both ways.
fn crossing(points: &[SizePoint]) -> Option<(f64, f64)> {
    let ratios = points.iter().filter_map(|point| match point.spread {
        Spread::Both { rate, error } => Some(((point.rate / rate).ln(), point.error.hypot(error).max(FLOOR))),
        _ => None,
    });
    let mut ratios = ratios.peekable();
    ratios.peek()?;
    let (sum, weight) = ratios.fold((0.0, PRIOR.powi(-2)), |(sum, weight), (ratio, error)| {
        let w = error.powi(-2);
        (sum + w * ratio, weight + w)
    });
    Some(((sum / weight).exp(), weight.powf(-0.5)))
}

/// The points as they would be on one switch, as far as that is known: a curve is of such.
pub fn on_one_switch(mut points: Vec<SizePoint>) -> Vec<SizePoint> {
    let Some((times, doubt)) = crossing(&points) else { return points };
    for point in points.iter_mut().filter(|point| point.spread == Spread::Across) {
        (point.rate, point.error) = (point.rate * times, point.error.hypot(doubt));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UnixTime;

    fn point(rate: f64, spread: Spread) -> SizePoint {
        let at = UnixTime(0);
        SizePoint { nodes: 4, rate, error: 0.02, secs: 30.0, step_samples: None, hosts: None, spread, at }
    }

    #[test]
    fn what_crossing_costs_is_measured_where_a_size_ran_both_ways() {
        assert_eq!(slowdown(&[point(10.0, Spread::Near), point(5.0, Spread::Across)]), 1.0);
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
        assert_eq!(on_one_switch(vec![across]), [across], "nobody knows what it costs");
        let both = point(10.0, Spread::Both { rate: 5.0, error: 0.02 });
        let found = on_one_switch(vec![both, across]);
        assert_eq!(found[0], both);
        assert!((15.5..16.0).contains(&found[1].rate) && found[1].error > across.error, "{found:?}");
        assert_eq!(found[1].nodes, 8);
    }

    #[test]
    fn what_crossing_costs_now_replaces_what_it_cost_before() {
        let both = point(10.0, Spread::Both { rate: 5.0, error: 0.02 });
        let now = beside(&both, &point(9.0, Spread::Across));
        assert_eq!(now.spread, Spread::Both { rate: 9.0, error: 0.02 });
    }
}
