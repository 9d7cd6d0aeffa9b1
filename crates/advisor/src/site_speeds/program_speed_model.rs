//! The rates of one program, predicted from its measurements and those of others.

use nalgebra::DMatrix;

use super::{
    GaussianProcess, NameInterner, PlanCurve, ProgramRates, RunInput, covariance_of_errors, prior_covariance,
    run_input, total_gpus,
};
use infill_model::{ProfileKey, SizePoint};

/// The Gaussian processes of a program: one for rates, one for the errors of estimates.
pub(super) struct ProgramSpeedModel<'a> {
    /// Logarithms of GPU-seconds a sample, less their mean.
    pub(super) rates: Option<GaussianProcess>,
    /// That mean.
    pub(super) mean_log: f64,
    /// Logarithms of estimated rates over measured ones, less the unit.
    pub(super) errors: Option<GaussianProcess>,
    /// Logarithm of the unit that the estimates count in.
    pub(super) unit: f64,
    pub(super) estimated: Option<&'a ProgramRates>,
}

impl ProgramSpeedModel<'_> {
    /// The curve of the plan and type of a key, at those of these sizes for which anything is known.
    pub(super) fn predict_curve(
        &self,
        names: &mut NameInterner,
        key: &ProfileKey,
        sizes: &[u32],
        points: Vec<SizePoint>,
        shares: bool,
    ) -> Option<PlanCurve> {
        let (with_estimate, without): (Vec<u32>, Vec<u32>) =
            sizes.iter().partition(|nodes| self.estimate_at(key, **nodes).is_some());
        let mut log_rates: Vec<(u32, f64)> = Vec::new();
        let mut blocks: Vec<DMatrix<f64>> = Vec::new();
        if !with_estimate.is_empty() {
            let rows = run_inputs(names, key, &with_estimate, shares);
            let (errors, covariance) = match &self.errors {
                Some(process) => (process.posterior_means(&rows), process.posterior_covariance(&rows)),
                None => (vec![0.0; rows.len()], prior_covariance(&rows, covariance_of_errors)),
            };
            for (nodes, error) in with_estimate.iter().zip(&errors) {
                let estimate = self.estimate_at(key, *nodes);
                log_rates.extend(estimate.map(|rate| (*nodes, rate.ln() - error - self.unit)));
            }
            blocks.push(covariance);
        }
        if let Some(process) = self.rates.as_ref().filter(|_| !without.is_empty()) {
            let rows = run_inputs(names, key, &without, shares);
            for (nodes, mean) in without.iter().zip(process.posterior_means(&rows)) {
                let log_gpus = f64::from(total_gpus(&key.node_type, *nodes)).ln();
                log_rates.push((*nodes, log_gpus - self.mean_log - mean));
            }
            blocks.push(process.posterior_covariance(&rows));
        }
        let mut order: Vec<usize> = (0..log_rates.len()).collect();
        order.sort_by_key(|i| log_rates[*i].0);
        // For each size, ascending, its block of the covariance and its index there.
        let positions: Vec<(usize, usize)> = order
            .iter()
            .map(|i| match i.checked_sub(with_estimate.len()) {
                None => (0, *i),
                Some(index) => (blocks.len() - 1, index),
            })
            .collect();
        let covariance = DMatrix::from_fn(order.len(), order.len(), |i, j| {
            let (block, row) = positions[i];
            let (other_block, column) = positions[j];
            if block == other_block { blocks[block][(row, column)] } else { 0.0 }
        });
        let (sizes, log_rates) = order.iter().map(|i| log_rates[*i]).unzip();
        PlanCurve::new(sizes, log_rates, covariance, points)
    }

    /// The estimated rate of a key on this number of nodes.
    fn estimate_at(&self, key: &ProfileKey, nodes: u32) -> Option<f64> {
        self.estimated?.get(&(key.exec_plan.clone(), key.node_type.clone(), nodes)).copied()
    }
}

/// The rows of a key at these sizes.
fn run_inputs(names: &mut NameInterner, key: &ProfileKey, sizes: &[u32], shares: bool) -> Vec<RunInput> {
    sizes.iter().map(|nodes| run_input(names, key, *nodes, shares)).collect()
}
