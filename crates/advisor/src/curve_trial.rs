//! The advisor against a table of measured throughputs, as if it were a job: what `infill advise` runs.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::job_advisor::JobAdvisor;
use super::job_input::JobInput;
use super::node_capacity::NodeCapacity;
use super::noise::draw_normal;
use super::scaling::{FittedCurve, ScalingModel as _};
use infill_model::{
    AllowedSizes, BatchMode, CurvePoint, ExecPlan, JobId, NodeName, NodeType, ProfileKey, ProgressReport,
    RescaleCosts, UnixTime, config::AdvisorConfig,
};

/// Seconds at the beginning of each size in which the imagined job runs at half its speed.
const WARMUP_SECS: u32 = 3;

/// Seconds after which a trial ends, whatever is known by then: a job whose reports are mostly noise has no
/// size that is measured well.
const LONGEST_SECS: u32 = 3600;

/// The job.
const TRIAL_JOB: JobId = JobId(1);

/// A job as it is imagined.
#[derive(Clone, Debug)]
pub struct CurveTrial {
    /// True throughput by size, ascending, at least one.
    pub table: Vec<CurvePoint>,
    /// Standard deviation of the logarithm of each one-second report.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// What rescales cost.
    pub costs: RescaleCosts,
    /// The site's bounds on probes.
    pub settings: AdvisorConfig,
}

/// One size that was held to measure it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedSize {
    /// The size.
    pub nodes: u32,
    /// Seconds that it was held, warm-up included.
    pub seconds: f64,
    /// The rate that was measured, samples a second.
    pub rate: f64,
}

/// Truth and prediction at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedSize {
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
pub struct CurveTrialResult {
    /// The size that the job began with: the smallest.
    pub start: TriedSize,
    /// The sizes that were tried, in order.
    pub probes: Vec<TriedSize>,
    /// Seconds of all probes.
    pub probe_secs: f64,
    /// All sizes of the table.
    pub curve: Vec<ComparedSize>,
    /// Mean absolute relative error over all sizes of the table, a fraction.
    pub mape: f64,
    /// The best model, as a formula.
    pub model: String,
}

impl CurveTrial {
    /// Runs it. `None` when the table is empty or holds no rates, or nothing can be measured.
    pub fn run(&self) -> Option<CurveTrialResult> {
        let mut job = SimulatedJob::new(self)?;
        for _ in 0..LONGEST_SECS {
            if job.advance_second() {
                break;
            }
        }
        let fitted = job.library.fitted_curve(&job.input, &job.input.key.node_type)?;
        let mut measured = job.measured.into_iter();
        Some(self.build_result(&fitted, measured.next()?, measured.collect()))
    }

    fn build_result(
        &self,
        fitted: &FittedCurve,
        start: TriedSize,
        probes: Vec<TriedSize>,
    ) -> CurveTrialResult {
        let row = |p: &CurvePoint| {
            let estimate = fitted.estimate_at(p.nodes);
            let (low, high) = estimate.interval_90();
            ComparedSize { nodes: p.nodes, truth: p.rate, predicted: estimate.rate, low, high }
        };
        let curve: Vec<ComparedSize> = self.table.iter().map(row).collect();
        let wrong: f64 = curve.iter().map(|r| (r.predicted / r.truth - 1.0).abs()).sum();
        CurveTrialResult {
            start,
            probe_secs: probes.iter().map(|p| p.seconds).sum(),
            probes,
            mape: wrong / curve.len() as f64,
            model: fitted.best_formula(),
            curve,
        }
    }
}

/// The imagined job: makes progress as the table says, with noise, on a cluster of its own that brings it to
/// each size that the library wants to try.
struct SimulatedJob<'a> {
    trial: &'a CurveTrial,
    random: StdRng,
    library: JobAdvisor,
    input: JobInput,
    clock: i64,
    generation: u64,
    nodes: u32,
    /// Seconds for which it has had its present size.
    held_secs: u32,
    /// The size that it began with, then those that were tried.
    measured: Vec<TriedSize>,
}

