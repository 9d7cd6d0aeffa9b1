//! What ways to run programs have in common: the covariance of how long they take, and a Gaussian process
//! over them.
//!
//! What is modelled is the logarithm of the GPU-seconds of a step, or of a sample. Two measurements are alike
//! as far as they share program, type or size, and the way in which any of these scales: what programs
//! measured on two types says how the types compare, and what they measured at two sizes how programs scale.
//! Programs whose names begin alike are kin, and share more of it. The covariance is a sum of such shares.
//! Their variances were chosen on Arena's public table (25 programs, four types, up to 16 GPUs; EuroSys
//! 2026): on a type where a program never ran its steps come out 14.3 % wrong there (median 9.8 %), once
//! others are known and itself by one measurement on another type; and 25.7 % where none of the others is
//! kin. The 90 % intervals hold 91 and 97 % of them.

use std::collections::BTreeMap;

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Standard deviation of what a program adds, on all types at all sizes.
const PROGRAM_SD: f64 = 1.6;

/// The same of an execution plan of a program: it says how fast others are, with that doubt.
const PLAN_SD: f64 = 0.4;

/// The same of a type: for all programs, for a family of them, for all of one kind.
const TYPE_SD: f64 = 0.4;
const TYPE_OF_FAMILY: f64 = 0.1;
const TYPE_OF_KIND: f64 = 0.2;

/// The same of each doubling of the GPUs: of all programs on all types, of a type, of a family, of a family
/// on a type.
const DOUBLING_SD: f64 = 0.15;
const DOUBLING_ON_TYPE: f64 = 0.08;
const DOUBLING_OF_FAMILY: f64 = 0.12;
const DOUBLING_OF_FAMILY_ON_TYPE: f64 = 0.05;

/// Doublings up to which types differ in proportion: so many has the table. Beyond, by two more at most.
const PROPORTIONAL_DOUBLINGS: f64 = 4.0;
const BEYOND_DOUBLINGS: f64 = 2.0;

/// The same of a size of a type.
const SIZE_OF_TYPE: f64 = 0.1;

/// The same of a size of a program's plan on all types, and over how many doublings of the size it is alike:
/// where a curve bends on one type, it bends on others.
const SIZE_OF_PLAN: f64 = 0.06;
const REACH_DOUBLINGS: f64 = 1.0;

/// What none of them says, for each (plan of a program, type, size); and for each kind of nodes that have
/// GPUs of that type.
const MISFIT_SD: f64 = 0.087;
const MISFIT_OF_NODES: f64 = 0.05;

/// The same of how wrong estimates are: all of them, those of a program, each doubling, a size of a type,
/// each alone. On the same table, whose estimates for 16 GPUs are 0.65 of what was measured.
const ESTIMATE_ERROR_SD: f64 = 0.11;
const WRONG_OF_PROGRAM: f64 = 0.05;
const WRONG_BY_DOUBLING: f64 = 0.12;
const WRONG_OF_SIZE_OF_TYPE: f64 = 0.11;
const WRONG_ALONE: f64 = 0.1;

/// Divides the parts of a program's name.
const DIVIDER: char = '-';

/// Added to each variance, so that covariances can be inverted.
const JITTER: f64 = 1e-9;

/// A plan of a program on so many GPUs of a type, in numbers of a [`NameInterner`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunInput {
    program: usize,
    plan: usize,
    family: usize,
    kind: usize,
    node_type: usize,
    nodes: usize,
    gpus: u32,
    doublings: f64,
    /// As far as types differ in them.
    bounded: f64,
}

/// Who runs what, where. `scope`: among whose programs names tell of kin; `node_type`: the make of the GPUs;
/// `nodes`: the kind of nodes with such GPUs.
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

/// Numbers for names, so that rows are compared quickly.
#[derive(Clone, Debug, Default)]
pub(super) struct NameInterner {
    numbers: BTreeMap<String, usize>,
}

/// Words of a name in the register, one a field of [`RunInput`].
fn interner_keys(named: &RunNames<'_>) -> [String; 6] {
    let RunNames { scope, user, program, plan, node_type, nodes, .. } = named;
    // What kind of program it is: the name up to its first part; the family is the name without its last.
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
    /// The row of a way to run.
    pub(super) fn intern_run(&mut self, named: &RunNames<'_>) -> RunInput {
        RunInput::from_numbers(
            interner_keys(named).map(|word: String| {
                let next = self.numbers.len();
                *self.numbers.entry(word).or_insert(next)
            }),
            named.gpus,
        )
    }

    /// The same, also of strangers to the register; `stranger` tells two unknown types apart.
    pub(super) fn find_run(&self, named: &RunNames<'_>, stranger: usize) -> RunInput {
        let number = |word: String| self.numbers.get(&word).copied().unwrap_or(usize::MAX - stranger);
        let mut numbers = interner_keys(named).map(number);
        // But for the type it is the same program that is unknown.
        numbers[..4].iter_mut().filter(|n| **n == usize::MAX - stranger).for_each(|n| *n = usize::MAX);
        RunInput::from_numbers(numbers, named.gpus)
    }
}

/// A share of the covariance: that of `sd`, where two rows have it in common.
fn shared_variance(same: bool, sd: f64) -> f64 {
    if same { sd * sd } else { 0.0 }
}

