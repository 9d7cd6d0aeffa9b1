//! Where jobs waver: what they choose from iteration to iteration of prices, and where it differs most.

use crate::plan::space::decision::{DecisionSpace, JobSpace, Schedule};

/// Weight of the newest iteration.
const NEWEST: f64 = 0.2;

/// A variance below this is none.
const NOTHING: f64 = 1e-9;

/// What the options of a job are told apart by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SplitMeasure {
    /// Their nodes.
    Nodes,
    /// Their place in the list: where their nodes are the same.
    Number,
}

impl SplitMeasure {
    const ALL: [SplitMeasure; 2] = [SplitMeasure::Nodes, SplitMeasure::Number];

    fn measure_option(self, job: &JobSpace<'_>, option: usize) -> f64 {
        match self {
            SplitMeasure::Nodes => f64::from(job.options[option].nodes),
            SplitMeasure::Number => option as f64,
        }
    }
}

/// Where the options of a job are split in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BranchSplit {
    /// The job.
    pub job: usize,
    /// The step.
    pub step: usize,
    by: SplitMeasure,
    at: f64,
}

impl BranchSplit {
    /// On which side an option lies.
    pub(crate) fn is_below(&self, space: &DecisionSpace<'_>, option: usize) -> bool {
        self.by.measure_option(&space.jobs[self.job], option) <= self.at
    }
}

/// Mean and variance of what was chosen.
#[derive(Clone, Copy, Debug, Default)]
struct ChoiceMoments {
    mean: f64,
    variance: f64,
}

impl ChoiceMoments {
    /// Takes in a value with this weight (West 1979).
    fn add_value(&mut self, value: f64, weight: f64) {
        let off = value - self.mean;
        self.mean += weight * off;
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }
}

/// What jobs choose, the newest iteration weighing most.
pub(crate) struct ChoiceVariance {
    steps: usize,
    begun: bool,
    /// By measure, then job by job and step by step.
    moments: [Vec<ChoiceMoments>; 2],
}

impl ChoiceVariance {
    /// Nothing was seen yet.
    pub fn new(space: &DecisionSpace<'_>) -> Self {
        let (steps, count) = (space.steps.len(), space.steps.len() * space.jobs.len());
        ChoiceVariance {
            steps,
            begun: false,
            moments: [vec![ChoiceMoments::default(); count], vec![ChoiceMoments::default(); count]],
        }
    }

    /// Takes in what an iteration chose.
    pub fn add_schedule(&mut self, space: &DecisionSpace<'_>, schedule: &Schedule) {
        let weight = if self.begun { NEWEST } else { 1.0 };
        self.begun = true;
        for (moments, by) in self.moments.iter_mut().zip(SplitMeasure::ALL) {
            let of_path = |(job, path): (usize, &'_ Vec<usize>)| {
                path.iter().map(|option| by.measure_option(&space.jobs[job], *option)).collect::<Vec<f64>>()
            };
            let values = schedule.iter().enumerate().flat_map(of_path);
            moments.iter_mut().zip(values).for_each(|(moments, value)| moments.add_value(value, weight));
        }
    }

    /// Where sizes differ most in what they cost, else where options do; `None` where none differ.
    pub fn widest_split(&self, space: &DecisionSpace<'_>, prices: &[f64]) -> Option<BranchSplit> {
        let find = |(moments, by): (&Vec<ChoiceMoments>, SplitMeasure)| {
            let mut best: Option<(f64, BranchSplit)> = None;
            for (place, ChoiceMoments { mean, variance }) in moments.iter().enumerate() {
                let (job, step) = (place / self.steps, place % self.steps);
                // What costs nothing is split last, but it is.
                let costs = variance.sqrt() * (NOTHING + node_price(space, job, step, prices));
                if *variance > NOTHING && best.is_none_or(|(most, _)| costs > most) {
                    best = Some((costs, BranchSplit { job, step, by, at: mean.floor() }));
                }
            }
            best.map(|(_, split)| split)
        };
        self.moments.iter().zip(SplitMeasure::ALL).find_map(find)
    }
}

/// What a node more costs a job in a step.
fn node_price(space: &DecisionSpace<'_>, job: usize, step: usize, prices: &[f64]) -> f64 {
    let JobSpace { options, demands, .. } = &space.jobs[job];
    let largest = options.iter().enumerate().max_by_key(|(_, option)| option.nodes);
    let Some((largest, option)) = largest else { return 0.0 };
    let price = |resource: usize| space.limit_at[step][resource].map_or(0.0, |limit| prices[limit]);
    let paid: f64 = demands.iter().map(|d| price(d.resource) * d.amounts[largest]).sum();
    paid / f64::from(option.nodes.max(1))
}
