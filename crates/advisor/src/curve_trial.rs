//! A trial of the advisor: a table of measured throughputs stands for a job. `infill advise` runs it.

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

/// Seconds at the beginning of each size in which the simulated job runs at half its speed.
const WARMUP_SECS: u32 = 3;

/// Seconds after which a trial ends in any case. If a job's reports are mostly noise, no size is ever
/// measured well.
const MAX_SECS: u32 = 3600;

/// The Slurm id of the simulated job.
const TRIAL_JOB: JobId = JobId(1);

/// A simulated job, and the bounds of its trial.
#[derive(Clone, Debug)]
pub struct CurveTrial {
    /// True throughput by size, ascending, at least one.
    pub table: Vec<CurvePoint>,
    /// Standard deviation of the logarithm of each one-second report.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// What the job's rescales cost.
    pub costs: RescaleCosts,
    /// The site's bounds on probes.
    pub settings: AdvisorConfig,
}

/// One size that was held to measure it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedSize {
    /// The size, nodes.
    pub nodes: u32,
    /// Seconds that it was held, warm-up included.
    pub seconds: f64,
    /// The measured rate, samples a second.
    pub rate: f64,
}

/// Truth and prediction at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedSize {
    /// The size, nodes.
    pub nodes: u32,
    /// The table's rate, samples a second.
    #[serde(rename = "true")]
    pub truth: f64,
    /// The predicted rate, samples a second.
    pub predicted: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end of the 90 % interval.
    pub high: f64,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveTrialResult {
    /// The smallest size, with which the job began.
    pub start: TriedSize,
    /// The probes, in order.
    pub probes: Vec<TriedSize>,
    /// Seconds of all probes.
    pub probe_secs: f64,
    /// Predictions for all sizes of the table.
    pub curve: Vec<ComparedSize>,
    /// Mean absolute relative error over all sizes of the table, a fraction.
    pub mape: f64,
    /// The model with the most evidence, as a formula.
    pub model: String,
}

impl CurveTrial {
    /// Runs the trial. `None` when the table is empty or has no rates, or nothing can be measured.
    pub fn run(&self) -> Option<CurveTrialResult> {
        let mut job = SimulatedJob::new(self)?;
        for _ in 0..MAX_SECS {
            if job.advance_second() {
                break;
            }
        }
        let fitted = job.advisor.fitted_curve(&job.input, &job.input.key.node_type)?;
        let mut measured = job.measured.into_iter();
        Some(self.build_result(&fitted, measured.next()?, measured.collect()))
    }

    fn build_result(
        &self,
        fitted: &FittedCurve,
        start: TriedSize,
        probes: Vec<TriedSize>,
    ) -> CurveTrialResult {
        let mut curve: Vec<ComparedSize> = Vec::new();
        for CurvePoint { nodes, rate: truth } in self.table.iter().copied() {
            let estimate = fitted.estimate_at(nodes);
            let (low, high) = estimate.interval_90();
            curve.push(ComparedSize { nodes, truth, predicted: estimate.rate, low, high });
        }
        let errors: f64 = curve.iter().map(|size| (size.predicted / size.truth - 1.0).abs()).sum();
        CurveTrialResult {
            start,
            probe_secs: probes.iter().map(|p| p.seconds).sum(),
            probes,
            mape: errors / curve.len() as f64,
            model: fitted.best_formula(),
            curve,
        }
    }
}

/// The simulated job. It makes progress as the table says, with noise, on a cluster of its own. The cluster
/// brings it to each size that the advisor wants to try.
struct SimulatedJob<'a> {
    trial: &'a CurveTrial,
    random: StdRng,
    advisor: JobAdvisor,
    input: JobInput,
    clock: i64,
    generation: u64,
    nodes: u32,
    /// Seconds for which it has had its present size.
    held_secs: u32,
    /// The size with which it began, then the probed ones.
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
        Some(SimulatedJob {
            trial,
            random: StdRng::seed_from_u64(trial.seed),
            advisor: JobAdvisor::new(trial.settings.clone()),
            input: JobInput {
                job: TRIAL_JOB,
                key,
                sizes,
                plans: Vec::new(),
                model: None,
                layers: None,
                gpus_per_node: None,
                declared_curve: None,
                running_nodes: Some(nodes),
                costs: trial.costs,
                swap_secs: None,
            },
            clock: 0,
            generation: 1,
            nodes,
            held_secs: 0,
            measured: Vec::new(),
        })
    }

    /// Simulates one second: the job reports, then a round runs. Returns whether the advisor has finished.
    fn advance_second(&mut self) -> bool {
        self.clock += 1;
        self.held_secs += 1;
        self.report_progress();
        self.run_round();
        match self.advisor.probe_size(TRIAL_JOB) {
            Some(nodes) => self.resize_to(nodes),
            None => return self.advisor.is_measured(&self.input.key, self.nodes),
        }
        false
    }

    fn report_progress(&mut self) {
        let warmup_factor = if self.held_secs <= WARMUP_SECS { 0.5 } else { 1.0 };
        let samples = self.true_rate() * warmup_factor * self.noise_factor();
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
            startup: None,
        };
        let outcome =
            self.advisor.record_progress(TRIAL_JOB, &self.input.key, &progress, UnixTime(self.clock));
        if let Some((nodes, stretch)) =
            outcome.stretch.filter(|_| outcome.measures_probe || self.measured.is_empty())
        {
            let seconds = f64::from(self.held_secs);
            self.measured.push(TriedSize { nodes, seconds, rate: stretch.rate.rate });
        }
    }

    /// Runs a round. The gaps of the past are unknown, so that every size of the table is equally often the
    /// largest that fits. Now all nodes are free.
    fn run_round(&mut self) {
        let sizes = &self.trial.table;
        let turn = self.clock.unsigned_abs() as usize % sizes.len();
        let free = self.input.sizes.max() - self.nodes;
        let inputs = std::slice::from_ref(&self.input);
        let may_probe = self.trial.settings.probe;
        let capacity = NodeCapacity::from_one_type(self.input.key.node_type.clone(), sizes[turn].nodes, free);
        self.advisor.run_round(inputs, capacity, may_probe, UnixTime(self.clock));
    }

    /// Brings the job to a size. It stays there, because no other job wants nodes.
    fn resize_to(&mut self, nodes: u32) {
        if nodes == self.nodes {
            return;
        }
        self.clock += self.trial.costs.cost_between(self.nodes, nodes).round() as i64;
        self.nodes = nodes;
        self.held_secs = 0;
        self.generation += 1;
        self.input.running_nodes = Some(nodes);
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
