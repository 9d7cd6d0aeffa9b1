//! The residual: the part of a step's time that no term explains, and how alike two ways to run are in it.
//!
//! The logarithm of a step's seconds departs from the terms by a sum of shares. A strategy has one on all
//! placements, a kind of strategies has one on one node or on several, and so have a placement, a number of
//! GPUs, and each way to run alone. Because of the last, measured ways to run keep their measured times,
//! whatever the terms say.

use nalgebra::DMatrix;

use super::step_parameters::ResidualShares;
use super::step_terms::{RunFeatures, StepTerms};

/// How much of a share two types of GPUs have in common.
const CROSS_TYPE_SHARE: f64 = 0.5;

impl ResidualShares {
    /// Covariances of the residuals of each of `a` with each of `b`.
    pub(super) fn residual_covariance(
        &self,
        terms: &StepTerms,
        theta: &[f64],
        a: &[RunFeatures],
        b: &[RunFeatures],
    ) -> DMatrix<f64> {
        let odd_a: Vec<f64> = a.iter().map(|row| row.log_secs(terms, theta).1).collect();
        let odd_b: Vec<f64> = b.iter().map(|row| row.log_secs(terms, theta).1).collect();
        DMatrix::from_fn(a.len(), b.len(), |i, j| self.pair_covariance(&a[i], &b[j], odd_a[i] * odd_b[j]))
    }

    fn pair_covariance(&self, a: &RunFeatures, b: &RunFeatures, odd: f64) -> f64 {
        let s = &a.parallelism.strategy;
        let t = &b.parallelism.strategy;
        let kind = (s.zero > 0) == (t.zero > 0)
            && s.offload == t.offload
            && s.checkpointing == t.checkpointing
            && s.divides_model() == t.divides_model();
        // How a batch is split matters where stages wait for it.
        let strategy = (s.tp, s.pp, s.zero, s.offload, s.checkpointing)
            == (t.tp, t.pp, t.zero, t.offload, t.checkpointing)
            && (!s.divides_model() || s.accumulate == t.accumulate);
        let placement = a.gpus_by_node == b.gpus_by_node;
        let same = a.is_same(b);
        let common = shared_variance(strategy, self.strategy)
            + shared_variance(kind && a.several_nodes == b.several_nodes, self.kind)
            + shared_variance(placement, self.placement)
            + shared_variance(kind && a.gpus == b.gpus, self.gpus)
            + shared_variance(kind && a.odd == b.odd, self.odd) * odd / 2.0;
        let across = if a.node_type == b.node_type { 1.0 } else { CROSS_TYPE_SHARE };
        common * across + shared_variance(same, self.alone) + shared_variance(same, self.odd) * odd / 2.0
    }
}

/// The variance of a share that two ways to run may have in common; 0 where they do not.
fn shared_variance(is_shared: bool, sd: f64) -> f64 {
    if is_shared { sd * sd } else { 0.0 }
}
