//! The time of a step as a sum of terms. Each term has a factor with a prior.
//!
//! The first terms are Rubick's (MLSys 2025): computing shrinks with the number of GPUs, gradients cross the
//! network, and the optimizer updates parameters, on the CPUs where it is offloaded. The terms of divided
//! models follow from what crosses a link (Narayanan et al., 2021). Tensor parallelism reduces activations
//! twice in each pass of a layer, so that its share shrinks as the hidden size grows. Stages of a pipeline
//! wait for each other for (pp − 1) ÷ micro-batches of their time, and send activations once for each
//! micro-batch. The other terms: GPUs of a node share its links to the network, kernels take time to launch,
//! and rings over nodes with an odd number of GPUs are slow on some machines.

use infill_model::{ModelFacts, Parallelism, PlanMeasurement};

use super::step_parameters::{PARAMETER_COUNT, PlanPriors, StepParameter, UNKNOWN_SHAPE_SD};

/// Below this hidden size, the time of exchanges depends on their start and not on their bytes.
const LEAST_HIDDEN: f64 = 512.0;

/// The number of parameters of each further type of GPU: logarithms of factors to the seconds of computing
/// and of the network.
const PARAMETERS_PER_TYPE: usize = 2;

/// Layers of a model where unknown.
const USUAL_LAYERS: f64 = 24.0;

/// Hidden size of a model where unknown.
const USUAL_HIDDEN: f64 = 2048.0;

/// Model parameters where unknown (logarithm of thousand millions), for a program whose step takes one second
/// on one GPU; and their standard deviation.
const PARAMS_UNKNOWN: (f64, f64) = (-0.55, 0.7);

/// Standard deviation of the logarithm of the model parameters where declared.
const PARAMS_KNOWN_SD: f64 = 0.05;

/// CPUs a GPU where unknown.
const USUAL_CPUS: f64 = 8.0;

/// Factor to the exchange between nodes with ZeRO, which also sends parameters back.
const ZERO_INTER: f64 = 1.28;

/// Factor to the exchange between nodes with offloading, which hides part of it behind the CPUs' work.
const OFFLOAD_INTER: f64 = 0.75;

/// The same factor for the time that odd nodes add.
const OFFLOAD_ODD: f64 = 0.13;

/// Factor to the time of tensor parallelism that spans nodes.
const TENSOR_BETWEEN_NODES: f64 = 5.0;

/// Largest part of a first measurement beside computing, as a logarithm. Beyond it the step is assumed to be
/// mostly computing.
const MOST_BESIDE_COMPUTING: f64 = 6.0;

/// One way to run a program, for which the time of a step is predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedPlan {
    /// The plan, divided over a number of GPUs.
    pub parallelism: Parallelism,
    /// GPUs on each node; at least one node, and none without GPUs.
    pub gpus_by_node: Vec<u32>,
    /// Samples of a step, over all GPUs.
    pub global_batch: f64,
    /// CPUs for each GPU, where known.
    pub cpus_per_gpu: Option<f64>,
    /// Index of the GPU type. The type of the first measurement should be 0.
    pub node_type: usize,
}

impl From<&PlanMeasurement> for PlacedPlan {
    fn from(run: &PlanMeasurement) -> PlacedPlan {
        PlacedPlan {
            parallelism: run.parallelism,
            gpus_by_node: run.gpus_by_node.clone(),
            global_batch: run.global_batch,
            cpus_per_gpu: run.cpus_per_gpu,
            node_type: 0,
        }
    }
}

/// A way to run as the terms see it.
#[derive(Clone, Debug)]
pub(super) struct RunFeatures {
    pub(super) parallelism: Parallelism,
    pub(super) gpus_by_node: Vec<u32>,
    pub(super) node_type: usize,
    /// [dp, tp, pp, micro-batches].
    split: [f64; 4],
    pub(super) gpus: u32,
    /// Fewest and most GPUs of a node.
    fewest: f64,
    most: f64,
    pub(super) several_nodes: bool,
    /// Whether rings span nodes with an odd number of GPUs.
    pub(super) odd: bool,
    /// CPUs a GPU, as a multiple of the usual number.
    cpus: f64,
    batch: f64,
}

impl RunFeatures {
    pub(super) fn from_plan(placed: &PlacedPlan) -> RunFeatures {
        let parallelism = placed.parallelism;
        let strategy = parallelism.strategy;
        let by_node = &placed.gpus_by_node;
        let gpus: u32 = by_node.iter().sum();
        let several_nodes = by_node.len() > 1;
        let odd = several_nodes && gpus > 2 && by_node.iter().any(|g| g % 2 == 1);
        RunFeatures {
            parallelism,
            gpus_by_node: by_node.clone(),
            node_type: placed.node_type,
            split: [parallelism.dp, strategy.tp, strategy.pp, strategy.accumulate]
                .map(|n| f64::from(n.max(1))),
            gpus,
            fewest: f64::from(by_node.iter().min().copied().unwrap_or(1)),
            most: f64::from(by_node.iter().max().copied().unwrap_or(1)),
            several_nodes,
            odd: odd && !strategy.divides_model(),
            cpus: placed.cpus_per_gpu.map_or(1.0, |cpus| cpus.max(0.1) / USUAL_CPUS),
            batch: placed.global_batch,
        }
    }

