//! Models of a step's time as sums of few terms ([`super::basis`]) with non-negative weights, fitted by
//! relative least squares and weighted by their evidence.

use nalgebra::{Cholesky, DMatrix, DVector};

use super::basis::{SUPERLINEAR_TERM, TERM_COUNT, TERM_NAMES, term_values, terms_of_mode};
use infill_model::{BatchMode, SizePoint};

/// Most terms of one model.
const MAX_TERMS: usize = 3;

/// The penalty of each term, in units of χ² (Akaike's criterion). A term must explain at least this much.
const TERM_PENALTY: f64 = 2.0;

/// A further penalty for a term that few programs have: a superlinear start.
const RARE_TERM_PENALTY: f64 = 4.0;

/// Relative error of the models themselves: what published step-time models leave unexplained at most sizes.
const MODEL_ERROR: f64 = 0.03;

/// Expected relative loss of efficiency. Without other knowledge, rate ∝ n^(1 − this).
const PRIOR_LOSS: f64 = 0.1;

/// Uncertainty of that loss, as a relative error for each doubling of the size.
const PRIOR_ERROR: f64 = 0.5;

/// Smallest relative error of a point in a fit. The advisor's own points have at least
/// [`super::rate::MIN_RATE_ERROR`], so that this only bounds others, such as imported points.
pub(super) const MIN_FIT_ERROR: f64 = 0.002;

/// One model: some terms and their weights.
#[derive(Clone, Debug)]
pub(super) struct StepModel {
    weights: [f64; TERM_COUNT],
    /// Its share of the evidence of all models.
    pub(super) evidence: f64,
}

impl StepModel {
    /// Logarithm of the rate at a size, given the values of all terms there.
    pub(super) fn log_rate(&self, nodes: f64, terms: &[f64; TERM_COUNT]) -> f64 {
        let y: f64 = terms.iter().zip(&self.weights).map(|(t, w)| t * w).sum();
        (nodes / y).ln()
    }

    /// The model as a formula, for people: node-seconds a sample.
    pub(super) fn to_formula(&self) -> String {
        let parts: Vec<String> = self
            .weights
            .iter()
            .zip(TERM_NAMES)
            .filter(|(w, _)| **w > 0.0)
            .map(|(w, name)| match name {
                "" | "/n" => format!("{w:.3e}{name}"),
                _ => format!("{w:.3e}·{name}"),
            })
            .collect();
        format!("n/rate = {}", parts.join(" + "))
    }
}

/// Fits all models to measured points, at least one, ascending. `largest` is as for
/// [`super::FittedCurve::new`].
pub(super) fn fit_models(points: &[SizePoint], mode: BatchMode, largest: u32) -> Vec<StepModel> {
    let mut rows: Vec<FitRow> = points.iter().map(FitRow::from_point).collect();
    if let Some(first) = points.first()
        && let Some(last) = points.last()
    {
        rows.extend(FitRow::from_prior(last, largest.max(first.nodes), points.len()));
        rows.extend(FitRow::from_prior(first, 1, points.len()));
    }
    weigh_models(&rows, terms_of_mode(mode))
}

/// The mean of the models' logarithms of the rate, weighted by their evidence.
pub(super) fn mean_log_rate(models: &[StepModel], nodes: f64) -> f64 {
    let t = term_values(nodes);
    models.iter().map(|m| m.evidence * m.log_rate(nodes, &t)).sum()
}

/// One row of the least squares: node-seconds a sample at a size (`y`), and its relative error.
struct FitRow {
    nodes: f64,
    y: f64,
    error: f64,
}

impl FitRow {
    fn from_point(p: &SizePoint) -> Self {
        let n = f64::from(p.nodes);
        FitRow { nodes: n, y: n / p.rate, error: p.error.max(MIN_FIT_ERROR).hypot(MODEL_ERROR) }
    }

