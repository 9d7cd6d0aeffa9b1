//! What ways to run programs have in common: the covariance of how long they take, and a Gaussian process
//! over them.
//!
//! The modelled quantity is the logarithm of the GPU-seconds of a step, or of a sample. Two measurements are
//! alike as far as they share program, type or size, and the way in which any of these scales. What programs
//! measured on two types says how the types compare, and what they measured at two sizes says how programs
//! scale. Programs whose names begin alike are related, and share more. The covariance is a sum of such
//! shares.
//!
//! The variances were chosen on Arena's public table (25 programs, four types, up to 16 GPUs; EuroSys 2026).
//! The test predicts a program's steps on a type where it never ran, from the other programs and one
//! measurement of it on another type. The predictions are 14.3 % wrong on average (median 9.8 %), and 25.7 %
//! where no other program is related. The 90 % intervals hold 91 and 97 % of the measurements.

use std::collections::BTreeMap;

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Standard deviation of what a program adds, on all types at all sizes. The next constants are standard
/// deviations, too, of logarithms.
const PROGRAM_SD: f64 = 1.6;

/// What an execution plan of a program adds. One plan's speed predicts another's, with this uncertainty.
const PLAN_SD: f64 = 0.4;

/// What a type adds: for all programs, for a family of programs, for all programs of one kind.
const TYPE_SD: f64 = 0.4;
const TYPE_OF_FAMILY: f64 = 0.1;
const TYPE_OF_KIND: f64 = 0.2;

/// What each doubling of the GPUs adds: for all programs on all types, on a type, for a family, for a family
/// on a type.
const DOUBLING_SD: f64 = 0.15;
const DOUBLING_ON_TYPE: f64 = 0.08;
const DOUBLING_OF_FAMILY: f64 = 0.12;
const DOUBLING_OF_FAMILY_ON_TYPE: f64 = 0.05;

/// Doublings up to which the differences between types grow in proportion, as far as the table reaches.
/// Beyond that they grow by at most two more.
const PROPORTIONAL_DOUBLINGS: f64 = 4.0;
const BEYOND_DOUBLINGS: f64 = 2.0;

/// What a size of a type adds.
const SIZE_OF_TYPE: f64 = 0.1;

/// What a size of a program's plan adds on all types, and over how many doublings of the size it is alike. A
/// curve that bends on one type bends on others.
const SIZE_OF_PLAN: f64 = 0.06;
const REACH_DOUBLINGS: f64 = 1.0;

/// What remains, for each (plan of a program, type, size); and for each kind of nodes with GPUs of that type.
const MISFIT_SD: f64 = 0.087;
const MISFIT_OF_NODES: f64 = 0.05;

/// The errors of estimates: of all estimates, of a program's, by doubling, of a size of a type, of each
/// alone. They were chosen on the same table, whose estimates for 16 GPUs are 0.65 of the measurements.
const ESTIMATE_ERROR_SD: f64 = 0.11;
const ERROR_OF_PROGRAM: f64 = 0.05;
const ERROR_BY_DOUBLING: f64 = 0.12;
const ERROR_OF_SIZE_OF_TYPE: f64 = 0.11;
const ERROR_ALONE: f64 = 0.1;

/// Separates the parts of a program's name.
const DIVIDER: char = '-';

/// Added to each variance, so that covariances can be inverted.
const JITTER: f64 = 1e-9;

/// A plan of a program on a number of GPUs of a type. All names are numbers of a [`NameInterner`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunInput {
    program: usize,
    plan: usize,
    family: usize,
    kind: usize,
    node_type: usize,
    nodes: usize,
    gpus: u32,
    /// Doublings of one GPU.
    doublings: f64,
    /// The doublings that count for differences between types.
    bounded: f64,
}

/// The names of a way to run. `scope`: the users among whose programs names are related; `node_type`: the
/// make of the GPUs; `nodes`: the kind of nodes with such GPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunNames<'a> {
    pub(super) scope: &'a str,
    pub(super) user: &'a str,
    pub(super) program: &'a str,
    pub(super) plan: &'a str,
    pub(super) node_type: &'a str,
    pub(super) nodes: &'a str,
    pub(super) gpus: u32,
}

/// Numbers for names, so that rows can be compared quickly.
#[derive(Clone, Debug, Default)]
pub(super) struct NameInterner {
    numbers: BTreeMap<String, usize>,
}

