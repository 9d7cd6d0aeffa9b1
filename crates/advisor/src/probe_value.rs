//! Which size is worth a probe: the value of its information for the plans that it could change.
//!
//! A job gets the size with the highest rate, less what its nodes are worth elsewhere, among the sizes that
//! fit into the gaps. A measurement of one size changes the estimates of all sizes, by their covariances, and
//! so may change that choice. The expected gain is the knowledge gradient (Frazier, Powell, Dayanik 2009),
//! averaged over the supplies that are usual here and over prices of a node. The cost is the rescales there
//! and back, and the samples that the job loses meanwhile.

use nalgebra::DMatrix;

use infill_model::RescaleCosts;

use super::scaling::ScalingModel;

/// Prices of a node, as shares of what the job's best node yields: from free nodes to nodes that others want
/// almost as much.
const NODE_PRICES: [f64; 5] = [0.0, 0.2, 0.4, 0.6, 0.8];

/// Nodes and weights of a Gauss–Hermite quadrature of the standard normal distribution.
const GAUSS_HERMITE: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_7),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (2.856_970_013_872_806, 0.011_257_411_327_720_7),
];

/// What a wrong rate costs through the choices between this job and others, which prices alone do not show.
/// The cost is this number times the squared relative error, as a share of the job's rate. Choices are flat
/// around their best, so that small errors cost next to nothing. The factor was chosen by the error that
/// remains in published curves.
const MISJUDGE_FACTOR: f64 = 10.0;

/// Most that wrong rates cost a job, as a share of its rate. A plan that knows nothing of 20 architectures
/// and tries none makes 3 % less than one that knows them.
const MAX_MISJUDGE_LOSS: f64 = 0.05;

/// Relative standard error that a probe leaves.
const PROBE_ERROR: f64 = 0.012;

/// What a probe of one job could gain and cost.
#[derive(Clone, Debug)]
pub struct ProbeContext {
    /// The sizes among which the planner chooses, ascending.
    pub sizes: Vec<u32>,
    /// The sizes that may be tried now.
    pub probe_sizes: Vec<u32>,
    /// How many nodes the job can usually get, with the share of the time; shares sum to 1.
    pub supplies: Vec<(u32, f64)>,
    /// Its present number of nodes; 0 if it has none of this type.
    pub present: u32,
    /// Sizes and rates, samples a second, of its other execution plans and types of nodes.
    pub rivals: Vec<(u32, f64)>,
    /// The job's present configuration, if these sizes have another one.
    pub elsewhere: Option<CurrentConfiguration>,
    /// Seconds for which the result will be of use.
    pub horizon_secs: f64,
    /// Seconds that a probe takes once the command runs.
    pub probe_secs: f64,
    /// What the job's rescales cost.
    pub costs: RescaleCosts,
}

/// Another execution plan or type of nodes with which a job runs now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurrentConfiguration {
    /// Its rate, samples a second.
    pub rate: f64,
    /// Seconds without samples for a change to or from it: a restart, or a start on the other type.
    pub change_secs: f64,
}

/// A size that could be tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeCandidate {
    /// The size, nodes.
    pub nodes: u32,
    /// Expected gain from knowing its rate, samples over the horizon.
    pub gain: f64,
    /// Expected cost of trying it, samples.
    pub cost: f64,
}

impl ProbeCandidate {
    /// Gain less cost, samples.
    pub(crate) fn net_gain(&self) -> f64 {
        self.gain - self.cost
    }
}

/// The size that is most worth a probe; `None` when none is worth its cost.
pub fn best_probe(fitted: &impl ScalingModel, context: &ProbeContext) -> Option<ProbeCandidate> {
    let candidates = probe_candidates(fitted, context);
    let worthwhile = candidates.into_iter().filter(|c| c.gain > c.cost);
    worthwhile.max_by(|a, b| a.net_gain().total_cmp(&b.net_gain()))
}

/// Gain and cost of all sizes that may be tried.
pub(crate) fn probe_candidates(fitted: &impl ScalingModel, context: &ProbeContext) -> Vec<ProbeCandidate> {
    let rates: Vec<f64> = context.sizes.iter().map(|n| fitted.estimate_at(*n).rate).collect();
    let covariance = fitted.error_covariance(&context.sizes);
    let shares = size_shares(context);
    let variance = covariance.diagonal().sum() / covariance.nrows().max(1) as f64;
    let misjudged = MISJUDGE_FACTOR / (1.0 + MISJUDGE_FACTOR * variance / MAX_MISJUDGE_LOSS);
    let present = match context.elsewhere {
        Some(elsewhere) => elsewhere.rate,
        None if context.present == 0 => 0.0,
        None => fitted.estimate_at(context.present).rate,
    };
    let usual_rate = mean_best_rate(context, &shares, &rates);
    let prices = net_rates_by_price(context, &rates);
    let mut candidates = Vec::new();
    for nodes in &context.probe_sizes {
        let Ok(c) = context.sizes.binary_search(nodes) else { continue };
        let spread = (covariance[(c, c)] + PROBE_ERROR.powi(2)).sqrt();
        let moves: Vec<f64> = (0..rates.len()).map(|i| rates[i] * covariance[(i, c)] / spread).collect();
        let fewer_errors = misjudged * variance_reduction(&covariance, c, spread) * usual_rate;
        let gain = (expected_gain(&prices, &shares, &moves) + fewer_errors) * context.horizon_secs;
        let cost = probe_cost(context, *nodes, present, rates[c]);
        candidates.push(ProbeCandidate { nodes: *nodes, gain, cost });
    }
    candidates
}