/// Covariance of the GPU-seconds of two rows.
pub(super) fn run_covariance(a: &RunInput, b: &RunInput) -> f64 {
    let program = a.program == b.program;
    let plan = a.plan == b.plan;
    let family = a.family == b.family;
    let kind = a.kind == b.kind;
    let node_type = a.node_type == b.node_type;
    let size = a.gpus == b.gpus;
    let a_doubling = shared_variance(true, DOUBLING_SD) + shared_variance(family, DOUBLING_OF_FAMILY);
    let on_type = shared_variance(node_type, DOUBLING_ON_TYPE)
        + shared_variance(family && node_type, DOUBLING_OF_FAMILY_ON_TYPE);
    let of_plan = if plan {
        let near = (-(a.doublings - b.doublings).abs() / REACH_DOUBLINGS).exp();
        let place = node_type && size;
        shared_variance(true, PLAN_SD)
            + shared_variance(true, SIZE_OF_PLAN) * near
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
        + a_doubling * a.doublings * b.doublings
        + on_type * a.bounded * b.bounded
}

/// Covariance of how wrong the estimates of two rows are.
pub(super) fn covariance_of_errors(a: &RunInput, b: &RunInput) -> f64 {
    let place = a.node_type == b.node_type && a.gpus == b.gpus;
    shared_variance(true, ESTIMATE_ERROR_SD)
        + shared_variance(a.program == b.program, WRONG_OF_PROGRAM)
        + shared_variance(true, WRONG_BY_DOUBLING) * a.doublings * b.doublings
        + shared_variance(place, WRONG_OF_SIZE_OF_TYPE)
        + shared_variance(place && a.plan == b.plan, WRONG_ALONE)
}

/// A number that was seen of a row, and its variance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunObservation {
    pub(super) row: RunInput,
    pub(super) value: f64,
    pub(super) variance: f64,
}

/// A Gaussian process that has seen something; its mean is 0 where nothing was.
#[derive(Clone, Debug)]
pub(super) struct GaussianProcess {
    rows: Vec<RunInput>,
    covariance: fn(&RunInput, &RunInput) -> f64,
    decomposed: Cholesky<f64, Dyn>,
    /// Inverse covariance times what was seen.
    pull: DVector<f64>,
}

impl GaussianProcess {
    /// `None` where nothing was seen, or numbers overflow.
    pub(super) fn new(
        seen: &[RunObservation],
        covariance: fn(&RunInput, &RunInput) -> f64,
    ) -> Option<GaussianProcess> {
        let rows: Vec<RunInput> = seen.iter().map(|o| o.row).collect();
        let alone = |i: usize, j: usize| if i == j { seen[i].variance + JITTER } else { 0.0 };
        let all =
            DMatrix::from_fn(rows.len(), rows.len(), |i, j| covariance(&rows[i], &rows[j]) + alone(i, j));
        let decomposed = if rows.is_empty() { None } else { Cholesky::new(all) }?;
        let pull = decomposed.solve(&DVector::from_iterator(seen.len(), seen.iter().map(|o| o.value)));
        Some(GaussianProcess { rows, covariance, decomposed, pull })
    }

    /// Covariance of these rows with what was seen.
    fn cross_covariance(&self, rows: &[RunInput]) -> DMatrix<f64> {
        DMatrix::from_fn(rows.len(), self.rows.len(), |i, j| (self.covariance)(&rows[i], &self.rows[j]))
    }

    /// What is expected of each row.
    pub(super) fn posterior_means(&self, rows: &[RunInput]) -> Vec<f64> {
        (self.cross_covariance(rows) * &self.pull).iter().copied().collect()
    }

    /// What remains of the covariance of these rows.
    pub(super) fn posterior_covariance(&self, rows: &[RunInput]) -> DMatrix<f64> {
        let to = self.cross_covariance(rows);
        prior_covariance(rows, self.covariance) - &to * self.decomposed.solve(&to.transpose())
    }
}

/// Covariance of these rows while nothing was seen.
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
    fn names_tell_of_kin_only_within_their_scope() {
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
        let kin = row("alice", "alice", "bert-1B-128", "ddp");
        let stranger = row("bob", "bob", "bert-1B-128", "ddp");
        let namesake = row("bob", "bob", "bert-1B-64", "ddp");
        let other_plan = row("alice", "alice", "bert-1B-64", "zero");
        assert!(run_covariance(&own, &kin) > run_covariance(&own, &stranger));
        assert_eq!(
            run_covariance(&own, &namesake),
            run_covariance(&own, &stranger),
            "another user's is another program"
        );
        assert!(run_covariance(&own, &other_plan) > run_covariance(&own, &kin));
        assert!(run_covariance(&own, &own) > run_covariance(&own, &other_plan) + PLAN_SD * PLAN_SD);
    }

    #[test]
    fn what_was_seen_is_believed_and_leaves_little_doubt() {
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
        let left = process.posterior_covariance(&rows);
        assert!((means[1] - 0.7).abs() < 0.001 && (left[(1, 1)] - 1e-4).abs() < 1e-6, "{means:?}");
        assert!(left[(0, 0)] > left[(1, 1)] && left[(2, 2)] > left[(0, 0)], "{left}");
        assert!(GaussianProcess::new(&[], run_covariance).is_none());
    }
}
