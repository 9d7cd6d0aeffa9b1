//! How fast programs are on types of GPUs where they never ran: a Gaussian process over program, type and
//! size.
//!
//! What is modelled is the logarithm of the GPU-seconds of a step. Two measurements are alike as far as they
//! share program, type or size, and the way in which any of these scales: what programs measured on two types
//! says how the types compare, and what they measured at two sizes how programs scale. Programs whose names
//! begin alike are kin, and share more of it. The covariance is a sum of such shares. Their variances have
//! the greatest likelihood on Arena's public table (25 programs, four types, up to 16 GPUs; EuroSys 2026): of
//! a program with one measurement, once the others are known, the rest comes out 13.5 % wrong there (median
//! 9.4 %).
//!
//! A row may come with an estimate, made beforehand from profiles on one GPU and from how long collectives
//! take (Crius). Then what is modelled is how wrong estimates are: of such rows of a program that was
//! measured once a type the rest comes out 13.4 % wrong (median 8 %; as estimated 16.1 and 11.4 %), and
//! 8.6 % where others are known, too.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::means::Means;

/// Standard deviation of what a program adds, on all types at all sizes.
const PROGRAM: f64 = 1.6;

/// The same of a type: for all programs, for a family of them, for all of one kind.
const TYPE: f64 = 0.25;
const TYPE_OF_FAMILY: f64 = 0.1;
const TYPE_OF_KIND: f64 = 0.26;

/// The same of each doubling of the GPUs: of all programs on all types, of a type, of a family, of a family
/// on a type.
const DOUBLING: f64 = 0.11;
const DOUBLING_ON_TYPE: f64 = 0.1;
const DOUBLING_OF_FAMILY: f64 = 0.15;
const DOUBLING_OF_FAMILY_ON_TYPE: f64 = 0.16;

/// The same of a size of a type.
const SIZE_OF_TYPE: f64 = 0.1;

/// What none of them says, for each (program, type, size).
const MISFIT: f64 = 0.1;

/// The same of how wrong estimates are: all of them, those of a program, each doubling, a size of a type,
/// each alone. On the same table, whose estimates for 16 GPUs are 0.65 of what was measured.
const WRONG: f64 = 0.11;
const WRONG_OF_PROGRAM: f64 = 0.05;
const WRONG_BY_DOUBLING: f64 = 0.12;
const WRONG_OF_SIZE_OF_TYPE: f64 = 0.11;
const WRONG_ALONE: f64 = 0.1;

/// Divides the parts of a program's name.
const DIVIDER: char = '-';

/// A program on so many GPUs of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kin {
    /// The program's name.
    pub program: String,
    /// Number of the type.
    pub node_type: usize,
    /// GPUs.
    pub gpus: u32,
}

impl Kin {
    /// The name up to its first part: what kind of program it is.
    fn kind(&self) -> &str {
        self.program.split(DIVIDER).next().unwrap_or_default()
    }

    /// The name without its last part: the family.
    fn family(&self) -> &str {
        self.program.rsplit_once(DIVIDER).map_or(&self.program, |(family, _)| family)
    }
}

/// A share of the covariance: that of `sd`, where two rows have it in common.
fn share(same: bool, sd: f64) -> f64 {
    if same { sd * sd } else { 0.0 }
}

/// Product of how often the GPUs of two rows have doubled.
fn doublings(a: &Kin, b: &Kin) -> f64 {
    f64::from(a.gpus.max(1)).log2() * f64::from(b.gpus.max(1)).log2()
}

/// Covariance of the GPU-seconds of two rows.
fn covariance(a: &Kin, b: &Kin) -> f64 {
    let (kind, family, program) = (a.kind() == b.kind(), a.family() == b.family(), a.program == b.program);
    let (node_type, size) = (a.node_type == b.node_type, a.gpus == b.gpus);
    let a_doubling = share(true, DOUBLING)
        + share(node_type, DOUBLING_ON_TYPE)
        + share(family, DOUBLING_OF_FAMILY)
        + share(family && node_type, DOUBLING_OF_FAMILY_ON_TYPE);
    share(program, PROGRAM)
        + share(node_type, TYPE)
        + share(node_type && family, TYPE_OF_FAMILY)
        + share(node_type && kind, TYPE_OF_KIND)
        + share(node_type && size, SIZE_OF_TYPE)
        + share(node_type && size && program, MISFIT)
        + a_doubling * doublings(a, b)
}

/// Covariance of how wrong the estimates of two rows are, but for what is each one's alone.
fn covariance_of_wrongs(a: &Kin, b: &Kin) -> f64 {
    share(true, WRONG)
        + share(a.program == b.program, WRONG_OF_PROGRAM)
        + share(true, WRONG_BY_DOUBLING) * doublings(a, b)
        + share(a.node_type == b.node_type && a.gpus == b.gpus, WRONG_OF_SIZE_OF_TYPE)
}

/// What a Gaussian process has seen: rows, how much they differ from what was expected, and the variance of
/// each of these numbers.
struct Seen<'a> {
    rows: Vec<&'a Kin>,
    wrong: DVector<f64>,
    variance: Vec<f64>,
    covariance: fn(&Kin, &Kin) -> f64,
}

