//! What the advisor is told of a job, and what it makes of it.

use std::sync::Arc;

use super::rate_meter::Stretch;
use infill_model::{
    AllowedSizes, DeclaredPlan, JobId, LayerProfile, ModelFacts, ProfileKey, RescaleCosts, ScalingCurve,
};

/// A job as the advisor sees it.
#[derive(Clone, Debug)]
pub struct JobInput {
    /// The lead.
    pub job: JobId,
    /// Its signature, on the node type that it runs on or would most likely.
    pub key: ProfileKey,
    /// Its allowed sizes.
    pub sizes: AllowedSizes,
    /// Execution plans among which infill chooses; none where the program has but one.
    pub plans: Vec<DeclaredPlan>,
    /// What its owner says of the model that it trains.
    pub model: Option<ModelFacts>,
    /// How long the layers of that model take on one GPU, where its owner has profiled them.
    pub layers: Option<Arc<LayerProfile>>,
    /// GPUs, or processes that train, on each unit of its size; `None` where that is not known.
    pub gpus_per_node: Option<u32>,
    /// The curve that the user declares, of the first of its plans.
    pub declared: Option<ScalingCurve>,
    /// Nodes of the present generation, if it runs undisturbed.
    pub running: Option<u32>,
    /// What its rescales cost.
    pub costs: RescaleCosts,
    /// Seconds without samples when it changes to another execution plan, where that is dearer than a change
    /// of size.
    pub swap_secs: Option<f64>,
}

/// What a report led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressOutcome {
    /// A stretch was measured at this size.
    pub stretch: Option<(u32, Stretch)>,
    /// The job runs at another speed than before.
    pub drift: Option<f64>,
    /// It was measured because the advisor wanted to know it.
    pub probe: bool,
    /// A probe is over: the planner may choose again.
    pub probed: bool,
}
