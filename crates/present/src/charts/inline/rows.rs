//! A figure with a row for each of several things, and a bar or a dot for each of its values.

use std::fmt::Write;

use super::frame::{FigureFrame, SideLabel, svg_number, svg_percent};
use super::legend::{self, LegendKey};
use super::{FigureScale, NumberTable, SeriesColour, exact_number};
use crate::charts::markup::escape_html;

/// Pixels between the bars of one row and those of the next.
const GAP: f64 = 10.0;

/// Height of a row's only bar, in pixels.
const LONE_BAR: f64 = 24.0;

/// Height of each of a row's several bars, in pixels.
const BAR: f64 = 11.0;

/// Height of a row of dots, in pixels.
const DOT_ROW: f64 = 14.0;

/// Radius of a dot, in pixels.
const DOT: f64 = 4.5;

/// A bar of at least this share of the width has its number inside.
const ROOMY: f64 = 0.3;

/// How values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowMarks {
    /// A bar for each value, one below the other.
    Bars,
    /// One bar in which each value begins where the one before ends. Negative values lie on the left of 0.
    Stacked,
    /// A dot for each value, all in one line.
    Dots,
}

/// A series of values, one in each row.
#[derive(Clone, Debug)]
pub struct RowSeries {
    /// Its raw name; may be empty for the only series.
    pub name: String,
    /// The colour of its marks.
    pub colour: SeriesColour,
    /// A value for each row. Missing and infinite ones count as 0.
    pub values: Vec<f64>,
}

/// A figure of rows. All texts are raw; they are escaped here.
#[derive(Clone, Debug)]
pub struct RowFigure<'a> {
    /// A word that is unique within the page.
    pub id: &'a str,
    /// The title, which screen readers speak.
    pub title: &'a str,
    /// What a row is, such as `policy`.
    pub row: &'a str,
    /// The title of the axis of values, with their unit.
    pub values: &'a str,
    /// The text after a value: ` %`, or nothing.
    pub sign: &'a str,
    /// The names of the rows, the first on top.
    pub names: Vec<String>,
    /// The series, each with a value in each row.
    pub series: Vec<RowSeries>,
    /// How the values are shown.
    pub marks: RowMarks,
}

