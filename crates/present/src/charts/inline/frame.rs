//! The frame that all figures within a page share: the box with its axes.

use std::fmt::Write;

use super::FigureScale;
use crate::charts::markup;

/// Pixels at the right edge, for half of the last label below the axis.
const RIGHT: u32 = 16;

/// The approximate width of a letter as a share of its height.
const LETTER: f64 = 0.58;

/// Font sizes of the labels on the left, in pixels.
const LARGE: u32 = 13;
const SMALL: u32 = 11;

/// Rows lower than this many pixels have small labels.
const LOW_ROW: f64 = 18.0;

/// A box as wide as the page allows, with its axes and labels.
pub(crate) struct FigureFrame<'a> {
    /// The title, which screen readers speak.
    pub title: &'a str,
    /// The height of the box, in pixels.
    pub height: f64,
    /// The scale from left to right.
    pub x: FigureScale,
    /// The title of that scale.
    pub x_title: &'a str,
    /// The labels on the left.
    pub left: Vec<SideLabel>,
    /// The title above these labels.
    pub y_title: &'a str,
    /// The distance between these labels, in pixels.
    pub distance: f64,
    /// Whether a line goes from each of them across the box.
    pub is_ruled: bool,
}

/// A label on the left.
pub(crate) struct SideLabel {
    /// Its distance from the top, in pixels.
    pub at: f64,
    /// The raw text: [`FigureFrame`] shortens and escapes it.
    pub word: String,
}

impl FigureFrame<'_> {
    /// The whole figure as SVG. `body` is the SVG inside the box: horizontal positions are percentages,
    /// vertical ones pixels.
    pub fn to_svg(&self, body: &str) -> String {
        let size = if self.distance < LOW_ROW { SMALL } else { LARGE };
        let words: Vec<String> = self.left.iter().map(|label| markup::shorten_label(&label.word)).collect();
        let longest = words.iter().map(|word| word.chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * LETTER * f64::from(size)).ceil() as u32 + 12;
        let mut svg = format!(
            "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" height=\"{}\" \
             style=\"margin-left:{left}px;width:calc(100% - {}px)\">\n<g class=\"rule\">",
            markup::escape_html(self.title),
            svg_number(self.height),
            left + RIGHT,
        );
        let ticks: Vec<(String, String)> = self
            .x
            .labelled_ticks()
            .into_iter()
            .map(|(at, word)| (svg_percent(self.x.share_of(at)), word))
            .collect();
        for (at, _) in &ticks {
            let _ = write!(svg, "<line x1=\"{at}\" x2=\"{at}\" y2=\"100%\"/>");
        }
        if self.is_ruled {
            for label in &self.left {
                let at = svg_number(label.at);
                let _ = write!(svg, "<line x2=\"100%\" y1=\"{at}\" y2=\"{at}\"/>");
            }
        }
        let _ = write!(svg, "</g>\n{body}\n<g class=\"x\">");
        let below = svg_number(self.height + 18.0);
        for (at, word) in &ticks {
            let _ = write!(svg, "<text x=\"{at}\" y=\"{below}\">{word}</text>");
        }
        let _ = write!(svg, "</g>\n<g class=\"y\" style=\"font-size:{size}px\">");
        for (label, word) in self.left.iter().zip(&words) {
            let at = svg_number(label.at);
            let _ =
                write!(svg, "<text x=\"-8\" y=\"{at}\" dy=\".35em\">{}</text>", markup::escape_html(word));
        }
        let x_title = markup::escape_html(self.x_title);
        let y_title = markup::escape_html(self.y_title);
        let _ = write!(
            svg,
            "</g>\n<text class=\"of-x\" x=\"50%\" y=\"{}\">{x_title}</text>\
             <text x=\"-{left}\" y=\"-12\">{y_title}</text>\n</svg>\n",
            svg_number(self.height + 38.0),
        );
        svg
    }
}

/// A share as an SVG percentage: `12.5%`.
pub fn svg_percent(share: f64) -> String {
    format!("{}%", svg_number(100.0 * share))
}

/// A number with at most two decimals.
pub(crate) fn svg_number(x: f64) -> String {
    let text = format!("{x:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}
