//! Where jobs waver: what they choose from iteration to iteration of prices, and where it differs most.

use crate::plan::space::decision::{JobSpace, Schedule, Space};

/// Weight of the newest iteration.
const NEWEST: f64 = 0.2;

/// A variance below this is none.
const NOTHING: f64 = 1e-9;

/// What the options of a job are told apart by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    /// Their nodes.
    Nodes,
    /// Their place in the list: where their nodes are the same.
    Number,
}

impl Measure {
    const ALL: [Measure; 2] = [Measure::Nodes, Measure::Number];

    fn of(self, job: &JobSpace<'_>, option: usize) -> f64 {
        match self {
            Measure::Nodes => f64::from(job.options[option].nodes),
            Measure::Number => option as f64,
        }
    }
}

/// Where the options of a job are split in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Split {
    /// The job.
    pub job: usize,
    /// The step.
    pub step: usize,
    by: Measure,
    at: f64,
}

impl Split {
    /// On which side an option lies.
    pub(crate) fn is_below(&self, space: &Space<'_>, option: usize) -> bool {
        self.by.of(&space.jobs[self.job], option) <= self.at
    }
}

/// Mean and variance of what was chosen.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    mean: f64,
    variance: f64,
}

impl Moments {
    /// Takes in a value with this weight (West 1979).
    fn see(&mut self, value: f64, weight: f64) {
        let off = value - self.mean;
        self.mean += weight * off;
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }
}

/// What jobs choose, the newest iteration weighing most.
pub(crate) struct Wavering {
    steps: usize,
    begun: bool,
    /// By measure, then job by job and step by step.
    moments: [Vec<Moments>; 2],
}

impl Wavering {
    /// Nothing was seen yet.
    pub fn new(space: &Space<'_>) -> Self {
        let (steps, count) = (space.steps.len(), space.steps.len() * space.jobs.len());
        Wavering {
            steps,
            begun: false,
            moments: [vec![Moments::default(); count], vec![Moments::default(); count]],
        }
    }

    /// Takes in what an iteration chose.
    pub fn see(&mut self, space: &Space<'_>, schedule: &Schedule) {
        let weight = if self.begun { NEWEST } else { 1.0 };
        self.begun = true;
        for (moments, by) in self.moments.iter_mut().zip(Measure::ALL) {
            let of_path = |(job, path): (usize, &'_ Vec<usize>)| {
                path.iter().map(|option| by.of(&space.jobs[job], *option)).collect::<Vec<f64>>()
            };
            let values = schedule.iter().enumerate().flat_map(of_path);
            moments.iter_mut().zip(values).for_each(|(moments, value)| moments.see(value, weight));
        }
    }

    /// Where sizes differ most in what they cost, else where options do; `None` where none differ.
    pub fn widest(&self, space: &Space<'_>, prices: &[f64]) -> Option<Split> {
        let find = |(moments, by): (&Vec<Moments>, Measure)| {
            let mut best: Option<(f64, Split)> = None;
            for (place, Moments { mean, variance }) in moments.iter().enumerate() {
                let (job, step) = (place / self.steps, place % self.steps);
                // What costs nothing is split last, but it is.
                let costs = variance.sqrt() * (NOTHING + price_of_a_node(space, job, step, prices));
                if *variance > NOTHING && best.is_none_or(|(most, _)| costs > most) {
                    best = Some((costs, Split { job, step, by, at: mean.floor() }));
                }
            }
            best.map(|(_, split)| split)
        };
        self.moments.iter().zip(Measure::ALL).find_map(find)
    }
}

/// What a node more costs a job in a step.
fn price_of_a_node(space: &Space<'_>, job: usize, step: usize, prices: &[f64]) -> f64 {
    let JobSpace { options, demands, .. } = &space.jobs[job];
    let largest = options.iter().enumerate().max_by_key(|(_, option)| option.nodes);
    let Some((largest, option)) = largest else { return 0.0 };
    let price = |resource: usize| space.limit_at[step][resource].map_or(0.0, |limit| prices[limit]);
    let paid: f64 = demands.iter().map(|d| price(d.resource) * d.amounts[largest]).sum();
    paid / f64::from(option.nodes.max(1))
}