impl RowFigure<'_> {
    /// The legend and the drawing. Dots may cover each other, so their series can be switched off. A single
    /// series needs no legend.
    pub fn to_html(&self) -> String {
        let legend = match self.marks {
            RowMarks::Dots => legend::switch_legend(self.id, self.legend_keys()),
            _ if self.series.len() > 1 => legend::fixed_legend(self.legend_keys()),
            _ => String::new(),
        };
        legend + &self.svg()
    }

    fn legend_keys(&self) -> impl Iterator<Item = LegendKey<'_>> {
        self.series.iter().map(|series| LegendKey {
            name: &series.name,
            colour: series.colour,
            is_shown: true,
        })
    }

    /// The values as a table with a column for each series.
    pub fn to_table(&self) -> NumberTable {
        let heads = std::iter::once(self.row.to_owned()).chain(self.series.iter().map(|s| s.name.clone()));
        let rows = self.names.iter().enumerate().map(|(i, name)| {
            let values = self.series.iter().map(|s| self.value_text(finite_value(s, i)));
            std::iter::once(name.clone()).chain(values).collect()
        });
        NumberTable { heads: heads.collect(), rows: rows.collect() }
    }

    fn svg(&self) -> String {
        let pitch = self.pitch();
        let x = self.scale();
        let frame = FigureFrame {
            title: self.title,
            height: pitch * self.names.len().max(1) as f64,
            x,
            x_title: self.values,
            left: self
                .names
                .iter()
                .enumerate()
                .map(|(i, name)| SideLabel { at: pitch * (i as f64 + 0.5), word: name.clone() })
                .collect(),
            y_title: self.row,
            distance: pitch,
            is_ruled: false,
        };
        let mut body = String::new();
        for (i, series) in self.series.iter().enumerate() {
            let _ = write!(body, "<g class=\"{} s{i}\">", series.colour.class());
            for row in 0..self.names.len() {
                body += &self.mark(x, i, row);
            }
            body += "</g>\n";
        }
        if self.is_numbered() {
            body += &self.numbers(x);
        }
        frame.to_svg(&body)
    }

    /// Pixels from one row to the next.
    fn pitch(&self) -> f64 {
        match self.marks {
            RowMarks::Bars if self.series.len() > 1 => BAR * self.series.len() as f64 + GAP,
            RowMarks::Bars | RowMarks::Stacked => LONE_BAR + GAP,
            RowMarks::Dots => DOT_ROW,
        }
    }

    fn scale(&self) -> FigureScale {
        let marks =
            (0..self.series.len()).flat_map(|series| (0..self.names.len()).map(move |row| (series, row)));
        let ends = marks.flat_map(|(series, row)| {
            let (from, to) = self.span(series, row);
            [from, to]
        });
        FigureScale::around_values(ends)
    }

    /// The two ends of a value's mark, in the unit of the values.
    fn span(&self, series: usize, row: usize) -> (f64, f64) {
        let value = self.series.get(series).map_or(0.0, |s| finite_value(s, row));
        let earlier_values = self.series.iter().take(series).map(|s| finite_value(s, row));
        let from: f64 = match self.marks {
            RowMarks::Stacked => earlier_values.filter(|other| (*other < 0.0) == (value < 0.0)).sum(),
            RowMarks::Bars | RowMarks::Dots => 0.0,
        };
        (from, from + value)
    }

    fn mark(&self, x: FigureScale, series: usize, row: usize) -> String {
        let (from, to) = self.span(series, row);
        let Some(series_name) = self.series.get(series).map(|series| &series.name) else {
            return String::new();
        };
        let Some(row_name) = self.names.get(row) else { return String::new() };
        let suffix = if series_name.is_empty() { String::new() } else { format!(", {series_name}") };
        let title = escape_html(&format!("{row_name}{suffix}: {}", self.value_text(to - from)));
        let top = self.pitch() * row as f64;
        if self.marks == RowMarks::Dots {
            let at = svg_percent(x.share_of(to));
            let middle = svg_number(top + DOT_ROW / 2.0);
            return format!(
                "<circle cx=\"{at}\" cy=\"{middle}\" r=\"{DOT}\"><title>{title}</title></circle>"
            );
        }
        let left = x.share_of(from.min(to));
        let right = x.share_of(from.max(to));
        let (offset, height) = match self.marks {
            RowMarks::Bars if self.series.len() > 1 => (BAR * series as f64, BAR),
            _ => (0.0, LONE_BAR),
        };
        format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{height}\"><title>{title}</title></rect>",
            svg_percent(left),
            svg_number(top + GAP / 2.0 + offset),
            svg_percent(right - left),
        )
    }

    /// Whether numbers stand at the ends of the bars: they do for a single series.
    fn is_numbered(&self) -> bool {
        self.marks == RowMarks::Bars && self.series.len() == 1
    }

    fn numbers(&self, x: FigureScale) -> String {
        let mut text = String::new();
        for row in 0..self.names.len() {
            let (from, to) = self.span(0, row);
            let at = x.share_of(from.max(to));
            let middle = svg_number(self.pitch() * (row as f64 + 0.5));
            let is_within = (x.share_of(to) - x.share_of(from)).abs() >= ROOMY;
            let (class, offset) = if is_within { (" class=\"end\"", -6) } else { ("", 6) };
            let at = svg_percent(at);
            let word = format!("{:.1}{}", to - from, self.sign);
            let _ = write!(
                text,
                "<text{class} x=\"{at}\" dx=\"{offset}\" y=\"{middle}\" dy=\".35em\">{word}</text>"
            );
        }
        text
    }

    fn value_text(&self, value: f64) -> String {
        exact_number(value) + self.sign
    }
}

fn finite_value(series: &RowSeries, row: usize) -> f64 {
    series.values.get(row).copied().filter(|value| value.is_finite()).unwrap_or(0.0)
}