/// How much the squared relative errors shrink, on average over all sizes, when size `c` is measured.
fn variance_reduction(covariance: &DMatrix<f64>, c: usize, spread: f64) -> f64 {
    let sizes = covariance.nrows();
    (0..sizes).map(|i: usize| (covariance[(i, c)] / spread).powi(2)).sum::<f64>() / sizes.max(1) as f64
}

/// For each size, the share of the time in which it is the largest that fits.
fn size_shares(context: &ProbeContext) -> Vec<f64> {
    let mut shares = vec![0.0; context.sizes.len()];
    for (supply, share) in &context.supplies {
        let fits = context.sizes.partition_point(|n| n <= supply);
        if let Some(sum) = fits.checked_sub(1).and_then(|last| shares.get_mut(last)) {
            *sum += share;
        }
    }
    shares
}

/// The job's mean rate over the supplies if it always takes the fastest size. Supplies for which a rival is
/// faster count as 0.
fn mean_best_rate(context: &ProbeContext, shares: &[f64], rates: &[f64]) -> f64 {
    let mut fastest = 0.0_f64;
    let made = shares.iter().zip(rates).zip(&context.sizes).map(|((share, rate), nodes)| {
        fastest = fastest.max(*rate);
        let is_best = context.rivals.iter().all(|(n, rate)| n > nodes || *rate <= fastest);
        if is_best { share * fastest } else { 0.0 }
    });
    made.sum()
}

/// The net rates of the sizes at one price of a node, samples a second: rates less what the nodes are worth
/// elsewhere.
struct NetRates {
    /// Those of the sizes, in their order.
    own: Vec<f64>,
    /// For each size, the best rival that fits into as many nodes; at least 0, because a job may also get
    /// nothing.
    others: Vec<f64>,
}

/// The net rates of the sizes and their rivals at each of the [`NODE_PRICES`].
fn net_rates_by_price(context: &ProbeContext, rates: &[f64]) -> [NetRates; NODE_PRICES.len()] {
    let own = context.sizes.iter().copied().zip(rates.iter().copied());
    let best_node =
        own.clone().chain(context.rivals.iter().copied()).map(|(n, r)| r / f64::from(n)).fold(0.0, f64::max);
    NODE_PRICES.map(|share| {
        let price = share * best_node;
        NetRates {
            own: own.clone().map(|(nodes, rate)| net_rate(rate, nodes, price)).collect(),
            others: context.sizes.iter().map(|most| best_rival(context, *most, price)).collect(),
        }
    })
}

/// The highest net rate of the rivals with at most this number of nodes; at least 0.
fn best_rival(context: &ProbeContext, most: u32, price: f64) -> f64 {
    let fitting = context.rivals.iter().filter(|(nodes, _)| *nodes <= most);
    fitting.map(|(nodes, rate)| net_rate(*rate, *nodes, price)).fold(0.0, f64::max)
}

fn net_rate(rate: f64, nodes: u32, price: f64) -> f64 {
    rate - price * f64::from(nodes)
}

/// How much better the choice becomes after a measurement, samples a second, averaged over supplies and
/// prices.
fn expected_gain(prices: &[NetRates], shares: &[f64], moves: &[f64]) -> f64 {
    let mut gain = 0.0;
    for NetRates { own, others } in prices {
        for (z, weight) in GAUSS_HERMITE {
            let mut best = 0.0_f64;
            let mut moved = 0.0_f64;
            for (i, (own, other)) in own.iter().zip(others).enumerate() {
                best = best.max(*own).max(*other);
                moved = moved.max(own + z * moves[i]).max(*other);
                gain += weight * shares[i] * (moved - best);
            }
        }
    }
    gain / NODE_PRICES.len() as f64
}

/// The samples that a probe of a size costs. Rates: `present` now, and `there` at that size.
fn probe_cost(context: &ProbeContext, nodes: u32, present: f64, there: f64) -> f64 {
    let slower = (present - there).max(0.0) * context.probe_secs;
    if let Some(CurrentConfiguration { change_secs, .. }) = context.elsewhere {
        return change_secs * (present + present.min(there)) + slower;
    }
    if nodes == context.present {
        return 0.0;
    }
    // The job changes back only if the size turns out to be worse. Then it loses samples during the probe and
    // both changes.
    let there_and_back = context.costs.cost_between(context.present, nodes) * present
        + context.costs.cost_between(nodes, context.present) * present.min(there);
    there_and_back + slower
}
