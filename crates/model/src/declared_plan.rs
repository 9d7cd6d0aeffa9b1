//! Execution plans as the owner of a job declares them.

use serde::{Deserialize, Serialize};

use super::plan_bounds::{check_within, known_or_default};
use super::{AllowedSizes, CpuMemory, ExecPlan, MOST_MEMORY_MIB, NodeType, OutOfBounds, ParallelStrategy};

/// Most execution plans that a job may declare.
pub const MOST_PLANS: usize = 16;

/// Most types of nodes that a plan may name.
pub const MOST_PLAN_TYPES: usize = 16;

/// Longest name of a plan, or of a type of nodes in it.
pub const MOST_PLAN_CHARS: usize = 64;

/// Most CPUs of one worker.
const MOST_CPUS: u32 = 65_536;

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
    pub sizes: Option<AllowedSizes>,
    /// Types of nodes on which it can run, as whole names or words of such (`a100`); none for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<String>,
    /// Whether it divides the model or its optimizer's state over its nodes, so that on more of them each
    /// needs less memory.
    #[serde(default)]
    pub shards: bool,
    /// How it splits the training over GPUs; `None` from agents that do not tell.
    #[serde(default, deserialize_with = "known_or_default", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ParallelStrategy>,
    /// What one of its workers needs.
    #[serde(default, deserialize_with = "known_or_default", skip_serializing_if = "PlanNeeds::is_empty")]
    pub needs: PlanNeeds,
}

/// What one worker of a plan needs, as far as its owner says. A worker is what runs on one unit of the job's
/// size: a node, or a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PlanNeeds {
    /// CPUs of a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Host memory of a worker, MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Memory of each GPU, MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mib: Option<u64>,
}

impl PlanNeeds {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == PlanNeeds::default()
    }

    /// Whether it can be: at least one of each, and no more than any machine has.
    ///
    /// # Errors
    /// With the first number that cannot, under its name in a user's file.
    pub fn check_bounds(&self) -> Result<(), OutOfBounds> {
        cpus_within(self.cpus)?;
        memory_within("memory", self.memory_mib)?;
        memory_within("gpu_memory", self.gpu_memory_mib)
    }

    /// What a worker takes of a host where its places come with `own`: what is not said is its places'.
    /// Memory that is not shared out is not taken.
    pub fn host_portion(&self, own: CpuMemory) -> CpuMemory {
        let memory_mib = self.memory_mib.filter(|_| own.memory_mib > 0);
        CpuMemory { cpus: self.cpus.unwrap_or(own.cpus), memory_mib: memory_mib.unwrap_or(own.memory_mib) }
    }

    /// The same without what cannot be.
    fn without_invalid(self) -> Self {
        let memory = |mib: Option<u64>| mib.filter(|mib| memory_within("memory", Some(*mib)).is_ok());
        PlanNeeds {
            cpus: self.cpus.filter(|cpus| cpus_within(Some(*cpus)).is_ok()),
            memory_mib: memory(self.memory_mib),
            gpu_memory_mib: memory(self.gpu_memory_mib),
        }
    }
}

fn cpus_within(cpus: Option<u32>) -> Result<(), OutOfBounds> {
    cpus.map_or(Ok(()), |cpus| check_within("cpus", cpus.into(), 1.0, MOST_CPUS.into()))
}

fn memory_within(field: &'static str, mib: Option<u64>) -> Result<(), OutOfBounds> {
    mib.map_or(Ok(()), |mib| check_within(field, mib as f64, 1.0, MOST_MEMORY_MIB as f64))
}

impl DeclaredPlan {
    /// Whether it can run on nodes of this type.
    pub fn runs_on(&self, node_type: &NodeType) -> bool {
        self.node_types.is_empty() || self.node_types.iter().any(|word| node_type.matches_name(word))
    }

