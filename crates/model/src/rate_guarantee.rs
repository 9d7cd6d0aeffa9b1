//! The minimum rate that a job's owner asks for (`infill run --at-least`), and what a round made of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sentence::sentence;
use super::{ExecPlan, NodeCount, NodeType};

/// Relative difference up to which a rate counts as reached. Sums in another order differ by less.
const TOLERANCE: f64 = 1e-9;

/// The minimum rate that a job's owner asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinimumRate {
    /// This number of samples a second.
    Rate(f64),
    /// The rate of the job's first execution plan on this number of nodes, as it was submitted.
    Requested(u32),
}

/// The size and the execution plan whose rate a job is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedRun {
    /// The number of nodes.
    pub nodes: u32,
    /// The execution plan.
    pub exec_plan: ExecPlan,
}

/// The rate that a job is to make at least, while other jobs have more than their minimum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateGuarantee {
    /// Samples a second; 0 while the rate is unknown.
    pub rate: f64,
    /// The run whose rate the owner asked for, if they asked for a run and not for a number.
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub requested: Option<RequestedRun>,
    /// Whether the job can have that rate.
    pub prospect: GuaranteeProspect,
    /// The bonus that is added to the rate of each size that reaches the guaranteed rate, in samples a
    /// second.
    pub bonus: f64,
    /// The sizes that reach the rate, for each entry of the job's rates.
    #[serde(default, rename = "enough", skip_serializing_if = "Vec::is_empty")]
    pub sufficient_sizes: Vec<SufficientSizes>,
}

/// The sizes at which one execution plan reaches the promised rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SufficientSizes {
    /// The execution plan.
    pub exec_plan: ExecPlan,
    /// The node type; `None` for any type.
    pub node_type: Option<NodeType>,
    /// The first and last size of each run of consecutive allowed sizes, ascending.
    pub ranges: Vec<(u32, u32)>,
}

impl SufficientSizes {
    /// Selects the sizes that are enough among the `allowed` sizes, which are ascending.
    pub fn from_allowed(
        exec_plan: ExecPlan,
        node_type: Option<NodeType>,
        allowed: &[u32],
        is_enough: impl Fn(u32) -> bool,
    ) -> Self {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut is_previous_enough = false;
        for nodes in allowed {
            let is_enough = is_enough(*nodes);
            match ranges.last_mut() {
                Some(last) if is_enough && is_previous_enough => last.1 = *nodes,
                _ if is_enough => ranges.push((*nodes, *nodes)),
                _ => {}
            }
            is_previous_enough = is_enough;
        }
        SufficientSizes { exec_plan, node_type, ranges }
    }

    /// The smallest of these sizes, if there is one.
    pub fn min_nodes(&self) -> Option<u32> {
        self.ranges.first().map(|(first, _)| *first)
    }

    /// Whether `nodes` is one of these sizes.
    pub fn contains(&self, nodes: u32) -> bool {
        let following = self.ranges.partition_point(|(first, _)| *first <= nodes);
        following.checked_sub(1).is_some_and(|index| nodes <= self.ranges[index].1)
    }

    /// These sizes, each decreased by `fewer`, without those that drop to zero.
    #[must_use]
    pub fn shifted_down(self, fewer: u32) -> Self {
        let mut ranges = Vec::new();
        for (first, last) in &self.ranges {
            let last = last.saturating_sub(fewer);
            if last > 0 {
                ranges.push((first.saturating_sub(fewer).max(1), last));
            }
        }
        SufficientSizes { ranges, ..self }
    }
}

/// Whether a rate is at least `minimum`, within [`TOLERANCE`].
fn reaches_rate(rate: f64, minimum: f64) -> bool {
    rate > 0.0 && rate >= minimum * (1.0 - TOLERANCE)
}

/// Whether a job can have its minimum rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuaranteeProspect {
    /// Its rates are still unknown.
    Unmeasured,
    /// The plan that it was submitted with cannot run at the requested size.
    NoSuchRun,
    /// None of its sizes reaches the rate.
    TooSlow {
        /// The highest rate of its sizes, in samples a second.
        most: f64,
    },
    /// There are too few nodes if every other running job keeps its minimum.
    TooFew {
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that are available for it.
        #[serde(rename = "there")]
        available: u32,
    },
    /// There would be enough nodes, but some of them were promised to other jobs before.
    Promised {
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that are left for it.
        #[serde(rename = "there")]
        available: u32,
    },
    /// It may not start yet, or others come before it.
    Waits {
        /// Nodes that it needs.
        needs: u32,
    },
    /// It can have the rate, so it is promised.
    Open {
        /// Nodes that it needs.
        needs: u32,
    },
}

