//! The memory of a GPU that an execution plan needs, from the facts of the model.
//!
//! Memory is the sum of three parts. *States* are weights, gradients and Adam's moments, divided over
//! replicas as ZeRO does (Rajbhandari et al., 2020). *Activations* are what each layer keeps for the backward
//! pass. Tensor parallelism divides 24 of their 34 bytes a token and hidden unit (Korthikanti et al., 2022).
//! *Logits* are the scores of the vocabulary, which only the last stage of a pipeline has. The bytes of each
//! part were fitted to 59 peaks of GPT-2 with 124, 355 and 774 million parameters on an H100 with PyTorch
//! 2.11. The number of tokens in the vocabulary follows from the parameters that are not in layers.

use infill_model::{ModelFacts, Parallelism, Precision};

/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Share of a GPU's memory that a plan may count on. The rest is for fragments, buffers and kernels.
pub const USABLE_MEMORY_SHARE: f64 = 0.9;

/// Parameters of a transformer's layer, in squares of its hidden size.
const PARAMS_OF_A_LAYER: f64 = 12.0;

/// Bytes of the logits, for each token and each word of the vocabulary: the scores, their softmax and their
/// gradients.
const LOGIT_BYTES: f64 = 12.0;

/// Share of a layer's activations that tensor parallelism does not divide.
const UNDIVIDED_SHARE: f64 = 10.0 / 34.0;

/// Bytes of each parameter.
struct StateBytes {
    weights: f64,
    gradients: f64,
    optimizer: f64,
    /// Copies of the weights in 16 bits that autocast keeps through a pass.
    cast: f64,
}

/// Bytes of a layer for each token and hidden unit.
struct ActivationBytes {
    /// All that the backward pass needs.
    kept: f64,
    /// The layer's input alone, which checkpointing keeps.
    input: f64,
}

fn bytes_per_param(precision: Precision) -> StateBytes {
    match precision {
        Precision::Mixed => StateBytes { weights: 4.0, gradients: 4.0, optimizer: 8.0, cast: 2.0 },
        Precision::Half => StateBytes { weights: 2.0, gradients: 2.0, optimizer: 4.0, cast: 0.0 },
        Precision::Single => StateBytes { weights: 4.0, gradients: 4.0, optimizer: 8.0, cast: 0.0 },
    }
}

fn bytes_per_token(precision: Precision) -> ActivationBytes {
    match precision {
        Precision::Mixed => ActivationBytes { kept: 84.0, input: 4.4 },
        Precision::Half => ActivationBytes { kept: 56.0, input: 2.2 },
        Precision::Single => ActivationBytes { kept: 112.0, input: 4.4 },
    }
}

/// GiB at the peak of a step with `global_batch` samples, on the GPU that needs most. `None` where the number
/// of layers, the hidden size or the tokens of a sample are unknown.
pub fn gpu_memory_gib(model: &ModelFacts, parallelism: Parallelism, global_batch: f64) -> Option<f64> {
    let layers = f64::from(model.layers?);
    let hidden = f64::from(model.hidden?);
    let strategy = parallelism.strategy;
    let tp = f64::from(strategy.tp);
    let pp = f64::from(strategy.pp);
    let replicas = f64::from(parallelism.dp);
    let micro_batches = f64::from(strategy.accumulate);
    let params = model.params_mi * 1e6;
    let tokens = f64::from(model.sequence?) * global_batch / (replicas * micro_batches);

    let model_bytes = state_bytes(model.precision, parallelism) * params / (tp * pp);
    let bytes = bytes_per_token(model.precision);
    let whole_layer = bytes.kept * tokens * hidden * (UNDIVIDED_SHARE + (1.0 - UNDIVIDED_SHARE) / tp);
    let kept_layer = if strategy.checkpointing { bytes.input * tokens * hidden } else { whole_layer };
    let vocabulary = ((params - PARAMS_OF_A_LAYER * layers * hidden * hidden) / hidden).max(0.0);
    let logits = LOGIT_BYTES * vocabulary * tokens / tp;
    // Layers that are computed again need their activations once the logits are gone.
    let recomputed = if strategy.checkpointing { whole_layer } else { 0.0 };
    let kept = kept_layer * layers / pp;
    // The first stage of a pipeline keeps as many micro-batches as there are stages, because it has begun all
    // of them when the first one comes back.
    let first_stage = kept * pp.min(micro_batches) + recomputed;
    let last_stage = kept + logits.max(recomputed);
    let most = if pp > 1.0 { first_stage.max(last_stage) } else { last_stage };
    Some((model_bytes + most) / GIB)
}