impl Seen<'_> {
    /// `None` where there is nothing, or numbers overflow.
    fn solve(&self) -> Option<Cholesky<f64, Dyn>> {
        let count = self.rows.len();
        let alone = |i: usize, j: usize| if i == j { self.variance[i] + 1e-9 } else { 0.0 };
        let all = DMatrix::from_fn(count, count, |i, j| {
            (self.covariance)(self.rows[i], self.rows[j]) + alone(i, j)
        });
        if count == 0 { None } else { Cholesky::new(all) }
    }

    /// Covariance of all of these rows with what was seen.
    fn with(&self, rows: &[Kin]) -> DMatrix<f64> {
        DMatrix::from_fn(rows.len(), self.rows.len(), |i, j| (self.covariance)(&rows[i], self.rows[j]))
    }

    /// How much each row is expected to differ.
    fn means(&self, rows: &[Kin]) -> Option<DVector<f64>> {
        Some(self.with(rows) * self.solve()?.solve(&self.wrong))
    }

    /// What remains of the variance of each row.
    fn variances(&self, rows: &[Kin]) -> Option<Vec<f64>> {
        let to = self.with(rows);
        let told = self.solve()?.solve(&to.transpose());
        let left =
            |i: usize| (self.covariance)(&rows[i], &rows[i]) - to.row(i).dot(&told.column(i).transpose());
        Some((0..rows.len()).map(|i| left(i).max(0.0)).collect())
    }
}

/// What is known of all programs.
#[derive(Clone, Debug)]
pub struct Kinship {
    rows: Vec<Kin>,
    /// Logarithms of the GPU-seconds of a step as estimated, a row each.
    estimates: Vec<Option<f64>>,
    noise: f64,
    /// Logarithms of the GPU-seconds of a step.
    seen: Means,
    /// Predicted logarithms of GPU-seconds, a row each; `None` where they must be computed anew.
    predicted: Option<Vec<Option<f64>>>,
}

impl Kinship {
    /// Knows nothing yet of these rows. `noise` is the standard deviation of the logarithm of a measurement.
    pub fn new(rows: Vec<Kin>, noise: f64) -> Self {
        let estimates = vec![None; rows.len()];
        Kinship { rows, estimates, noise, seen: Means::default(), predicted: None }
    }

    /// Knows estimates of some rows: seconds a step, a row each.
    pub fn with_estimates(mut self, step_secs: &[Option<f64>]) -> Self {
        let log = |(kin, secs): (&Kin, &Option<f64>)| {
            secs.map(|secs| (secs * f64::from(kin.gpus)).ln()).filter(|log| log.is_finite())
        };
        let known = self.rows.iter().zip(step_secs).map(log);
        self.estimates = known.chain(std::iter::repeat(None)).take(self.rows.len()).collect();
        self.predicted = None;
        self
    }

    /// A row was measured, seconds a step.
    pub fn measured(&mut self, row: usize, step_secs: f64) {
        let Some(kin) = self.rows.get(row) else { return };
        let log = (step_secs * f64::from(kin.gpus)).ln();
        if log.is_finite() {
            self.seen.add(row, log);
            self.predicted = None;
        }
    }

    /// Computes the predictions, if anything was measured since they were last computed.
    pub fn update(&mut self) {
        if self.predicted.is_none() {
            self.predicted = Some(self.predict());
        }
    }

    fn predict(&self) -> Vec<Option<f64>> {
        let middle = self.middle();
        let plain = self.seen(middle).means(&self.rows);
        let wrong = self.seen_of_estimates().means(&self.rows);
        let of = |(row, estimate): (usize, &Option<f64>)| match estimate {
            Some(estimate) => Some(estimate + wrong.as_ref().map_or(0.0, |wrong| wrong[row])),
            None => plain.as_ref().map(|plain| middle + plain[row]),
        };
        self.estimates.iter().enumerate().map(of).collect()
    }

    /// Mean of all that was measured.
    fn middle(&self) -> f64 {
        let (sum, count) = self.seen.all().fold((0.0, 0), |(sum, n), (_, mean, _)| (sum + mean, n + 1));
        sum / f64::from(count.max(1))
    }