    /// Whether it can have so many nodes.
    pub fn allows_size(&self, nodes: u32) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| sizes.contains(nodes))
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
/// may hold anything. A strategy or a need that cannot be is left out, and its plan stays.
pub(super) fn keep_valid_plans(plans: Vec<DeclaredPlan>) -> Vec<DeclaredPlan> {
    let mut kept: Vec<DeclaredPlan> = Vec::new();
    for plan in plans {
        if kept.len() < MOST_PLANS && plan.is_sound() && kept.iter().all(|k| k.name != plan.name) {
            kept.push(DeclaredPlan {
                strategy: plan.strategy.filter(|strategy| strategy.check_bounds().is_ok()),
                needs: plan.needs.without_invalid(),
                ..plan
            });
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
            sizes: Some(AllowedSizes::Set(vec![2, 4])),
            node_types,
            shards: false,
            strategy: Some(ParallelStrategy { tp: 2, ..ParallelStrategy::default() }),
            needs: PlanNeeds { cpus: Some(8), memory_mib: Some(1 << 16), gpu_memory_mib: None },
        }
    }

    #[test]
    fn where_a_plan_can_run() {
        let anywhere = plan("ddp", &[]);
        let on_a100 = plan("ddp", &["h100", "a100"]);
        let types = ["gpu:a100:4/cpu64", "gpu:v100:1/cpu4*2", "cpu8"].map(NodeType::new);
        assert_eq!(types.each_ref().map(|t| anywhere.runs_on(t)), [true; 3]);
        assert_eq!(types.each_ref().map(|t| on_a100.runs_on(t)), [true, false, false]);
        assert_eq!([1, 2, 3, 4].map(|n| anywhere.allows_size(n)), [false, true, false, true]);
    }

    #[test]
    fn what_cannot_be_a_plan_is_left_out() {
        let long = "x".repeat(MOST_PLAN_CHARS + 1);
        let plans = ["a", "", "b", "a", "c\n", &long].map(|name| plan(name, &[]));
        let mut odd = plan("d", &["\u{1b}"]);
        let names = |plans: Vec<DeclaredPlan>| {
            keep_valid_plans(plans).into_iter().map(|p| p.name.0).collect::<Vec<_>>()
        };
        assert_eq!(names(plans.to_vec()), ["a", "b"]);
        assert!(names(vec![odd.clone()]).is_empty());
        odd.node_types = vec!["a100".to_owned(); MOST_PLAN_TYPES + 1];
        assert!(names(vec![odd]).is_empty());
        assert_eq!(keep_valid_plans((0..99).map(|i| plan(&i.to_string(), &[])).collect()).len(), MOST_PLANS);
    }

    #[test]
    fn what_cannot_be_of_a_plan_leaves_the_plan() {
        let sound = plan("a", &[]);
        assert_eq!(keep_valid_plans(vec![sound.clone()]), std::slice::from_ref(&sound));
        let usual = ParallelStrategy::default();
        for strategy in [
            ParallelStrategy { tp: 0, ..usual },
            ParallelStrategy { pp: u32::MAX, ..usual },
            ParallelStrategy { accumulate: 0, ..usual },
            ParallelStrategy { zero: 9, ..usual },
        ] {
            let odd = DeclaredPlan { strategy: Some(strategy), ..sound.clone() };
            assert_eq!(
                keep_valid_plans(vec![odd]),
                [DeclaredPlan { strategy: None, ..sound.clone() }],
                "{strategy:?}"
            );
        }
        let needs = PlanNeeds { cpus: Some(0), memory_mib: Some(u64::MAX), gpu_memory_mib: Some(1) };
        let left = PlanNeeds { gpu_memory_mib: Some(1), ..PlanNeeds::default() };
        let odd = DeclaredPlan { needs, ..sound.clone() };
        assert_eq!(keep_valid_plans(vec![odd]), [DeclaredPlan { needs: left, ..sound }]);
    }

    #[test]
    fn what_is_not_said_is_the_share_of_its_places() {
        let own = CpuMemory { cpus: 4, memory_mib: 1000 };
        let needs = |cpus, memory_mib| PlanNeeds { cpus, memory_mib, gpu_memory_mib: Some(1) };
        let of = |needs: PlanNeeds, own| needs.host_portion(own);
        assert_eq!(of(needs(None, None), own), own);
        assert_eq!(of(needs(Some(9), None), own), CpuMemory { cpus: 9, ..own });
        assert_eq!(of(needs(None, Some(5)), own), CpuMemory { memory_mib: 5, ..own });
        let none = CpuMemory { memory_mib: 0, ..own };
        assert_eq!(of(needs(None, Some(5)), none), none, "the site does not share memory out");
    }

    #[test]
    fn who_tells_no_strategy_and_no_needs_is_understood() {
        let told = r#"{"name":"dp2","shards":false}"#;
        let read: DeclaredPlan = serde_json::from_str(told).unwrap();
        assert_eq!((read.strategy, read.needs), (None, PlanNeeds::default()));
        assert_eq!(serde_json::to_string(&read).unwrap(), told, "and is told nothing of them");
        let whole = plan("a", &["a100"]);
        let text = serde_json::to_string(&whole).unwrap();
        assert!(text.contains(r#""needs":{"cpus":8,"memory_mib":65536}"#), "{text}");
        assert_eq!(serde_json::from_str::<DeclaredPlan>(&text).unwrap(), whole);
    }

    #[test]
    fn a_strategy_of_another_form_is_none() {
        for told in [
            r#"{"name":"a","strategy":{"tp":-1},"needs":{"cpus":-1}}"#,
            r#"{"name":"a","strategy":{"tp":99999999999},"needs":"much"}"#,
            r#"{"name":"a","strategy":["tp",2],"needs":null}"#,
        ] {
            let read: DeclaredPlan = serde_json::from_str(told).unwrap();
            assert_eq!((read.strategy, read.needs), (None, PlanNeeds::default()), "{told}");
        }
    }
}
