//! Which size is worth trying: the value of information against the plans that it could change.
//!
//! A job gets the size whose rate, less what its nodes are worth elsewhere, is highest among the sizes that
//! fit into the gaps. Trying a size moves what is believed of all sizes, by their covariances, and so may
//! move that choice: the expected gain is the knowledge gradient (Frazier, Powell, Dayanik 2009), averaged
//! over the supplies that are usual here and over prices of a node. The cost is the rescales there and back,
//! and what the job makes less meanwhile.

use nalgebra::DMatrix;

use infill_model::RescaleCosts;

use super::scaling::ScalingModel;

/// Prices of a node, as shares of what the job's best node yields: from "nodes are for free" to "others want
/// them too".
const NODE_PRICES: [f64; 5] = [0.0, 0.2, 0.4, 0.6, 0.8];

/// Nodes and weights of a Gauss–Hermite quadrature of the standard normal distribution.
const GAUSS_HERMITE: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_7),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (2.856_970_013_872_806, 0.011_257_411_327_720_7),
];

/// What a wrong rate costs through the choices between this job and others, which prices alone do not show:
/// so many times the squared relative error, as a share of the job's rate. Choices are flat around their
/// best, so that small errors cost next to nothing. The factor was chosen by the error that remains in
/// published curves.
const MISJUDGE_FACTOR: f64 = 10.0;

/// What wrong rates cost a job at most, as a share of its rate: a plan that knows nothing of 20 architectures
/// and tries none makes 3 % less than one that knows them.
const MAX_MISJUDGE_LOSS: f64 = 0.05;

/// Relative standard error that a probe leaves.
const PROBE_ERROR: f64 = 0.012;

/// What is at stake for one job.
#[derive(Clone, Debug)]
pub struct ProbeContext {
    /// The sizes between which the planner chooses, ascending.
    pub sizes: Vec<u32>,
    /// The sizes that may be tried now.
    pub triable: Vec<u32>,
    /// How many nodes the job can usually get, with the share of the time; shares sum to 1.
    pub supplies: Vec<(u32, f64)>,
    /// Its present size.
    pub present: u32,
    /// What its other execution plans and types of nodes would make: sizes and samples a second.
    pub rivals: Vec<(u32, f64)>,
    /// Where the job is now, if it is not what these sizes are of.
    pub elsewhere: Option<CurrentConfiguration>,
    /// Seconds for which what is learned will be of use.
    pub horizon_secs: f64,
    /// Seconds that a probe takes once the command is up.
    pub probe_secs: f64,
    /// What changes cost.
    pub costs: RescaleCosts,
}

/// Another execution plan or type of nodes, with which a job runs now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurrentConfiguration {
    /// Samples a second that it makes.
    pub rate: f64,
    /// Seconds without samples to change from there, or back: a restart, or a start on the other type.
    pub change_secs: f64,
}

/// A size that could be tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeCandidate {
    /// The size.
    pub nodes: u32,
    /// Expected gain from knowing its rate, samples over the horizon.
    pub gain: f64,
    /// Expected cost of trying it, samples.
    pub cost: f64,
}

/// The size that is most worth trying; `None` when none is worth its cost.
pub fn best_probe(fitted: &impl ScalingModel, stakes: &ProbeContext) -> Option<ProbeCandidate> {
    let candidates = probe_candidates(fitted, stakes);
    let pays = candidates.into_iter().filter(|c| c.gain > c.cost);
    pays.max_by(|a, b| (a.gain - a.cost).total_cmp(&(b.gain - b.cost)))
}

