//! A throughput curve as a picture: what is drawn, and on which axes. `terminal` draws it with characters,
//! `svg` with lines, several on the same axes, too.

mod svg;
mod terminal;
#[cfg(test)]
mod tests;

pub use svg::svg;
pub use terminal::draw;

use crate::api::CurveRow;
use crate::model::CurvePoint;

/// How far above the largest rate the ideal line and the intervals are followed: further up they would press
/// the curve flat.
const HEADROOM: f64 = 1.25;

/// Ticks that an axis has, about.
const TICKS: f64 = 8.0;

/// Steps of an axis of rates, within a power of ten.
const ROUND_STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// What is drawn. The sizes of each list ascend.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What it is of.
    pub title: String,
    /// Measured sizes with their intervals.
    pub measured: Vec<CurveRow>,
    /// The curve that follows from them.
    pub curve: Vec<CurveRow>,
    /// The true rates, where they are known.
    pub truth: Vec<CurvePoint>,
}

impl Picture {
    /// Rate of one node if the job scaled in proportion from its smallest measured size.
    fn ideal(&self) -> Option<f64> {
        self.measured.first().map(|p| p.rate / f64::from(p.nodes.max(1)))
    }

    /// The axes of nodes and of rates; `None` when there is nothing to draw.
    fn axes(&self) -> Option<(Axis, Axis)> {
        let rows = || self.measured.iter().chain(&self.curve);
        let sizes = rows().map(|r| r.nodes).chain(self.truth.iter().map(|p| p.nodes));
        let rates = rows().map(|r| r.rate).chain(self.truth.iter().map(|p| p.rate));
        let (nodes, rate) = (f64::from(sizes.max()?), rates.fold(0.0, f64::max));
        let above = rows().map(|r| r.high).chain(self.ideal().map(|i| i * nodes)).fold(rate, f64::max);
        let top = above.min(rate * HEADROOM);
        (top.is_normal() && top > 0.0).then(|| (Axis::of_nodes(nodes), Axis::of_rates(top)))
    }

    /// The curve at any size within it, interpolated: low, rate, high.
    fn at(&self, nodes: f64) -> Option<(f64, f64, f64)> {
        let pair = |w: &&[CurveRow]| (f64::from(w[0].nodes)..=f64::from(w[1].nodes)).contains(&nodes);
        let w = self.curve.windows(2).find(pair)?;
        let (from, to) = (f64::from(w[0].nodes), f64::from(w[1].nodes));
        let share = if to > from { (nodes - from) / (to - from) } else { 0.0 };
        let between = |a: f64, b: f64| a + share * (b - a);
        Some((between(w[0].low, w[1].low), between(w[0].rate, w[1].rate), between(w[0].high, w[1].high)))
    }
}

/// An axis from 0 on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    /// Its end, a multiple of the step.
    max: f64,
    /// Distance of its ticks.
    step: f64,
}

impl Axis {
    /// Steps that are powers of two, as numbers of nodes usually are.
    fn of_nodes(largest: f64) -> Self {
        Axis::to(largest, (largest / TICKS).log2().ceil().max(0.0).exp2())
    }

    fn of_rates(largest: f64) -> Self {
        let rough = largest / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let round = ROUND_STEPS.into_iter().find(|s| s * power >= rough).unwrap_or(10.0);
        Axis::to(largest, round * power)
    }

    fn to(largest: f64, step: f64) -> Self {
        Axis { max: (largest / step).ceil() * step, step }
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        // Rounded: `ceil` in `to` made the end a multiple of the step.
        let last = (self.max / self.step).round() as u32;
        (0..=last).map(move |i| f64::from(i) * self.step)
    }
}
