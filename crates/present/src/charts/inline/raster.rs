//! A raster of rows over time: which of several kinds each cell is.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::frame::{FigureFrame, SideLabel};
use super::legend::{self, LegendKey};
use super::{FigureScale, SeriesColour};
use crate::charts::markup::escape_html;

/// Pixels of a row at most, and of the figure: it fits a sheet of paper.
const ROW: f64 = 12.0;
const HIGHEST: f64 = 640.0;

/// Pixels of the figure at least, if its rows are few.
const LOWEST: f64 = 60.0;

/// Rows have their names at least so many pixels apart.
const NAME: f64 = 14.0;

/// A kind of cells.
#[derive(Clone, Debug)]
pub struct CellKind {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: SeriesColour,
}

/// See the module's text. All texts are as they stand outside.
#[derive(Clone, Debug)]
pub struct RasterFigure<'a> {
    /// What is shown.
    pub title: &'a str,
    /// What the times are, with their unit; they begin at 0.
    pub times: &'a str,
    /// When it ends, in that unit.
    pub end: f64,
    /// What a row is.
    pub row: &'a str,
    /// Of the rows, the first on top.
    pub names: Vec<String>,
    /// Each row with equally many cells: the number of its kind, or blank.
    pub cells: Vec<Vec<Option<usize>>>,
    /// The kinds by their numbers.
    pub kinds: Vec<CellKind>,
    /// Whether a legend names them.
    pub is_named: bool,
}

impl RasterFigure<'_> {
    /// Legend and drawing.
    pub fn to_html(&self) -> String {
        let named = self.kinds.iter().filter(|_| self.is_named);
        let keys = named.map(|k| LegendKey { name: &k.name, colour: k.colour, is_shown: true });
        legend::fixed_legend(keys) + &self.svg()
    }

    fn svg(&self) -> String {
        let rows = self.cells.len().max(1) as f64;
        let height = (rows * ROW).clamp(LOWEST, HIGHEST);
        let pitch = height / rows;
        let every = (NAME / pitch).ceil().max(1.0) as usize;
        let named = self.names.iter().take(self.cells.len()).enumerate().step_by(every);
        let frame = FigureFrame {
            title: self.title,
            height,
            x: FigureScale::from_zero_to(self.end),
            x_title: self.times,
            left: named
                .map(|(i, name): (usize, &String)| SideLabel {
                    at: pitch * (i as f64 + 0.5),
                    word: name.clone(),
                })
                .collect(),
            y_title: self.row,
            distance: NAME,
            is_ruled: false,
        };
        frame.to_svg(&self.body(rows))
    }

    /// A path for each row and kind, sorted by kind: cells side by side are one stroke, as high as a row.
    fn body(&self, rows: f64) -> String {
        let mut ways: BTreeMap<(usize, usize), RowPath> = BTreeMap::new();
        for (row, cells) in self.cells.iter().enumerate() {
            let mut at = 0;
            for run in cells.chunk_by(|a, b| a == b) {
                if let Some(Some(kind)) = run.first() {
                    ways.entry((*kind, row)).or_default().stroke(row, at, run.len());
                }
                at += run.len();
            }
        }
        let columns = self.cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut body = format!(
            "<svg class=\"cells\" viewBox=\"0 -.5 {columns} {rows}\" preserveAspectRatio=\"none\" \
             width=\"100%\" height=\"100%\">"
        );
        let mut last = None;
        for ((kind, row), RowPath { text, .. }) in &ways {
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
    text: String,
    end: usize,
}

impl RowPath {
    fn stroke(&mut self, row: usize, at: usize, length: usize) {
        let _ = if self.text.is_empty() {
            write!(self.text, "M{at} {row}h{length}")
        } else {
            write!(self.text, "m{} 0h{length}", at - self.end)
        };
        self.end = at + length;
    }
}
