//! Estimated rates of programs before they run, from profiles of their layers ([`super::plans::cells`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job_input::JobInput;
use super::plans::cells::{CellPlace, LinkTimes, step_secs};
use super::predicted_rates::{PredictedRate, ProgramName, program_name};
use super::scaling::sizes_of_interest;
use infill_model::{
    AllowedSizes, DeclaredPlan, ExecPlan, LayerProfile, NodeType, ParallelStrategy, SiteCollectives,
};

/// The inputs of a program's estimates. They are made again when these change.
#[derive(Clone, Debug, PartialEq)]
struct EstimateBasis {
    layers: Arc<LayerProfile>,
    plans: Vec<DeclaredPlan>,
    sizes: AllowedSizes,
    global_batch: Option<u32>,
    gpus_per_node: Option<u32>,
    types: Vec<NodeType>,
    /// The number of changes of the site's table so far.
    table_changes: u64,
}

/// The programs whose estimates are up to date.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerEstimates {
    bases: BTreeMap<ProgramName, EstimateBasis>,
}

impl LayerEstimates {
    /// Estimates the programs of these jobs whose inputs have changed. `types`: the types of available nodes;
    /// `table_changes`: the number of changes of the site's table so far.
    pub(super) fn update_estimates(
        &mut self,
        inputs: &[JobInput],
        types: &[NodeType],
        site: &SiteCollectives,
        table_changes: u64,
    ) -> Vec<(ProgramName, Vec<PredictedRate>)> {
        let mut wanted: BTreeMap<ProgramName, (&JobInput, EstimateBasis)> = BTreeMap::new();
        for input in inputs {
            let Some(layers) = &input.layers else { continue };
            let name = program_name(&input.key);
            if wanted.contains_key(&name) {
                continue;
            }
            let basis = EstimateBasis {
                layers: layers.clone(),
                plans: input.plans.clone(),
                sizes: input.sizes.clone(),
                global_batch: input.model.and_then(|model| model.global_batch),
                gpus_per_node: input.gpus_per_node,
                types: matching_types(layers, input, types),
                table_changes,
            };
            wanted.insert(name, (input, basis));
        }
        self.bases.retain(|name, _| wanted.contains_key(name));
        let mut estimates = Vec::new();
        for (name, (input, basis)) in wanted {
            if self.bases.get(&name) != Some(&basis) {
                estimates.push((name.clone(), estimate_rates(input, &basis, site)));
                self.bases.insert(name, basis);
            }
        }
        estimates
    }
}

/// The types, among `types` and the job's own, that have the device on which the layers were profiled.
fn matching_types(layers: &LayerProfile, input: &JobInput, types: &[NodeType]) -> Vec<NodeType> {
    let own = &input.key.node_type;
    let width = input.key.node_type.single_place().1;
    let mut all: Vec<NodeType> = std::iter::once(own.clone())
        .chain(types.iter().map(|node_type: &NodeType| node_type.single_place().0.with_place_count(width)))
        .collect();
    all.sort();
    all.dedup();
    all.retain(|node_type| device_matches(&layers.device, node_type));
    all
}

/// Whether a device is what nodes of a type have. It is named as by its driver (`NVIDIA A100-SXM4-80GB`,
/// `cpu`).
fn device_matches(device: &str, node_type: &NodeType) -> bool {
    let device_words = name_words(device);
    let is_cpu = !node_type.has_gpus() && device.eq_ignore_ascii_case("cpu");
    let make_words = node_type.gpu_model().map(name_words).unwrap_or_default();
    let is_make = !make_words.is_empty() && make_words.iter().all(|word| device_words.contains(word));
    is_cpu || is_make || (!device.is_empty() && node_type.matches_name(device))
}

/// The words of a device's name, in lower case.
fn name_words(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

/// The estimated rate of each plan of a job on each of these types, at the sizes of interest.
fn estimate_rates(input: &JobInput, basis: &EstimateBasis, site: &SiteCollectives) -> Vec<PredictedRate> {
    let plans: Vec<(ExecPlan, ParallelStrategy)> = if input.plans.is_empty() {
        vec![(input.key.exec_plan.clone(), ParallelStrategy::default())]
    } else {
        input.plans.iter().filter_map(|plan| Some((plan.name.clone(), plan.strategy?))).collect()
    };
    let sizes = sizes_of_interest(&input.sizes, &[]);
    let mut rates = Vec::new();
    for node_type in &basis.types {
        let links = LinkTimes(site.for_type(node_type));
        let gpus_a_node = input.gpus_per_node.unwrap_or(node_type.gpus()).max(1);
        for (exec_plan, strategy) in &plans {
            for nodes in &sizes {
                let place = CellPlace { gpus_a_node, nodes: *nodes };
                let Some(rate) = estimate_rate(basis, &links, *strategy, place) else { continue };
                let exec_plan = exec_plan.clone();
                let node_type = node_type.clone();
                rates.push(PredictedRate { exec_plan, node_type, nodes: *nodes, rate });
            }
        }
    }
    rates
}

/// The estimated rate of a plan at a place, samples a second; `None` where the plan cannot be divided over
/// it, or too little is known.
fn estimate_rate(
    basis: &EstimateBasis,
    links: &LinkTimes<'_>,
    strategy: ParallelStrategy,
    place: CellPlace,
) -> Option<f64> {
    let plan = strategy.on_gpus(place.nodes.checked_mul(place.gpus_a_node)?)?;
    let batch = match basis.global_batch {
        Some(samples) => f64::from(samples),
        None => f64::from(basis.layers.batch) * f64::from(plan.dp),
    };
    Some(batch / step_secs(&basis.layers, links, plan, place, batch)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_recognized_by_the_make_of_the_type() {
        let matches = |device: &str, node_type: &str| device_matches(device, &NodeType::new(node_type));
        assert!(matches("NVIDIA A100-SXM4-80GB", "gpu:a100:4/cpu64"));
        assert!(matches("NVIDIA A100-SXM4-80GB", "gpu:nvidia_a100-sxm4-80gb:4/cpu64"));
        assert!(!matches("NVIDIA A100-SXM4-40GB", "gpu:nvidia_a100-sxm4-80gb:4/cpu64"));
        assert!(
            !matches("NVIDIA A10", "gpu:a100:4/cpu64")
                && !matches("NVIDIA A100-PCIE-40GB", "gpu:a10:4/cpu64")
        );
        assert!(
            matches("cpu", "cpu64")
                && !matches("cpu", "gpu:a100:4/cpu64")
                && !matches("NVIDIA A100", "cpu64")
        );
        assert!(matches("a100", "gpu:a100:4/cpu64") && !matches("", "gpu:a100:4/cpu64"));
    }
}