    /// Whether a measurement of one is a measurement of the other.
    pub(super) fn is_same(&self, other: &RunFeatures) -> bool {
        self.node_type == other.node_type
            && self.parallelism == other.parallelism
            && self.batch == other.batch
            && self.cpus == other.cpus
            && self.gpus_by_node == other.gpus_by_node
    }

    /// Logarithm of the seconds of a step, and the share of them that odd nodes add.
    pub(super) fn log_secs(&self, terms: &StepTerms, theta: &[f64]) -> (f64, f64) {
        let evaluator = TermEvaluator { row: self, terms, theta };
        let odd = evaluator.odd_node_secs();
        let secs = evaluator.regular_secs() + odd;
        (secs.ln(), odd / secs)
    }
}

/// The terms of one program, with the priors of their parameters.
#[derive(Clone, Debug)]
pub(super) struct StepTerms {
    layers: f64,
    hidden: f64,
    facts: Option<ModelFacts>,
    /// Samples of the step to which `Compute` refers.
    batch: f64,
    /// Prior mean of each parameter.
    pub(super) mean: Vec<f64>,
    /// Prior standard deviation of each parameter.
    pub(super) sd: Vec<f64>,
}

impl StepTerms {
    /// The terms of a program. `types`: for each type of GPU but the first, how much slower it is believed to
    /// be, as mean and standard deviation of the logarithm.
    pub(super) fn new(facts: Option<ModelFacts>, priors: &PlanPriors, types: &[(f64, f64)]) -> StepTerms {
        let mut mean = priors.mean.to_vec();
        let mut sd = priors.sd.to_vec();
        let layers = facts.and_then(|facts| facts.layers).map(f64::from);
        let hidden = facts.and_then(|facts| facts.hidden).map(f64::from);
        for (known, parameter) in [(layers, StepParameter::Launch), (hidden, StepParameter::Tensor)] {
            if known.is_none() {
                sd[parameter as usize] = sd[parameter as usize].hypot(UNKNOWN_SHAPE_SD);
            }
        }
        for (slower, slower_sd) in types {
            mean.extend([*slower, 0.0]);
            sd.extend([*slower_sd, priors.network_of_type_sd]);
        }
        let hidden = hidden.map_or(USUAL_HIDDEN, |hidden| hidden.max(LEAST_HIDDEN));
        let layers = layers.unwrap_or(USUAL_LAYERS);
        StepTerms { layers, hidden, facts, batch: 1.0, mean, sd }
    }

    /// Sets the prior of the job's scale from its first measurement (logarithm of seconds).
    pub(super) fn anchor_to_first(&mut self, row: &RunFeatures, log_secs: f64) {
        self.batch = row.batch;
        let compute = StepParameter::Compute as usize;
        let params = StepParameter::Params as usize;
        self.mean[compute] = log_secs;
        for _ in 0..30 {
            match self.facts {
                Some(facts) => {
                    self.mean[params] = (facts.params_mi * 1e-3).ln();
                    self.sd[params] = PARAMS_KNOWN_SD;
                }
                None => {
                    self.mean[params] = PARAMS_UNKNOWN.0 + self.mean[compute];
                    self.sd[params] = PARAMS_UNKNOWN.1;
                }
            }
            let miss = log_secs - row.log_secs(self, &self.mean).0;
            self.mean[compute] += miss.clamp(-1.0, 1.0);
            if miss.abs() < 1e-3 || self.mean[compute] < log_secs - MOST_BESIDE_COMPUTING {
                break;
            }
        }
    }
}

/// A row with values for the parameters of the terms.
struct TermEvaluator<'a> {
    row: &'a RunFeatures,
    terms: &'a StepTerms,
    theta: &'a [f64],
}

