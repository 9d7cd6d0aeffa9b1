//! Figures within a page of HTML: a legend, a drawing as SVG, and its numbers as a table. They need no
//! script, only the [`figure_style`] that the page includes once.
//!
//! They are written here and not by the drawing library, which supports only a fixed size and fixed colours.
//! Horizontal positions are shares of the width, so that text and dots keep their size on a phone, on a
//! screen and on paper. Lines and text have the page's own colour, which differs between light, dark and
//! print. The `<title>` of a mark says what it shows; browsers show it where the reader points.

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

/// Colours that colour-blind readers can distinguish too (from Okabe and Ito, and from Tol).
const PALETTE: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7b6ccf", "#44aa99",
    "#b0447a", "#999933", "#ee6677",
];

/// The colour of a series or of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesColour {
    /// A colour of the palette by its number. From [`SeriesColour::COUNT`] on the colours repeat.
    Of(usize),
    /// Grey, for anything unused. It differs between light and dark pages.
    Grey,
}

impl SeriesColour {
    /// The number of colours in the palette.
    pub const COUNT: usize = PALETTE.len();

    /// The colour's class in the style sheet.
    fn class(self) -> String {
        match self {
            SeriesColour::Of(i) => format!("c{}", i % SeriesColour::COUNT),
            SeriesColour::Grey => "cg".to_owned(),
        }
    }
}

/// The style sheet of all figures of a page. `most_series` is the largest number of switchable series in one
/// of them.
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
