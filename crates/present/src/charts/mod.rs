//! Figures as SVG, each in a file of its own or, by [`inline`], within a page. They need no other file, no
//! script, and no font but the reader's own.

mod curve_figure;
mod curves;
pub mod inline;
pub mod markup;
#[cfg(test)]
mod tests;
mod time_figure;

pub(crate) use curve_figure::ValueAxis;
pub use curve_figure::{CurrentPoint, CurveAxes, CurveFigure, profile_title, replace_control_chars};
pub use curves::draw_curves;
pub use time_figure::{StackedArea, TimeFigure, TimeMarks};

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::style::RGBColor;

const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(120, 120, 120);

/// The drawing library would choose other ticks than the terminal shows.
impl Ranged for ValueAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limits: (i32, i32)) -> i32 {
        let (from, to) = limits;
        from + (value / self.max * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.tick_values().collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..self.max
    }
}

/// Converts an error of the drawing library, which is not `Sync` as `anyhow` requires.
fn drawing_error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("cannot draw: {error}")
}

/// A number with three significant digits and a unit prefix: `0.512`, `12.3`, `4.56k`.
pub fn format_number(x: f64) -> String {
    let (scaled, unit) = match x.abs() {
        a if a >= 1e9 => (x / 1e9, "G"),
        a if a >= 1e6 => (x / 1e6, "M"),
        a if a >= 1e4 => (x / 1e3, "k"),
        _ => (x, ""),
    };
    let decimals = match scaled.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{unit}")
}
