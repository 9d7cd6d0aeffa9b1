//! Where values lie between the edges of a figure.

use crate::charts::ValueAxis;

/// From one edge to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FigureScale {
    from: f64,
    to: f64,
    step: f64,
}

impl FigureScale {
    /// Has all of these and 0, and ends at round numbers.
    pub fn around_values(values: impl IntoIterator<Item = f64>) -> FigureScale {
        let (low, high) = values
            .into_iter()
            .filter(|x| x.is_finite())
            .fold((0.0, 0.0), |(low, high): (f64, f64), x| (low.min(x), high.max(x)));
        let step = ValueAxis::for_rates(positive_end(high.max(-low))).step;
        let to = (high / step).ceil() * step;
        let from = (low / step).floor() * step;
        FigureScale { from, to: if to > from { to } else { from + step }, step }
    }

    /// From 0 to exactly there.
    pub fn from_zero_to(end: f64) -> FigureScale {
        let to = positive_end(end);
        FigureScale { from: 0.0, to, step: ValueAxis::for_rates(to).step }
    }

    /// Where a value is: 0 at the lower edge, 1 at the upper one.
    pub fn share_of(&self, value: f64) -> f64 {
        let share = (value - self.from) / (self.to - self.from);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Round values with their words: `0`, `0.5`, `1`; `0`, `20M`, `40M`.
    pub fn labelled_ticks(&self) -> Vec<(f64, String)> {
        let (scale, unit) = match self.to.max(-self.from) {
            top if top >= 1e9 => (1e9, "G"),
            top if top >= 1e6 => (1e6, "M"),
            top if top >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-(self.step / scale * 1.000_001).log10().floor()).max(0.0) as usize;
        let word = |at: f64| match at {
            0.0 => "0".to_owned(),
            _ => format!("{:.decimals$}{unit}", at / scale),
        };
        let first = (self.from / self.step).round() as i64;
        let last = (self.to / self.step * 1.000_001).floor() as i64;
        (first..=last).map(|i| i as f64 * self.step).map(|at| (at, word(at))).collect()
    }
}

/// An end that an axis can have.
fn positive_end(end: f64) -> f64 {
    if end.is_normal() && end > 0.0 { end } else { 1.0 }
}