    /// All that was measured, against its middle.
    fn seen(&self, middle: f64) -> Seen<'_> {
        self.seen_by(|_| Some(middle), 0.0, covariance)
    }

    /// What was measured of rows with estimates, against these.
    fn seen_of_estimates(&self) -> Seen<'_> {
        self.seen_by(|row| self.estimates[row], WRONG_ALONE, covariance_of_wrongs)
    }

    /// What was measured, against what was expected of a row; `alone` is the standard deviation of what no
    /// two rows have in common.
    fn seen_by(
        &self,
        expected: impl Fn(usize) -> Option<f64>,
        alone: f64,
        covariance: fn(&Kin, &Kin) -> f64,
    ) -> Seen<'_> {
        let of = |(row, mean, count): (usize, f64, u32)| {
            let variance = self.noise.powi(2) / f64::from(count) + alone.powi(2);
            Some((self.rows.get(row)?, mean - expected(row)?, variance))
        };
        let all: Vec<(&Kin, f64, f64)> = self.seen.all().filter_map(of).collect();
        Seen {
            rows: all.iter().map(|(kin, _, _)| *kin).collect(),
            wrong: DVector::from_iterator(all.len(), all.iter().map(|(_, wrong, _)| *wrong)),
            variance: all.iter().map(|(_, _, variance)| *variance).collect(),
            covariance,
        }
    }

    /// Seconds of a step by a row: as measured, else as predicted when predictions were last updated; `None`
    /// while nothing is known that would tell it.
    pub fn step_secs(&self, row: usize) -> Option<f64> {
        let gpus = f64::from(self.rows.get(row)?.gpus);
        let predicted = || self.predicted.as_ref().and_then(|p| p.get(row)).copied().flatten();
        self.seen.of(row).or_else(predicted).map(|log| log.exp() / gpus)
    }

    /// Standard deviations of the logarithms of these seconds, a row each.
    pub fn errors(&self) -> Vec<f64> {
        let prior = |of: fn(&Kin, &Kin) -> f64| self.rows.iter().map(|kin| of(kin, kin)).collect();
        let left = |seen: Seen<'_>| seen.variances(&self.rows).unwrap_or_else(|| prior(seen.covariance));
        let (plain, wrong): (Vec<f64>, Vec<f64>) = (left(self.seen(0.0)), left(self.seen_of_estimates()));
        let of = |(row, estimate): (usize, &Option<f64>)| match (self.seen.of(row), estimate) {
            (Some(_), _) => self.noise,
            (None, Some(_)) => (wrong[row] + WRONG_ALONE.powi(2)).sqrt(),
            (None, None) => plain[row].sqrt(),
        };
        self.estimates.iter().enumerate().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sizes of a program on types 0 and 1, with 1, 2 and 4 GPUs.
    fn rows() -> Vec<Kin> {
        let all = (0..2).flat_map(|p| (0..2).flat_map(move |t| [1, 2, 4].map(|gpus| (p, t, gpus))));
        let name = |p: usize| ["bert-1B-64", "bert-9B-64"][p].to_owned();
        all.map(|(p, node_type, gpus)| Kin { program: name(p), node_type, gpus }).collect()
    }

    /// Seconds of a step: the large one takes ten times as long, type 1 is twice as fast, GPUs to the power
    /// 0.9.
    fn truth(kin: &Kin) -> f64 {
        let program = if kin.program.contains("9B") { 10.0 } else { 1.0 };
        let node_type = [1.0, 0.5][kin.node_type];
        program * node_type / f64::from(kin.gpus).powf(0.9)
    }

    #[test]
    fn one_measurement_of_a_program_tells_the_rest_by_what_others_measured() {
        let rows = rows();
        let mut kinship = Kinship::new(rows.clone(), 0.02);
        kinship.update();
        assert_eq!(kinship.step_secs(0), None, "nothing was measured");
        for (row, kin) in rows.iter().enumerate().filter(|(_, kin)| kin.program.contains("1B")) {
            kinship.measured(row, truth(kin));
        }
        kinship.measured(6, truth(&rows[6]));
        kinship.update();
        for (row, kin) in rows.iter().enumerate() {
            let wrong = (kinship.step_secs(row).unwrap() / truth(kin) - 1.0).abs();
            assert!(wrong < 0.12, "{kin:?}: {wrong}");
        }
    }

    #[test]
    fn estimates_are_believed_until_something_was_measured_and_corrected_then() {
        let rows = rows();
        // All too low, the more so the more GPUs there are; of the last row nobody estimated anything.
        let too_low = |kin: &Kin| truth(kin) * 0.9 * f64::from(kin.gpus).powf(-0.15);
        let estimates: Vec<Option<f64>> = rows.iter().map(|kin| Some(too_low(kin))).collect();
        let mut kinship = Kinship::new(rows.clone(), 0.02).with_estimates(&estimates[..rows.len() - 1]);
        kinship.update();
        assert!((kinship.step_secs(2).unwrap() / too_low(&rows[2]) - 1.0).abs() < 1e-9);
        assert_eq!(kinship.step_secs(rows.len() - 1), None);
        let doubt = kinship.errors();
        [0, 2, 3].iter().for_each(|row| kinship.measured(*row, truth(&rows[*row])));
        kinship.update();
        let wrong = |row: usize, secs: f64| (secs / truth(&rows[row]) - 1.0).abs();
        for row in [1, 4, 5, 8, 10] {
            let (before, after) =
                (wrong(row, too_low(&rows[row])), wrong(row, kinship.step_secs(row).unwrap()));
            assert!(after < before, "row {row}: {before}, {after}");
            assert!(kinship.errors()[row] < doubt[row], "row {row}");
        }
        assert!(kinship.step_secs(rows.len() - 1).is_some(), "by what was measured");
        assert!((kinship.errors()[0] - 0.02).abs() < 1e-9, "it was measured");
    }
}
