//! How a training is split over GPUs, and what was measured of that.

use super::ExecPlan;

/// What an execution plan does with model, batch and optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// Replicas of the model: data parallelism.
    pub dp: u32,
    /// GPUs that share each layer: tensor parallelism.
    pub tp: u32,
    /// Stages that the layers are divided into: pipeline parallelism.
    pub pp: u32,
    /// Whether replicas share the optimizer's state (ZeRO, any stage).
    pub zero: bool,
    /// Whether the optimizer works on the CPUs (ZeRO-Offload).
    pub offload: bool,
    /// Whether activations are computed again for the backward pass (gradient checkpointing).
    pub recompute: bool,
}

impl Parallelism {
    /// GPUs that it takes.
    pub fn gpus(&self) -> u32 {
        self.dp.saturating_mul(self.tp).saturating_mul(self.pp)
    }

    /// Whether the model is divided, and not only the batch.
    pub fn divides_model(&self) -> bool {
        self.tp > 1 || self.pp > 1
    }
}

/// One measurement: an execution plan on some GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRun {
    /// The plan's name.
    pub plan: ExecPlan,
    /// What it does.
    pub parallelism: Parallelism,
    /// Samples of a step, over all GPUs.
    pub global_batch: f64,
    /// GPUs on each node, at least one node, none without GPUs.
    pub gpus_by_node: Vec<u32>,
    /// Samples a second.
    pub rate: f64,
}

impl PlanRun {
    /// GPUs on all nodes.
    pub fn gpus(&self) -> u32 {
        self.gpus_by_node.iter().sum()
    }

    /// Nodes.
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.gpus_by_node.len()).unwrap_or(u32::MAX)
    }
}

/// What is known of a model before anything is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelFacts {
    /// Parameters, millions.
    pub params_mi: f64,
}
