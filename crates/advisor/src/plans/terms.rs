//! The time of a step as a sum of terms, each with a factor of which something is known beforehand.
//!
//! The terms are Rubick's (MLSys 2025): computing goes down with the GPUs, gradients cross the network, the
//! optimizer updates parameters, CPUs do so where it is offloaded, stages of a pipeline wait for each other.
//! Beyond them: GPUs of a node share its ways to the network, and rings over nodes with an odd number of GPUs
//! are slow on some machines. What is usual of each factor, and how far jobs are from it, was fitted on
//! Rubick's public tables (A800, four models); a few measurements outweigh it.

use std::collections::BTreeMap;

use infill_model::{ExecPlan, ModelFacts, PlanRun};

/// What is believed of a number before anything is measured: mean and standard deviation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    pub(super) mean: f64,
    pub(super) sd: f64,
}

/// Numbers that all plans share. Those of time are logarithms: of seconds for `Compute`, of its multiples
/// where so said, else of milliseconds for each million of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    /// One GPU's time for a step's forward and backward pass, s.
    Compute,
    /// Parameters, thousand millions.
    Params,
    /// The optimizer.
    Optimize,
    /// Gradients within a node.
    Intra,
    /// Gradients between nodes that have one GPU each.
    Inter,
    /// What nodes with an odd number of GPUs add.
    Odd,
    /// Power by which two GPUs of a node are faster between nodes than one.
    Pair,
    /// Power by which more than two are.
    Rails,
    /// Power of the GPUs of the largest node by which odd nodes cost more.
    OddPower,
    /// Factor to computing on one GPU, which exchanges nothing.
    Alone,
    /// The optimizer on the CPUs, divided over GPUs.
    Offload,
    /// What of it is not divided.
    OffloadFixed,
    /// Share of computing that recomputation adds.
    Recompute,
    /// What tensor parallelism adds, in parts of `Compute`.
    Tensor,
    /// What each further stage adds, in parts of `Compute`.
    Stage,
    /// Power by which stages divide computing.
    StagePower,
    /// Factor to computing where the model is divided.
    Divided,
    /// What is never divided, in parts of `Compute`.
    Fixed,
}

/// What is usual of each, in the order above. The means of the first two follow from the job.
const SHARED: [Prior; 18] = [
    Prior { mean: 0.0, sd: 3.0 },
    Prior { mean: 0.0, sd: 0.05 },
    Prior { mean: -2.9, sd: 0.6 },
    Prior { mean: -1.6, sd: 0.8 },
    Prior { mean: -0.85, sd: 0.4 },
    Prior { mean: -2.5, sd: 1.8 },
    Prior { mean: 0.3, sd: 0.2 },
    Prior { mean: 1.2, sd: 0.2 },
    Prior { mean: 0.5, sd: 0.2 },
    Prior { mean: 0.0, sd: 0.2 },
    Prior { mean: -0.25, sd: 0.35 },
    Prior { mean: -1.2, sd: 0.25 },
    Prior { mean: -1.1, sd: 0.15 },
    Prior { mean: -1.3, sd: 0.6 },
    Prior { mean: -2.8, sd: 0.6 },
    Prior { mean: 0.2, sd: 0.3 },
    Prior { mean: 0.5, sd: 0.5 },
    Prior { mean: -4.5, sd: 0.7 },
];

/// Parameters of a model of which no facts are given: so many (logarithm of thousand millions) for a step of
/// one second on one GPU.
const PARAMS_UNKNOWN: Prior = Prior { mean: -0.55, sd: 0.7 };

/// In what a plan may depart from what is shared: logarithms of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Computing.
    Compute,
    /// The optimizer.
    Optimize,
    /// Gradients between nodes.
    Inter,
    /// What odd nodes add.
    Odd,
}

/// How far plans depart, in the order above.
const OWN_SD: [f64; 4] = [0.05, 0.25, 0.2, 0.25];

/// ZeRO sends parameters back as well, beside the gradients.
const ZERO_INTER: f64 = 0.25;

/// Offloading hides the network behind the CPUs.
const OFFLOAD_INTER: f64 = -0.05;
const OFFLOAD_ODD: f64 = -2.0;

