//! A closed machine, as published experiments have it: no main queue, jobs that come and train, and what was
//! measured of their models.

use super::{ExecPlan, NodeType, Parallelism};

/// A job as it was submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedJob {
    /// Its name, unique in a workload.
    pub name: String,
    /// When it is submitted, s since the workload's start.
    pub submit_secs: f64,
    /// What it trains: the key of its speeds.
    pub model: String,
    /// How many GPUs it asks for, at least 1.
    pub gpus: u32,
    /// The type of GPU that it asks for, if it does.
    pub node_type: Option<NodeType>,
    /// The execution plan that it was submitted with, if it says so.
    pub plan: Option<ExecPlan>,
    /// Work: steps, positive.
    pub steps: f64,
}

/// How fast a model trains with one execution plan on one placement.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedRow {
    /// The model.
    pub model: String,
    /// The type of GPU; `None` where the table knows but one.
    pub node_type: Option<NodeType>,
    /// The plan's name.
    pub plan: ExecPlan,
    /// What the plan does, where the table says so.
    pub parallelism: Option<Parallelism>,
    /// Samples of a step, over all GPUs.
    pub batch: f64,
    /// GPUs on each node, ascending; at least one node, none without GPUs.
    pub gpus_by_node: Vec<u32>,
    /// Seconds of a step.
    pub step_secs: f64,
}

/// What was estimated of one way to run a model, without running it on so many GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimateRow {
    /// The model.
    pub model: String,
    /// The type of GPU.
    pub node_type: NodeType,
    /// How the model is split.
    pub parallelism: Parallelism,
    /// GPUs on each node, ascending; at least one node, none without GPUs.
    pub gpus_by_node: Vec<u32>,
    /// Seconds that a GPU computes in a step, as it was profiled on one.
    pub compute_secs: f64,
    /// Seconds of a step.
    pub step_secs: f64,
}

impl SpeedRow {
    /// GPUs on all nodes.
    pub fn gpus(&self) -> u32 {
        self.gpus_by_node.iter().sum()
    }
}
