//! A closed machine, as in published experiments: it has no main queue. Jobs arrive and train, and tables
//! hold measurements of their models.

use super::{ExecPlan, NodeType, Parallelism};

/// A job as it is submitted to a closed machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedJob {
    /// The job's name, unique in a workload.
    pub name: String,
    /// Submission time, in seconds since the workload's start.
    pub submit_secs: f64,
    /// The model that it trains: the key of its rows in the table of speeds.
    pub model: String,
    /// The number of GPUs that it asks for, at least 1.
    pub gpus: u32,
    /// The type of GPU that it asks for, if any.
    pub node_type: Option<NodeType>,
    /// The execution plan that it was submitted with, if the workload says so.
    pub plan: Option<ExecPlan>,
    /// Work in steps, positive.
    pub steps: f64,
}

/// How fast a model trains with one execution plan on one placement.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedRow {
    /// The model's name.
    pub model: String,
    /// The type of GPU; `None` if the table has only one type.
    pub node_type: Option<NodeType>,
    /// The plan's name.
    pub plan: ExecPlan,
    /// The parallelism of the plan, if the table says so.
    pub parallelism: Option<Parallelism>,
    /// Samples per step, over all GPUs.
    pub batch: f64,
    /// GPUs on each node, ascending. There is at least one node, and each has a GPU.
    pub gpus_by_node: Vec<u32>,
    /// Seconds per step.
    pub step_secs: f64,
}

/// An estimate for one way to run a model, made without running it on that many GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimateRow {
    /// The model's name.
    pub model: String,
    /// The type of GPU.
    pub node_type: NodeType,
    /// How the model is divided over GPUs.
    pub parallelism: Parallelism,
    /// GPUs on each node, ascending. There is at least one node, and each has a GPU.
    pub gpus_by_node: Vec<u32>,
    /// Seconds that a GPU computes in a step, as profiled on one GPU.
    pub compute_secs: f64,
    /// Estimated seconds per step.
    pub step_secs: f64,
}

impl SpeedRow {
    /// The number of GPUs on all nodes.
    pub fn gpus(&self) -> u32 {
        self.gpus_by_node.iter().sum()
    }
}
