//! A throughput curve as a picture: what is drawn, and on which axes.

use infill_advisor::SizeEstimate;
use infill_api::{CurveRow, ProfileView};
use infill_model::{CurvePoint, ProfileKey, SizePoint};

/// How far above the largest rate the ideal line and the intervals are followed: further up they would press
/// the curve flat.
const HEADROOM: f64 = 1.25;

/// Ticks that an axis has, about.
const TICKS: f64 = 8.0;

/// Most ticks, whatever the numbers are.
const MOST_TICKS: f64 = 100.0;

/// Steps of an axis of rates, within a power of ten.
const ROUND_STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// What is drawn. The sizes of each list ascend.
#[derive(Clone, Debug, Default)]
pub struct CurveFigure {
    /// What it is of.
    pub title: String,
    /// Measured sizes with their intervals.
    pub measured: Vec<CurveRow>,
    /// The curve that follows from them.
    pub curve: Vec<CurveRow>,
    /// The true rates, where they are known.
    pub truth: Vec<CurvePoint>,
    /// Where a job is that runs.
    pub now: Option<CurrentPoint>,
}

/// At how many nodes a job is, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurrentPoint {
    /// Nodes.
    pub nodes: u32,
    /// Samples a second.
    pub rate: f64,
}

impl From<&ProfileView> for CurveFigure {
    fn from(view: &ProfileView) -> CurveFigure {
        CurveFigure {
            title: profile_title(&view.profile.key),
            measured: view
                .profile
                .points
                .iter()
                .map(|p: &SizePoint| {
                    let (low, high) = SizeEstimate { rate: p.rate, error: p.error }.interval_90();
                    CurveRow { nodes: p.nodes, rate: p.rate, low, high }
                })
                .collect(),
            curve: view.curve.clone(),
            ..CurveFigure::default()
        }
    }
}

/// Which profile it is, in a line.
pub fn profile_title(key: &ProfileKey) -> String {
    let plan =
        if key.exec_plan.0 == "default" { String::new() } else { format!(", plan {}", key.exec_plan.0) };
    replace_control_chars(&format!("{} of {} on {}{plan}", key.name, key.user, key.node_type))
}

/// Control characters in a name must reach neither the terminal nor a file.
pub fn replace_control_chars(text: &str) -> String {
    text.replace(char::is_control, "?")
}

impl CurveFigure {
    /// Rate of one node if the job scaled in proportion from its smallest measured size.
    pub fn ideal_rate(&self) -> Option<f64> {
        self.measured.first().map(|p| p.rate / f64::from(p.nodes.max(1)))
    }

    /// The axes of nodes and of rates; `None` when there is nothing to draw.
    pub fn axes(&self) -> Option<(ValueAxis, ValueAxis)> {
        let rows = || self.measured.iter().chain(&self.curve);
        let sizes = rows().map(|r| r.nodes).chain(self.truth.iter().map(|p| p.nodes));
        let sizes = sizes.chain(self.now.map(|now| now.nodes));
        let rates = rows().map(|r| r.rate).chain(self.truth.iter().map(|p| p.rate));
        let rates = rates.chain(self.now.map(|now| now.rate));
        let nodes = f64::from(sizes.max()?);
        let rate = rates.fold(0.0, f64::max);
        let above = rows().map(|r| r.high).chain(self.ideal_rate().map(|i| i * nodes)).fold(rate, f64::max);
        let top = above.min(rate * HEADROOM);
        (top.is_normal() && top > 0.0).then(|| (ValueAxis::for_nodes(nodes), ValueAxis::for_rates(top)))
    }

    /// The curve at any size within it, interpolated: low, rate, high.
    pub fn interpolate_at(&self, nodes: f64) -> Option<(f64, f64, f64)> {
        let w = self
            .curve
            .windows(2)
            .find(|w: &&[CurveRow]| (f64::from(w[0].nodes)..=f64::from(w[1].nodes)).contains(&nodes))?;
        let (from, to) = (f64::from(w[0].nodes), f64::from(w[1].nodes));
        let share = if to > from { (nodes - from) / (to - from) } else { 0.0 };
        let between = |a: f64, b: f64| a + share * (b - a);
        Some((between(w[0].low, w[1].low), between(w[0].rate, w[1].rate), between(w[0].high, w[1].high)))
    }
}

/// An axis from 0 on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueAxis {
    /// Its end, a multiple of the step.
    pub max: f64,
    /// Distance of its ticks.
    pub step: f64,
}

impl ValueAxis {
    /// Steps that are powers of two, as numbers of nodes usually are.
    pub(crate) fn for_nodes(largest: f64) -> Self {
        ValueAxis::with_step(largest, (largest / TICKS).log2().ceil().max(0.0).exp2())
    }

    /// Steps that are round numbers.
    pub(crate) fn for_rates(largest: f64) -> Self {
        let rough = largest / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let round = ROUND_STEPS.into_iter().find(|s| s * power >= rough).unwrap_or(10.0);
        ValueAxis::with_step(largest, round * power)
    }

    fn with_step(largest: f64, step: f64) -> Self {
        ValueAxis { max: (largest / step).ceil() * step, step }
    }

    /// From 0 to its end.
    pub fn tick_values(self) -> impl Iterator<Item = f64> {
        // Rounded: `ceil` in `to` made the end a multiple of the step.
        let last = (self.max / self.step).round().min(MOST_TICKS) as u32;
        (0..=last).map(move |i| f64::from(i) * self.step)
    }
}