/// The keys of a way to run in the interner, one for each named field of [`RunInput`].
fn interner_keys(named: &RunNames<'_>) -> [String; 6] {
    let RunNames { scope, user, program, plan, node_type, nodes, .. } = named;
    // The kind is the first part of the program's name, and the family is all of it but the last part.
    let kind = program.split(DIVIDER).next().unwrap_or_default();
    let family = program.rsplit_once(DIVIDER).map_or(*program, |(family, _)| family);
    [
        format!("program\0{user}\0{program}"),
        format!("plan\0{user}\0{program}\0{plan}"),
        format!("family\0{scope}\0{family}\0{plan}"),
        format!("kind\0{scope}\0{kind}"),
        format!("type\0{node_type}"),
        format!("nodes\0{nodes}"),
    ]
}

impl RunInput {
    fn from_numbers([program, plan, family, kind, node_type, nodes]: [usize; 6], gpus: u32) -> RunInput {
        let gpus = gpus.max(1);
        let doublings = f64::from(gpus).log2();
        let beyond = BEYOND_DOUBLINGS
            * (1.0 - (-(doublings - PROPORTIONAL_DOUBLINGS).max(0.0) / BEYOND_DOUBLINGS).exp());
        let bounded = doublings.min(PROPORTIONAL_DOUBLINGS) + beyond;
        RunInput { program, plan, family, kind, node_type, nodes, gpus, doublings, bounded }
    }
}

impl NameInterner {
    /// The row of a way to run. New names get numbers.
    pub(super) fn intern_run(&mut self, named: &RunNames<'_>) -> RunInput {
        RunInput::from_numbers(
            interner_keys(named).map(|word| {
                let next = self.numbers.len();
                *self.numbers.entry(word).or_insert(next)
            }),
            named.gpus,
        )
    }

    /// The row of a way to run that may have unknown names. `stranger` makes two unknown types differ.
    pub(super) fn find_run(&self, named: &RunNames<'_>, stranger: usize) -> RunInput {
        let mut numbers = interner_keys(named)
            .map(|word| self.numbers.get(&word).copied().unwrap_or(usize::MAX - stranger));
        // Only an unknown type differs between strangers: both rows are of the same unknown program.
        numbers[..4].iter_mut().filter(|n| **n == usize::MAX - stranger).for_each(|n| *n = usize::MAX);
        RunInput::from_numbers(numbers, named.gpus)
    }
}

/// The variance of something that two rows may have in common; 0 where they do not.
fn shared_variance(same: bool, sd: f64) -> f64 {
    if same { sd * sd } else { 0.0 }
}

/// Covariance of the logarithms of two rows' GPU-seconds.
pub(super) fn run_covariance(a: &RunInput, b: &RunInput) -> f64 {
    let program = a.program == b.program;
    let plan = a.plan == b.plan;
    let family = a.family == b.family;
    let kind = a.kind == b.kind;
    let node_type = a.node_type == b.node_type;
    let size = a.gpus == b.gpus;
    let by_doubling = shared_variance(true, DOUBLING_SD) + shared_variance(family, DOUBLING_OF_FAMILY);
    let on_type = shared_variance(node_type, DOUBLING_ON_TYPE)
        + shared_variance(family && node_type, DOUBLING_OF_FAMILY_ON_TYPE);
    let of_plan = if plan {
        let similarity = (-(a.doublings - b.doublings).abs() / REACH_DOUBLINGS).exp();
        let place = node_type && size;
        shared_variance(true, PLAN_SD)
            + shared_variance(true, SIZE_OF_PLAN) * similarity
            + shared_variance(place, MISFIT_SD)
            + shared_variance(place && a.nodes == b.nodes, MISFIT_OF_NODES)
    } else {
        0.0
    };
    shared_variance(program, PROGRAM_SD)
        + of_plan
        + shared_variance(node_type, TYPE_SD)
        + shared_variance(node_type && family, TYPE_OF_FAMILY)
        + shared_variance(node_type && kind, TYPE_OF_KIND)
        + shared_variance(node_type && size, SIZE_OF_TYPE)
        + by_doubling * a.doublings * b.doublings
        + on_type * a.bounded * b.bounded
}

/// Covariance of the errors of two rows' estimates.
pub(super) fn covariance_of_errors(a: &RunInput, b: &RunInput) -> f64 {
    let place = a.node_type == b.node_type && a.gpus == b.gpus;
    shared_variance(true, ESTIMATE_ERROR_SD)
        + shared_variance(a.program == b.program, ERROR_OF_PROGRAM)
        + shared_variance(true, ERROR_BY_DOUBLING) * a.doublings * b.doublings
        + shared_variance(place, ERROR_OF_SIZE_OF_TYPE)
        + shared_variance(place && a.plan == b.plan, ERROR_ALONE)
}

/// An observed number of a row, and its variance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunObservation {
    pub(super) row: RunInput,
    pub(super) value: f64,
    pub(super) variance: f64,
}