impl TermEvaluator<'_> {
    fn raw_value(&self, parameter: StepParameter) -> f64 {
        self.theta[parameter as usize]
    }

    fn exp_value(&self, parameter: StepParameter) -> f64 {
        self.raw_value(parameter).exp()
    }

    /// Factor to the seconds of computing (`kind` 0) or of the network (1) on the row's type.
    fn type_factor(&self, kind: usize) -> f64 {
        let Some(further) = self.row.node_type.checked_sub(1) else { return 1.0 };
        let index = PARAMETER_COUNT + further * PARAMETERS_PER_TYPE + kind;
        self.theta.get(index).map_or(1.0, |log| log.exp())
    }

    /// Seconds of a step without those that odd nodes add.
    fn regular_secs(&self) -> f64 {
        let [dp, tp, pp, micro_batches] = self.row.split;
        let strategy = self.row.parallelism.strategy;
        let work = self.exp_value(StepParameter::Compute) * self.row.batch / self.terms.batch;
        let bubble = (1.0 + (pp - 1.0) / micro_batches).powf(self.raw_value(StepParameter::Bubble));
        let recomputed = f64::from(u8::from(strategy.checkpointing));
        let divided = if strategy.divides_model() { self.exp_value(StepParameter::Divided) } else { 1.0 };
        let alone = if self.row.gpus > 1 { 1.0 } else { self.exp_value(StepParameter::Alone) };
        let compute =
            work * divided * alone * (1.0 + self.exp_value(StepParameter::Recompute) * recomputed) * bubble
                / (dp * tp * pp);
        let launch = self.exp_value(StepParameter::Launch) * micro_batches * self.terms.layers / pp
            * (1.0 + recomputed / 3.0)
            * bubble;
        let fixed = if strategy.divides_model() {
            0.0
        } else {
            self.exp_value(StepParameter::Compute) * self.exp_value(StepParameter::Fixed)
        };
        let stage = self.exp_value(StepParameter::Stage) * work * (pp - 1.0) / dp
            * (1.0 / micro_batches + (1.0 - 1.0 / micro_batches) / pp);
        let params = self.exp_value(StepParameter::Params) / (tp * pp);
        let replicas = if strategy.zero > 0 { dp } else { 1.0 };
        let optimize = self.exp_value(StepParameter::Optimize) * params / replicas;
        let computing = compute / 3.0 + launch + fixed + optimize;
        let network = stage + self.tensor_secs(work) * bubble * (1.0 + recomputed / 2.0);
        let backward = self.overlapped_secs(
            compute * 2.0 / 3.0 * self.type_factor(0),
            self.gradient_secs(params) * self.type_factor(1),
        );
        self.exp_value(StepParameter::Constant)
            + computing * self.type_factor(0)
            + network * self.type_factor(1)
            + backward
            + self.offload_secs(params)
    }

    /// Seconds of two activities that partly overlap.
    fn overlapped_secs(&self, a: f64, b: f64) -> f64 {
        let power = 1.0 + self.exp_value(StepParameter::Overlap);
        (a.powf(power) + b.powf(power)).powf(1.0 / power)
    }

    /// Seconds of tensor parallelism's exchanges, for a step with this compute time.
    fn tensor_secs(&self, work: f64) -> f64 {
        let [dp, tp, pp, _] = self.row.split;
        let crossing = if tp > self.row.fewest { TENSOR_BETWEEN_NODES } else { 1.0 };
        self.exp_value(StepParameter::Tensor) * work * (USUAL_HIDDEN / self.terms.hidden) * (tp - 1.0)
            / (tp * dp * pp)
            * crossing
    }

    /// Seconds to exchange the gradients of this number of model parameters, thousand millions.
    fn gradient_secs(&self, params: f64) -> f64 {
        let [dp, tp, _, _] = self.row.split;
        let strategy = self.row.parallelism.strategy;
        let fewest = self.row.fewest;
        let crossing = self.row.several_nodes && tp * dp > fewest;
        let members = (fewest / tp).floor().clamp(1.0, dp);
        // Rings that leave a node together share its links.
        let rings = if strategy.divides_model() { fewest / members } else { 1.0 };
        let zero = if strategy.zero > 0 { ZERO_INTER } else { 1.0 };
        let offload = if strategy.offload { OFFLOAD_INTER } else { 1.0 };
        let inter = if crossing {
            self.exp_value(StepParameter::Inter) * self.network_factor() * rings * zero * offload
        } else {
            0.0
        };
        params * (dp - 1.0) / dp * (self.exp_value(StepParameter::Intra) + inter)
    }

    /// Factor to the time between nodes, compared with nodes that have one GPU each. Several GPUs have more
    /// links.
    fn network_factor(&self) -> f64 {
        let pair = self.row.fewest.min(2.0);
        let rails = (self.row.fewest.min(8.0) / 2.0).max(1.0);
        pair.powf(-self.raw_value(StepParameter::Pair)) * rails.powf(-self.raw_value(StepParameter::Rails))
    }

    /// Seconds of the optimizer on the CPUs, for this number of model parameters, thousand millions.
    fn offload_secs(&self, params: f64) -> f64 {
        if !self.row.parallelism.strategy.offload {
            return 0.0;
        }
        let cpus = self.row.cpus.powf(-self.raw_value(StepParameter::Cpus));
        params
            * (self.exp_value(StepParameter::Offload) * cpus / self.row.split[0]
                + self.exp_value(StepParameter::OffloadFixed))
    }

    /// Seconds that odd nodes add.
    fn odd_node_secs(&self) -> f64 {
        if !self.row.odd {
            return 0.0;
        }
        let hidden = if self.row.parallelism.strategy.offload { OFFLOAD_ODD } else { 1.0 };
        self.exp_value(StepParameter::Params)
            * self.exp_value(StepParameter::Odd)
            * self.row.most.powf(self.raw_value(StepParameter::OddPower))
            * hidden
    }
}
