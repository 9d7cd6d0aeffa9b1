//! From measured sizes to a curve with its uncertainty at every size.
//!
//! Models are sums of few terms ([`super::basis`]) with non-negative weights, fitted by relative least
//! squares. All of up to [`MOST_TERMS`] terms are fitted and averaged by their evidence (an information
//! criterion), because three or four measured sizes seldom tell which is right; where the models differ,
//! nothing is known. On top comes a Gaussian process over log₂ n for what no model explains: it carries the
//! curve through the measured sizes, and lets the doubt grow with the distance from them.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::basis::{NAMES, SUPERLINEAR, TERMS, of_mode, terms};
use crate::model::{BatchMode, Curve, CurvePoint, SizePoint, Sizes};

/// Most terms of one model.
const MOST_TERMS: usize = 3;

/// What one more term must explain: the penalty in units of χ² (Akaike's criterion).
const PENALTY: f64 = 2.0;

/// The same once more for a term that few programs have: a superlinear start.
const RARE: f64 = 4.0;

/// Relative error of the models themselves: what published step-time models leave unexplained at most sizes.
const MODEL_ERROR: f64 = 0.03;

/// Expected relative loss of efficiency: before anything else is known, rate ∝ n^(1 − this).
const PRIOR_LOSS: f64 = 0.1;

/// Doubt in that, as a relative error for each doubling of the size.
const PRIOR_ERROR: f64 = 0.5;

/// Standard deviation of what no model explains.
const ROUGHNESS: f64 = 0.12;

/// Over how many doublings of the size that is alike.
const REACH: f64 = 1.0;

/// A measured rate is never taken to be more exact than this.
const LEAST_ERROR: f64 = 0.002;

/// Below the smallest measured size the rate is at most so many times that of the smallest.
const MOST_BELOW: f64 = 4.0;

/// Half-width of a 90 % interval in standard deviations.
const Z90: f64 = 1.644_853_626_951_472_2;

/// Most sizes that a fit takes in; the least exact are left out.
const MOST_POINTS: usize = 64;

/// What is believed of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Samples a second.
    pub rate: f64,
    /// Relative standard error.
    pub error: f64,
}

impl Estimate {
    /// The interval that holds the true rate with 90 %.
    pub fn interval(&self) -> (f64, f64) {
        (self.rate * (-Z90 * self.error).exp(), self.rate * (Z90 * self.error).exp())
    }
}

/// One model: some terms and their weights.
#[derive(Clone, Debug)]
struct Model {
    weights: [f64; TERMS],
    evidence: f64,
}

impl Model {
    /// Logarithm of the rate.
    fn log_rate(&self, nodes: f64, terms: &[f64; TERMS]) -> f64 {
        let y: f64 = terms.iter().zip(&self.weights).map(|(t, w)| t * w).sum();
        (nodes / y).ln()
    }
}

/// A fitted curve. Made of at least one measured size, so that all its values are finite and positive.
#[derive(Clone, Debug)]
pub struct Fitted {
    points: Vec<SizePoint>,
    models: Vec<Model>,
    /// Covariance of what was measured, decomposed.
    measured: Cholesky<f64, Dyn>,
    /// Its inverse times the residuals.
    pull: DVector<f64>,
}

impl Fitted {
    /// Fits what was measured. `largest` is the largest size of interest: as far as that the prior speaks.
    /// `None` when nothing usable was measured.
    pub fn new(points: &[SizePoint], mode: BatchMode, largest: u32) -> Option<Self> {
        let points = usable(points);
        let (first, last) = (points.first()?, points.last()?);
        let mut rows: Vec<Row> = points.iter().map(Row::measured).collect();
        rows.extend(Row::prior(last, largest.max(first.nodes), points.len()));
        rows.extend(Row::prior(first, 1, points.len()));
        let models = models(&rows, of_mode(mode));
        let sizes: Vec<f64> = points.iter().map(|p| f64::from(p.nodes)).collect();
        let mean = |nodes: f64| mean_log_rate(&models, nodes);
        let residuals = points.iter().map(|p| p.rate.ln() - mean(f64::from(p.nodes)));
        let residuals = DVector::from_iterator(points.len(), residuals);
        let noise = |i: usize| points[i].error.max(LEAST_ERROR).powi(2);
        let covariance = DMatrix::from_fn(points.len(), points.len(), |i, j| {
            kernel(sizes[i], sizes[j]) + if i == j { noise(i) } else { 0.0 }
        });
        let measured = Cholesky::new(covariance)?;
        let pull = measured.solve(&residuals);
        Some(Fitted { points, models, measured, pull })
    }

    /// The measured sizes that it rests on, ascending.
    pub fn points(&self) -> &[SizePoint] {
        &self.points
    }

