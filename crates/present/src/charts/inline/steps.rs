//! Lines over time that go up and down in steps.

use std::fmt::Write;

use super::frame::{FigureFrame, SideLabel};
use super::legend::{self, LegendKey};
use super::{FigureScale, NumberTable, SeriesColour, exact_number};
use crate::charts::markup::escape_html;

/// Pixels.
const HEIGHT: f64 = 280.0;

/// Points from left to right and from top to bottom: two a pixel of a wide figure.
const GRAIN: (f64, f64) = (2000.0, 1000.0);

/// A line.
#[derive(Clone, Debug)]
pub struct StepLine {
    /// What it is of.
    pub name: String,
    /// Its colour.
    pub colour: SeriesColour,
    /// Whether the area below it is filled.
    pub is_filled: bool,
    /// Whether it is shown before the reader asks for it.
    pub is_shown: bool,
    /// From when on, and how much; the times ascend, and the last one ends the line.
    pub points: Vec<(f64, f64)>,
}

/// See the module's text. All texts are as they stand outside.
#[derive(Clone, Debug)]
pub struct StepFigure<'a> {
    /// Tells the page's figures apart: a word.
    pub id: &'a str,
    /// What is shown.
    pub title: &'a str,
    /// What the times are, with their unit; they begin at 0.
    pub times: &'a str,
    /// When it ends, in that unit.
    pub end: f64,
    /// What the values are.
    pub values: &'a str,
    /// What is drawn; the first lies below the others.
    pub lines: Vec<StepLine>,
}

impl StepFigure<'_> {
    /// Legend, whose names show and hide the lines, and drawing.
    pub fn to_html(&self) -> String {
        let keys =
            self.lines.iter().map(|l| LegendKey { name: &l.name, colour: l.colour, is_shown: l.is_shown });
        legend::switch_legend(self.id, keys) + &self.svg()
    }

    /// Means over parts of the time, each so long, in the unit of the times.
    pub fn to_table(&self, part: f64) -> NumberTable {
        let heads = std::iter::once(self.times.to_owned()).chain(self.lines.iter().map(|l| l.name.clone()));
        // What is left of a part by rounding is none.
        let parts = (self.end / part - 1e-6).ceil().max(0.0) as usize;
        let row = |i: usize| {
            let from = i as f64 * part;
            let to = ((i + 1) as f64 * part).min(self.end);
            let name = format!("{}–{}", exact_number(from), exact_number(to));
            std::iter::once(name)
                .chain(self.lines.iter().map(|line| exact_number(line.mean(from, to))))
                .collect()
        };
        NumberTable { heads: heads.collect(), rows: (0..parts).map(row).collect() }
    }

    fn svg(&self) -> String {
        let x = FigureScale::from_zero_to(self.end);
        let y = self.scale();
        let left: Vec<SideLabel> = y
            .labelled_ticks()
            .into_iter()
            .map(|(at, word): (f64, String)| SideLabel { at: HEIGHT * (1.0 - y.share_of(at)), word })
            .collect();
        let frame = FigureFrame {
            title: self.title,
            height: HEIGHT,
            x,
            x_title: self.times,
            distance: HEIGHT / left.len().max(1) as f64,
            left,
            y_title: self.values,
            is_ruled: true,
        };
        let mut body = format!(
            "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" width=\"100%\" height=\"100%\">\n",
            GRAIN.0, GRAIN.1
        );
        for (i, line) in self.lines.iter().enumerate() {
            let class = line.colour.class();
            let filled = if line.is_filled { " area" } else { "" };
            let way = line.path_data(x, y);
            let name = escape_html(&line.name);
            let _ = writeln!(
                body,
                "<path class=\"{class} s{i} line{filled}\" d=\"{way}\"><title>{name}</title></path>"
            );
        }
        frame.to_svg(&(body + "</svg>"))
    }

    fn scale(&self) -> FigureScale {
        FigureScale::around_values(self.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value))
    }
}

impl StepLine {
    /// As SVG writes a path: to the right and up or down in turn, by whole points; what is smaller is joined.
    fn path_data(&self, x: FigureScale, y: FigureScale) -> String {
        let mut places = self.points.iter().map(|(at, value): &(f64, f64)| {
            let right = (x.share_of(*at) * GRAIN.0).round() as i64;
            (right, ((1.0 - y.share_of(*value)) * GRAIN.1).round() as i64)
        });
        let Some((begin, top)) = places.next() else { return String::new() };
        let ground = ((1.0 - y.share_of(0.0)) * GRAIN.1).round() as i64;
        let mut way = if self.is_filled {
            format!("M{begin} {ground}v{}", top - ground)
        } else {
            format!("M{begin} {top}")
        };
        let mut at = begin;
        let mut height = top;
        let mut last = begin;
        for (right, new) in places {
            last = right;
            if new != height {
                let _ = if right == at { Ok(()) } else { write!(way, "h{}", right - at) };
                let _ = write!(way, "v{}", new - height);
                (at, height) = (right, new);
            }
        }
        let _ = if last == at { Ok(()) } else { write!(way, "h{}", last - at) };
        let _ = if self.is_filled { write!(way, "V{ground}z") } else { Ok(()) };
        way
    }

    /// The mean between two times; what lies outside the line counts as 0.
    fn mean(&self, from: f64, to: f64) -> f64 {
        let sum: f64 = self
            .points
            .windows(2)
            .map(|w: &[(f64, f64)]| (w[1].0.min(to) - w[0].0.max(from)).max(0.0) * w[0].1)
            .sum();
        sum / (to - from).max(f64::MIN_POSITIVE)
    }
}
