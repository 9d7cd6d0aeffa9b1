//! Decides where to split a branch: at what jobs choose differently from iteration to iteration.
//!
//! A job chooses the type of its nodes, and how many it takes. What matters most is the type: under prices
//! that are nearly right a job takes half of one type and half of another, and no schedule can do that. So
//! options differ by their *kind* first: the type of their nodes, or no nodes at all.

use crate::plan::space::decision::{DecisionSpace, JobSpace, Schedule};
use crate::plan::space::job_option::JobOption;

/// Weight of the newest iteration.
const NEWEST: f64 = 0.2;

/// A share or a variance below this is none.
const NOTHING: f64 = 1e-9;

/// A group of options of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OptionGroup {
    /// Those of a kind.
    OfKind(usize),
    /// Those of a kind with more nodes than this.
    Above(usize, f64),
    /// Those whose number is at most this: it tells apart what takes the same nodes.
    UpTo(f64),
}

/// Splits the options of a job in a step: those of a group, and the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BranchSplit {
    /// The job.
    pub job: usize,
    /// The step.
    pub step: usize,
    group: OptionGroup,
}

impl BranchSplit {
    /// Whether an option is in the group.
    pub(crate) fn has_option(&self, space: &DecisionSpace<'_>, option: usize) -> bool {
        let spec = &space.jobs[self.job].options[option];
        match self.group {
            OptionGroup::OfKind(kind) => option_kind(space, spec) == kind,
            OptionGroup::Above(kind, nodes) => {
                option_kind(space, spec) == kind && f64::from(spec.nodes) > nodes
            }
            OptionGroup::UpTo(number) => option as f64 <= number,
        }
    }
}

/// The kind of an option: 0 without nodes, else one more than the number of their type. Where all nodes are
/// of one type, only their number tells options apart.
fn option_kind(space: &DecisionSpace<'_>, option: &JobOption) -> usize {
    if option.nodes == 0 || space.types.len() < 2 { 0 } else { 1 + option.node_type }
}

fn count_kinds(space: &DecisionSpace<'_>) -> usize {
    if space.types.len() < 2 { 1 } else { 1 + space.types.len() }
}

/// How often a kind was chosen in a step, and with how many nodes: means over iterations.
#[derive(Clone, Copy, Debug, Default)]
struct KindShare {
    share: f64,
    /// Nodes; none in an iteration that chose another kind.
    nodes: f64,
    /// Their square.
    squares: f64,
}

impl KindShare {
    fn add_choice(&mut self, is_chosen: bool, nodes: f64, weight: f64) {
        let seen = if is_chosen { [1.0, nodes, nodes * nodes] } else { [0.0; 3] };
        for (mean, value) in [&mut self.share, &mut self.nodes, &mut self.squares].into_iter().zip(seen) {
            *mean += weight * (value - *mean);
        }
    }

    /// Nodes where the kind is chosen.
    fn mean_nodes(&self) -> f64 {
        self.nodes / self.share
    }

    /// How much the kind is chosen and not chosen, as a standard deviation.
    fn kind_deviation(&self) -> f64 {
        (self.share * (1.0 - self.share)).max(0.0).sqrt()
    }

    /// How much the number of nodes differs where the kind is chosen, as a standard deviation.
    fn node_deviation(&self) -> f64 {
        (self.squares / self.share - self.mean_nodes() * self.mean_nodes()).max(0.0).sqrt()
    }
}

/// Mean and variance of the number of the chosen option.
#[derive(Clone, Copy, Debug, Default)]
struct NumberMoments {
    mean: f64,
    variance: f64,
}

impl NumberMoments {
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
    kinds: usize,
    begun: bool,
    /// Job by job, step by step, kind by kind.
    shares: Vec<KindShare>,
    /// Job by job and step by step.
    numbers: Vec<NumberMoments>,
}

/// A split, and how much it would settle: nodes in what they cost.
#[derive(Clone, Copy)]
struct SplitChoice {
    value: f64,
    split: BranchSplit,
}

impl ChoiceVariance {
    /// Nothing was seen yet.
    pub fn new(space: &DecisionSpace<'_>) -> Self {
        let steps = space.steps.len();
        let kinds = count_kinds(space);
        let places = steps * space.jobs.len();
        ChoiceVariance {
            steps,
            kinds,
            begun: false,
            shares: vec![KindShare::default(); places * kinds],
            numbers: vec![NumberMoments::default(); places],
        }
    }