/// Bytes of states for each parameter on a GPU: weights, gradients, optimizer.
fn state_bytes(precision: Precision, parallelism: Parallelism) -> f64 {
    let states = bytes_per_param(precision);
    let strategy = parallelism.strategy;
    let replicas = f64::from(parallelism.dp);
    // Gradients stay from one micro-batch to the next, and in the buckets that replicas exchange. Otherwise
    // they are made while activations are freed.
    let gradients = if strategy.accumulate > 1 || parallelism.dp > 1 || strategy.zero > 0 {
        states.gradients
    } else {
        0.0
    };
    let cast = if strategy.checkpointing { 0.0 } else { states.cast };
    // ZeRO implementations keep weights and gradients in 16 bits where they can, and the rest with the
    // optimizer.
    let zero_bytes = if precision == Precision::Mixed { 2.0 } else { f64::INFINITY };
    let weights = states.weights.min(zero_bytes);
    let short_gradients = gradients.min(zero_bytes);
    let all = states.weights + states.gradients + states.optimizer;
    match (strategy.offload, strategy.zero) {
        // The optimizer and its copy of the weights are on the host.
        (true, _) => weights + short_gradients,
        (false, 0) => states.weights + gradients + states.optimizer + cast,
        (false, 1) => weights + short_gradients + (all - weights - short_gradients) / replicas,
        (false, 2) => weights + (all - weights) / replicas,
        (false, _) => all / replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::ParallelStrategy;

    /// GPT-2 of 774 million parameters.
    fn gpt2() -> ModelFacts {
        ModelFacts {
            layers: Some(36),
            hidden: Some(1280),
            sequence: Some(1024),
            ..ModelFacts::from_params(774.03)
        }
    }

    fn gib(model: &ModelFacts, dp: u32, strategy: ParallelStrategy, global_batch: f64) -> f64 {
        gpu_memory_gib(model, Parallelism { dp, strategy }, global_batch).unwrap()
    }

    #[test]
    fn measured_peaks_are_predicted() {
        let plain = ParallelStrategy::default();
        let close = |predicted: f64, measured: f64| (predicted / measured - 1.0).abs() < 0.05;
        assert!(close(gib(&gpt2(), 1, plain, 8.0), 44.371));
        assert!(close(gib(&gpt2(), 1, ParallelStrategy { accumulate: 4, ..plain }, 16.0), 30.146));
        assert!(close(gib(&gpt2(), 1, ParallelStrategy { checkpointing: true, ..plain }, 64.0), 57.364));
    }

    #[test]
    fn divided_models_need_less() {
        let model = gpt2();
        let plain = ParallelStrategy::default();
        let at = |dp: u32, strategy: ParallelStrategy| gib(&model, dp, strategy, f64::from(dp) * 8.0);
        let zero = |zero: u32| at(8, ParallelStrategy { zero, ..plain });
        assert!((0..3).all(|stage| zero(stage) > zero(stage + 1)));
        assert!(at(1, ParallelStrategy { offload: true, ..plain }) < at(1, plain));
        let whole = at(1, plain);
        let halves = at(1, ParallelStrategy { tp: 2, ..plain });
        assert!(halves < whole && halves > whole / 2.0, "norms and dropout are not divided");
        let few = ParallelStrategy { pp: 4, accumulate: 8, ..plain };
        assert!(at(1, few) < at(1, ParallelStrategy { accumulate: 8, ..plain }));
    }

    #[test]
    fn without_facts_nothing_is_predicted() {
        let parallelism = Parallelism { dp: 1, strategy: ParallelStrategy::default() };
        assert_eq!(gpu_memory_gib(&ModelFacts::from_params(774.0), parallelism, 8.0), None);
        assert_eq!(gpu_memory_gib(&ModelFacts { sequence: None, ..gpt2() }, parallelism, 8.0), None);
    }
}
