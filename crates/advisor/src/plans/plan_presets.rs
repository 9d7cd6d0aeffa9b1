//! Common execution plans for a model with some known facts, and the memory that each needs
//! ([`super::gpu_memory`]).

use infill_model::{ModelFacts, ParallelStrategy};

use super::gpu_memory::{USABLE_MEMORY_SHARE, gpu_memory_gib};

/// Largest number of micro-batches that is tried.
const MAX_MICRO_BATCHES: u32 = 256;

/// The properties of a model on which its plans depend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelShape {
    /// Number of parameters.
    pub params: f64,
    /// Number of layers.
    pub layers: u32,
    /// Hidden size.
    pub hidden: u32,
    /// Tokens of a sample.
    pub sequence: u32,
    /// Samples of a step over all GPUs.
    pub global_batch: u32,
}

/// How a plan divides model, optimizer and batch.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanPreset {
    /// Its name, such as `zero2` or `tp4-pp2`.
    pub name: String,
    /// GPUs that share each layer.
    pub tp: u32,
    /// Stages of the pipeline.
    pub pp: u32,
    /// Stage of ZeRO.
    pub zero: u32,
    /// Whether the optimizer runs on the CPUs.
    pub offload: bool,
    /// Micro-batches of a step.
    pub accumulate: u32,
    /// Whether activations are computed again in the backward pass.
    pub checkpointing: bool,
    /// Numbers of GPUs at which the plan can run and, as far as is known, fits; with GiB of each GPU.
    pub sizes: Vec<(u32, f64)>,
}

/// The GPUs on which a job could run.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuMachine {
    /// Numbers of GPUs that the job may have, ascending.
    pub gpus: Vec<u32>,
    /// GPUs of a node. Tensor parallelism stays on one node.
    pub gpus_per_node: u32,
    /// GiB of a GPU; `None` to keep plans that do not fit.
    pub gpu_memory_gib: Option<f64>,
}

impl ModelShape {
    /// GiB of each GPU that a plan needs on a number of GPUs; `None` where it cannot be divided over them.
    pub(crate) fn memory_gib(&self, plan: &PlanPreset, gpus: u32) -> Option<f64> {
        let strategy = ParallelStrategy {
            tp: plan.tp,
            pp: plan.pp,
            zero: plan.zero,
            offload: plan.offload,
            accumulate: plan.accumulate,
            checkpointing: plan.checkpointing,
        };
        let parallelism = strategy.on_gpus(gpus)?;
        let batches = parallelism.dp.checked_mul(plan.accumulate)?;
        if self.global_batch < batches
            || !self.global_batch.is_multiple_of(batches)
            || !self.layers.is_multiple_of(plan.pp)
        {
            return None;
        }
        let facts = ModelFacts {
            layers: Some(self.layers),
            hidden: Some(self.hidden),
            sequence: Some(self.sequence),
            ..ModelFacts::from_params(self.params / 1e6)
        };
        gpu_memory_gib(&facts, parallelism, f64::from(self.global_batch))
    }

    /// The plans that are worth a try on this machine, without those that fit nowhere. Each has the fewest
    /// micro-batches with which it fits on the most sizes.
    pub fn suggest_presets(&self, machine: &GpuMachine) -> Vec<PlanPreset> {
        let usable = machine.gpu_memory_gib.map_or(f64::INFINITY, |gib| gib * USABLE_MEMORY_SHARE);
        preset_shapes(machine)
            .into_iter()
            .filter_map(|shape| self.fit_shape(&shape, machine, usable))
            .collect()
    }

    /// A plan with the number of micro-batches with which it fits best into `usable` GiB of a GPU; `None`
    /// where it fits nowhere.
    fn fit_shape(&self, shape: &PlanPreset, machine: &GpuMachine, usable: f64) -> Option<PlanPreset> {
        let counts = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= MAX_MICRO_BATCHES);
        // Among equally good plans, the first has the fewest micro-batches.
        let best = counts
            .map(|accumulate| self.with_micro_batches(shape, accumulate, machine, usable))
            .reduce(|a, b| if b.sizes.len() > a.sizes.len() { b } else { a })?;
        (!best.sizes.is_empty()).then_some(best)
    }

    /// A plan with this number of micro-batches, and the sizes at which it fits into `usable` GiB of a GPU.
    fn with_micro_batches(
        &self,
        shape: &PlanPreset,
        accumulate: u32,
        machine: &GpuMachine,
        usable: f64,
    ) -> PlanPreset {
        let mut plan = PlanPreset { accumulate, sizes: Vec::new(), ..shape.clone() };
        for gpus in &machine.gpus {
            let fitting = self.memory_gib(&plan, *gpus).filter(|gib| *gib <= usable);
            plan.sizes.extend(fitting.map(|gib| (*gpus, gib)));
        }
        plan
    }
}

