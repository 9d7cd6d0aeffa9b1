//! The rate that the owner of a job wants it to make at the least (`infill run --at-least`), and what a round
//! made of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sentence::sentence;
use super::{ExecPlan, NodeType};

/// Relative difference up to which a rate counts as reached: sums in another order differ by less.
const TOLERANCE: f64 = 1e-9;

/// What the owner of a job wants it to make at the least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinimumRate {
    /// So many samples a second.
    Rate(f64),
    /// What its first execution plan makes on so many nodes: what it was submitted with.
    Asked(u32),
}

/// The size and the execution plan whose rate a job is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedRun {
    /// Nodes.
    pub nodes: u32,
    /// Execution plan.
    pub exec_plan: ExecPlan,
}

/// What a job shall make at the least, while others have more than their least.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateGuarantee {
    /// Samples a second; 0 where nobody knows yet.
    pub rate: f64,
    /// The run that makes so many, where its owner asked for what that makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<RequestedRun>,
    /// Whether that can be had.
    pub prospect: GuaranteeProspect,
    /// By how much more than it makes each size counts that makes so many, samples a second.
    pub bonus: f64,
    /// Sizes that make so many, for each entry of the job's rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enough: Vec<SufficientSizes>,
}

/// Sizes at which one execution plan makes what a job is promised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SufficientSizes {
    /// Execution plan.
    pub exec_plan: ExecPlan,
    /// Node type; `None` for any type.
    pub node_type: Option<NodeType>,
    /// First and last of each run of allowed sizes, ascending.
    pub ranges: Vec<(u32, u32)>,
}

impl SufficientSizes {
    /// Those of the `allowed` sizes, ascending, that are enough.
    pub fn from_allowed(
        (exec_plan, node_type): (ExecPlan, Option<NodeType>),
        allowed: &[u32],
        is_enough: impl Fn(u32) -> bool,
    ) -> Self {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut goes_on = false;
        for nodes in allowed {
            let is_enough = is_enough(*nodes);
            match ranges.last_mut() {
                Some(last) if is_enough && goes_on => last.1 = *nodes,
                _ if is_enough => ranges.push((*nodes, *nodes)),
                _ => {}
            }
            goes_on = is_enough;
        }
        SufficientSizes { exec_plan, node_type, ranges }
    }

    /// The fewest nodes.
    pub fn min_nodes(&self) -> Option<u32> {
        self.ranges.first().map(|(first, _)| *first)
    }

    /// Whether so many nodes are among them.
    pub fn contains(&self, nodes: u32) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= nodes);
        after.checked_sub(1).is_some_and(|at| nodes <= self.ranges[at].1)
    }

    /// The same sizes counted with so many nodes less; those that would have none are left out.
    #[must_use]
    pub fn shifted_down(self, fewer: u32) -> Self {
        SufficientSizes {
            ranges: self
                .ranges
                .iter()
                .filter_map(|(first, last): &(u32, u32)| {
                    let last = last.checked_sub(fewer).filter(|last| *last > 0)?;
                    Some((first.saturating_sub(fewer).max(1), last))
                })
                .collect(),
            ..self
        }
    }
}

/// Whether a rate is no less than another one.
fn reaches_rate(rate: f64, least: f64) -> bool {
    rate > 0.0 && rate >= least * (1.0 - TOLERANCE)
}

/// Whether a job can have what it shall make at the least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuaranteeProspect {
    /// Nobody knows yet how fast it is.
    Unmeasured,
    /// The plan that it was submitted with does not run at the size that it asked for.
    NoSuchRun,
    /// None of its sizes is so fast.
    TooSlow {
        /// The most that one of them makes, samples a second.
        most: f64,
    },
    /// There are too few nodes, if each other job that runs keeps its least.
    TooFew {
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that there are for it.
        there: u32,
    },
    /// There would be enough nodes, but others were promised some of them before.
    Promised {
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that are left for it.
        there: u32,
    },
    /// It may not start yet, or others come before it.
    Waits {
        /// Nodes that it needs.
        needs: u32,
    },
    /// It can: it is promised.
    Open {
        /// Nodes that it needs.
        needs: u32,
    },
}