impl<'a> SimulatedJob<'a> {
    fn new(trial: &'a CurveTrial) -> Option<Self> {
        let nodes = trial.table.first()?.nodes;
        let key = ProfileKey {
            user: String::new(),
            name: String::new(),
            node_type: NodeType::new("table"),
            exec_plan: ExecPlan::default(),
            batch: BatchMode::Auto,
        };
        let sizes = AllowedSizes::Set(trial.table.iter().map(|p| p.nodes).collect());
        let declared = None;
        let running = Some(nodes);
        let costs = trial.costs;
        Some(SimulatedJob {
            trial,
            random: StdRng::seed_from_u64(trial.seed),
            library: JobAdvisor::new(trial.settings.clone()),
            input: JobInput {
                job: TRIAL_JOB,
                key,
                sizes,
                plans: Vec::new(),
                model: None,
                layers: None,
                gpus_per_node: None,
                declared,
                running,
                costs,
                swap_secs: None,
            },
            clock: 0,
            generation: 1,
            nodes,
            held_secs: 0,
            measured: Vec::new(),
        })
    }

    /// One second: the job reports, then comes a round. Says whether the advisor rests.
    fn advance_second(&mut self) -> bool {
        self.clock += 1;
        self.held_secs += 1;
        self.report_progress();
        self.run_round();
        match self.library.probe_size(TRIAL_JOB) {
            Some(nodes) => self.resize_to(nodes),
            None => return self.library.is_measured(&self.input.key, self.nodes),
        }
        false
    }

    fn report_progress(&mut self) {
        let slow = if self.held_secs <= WARMUP_SECS { 0.5 } else { 1.0 };
        let samples = self.true_rate() * slow * self.noise_factor();
        let generation = self.generation;
        let nodes = self.nodes;
        let node = NodeName::new("n");
        let progress = ProgressReport {
            generation,
            nodes,
            hosts: nodes,
            crosses: false,
            node: &node,
            samples,
            secs: 1.0,
            step: None,
            opening: None,
        };
        let news = self.library.record_progress(TRIAL_JOB, &self.input.key, &progress, UnixTime(self.clock));
        if let Some((nodes, stretch)) = news.stretch.filter(|_| news.probe || self.measured.is_empty()) {
            let seconds = f64::from(self.held_secs);
            self.measured.push(TriedSize { nodes, seconds, rate: stretch.rate.rate });
        }
    }

    /// Nothing is known of the gaps: every size of the table is as often the largest that fits. But this once
    /// all are free.
    fn run_round(&mut self) {
        let sizes = &self.trial.table;
        let turn = self.clock.unsigned_abs() as usize % sizes.len();
        let free = self.input.sizes.max() - self.nodes;
        let input = std::slice::from_ref(&self.input);
        let may_probe = self.trial.settings.probe;
        let room = NodeCapacity::from_one_type(self.input.key.node_type.clone(), sizes[turn].nodes, free);
        self.library.run_round(input, room, may_probe, UnixTime(self.clock));
    }

    /// Brings the job to a size. Nobody else wants nodes: there it stays.
    fn resize_to(&mut self, nodes: u32) {
        if nodes == self.nodes {
            return;
        }
        self.clock += self.trial.costs.cost_between(self.nodes, nodes).round() as i64;
        (self.nodes, self.held_secs) = (nodes, 0);
        self.generation += 1;
        self.input.running = Some(nodes);
    }

    fn true_rate(&self) -> f64 {
        self.trial.table.iter().find(|p| p.nodes == self.nodes).map_or(0.0, |p| p.rate)
    }

    fn noise_factor(&mut self) -> f64 {
        if self.trial.noise <= 0.0 {
            return 1.0;
        }
        (self.trial.noise * draw_normal(&mut self.random)).exp()
    }
}
