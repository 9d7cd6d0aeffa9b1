//! How a training is split over GPUs, and what was measured of that.

use serde::{Deserialize, Deserializer, Serialize};

use super::ExecPlan;
use crate::words;

/// What an execution plan does with model, optimizer and batch, on whatever number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ParallelStrategy {
    /// GPUs that share each layer: tensor parallelism.
    pub tp: u32,
    /// Stages that the layers are divided into: pipeline parallelism.
    pub pp: u32,
    /// Stage of ZeRO, 0 to 3: what replicas share of optimizer, gradients and weights.
    pub zero: u32,
    /// Whether the optimizer works on the CPUs (ZeRO-Offload).
    pub offload: bool,
    /// Micro-batches that each replica computes in a step, one after the other.
    pub accumulate: u32,
    /// Whether activations are computed again for the backward pass (gradient checkpointing).
    pub checkpointing: bool,
}

impl ParallelStrategy {
    /// GPUs that hold one replica of the model.
    pub fn gpus_per_replica(&self) -> u32 {
        self.tp.saturating_mul(self.pp)
    }

    /// Whether the model is divided, and not only the batch.
    pub fn divides_model(&self) -> bool {
        self.tp > 1 || self.pp > 1
    }

    /// The same on so many GPUs; `None` where these cannot be divided so.
    pub fn on_gpus(self, gpus: u32) -> Option<Parallelism> {
        let replica = self.gpus_per_replica();
        let dp = gpus.checked_div(replica).filter(|dp| *dp > 0 && gpus.is_multiple_of(replica))?;
        Some(Parallelism { dp, strategy: self })
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
    /// What each of them does.
    pub strategy: ParallelStrategy,
}

impl Parallelism {
    /// GPUs that it takes.
    pub fn gpus(&self) -> u32 {
        self.dp.saturating_mul(self.strategy.gpus_per_replica())
    }
}

/// One measurement: an execution plan on some GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanMeasurement {
    /// The plan's name.
    pub plan: ExecPlan,
    /// What it does.
    pub parallelism: Parallelism,
    /// Samples of a step, over all GPUs.
    pub global_batch: f64,
    /// GPUs on each node, at least one node, none without GPUs.
    pub gpus_by_node: Vec<u32>,
    /// CPUs for each GPU, where known.
    pub cpus_per_gpu: Option<f64>,
    /// Samples a second.
    pub rate: f64,
}

impl PlanMeasurement {
    /// GPUs on all nodes.
    pub fn gpus(&self) -> u32 {
        self.gpus_by_node.iter().sum()
    }

    /// Nodes.
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.gpus_by_node.len()).unwrap_or(u32::MAX)
    }
}

words! {
    /// Numbers in which a training computes and keeps its weights.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Precision {
        /// Computes in 16 bits, and keeps weights and optimizer in 32: automatic mixed precision.
        #[default]
        Mixed = "mixed",
        /// All in 16 bits.
        Half = "half",
        /// All in 32 bits.
        Single = "single",
    }
}

/// What is known of a model before anything is measured. Its parameters are; of the rest, what a program
/// tells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelFacts {
    /// Parameters, millions.
    pub params_mi: f64,
    /// Layers (blocks of a transformer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// Hidden size: numbers that stand for a token between two layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<u32>,
    /// Heads of attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// Tokens of a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// Samples of a step, over all GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u32>,
    /// In which numbers it trains. A word of a newer version is read as the usual one.
    #[serde(default, deserialize_with = "known_or_usual", skip_serializing_if = "Precision::is_usual")]
    pub precision: Precision,
}

impl Precision {
    /// Whether it is what most train in, which need not be said.
    fn is_usual(&self) -> bool {
        *self == Precision::default()
    }
}

/// An unknown precision is no reason to refuse a job.
fn known_or_usual<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(word.parse().unwrap_or_default())
}

impl ModelFacts {
    /// Of a model of which only its parameters are known, millions.
    pub fn from_params(params_mi: f64) -> Self {
        let nothing = None::<u32>;
        ModelFacts {
            params_mi,
            layers: nothing,
            hidden: nothing,
            heads: nothing,
            sequence: nothing,
            global_batch: nothing,
            precision: Precision::default(),
        }
    }
}