    /// Takes in what an iteration chose.
    pub fn add_schedule(&mut self, space: &DecisionSpace<'_>, schedule: &Schedule) {
        let weight = if self.begun { NEWEST } else { 1.0 };
        self.begun = true;
        let mut shares = self.shares.chunks_exact_mut(self.kinds);
        let mut numbers = self.numbers.iter_mut();
        for (job, path) in space.jobs.iter().zip(schedule) {
            for option in path {
                let spec = &job.options[*option];
                for (kind, share) in shares.next().into_iter().flatten().enumerate() {
                    share.add_choice(kind == option_kind(space, spec), f64::from(spec.nodes), weight);
                }
                numbers.next().into_iter().for_each(|moments| moments.add_value(*option as f64, weight));
            }
        }
    }

    /// The split of a kind or of sizes that settles most, else of options that take the same nodes; `None`
    /// where each iteration chose the same.
    pub fn widest_split(&self, space: &DecisionSpace<'_>, prices: &[f64]) -> Option<BranchSplit> {
        let mut best: Option<SplitChoice> = None;
        for job in 0..space.jobs.len() {
            let node_prices = self.node_prices(space, job, prices);
            for kind in 0..self.kinds {
                for choice in self.splits_of_kind(job, kind, &node_prices).into_iter().flatten() {
                    if best.is_none_or(|best| choice.value > best.value) {
                        best = Some(choice);
                    }
                }
            }
        }
        best.map(|choice| choice.split).or_else(|| self.widest_numbers())
    }

    fn share_at(&self, job: usize, step: usize, kind: usize) -> &KindShare {
        &self.shares[(job * self.steps + step) * self.kinds + kind]
    }

    /// The best split between a kind and the others, and the best one between its sizes. A job rarely changes
    /// its type, so a choice weighs what it costs in all steps. It is split where it costs most.
    fn splits_of_kind(&self, job: usize, kind: usize, node_prices: &[Vec<f64>]) -> [Option<SplitChoice>; 2] {
        let mut sums = [0.0; 2];
        let mut widest: [Option<SplitChoice>; 2] = [None; 2];
        for (step, prices) in node_prices.iter().enumerate() {
            let share = self.share_at(job, step, kind);
            if share.share < NOTHING {
                continue;
            }
            let cost = if kind > 0 {
                prices[kind] * share.mean_nodes()
            } else {
                self.cost_of_others(job, step, prices)
            };
            let sizes = share.share * prices[kind] * share.node_deviation();
            let groups = [OptionGroup::OfKind(kind), OptionGroup::Above(kind, share.mean_nodes().floor())];
            for (at, value) in [share.kind_deviation() * cost, sizes].into_iter().enumerate() {
                sums[at] += value;
                if value > NOTHING && widest[at].is_none_or(|widest| value > widest.value) {
                    widest[at] =
                        Some(SplitChoice { value, split: BranchSplit { job, step, group: groups[at] } });
                }
            }
        }
        for (widest, sum) in widest.iter_mut().zip(sums) {
            widest.iter_mut().for_each(|choice| choice.value = sum);
        }
        widest
    }

    /// What a job pays in a step where it has nodes.
    fn cost_of_others(&self, job: usize, step: usize, prices: &[f64]) -> f64 {
        let mut paid = 0.0;
        let mut shares = 0.0;
        for (kind, price) in prices.iter().enumerate().take(self.kinds).skip(1) {
            let share = self.share_at(job, step, kind);
            paid += price * share.nodes;
            shares += share.share;
        }
        if shares < NOTHING { 0.0 } else { paid / shares }
    }

    /// What a node of each kind costs a job in each step. What costs nothing is split last, but it is.
    fn node_prices(&self, space: &DecisionSpace<'_>, job: usize, prices: &[f64]) -> Vec<Vec<f64>> {
        let JobSpace { options, demands, .. } = &space.jobs[job];
        let mut largest = vec![0; self.kinds];
        for (option, spec) in options.iter().enumerate() {
            let known = &mut largest[option_kind(space, spec)];
            if spec.nodes >= options[*known].nodes {
                *known = option;
            }
        }
        let mut found = vec![vec![NOTHING; self.kinds]; self.steps];
        for (row, limits) in found.iter_mut().zip(&space.limit_at) {
            for demand in demands {
                let price = limits[demand.resource].map_or(0.0, |limit| prices[limit]);
                for (node_price, option) in row.iter_mut().zip(&largest) {
                    *node_price += price * demand.amounts[*option] / f64::from(options[*option].nodes.max(1));
                }
            }
        }
        found
    }

    /// Where the numbers of options differ most.
    fn widest_numbers(&self) -> Option<BranchSplit> {
        let mut best: Option<SplitChoice> = None;
        for (place, moments) in self.numbers.iter().enumerate() {
            let value = moments.variance;
            if value > NOTHING && best.is_none_or(|best| value > best.value) {
                let group = OptionGroup::UpTo(moments.mean.floor());
                let split = BranchSplit { job: place / self.steps, step: place % self.steps, group };
                best = Some(SplitChoice { value, split });
            }
        }
        best.map(|choice| choice.split)
    }
}
