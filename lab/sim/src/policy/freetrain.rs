//! The published allocator: BFTrainer's program (arXiv 2106.12091), which FreeTrain and MalleTrain use as
//! well.
//!
//! max Σ_j T_fwd·O_j(n_j) − R(n_j, C_j)·O_j(C_j), with R = R_up to grow, R_dw to shrink, 0 to stay, C_j the
//! present size; n_j = 0 or within the job's sizes. To start is free in this objective, for O_j(0) = 0.
//! Solved at every event, on all nodes that the main queue does not use.

use std::collections::BTreeMap;

use super::knapsack::{self, SizeValues};
use super::{AllocationPolicy, PolicyName, PolicyView, Target, targets_for_sizes};
use crate::job::SimJob;
use infill_model::{JobId, RescaleCosts};

/// What it believes of the throughput of a job, weighted samples a second on so many nodes.
type RateBelief = fn(&SimJob, u32) -> f64;

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct FreeTrain {
    name: PolicyName,
    tfwd_secs: f64,
    believes: RateBelief,
    /// Whether it takes costs into account, and pays them.
    pays: bool,
}

impl FreeTrain {
    /// With the true curves.
    pub fn with_curves(name: PolicyName, tfwd_secs: f64) -> Self {
        FreeTrain {
            name,
            tfwd_secs,
            believes: |job, n| job.submitted.weight * job.submitted.curve.rate(n),
            pays: true,
        }
    }

    /// Without curves: every node of every job is worth the same.
    pub fn without_curves(name: PolicyName, tfwd_secs: f64) -> Self {
        FreeTrain { name, tfwd_secs, believes: |_, n| f64::from(n), pays: true }
    }

    /// With the true curves, where rescales cost nothing: the best that there is at every moment.
    pub fn upper_bound(name: PolicyName) -> Self {
        let believes: RateBelief = |job, n| job.submitted.weight * job.submitted.curve.rate(n);
        FreeTrain { name, tfwd_secs: 1.0, believes, pays: false }
    }
}

impl AllocationPolicy for FreeTrain {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn pays_rescales(&self) -> bool {
        self.pays
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        let nodes = view.cluster.idle_count() as u32;
        targets_for_sizes(
            view,
            &allocate_sizes(view.jobs, nodes, self.tfwd_secs, view.costs, |job: &SimJob, n| {
                (self.believes)(job, n)
            }),
        )
    }
}

/// The program's sizes.
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
    let value = |n: u32| {
        let cost = match n.cmp(&present) {
            std::cmp::Ordering::Greater => costs.up_secs,
            std::cmp::Ordering::Less => costs.down_secs,
            std::cmp::Ordering::Equal => 0.0,
        };
        tfwd_secs * rate(n) - cost * old
    };
    let nothing = (0, if present > 0 { -costs.down_secs * old } else { 0.0 });
    std::iter::once(nothing)
        .chain((job.submitted.min_nodes..=job.submitted.max_nodes.min(nodes)).map(|n| (n, value(n))))
        .collect()
}
