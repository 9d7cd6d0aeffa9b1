//! How fast programs are on types of GPUs where they never ran: a Gaussian process over program, type and
//! size.
//!
//! What rows have in common is in [`super::alike`]: of a program with one measurement, once the others are
//! known, the rest comes out 13.5 % wrong on Arena's table (median 9.4 %).
//!
//! A row may come with an estimate, made beforehand from profiles on one GPU and from how long collectives
//! take (Crius). Then what is modelled is how wrong estimates are: of such rows of a program that was
//! measured once a type the rest comes out 13.4 % wrong (median 8 %; as estimated 16.1 and 11.4 %), and
//! 8.6 % where others are known, too.

use super::alike::{Named, Observed, Process, Register, Row, covariance, covariance_of_wrongs, prior};
use super::means::Means;

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

/// What is known of all programs.
#[derive(Clone, Debug)]
pub struct Kinship {
    rows: Vec<Row>,
    /// GPUs of each row.
    gpus: Vec<f64>,
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
        let mut register = Register::default();
        let row = |kin: &Kin| {
            let node_type = kin.node_type.to_string();
            let (scope, user, plan) = ("", "", "");
            let Kin { program, gpus, .. } = kin;
            register.row(&Named { scope, user, program, plan, node_type: &node_type, nodes: "", gpus: *gpus })
        };
        Kinship {
            estimates: vec![None; rows.len()],
            gpus: rows.iter().map(|kin| f64::from(kin.gpus)).collect(),
            rows: rows.iter().map(row).collect(),
            noise,
            seen: Means::default(),
            predicted: None,
        }
    }

    /// Knows estimates of some rows: seconds a step, a row each.
    pub fn with_estimates(mut self, step_secs: &[Option<f64>]) -> Self {
        let log = |(gpus, secs): (&f64, &Option<f64>)| {
            secs.map(|secs| (secs * gpus).ln()).filter(|log| log.is_finite())
        };
        let known = self.gpus.iter().zip(step_secs).map(log);
        self.estimates = known.chain(std::iter::repeat(None)).take(self.rows.len()).collect();
        self.predicted = None;
        self
    }

    /// A row was measured, seconds a step.
    pub fn measured(&mut self, row: usize, step_secs: f64) {
        let Some(gpus) = self.gpus.get(row) else { return };
        let log = (step_secs * gpus).ln();
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
        let plain = self.seen(middle).map(|process| process.means(&self.rows));
        let wrong = self.seen_of_estimates().map(|process| process.means(&self.rows));
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
    fn seen(&self, middle: f64) -> Option<Process> {
        Process::new(&self.seen_by(|_| Some(middle)), covariance)
    }

    /// What was measured of rows with estimates, against these.
    fn seen_of_estimates(&self) -> Option<Process> {
        Process::new(&self.seen_by(|row| self.estimates[row]), covariance_of_wrongs)
    }

    /// What was measured, against what was expected of a row.
    fn seen_by(&self, expected: impl Fn(usize) -> Option<f64>) -> Vec<Observed> {
        let of = |(row, mean, count): (usize, f64, u32)| {
            let variance = self.noise.powi(2) / f64::from(count);
            Some(Observed { row: *self.rows.get(row)?, value: mean - expected(row)?, variance })
        };
        self.seen.all().filter_map(of).collect()
    }

    /// Seconds of a step by a row: as measured, else as predicted when predictions were last updated; `None`
    /// while nothing is known that would tell it.
    pub fn step_secs(&self, row: usize) -> Option<f64> {
        let gpus = self.gpus.get(row)?;
        let predicted = || self.predicted.as_ref().and_then(|p| p.get(row)).copied().flatten();
        self.seen.of(row).or_else(predicted).map(|log| log.exp() / gpus)
    }

    /// Standard deviations of the logarithms of these seconds, a row each.
    pub fn errors(&self) -> Vec<f64> {
        let left = |process: Option<Process>, of: fn(&Row, &Row) -> f64| {
            process.map_or_else(|| prior(&self.rows, of), |process| process.left(&self.rows)).diagonal()
        };
        let plain = left(self.seen(0.0), covariance);
        let wrong = left(self.seen_of_estimates(), covariance_of_wrongs);
        let of = |(row, estimate): (usize, &Option<f64>)| match (self.seen.of(row), estimate) {
            (Some(_), _) => self.noise,
            (None, Some(_)) => wrong[row].max(0.0).sqrt(),
            (None, None) => plain[row].max(0.0).sqrt(),
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
