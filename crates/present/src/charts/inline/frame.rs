//! What figures within a page have in common: the box with its axes.

use std::fmt::Write;

use super::FigureScale;
use crate::charts::markup;

/// Pixels at the right edge, for half of the last word below the axis.
const RIGHT: u32 = 16;

/// Width of a letter as a share of its height, about.
const LETTER: f64 = 0.58;

/// Size of the words beside rows, pixels.
const LARGE: u32 = 13;
const SMALL: u32 = 11;

/// Lower than this, rows have small words.
const LOW_ROW: f64 = 18.0;

/// A box that is as wide as the page lets it be and so many pixels high, with the words around it.
pub(crate) struct FigureFrame<'a> {
    /// What it shows, for those who do not see it.
    pub title: &'a str,
    /// Pixels.
    pub height: f64,
    /// From left to right.
    pub x: FigureScale,
    /// What that is.
    pub x_title: &'a str,
    /// Words on the left.
    pub left: Vec<SideLabel>,
    /// What they are.
    pub y_title: &'a str,
    /// Pixels between them.
    pub distance: f64,
    /// Whether a line goes from each across the box.
    pub is_ruled: bool,
}

/// A word on the left.
pub(crate) struct SideLabel {
    /// Pixels from the top.
    pub at: f64,
    /// As it stands outside: [`FigureFrame`] shortens and escapes it.
    pub word: String,
}

impl FigureFrame<'_> {
    /// As SVG. `body` is what the box holds, as SVG: places from left to right are percentages, those from
    /// top to bottom pixels.
    pub fn to_svg(&self, body: &str) -> String {
        let size = if self.distance < LOW_ROW { SMALL } else { LARGE };
        let words: Vec<String> = self.left.iter().map(|beside| markup::shorten_label(&beside.word)).collect();
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
        for beside in self.left.iter().filter(|_| self.is_ruled) {
            let at = svg_number(beside.at);
            let _ = write!(svg, "<line x2=\"100%\" y1=\"{at}\" y2=\"{at}\"/>");
        }
        let _ = write!(svg, "</g>\n{body}\n<g class=\"x\">");
        let below = svg_number(self.height + 18.0);
        for (at, word) in &ticks {
            let _ = write!(svg, "<text x=\"{at}\" y=\"{below}\">{word}</text>");
        }
        let _ = write!(svg, "</g>\n<g class=\"y\" style=\"font-size:{size}px\">");
        for (beside, word) in self.left.iter().zip(&words) {
            let at = svg_number(beside.at);
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

/// A share as SVG writes it: `12.5%`.
pub fn svg_percent(share: f64) -> String {
    format!("{}%", svg_number(100.0 * share))
}

/// With two decimals at most.
pub(crate) fn svg_number(x: f64) -> String {
    let text = format!("{x:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}
