//! What one program's measurements, and those of others, say about its rates.

use nalgebra::DMatrix;

use super::{
    EstimatedRates, GaussianProcess, NameInterner, PlanCurve, RunInput, covariance_of_errors,
    prior_covariance, run_input, total_gpus,
};
use infill_model::{ProfileKey, SizePoint};

/// The Gaussian processes of a program: one for measured rates, one for the errors of estimates.
pub(super) struct ProgramSpeedModel<'a> {
    pub(super) plain: Option<GaussianProcess>,
    pub(super) middle: f64,
    pub(super) wrong: Option<GaussianProcess>,
    pub(super) unit: f64,
    pub(super) estimated: Option<&'a EstimatedRates>,
}

impl ProgramSpeedModel<'_> {
    /// What is believed of the plan and type of a key, at those of these sizes of which anything is known.
    pub(super) fn predict_curve(
        &self,
        register: &mut NameInterner,
        key: &ProfileKey,
        sizes: &[u32],
        points: Vec<SizePoint>,
        shares: bool,
    ) -> Option<PlanCurve> {
        let estimate =
            |nodes: u32| self.estimated?.get(&(key.exec_plan.clone(), key.node_type.clone(), nodes)).copied();
        let (with, without): (Vec<u32>, Vec<u32>) = sizes.iter().partition(|n| estimate(**n).is_some());
        let rows = |register: &mut NameInterner, sizes: &[u32]| -> Vec<RunInput> {
            sizes.iter().map(|n| run_input(register, key, *n, shares)).collect()
        };
        let log_gpus = |nodes: u32| f64::from(total_gpus(&key.node_type, nodes)).ln();
        let mut found: Vec<(u32, f64)> = Vec::new();
        let mut blocks: Vec<DMatrix<f64>> = Vec::new();
        if !with.is_empty() {
            let rows = rows(register, &with);
            let (wrong, left) = match &self.wrong {
                Some(process) => (process.posterior_means(&rows), process.posterior_covariance(&rows)),
                None => (vec![0.0; rows.len()], prior_covariance(&rows, covariance_of_errors)),
            };
            found.extend(
                with.iter().zip(&wrong).filter_map(|(n, wrong): (&u32, &f64)| {
                    Some((*n, estimate(*n)?.ln() - wrong - self.unit))
                }),
            );
            blocks.push(left);
        }
        if let Some(plain) = self.plain.as_ref().filter(|_| !without.is_empty()) {
            let rows = rows(register, &without);
            let means = plain.posterior_means(&rows);
            found.extend(without.iter().zip(means).map(|(n, mean)| (*n, log_gpus(*n) - self.middle - mean)));
            blocks.push(plain.posterior_covariance(&rows));
        }
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by_key(|i| found[*i].0);
        let of_block = |i: usize| if i < with.len() { (0, i) } else { (blocks.len() - 1, i - with.len()) };
        let covariance = DMatrix::from_fn(order.len(), order.len(), |i, j| {
            let (a, i) = of_block(order[i]);
            let (b, j) = of_block(order[j]);
            if a == b { blocks[a][(i, j)] } else { 0.0 }
        });
        let (sizes, log_rates) = order.iter().map(|i| found[*i]).unzip();
        PlanCurve::new(sizes, log_rates, covariance, points)
    }
}