    /// What is believed of a size, at least 1.
    pub fn at(&self, nodes: u32) -> Estimate {
        let n = f64::from(nodes.max(1));
        let reach = self.reach(n);
        let log = mean_log_rate(&self.models, n) + reach.dot(&self.pull);
        Estimate {
            rate: self.bounded(nodes.max(1), log.exp()),
            error: self.covariance(&[nodes.max(1)])[(0, 0)].max(0.0).sqrt(),
        }
    }

    /// The curve at these sizes, up to the largest (see [`sizes_of_interest`]).
    pub fn curve(&self, sizes: &[u32]) -> Option<Curve> {
        let point = |n: &u32| CurvePoint { nodes: *n, rate: self.at(*n).rate };
        Curve::new(sizes.iter().map(point).collect()).ok()
    }

    /// Covariances of the relative errors of these sizes.
    pub fn covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        let n: Vec<f64> = sizes.iter().map(|n| f64::from(*n)).collect();
        let reaches: Vec<DVector<f64>> = n.iter().map(|n| self.reach(*n)).collect();
        // (K + D)⁻¹ k for each size once: the rest are scalar products.
        let solved: Vec<DVector<f64>> = reaches.iter().map(|r| self.measured.solve(r)).collect();
        let left = |i: usize, j: usize| kernel(n[i], n[j]) - reaches[i].dot(&solved[j]);
        let share: Vec<f64> =
            (0..n.len()).map(|i| (left(i, i) / ROUGHNESS.powi(2)).clamp(0.0, 1.0).sqrt()).collect();
        let spread = self.spreads(&n);
        DMatrix::from_fn(n.len(), n.len(), |i, j| left(i, j) + share[i] * share[j] * spread[(i, j)])
    }

    /// The formula that has the most evidence, for people: node-seconds a sample.
    pub fn formula(&self) -> String {
        let Some(best) = self.models.iter().max_by(|a, b| a.evidence.total_cmp(&b.evidence)) else {
            return String::new();
        };
        let term = |(w, name): (&f64, &str)| match name {
            "" | "/n" => format!("{w:.3e}{name}"),
            _ => format!("{w:.3e}·{name}"),
        };
        let parts: Vec<String> =
            best.weights.iter().zip(NAMES).filter(|(w, _)| **w > 0.0).map(term).collect();
        format!("n/rate = {}", parts.join(" + "))
    }

    /// How much each measured size tells of this one.
    fn reach(&self, nodes: f64) -> DVector<f64> {
        DVector::from_iterator(
            self.points.len(),
            self.points.iter().map(|p| kernel(nodes, f64::from(p.nodes))),
        )
    }

    /// How far the models differ from their mean: covariances between sizes.
    fn spreads(&self, sizes: &[f64]) -> DMatrix<f64> {
        let apart: Vec<Vec<f64>> = sizes
            .iter()
            .map(|n| {
                let (t, mean) = (terms(*n), mean_log_rate(&self.models, *n));
                self.models.iter().map(|m| m.log_rate(*n, &t) - mean).collect()
            })
            .collect();
        DMatrix::from_fn(sizes.len(), sizes.len(), |i, j| {
            self.models.iter().enumerate().map(|(k, m)| m.evidence * apart[i][k] * apart[j][k]).sum()
        })
    }

    /// More is never promised than what is proportional to the largest measured size, nor below the smallest
    /// more than [`MOST_BELOW`] times its rate.
    fn bounded(&self, nodes: u32, rate: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return rate };
        if nodes > last.nodes {
            rate.min(last.rate * f64::from(nodes) / f64::from(last.nodes))
        } else if nodes < first.nodes {
            rate.min(first.rate * MOST_BELOW)
        } else {
            rate
        }
    }
}

