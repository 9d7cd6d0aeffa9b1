//! How a job scales: throughput by number of nodes, and the costs of a rescale.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{GenerationStop, NodeType, UnixTime};
use crate::words;

/// The name of an execution plan (how the job parallelises). It is `default` unless the job declares several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecPlan(pub String);

impl Default for ExecPlan {
    fn default() -> Self {
        ExecPlan("default".to_owned())
    }
}

/// The text of [`ScalingCurve::linear`], the placeholder for unknown rates.
const LINEAR: &str = "linear";

/// Throughput at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Number of nodes.
    pub nodes: u32,
    /// Samples a second, or any other unit that is the same at all sizes.
    pub rate: f64,
}

/// Throughput as a function of the number of nodes: points sorted by size, at least one.
///
/// Between points the rate is interpolated linearly. Below the first point it is proportional to the nodes,
/// and above the last point it is constant: it never exceeds the known rates.
///
/// As text and in JSON: `linear`, or `1:10,2:19,4:35`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct ScalingCurve {
    points: Vec<CurvePoint>,
    /// Whether it is the placeholder for unknown rates: rate = nodes, at any size.
    linear: bool,
}

/// The reason why a list of points is not a curve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CurveError {
    /// There is no point.
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
    /// A size occurs twice.
    #[error("size {0} is given twice")]
    Duplicate(u32),
    /// A point does not have the form `nodes:rate`.
    #[error("expected NODES:RATE, found {0:?}")]
    Syntax(String),
}

impl ScalingCurve {
    /// A placeholder where a job declares no rates: one unit a second for each node. The planner uses its own
    /// prior instead.
    pub fn linear() -> Self {
        ScalingCurve { points: vec![CurvePoint { nodes: 1, rate: 1.0 }], linear: true }
    }

    /// A curve through `points`, which may be in any order.
    ///
    /// # Errors
    /// If there is no point, a size occurs twice, or a size or rate is not positive and finite.
    pub fn new(mut points: Vec<CurvePoint>) -> Result<Self, CurveError> {
        if points.is_empty() {
            return Err(CurveError::Empty);
        }
        points.sort_by_key(|point| point.nodes);
        for CurvePoint { nodes, rate } in &points {
            if *nodes == 0 || !rate.is_finite() || *rate <= 0.0 {
                return Err(CurveError::BadPoint { nodes: *nodes, rate: *rate });
            }
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].nodes == pair[1].nodes) {
            return Err(CurveError::Duplicate(pair[0].nodes));
        }
        Ok(ScalingCurve { points, linear: false })
    }

    /// Parses `1:10,2:19,4:35` (nodes:samples a second), or `linear`.
    ///
    /// # Errors
    /// If the text has another form, or its points are not a curve.
    pub fn parse(text: &str) -> Result<Self, CurveError> {
        if text.trim() == LINEAR {
            return Ok(ScalingCurve::linear());
        }
        let points = text
            .split(',')
            .map(|item| parse_point(item).ok_or_else(|| CurveError::Syntax(item.trim().to_owned())))
            .collect::<Result<Vec<_>, _>>()?;
        ScalingCurve::new(points)
    }

    /// The known points, sorted by size.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// Whether it is the placeholder [`ScalingCurve::linear`], which says nothing about the job's rates.
    pub fn is_linear(&self) -> bool {
        self.linear
    }

    /// Samples a second on `nodes` nodes; 0 on no nodes.
    pub fn rate(&self, nodes: u32) -> f64 {
        if nodes == 0 {
            return 0.0;
        }
        if self.linear {
            return f64::from(nodes);
        }
        let index = self.points.partition_point(|point| point.nodes < nodes);
        let below = index.checked_sub(1).map(|index| self.points[index]);
        match (below, self.points.get(index)) {
            (_, Some(point)) if point.nodes == nodes => point.rate,
            (None, Some(first)) => first.rate * f64::from(nodes) / f64::from(first.nodes),
            (Some(below), Some(above)) => {
                let position = f64::from(nodes - below.nodes) / f64::from(above.nodes - below.nodes);
                below.rate + position * (above.rate - below.rate)
            }
            (Some(last), None) => last.rate,
            (None, None) => 0.0,
        }
    }
}