impl RateGuarantee {
    /// Whether a rate reaches the guaranteed one.
    pub fn is_met_by(&self, rate: f64) -> bool {
        reaches_rate(rate, self.rate)
    }

    /// Whether the rate is promised: no plan may leave the job below it while others have more than their
    /// minimum.
    pub fn is_promised(&self) -> bool {
        matches!(self.prospect, GuaranteeProspect::Open { .. })
    }

    /// Whether the job is known to reach the rate with an execution plan on `nodes` nodes of a type. As for
    /// rates, an entry for the type has precedence over one for all types.
    pub fn is_enough(&self, node_type: &NodeType, exec_plan: &ExecPlan, nodes: u32) -> bool {
        let mut sufficient = self.sufficient_sizes.iter().filter(|sizes| sizes.exec_plan == *exec_plan);
        let for_type = sufficient.clone().find(|sizes| sizes.node_type.as_ref() == Some(node_type));
        let sizes = for_type.or_else(|| sufficient.find(|sizes| sizes.node_type.is_none()));
        nodes > 0 && sizes.is_some_and(|sizes| sizes.contains(nodes))
    }

    /// The fewest nodes of a type on which one of its plans reaches the rate.
    pub fn min_nodes_on(&self, node_type: &NodeType) -> Option<u32> {
        let mut fewest: Option<u32> = None;
        for sizes in &self.sufficient_sizes {
            let is_of_type = sizes.node_type.as_ref().is_none_or(|other| other == node_type);
            let Some(nodes) = sizes.min_nodes().filter(|_| is_of_type) else { continue };
            if self.is_enough(node_type, &sizes.exec_plan, nodes) {
                fewest = Some(fewest.map_or(nodes, |fewest| fewest.min(nodes)));
            }
        }
        fewest
    }

    /// The rate that a job makes if the planner counts `counted`, both in samples a second.
    pub fn rate_without_bonus(&self, counted: f64) -> f64 {
        let without_bonus = counted - self.bonus;
        if self.is_met_by(without_bonus) { without_bonus } else { counted }
    }

    /// The outcome in a plan, given whether the job reaches the rate in that plan.
    pub fn outcome_reason(&self, is_met: bool) -> GuaranteeReason {
        let rate = if self.rate > 0.0 { Some(self.rate) } else { None };
        let wanted = GuaranteedRate { rate, requested: self.requested.clone() };
        match self.prospect {
            GuaranteeProspect::Unmeasured => GuaranteeReason::Unmeasured { wanted },
            GuaranteeProspect::NoSuchRun => GuaranteeReason::NoSuchRun { wanted },
            GuaranteeProspect::TooSlow { most } => GuaranteeReason::TooSlow { wanted, most },
            GuaranteeProspect::TooFew { needs, available } => {
                GuaranteeReason::TooFew { wanted, needs, available }
            }
            GuaranteeProspect::Promised { needs, available } => {
                GuaranteeReason::Promised { wanted, needs, available }
            }
            GuaranteeProspect::Waits { needs } => GuaranteeReason::Waits { wanted, needs },
            GuaranteeProspect::Open { needs } if is_met => GuaranteeReason::Met { wanted, needs },
            GuaranteeProspect::Open { needs } => GuaranteeReason::Outweighed { wanted, needs },
        }
    }
}

/// The minimum rate of a job, for sentences: the number, the run that the owner asked for, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct GuaranteedRate {
    /// Samples a second; `None` while the rate is unknown.
    pub rate: Option<f64>,
    /// The run, if the owner asked for a run.
    pub requested: Option<RequestedRun>,
}

impl fmt::Display for GuaranteedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rate, &self.requested) {
            (Some(rate), None) => write!(f, "{rate:.2} samples/s"),
            (Some(rate), Some(asked)) => write!(f, "{rate:.2} samples/s of {asked}"),
            (None, Some(asked)) => write!(f, "the rate of {asked}"),
            (None, None) => f.write_str("a rate"),
        }
    }
}

impl fmt::Display for RequestedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} asked for", NodeCount(self.nodes))?;
        if self.exec_plan == ExecPlan::default() {
            Ok(())
        } else {
            write!(f, " with plan {}", self.exec_plan.0)
        }
    }
}

