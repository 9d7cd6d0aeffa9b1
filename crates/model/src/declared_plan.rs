//! Execution plans as the owner of a job declares them.

use serde::{Deserialize, Serialize};

use super::plan_bounds::{check_within, known_or_default};
use super::{AllowedSizes, CpuMemory, ExecPlan, MOST_MEMORY_MIB, NodeType, OutOfBounds, ParallelStrategy};

/// Most execution plans that a job may declare.
pub const MOST_PLANS: usize = 16;

/// Most node types that a plan may name.
pub const MOST_PLAN_TYPES: usize = 16;

/// The longest name of a plan, or of a node type in it, in characters.
pub const MOST_PLAN_CHARS: usize = 64;

/// Most CPUs of one worker.
const MOST_CPUS: u32 = 65_536;

/// The facts about an execution plan that infill needs to choose it. How the command runs with it, its
/// arguments and environment, stays with the agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeclaredPlan {
    /// The plan's name.
    pub name: ExecPlan,
    /// The sizes at which it can run, in the unit of the job's sizes (nodes or GPUs). `None` for all sizes
    /// that the job may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<AllowedSizes>,
    /// The node types on which it can run, as whole names or words of them (`a100`). Empty for all types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<String>,
    /// Whether it divides the model or its optimizer's state over its nodes. Then, with more nodes, each node
    /// needs less memory.
    #[serde(default)]
    pub shards: bool,
    /// How it divides the training over GPUs. `None` from agents that do not say.
    #[serde(default, deserialize_with = "known_or_default", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ParallelStrategy>,
    /// The resources that one of its workers needs.
    #[serde(default, deserialize_with = "known_or_default", skip_serializing_if = "PlanNeeds::is_empty")]
    pub needs: PlanNeeds,
}

/// The resources that one worker of a plan needs, as far as its owner says. A worker runs on one unit of the
/// job's size: a node or a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PlanNeeds {
    /// CPUs of a worker; `None` for the share of its places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Host memory of a worker, in MiB; `None` for the share of its places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Memory of each GPU, in MiB; `None` if its owner does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mib: Option<u64>,
}

impl PlanNeeds {
    /// Whether the owner says nothing.
    pub fn is_empty(&self) -> bool {
        *self == PlanNeeds::default()
    }

    /// Checks that each number is at least one, and not more than any host has.
    ///
    /// # Errors
    /// The first number that is out of bounds, with its name in a user's file.
    pub fn check_bounds(&self) -> Result<(), OutOfBounds> {
        cpus_within(self.cpus)?;
        memory_within("memory", self.memory_mib)?;
        memory_within("gpu_memory", self.gpu_memory_mib)
    }

    /// The part of a host that a worker takes, if its places have the share `own`. Amounts that the plan does
    /// not name are the places' own. Memory that the site does not allocate is not taken.
    pub fn host_portion(&self, own: CpuMemory) -> CpuMemory {
        let memory_mib = self.memory_mib.filter(|_| own.memory_mib > 0);
        CpuMemory { cpus: self.cpus.unwrap_or(own.cpus), memory_mib: memory_mib.unwrap_or(own.memory_mib) }
    }

    /// These needs without amounts that are out of bounds.
    fn without_invalid(self) -> Self {
        PlanNeeds {
            cpus: self.cpus.filter(|cpus| cpus_within(Some(*cpus)).is_ok()),
            memory_mib: self.memory_mib.filter(is_valid_memory),
            gpu_memory_mib: self.gpu_memory_mib.filter(is_valid_memory),
        }
    }
}

fn cpus_within(cpus: Option<u32>) -> Result<(), OutOfBounds> {
    cpus.map_or(Ok(()), |cpus| check_within("cpus", cpus.into(), 1.0, MOST_CPUS.into()))
}

fn memory_within(field: &'static str, mib: Option<u64>) -> Result<(), OutOfBounds> {
    mib.map_or(Ok(()), |mib| check_within(field, mib as f64, 1.0, MOST_MEMORY_MIB as f64))
}

fn is_valid_memory(mib: &u64) -> bool {
    memory_within("memory", Some(*mib)).is_ok()
}

/// Whether a name can be stored and shown: not empty, not too long, and printable.
fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= MOST_PLAN_CHARS && !name.chars().any(char::is_control)
}

impl DeclaredPlan {
    /// Whether it can run on nodes of this type.
    pub fn runs_on(&self, node_type: &NodeType) -> bool {
        self.node_types.is_empty() || self.node_types.iter().any(|word| node_type.matches_name(word))
    }

    /// Whether it can run on `nodes` nodes.
    pub fn allows_size(&self, nodes: u32) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| sizes.contains(nodes))
    }

    /// The smallest size that may fit into memory although `unfit` nodes did not suffice. A plan that shards
    /// may fit on twice as many; another plan never fits, because each of its nodes holds the whole model.
    pub fn may_fit_from(&self, unfit: u32) -> u32 {
        if self.shards { unfit.saturating_mul(2) } else { u32::MAX }
    }

    /// Whether its names can be stored and shown.
    fn is_sound(&self) -> bool {
        is_valid_name(&self.name.0)
            && self.node_types.len() <= MOST_PLAN_TYPES
            && self.node_types.iter().all(|name| is_valid_name(name))
    }
}