/// Parses `4:35`.
fn parse_point(item: &str) -> Option<CurvePoint> {
    let (nodes, rate) = item.trim().split_once(':')?;
    Some(CurvePoint { nodes: nodes.trim().parse().ok()?, rate: rate.trim().parse().ok()? })
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

/// Seconds without useful work for each kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RescaleCosts {
    /// The job grows.
    pub up_secs: f64,
    /// The job shrinks.
    pub down_secs: f64,
    /// The job starts from nothing: after a park or for the first time.
    pub start_secs: f64,
}

/// The costs of changes of a command that stays alive: seconds in which the workers that continue make no
/// steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveCosts {
    /// The job grows.
    pub up_secs: f64,
    /// The job shrinks.
    pub down_secs: f64,
}

impl RescaleCosts {
    /// The cost of a change from `from` to `to` nodes, in seconds.
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
        /// Its command saves, exits on all nodes, and starts again.
        #[default]
        Restart = "restart",
        /// Its command stays alive: only new workers start, and only leaving ones stop.
        Live = "live",
    }
}

words! {
    /// How the work of one step grows with the number of nodes.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum BatchMode {
        /// Not declared. The mode is inferred from samples and steps, if possible.
        #[default]
        Auto = "auto",
        /// Each node has its own batch: on more nodes, a step has more samples (weak scaling).
        PerNode = "per-node",
        /// All nodes share one batch: a step has the same samples on any number of nodes (strong scaling).
        Global = "global",
    }
}

/// The key of a profile: its user, its program and how the program runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfileKey {
    /// The owner of the jobs.
    pub user: String,
    /// The user's name for the program, else the hash of the normalised command.
    pub name: String,
    /// The node type that it ran on.
    pub node_type: NodeType,
    /// The execution plan that it ran with.
    pub exec_plan: ExecPlan,
    /// The declared batch mode.
    pub batch: BatchMode,
}

impl ProfileKey {
    /// A filter for this profile, in every batch mode.
    pub fn to_filter(&self) -> ProfileFilter {
        let ProfileKey { user, name, node_type, exec_plan, batch: _ } = self.clone();
        ProfileFilter {
            user: Some(user),
            name: Some(name),
            node_type: Some(node_type),
            exec_plan: Some(exec_plan),
        }
    }
}

/// A filter for profiles. It matches if each given field is equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProfileFilter {
    /// The owner. Any, if it is left out.
    pub user: Option<String>,
    /// The whole name. Any, if it is left out.
    pub name: Option<String>,
    /// The node type. Any, if it is left out.
    pub node_type: Option<NodeType>,
    /// The execution plan. Any, if it is left out.
    pub exec_plan: Option<ExecPlan>,
}

impl ProfileFilter {
    /// Whether each given field is equal to the key's.
    pub fn matches_key(&self, key: &ProfileKey) -> bool {
        self.user.as_ref().is_none_or(|user| *user == key.user)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
            && self.node_type.as_ref().is_none_or(|node_type| *node_type == key.node_type)
            && self.exec_plan.as_ref().is_none_or(|plan| *plan == key.exec_plan)
    }
}

/// The measurements at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizePoint {
    /// Number of nodes.
    pub nodes: u32,
    /// Samples a second of all nodes together.
    pub rate: f64,
    /// Relative standard error of the rate.
    pub error: f64,
    /// Seconds of steady work behind the rate, as far as they still count.
    pub secs: f64,
    /// Samples per step, if the job counts steps.
    #[serde(default)]
    pub step_samples: Option<f64>,
    /// The mean number of hosts, if parts of nodes are lent and several may be on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<f64>,
    /// The rate's dependence on the number of leaf switches.
    #[serde(default, skip_serializing_if = "Spread::is_near")]
    pub spread: Spread,
    /// The same for hosts, if parts of nodes are lent: the rates on one host and on several, under one
    /// switch.
    #[serde(default, skip_serializing_if = "Spread::is_near")]
    pub over_hosts: Spread,
    /// When the size was last measured.
    pub at: UnixTime,
}

