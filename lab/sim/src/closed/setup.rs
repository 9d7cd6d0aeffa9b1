//! What is simulated: machine, jobs, speeds, and what changes cost.

use std::collections::BTreeMap;

use super::machine::ClosedMachine;
use super::speeds::SpeedTable;
use infill_model::{ClosedJob, ModelFacts, config::Config};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct ClosedSetup {
    /// The machine, all free.
    pub machine: ClosedMachine,
    /// The jobs, by submission.
    pub jobs: Vec<ClosedJob>,
    /// How fast models truly train.
    pub speeds: SpeedTable,
    /// How a site would configure infill.
    pub config: Config,
    /// What is known of models beforehand.
    pub facts: BTreeMap<String, ModelFacts>,
    /// Seconds of a step as estimated beforehand, a row of the speeds each.
    pub estimates: Vec<Option<f64>>,
    /// Whether policies of infill know how many steps jobs will make; else they expect what jobs of the same
    /// model made that ended before.
    pub knows_lengths: bool,
    /// Seconds without a step when a job starts, or goes over to other GPUs or another plan.
    pub restart_secs: f64,
    /// Each job has so many times the steps that it was submitted with.
    pub work: f64,
    /// Submission times are divided by this.
    pub speed_up: f64,
    /// Ends the simulation so many seconds after its start, if jobs are left then.
    pub most_secs: Option<f64>,
    /// Standard deviation of the logarithm of what is measured.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}
