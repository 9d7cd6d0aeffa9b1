//! The published allocator: BFTrainer's program (arXiv 2106.12091), which FreeTrain and MalleTrain also use.
//!
//! max Σ_j T_fwd·O_j(n_j) − R(n_j, C_j)·O_j(C_j), with R = R_up to grow, R_dw to shrink, 0 to stay, C_j the
//! present size; n_j = 0 or within the job's sizes. Starting is free in this objective, because O_j(0) = 0.
//! It is solved at every event, on all nodes that the main queue does not use.

use std::collections::BTreeMap;

use super::knapsack::{self, SizeValues};
use super::{AllocationPolicy, PolicyName, PolicyView, Target, targets_for_sizes};
use crate::job::SimJob;
use infill_model::{JobId, RescaleCosts};

/// The assumed throughput of a job on a number of nodes, weighted samples a second.
type RateBelief = fn(&SimJob, u32) -> f64;

/// The published allocator with some source of throughputs.
#[derive(Clone, Debug)]
pub(crate) struct FreeTrain {
    name: PolicyName,
    tfwd_secs: f64,
    assumed_rate: RateBelief,
    /// Whether it considers the costs of rescales, and pays them.
    pays_costs: bool,
}

impl FreeTrain {
    /// With the true curves.
    pub fn with_curves(name: PolicyName, tfwd_secs: f64) -> Self {
        FreeTrain {
            name,
            tfwd_secs,
            assumed_rate: |job, n| job.submitted.weight * job.submitted.curve.rate(n),
            pays_costs: true,
        }
    }

    /// Without curves: each node of each job has the same value.
    pub fn without_curves(name: PolicyName, tfwd_secs: f64) -> Self {
        FreeTrain { name, tfwd_secs, assumed_rate: |_, n| f64::from(n), pays_costs: true }
    }

    /// With the true curves, and rescales that cost nothing: the optimum at every moment.
    pub fn upper_bound(name: PolicyName) -> Self {
        FreeTrain { pays_costs: false, ..FreeTrain::with_curves(name, 1.0) }
    }
}

impl AllocationPolicy for FreeTrain {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn pays_rescales(&self) -> bool {
        self.pays_costs
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        let nodes = view.cluster.idle_count() as u32;
        let sizes = allocate_sizes(view.jobs, nodes, self.tfwd_secs, view.costs, self.assumed_rate);
        targets_for_sizes(view, &sizes)
    }
}

/// The optimal sizes of all jobs on this number of nodes.
pub(super) fn allocate_sizes(
    jobs: &BTreeMap<JobId, SimJob>,
    nodes: u32,
    tfwd_secs: f64,
    costs: &RescaleCosts,
    rate: impl Fn(&SimJob, u32) -> f64,
) -> BTreeMap<JobId, u32> {
    let choices: Vec<SizeValues> =
        jobs.values().map(|job| size_values(job, nodes, tfwd_secs, costs, |n| rate(job, n))).collect();
    let sizes = knapsack::solve_knapsack(&choices, nodes);
    jobs.keys().copied().zip(sizes).collect()
}

fn size_values(
    job: &SimJob,
    nodes: u32,
    tfwd_secs: f64,
    costs: &RescaleCosts,
    rate: impl Fn(u32) -> f64,
) -> SizeValues {
    let present = job.size();
    let old = if present >= job.submitted.min_nodes { rate(present) } else { 0.0 };
    let mut values = vec![(0, if present > 0 { -costs.down_secs * old } else { 0.0 })];
    for size in job.submitted.min_nodes..=job.submitted.max_nodes.min(nodes) {
        let change_secs = match size.cmp(&present) {
            std::cmp::Ordering::Greater => costs.up_secs,
            std::cmp::Ordering::Less => costs.down_secs,
            std::cmp::Ordering::Equal => 0.0,
        };
        values.push((size, tfwd_secs * rate(size) - change_secs * old));
    }
    values
}
