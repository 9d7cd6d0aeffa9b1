//! The data and the axes of a figure of a throughput curve.

use infill_advisor::SizeEstimate;
use infill_api::{CurveRow, ProfileView};
use infill_model::{CurvePoint, ProfileKey};

/// How far above the largest rate, as a factor, the ideal line and the intervals are drawn. A higher axis
/// would flatten the curve.
const HEADROOM: f64 = 1.25;

/// The approximate number of ticks of an axis.
const TICKS: f64 = 8.0;

/// The largest number of ticks of an axis.
const MOST_TICKS: f64 = 100.0;

/// Possible steps of an axis of rates, within a power of ten.
const ROUND_STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// The contents of a figure. The sizes of each list ascend.
#[derive(Clone, Debug, Default)]
pub struct CurveFigure {
    /// The title, usually from [`profile_title`].
    pub title: String,
    /// Measured sizes with their 90 % intervals.
    pub measured: Vec<CurveRow>,
    /// The curve fitted to them, with its 90 % intervals.
    pub curve: Vec<CurveRow>,
    /// The true rates; empty unless a simulation knows them.
    pub truth: Vec<CurvePoint>,
    /// The present point of a running job. `None` draws none.
    pub now: Option<CurrentPoint>,
}

/// The number of nodes and the rate that a running job has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurrentPoint {
    /// The number of nodes.
    pub nodes: u32,
    /// The rate, in samples a second.
    pub rate: f64,
}

/// The two axes of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveAxes {
    /// The horizontal axis: the number of nodes.
    pub nodes: ValueAxis,
    /// The vertical axis: samples a second.
    pub rates: ValueAxis,
}

impl From<&ProfileView> for CurveFigure {
    fn from(view: &ProfileView) -> CurveFigure {
        CurveFigure {
            title: profile_title(&view.profile.key),
            measured: view
                .profile
                .points
                .iter()
                .map(|p| {
                    let (low, high) = SizeEstimate { rate: p.rate, error: p.error }.interval_90();
                    CurveRow { nodes: p.nodes, rate: p.rate, low, high }
                })
                .collect(),
            curve: view.curve.clone(),
            ..CurveFigure::default()
        }
    }
}

/// The profile's name, user, node type and execution plan in a line.
pub fn profile_title(key: &ProfileKey) -> String {
    let plan =
        if key.exec_plan.0 == "default" { String::new() } else { format!(", plan {}", key.exec_plan.0) };
    replace_control_chars(&format!("{} of {} on {}{plan}", key.name, key.user, key.node_type))
}

/// Replaces control characters by `?`. Those in a name must reach neither the terminal nor a file.
pub fn replace_control_chars(text: &str) -> String {
    text.replace(char::is_control, "?")
}

impl CurveFigure {
    /// The rate of one node if the job scaled in proportion from its smallest measured size. `None` without
    /// measurements.
    pub fn ideal_rate(&self) -> Option<f64> {
        self.measured.first().map(|p| p.rate / f64::from(p.nodes.max(1)))
    }

    /// The axes that hold all points. `None` if there is nothing to draw.
    pub fn axes(&self) -> Option<CurveAxes> {
        let rows: Vec<&CurveRow> = self.measured.iter().chain(&self.curve).collect();
        let truth_and_now = self.truth.iter().map(|point| (point.nodes, point.rate));
        let truth_and_now = truth_and_now.chain(self.now.map(|now| (now.nodes, now.rate)));
        let points: Vec<(u32, f64)> =
            rows.iter().map(|row| (row.nodes, row.rate)).chain(truth_and_now).collect();
        let max_nodes = f64::from(points.iter().map(|(nodes, _)| *nodes).max()?);
        let max_rate = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let ideal = self.ideal_rate().map(|rate| rate * max_nodes);
        let highest = rows.iter().map(|row| row.high).chain(ideal).fold(max_rate, f64::max);
        let top = highest.min(max_rate * HEADROOM);
        if !top.is_normal() || top <= 0.0 {
            return None;
        }
        Some(CurveAxes { nodes: ValueAxis::for_nodes(max_nodes), rates: ValueAxis::for_rates(top) })
    }

    /// The curve at any size within it, interpolated between its points: low, rate, high. `None` outside.
    pub fn interpolate_at(&self, nodes: f64) -> Option<(f64, f64, f64)> {
        let around = self
            .curve
            .windows(2)
            .find(|w| (f64::from(w[0].nodes)..=f64::from(w[1].nodes)).contains(&nodes))?;
        let [left, right] = around else { return None };
        let from = f64::from(left.nodes);
        let to = f64::from(right.nodes);
        let share = if to > from { (nodes - from) / (to - from) } else { 0.0 };
        Some((
            interpolate(left.low, right.low, share),
            interpolate(left.rate, right.rate, share),
            interpolate(left.high, right.high, share),
        ))
    }
}

fn interpolate(from: f64, to: f64, share: f64) -> f64 {
    from + share * (to - from)
}

/// An axis that starts at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueAxis {
    /// Its end, a multiple of the step.
    pub max: f64,
    /// The distance between its ticks.
    pub step: f64,
}

impl ValueAxis {
    /// An axis whose step is a power of two, as numbers of nodes usually are.
    pub(crate) fn for_nodes(largest: f64) -> Self {
        ValueAxis::with_step(largest, (largest / TICKS).log2().ceil().max(0.0).exp2())
    }

    /// An axis whose step is a round number.
    pub(crate) fn for_rates(largest: f64) -> Self {
        let rough_step = largest / TICKS;
        let power = 10_f64.powf(rough_step.log10().floor());
        let round = ROUND_STEPS.into_iter().find(|step| step * power >= rough_step).unwrap_or(10.0);
        ValueAxis::with_step(largest, round * power)
    }

    fn with_step(largest: f64, step: f64) -> Self {
        ValueAxis { max: (largest / step).ceil() * step, step }
    }

    /// The values of its ticks, from 0 to its end.
    pub fn tick_values(self) -> impl Iterator<Item = f64> {
        // `with_step` made the end a multiple of the step, up to rounding errors.
        let last = (self.max / self.step).round().min(MOST_TICKS) as u32;
        (0..=last).map(move |i| f64::from(i) * self.step)
    }
}