/// Whether a rate was measured on one leaf switch or on several, if Slurm has a topology. Also used for
/// hosts, if parts of nodes are lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// On one, or unknown.
    #[default]
    Near,
    /// On several.
    Across,
    /// On both. The rate of the size is that on one; this is the rate on several.
    Both {
        /// Samples a second on several.
        rate: f64,
        /// Relative standard error of this rate.
        error: f64,
    },
}

impl Spread {
    /// Whether there are only measurements on one switch or host.
    pub fn is_near(&self) -> bool {
        *self == Spread::Near
    }
}

/// Mean seconds without useful work for one kind of change, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeCost {
    /// From the rescale signal until the checkpoint is saved. 0 if the command does not report that.
    pub checkpoint_secs: f64,
    /// From then until all workers have exited.
    pub exit_secs: f64,
    /// From then until the end of the first step of the next generation, less the time of that step.
    pub start_secs: f64,
    /// The time lost because the first steps are slower than later ones.
    pub warmup_secs: f64,
    /// The number of changes in the means; 0 if none was measured.
    pub count: u32,
}

impl ChangeCost {
    /// The sum of all parts, in seconds.
    pub fn total_secs(&self) -> f64 {
        self.checkpoint_secs + self.exit_secs + self.start_secs + self.warmup_secs
    }
}

/// Measured costs by kind of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasuredCosts {
    /// The job grows.
    pub up: ChangeCost,
    /// The job shrinks.
    pub down: ChangeCost,
    /// The job starts, for the first time or after a park.
    pub start: ChangeCost,
    /// The job grows alive: how long the previous workers made no steps. The warm-up of new workers does not
    /// count.
    #[serde(default)]
    pub live_up: ChangeCost,
    /// The job shrinks alive: how long the remaining workers made no steps.
    #[serde(default)]
    pub live_down: ChangeCost,
}

/// A change of size during which the command stayed alive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveChange {
    /// Nodes before.
    pub from: u32,
    /// Nodes after.
    pub to: u32,
    /// The longest time for which a previous worker made no steps, in seconds.
    pub secs: f64,
}

/// The measurements of a recurring job on one node type with one execution plan. The curve is not stored,
/// because it follows from the points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// The user, the program and how it ran.
    #[serde(flatten)]
    pub key: ProfileKey,
    /// The measurements, by size.
    pub points: Vec<SizePoint>,
    /// The measured costs of changes.
    pub costs: MeasuredCosts,
    /// The last stops, oldest first.
    #[serde(default)]
    pub stops: Vec<GenerationStop>,
    /// Sizes at which the program ran out of memory, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<u32>,
    /// The number of probes so far.
    pub probes: u32,
    /// Seconds that all probes took.
    pub probe_secs: f64,
    /// The number of jobs that contributed.
    pub jobs: u32,
    /// Slurm's name of the last of these jobs. For a waiting job, this is the only name to match.
    #[serde(default)]
    pub job_name: String,
    /// The time of the last change.
    pub updated_at: UnixTime,
}

impl Profile {
    /// A profile without any measurements.
    pub fn new(key: ProfileKey) -> Self {
        Profile {
            key,
            points: Vec::new(),
            costs: MeasuredCosts::default(),
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
    fn curves_are_text_and_only_valid_ones_are_accepted() {
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
    fn rates_are_interpolated_between_points_and_extrapolated_outside() {
        let curve = ScalingCurve::parse("2:10,4:16").unwrap();
        let rates: Vec<f64> = [0, 1, 2, 3, 4, 9].iter().map(|n| curve.rate(*n)).collect();
        assert_eq!(rates, [0.0, 5.0, 10.0, 13.0, 16.0, 16.0]);
        assert_eq!(ScalingCurve::linear().rate(7), 7.0);
    }
}