/// Whether a job gets its minimum rate, and why not. The text is the end of a sentence. In JSON it is that
/// text, which is read back as [`GuaranteeReason::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum GuaranteeReason {
    /// The job gets the rate.
    Met {
        /// The minimum rate.
        wanted: GuaranteedRate,
        /// The fewest nodes on which it reaches the rate.
        needs: u32,
    },
    /// [`GuaranteeProspect::Unmeasured`].
    Unmeasured {
        /// The minimum rate.
        wanted: GuaranteedRate,
    },
    /// [`GuaranteeProspect::NoSuchRun`].
    NoSuchRun {
        /// The minimum rate.
        wanted: GuaranteedRate,
    },
    /// [`GuaranteeProspect::TooSlow`].
    TooSlow {
        /// The minimum rate.
        wanted: GuaranteedRate,
        /// The highest rate that it can make, in samples a second.
        most: f64,
    },
    /// [`GuaranteeProspect::TooFew`].
    TooFew {
        /// The minimum rate.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that are available for it.
        available: u32,
    },
    /// [`GuaranteeProspect::Promised`].
    Promised {
        /// The minimum rate.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that are left for it.
        available: u32,
    },
    /// [`GuaranteeProspect::Waits`].
    Waits {
        /// The minimum rate.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
    },
    /// The rate is promised, but the job does not get it yet: windows, changes under way, or other jobs that
    /// have only their minimum keep the nodes from it.
    Outweighed {
        /// The minimum rate.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
    },
    /// A sentence that was read back from JSON.
    Said(String),
}

sentence!(GuaranteeReason: "Whether a job gets its minimum rate, and why not, as the end of a sentence.");

