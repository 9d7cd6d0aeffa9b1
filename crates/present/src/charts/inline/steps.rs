//! A figure of lines over time that go up and down in steps.

use std::fmt::Write;

use super::frame::{FigureFrame, SideLabel};
use super::legend::{self, LegendKey};
use super::{FigureScale, NumberTable, SeriesColour, exact_number};
use crate::charts::markup::escape_html;

/// Height of the figure, in pixels.
const HEIGHT: f64 = 280.0;

/// Units of the paths' coordinates from left to right and from top to bottom: two a pixel of a wide figure.
const GRAIN: (f64, f64) = (2000.0, 1000.0);

/// A line of a figure.
#[derive(Clone, Debug)]
pub struct StepLine {
    /// Its raw name.
    pub name: String,
    /// The colour of the line and of its area.
    pub colour: SeriesColour,
    /// Whether the area below it is filled.
    pub is_filled: bool,
    /// Whether it is shown at first.
    pub is_shown: bool,
    /// Times, ascending, each with the value that holds from then on. The last one ends the line.
    pub points: Vec<(f64, f64)>,
}

/// A figure of lines. All texts are raw; they are escaped here.
#[derive(Clone, Debug)]
pub struct StepFigure<'a> {
    /// A word that is unique within the page.
    pub id: &'a str,
    /// The title, which screen readers speak.
    pub title: &'a str,
    /// The title of the axis of time, with its unit. Times begin at 0.
    pub times: &'a str,
    /// The end of the axis of time, in that unit.
    pub end: f64,
    /// The title of the axis of values.
    pub values: &'a str,
    /// The lines; the first lies below the others.
    pub lines: Vec<StepLine>,
}

impl StepFigure<'_> {
    /// The legend, whose names show and hide the lines, and the drawing.
    pub fn to_html(&self) -> String {
        let keys = self.lines.iter().map(|line| LegendKey {
            name: &line.name,
            colour: line.colour,
            is_shown: line.is_shown,
        });
        legend::switch_legend(self.id, keys) + &self.svg()
    }

    /// A table of means over parts of the time that are `part` long, in the unit of the times.
    pub fn to_table(&self, part: f64) -> NumberTable {
        let heads = std::iter::once(self.times.to_owned()).chain(self.lines.iter().map(|l| l.name.clone()));
        // A rest that comes only from rounding is not a part.
        let parts = (self.end / part - 1e-6).ceil().max(0.0) as usize;
        let rows = (0..parts).map(|i| {
            let from = i as f64 * part;
            let to = ((i + 1) as f64 * part).min(self.end);
            let name = format!("{}–{}", exact_number(from), exact_number(to));
            let means = self.lines.iter().map(|line| exact_number(line.mean(from, to)));
            std::iter::once(name).chain(means).collect()
        });
        NumberTable { heads: heads.collect(), rows: rows.collect() }
    }

    fn svg(&self) -> String {
        let x = FigureScale::from_zero_to(self.end);
        let y = self.scale();
        let left: Vec<SideLabel> = y
            .labelled_ticks()
            .into_iter()
            .map(|(value, word)| SideLabel { at: HEIGHT * (1.0 - y.share_of(value)), word })
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
            let path = line.path_data(x, y);
            let name = escape_html(&line.name);
            let _ = writeln!(
                body,
                "<path class=\"{class} s{i} line{filled}\" d=\"{path}\"><title>{name}</title></path>"
            );
        }
        frame.to_svg(&(body + "</svg>"))
    }

    fn scale(&self) -> FigureScale {
        FigureScale::around_values(self.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value))
    }
}

impl StepLine {
    /// SVG path data: horizontal and vertical strokes in turn, in whole units. Smaller steps are joined.
    fn path_data(&self, x: FigureScale, y: FigureScale) -> String {
        let mut corners = self.points.iter().map(|(time, value)| {
            let right = (x.share_of(*time) * GRAIN.0).round() as i64;
            let down = ((1.0 - y.share_of(*value)) * GRAIN.1).round() as i64;
            (right, down)
        });
        let Some((begin, top)) = corners.next() else { return String::new() };
        let zero_line = ((1.0 - y.share_of(0.0)) * GRAIN.1).round() as i64;
        let mut path = if self.is_filled {
            format!("M{begin} {zero_line}v{}", top - zero_line)
        } else {
            format!("M{begin} {top}")
        };
        let mut pen_right = begin;
        let mut pen_down = top;
        let mut end = begin;
        for (right, down) in corners {
            end = right;
            if down != pen_down {
                if right != pen_right {
                    let _ = write!(path, "h{}", right - pen_right);
                }
                let _ = write!(path, "v{}", down - pen_down);
                pen_right = right;
                pen_down = down;
            }
        }
        if end != pen_right {
            let _ = write!(path, "h{}", end - pen_right);
        }
        if self.is_filled {
            let _ = write!(path, "V{zero_line}z");
        }
        path
    }

    /// The mean between two times. Outside of its points the line counts as 0.
    fn mean(&self, from: f64, to: f64) -> f64 {
        let mut sum = 0.0;
        for pair in self.points.windows(2) {
            let overlap = (pair[1].0.min(to) - pair[0].0.max(from)).max(0.0);
            sum += overlap * pair[0].1;
        }
        sum / (to - from).max(f64::MIN_POSITIVE)
    }
}