/// What one measurement varies beyond its noise: what no term says (standard deviation of the logarithm).
const MISFIT: f64 = 0.05;

/// The same of the time that odd nodes add.
const ODD_MISFIT: f64 = 0.3;

/// A row as the terms see it.
#[derive(Clone, Debug)]
pub(super) struct Features {
    gpus: f64,
    /// [dp, tp, pp].
    split: [f64; 3],
    /// Whether the model is divided, and not only the batch.
    divided: bool,
    /// Fewest and most GPUs of a node.
    fewest: f64,
    most: f64,
    several_nodes: bool,
    odd: bool,
    zero: bool,
    offload: bool,
    recompute: bool,
    /// Samples of a step, in parts of the first row's.
    batch: f64,
    /// Where the plan's own numbers begin, if it has any.
    own: Option<usize>,
}

/// The terms for the rows of a table.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// A row each.
    pub(super) rows: Vec<Features>,
    /// Of the shared numbers, then of each plan's own.
    pub(super) priors: Vec<Prior>,
    facts: Option<ModelFacts>,
}

impl Terms {
    /// Of these rows, at least one.
    pub(super) fn new(runs: &[PlanRun], facts: Option<ModelFacts>) -> Terms {
        let mut priors = SHARED.to_vec();
        let mut plans: BTreeMap<&ExecPlan, usize> = BTreeMap::new();
        for run in runs.iter().filter(|r| !r.parallelism.strategy.divides_model()) {
            plans.entry(&run.plan).or_insert_with(|| {
                let begin = priors.len();
                priors.extend(own_priors(run));
                begin
            });
        }
        let batch = runs.first().map_or(1.0, |r| r.global_batch);
        let own = |run: &PlanRun| {
            plans.get(&run.plan).copied().filter(|_| !run.parallelism.strategy.divides_model())
        };
        let rows = runs.iter().map(|r| Features::of(r, batch, own(r))).collect();
        Terms { rows, priors, facts }
    }

    /// Takes the first measurement (log of seconds) for what is believed of the job's size.
    pub(super) fn begin_with(&mut self, row: usize, log_secs: f64) {
        let [dp, tp, pp] = self.rows[row].split;
        let compute = log_secs + (dp * tp).ln() + self.priors[Shared::StagePower as usize].mean * pp.ln();
        self.priors[Shared::Compute as usize].mean = compute;
        self.priors[Shared::Params as usize] = match self.facts {
            Some(facts) => Prior { mean: (facts.params_mi * 1e-3).ln(), ..SHARED[Shared::Params as usize] },
            None => Prior { mean: PARAMS_UNKNOWN.mean + compute, ..PARAMS_UNKNOWN },
        };
    }
}

fn own_priors(run: &PlanRun) -> [Prior; OWN_SD.len()] {
    let of = |own: Own, mean| Prior { mean, sd: OWN_SD[own as usize] };
    let (inter, odd) = match (run.parallelism.strategy.offload, run.parallelism.strategy.zero > 0) {
        (true, _) => (OFFLOAD_INTER, OFFLOAD_ODD),
        (false, true) => (ZERO_INTER, 0.0),
        (false, false) => (0.0, 0.0),
    };
    [of(Own::Compute, 0.0), of(Own::Optimize, 0.0), of(Own::Inter, inter), of(Own::Odd, odd)]
}

impl Features {
    fn of(run: &PlanRun, batch: f64, own: Option<usize>) -> Features {
        let (dp, strategy) = (run.parallelism.dp, run.parallelism.strategy);
        let by_node = &run.gpus_by_node;
        let several_nodes = by_node.len() > 1;
        Features {
            gpus: f64::from(run.gpus()),
            split: [dp, strategy.tp, strategy.pp].map(f64::from),
            divided: strategy.divides_model(),
            fewest: f64::from(by_node.iter().min().copied().unwrap_or(1)),
            most: f64::from(by_node.iter().max().copied().unwrap_or(1)),
            several_nodes,
            odd: several_nodes && run.gpus() > 2 && by_node.iter().any(|g| g % 2 == 1),
            zero: strategy.zero > 0,
            offload: strategy.offload,
            recompute: strategy.checkpointing,
            batch: run.global_batch / batch,
            own,
        }
    }