impl fmt::Display for GuaranteeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuaranteeReason::Met { wanted, needs } => {
                write!(f, "it is assured {wanted}, which takes {}", NodeCount(*needs))
            }
            GuaranteeReason::Unmeasured { wanted } => {
                write!(f, "nothing is assured yet: it wants {wanted}, but its speed is unknown")
            }
            GuaranteeReason::NoSuchRun { wanted } => {
                write!(f, "nothing is assured: it wants {wanted}, which no nodes here can run")
            }
            GuaranteeReason::TooSlow { wanted, most } => {
                write!(f, "no known size makes the {wanted} that it wants: at most {most:.2}")
            }
            GuaranteeReason::TooFew { wanted, needs, available } => {
                write!(f, "nothing is assured: the {wanted} that it wants take {}:", NodeCount(*needs))?;
                write!(f, " {available} can be used while other running jobs keep their minimum")
            }
            GuaranteeReason::Promised { wanted, needs, available } => {
                write!(f, "nothing is assured: the {wanted} that it wants take {}:", NodeCount(*needs))?;
                write!(f, " {available} can be used besides those that other jobs were assured before")
            }
            GuaranteeReason::Waits { wanted, needs } => {
                write!(f, "it is assured {wanted} once it may start, which takes {}", NodeCount(*needs))
            }
            GuaranteeReason::Outweighed { wanted, needs } => {
                write!(f, "the {wanted} that it is assured take {}, which it", NodeCount(*needs))?;
                f.write_str(" gets once windows, changes under way and the minimum of other jobs allow")
            }
            GuaranteeReason::Said(sentence) => f.write_str(sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllowedSizes, ScalingCurve};

    fn guarantee_with(prospect: GuaranteeProspect, requested: Option<RequestedRun>) -> RateGuarantee {
        RateGuarantee { rate: 40.0, requested, prospect, bonus: 100.0, sufficient_sizes: Vec::new() }
    }

    #[test]
    fn every_outcome_has_a_sentence() {
        let open = GuaranteeProspect::Open { needs: 4 };
        let unknown = RateGuarantee {
            rate: 0.0,
            ..guarantee_with(GuaranteeProspect::Unmeasured, Some(four_nodes_with("dp")))
        };
        let cases = [
            (guarantee_with(open, None), true),
            (guarantee_with(open, Some(four_nodes_with("dp"))), true),
            (guarantee_with(GuaranteeProspect::Unmeasured, None), false),
            (unknown.clone(), true),
            (RateGuarantee { prospect: GuaranteeProspect::NoSuchRun, ..unknown }, false),
            (guarantee_with(GuaranteeProspect::TooSlow { most: 31.0 }, None), false),
            (guarantee_with(GuaranteeProspect::TooFew { needs: 6, available: 1 }, None), false),
            (
                guarantee_with(
                    GuaranteeProspect::Promised { needs: 6, available: 1 },
                    Some(four_nodes_with("default")),
                ),
                true,
            ),
            (guarantee_with(GuaranteeProspect::Waits { needs: 6 }, None), false),
            (guarantee_with(open, None), false),
        ];
        let lines: Vec<String> =
            cases.iter().map(|(guarantee, is_met)| guarantee.outcome_reason(*is_met).to_string()).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        it is assured 40.00 samples/s, which takes 4 nodes
        it is assured 40.00 samples/s of the 4 nodes asked for with plan dp, which takes 4 nodes
        nothing is assured yet: it wants 40.00 samples/s, but its speed is unknown
        nothing is assured yet: it wants the rate of the 4 nodes asked for with plan dp, but its speed is unknown
        nothing is assured: it wants the rate of the 4 nodes asked for with plan dp, which no nodes here can run
        no known size makes the 40.00 samples/s that it wants: at most 31.00
        nothing is assured: the 40.00 samples/s that it wants take 6 nodes: 1 can be used while other running jobs keep their minimum
        nothing is assured: the 40.00 samples/s of the 4 nodes asked for that it wants take 6 nodes: 1 can be used besides those that other jobs were assured before
        it is assured 40.00 samples/s once it may start, which takes 6 nodes
        the 40.00 samples/s that it is assured take 4 nodes, which it gets once windows, changes under way and the minimum of other jobs allow
        ");
        let guarantee = guarantee_with(open, None);
        assert_eq!(
            [39.0, 139.0, 140.0, 160.0].map(|counted| guarantee.rate_without_bonus(counted)),
            [39.0, 139.0, 40.0, 60.0]
        );
    }

    fn four_nodes_with(plan: &str) -> RequestedRun {
        RequestedRun { nodes: 4, exec_plan: ExecPlan(plan.to_owned()) }
    }

    /// The sizes from 2 to 8 at which this curve reaches 30 samples a second.
    fn sizes_for_30(plan: &str, node_type: Option<&str>, curve: &str) -> SufficientSizes {
        let allowed = AllowedSizes::parse("2-8").unwrap().up_to(u32::MAX);
        let curve = ScalingCurve::parse(curve).unwrap();
        let exec_plan = ExecPlan(plan.to_owned());
        let node_type = node_type.map(NodeType::new);
        SufficientSizes::from_allowed(exec_plan, node_type, &allowed, |nodes| curve.rate(nodes) >= 30.0)
    }

    #[test]
    fn an_entry_for_the_type_has_precedence_over_one_for_all_types() {
        let sufficient_sizes = vec![
            sizes_for_30("dp", None, "1:10,4:40,8:20"),
            sizes_for_30("dp", Some("slow"), "1:5,8:40"),
            sizes_for_30("tp", Some("slow"), "1:45,8:45"),
        ];
        let guarantee =
            RateGuarantee { sufficient_sizes, ..guarantee_with(GuaranteeProspect::Open { needs: 3 }, None) };
        let ranges: Vec<&[(u32, u32)]> =
            guarantee.sufficient_sizes.iter().map(|sizes| sizes.ranges.as_slice()).collect();
        assert_eq!(ranges, [&[(3, 6)][..], &[(6, 8)], &[(2, 8)]]);
        for (node_type, plan, nodes, is_enough) in [
            ("other", "dp", 3, true),
            ("slow", "dp", 3, false),
            ("slow", "dp", 7, true),
            ("slow", "tp", 2, true),
            ("other", "tp", 2, false),
            ("other", "dp", 0, false),
        ] {
            let exec_plan = ExecPlan(plan.to_owned());
            assert_eq!(
                guarantee.is_enough(&NodeType::new(node_type), &exec_plan, nodes),
                is_enough,
                "{plan} on {nodes} nodes of {node_type}"
            );
        }
        assert_eq!(guarantee.min_nodes_on(&NodeType::new("slow")), Some(2));
        assert_eq!(guarantee.min_nodes_on(&NodeType::new("other")), Some(3));
        let shifted = guarantee.sufficient_sizes[0].clone().shifted_down(4);
        assert_eq!(shifted.ranges, [(1, 2)]);
        assert!(shifted.contains(2) && !shifted.contains(3));
        assert_eq!(shifted.shifted_down(2).min_nodes(), None);
    }

    #[test]
    fn json_of_an_older_version_is_read() {
        let text = r#"{"rate":40.0,"prospect":{"open":{"needs":4}},"bonus":100.0}"#;
        let read: RateGuarantee = serde_json::from_str(text).unwrap();
        assert_eq!(read, guarantee_with(GuaranteeProspect::Open { needs: 4 }, None));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