/// The first [`MOST_PLANS`] of these plans whose names are valid and new. The plans come over the network, so
/// they may hold anything. An invalid strategy or need is removed, and its plan stays.
pub(super) fn keep_valid_plans(plans: Vec<DeclaredPlan>) -> Vec<DeclaredPlan> {
    let mut kept: Vec<DeclaredPlan> = Vec::new();
    for plan in plans {
        let is_new = kept.iter().all(|other| other.name != plan.name);
        if kept.len() < MOST_PLANS && plan.is_sound() && is_new {
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
    fn a_plan_runs_on_its_node_types_and_sizes() {
        let anywhere = plan("ddp", &[]);
        let on_a100 = plan("ddp", &["h100", "a100"]);
        let types = ["gpu:a100:4/cpu64", "gpu:v100:1/cpu4*2", "cpu8"].map(NodeType::new);
        assert_eq!(types.each_ref().map(|t| anywhere.runs_on(t)), [true; 3]);
        assert_eq!(types.each_ref().map(|t| on_a100.runs_on(t)), [true, false, false]);
        assert_eq!([1, 2, 3, 4].map(|n| anywhere.allows_size(n)), [false, true, false, true]);
    }

    #[test]
    fn invalid_plans_are_left_out() {
        let long = "x".repeat(MOST_PLAN_CHARS + 1);
        let plans = ["a", "", "b", "a", "c\n", &long].map(|name| plan(name, &[]));
        let mut invalid = plan("d", &["\u{1b}"]);
        assert_eq!(kept_names(plans.to_vec()), ["a", "b"]);
        assert!(kept_names(vec![invalid.clone()]).is_empty());
        invalid.node_types = vec!["a100".to_owned(); MOST_PLAN_TYPES + 1];
        assert!(kept_names(vec![invalid]).is_empty());
        assert_eq!(keep_valid_plans((0..99).map(|i| plan(&i.to_string(), &[])).collect()).len(), MOST_PLANS);
    }

    fn kept_names(plans: Vec<DeclaredPlan>) -> Vec<String> {
        keep_valid_plans(plans).into_iter().map(|plan| plan.name.0).collect()
    }

    #[test]
    fn an_invalid_part_of_a_plan_is_removed_and_the_plan_stays() {
        let valid = plan("a", &[]);
        assert_eq!(keep_valid_plans(vec![valid.clone()]), std::slice::from_ref(&valid));
        let usual = ParallelStrategy::default();
        for strategy in [
            ParallelStrategy { tp: 0, ..usual },
            ParallelStrategy { pp: u32::MAX, ..usual },
            ParallelStrategy { accumulate: 0, ..usual },
            ParallelStrategy { zero: 9, ..usual },
        ] {
            let invalid = DeclaredPlan { strategy: Some(strategy), ..valid.clone() };
            assert_eq!(
                keep_valid_plans(vec![invalid]),
                [DeclaredPlan { strategy: None, ..valid.clone() }],
                "{strategy:?}"
            );
        }
        let needs = PlanNeeds { cpus: Some(0), memory_mib: Some(u64::MAX), gpu_memory_mib: Some(1) };
        let valid_needs = PlanNeeds { gpu_memory_mib: Some(1), ..PlanNeeds::default() };
        let invalid = DeclaredPlan { needs, ..valid.clone() };
        assert_eq!(keep_valid_plans(vec![invalid]), [DeclaredPlan { needs: valid_needs, ..valid }]);
    }

    #[test]
    fn needs_that_are_not_declared_are_the_share_of_the_places() {
        let own = CpuMemory { cpus: 4, memory_mib: 1000 };
        assert_eq!(needs(None, None).host_portion(own), own);
        assert_eq!(needs(Some(9), None).host_portion(own), CpuMemory { cpus: 9, ..own });
        assert_eq!(needs(None, Some(5)).host_portion(own), CpuMemory { memory_mib: 5, ..own });
        let without_memory = CpuMemory { memory_mib: 0, ..own };
        assert_eq!(
            needs(None, Some(5)).host_portion(without_memory),
            without_memory,
            "the site does not allocate memory"
        );
    }

    fn needs(cpus: Option<u32>, memory_mib: Option<u64>) -> PlanNeeds {
        PlanNeeds { cpus, memory_mib, gpu_memory_mib: Some(1) }
    }

    #[test]
    fn a_plan_without_strategy_and_needs_is_read_and_written() {
        let json = r#"{"name":"dp2","shards":false}"#;
        let read: DeclaredPlan = serde_json::from_str(json).unwrap();
        assert_eq!((read.strategy, read.needs), (None, PlanNeeds::default()));
        assert_eq!(serde_json::to_string(&read).unwrap(), json, "the answer names neither");
        let whole = plan("a", &["a100"]);
        let text = serde_json::to_string(&whole).unwrap();
        assert!(text.contains(r#""needs":{"cpus":8,"memory_mib":65536}"#), "{text}");
        assert_eq!(serde_json::from_str::<DeclaredPlan>(&text).unwrap(), whole);
    }

    #[test]
    fn a_strategy_of_another_form_is_ignored() {
        for json in [
            r#"{"name":"a","strategy":{"tp":-1},"needs":{"cpus":-1}}"#,
            r#"{"name":"a","strategy":{"tp":99999999999},"needs":"much"}"#,
            r#"{"name":"a","strategy":["tp",2],"needs":null}"#,
        ] {
            let read: DeclaredPlan = serde_json::from_str(json).unwrap();
            assert_eq!((read.strategy, read.needs), (None, PlanNeeds::default()), "{json}");
        }
    }
}