impl RateGuarantee {
    /// Whether a rate is no less.
    pub fn is_met_by(&self, rate: f64) -> bool {
        reaches_rate(rate, self.rate)
    }

    /// Whether it is promised: no plan may leave the job below it while others have more than their least.
    pub fn is_promised(&self) -> bool {
        matches!(self.prospect, GuaranteeProspect::Open { .. })
    }

    /// Whether the job makes so much with an execution plan on so many nodes of a type, by what is known of
    /// it. As for rates, what is said of the type goes before what is said of all types.
    pub fn is_enough(&self, node_type: &NodeType, exec_plan: &ExecPlan, nodes: u32) -> bool {
        let of_plan = || self.enough.iter().filter(|enough| enough.exec_plan == *exec_plan);
        let of_type = of_plan().find(|enough| enough.node_type.as_ref() == Some(node_type));
        let for_all = || of_plan().find(|enough| enough.node_type.is_none());
        nodes > 0 && of_type.or_else(for_all).is_some_and(|enough| enough.contains(nodes))
    }

    /// The fewest nodes of a type on which one of its plans makes so much.
    pub fn min_nodes_on(&self, node_type: &NodeType) -> Option<u32> {
        let all = self.enough.iter().filter(|e| e.node_type.as_ref().is_none_or(|t| t == node_type));
        all.filter_map(|e: &SufficientSizes| {
            let least = e.min_nodes()?;
            self.is_enough(node_type, &e.exec_plan, least).then_some(least)
        })
        .min()
    }

    /// What a job makes of which the planner counts so much.
    pub fn rate_without_bonus(&self, counted: f64) -> f64 {
        let known = counted - self.bonus;
        if self.is_met_by(known) { known } else { counted }
    }

    /// What became of it in a plan in which the job makes so much, or not.
    pub fn outcome_reason(&self, is_met: bool) -> GuaranteeReason {
        let wanted =
            GuaranteedRate { rate: Some(self.rate).filter(|rate| *rate > 0.0), asked: self.asked.clone() };
        match self.prospect {
            GuaranteeProspect::Unmeasured => GuaranteeReason::Unmeasured { wanted },
            GuaranteeProspect::NoSuchRun => GuaranteeReason::NoSuchRun { wanted },
            GuaranteeProspect::TooSlow { most } => GuaranteeReason::TooSlow { wanted, most },
            GuaranteeProspect::TooFew { needs, there } => GuaranteeReason::TooFew { wanted, needs, there },
            GuaranteeProspect::Promised { needs, there } => {
                GuaranteeReason::Promised { wanted, needs, there }
            }
            GuaranteeProspect::Waits { needs } => GuaranteeReason::Waits { wanted, needs },
            GuaranteeProspect::Open { needs } if is_met => GuaranteeReason::Met { wanted, needs },
            GuaranteeProspect::Open { needs } => GuaranteeReason::Outweighed { wanted, needs },
        }
    }
}

/// What a job wants at the least: the rate in samples a second where it is known, and the run that makes it
/// where its owner asked for that.
#[derive(Clone, Debug, PartialEq)]
pub struct GuaranteedRate {
    /// Samples a second.
    pub rate: Option<f64>,
    /// The run.
    pub asked: Option<RequestedRun>,
}

