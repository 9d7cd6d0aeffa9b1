//! What no term says of the time of a step: how alike two ways to run are in that.
//!
//! The logarithm of a step's seconds departs from the terms by a sum of shares: one that a strategy has on
//! all placements, one that a kind of strategies has on one node or on several, one of a placement, one of a
//! number of GPUs, and one of each way to run alone. The last makes what was measured count as measured,
//! whatever the terms say.

use nalgebra::DMatrix;

use super::step_parameters::ResidualShares;
use super::step_terms::{RunFeatures, StepTerms};

/// How much of a share two types of GPUs have in common.
const CROSS_TYPE_SHARE: f64 = 0.5;

impl ResidualShares {
    /// Covariances of what is not said of each of `a` and each of `b`.
    pub(super) fn residual_covariance(
        &self,
        terms: &StepTerms,
        theta: &[f64],
        a: &[RunFeatures],
        b: &[RunFeatures],
    ) -> DMatrix<f64> {
        let odd =
            |rows: &[RunFeatures]| -> Vec<f64> { rows.iter().map(|r| r.log_secs(terms, theta).1).collect() };
        let odd_a = odd(a);
        let odd_b = odd(b);
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
        let share = |same: bool, sd: f64| if same { sd * sd } else { 0.0 };
        let same = a.is_same(b);
        let common = share(strategy, self.strategy)
            + share(kind && a.several_nodes == b.several_nodes, self.kind)
            + share(placement, self.placement)
            + share(kind && a.gpus == b.gpus, self.gpus)
            + share(kind && a.odd == b.odd, self.odd) * odd / 2.0;
        let across = if a.node_type == b.node_type { 1.0 } else { CROSS_TYPE_SHARE };
        common * across + share(same, self.alone) + share(same, self.odd) * odd / 2.0
    }
}
