//! How fast programs would be before they ran, from profiles of their layers ([`super::plans::cells`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job_input::JobInput;
use super::plans::cells::{CellPlace, LinkTimes, step_secs};
use super::rate_estimates::{ProgramName, RateEstimate, program_name};
use super::scaling::sizes_of_interest;
use infill_model::{
    AllowedSizes, DeclaredPlan, ExecPlan, LayerProfile, NodeType, ParallelStrategy, SiteCollectives,
};

/// What the estimates of a program were made of: they are made anew when that changes.
#[derive(Clone, Debug, PartialEq)]
struct EstimateBasis {
    layers: Arc<LayerProfile>,
    plans: Vec<DeclaredPlan>,
    sizes: AllowedSizes,
    global_batch: Option<u32>,
    gpus_per_node: Option<u32>,
    types: Vec<NodeType>,
    /// How many changes of the site's table there were.
    tables: u64,
}

/// For which programs estimates were made.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerEstimates {
    known: BTreeMap<ProgramName, EstimateBasis>,
}

impl LayerEstimates {
    /// Makes the estimates of those of these jobs' programs that have none of what is known of them now.
    /// `types`: those of nodes at hand; `tables`: how many changes of the site's table there were.
    pub(super) fn update_estimates(
        &mut self,
        subjects: &[JobInput],
        types: &[NodeType],
        (site, tables): (&SiteCollectives, u64),
    ) -> Vec<(ProgramName, Vec<RateEstimate>)> {
        let mut wanted: BTreeMap<ProgramName, (&JobInput, EstimateBasis)> = BTreeMap::new();
        for subject in subjects {
            let Some(layers) = &subject.layers else { continue };
            let name = program_name(&subject.key);
            if wanted.contains_key(&name) {
                continue;
            }
            let basis = EstimateBasis {
                layers: layers.clone(),
                plans: subject.plans.clone(),
                sizes: subject.sizes.clone(),
                global_batch: subject.model.and_then(|model| model.global_batch),
                gpus_per_node: subject.gpus_per_node,
                types: matching_types(layers, subject, types),
                tables,
            };
            wanted.insert(name, (subject, basis));
        }
        self.known.retain(|name, _| wanted.contains_key(name));
        let mut made = Vec::new();
        for (name, (subject, basis)) in wanted {
            if self.known.get(&name) != Some(&basis) {
                made.push((name.clone(), estimate_rates(subject, &basis, site)));
                self.known.insert(name, basis);
            }
        }
        made
    }
}

/// The types, of those at hand and the job's own, that have what the layers were profiled on.
fn matching_types(layers: &LayerProfile, subject: &JobInput, types: &[NodeType]) -> Vec<NodeType> {
    let own = &subject.key.node_type;
    let width = subject.key.node_type.single_place().1;
    let mut all: Vec<NodeType> = std::iter::once(own.clone())
        .chain(types.iter().map(|node_type: &NodeType| node_type.single_place().0.with_place_count(width)))
        .collect();
    all.sort();
    all.dedup();
    all.retain(|node_type| device_matches(&layers.device, node_type));
    all
}

/// Whether a device, as its driver calls it (`NVIDIA A100-SXM4-80GB`, `cpu`), is what nodes of a type have.
fn device_matches(device: &str, node_type: &NodeType) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect()
    };
    let device_words = words(device);
    let on_cpus = !node_type.has_gpus() && device.eq_ignore_ascii_case("cpu");
    let make = node_type.gpu_make().map(words).unwrap_or_default();
    let of_make = !make.is_empty() && make.iter().all(|word| device_words.contains(word));
    on_cpus || of_make || (!device.is_empty() && node_type.matches_name(device))
}

/// What is estimated of each plan of a job on each of these types, at the sizes that are worth a look.
fn estimate_rates(subject: &JobInput, basis: &EstimateBasis, site: &SiteCollectives) -> Vec<RateEstimate> {
    let plans: Vec<(ExecPlan, ParallelStrategy)> = match subject.plans.is_empty() {
        true => vec![(subject.key.exec_plan.clone(), ParallelStrategy::default())],
        false => subject.plans.iter().filter_map(|plan| Some((plan.name.clone(), plan.strategy?))).collect(),
    };
    let sizes = sizes_of_interest(&subject.sizes, &[]);
    let mut found = Vec::new();
    for node_type in &basis.types {
        let links = LinkTimes(site.for_type(node_type));
        let gpus_a_node = subject.gpus_per_node.unwrap_or(node_type.gpus()).max(1);
        for (exec_plan, strategy) in &plans {
            let rate = |nodes: u32| {
                let plan = strategy.on_gpus(nodes.checked_mul(gpus_a_node)?)?;
                let own_batch = || f64::from(basis.layers.batch) * f64::from(plan.dp);
                let batch = basis.global_batch.map_or_else(own_batch, f64::from);
                let place = CellPlace { gpus_a_node, nodes };
                Some(batch / step_secs(&basis.layers, &links, plan, place, batch)?)
            };
            found.extend(sizes.iter().filter_map(|nodes| {
                let exec_plan = exec_plan.clone();
                let node_type = node_type.clone();
                Some(RateEstimate { exec_plan, node_type, nodes: *nodes, rate: rate(*nodes)? })
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_the_make_of_the_type() {
        let of = |device: &str, node_type: &str| device_matches(device, &NodeType::new(node_type));
        assert!(of("NVIDIA A100-SXM4-80GB", "gpu:a100:4/cpu64"));
        assert!(of("NVIDIA A100-SXM4-80GB", "gpu:nvidia_a100-sxm4-80gb:4/cpu64"));
        assert!(!of("NVIDIA A100-SXM4-40GB", "gpu:nvidia_a100-sxm4-80gb:4/cpu64"));
        assert!(!of("NVIDIA A10", "gpu:a100:4/cpu64") && !of("NVIDIA A100-PCIE-40GB", "gpu:a10:4/cpu64"));
        assert!(of("cpu", "cpu64") && !of("cpu", "gpu:a100:4/cpu64") && !of("NVIDIA A100", "cpu64"));
        assert!(of("a100", "gpu:a100:4/cpu64") && !of("", "gpu:a100:4/cpu64"));
    }
}
