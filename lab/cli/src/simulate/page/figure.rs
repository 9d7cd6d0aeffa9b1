//! What all figures have in common: colours, axes that fit a phone, and the page's part that holds one.

use std::fmt::Write;

use plotly::common::{Anchor, Font, Orientation, Title};
use plotly::configuration::{DisplayModeBar, ModeBarButtonName};
use plotly::layout::{Axis, Legend, Margin, ModeBar, TraceOrder};
use plotly::{Configuration, Layout, Trace, Traces};
use serde::Serialize;

use infill_present::escape;

/// Colours of policies and jobs, told apart by the colour-blind too (Okabe and Ito; Tol).
pub const COLOURS: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7b6ccf", "#44aa99",
    "#b0447a", "#999933", "#ee6677",
];

/// What is idle, or unused.
pub const GREY: &str = "#a6a6a6";

/// Lines of an axis, by day and by night.
const FAINT: &str = "rgba(128,128,128,0.28)";

/// Without colour.
const CLEAR: &str = "rgba(0,0,0,0)";

/// A figure.
pub struct Figure {
    /// Its element.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// How to read it; text, not HTML.
    pub caption: String,
    /// What is drawn.
    pub traces: Traces,
    /// How.
    pub layout: Layout,
}

#[derive(Serialize)]
struct Data<'a> {
    data: &'a Traces,
    layout: &'a Layout,
    config: Configuration,
}

impl Figure {
    /// The part of the page that holds it.
    pub fn html(&self) -> serde_json::Result<String> {
        let useless =
            [ModeBarButtonName::Select2d, ModeBarButtonName::Lasso2d, ModeBarButtonName::AutoScale2d];
        let config = Configuration::new()
            .responsive(true)
            .display_logo(false)
            .display_mode_bar(DisplayModeBar::Hover)
            .mode_bar_buttons_to_remove(useless.to_vec());
        let data = escape::json(&Data { data: &self.traces, layout: &self.layout, config })?;
        let (id, title, caption) = (self.id, self.title, escape::html(&self.caption));
        let mut text = String::with_capacity(data.len() + 512);
        let _ = write!(
            text,
            "<figure>\n<h2>{title}</h2>\n<div class=\"plot\" id=\"{id}\"></div>\n\
             <figcaption>{caption}</figcaption>\n\
             <script type=\"application/json\" id=\"{id}-data\">{data}</script>\n</figure>\n"
        );
        Ok(text)
    }
}

/// Traces in their order.
pub fn traces(all: impl IntoIterator<Item = Box<dyn Trace>>) -> Traces {
    let mut traces = Traces::new();
    all.into_iter().for_each(|trace| traces.push(trace));
    traces
}

/// A layout so many pixels high, with its legend above.
pub fn layout(height: usize, x: Axis, y: Axis) -> Layout {
    let legend = Legend::new()
        .orientation(Orientation::Horizontal)
        .x(0.0)
        .x_anchor(Anchor::Left)
        .y(1.02)
        .y_anchor(Anchor::Bottom)
        .trace_order(TraceOrder::Normal);
    let buttons = ModeBar::new().background_color(CLEAR).color(GREY).active_color(COLOURS[0]);
    Layout::new()
        .auto_size(true)
        .height(height)
        .font(Font::new().size(13).family("system-ui, sans-serif"))
        .paper_background_color(CLEAR)
        .plot_background_color(CLEAR)
        .margin(Margin::new().left(56).right(16).top(16).bottom(48))
        .legend(legend)
        .mode_bar(buttons)
        .x_axis(x)
        .y_axis(y)
}

/// An axis with its title, which names the unit.
pub fn axis(title: &str) -> Axis {
    let axis = Axis::new().auto_margin(true).grid_color(FAINT).zero_line_color(FAINT).line_color(FAINT);
    if title.is_empty() { axis } else { axis.title(Title::with_text(title)) }
}

/// The colour of the i-th policy or job.
pub fn colour(i: usize) -> &'static str {
    COLOURS[i % COLOURS.len()]
}

/// With four significant digits: what is drawn has no more, and the page is smaller.
pub fn rounded(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return 0.0;
    }
    let unit = 10f64.powi(3 - x.abs().log10().floor() as i32);
    (x * unit).round() / unit
}
