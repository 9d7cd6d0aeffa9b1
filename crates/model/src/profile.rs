//! How a job scales: throughput by number of nodes, and what a rescale costs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{GenerationStop, NodeType, UnixTime};
use crate::words;

/// The name of an execution plan (how the job parallelises); `default` unless the job declares several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecPlan(pub String);

impl Default for ExecPlan {
    fn default() -> Self {
        ExecPlan("default".to_owned())
    }
}

/// How the curve of a job of which nothing is known is written.
const LINEAR: &str = "linear";

/// Throughput at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Number of nodes.
    pub nodes: u32,
    /// Samples a second (any unit that is the same at all sizes).
    pub rate: f64,
}

/// Throughput as a function of the number of nodes: known points, sorted by size, at least one.
///
/// Between points the rate is interpolated linearly. Outside it is extrapolated in proportion to the nodes
/// below the first point, and flat above the last: more is never promised than was seen.
///
/// As text and as JSON: `linear`, or `1:10,2:19,4:35`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct ScalingCurve {
    points: Vec<CurvePoint>,
    /// `true` for the default curve of a job of which nothing is known: rate = nodes, at any size.
    linear: bool,
}

/// Why a list of points is no curve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CurveError {
    /// No point at all.
    #[error("a curve needs at least one point")]
    Empty,
    /// A size of 0, or a rate that is not a positive finite number.
    #[error("point {nodes}:{rate} is not a positive size with a positive finite rate")]
    BadPoint {
        /// The size.
        nodes: u32,
        /// The rate.
        rate: f64,
    },
    /// The same size twice.
    #[error("size {0} is given twice")]
    Duplicate(u32),
    /// Not `nodes:rate`.
    #[error("expected NODES:RATE, found {0:?}")]
    Syntax(String),
}

impl ScalingCurve {
    /// The curve of a job of which nothing is known: one unit a second and node.
    pub fn linear() -> Self {
        ScalingCurve { points: vec![CurvePoint { nodes: 1, rate: 1.0 }], linear: true }
    }

    /// A curve through `points`, in any order.
    pub fn new(mut points: Vec<CurvePoint>) -> Result<Self, CurveError> {
        if points.is_empty() {
            return Err(CurveError::Empty);
        }
        points.sort_by_key(|p| p.nodes);
        for p in &points {
            if p.nodes == 0 || !p.rate.is_finite() || p.rate <= 0.0 {
                return Err(CurveError::BadPoint { nodes: p.nodes, rate: p.rate });
            }
        }
        if let Some(w) = points.windows(2).find(|w| w[0].nodes == w[1].nodes) {
            return Err(CurveError::Duplicate(w[0].nodes));
        }
        Ok(ScalingCurve { points, linear: false })
    }

    /// Parses `1:10,2:19,4:35` (nodes:samples a second), or `linear`.
    pub fn parse(text: &str) -> Result<Self, CurveError> {
        if text.trim() == LINEAR {
            return Ok(ScalingCurve::linear());
        }
        let point = |item: &str| -> Option<CurvePoint> {
            let (n, r) = item.trim().split_once(':')?;
            Some(CurvePoint { nodes: n.trim().parse().ok()?, rate: r.trim().parse().ok()? })
        };
        let points = text
            .split(',')
            .map(|item| point(item).ok_or_else(|| CurveError::Syntax(item.trim().to_owned())))
            .collect::<Result<Vec<_>, _>>()?;
        ScalingCurve::new(points)
    }

    /// The known points, sorted by size.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// Whether nothing is known and the rate is simply the number of nodes.
    pub fn is_default(&self) -> bool {
        self.linear
    }

    /// Samples a second on `nodes` nodes; 0 on no node.
    pub fn rate(&self, nodes: u32) -> f64 {
        if nodes == 0 {
            return 0.0;
        }
        if self.linear {
            return f64::from(nodes);
        }
        let i = self.points.partition_point(|p| p.nodes < nodes);
        match (i.checked_sub(1).map(|k| self.points[k]), self.points.get(i)) {
            (_, Some(p)) if p.nodes == nodes => p.rate,
            (None, Some(p)) => p.rate * f64::from(nodes) / f64::from(p.nodes),
            (Some(a), Some(b)) => {
                let t = f64::from(nodes - a.nodes) / f64::from(b.nodes - a.nodes);
                a.rate + t * (b.rate - a.rate)
            }
            (Some(a), None) => a.rate,
            (None, None) => 0.0,
        }
    }
}

