//! What the advisor gets to know of a job, and what a progress report of it leads to.

use std::sync::Arc;

use super::rate_meter::RateStretch;
use infill_model::{
    AllowedSizes, DeclaredPlan, JobId, LayerProfile, ModelFacts, ProfileKey, RescaleCosts, ScalingCurve,
};

/// A job as the advisor sees it.
#[derive(Clone, Debug)]
pub struct JobInput {
    /// The Slurm id of its lead.
    pub job: JobId,
    /// Its profile key, on the node type that it runs on or most likely would.
    pub key: ProfileKey,
    /// The sizes that its user allows.
    pub sizes: AllowedSizes,
    /// Execution plans among which infill chooses; empty where the program has only one.
    pub plans: Vec<DeclaredPlan>,
    /// What its user declares of the model that it trains.
    pub model: Option<ModelFacts>,
    /// How long the layers of that model take on one GPU, where its user has profiled them.
    pub layers: Option<Arc<LayerProfile>>,
    /// GPUs, or processes that train, on each unit of its size; `None` where unknown.
    pub gpus_per_node: Option<u32>,
    /// The curve that its user declares, for the first of its plans.
    pub declared_curve: Option<ScalingCurve>,
    /// Nodes of the present generation, if it runs undisturbed.
    pub running_nodes: Option<u32>,
    /// What its rescales cost, measured or from the configuration.
    pub costs: RescaleCosts,
    /// Seconds without samples when it changes to another execution plan, where that takes longer than a
    /// change of size.
    pub swap_secs: Option<f64>,
}

/// What a progress report led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressOutcome {
    /// The size at which a stretch was measured, and the stretch.
    pub stretch: Option<(u32, RateStretch)>,
    /// The job's new speed over its old one, where a drift was found.
    pub drift: Option<f64>,
    /// Whether the stretch is the measurement that a probe asked for.
    pub measures_probe: bool,
    /// Whether a probe has ended, so that the planner may choose again.
    pub probe_ended: bool,
}
