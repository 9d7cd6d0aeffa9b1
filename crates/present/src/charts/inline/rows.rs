//! A row for each of several things, with a mark for each of its values: bars or dots.

use std::fmt::Write;

use super::frame::{FigureFrame, SideLabel, svg_number, svg_percent};
use super::legend::{self, LegendKey};
use super::{FigureScale, NumberTable, SeriesColour, exact_number};
use crate::charts::markup::escape_html;

/// Pixels between the bars of one row and the next.
const GAP: f64 = 10.0;

/// Pixels of a row's bars: of one, and of each of several.
const LONE_BAR: f64 = 24.0;
const BAR: f64 = 11.0;

/// Pixels of a row of dots, and of half a dot.
const DOT_ROW: f64 = 14.0;
const DOT: f64 = 4.5;

/// From this share of the width on, a bar has room for its own number.
const ROOMY: f64 = 0.3;

/// How values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowMarks {
    /// As a bar each, one below the other.
    Bars,
    /// As one bar, each value where the one before ends; those below 0 lie on the left of 0.
    Stacked,
    /// As a dot each, all in one line.
    Dots,
}

/// What has a value in each row.
#[derive(Clone, Debug)]
pub struct RowSeries {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: SeriesColour,
    /// One for each row.
    pub values: Vec<f64>,
}

/// See the module's text. All texts are as they stand outside.
#[derive(Clone, Debug)]
pub struct RowFigure<'a> {
    /// Tells the page's figures apart: a word.
    pub id: &'a str,
    /// What is shown.
    pub title: &'a str,
    /// What a row is.
    pub row: &'a str,
    /// What the values are, with their unit.
    pub values: &'a str,
    /// What stands behind a value: ` %`, or nothing.
    pub sign: &'a str,
    /// Of the rows, the first on top.
    pub names: Vec<String>,
    /// What has a value in each.
    pub series: Vec<RowSeries>,
    /// How these are shown.
    pub marks: RowMarks,
}

impl RowFigure<'_> {
    /// Legend and drawing. Dots that cover each other can be switched off; a lone series needs no legend.
    pub fn to_html(&self) -> String {
        let keys =
            || self.series.iter().map(|s| LegendKey { name: &s.name, colour: s.colour, is_shown: true });
        let legend = match self.marks {
            RowMarks::Dots => legend::switch_legend(self.id, keys()),
            _ if self.series.len() > 1 => legend::fixed_legend(keys()),
            _ => String::new(),
        };
        legend + &self.svg()
    }

    /// The same as numbers: a row a row, a column a series.
    pub fn to_table(&self) -> NumberTable {
        let heads = std::iter::once(self.row.to_owned()).chain(self.series.iter().map(|s| s.name.clone()));
        NumberTable {
            heads: heads.collect(),
            rows: self
                .names
                .iter()
                .enumerate()
                .map(|(i, name): (usize, &String)| {
                    let values = self.series.iter().map(|s| self.value_text(finite_value(s, i)));
                    std::iter::once(name.clone()).chain(values).collect()
                })
                .collect(),
        }
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
                .map(|(i, name): (usize, &String)| SideLabel {
                    at: pitch * (i as f64 + 0.5),
                    word: name.clone(),
                })
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
        FigureScale::around_values(
            (0..self.series.len())
                .flat_map(|series: usize| (0..self.names.len()).map(move |row| self.span(series, row)))
                .flat_map(|(from, to)| [from, to]),
        )
    }

    /// From where to where a value reaches.
    fn span(&self, series: usize, row: usize) -> (f64, f64) {
        let own = self.series.get(series).map_or(0.0, |s| finite_value(s, row));
        let before = self.series.iter().take(series).map(|s| finite_value(s, row));
        let from: f64 = match self.marks {
            RowMarks::Stacked => before.filter(|other| (*other < 0.0) == (own < 0.0)).sum(),
            RowMarks::Bars | RowMarks::Dots => 0.0,
        };
        (from, from + own)
    }

    fn mark(&self, x: FigureScale, series: usize, row: usize) -> String {
        let (from, to) = self.span(series, row);
        let (Some(of), Some(name)) = (self.series.get(series), self.names.get(row)) else {
            return String::new();
        };
        let of_what = if of.name.is_empty() { String::new() } else { format!(", {}", of.name) };
        let title = escape_html(&format!("{name}{of_what}: {}", self.value_text(to - from)));
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

    /// A lone series has its numbers at the ends of its bars.
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
            let (class, beside) = if is_within { (" class=\"end\"", -6) } else { ("", 6) };
            let at = svg_percent(at);
            let word = format!("{:.1}{}", to - from, self.sign);
            let _ = write!(
                text,
                "<text{class} x=\"{at}\" dx=\"{beside}\" y=\"{middle}\" dy=\".35em\">{word}</text>"
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
