//! The advisor against a table of measured throughputs, as if it were a job: what `infill advise` runs.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, Normal};

use super::fit::Fitted;
use super::learn::{Doubts, batch_mode, learn};
use super::meter::Meter;
use super::worth::{Stakes, best_probe};
use crate::model::{CurvePoint, ExecPlan, NodeName, NodeType, Profile, ProfileKey, RescaleCosts, UnixTime};

/// Most sizes that a job tries besides the one that it starts with.
pub const MOST_PROBES: usize = 3;

/// Most seconds that all probes of a job take together, without the rescales to them.
pub const MOST_PROBE_SECS: f64 = 120.0;

/// Seconds at the beginning of each size in which the imagined job runs at half its speed.
const WARMUP_SECS: f64 = 3.0;

/// Seconds of one probe at most, whatever its interval.
const LONGEST_PROBE_SECS: f64 = 40.0;

/// A job as it is imagined.
#[derive(Clone, Debug)]
pub struct Trial {
    /// True throughput by size, ascending, at least one.
    pub table: Vec<CurvePoint>,
    /// Standard deviation of the logarithm of each one-second report.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// What rescales cost.
    pub costs: RescaleCosts,
    /// Seconds for which the curve will be of use.
    pub horizon_secs: f64,
}

/// One size that was held to measure it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The size.
    pub nodes: u32,
    /// Seconds that it was held, warm-up included.
    pub seconds: f64,
    /// The rate that was measured, samples a second.
    pub rate: f64,
}

/// Truth and prediction at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The size.
    pub nodes: u32,
    /// The table's rate.
    #[serde(rename = "true")]
    pub truth: f64,
    /// The predicted rate.
    pub predicted: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How a trial went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The size that the job began with: the smallest.
    pub start: Probe,
    /// The sizes that were tried, in order.
    pub probes: Vec<Probe>,
    /// Seconds of all probes.
    pub probe_secs: f64,
    /// All sizes of the table.
    pub curve: Vec<Row>,
    /// Mean absolute relative error over all sizes of the table, a fraction.
    pub mape: f64,
    /// The best model, as a formula.
    pub model: String,
}

impl Trial {
    /// Runs it. `None` when the table is empty or holds no rates.
    pub fn run(&self) -> Option<Verdict> {
        let mut job = Imagined::new(self);
        let sizes: Vec<u32> = self.table.iter().map(|p| p.nodes).collect();
        let (first, last) = (*sizes.first()?, *sizes.last()?);
        let start = job.measure(first)?;
        let mut probes: Vec<Probe> = Vec::new();
        let mut present = first;
        loop {
            let fitted = job.fitted(last)?;
            let spent: f64 = probes.iter().map(|p| p.seconds).sum();
            let tried: Vec<u32> = probes.iter().map(|p| p.nodes).chain([first]).collect();
            let most = MOST_PROBES.min(sizes.len() / 2);
            if probes.len() >= most || spent + LONGEST_PROBE_SECS > MOST_PROBE_SECS {
                break;
            }
            let triable = sizes.iter().copied().filter(|n| !tried.contains(n)).collect();
            let stakes = self.stakes(&sizes, triable, present);
            let Some(next) = best_probe(&fitted, &stakes) else { break };
            probes.push(job.measure(next.nodes)?);
            present = next.nodes;
        }
        Some(self.verdict(&job.fitted(last)?, start, probes))
    }

    fn stakes(&self, sizes: &[u32], triable: Vec<u32>, present: u32) -> Stakes {
        // Nothing is known of the gaps: every size of the table is as often the largest that fits.
        let share = 1.0 / sizes.len() as f64;
        Stakes {
            sizes: sizes.to_vec(),
            triable,
            supplies: sizes.iter().map(|n| (*n, share)).collect(),
            present,
            horizon_secs: self.horizon_secs,
            probe_secs: LONGEST_PROBE_SECS / 2.0,
            costs: self.costs,
        }
    }

    fn verdict(&self, fitted: &Fitted, start: Probe, probes: Vec<Probe>) -> Verdict {
        let row = |p: &CurvePoint| {
            let estimate = fitted.at(p.nodes);
            let (low, high) = estimate.interval();
            Row { nodes: p.nodes, truth: p.rate, predicted: estimate.rate, low, high }
        };
        let curve: Vec<Row> = self.table.iter().map(row).collect();
        let wrong: f64 = curve.iter().map(|r| (r.predicted / r.truth - 1.0).abs()).sum();
        Verdict {
            start,
            probe_secs: probes.iter().map(|p| p.seconds).sum(),
            probes,
            mape: wrong / curve.len() as f64,
            model: fitted.formula(),
            curve,
        }
    }
}

/// The imagined job: makes progress as the table says, with noise, and is measured as a real one is.
struct Imagined<'a> {
    trial: &'a Trial,
    random: StdRng,
    profile: Profile,
    clock: i64,
}

impl<'a> Imagined<'a> {
    fn new(trial: &'a Trial) -> Self {
        let key = ProfileKey {
            user: String::new(),
            name: String::new(),
            node_type: NodeType::new("table"),
            exec_plan: ExecPlan::default(),
            batch: crate::model::BatchMode::Auto,
        };
        let random = StdRng::seed_from_u64(trial.seed);
        Imagined { trial, random, profile: Profile::new(key), clock: 0 }
    }

    /// Holds a size until its rate is known well enough.
    fn measure(&mut self, nodes: u32) -> Option<Probe> {
        let truth = self.trial.table.iter().find(|p| p.nodes == nodes)?.rate;
        let (mut meter, node, mut seconds) = (Meter::default(), NodeName::new("n"), 0.0);
        let stretch = loop {
            seconds += 1.0;
            let slow = if seconds <= WARMUP_SECS { 0.5 } else { 1.0 };
            let samples = truth * slow * self.noise();
            if let Some(stretch) = meter.add(&node, samples, 1.0, None) {
                break stretch;
            }
            if seconds >= LONGEST_PROBE_SECS {
                break meter.finish()?;
            }
        };
        self.clock += seconds as i64;
        let _ = learn(&mut self.profile, &mut Doubts::new(), nodes, &stretch, UnixTime(self.clock));
        Some(Probe { nodes, seconds, rate: stretch.rate.rate })
    }

    fn noise(&mut self) -> f64 {
        if self.trial.noise <= 0.0 {
            return 1.0;
        }
        // The open interval: neither end has a finite quantile.
        let uniform: f64 = self.random.random_range(1e-12..1.0 - 1e-12);
        (self.trial.noise * Normal::standard().inverse_cdf(uniform)).exp()
    }

    fn fitted(&self, largest: u32) -> Option<Fitted> {
        Fitted::new(&self.profile.points, batch_mode(&self.profile), largest)
    }
}