impl fmt::Display for GuaranteedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rate, &self.asked) {
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

/// Whether a job gets what it shall make at the least, and why not; the end of a sentence. In JSON it is the
/// words, and is read back as [`GuaranteeReason::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum GuaranteeReason {
    /// It gets it.
    Met {
        /// What it wants.
        wanted: GuaranteedRate,
        /// Fewest nodes on which it makes that.
        needs: u32,
    },
    /// [`GuaranteeProspect::Unmeasured`].
    Unmeasured {
        /// What it wants.
        wanted: GuaranteedRate,
    },
    /// [`GuaranteeProspect::NoSuchRun`].
    NoSuchRun {
        /// What it wants.
        wanted: GuaranteedRate,
    },
    /// [`GuaranteeProspect::TooSlow`].
    TooSlow {
        /// What it wants.
        wanted: GuaranteedRate,
        /// The most that it can make.
        most: f64,
    },
    /// [`GuaranteeProspect::TooFew`].
    TooFew {
        /// What it wants.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that there are for it.
        there: u32,
    },
    /// [`GuaranteeProspect::Promised`].
    Promised {
        /// What it wants.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that are left for it.
        there: u32,
    },
    /// [`GuaranteeProspect::Waits`].
    Waits {
        /// What it wants.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
    },
    /// It is promised, and comes to it once windows, changes under way, or others that have no more than
    /// their least leave it the nodes.
    Outweighed {
        /// What it wants.
        wanted: GuaranteedRate,
        /// Nodes that it needs.
        needs: u32,
    },
    /// In the words of another round.
    Said(String),
}

sentence!(GuaranteeReason);

impl fmt::Display for GuaranteeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuaranteeReason::Met { wanted, needs } => {
                write!(f, "it is assured {wanted}, which takes {}", NodeCount(*needs))
            }
            GuaranteeReason::Unmeasured { wanted } => {
                write!(f, "nothing is assured yet: it wants {wanted}, and nobody knows how fast it is")
            }
            GuaranteeReason::NoSuchRun { wanted } => {
                write!(f, "nothing is assured: it wants {wanted}, which no nodes here can run")
            }
            GuaranteeReason::TooSlow { wanted, most } => {
                write!(f, "no size is known to make the {wanted} that it wants: at most {most:.2}")
            }
            GuaranteeReason::TooFew { wanted, needs, there } => {
                write!(f, "nothing is assured: the {wanted} that it wants take {}:", NodeCount(*needs))?;
                write!(f, " {there} can be had while others that run keep their least")
            }
            GuaranteeReason::Promised { wanted, needs, there } => {
                write!(f, "nothing is assured: the {wanted} that it wants take {}:", NodeCount(*needs))?;
                write!(f, " {there} can be had beside what others were assured before")
            }
            GuaranteeReason::Waits { wanted, needs } => {
                write!(f, "it is assured {wanted} once it may start, which takes {}", NodeCount(*needs))
            }
            GuaranteeReason::Outweighed { wanted, needs } => {
                write!(f, "the {wanted} that it is assured take {}, which it", NodeCount(*needs))?;
                f.write_str(" gets once windows, changes under way and the least of others leave them")
            }
            GuaranteeReason::Said(words) => f.write_str(words),
        }
    }
}

/// `1 node`, `3 nodes`.
struct NodeCount(u32);

impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllowedSizes, ScalingCurve};

    fn assured(prospect: GuaranteeProspect, asked: Option<RequestedRun>) -> RateGuarantee {
        RateGuarantee { rate: 40.0, asked, prospect, bonus: 100.0, enough: Vec::new() }
    }

    #[test]
    fn what_became_of_it() {
        let asked = |plan: &str| RequestedRun { nodes: 4, exec_plan: ExecPlan(plan.to_owned()) };
        let open = GuaranteeProspect::Open { needs: 4 };
        let unknown =
            RateGuarantee { rate: 0.0, ..assured(GuaranteeProspect::Unmeasured, Some(asked("dp"))) };
        let cases = [
            (assured(open, None), true),
            (assured(open, Some(asked("dp"))), true),
            (assured(GuaranteeProspect::Unmeasured, None), false),
            (unknown.clone(), true),
            (RateGuarantee { prospect: GuaranteeProspect::NoSuchRun, ..unknown }, false),
            (assured(GuaranteeProspect::TooSlow { most: 31.0 }, None), false),
            (assured(GuaranteeProspect::TooFew { needs: 6, there: 1 }, None), false),
            (assured(GuaranteeProspect::Promised { needs: 6, there: 1 }, Some(asked("default"))), true),
            (assured(GuaranteeProspect::Waits { needs: 6 }, None), false),
            (assured(open, None), false),
        ];
        let lines: Vec<String> =
            cases.iter().map(|(a, is_met)| a.outcome_reason(*is_met).to_string()).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        it is assured 40.00 samples/s, which takes 4 nodes
        it is assured 40.00 samples/s of the 4 nodes asked for with plan dp, which takes 4 nodes
        nothing is assured yet: it wants 40.00 samples/s, and nobody knows how fast it is
        nothing is assured yet: it wants the rate of the 4 nodes asked for with plan dp, and nobody knows how fast it is
        nothing is assured: it wants the rate of the 4 nodes asked for with plan dp, which no nodes here can run
        no size is known to make the 40.00 samples/s that it wants: at most 31.00
        nothing is assured: the 40.00 samples/s that it wants take 6 nodes: 1 can be had while others that run keep their least
        nothing is assured: the 40.00 samples/s of the 4 nodes asked for that it wants take 6 nodes: 1 can be had beside what others were assured before
        it is assured 40.00 samples/s once it may start, which takes 6 nodes
        the 40.00 samples/s that it is assured take 4 nodes, which it gets once windows, changes under way and the least of others leave them
        ");
        let open = assured(open, None);
        assert_eq!(
            [39.0, 139.0, 140.0, 160.0].map(|r| open.rate_without_bonus(r)),
            [39.0, 139.0, 40.0, 60.0]
        );
    }

    #[test]
    fn what_is_said_of_a_type_goes_before_what_is_said_of_all() {
        let allowed = AllowedSizes::parse("2-8").unwrap().up_to(u32::MAX);
        let enough = |plan: &str, node_type: Option<&str>, curve: &str| {
            let run = (ExecPlan(plan.to_owned()), node_type.map(NodeType::new));
            let curve = ScalingCurve::parse(curve);
            SufficientSizes::from_allowed(run, &allowed, |n| {
                curve.as_ref().is_ok_and(|curve| curve.rate(n) >= 30.0)
            })
        };
        let enough = vec![
            enough("dp", None, "1:10,4:40,8:20"),
            enough("dp", Some("slow"), "1:5,8:40"),
            enough("tp", Some("slow"), "1:45,8:45"),
        ];
        let assured = RateGuarantee { enough, ..assured(GuaranteeProspect::Open { needs: 3 }, None) };
        let ranges: Vec<&[(u32, u32)]> = assured.enough.iter().map(|e| e.ranges.as_slice()).collect();
        assert_eq!(ranges, [&[(3, 6)][..], &[(6, 8)], &[(2, 8)]]);
        let slow = NodeType::new("slow");
        let other = NodeType::new("other");
        let plan = |name: &str| ExecPlan(name.to_owned());
        let is_enough = |t: &NodeType, name: &str, nodes| assured.is_enough(t, &plan(name), nodes);
        assert!(is_enough(&other, "dp", 3) && !is_enough(&slow, "dp", 3) && is_enough(&slow, "dp", 7));
        assert!(is_enough(&slow, "tp", 2) && !is_enough(&other, "tp", 2) && !is_enough(&other, "dp", 0));
        assert_eq!((assured.min_nodes_on(&slow), assured.min_nodes_on(&other)), (Some(2), Some(3)));
        let less = assured.enough[0].clone().shifted_down(4);
        assert_eq!(
            (less.ranges.as_slice(), less.contains(2), less.contains(3)),
            (&[(1, 2)][..], true, false)
        );
        assert_eq!(less.shifted_down(2).min_nodes(), None);
    }

    #[test]
    fn what_an_older_version_wrote_is_read() {
        let text = r#"{"rate":40.0,"prospect":{"open":{"needs":4}},"bonus":100.0}"#;
        let read: RateGuarantee = serde_json::from_str(text).unwrap();
        assert_eq!(read, assured(GuaranteeProspect::Open { needs: 4 }, None));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
