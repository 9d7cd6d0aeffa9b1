//! The parameters of the terms of a step's time, and their priors.

/// A parameter that all plans of a program share, in the order of its index. All but `Pair`, `Rails`,
/// `OddPower` and `Bubble` are logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepParameter {
    /// Seconds of one GPU for a step's forward and backward pass.
    Compute,
    /// Model parameters, thousand millions.
    Params,
    /// The optimizer, seconds for a thousand million model parameters.
    Optimize,
    /// Exchange of gradients within a node, seconds for a thousand million model parameters.
    Intra,
    /// Exchange of gradients between nodes with one GPU each, seconds for a thousand million model
    /// parameters.
    Inter,
    /// Time that nodes with an odd number of GPUs add, seconds for a thousand million model parameters.
    Odd,
    /// Exponent for how much faster nodes with two GPUs are between nodes than those with one.
    Pair,
    /// Exponent for how much faster nodes with more than two GPUs are.
    Rails,
    /// Exponent of the GPUs of the largest node in the time that odd nodes add.
    OddPower,
    /// Factor to computing on one GPU, which exchanges nothing.
    Alone,
    /// The optimizer on the CPUs of one GPU, seconds for a thousand million model parameters.
    Offload,
    /// The part of the offloaded optimizer's time that is not divided over replicas.
    OffloadFixed,
    /// Share of computing that recomputation adds.
    Recompute,
    /// Tensor parallelism's exchanges, as a share of computing, for a hidden size of 2,048.
    Tensor,
    /// Exponent of the factor that a pipeline's bubble adds to a step.
    Bubble,
    /// Time to send activations to each further stage, as a share of `Compute`.
    Stage,
    /// Factor to computing where the model is divided.
    Divided,
    /// Time that is never divided, as a share of `Compute`.
    Fixed,
    /// Seconds to launch the kernels of a layer, for each micro-batch.
    Launch,
    /// How little gradients hide behind the backward pass. Two times add up as the root of the sum of their
    /// powers, with the exponent 1 plus this.
    Overlap,
    /// Further seconds of each step.
    Constant,
    /// Exponent for how much faster more CPUs a GPU make the offloaded optimizer.
    Cpus,
}

/// Number of parameters that all plans share.
pub(super) const PARAMETER_COUNT: usize = 22;

/// Standard deviation of the time of a layer where the model's number of layers, or their size, is unknown.
pub(super) const UNKNOWN_SHAPE_SD: f64 = 0.5;

/// Standard deviation of the logarithm of how a further type's network compares with the first type's.
const NETWORK_OF_TYPE_SD: f64 = 0.3;

/// Standard deviations of the shares of the residual, as logarithms of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ResidualShares {
    /// The share of a strategy.
    pub(super) strategy: f64,
    /// The share of a kind of strategies, on one node or on several.
    pub(super) kind: f64,
    /// The share of a placement.
    pub(super) placement: f64,
    /// The share of a number of GPUs, for a kind.
    pub(super) gpus: f64,
    /// The share of one way to run alone.
    pub(super) alone: f64,
    /// The share of the time that odd nodes add.
    pub(super) odd: f64,
}

impl ResidualShares {
    /// The shares times a factor.
    pub(super) fn scaled_by(self, factor: f64) -> ResidualShares {
        ResidualShares {
            strategy: self.strategy * factor,
            kind: self.kind * factor,
            placement: self.placement * factor,
            gpus: self.gpus * factor,
            alone: self.alone * factor,
            odd: self.odd * factor,
        }
    }
}

/// The prior of a program's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanPriors {
    pub(super) mean: [f64; PARAMETER_COUNT],
    pub(super) sd: [f64; PARAMETER_COUNT],
    pub(super) network_of_type_sd: f64,
    pub(super) shares: ResidualShares,
}

/// Mean and standard deviation of each parameter before any program is measured, in the order of
/// [`StepParameter`]. The first two depend on the program.
pub(super) const REFERENCE_PRIORS: [(f64, f64); PARAMETER_COUNT] = [
    (0.00, 3.00),
    (0.00, 0.05),
    (-2.90, 0.60),
    (-1.60, 0.80),
    (-0.97, 0.70),
    (-2.50, 1.27),
    (0.30, 0.25),
    (1.13, 0.20),
    (0.58, 0.16),
    (0.03, 0.38),
    (-0.25, 0.37),
    (-1.20, 0.59),
    (-1.10, 0.13),
    (-1.30, 0.77),
    (0.80, 0.25),
    (-2.80, 0.52),
    (0.20, 0.25),
    (-4.50, 0.19),
    (-7.02, 0.63),
    (-0.50, 0.93),
    (-5.30, 1.20),
    (1.00, 0.40),
];

/// The same after fits to public tables: Rubick's (A800, four models; MLSys 2025), BigScience's (V100 and
/// A100, two models), and GPT-2 on an H100.
const PUBLIC_PRIORS: [(f64, f64); PARAMETER_COUNT] = [
    (0.00, 3.00),
    (0.00, 0.05),
    (-3.63, 0.59),
    (-1.89, 0.51),
    (-0.81, 0.35),
    (-2.61, 1.78),
    (0.23, 0.15),
    (1.17, 0.14),
    (0.67, 0.10),
    (-0.20, 0.28),
    (-0.58, 0.59),
    (-1.28, 0.35),
    (-1.14, 0.09),
    (0.06, 1.87),
    (0.94, 0.16),
    (-2.97, 0.33),
    (0.38, 0.30),
    (-4.50, 0.13),
    (-7.18, 0.75),
    (-0.54, 0.65),
    (-5.11, 1.14),
    (1.00, 0.28),
];

const RESIDUAL_SHARES: ResidualShares =
    ResidualShares { strategy: 0.039, kind: 0.06, placement: 0.043, gpus: 0.032, alone: 0.052, odd: 0.19 };

impl PlanPriors {
    fn from_table(numbers: [(f64, f64); PARAMETER_COUNT]) -> PlanPriors {
        PlanPriors {
            mean: numbers.map(|(mean, _)| mean),
            sd: numbers.map(|(_, sd)| sd),
            network_of_type_sd: NETWORK_OF_TYPE_SD,
            shares: RESIDUAL_SHARES,
        }
    }

    /// The priors before any program is measured.
    pub(super) fn from_reference() -> PlanPriors {
        PlanPriors::from_table(REFERENCE_PRIORS)
    }

    /// The priors by public tables.
    pub fn from_public_tables() -> PlanPriors {
        PlanPriors::from_table(PUBLIC_PRIORS)
    }

    /// Mean and standard deviation of each parameter, in the order of [`StepParameter`].
    pub fn mean_and_sd(&self) -> impl Iterator<Item = (f64, f64)> {
        self.mean.into_iter().zip(self.sd)
    }
}