/// The sizes that a curve is laid out at: all small ones, then in steps of an eighth, with what was measured.
pub fn sizes_of_interest(sizes: &Sizes, measured: &[SizePoint]) -> Vec<u32> {
    const ALL_UP_TO: u32 = 32;
    let (min, max) = (sizes.min(), sizes.max());
    let wide = std::iter::successors(Some(f64::from(ALL_UP_TO)), |n| Some(n * 1.125));
    let mut all: Vec<u32> = (min..=max.min(ALL_UP_TO))
        .chain(wide.map(|n| n as u32).take_while(|n| *n < max).filter(|n| *n >= min))
        .chain(measured.iter().map(|p| p.nodes).filter(|n| (min..=max).contains(n)))
        .chain([min, max])
        .filter(|n| sizes.allows(*n))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Sorted by size, without what no rate can be.
fn usable(points: &[SizePoint]) -> Vec<SizePoint> {
    let sound = |p: &&SizePoint| p.nodes > 0 && p.rate.is_normal() && p.rate > 0.0 && p.error.is_finite();
    let mut points: Vec<SizePoint> = points.iter().filter(sound).copied().collect();
    points.sort_by(|a, b| a.nodes.cmp(&b.nodes).then(a.error.total_cmp(&b.error)));
    points.dedup_by_key(|p| p.nodes);
    if points.len() > MOST_POINTS {
        points.sort_by(|a, b| a.error.total_cmp(&b.error));
        points.truncate(MOST_POINTS);
        points.sort_by_key(|p| p.nodes);
    }
    points
}

fn kernel(a: f64, b: f64) -> f64 {
    ROUGHNESS.powi(2) * (-(a.log2() - b.log2()).abs() / REACH).exp()
}

fn mean_log_rate(models: &[Model], nodes: f64) -> f64 {
    let t = terms(nodes);
    models.iter().map(|m| m.evidence * m.log_rate(nodes, &t)).sum()
}

/// One row of the least squares: node-seconds a sample at a size, and its relative error.
struct Row {
    nodes: f64,
    y: f64,
    error: f64,
}

impl Row {
    fn measured(p: &SizePoint) -> Self {
        let n = f64::from(p.nodes);
        Row { nodes: n, y: n / p.rate, error: p.error.max(LEAST_ERROR).hypot(MODEL_ERROR) }
    }

    /// What is expected of a size far from the nearest measured one; nothing if that is the same. The more
    /// was measured, the less it counts.
    fn prior(nearest: &SizePoint, nodes: u32, measured: usize) -> Option<Self> {
        let (n, m) = (f64::from(nodes), f64::from(nearest.nodes));
        let doublings = (n / m).log2().abs();
        let y = m / nearest.rate * (n / m).powf(PRIOR_LOSS);
        (doublings > 0.0).then_some(Row {
            nodes: n,
            y,
            error: PRIOR_ERROR * doublings.sqrt() * measured as f64,
        })
    }
}

/// Sums over all rows, from which each model is solved.
struct Normal {
    gram: [[f64; TERMS]; TERMS],
    right: [f64; TERMS],
    total: f64,
    scale: [f64; TERMS],
}

impl Normal {
    fn of(rows: &[Row]) -> Self {
        let mut scale = [0.0_f64; TERMS];
        let values: Vec<[f64; TERMS]> = rows
            .iter()
            .map(|r| terms(r.nodes).map(|t| t / (r.y * r.error)))
            .inspect(|v| (0..TERMS).for_each(|i| scale[i] = scale[i].max(v[i])))
            .collect();
        let mut normal = Normal { gram: [[0.0; TERMS]; TERMS], right: [0.0; TERMS], total: 0.0, scale };
        for (value, row) in values.iter().zip(rows) {
            let want = 1.0 / row.error;
            normal.total += want * want;
            for i in (0..TERMS).filter(|i| scale[*i] > 0.0) {
                normal.right[i] += value[i] / scale[i] * want;
                for j in (0..TERMS).filter(|j| scale[*j] > 0.0) {
                    normal.gram[i][j] += value[i] / scale[i] * value[j] / scale[j];
                }
            }
        }
        normal
    }

    /// The least-squares weights of these terms, if all are positive; with χ² and the penalty.
    ///
    /// Over all sets of terms the best of these is the non-negative solution: where a weight would be
    /// negative, the set without that term is among the others.
    fn solve(&self, set: &[usize]) -> Option<([f64; TERMS], f64)> {
        let gram = DMatrix::from_fn(set.len(), set.len(), |i, j| self.gram[set[i]][set[j]]);
        let right = DVector::from_fn(set.len(), |i, _| self.right[set[i]]);
        let solved = Cholesky::new(gram)?.solve(&right);
        if solved.iter().any(|w| !w.is_finite() || *w <= 0.0) {
            return None;
        }
        let chi2 = (self.total - solved.dot(&right)).max(0.0);
        let mut weights = [0.0; TERMS];
        set.iter().enumerate().for_each(|(i, term)| weights[*term] = solved[i] / self.scale[*term]);
        let rare = if set.contains(&SUPERLINEAR) { RARE } else { 0.0 };
        Some((weights, chi2 + PENALTY * set.len() as f64 + rare))
    }
}

/// All models of the first term and up to two others, with their shares of the evidence.
fn models(rows: &[Row], allowed: &[usize]) -> Vec<Model> {
    let normal = Normal::of(rows);
    let mut sets: Vec<Vec<usize>> = vec![vec![0]];
    for (i, a) in allowed.iter().enumerate().skip(1) {
        sets.push(vec![0, *a]);
        sets.extend(allowed.iter().skip(i + 1).map(|b| vec![0, *a, *b]));
    }
    debug_assert!(sets.iter().all(|s| s.len() <= MOST_TERMS));
    let solved: Vec<([f64; TERMS], f64)> = sets.iter().filter_map(|set| normal.solve(set)).collect();
    let best = solved.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let sum: f64 = solved.iter().map(|(_, score)| (-(score - best) / 2.0).exp()).sum();
    solved
        .into_iter()
        .map(|(weights, score)| Model { weights, evidence: (-(score - best) / 2.0).exp() / sum })
        .collect()
}