/// A Gaussian process with some observations. Its prior mean is 0.
#[derive(Clone, Debug)]
pub(super) struct GaussianProcess {
    rows: Vec<RunInput>,
    covariance: fn(&RunInput, &RunInput) -> f64,
    decomposed: Cholesky<f64, Dyn>,
    /// Inverse covariance times the observed numbers.
    pull: DVector<f64>,
}

impl GaussianProcess {
    /// `None` without observations, or where numbers overflow.
    pub(super) fn new(
        seen: &[RunObservation],
        covariance: fn(&RunInput, &RunInput) -> f64,
    ) -> Option<GaussianProcess> {
        let rows: Vec<RunInput> = seen.iter().map(|o| o.row).collect();
        let all = DMatrix::from_fn(rows.len(), rows.len(), |i, j| {
            let noise = if i == j { seen[i].variance + JITTER } else { 0.0 };
            covariance(&rows[i], &rows[j]) + noise
        });
        let decomposed = if rows.is_empty() { None } else { Cholesky::new(all) }?;
        let pull = decomposed.solve(&DVector::from_iterator(seen.len(), seen.iter().map(|o| o.value)));
        Some(GaussianProcess { rows, covariance, decomposed, pull })
    }

    /// Covariance of these rows with the observed ones.
    fn cross_covariance(&self, rows: &[RunInput]) -> DMatrix<f64> {
        DMatrix::from_fn(rows.len(), self.rows.len(), |i, j| (self.covariance)(&rows[i], &self.rows[j]))
    }

    /// The expected number of each row.
    pub(super) fn posterior_means(&self, rows: &[RunInput]) -> Vec<f64> {
        (self.cross_covariance(rows) * &self.pull).iter().copied().collect()
    }

    /// The covariance of these rows that remains after the observations.
    pub(super) fn posterior_covariance(&self, rows: &[RunInput]) -> DMatrix<f64> {
        let cross = self.cross_covariance(rows);
        prior_covariance(rows, self.covariance) - &cross * self.decomposed.solve(&cross.transpose())
    }
}

/// Covariance of these rows without observations.
pub(super) fn prior_covariance(
    rows: &[RunInput],
    covariance: fn(&RunInput, &RunInput) -> f64,
) -> DMatrix<f64> {
    DMatrix::from_fn(rows.len(), rows.len(), |i, j| covariance(&rows[i], &rows[j]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_relations_only_within_their_scope() {
        let mut names = NameInterner::default();
        let mut row = |scope, user, program, plan| {
            names.intern_run(&RunNames {
                scope,
                user,
                program,
                plan,
                node_type: "a100",
                nodes: "a100",
                gpus: 2,
            })
        };
        let own = row("alice", "alice", "bert-1B-64", "ddp");
        let related = row("alice", "alice", "bert-1B-128", "ddp");
        let stranger = row("bob", "bob", "bert-1B-128", "ddp");
        let namesake = row("bob", "bob", "bert-1B-64", "ddp");
        let other_plan = row("alice", "alice", "bert-1B-64", "zero");
        assert!(run_covariance(&own, &related) > run_covariance(&own, &stranger));
        assert_eq!(
            run_covariance(&own, &namesake),
            run_covariance(&own, &stranger),
            "the same name of another user is another program"
        );
        assert!(run_covariance(&own, &other_plan) > run_covariance(&own, &related));
        assert!(run_covariance(&own, &own) > run_covariance(&own, &other_plan) + PLAN_SD * PLAN_SD);
    }

    #[test]
    fn an_observation_is_believed_and_leaves_little_uncertainty() {
        let mut names = NameInterner::default();
        let mut row = |gpus, node_type| {
            names.intern_run(&RunNames {
                scope: "",
                user: "",
                program: "p",
                plan: "",
                node_type,
                nodes: node_type,
                gpus,
            })
        };
        let rows = [row(1, "a"), row(4, "a"), row(4, "b")];
        let seen = RunObservation { row: rows[1], value: 0.7, variance: 1e-4 };
        let process = GaussianProcess::new(&[seen], run_covariance).unwrap();
        let means = process.posterior_means(&rows);
        let remaining = process.posterior_covariance(&rows);
        assert!((means[1] - 0.7).abs() < 0.001 && (remaining[(1, 1)] - 1e-4).abs() < 1e-6, "{means:?}");
        assert!(
            remaining[(0, 0)] > remaining[(1, 1)] && remaining[(2, 2)] > remaining[(0, 0)],
            "{remaining}"
        );
        assert!(GaussianProcess::new(&[], run_covariance).is_none());
    }
}
