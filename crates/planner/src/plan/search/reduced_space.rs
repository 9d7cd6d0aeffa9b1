//! The space without the options that no better schedule uses: fewer options make each iteration faster.

use super::multipliers::UsefulOptions;
use crate::plan::space::{
    change_costs::ChangeCosts,
    decision::{DecisionSpace, JobSpace, Schedule},
    resource::ResourceDemand,
    step_table::StepTable,
};

/// A space with fewer options, and where these are in the whole one.
#[derive(Clone, Debug)]
pub(super) struct ReducedSpace<'a> {
    /// The smaller space. Options that are useless in one step only earn −∞ there.
    pub space: DecisionSpace<'a>,
    /// For each job the number in the whole space of each option that is left.
    left: Vec<Vec<usize>>,
}

impl<'a> ReducedSpace<'a> {
    /// The space with the options that are useful in some step. What the base schedule needs stays, too.
    pub fn from_useful(whole: &DecisionSpace<'a>, useful: &UsefulOptions) -> Self {
        let base = whole.base_schedule();
        let mut left = Vec::with_capacity(whole.jobs.len());
        for (job, useful) in useful.iter().enumerate() {
            let is_left = |option: &usize| {
                *option == 0 || base[job].contains(option) || useful.iter().any(|row| row[*option])
            };
            left.push((0..whole.jobs[job].options.len()).filter(is_left).collect::<Vec<usize>>());
        }
        let mut space = whole.clone();
        for (job, left) in left.iter().enumerate() {
            space.jobs[job] = reduced_job(&whole.jobs[job], &useful[job], left);
        }
        for (job, option) in &mut space.promises.first {
            *option = left[*job].binary_search(option).unwrap_or(0);
        }
        ReducedSpace { space, left }
    }

    /// The same schedule in the whole space.
    pub fn restore_schedule(&self, reduced: &Schedule) -> Schedule {
        let mut restored = Vec::with_capacity(reduced.len());
        for (path, left) in reduced.iter().zip(&self.left) {
            restored.push(path.iter().map(|option| left[*option]).collect());
        }
        restored
    }
}

/// A job with the options that are `left`. They earn −∞ in the steps in which they are not useful.
fn reduced_job<'a>(whole: &JobSpace<'a>, useful: &[Vec<bool>], left: &[usize]) -> JobSpace<'a> {
    let options: Vec<_> = left.iter().map(|option| whole.options[*option].clone()).collect();
    let mut gains = Vec::with_capacity(left.len() * useful.len());
    for (row, useful) in whole.gains.rows().zip(useful) {
        let gain = |option: &usize| if useful[*option] { row[*option] } else { f64::NEG_INFINITY };
        gains.extend(left.iter().map(gain));
    }
    let amounts = |demand: &ResourceDemand| left.iter().map(|option| demand.amounts[*option]).collect();
    let demands = whole.demands.iter();
    let demands = demands.filter_map(|demand| ResourceDemand::from_amounts(demand.resource, amounts(demand)));
    JobSpace {
        job: whole.job,
        kept_order: whole.kept_order.clone(),
        can_stay: whole.can_stay,
        reluctance: whole.reluctance,
        changes: ChangeCosts::between_options(whole.job, &options, whole.reluctance),
        gains: StepTable::new(options.len(), gains),
        options,
        demands: demands.collect(),
    }
}
