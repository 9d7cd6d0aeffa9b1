//! A raster of rows over time, in which each cell is of one of several kinds.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::frame::{FigureFrame, SideLabel};
use super::legend::{self, LegendKey};
use super::{FigureScale, SeriesColour};
use crate::charts::markup::escape_html;

/// The most pixels of a row.
const ROW: f64 = 12.0;

/// The most pixels of the figure's height: it fits on a sheet of paper.
const HIGHEST: f64 = 640.0;

/// The fewest pixels of the figure's height, where it has few rows.
const LOWEST: f64 = 60.0;

/// The smallest distance between two names of rows, in pixels.
const NAME: f64 = 14.0;

/// A kind of cells.
#[derive(Clone, Debug)]
pub struct CellKind {
    /// Its raw name.
    pub name: String,
    /// The colour of its cells.
    pub colour: SeriesColour,
}

/// A raster figure. All texts are raw; they are escaped here.
#[derive(Clone, Debug)]
pub struct RasterFigure<'a> {
    /// The title, which screen readers speak.
    pub title: &'a str,
    /// The title of the axis of time, with its unit. Times begin at 0.
    pub times: &'a str,
    /// The end of the axis of time, in that unit.
    pub end: f64,
    /// What a row is, such as `node`.
    pub row: &'a str,
    /// The names of the rows, the first on top.
    pub names: Vec<String>,
    /// The cells of each row: the number of a kind, or `None` for a blank. All rows have equally many.
    pub cells: Vec<Vec<Option<usize>>>,
    /// The kinds by their numbers.
    pub kinds: Vec<CellKind>,
    /// Whether a legend names the kinds.
    pub is_named: bool,
}

impl RasterFigure<'_> {
    /// The legend and the drawing.
    pub fn to_html(&self) -> String {
        let named = self.kinds.iter().filter(|_| self.is_named);
        let keys = named.map(|kind| LegendKey { name: &kind.name, colour: kind.colour, is_shown: true });
        legend::fixed_legend(keys) + &self.svg()
    }

    fn svg(&self) -> String {
        let rows = self.cells.len().max(1) as f64;
        let height = (rows * ROW).clamp(LOWEST, HIGHEST);
        let pitch = height / rows;
        let rows_per_name = (NAME / pitch).ceil().max(1.0) as usize;
        let named = self.names.iter().take(self.cells.len()).enumerate().step_by(rows_per_name);
        let frame = FigureFrame {
            title: self.title,
            height,
            x: FigureScale::from_zero_to(self.end),
            x_title: self.times,
            left: named
                .map(|(i, name)| SideLabel { at: pitch * (i as f64 + 0.5), word: name.clone() })
                .collect(),
            y_title: self.row,
            distance: NAME,
            is_ruled: false,
        };
        frame.to_svg(&self.body(rows))
    }

    /// A path for each row and kind, sorted by kind. Adjacent cells of a kind are one stroke, as high as a
    /// row.
    fn body(&self, rows: f64) -> String {
        let mut paths: BTreeMap<(usize, usize), RowPath> = BTreeMap::new();
        for (row, cells) in self.cells.iter().enumerate() {
            let mut column = 0;
            for run in cells.chunk_by(|a, b| a == b) {
                if let Some(Some(kind)) = run.first() {
                    paths.entry((*kind, row)).or_default().add_stroke(row, column, run.len());
                }
                column += run.len();
            }
        }
        let columns = self.cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut body = format!(
            "<svg class=\"cells\" viewBox=\"0 -.5 {columns} {rows}\" preserveAspectRatio=\"none\" \
             width=\"100%\" height=\"100%\">"
        );
        let mut last = None;
        for ((kind, row), RowPath { text, .. }) in &paths {
            let Some(CellKind { name, colour }) = self.kinds.get(*kind) else { continue };
            if last != Some(*kind) {
                let end = if last.is_some() { "</g>" } else { "" };
                let _ = write!(body, "{end}\n<g class=\"{}\">", colour.class());
                last = Some(*kind);
            }
            let title = match self.names.get(*row) {
                Some(row) => escape_html(&format!("{row}: {name}")),
                None => escape_html(name),
            };
            let _ = write!(body, "<path d=\"{text}\"><title>{title}</title></path>");
        }
        let end = if last.is_some() { "</g>\n" } else { "" };
        body + end + "</svg>"
    }
}

/// Strokes along one row.
#[derive(Default)]
struct RowPath {
    /// SVG path data.
    text: String,
    /// The column at which the last stroke ends.
    end: usize,
}

impl RowPath {
    fn add_stroke(&mut self, row: usize, column: usize, length: usize) {
        let _ = if self.text.is_empty() {
            write!(self.text, "M{column} {row}h{length}")
        } else {
            write!(self.text, "m{} 0h{length}", column - self.end)
        };
        self.end = column + length;
    }
}