impl TryFrom<String> for ScalingCurve {
    type Error = CurveError;
    fn try_from(text: String) -> Result<Self, CurveError> {
        ScalingCurve::parse(&text)
    }
}

impl From<ScalingCurve> for String {
    fn from(curve: ScalingCurve) -> String {
        curve.to_string()
    }
}

impl fmt::Display for ScalingCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.linear {
            return f.write_str(LINEAR);
        }
        let points: Vec<String> = self.points.iter().map(|p| format!("{}:{}", p.nodes, p.rate)).collect();
        f.write_str(&points.join(","))
    }
}

/// Seconds without useful work at each kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RescaleCosts {
    /// Growing.
    pub up_secs: f64,
    /// Shrinking.
    pub down_secs: f64,
    /// Starting from nothing, after a park or for the first time.
    pub start_secs: f64,
}

/// What [`RescaleCosts`] are for a command that stays alive: seconds in which those stand still that were
/// there before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveCosts {
    /// Growing.
    pub up_secs: f64,
    /// Shrinking.
    pub down_secs: f64,
}

impl RescaleCosts {
    /// What a change from `from` to `to` nodes costs, seconds.
    pub fn cost_between(&self, from: u32, to: u32) -> f64 {
        match (from, to) {
            (0, _) => self.start_secs,
            _ if to > from => self.up_secs,
            _ if to < from => self.down_secs,
            _ => 0.0,
        }
    }
}

words! {
    /// How a job changes its size while it runs.
    #[derive(Default)]
    pub enum RescaleMode {
        /// Its command saves, stops everywhere, and starts again.
        #[default]
        Restart = "restart",
        /// Its command stays alive: only who comes starts, and only who goes stops.
        Live = "live",
    }
}

words! {
    /// How the work of one step grows with the number of nodes.
    #[derive(Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum BatchMode {
        /// Not said: recognised from samples and steps, if it can be.
        #[default]
        Auto = "auto",
        /// Each node works on a batch of its own: a step has more samples on more nodes (weak scaling).
        PerNode = "per-node",
        /// The nodes share one batch: a step has the same samples on any number of nodes (strong scaling).
        Global = "global",
    }
}

/// Whom and what a profile describes: its signature.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProfileKey {
    /// Owner of the jobs.
    pub user: String,
    /// What the user calls it, else the hash of the normalised command.
    pub name: String,
    /// Node type.
    pub node_type: NodeType,
    /// Execution plan.
    pub exec_plan: ExecPlan,
    /// Batch mode as declared.
    pub batch: BatchMode,
}

impl ProfileKey {
    /// Names this profile, in each batch mode.
    pub fn to_filter(&self) -> ProfileFilter {
        let ProfileKey { user, name, node_type, exec_plan, batch: _ } = self.clone();
        let user = Some(user);
        let name = Some(name);
        ProfileFilter { user, name, node_type: Some(node_type), exec_plan: Some(exec_plan) }
    }
}

/// Which profiles: all that agree with every field that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileFilter {
    /// Owner.
    pub user: Option<String>,
    /// Name, whole.
    pub name: Option<String>,
    /// Node type.
    pub node_type: Option<NodeType>,
    /// Execution plan.
    pub exec_plan: Option<ExecPlan>,
}

impl ProfileFilter {
    /// Whether a profile agrees with every field that is given.
    pub fn matches_key(&self, key: &ProfileKey) -> bool {
        self.user.as_ref().is_none_or(|u| *u == key.user)
            && self.name.as_ref().is_none_or(|n| *n == key.name)
            && self.node_type.as_ref().is_none_or(|t| *t == key.node_type)
            && self.exec_plan.as_ref().is_none_or(|p| *p == key.exec_plan)
    }
}

/// What was measured at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizePoint {
    /// Number of nodes.
    pub nodes: u32,
    /// Samples a second, of all nodes together.
    pub rate: f64,
    /// Relative standard error of the rate.
    pub error: f64,
    /// Seconds of steady work that it rests on, as far as they still count.
    pub secs: f64,
    /// Samples of one step, where the job counts steps.
    #[serde(default)]
    pub step_samples: Option<f64>,
    /// On how many hosts they were on average, where parts of nodes are lent and several may be on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<f64>,
    /// Where in the network they were.
    #[serde(default, skip_serializing_if = "Spread::is_near")]
    pub spread: Spread,
    /// The same of hosts, where parts of nodes are lent: of the rate on one switch that on one host, and on
    /// several.
    #[serde(default, skip_serializing_if = "Spread::is_near")]
    pub over_hosts: Spread,
    /// Last measured.
    pub at: UnixTime,
}