    /// The prior for a size far from the nearest measured one; `None` if they are the same. It counts less
    /// when more sizes are measured.
    fn from_prior(nearest: &SizePoint, nodes: u32, measured: usize) -> Option<Self> {
        let n = f64::from(nodes);
        let m = f64::from(nearest.nodes);
        let doublings = (n / m).log2().abs();
        let y = m / nearest.rate * (n / m).powf(PRIOR_LOSS);
        (doublings > 0.0).then_some(FitRow {
            nodes: n,
            y,
            error: PRIOR_ERROR * doublings.sqrt() * measured as f64,
        })
    }
}

/// Sums over all rows, from which each model is solved.
struct NormalEquations {
    gram: [[f64; TERM_COUNT]; TERM_COUNT],
    right: [f64; TERM_COUNT],
    total: f64,
    scale: [f64; TERM_COUNT],
}

impl NormalEquations {
    fn from_rows(rows: &[FitRow]) -> Self {
        let mut scale = [0.0_f64; TERM_COUNT];
        let values: Vec<[f64; TERM_COUNT]> = rows
            .iter()
            .map(|r| term_values(r.nodes).map(|t| t / (r.y * r.error)))
            .inspect(|v| (0..TERM_COUNT).for_each(|i| scale[i] = scale[i].max(v[i])))
            .collect();
        let mut normal = NormalEquations {
            gram: [[0.0; TERM_COUNT]; TERM_COUNT],
            right: [0.0; TERM_COUNT],
            total: 0.0,
            scale,
        };
        for (value, row) in values.iter().zip(rows) {
            let target = 1.0 / row.error;
            normal.total += target * target;
            for i in (0..TERM_COUNT).filter(|i| scale[*i] > 0.0) {
                normal.right[i] += value[i] / scale[i] * target;
                for j in (0..TERM_COUNT).filter(|j| scale[*j] > 0.0) {
                    normal.gram[i][j] += value[i] / scale[i] * value[j] / scale[j];
                }
            }
        }
        normal
    }

    /// The least-squares weights of these terms, with the sum of χ² and the penalties. `None` where a weight
    /// is not positive.
    ///
    /// The best of these over all sets of terms is the non-negative solution: where a weight would be
    /// negative, the set without that term is among the others.
    fn solve_terms(&self, set: &[usize]) -> Option<([f64; TERM_COUNT], f64)> {
        let gram = DMatrix::from_fn(set.len(), set.len(), |i, j| self.gram[set[i]][set[j]]);
        let right = DVector::from_fn(set.len(), |i, _| self.right[set[i]]);
        let solved = Cholesky::new(gram)?.solve(&right);
        if solved.iter().any(|w| !w.is_finite() || *w <= 0.0) {
            return None;
        }
        let chi2 = (self.total - solved.dot(&right)).max(0.0);
        let mut weights = [0.0; TERM_COUNT];
        set.iter().enumerate().for_each(|(i, term)| weights[*term] = solved[i] / self.scale[*term]);
        let rare = if set.contains(&SUPERLINEAR_TERM) { RARE_TERM_PENALTY } else { 0.0 };
        Some((weights, chi2 + TERM_PENALTY * set.len() as f64 + rare))
    }
}

/// All models of the first term and up to two others, with their shares of the evidence.
fn weigh_models(rows: &[FitRow], allowed: &[usize]) -> Vec<StepModel> {
    let normal = NormalEquations::from_rows(rows);
    let mut sets: Vec<Vec<usize>> = vec![vec![0]];
    for (i, a) in allowed.iter().enumerate().skip(1) {
        sets.push(vec![0, *a]);
        sets.extend(allowed.iter().skip(i + 1).map(|b| vec![0, *a, *b]));
    }
    debug_assert!(sets.iter().all(|s| s.len() <= MAX_TERMS));
    let solved: Vec<([f64; TERM_COUNT], f64)> =
        sets.iter().filter_map(|set| normal.solve_terms(set)).collect();
    let best = solved.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let sum: f64 = solved.iter().map(|(_, score)| (-(score - best) / 2.0).exp()).sum();
    solved
        .into_iter()
        .map(|(weights, score)| StepModel { weights, evidence: (-(score - best) / 2.0).exp() / sum })
        .collect()
}