/// The common shapes of plans: data parallelism alone, ZeRO and FSDP, offload, and Megatron's.
fn preset_shapes(machine: &GpuMachine) -> Vec<PlanPreset> {
    let mut shapes = vec![
        data_parallel_shape("ddp", 0, false, false),
        data_parallel_shape("ddp-gc", 0, false, true),
        data_parallel_shape("zero2", 2, false, false),
        data_parallel_shape("fsdp", 3, false, false),
        data_parallel_shape("fsdp-gc", 3, false, true),
        data_parallel_shape("zero2-offload", 2, true, true),
    ];
    let most = machine.gpus.last().copied().unwrap_or(1);
    for tp in [1, 2, 4, 8].into_iter().filter(|tp| *tp <= machine.gpus_per_node) {
        for pp in [1, 2, 4, 8].into_iter().filter(|pp| tp * pp > 1 && tp * pp <= most) {
            let name = format!("tp{tp}-pp{pp}");
            shapes.push(PlanPreset { tp, pp, ..data_parallel_shape(&name, 1, false, false) });
        }
    }
    shapes
}

/// A plan that does not divide the model.
fn data_parallel_shape(name: &str, zero: u32, offload: bool, checkpointing: bool) -> PlanPreset {
    PlanPreset {
        name: name.to_owned(),
        tp: 1,
        pp: 1,
        zero,
        offload,
        accumulate: 1,
        checkpointing,
        sizes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPT-2 of 1.5 billion parameters.
    const GPT: ModelShape =
        ModelShape { params: 1.5e9, layers: 48, hidden: 1600, sequence: 1024, global_batch: 64 };

    fn machine(gpu_memory_gib: Option<f64>) -> GpuMachine {
        GpuMachine { gpus: vec![1, 2, 4, 8, 16], gpus_per_node: 8, gpu_memory_gib }
    }

    fn plan(presets: &[PlanPreset], name: &str) -> Option<PlanPreset> {
        presets.iter().find(|p| p.name == name).cloned()
    }

    /// Bytes of a GiB.
    const GIB: f64 = (1u64 << 30) as f64;

    #[test]
    fn states_match_the_papers() {
        let presets = GPT.suggest_presets(&machine(None));
        let states = |name: &str, gpus: u32| {
            let still = ModelShape { sequence: 0, ..GPT };
            still.memory_gib(&plan(&presets, name).unwrap(), gpus).unwrap() * GIB / 1.5e9
        };
        let is_close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(is_close(states("zero2", 8), 3.75) && is_close(states("fsdp", 8), 2.0));
        assert!(is_close(states("zero2-offload", 1), 4.0) && is_close(states("tp4-pp2", 8), 2.0));
        assert!(is_close(states("ddp", 8), 18.0), "autocast keeps copies of the weights");
    }

    #[test]
    fn plans_that_do_not_fit_or_divide_are_left_out() {
        let presets = GPT.suggest_presets(&machine(Some(16.0)));
        assert_eq!(plan(&presets, "ddp"), None, "24 GB of states alone");
        let fsdp = plan(&presets, "fsdp").unwrap();
        assert!(fsdp.sizes.iter().all(|(gpus, gib)| *gpus >= 2 && *gib <= 14.4), "{fsdp:?}");
        assert!(fsdp.accumulate > 1, "micro-batches of all 64 samples do not fit");
        let tp8 = plan(&GPT.suggest_presets(&machine(None)), "tp8-pp2").unwrap();
        assert_eq!(tp8.sizes.iter().map(|(gpus, _)| *gpus).collect::<Vec<_>>(), [16]);
        let odd = ModelShape { layers: 7, ..GPT };
        assert!(odd.suggest_presets(&machine(None)).iter().all(|p| p.pp == 1));
        assert!(ModelShape { params: 1e15, ..GPT }.suggest_presets(&machine(Some(16.0))).is_empty());
    }
}