/// On how many leaf switches the nodes were on which a rate was measured, where Slurm knows of switches;
/// or on how many hosts, where parts of nodes are lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// On one, or nobody knows.
    #[default]
    Near,
    /// On several.
    Across,
    /// The rate is that on one; on several it was measured, too.
    Both {
        /// Samples a second there.
        rate: f64,
        /// Relative standard error of it.
        error: f64,
    },
}

impl Spread {
    /// Whether it was measured on one switch, or host, only.
    pub fn is_near(&self) -> bool {
        *self == Spread::Near
    }
}

/// Mean seconds without useful work at one kind of change, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeCost {
    /// From the rescale signal until the checkpoint is saved; 0 where the command does not say when that is.
    pub checkpoint_secs: f64,
    /// From there until all workers have exited.
    pub exit_secs: f64,
    /// From there until the first step of the next generation, less what that step takes.
    pub start_secs: f64,
    /// Lost by the first steps being slower than the later ones.
    pub warmup_secs: f64,
    /// Changes that the means are of; 0 for never measured.
    pub count: u32,
}

impl ChangeCost {
    /// All parts, seconds.
    pub fn total_secs(&self) -> f64 {
        self.checkpoint_secs + self.exit_secs + self.start_secs + self.warmup_secs
    }
}

/// Costs by kind of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCosts {
    /// Growing.
    pub up: ChangeCost,
    /// Shrinking.
    pub down: ChangeCost,
    /// First start, and start after a park.
    pub start: ChangeCost,
    /// Growing alive: how long those stood still that were there before. What warming up takes the newcomers
    /// is no part of it.
    #[serde(default)]
    pub live_up: ChangeCost,
    /// Shrinking alive: the same for those that stay.
    #[serde(default)]
    pub live_down: ChangeCost,
}

/// A change of size that a command lived through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveChange {
    /// Nodes before.
    pub from: u32,
    /// Nodes since.
    pub to: u32,
    /// Longest that one of those that were there before stood still, seconds.
    pub secs: f64,
}

/// What is known of a recurring job on one node type with one execution plan. The curve is not kept: it
/// follows from the points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Whom and what it describes.
    #[serde(flatten)]
    pub key: ProfileKey,
    /// What was measured, by size.
    pub points: Vec<SizePoint>,
    /// Rescale costs.
    pub costs: MeasuredCosts,
    /// Its last stops, oldest first.
    #[serde(default)]
    pub stops: Vec<GenerationStop>,
    /// Sizes at which the program ran out of memory, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<u32>,
    /// Sizes that were tried only to measure them.
    pub probes: u32,
    /// Seconds that these took.
    pub probe_secs: f64,
    /// Jobs that it was learned from.
    pub jobs: u32,
    /// Slurm's name of the last of them: a job that waits has told nothing else yet.
    #[serde(default)]
    pub job_name: String,
    /// Last change.
    pub updated_at: UnixTime,
}

impl Profile {
    /// Of which nothing is known yet.
    pub fn new(key: ProfileKey) -> Self {
        let points = Vec::new();
        let costs = MeasuredCosts::default();
        Profile {
            key,
            points,
            costs,
            stops: Vec::new(),
            unfit: Vec::new(),
            probes: 0,
            probe_secs: 0.0,
            jobs: 0,
            job_name: String::new(),
            updated_at: UnixTime::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_text_and_only_sound_ones_are_taken() {
        for text in ["linear", "1:10,2:19.5,4:35"] {
            let curve = ScalingCurve::parse(text).unwrap();
            assert_eq!(serde_json::to_string(&curve).unwrap(), format!("{text:?}"));
            assert_eq!(serde_json::from_str::<ScalingCurve>(&format!("{text:?}")).unwrap(), curve);
        }
        for text in ["", "1", "0:1", "1:-1", "1:0", "1:nan", "1:inf", "1:1,1:2", "1:1,,2:2", "99999999999:1"]
        {
            assert!(ScalingCurve::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_between_below_and_above_the_points() {
        let curve = ScalingCurve::parse("2:10,4:16").unwrap();
        let rates: Vec<f64> = [0, 1, 2, 3, 4, 9].iter().map(|n| curve.rate(*n)).collect();
        assert_eq!(rates, [0.0, 5.0, 10.0, 13.0, 16.0, 16.0]);
        assert_eq!(ScalingCurve::linear().rate(7), 7.0);
    }
}
