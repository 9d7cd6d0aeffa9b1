//! Maps values to positions between the edges of a figure.

use crate::charts::ValueAxis;

/// A linear scale from one edge of a figure to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FigureScale {
    from: f64,
    to: f64,
    step: f64,
}

impl FigureScale {
    /// A scale that contains all of these values and 0, and ends at round numbers.
    pub fn around_values(values: impl IntoIterator<Item = f64>) -> FigureScale {
        let mut low: f64 = 0.0;
        let mut high: f64 = 0.0;
        for value in values.into_iter().filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        let step = ValueAxis::for_rates(positive_end(high.max(-low))).step;
        let to = (high / step).ceil() * step;
        let from = (low / step).floor() * step;
        FigureScale { from, to: if to > from { to } else { from + step }, step }
    }

    /// A scale from 0 to exactly `end`.
    pub fn from_zero_to(end: f64) -> FigureScale {
        let to = positive_end(end);
        FigureScale { from: 0.0, to, step: ValueAxis::for_rates(to).step }
    }

    /// The position of a value: 0 at the lower edge, 1 at the upper one. Values outside are moved to the
    /// edge.
    pub fn share_of(&self, value: f64) -> f64 {
        let share = (value - self.from) / (self.to - self.from);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Round values with their labels: `0`, `0.5`, `1`; `0`, `20M`, `40M`.
    pub fn labelled_ticks(&self) -> Vec<(f64, String)> {
        let (scale, unit) = match self.to.max(-self.from) {
            top if top >= 1e9 => (1e9, "G"),
            top if top >= 1e6 => (1e6, "M"),
            top if top >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-(self.step / scale * 1.000_001).log10().floor()).max(0.0) as usize;
        let first = (self.from / self.step).round() as i64;
        let last = (self.to / self.step * 1.000_001).floor() as i64;
        let mut ticks = Vec::new();
        for value in (first..=last).map(|i| i as f64 * self.step) {
            let label =
                if value == 0.0 { "0".to_owned() } else { format!("{:.decimals$}{unit}", value / scale) };
            ticks.push((value, label));
        }
        ticks
    }
}

/// The end of an axis: `end` if it is a positive normal number, else 1.
fn positive_end(end: f64) -> f64 {
    if end.is_normal() && end > 0.0 { end } else { 1.0 }
}
