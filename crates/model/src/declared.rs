//! Execution plans as the owner of a job declares them.

use serde::{Deserialize, Serialize};

use super::{ExecPlan, NodeType, Sizes};

/// Most execution plans that a job may declare.
pub const MOST_PLANS: usize = 16;

/// Most types of nodes that a plan may name.
pub const MOST_PLAN_TYPES: usize = 16;

/// Longest name of a plan, or of a type of nodes in it.
pub const MOST_PLAN_CHARS: usize = 64;

/// What infill must know of an execution plan to choose it: how the command is told of it, its arguments and
/// environment, stays with the agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeclaredPlan {
    /// The plan's name.
    pub name: ExecPlan,
    /// Sizes at which it can run, in what the job counts (nodes, or GPUs); `None` for all that the job may
    /// have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Types of nodes on which it can run, as whole names or words of such (`a100`); none for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<String>,
    /// Whether it divides the model or its optimizer's state over its nodes, so that on more of them each
    /// needs less memory.
    #[serde(default)]
    pub shards: bool,
}

impl DeclaredPlan {
    /// Whether it can run on nodes of this type.
    pub fn runs_on(&self, node_type: &NodeType) -> bool {
        self.node_types.is_empty() || self.node_types.iter().any(|word| node_type.is_called(word))
    }

    /// Whether it can have so many nodes.
    pub fn allows(&self, nodes: u32) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| sizes.allows(nodes))
    }

    /// The sizes above this do perhaps fit into memory though so many nodes did not suffice: where each node
    /// holds all, none; else twice as many.
    pub fn may_fit_from(&self, unfit: u32) -> u32 {
        if self.shards { unfit.saturating_mul(2) } else { u32::MAX }
    }

    /// Whether its words are such as can be kept and shown.
    fn is_sound(&self) -> bool {
        let word = |w: &str| {
            !w.is_empty() && w.chars().count() <= MOST_PLAN_CHARS && !w.chars().any(char::is_control)
        };
        word(&self.name.0)
            && self.node_types.len() <= MOST_PLAN_TYPES
            && self.node_types.iter().all(|w| word(w))
    }
}

/// The first [`MOST_PLANS`] of these that are sound and named for the first time: what comes over the wire
/// may hold anything.
pub(super) fn bounded(plans: Vec<DeclaredPlan>) -> Vec<DeclaredPlan> {
    let mut kept: Vec<DeclaredPlan> = Vec::new();
    for plan in plans {
        if kept.len() < MOST_PLANS && plan.is_sound() && kept.iter().all(|k| k.name != plan.name) {
            kept.push(plan);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, node_types: &[&str]) -> DeclaredPlan {
        let node_types = node_types.iter().map(|t| (*t).to_owned()).collect();
        DeclaredPlan {
            name: ExecPlan(name.to_owned()),
            sizes: Some(Sizes::Set(vec![2, 4])),
            node_types,
            shards: false,
        }
    }

    #[test]
    fn where_a_plan_can_run() {
        let anywhere = plan("ddp", &[]);
        let on_a100 = plan("ddp", &["h100", "a100"]);
        let types = ["gpu:a100:4/cpu64", "gpu:v100:1/cpu4*2", "cpu8"].map(NodeType::new);
        assert_eq!(types.each_ref().map(|t| anywhere.runs_on(t)), [true; 3]);
        assert_eq!(types.each_ref().map(|t| on_a100.runs_on(t)), [true, false, false]);
        assert_eq!([1, 2, 3, 4].map(|n| anywhere.allows(n)), [false, true, false, true]);
    }

    #[test]
    fn what_cannot_be_a_plan_is_left_out() {
        let long = "x".repeat(MOST_PLAN_CHARS + 1);
        let plans = ["a", "", "b", "a", "c\n", &long].map(|name| plan(name, &[]));
        let mut odd = plan("d", &["\u{1b}"]);
        let names =
            |plans: Vec<DeclaredPlan>| bounded(plans).into_iter().map(|p| p.name.0).collect::<Vec<_>>();
        assert_eq!(names(plans.to_vec()), ["a", "b"]);
        assert!(names(vec![odd.clone()]).is_empty());
        odd.node_types = vec!["a100".to_owned(); MOST_PLAN_TYPES + 1];
        assert!(names(vec![odd]).is_empty());
        assert_eq!(bounded((0..99).map(|i| plan(&i.to_string(), &[])).collect()).len(), MOST_PLANS);
    }
}