/// Gain and cost of all sizes that may be tried.
pub(crate) fn probe_candidates(fitted: &impl ScalingModel, stakes: &ProbeContext) -> Vec<ProbeCandidate> {
    let rates: Vec<f64> = stakes.sizes.iter().map(|n| fitted.estimate_at(*n).rate).collect();
    let covariance = fitted.error_covariance(&stakes.sizes);
    let shares = size_shares(stakes);
    let variance = covariance.diagonal().sum() / covariance.nrows().max(1) as f64;
    let misjudged = MISJUDGE_FACTOR / (1.0 + MISJUDGE_FACTOR * variance / MAX_MISJUDGE_LOSS);
    let present = match stakes.elsewhere {
        Some(elsewhere) => elsewhere.rate,
        None if stakes.present == 0 => 0.0,
        None => fitted.estimate_at(stakes.present).rate,
    };
    let usual = mean_best_rate(stakes, &shares, &rates);
    let prices = net_rates_by_price(stakes, &rates);
    let index = |nodes: u32| stakes.sizes.binary_search(&nodes).ok();
    let tried = stakes.triable.iter().filter_map(|n| Some((*n, index(*n)?)));
    tried
        .map(|(nodes, c)| {
            let spread = (covariance[(c, c)] + PROBE_ERROR.powi(2)).sqrt();
            let moves: Vec<f64> = (0..rates.len()).map(|i| rates[i] * covariance[(i, c)] / spread).collect();
            let clearer = misjudged * variance_reduction(&covariance, c, spread) * usual;
            let gain = (expected_gain(&prices, &shares, &moves) + clearer) * stakes.horizon_secs;
            ProbeCandidate { nodes, gain, cost: probe_cost(stakes, nodes, present, rates[c]) }
        })
        .collect()
}

/// By how much the squared relative errors shrink, on average over all sizes, when size `c` is measured.
fn variance_reduction(covariance: &DMatrix<f64>, c: usize, spread: f64) -> f64 {
    let sizes = covariance.nrows();
    (0..sizes).map(|i: usize| (covariance[(i, c)] / spread).powi(2)).sum::<f64>() / sizes.max(1) as f64
}

/// The share of the time in which the first so many sizes fit, by their number less one.
fn size_shares(stakes: &ProbeContext) -> Vec<f64> {
    let mut shares = vec![0.0; stakes.sizes.len()];
    for (supply, share) in &stakes.supplies {
        let fits = stakes.sizes.partition_point(|n| n <= supply);
        if let Some(sum) = fits.checked_sub(1).and_then(|last| shares.get_mut(last)) {
            *sum += share;
        }
    }
    shares
}

/// What the job makes on average over the supplies if it takes the fastest size, as far as that is one of
/// these and no rival.
fn mean_best_rate(stakes: &ProbeContext, shares: &[f64], rates: &[f64]) -> f64 {
    let mut fastest = 0.0_f64;
    let made = shares.iter().zip(rates).zip(&stakes.sizes).map(|((share, rate), nodes)| {
        fastest = fastest.max(*rate);
        let is_best = stakes.rivals.iter().all(|(n, rate)| n > nodes || *rate <= fastest);
        if is_best { share * fastest } else { 0.0 }
    });
    made.sum()
}

/// What the sizes yield at a price of a node, samples a second less what their nodes are worth elsewhere.
struct NetRates {
    /// The sizes, in their order.
    own: Vec<f64>,
    /// The best that rivals yield which fit where each of these does. Nothing at all is a choice too, worth
    /// 0.
    others: Vec<f64>,
}

/// What the sizes and their rivals yield at each of the [`NODE_PRICES`].
fn net_rates_by_price(stakes: &ProbeContext, rates: &[f64]) -> [NetRates; NODE_PRICES.len()] {
    let own = stakes.sizes.iter().copied().zip(rates.iter().copied());
    let best_node =
        own.clone().chain(stakes.rivals.iter().copied()).map(|(n, r)| r / f64::from(n)).fold(0.0, f64::max);
    NODE_PRICES.map(|share| {
        let price = share * best_node;
        let net = |(nodes, rate): (u32, f64)| rate - price * f64::from(nodes);
        NetRates {
            own: own.clone().map(net).collect(),
            others: stakes
                .sizes
                .iter()
                .map(|most: &u32| {
                    let fits = stakes.rivals.iter().copied().filter(|(n, _)| n <= most);
                    fits.map(net).fold(0.0, f64::max)
                })
                .collect(),
        }
    })
}

/// How much better the choice becomes, samples a second, averaged over supplies and prices.
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

fn probe_cost(stakes: &ProbeContext, nodes: u32, present: f64, there: f64) -> f64 {
    let slower = (present - there).max(0.0) * stakes.probe_secs;
    if let Some(CurrentConfiguration { change_secs, .. }) = stakes.elsewhere {
        return change_secs * (present + present.min(there)) + slower;
    }
    if nodes == stakes.present {
        return 0.0;
    }
    // Back again only if it turns out to be worse; then it makes less, there and while it changes.
    let there_and_back = stakes.costs.cost_between(stakes.present, nodes) * present
        + stakes.costs.cost_between(nodes, stakes.present) * present.min(there);
    there_and_back + slower
}