    /// Logarithm of the seconds of a step.
    pub(super) fn log_secs(&self, theta: &[f64]) -> f64 {
        let at = At { row: self, theta };
        if self.divided { at.divided().ln() } else { at.replicated().ln() }
    }

    /// Variance of the logarithm of a measurement whose own noise is known: what no term says is in it.
    pub(super) fn variance(&self, theta: &[f64], noise: f64) -> f64 {
        let share = At { row: self, theta }.odd() / self.log_secs(theta).exp();
        noise.powi(2) + MISFIT.powi(2) + (ODD_MISFIT * share.min(1.0)).powi(2)
    }
}

/// A row with numbers for the terms.
struct At<'a> {
    row: &'a Features,
    theta: &'a [f64],
}

impl At<'_> {
    fn log(&self, number: Shared) -> f64 {
        self.theta.get(number as usize).copied().unwrap_or(0.0)
    }

    fn of(&self, number: Shared) -> f64 {
        self.log(number).exp()
    }

    fn own(&self, number: Own) -> f64 {
        let own = self.row.own.and_then(|begin| self.theta.get(begin + number as usize));
        own.copied().unwrap_or(0.0).exp()
    }

    /// Seconds with a whole model on each GPU.
    fn replicated(&self) -> f64 {
        let row = self.row;
        let ring = (row.gpus - 1.0) / row.gpus;
        let alone = if row.gpus > 1.0 { 1.0 } else { self.of(Shared::Alone) };
        let part = self.own(Own::Compute) * self.recomputed() * row.batch / row.gpus;
        let compute = self.of(Shared::Compute) * (part + self.of(Shared::Fixed)) * alone;
        let sharers = if row.zero { row.gpus } else { 1.0 };
        let optimize = self.of(Shared::Optimize) * self.own(Own::Optimize) / sharers;
        let inter = self.of(Shared::Inter) * self.own(Own::Inter) * ring * self.way_out();
        let offload = self.of(Shared::Offload) / row.gpus + self.of(Shared::OffloadFixed);
        let mut by_params = optimize + self.of(Shared::Intra) * ring;
        by_params += if row.several_nodes { inter } else { 0.0 };
        by_params += if row.offload { offload } else { 0.0 };
        compute + self.of(Shared::Params) * by_params + self.odd()
    }

    /// Seconds with a model that is divided over GPUs.
    fn divided(&self) -> f64 {
        let [dp, tp, pp] = self.row.split;
        let work = self.of(Shared::Divided) * self.recomputed() * self.row.batch;
        let mut compute = work / (dp * tp * pp.powf(self.log(Shared::StagePower)));
        compute += if tp > 1.0 { self.of(Shared::Tensor) } else { 0.0 };
        compute += self.of(Shared::Stage) * (pp - 1.0);
        let between = if self.row.several_nodes { self.of(Shared::Inter) * (dp - 1.0) / dp } else { 0.0 };
        let by_params = (self.of(Shared::Optimize) + between) / (tp * pp);
        self.of(Shared::Compute) * compute + self.of(Shared::Params) * by_params
    }

    fn recomputed(&self) -> f64 {
        if self.row.recompute { 1.0 + self.of(Shared::Recompute) } else { 1.0 }
    }

    /// Time between nodes, in parts of what it takes where each has one GPU: several have more ways out.
    fn way_out(&self) -> f64 {
        let (pair, rails) = (self.row.fewest.min(2.0), (self.row.fewest.min(8.0) / 2.0).max(1.0));
        pair.powf(-self.log(Shared::Pair)) * rails.powf(-self.log(Shared::Rails))
    }

    /// Seconds that odd nodes add.
    fn odd(&self) -> f64 {
        if !self.row.odd || self.row.divided {
            return 0.0;
        }
        let most = self.row.most.powf(self.log(Shared::OddPower));
        self.of(Shared::Params) * self.of(Shared::Odd) * self.own(Own::Odd) * most
    }
}
