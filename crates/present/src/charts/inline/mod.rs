//! Figures within a page of HTML: a legend, a drawing as SVG, and its numbers as a table. They need no
//! script, only the [`figure_style`] that the page includes once.
//!
//! They are written here and not by the drawing library, which knows one size and fixed colours. Places from
//! left to right are shares of the width, so that words and dots keep their size on a phone, on a screen and
//! on paper. Ink is the page's own, so that night and paper have theirs. What a mark stands for is its
//! `<title>`, which browsers show where the reader points.

mod frame;
mod legend;
mod raster;
mod rows;
mod scale;
mod steps;
mod table;
#[cfg(test)]
mod tests;

use std::fmt::Write;

pub use raster::{CellKind, RasterFigure};
pub use rows::{RowFigure, RowMarks, RowSeries};
pub(crate) use scale::FigureScale;
pub use steps::{StepFigure, StepLine};
pub use table::NumberTable;
pub(crate) use table::exact_number;

/// Told apart by the colour-blind, too (Okabe and Ito; Tol).
const PALETTE: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7b6ccf", "#44aa99",
    "#b0447a", "#999933", "#ee6677",
];

/// A colour, by day and by night.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesColour {
    /// One of those that are told apart, by its number; from [`Colour::COUNT`] on they come again.
    Of(usize),
    /// Of what is unused.
    Grey,
}

impl SeriesColour {
    /// How many are told apart.
    pub const COUNT: usize = PALETTE.len();

    /// Its class in the style sheet.
    fn class(self) -> String {
        match self {
            SeriesColour::Of(i) => format!("c{}", i % SeriesColour::COUNT),
            SeriesColour::Grey => "cg".to_owned(),
        }
    }
}

/// The style sheet of all figures of a page; none has more than so many series that can be switched.
pub fn figure_style(most_series: usize) -> String {
    let mut text = include_str!("style.css").to_owned();
    for (i, colour) in PALETTE.iter().enumerate() {
        let _ = writeln!(text, ".c{i} {{ color: {colour}; }}");
    }
    for i in 0..most_series {
        let _ = writeln!(text, ".k{i}:not(:checked) ~ .chart .s{i} {{ display: none; }}");
    }
    text
}
