//! How a job scales: throughput by number of nodes, and what a rescale costs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NodeType, UnixTime};

/// The name of an execution plan (how the job parallelises); `default` unless the job declares several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
/// Between points the rate is interpolated linearly. Outside it is extrapolated in proportion to the nodes below the
/// first point, and flat above the last: more is never promised than was seen.
///
/// As text and as JSON: `linear`, or `1:10,2:19,4:35`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Curve {
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

impl Curve {
    /// The curve of a job of which nothing is known: one unit a second and node.
    pub fn linear() -> Self {
        Curve { points: vec![CurvePoint { nodes: 1, rate: 1.0 }], linear: true }
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
        Ok(Curve { points, linear: false })
    }

    /// Parses `1:10,2:19,4:35` (nodes:samples a second), or `linear`.
    pub fn parse(text: &str) -> Result<Self, CurveError> {
        if text.trim() == LINEAR {
            return Ok(Curve::linear());
        }
        let point = |item: &str| -> Option<CurvePoint> {
            let (n, r) = item.trim().split_once(':')?;
            Some(CurvePoint { nodes: n.trim().parse().ok()?, rate: r.trim().parse().ok()? })
        };
        let points = text
            .split(',')
            .map(|item| point(item).ok_or_else(|| CurveError::Syntax(item.trim().to_owned())))
            .collect::<Result<Vec<_>, _>>()?;
        Curve::new(points)
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

impl TryFrom<String> for Curve {
    type Error = CurveError;
    fn try_from(text: String) -> Result<Self, CurveError> {
        Curve::parse(&text)
    }
}

impl From<Curve> for String {
    fn from(curve: Curve) -> String {
        curve.to_string()
    }
}

impl fmt::Display for Curve {
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
pub struct RescaleCosts {
    /// Growing.
    pub up_secs: f64,
    /// Shrinking.
    pub down_secs: f64,
    /// Starting from nothing, after a park or for the first time.
    pub start_secs: f64,
}

/// What is known of a job on one node type with one execution plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Whom it belongs to and what it describes: user, program, batch mode.
    pub signature: String,
    /// Node type.
    pub node_type: NodeType,
    /// Execution plan.
    pub exec_plan: ExecPlan,
    /// Throughput by size.
    pub curve: Curve,
    /// Rescale costs.
    pub costs: RescaleCosts,
    /// Last change.
    pub updated_at: UnixTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_text_and_only_sound_ones_are_taken() {
        for text in ["linear", "1:10,2:19.5,4:35"] {
            let curve = Curve::parse(text).unwrap();
            assert_eq!(serde_json::to_string(&curve).unwrap(), format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Curve>(&format!("{text:?}")).unwrap(), curve);
        }
        for text in ["", "1", "0:1", "1:-1", "1:0", "1:nan", "1:inf", "1:1,1:2", "1:1,,2:2", "99999999999:1"]
        {
            assert!(Curve::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_between_below_and_above_the_points() {
        let curve = Curve::parse("2:10,4:16").unwrap();
        let rates: Vec<f64> = [0, 1, 2, 3, 4, 9].iter().map(|n| curve.rate(*n)).collect();
        assert_eq!(rates, [0.0, 5.0, 10.0, 13.0, 16.0, 16.0]);
        assert_eq!(Curve::linear().rate(7), 7.0);
    }
}
