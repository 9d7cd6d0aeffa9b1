//! The input of a simulation: machine, jobs, speeds, and the costs of changes.

use std::collections::BTreeMap;

use super::machine::ClosedMachine;
use super::speeds::SpeedTable;
use infill_model::{ClosedJob, ModelFacts, config::Config};

/// The input of a simulation of a closed machine.
#[derive(Clone, Debug)]
pub struct ClosedSetup {
    /// The machine with all GPUs free.
    pub machine: ClosedMachine,
    /// The jobs, by submission.
    pub jobs: Vec<ClosedJob>,
    /// How fast models truly train.
    pub speeds: SpeedTable,
    /// A site's configuration of infill.
    pub config: Config,
    /// Facts about models that are known before any measurement, by model.
    pub facts: BTreeMap<String, ModelFacts>,
    /// Estimated seconds of a step, one for each row of the speeds.
    pub estimates: Vec<Option<f64>>,
    /// Whether infill's policies know how many steps jobs will make. Otherwise they predict from earlier jobs
    /// with the same model.
    pub knows_lengths: bool,
    /// Seconds without a step when a job starts, or changes to other GPUs or another plan.
    pub restart_secs: f64,
    /// Factor on the steps that jobs were submitted with.
    pub work: f64,
    /// Submission times are divided by this.
    pub speed_up: f64,
    /// Ends the simulation this many seconds after its start, if jobs are left then.
    pub most_secs: Option<f64>,
    /// Standard deviation of the logarithm of measured rates.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}
