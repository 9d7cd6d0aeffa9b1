//! How a training is divided over GPUs, and measurements of its speed.

use serde::{Deserialize, Deserializer, Serialize};

use super::ExecPlan;
use crate::words;

/// How an execution plan divides model, optimizer and batch, for any number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ParallelStrategy {
    /// GPUs that share each layer: tensor parallelism.
    pub tp: u32,
    /// Stages that the layers are divided into: pipeline parallelism.
    pub pp: u32,
    /// The ZeRO stage, 0 to 3: which of optimizer state, gradients and weights the replicas share.
    pub zero: u32,
    /// Whether the optimizer runs on the CPUs (ZeRO-Offload).
    pub offload: bool,
    /// Micro-batches that each replica computes in sequence in a step.
    pub accumulate: u32,
    /// Whether activations are computed again in the backward pass (gradient checkpointing).
    pub checkpointing: bool,
}

impl ParallelStrategy {
    /// GPUs that hold one replica of the model.
    pub fn gpus_per_replica(&self) -> u32 {
        self.tp.saturating_mul(self.pp)
    }

    /// Whether the model itself is divided, not only the batch.
    pub fn divides_model(&self) -> bool {
        self.tp > 1 || self.pp > 1
    }

    /// This strategy on a number of GPUs. `None` if they do not divide into whole replicas.
    pub fn on_gpus(self, gpus: u32) -> Option<Parallelism> {
        let per_replica = self.gpus_per_replica();
        let dp = gpus.checked_div(per_replica)?;
        let is_whole = dp > 0 && gpus.is_multiple_of(per_replica);
        if is_whole { Some(Parallelism { dp, strategy: self }) } else { None }
    }
}

impl Default for ParallelStrategy {
    /// Data parallelism alone.
    fn default() -> Self {
        ParallelStrategy { tp: 1, pp: 1, zero: 0, offload: false, accumulate: 1, checkpointing: false }
    }
}

/// A strategy on some GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// Replicas of the model: data parallelism.
    pub dp: u32,
    /// The strategy of each replica.
    pub strategy: ParallelStrategy,
}

impl Parallelism {
    /// The number of GPUs that it takes.
    pub fn gpus(&self) -> u32 {
        self.dp.saturating_mul(self.strategy.gpus_per_replica())
    }
}

/// One measurement of an execution plan on some GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanMeasurement {
    /// The plan's name.
    pub plan: ExecPlan,
    /// The plan's parallelism.
    pub parallelism: Parallelism,
    /// Samples per step, over all GPUs.
    pub global_batch: f64,
    /// GPUs on each node. There is at least one node, and each has a GPU.
    pub gpus_by_node: Vec<u32>,
    /// CPUs for each GPU, if known.
    pub cpus_per_gpu: Option<f64>,
    /// Measured samples a second.
    pub rate: f64,
}

impl PlanMeasurement {
    /// The number of GPUs on all nodes.
    pub fn gpus(&self) -> u32 {
        self.gpus_by_node.iter().sum()
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.gpus_by_node.len()).unwrap_or(u32::MAX)
    }
}

words! {
    /// The number format in which a training computes and stores its weights.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Precision {
        /// Computes in 16 bits, and stores weights and optimizer state in 32: automatic mixed precision.
        #[default]
        Mixed = "mixed",
        /// Everything in 16 bits.
        Half = "half",
        /// Everything in 32 bits.
        Single = "single",
    }
}

/// The known facts about a model before any measurement. The number of parameters is always known; a program
/// may declare the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelFacts {
    /// Parameters in millions.
    pub params_mi: f64,
    /// Layers (blocks of a transformer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// Hidden size: the numbers that represent a token between two layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<u32>,
    /// Attention heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// Tokens per sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// Samples per step, over all GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u32>,
    /// The number format of the training. A word of a newer version is read as the default.
    #[serde(
        default,
        deserialize_with = "precision_or_default",
        skip_serializing_if = "Precision::is_default"
    )]
    pub precision: Precision,
}

impl Precision {
    /// Whether this is the default, which JSON leaves out.
    fn is_default(&self) -> bool {
        *self == Precision::default()
    }
}

/// Reads a precision. An unknown one is read as the default, because it must not make a job fail.
fn precision_or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(word.parse().unwrap_or_default())
}

impl ModelFacts {
    /// A model with this many million parameters, and no other known facts.
    pub fn from_params(params_mi: f64) -> Self {
        ModelFacts {
            params_mi,
            layers: None,
            hidden: None,
            heads: None,
            sequence: None,
            global_batch: None,
            precision: Precision::default(),
        }
    }
}
