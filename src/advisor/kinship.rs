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

/// Covariance of two rows.
fn covariance(a: &Kin, b: &Kin) -> f64 {
    let share = |same: bool, sd: f64| if same { sd * sd } else { 0.0 };
    let (kind, family, program) = (a.kind() == b.kind(), a.family() == b.family(), a.program == b.program);
    let (node_type, size) = (a.node_type == b.node_type, a.gpus == b.gpus);
    let doublings = |kin: &Kin| f64::from(kin.gpus.max(1)).log2();
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
        + a_doubling * doublings(a) * doublings(b)
}

/// What is known of all programs.
#[derive(Clone, Debug)]
pub struct Kinship {
    rows: Vec<Kin>,
    noise: f64,
    /// Logarithms of the GPU-seconds of a step.
    seen: Means,
    /// Predicted logarithms of GPU-seconds, a row each; `None` where they must be computed anew.
    predicted: Option<DVector<f64>>,
}

impl Kinship {
    /// Knows nothing yet of these rows. `noise` is the standard deviation of the logarithm of a measurement.
    pub fn new(rows: Vec<Kin>, noise: f64) -> Self {
        Kinship { rows, noise, seen: Means::default(), predicted: None }
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
            self.predicted = self.predict();
        }
    }

    fn predict(&self) -> Option<DVector<f64>> {
        let kin = |(row, mean, count): (usize, f64, u32)| Some((self.rows.get(row)?, mean, f64::from(count)));
        let seen: Vec<(&Kin, f64, f64)> = self.seen.all().filter_map(kin).collect();
        let count = seen.len();
        let middle = seen.iter().map(|(_, mean, _)| mean).sum::<f64>() / (count.max(1) as f64);
        let noise = |i: usize| self.noise.powi(2) / seen[i].2;
        let own = DMatrix::from_fn(count, count, |i, j| {
            covariance(seen[i].0, seen[j].0) + if i == j { noise(i) + 1e-9 } else { 0.0 }
        });
        let wrong = DVector::from_fn(count, |i, _| seen[i].1 - middle);
        let weights = Cholesky::<f64, Dyn>::new(own)?.solve(&wrong);
        let to = DMatrix::from_fn(self.rows.len(), count, |i, j| covariance(&self.rows[i], seen[j].0));
        (count > 0).then(|| (to * weights).add_scalar(middle))
    }

    /// Seconds of a step by a row: as measured, else as predicted when predictions were last updated; `None`
    /// while nothing was measured of any program.
    pub fn step_secs(&self, row: usize) -> Option<f64> {
        let gpus = f64::from(self.rows.get(row)?.gpus);
        let predicted = || self.predicted.as_ref().and_then(|p| p.get(row)).copied();
        self.seen.of(row).or_else(predicted).map(|log| log.exp() / gpus)
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
}
