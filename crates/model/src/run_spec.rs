//! What the lead's agent declares of its job.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::plan_bounds::known_or_default;
use super::{
    AllowedSizes, BatchMode, DeclaredPlan, LayerProfile, ModelFacts, RescaleCosts, ScalingCurve,
    declared_plan,
};

/// Longest grace time that a job may ask for, seconds: a shrinking job holds its nodes for so long.
pub(crate) const MAX_GRACE_SECS: u32 = 3600;

/// Longest name of a profile or hash of a command.
pub const MAX_NAME_CHARS: usize = 200;

/// Most GPUs, or processes that train, on one unit of a job's size.
pub const MOST_GPUS_A_NODE: u32 = 1024;

/// Whether a number can be a rate: positive and finite.
pub fn is_valid_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

/// The size whose rate a job wants at the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestedSize {
    /// Nodes; `None` for the size that it was submitted with, of several the smallest.
    #[serde(default)]
    pub nodes: Option<u32>,
}

/// What the lead's agent declares about the job, from the flags of `infill run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunSpec {
    /// Allowed sizes; `None` leaves what the submission said.
    pub sizes: Option<AllowedSizes>,
    /// Declared throughput curve.
    pub curve: Option<ScalingCurve>,
    /// Declared rescale costs.
    pub costs: Option<RescaleCosts>,
    /// What it shall make at the least while others have more than their least, samples a second.
    pub at_least: Option<f64>,
    /// Whether that is what its first plan makes at the size that it asked for. `None` where it is not, and
    /// from agents that do not tell.
    #[serde(deserialize_with = "known_or_default", skip_serializing_if = "Option::is_none")]
    pub as_asked: Option<RequestedSize>,
    /// Failures that are retried before the job fails. Scaling events never count.
    pub max_restarts: u32,
    /// Seconds that the command gets to save and exit after the rescale signal.
    pub grace_secs: u32,
    /// Name of the profile, if the user gave one.
    pub profile: Option<String>,
    /// Hash of the normalised command line, to recognise a recurring job.
    pub command_hash: String,
    /// How the work of a step grows with the number of nodes. A word of a newer version is read as
    /// [`BatchMode::Auto`].
    #[serde(deserialize_with = "known_or_auto")]
    pub batch: BatchMode,
    /// Execution plans among which infill chooses, the one to begin with first; none where the program has
    /// but one.
    pub plans: Vec<DeclaredPlan>,
    /// What its owner says of the model that it trains; `None` where nothing is said.
    #[serde(deserialize_with = "known_or_default")]
    pub model: Option<ModelFacts>,
    /// How long the layers of that model take on one GPU; `None` where its owner has not profiled them.
    #[serde(deserialize_with = "known_or_default", skip_serializing_if = "Option::is_none")]
    pub layers: Option<Arc<LayerProfile>>,
    /// GPUs, or processes that train, on each unit of its size: at size n its plans divide n times as many.
    /// `None` where no plan was declared, where units differ, and from agents that do not tell.
    #[serde(deserialize_with = "known_or_default")]
    pub gpus_per_node: Option<u32>,
    /// Whether the lead is a job of the main queue that wings extend: its sizes then count its own nodes as
    /// one.
    pub extends: bool,
}

/// It says only how the job is learned from: no reason to refuse it.
fn known_or_auto<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BatchMode, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(word.parse().unwrap_or_default())
}

impl RunSpec {
    /// The same with every value inside its bounds: what comes over the wire may hold anything.
    pub fn clamp_to_bounds(self) -> Self {
        let short =
            |s: String| s.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect::<String>();
        let sound = |secs: f64| (0.0..=86_400.0).contains(&secs);
        RunSpec {
            costs: self.costs.filter(|c| sound(c.up_secs) && sound(c.down_secs) && sound(c.start_secs)),
            at_least: self.at_least.filter(|rate| is_valid_rate(*rate)),
            as_asked: self.as_asked.filter(|asked| asked.nodes != Some(0)),
            grace_secs: self.grace_secs.min(MAX_GRACE_SECS),
            profile: self.profile.map(short),
            command_hash: short(self.command_hash),
            plans: declared_plan::keep_valid_plans(self.plans),
            model: self.model.and_then(ModelFacts::without_invalid),
            layers: self.layers.filter(|profile| profile.is_sound()),
            gpus_per_node: self.gpus_per_node.filter(|gpus| (1..=MOST_GPUS_A_NODE).contains(gpus)),
            ..self
        }
    }
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec {
            sizes: None,
            curve: None,
            costs: None,
            at_least: None,
            as_asked: None,
            max_restarts: 3,
            grace_secs: 60,
            profile: None,
            command_hash: String::new(),
            batch: BatchMode::Auto,
            plans: Vec::new(),
            model: None,
            layers: None,
            gpus_per_node: None,
            extends: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_and_gpus_that_cannot_be_are_left_out() {
        let spec = |params_mi, gpus_per_node| {
            let model = Some(ModelFacts::from_params(params_mi));
            RunSpec { model, gpus_per_node: Some(gpus_per_node), ..RunSpec::default() }
        };
        let sound = spec(1500.0, 8);
        assert_eq!(sound.clone().clamp_to_bounds(), sound);
        for odd in [spec(f64::NAN, 0), spec(-1.0, MOST_GPUS_A_NODE + 1), spec(f64::INFINITY, u32::MAX)] {
            assert_eq!(odd.clamp_to_bounds(), RunSpec::default());
        }
    }

    #[test]
    fn a_profile_of_layers_is_kept_if_it_can_be() {
        let layer = r#"{"forward_secs":0.01,"backward_secs":0.02,"parameters":1000,"activation_bytes":4096}"#;
        let told = |batch: u32| {
            let text = format!(
                r#"{{"layers":{{"version":1,"device":"NVIDIA A100","batch":{batch},"element_bytes":2,"layers":[{layer}]}}}}"#
            );
            serde_json::from_str::<RunSpec>(&text).unwrap()
        };
        let spec = told(8).clamp_to_bounds();
        assert_eq!(spec.layers.as_ref().map(|l| (l.batch, l.layers.len())), Some((8, 1)));
        assert_eq!(serde_json::from_str::<RunSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
        assert_eq!(told(0).clamp_to_bounds(), RunSpec::default());
        assert!(
            !serde_json::to_string(&RunSpec::default()).unwrap().contains("layers"),
            "older ones need not know"
        );
        let odd: RunSpec = serde_json::from_str(r#"{"layers":{"version":"new"}}"#).unwrap();
        assert_eq!(odd, RunSpec::default());
    }

    #[test]
    fn who_tells_no_model_is_understood() {
        let read: RunSpec = serde_json::from_str(r#"{"grace_secs":60,"plans":[{"name":"dp2"}]}"#).unwrap();
        assert_eq!((read.model, read.gpus_per_node, read.plans.len()), (None, None, 1));
        let told = RunSpec {
            model: Some(ModelFacts { layers: Some(48), ..ModelFacts::from_params(1500.0) }),
            gpus_per_node: Some(8),
            ..read
        };
        let text = serde_json::to_string(&told).unwrap();
        assert!(text.contains(r#""model":{"params_mi":1500.0,"layers":48},"gpus_per_node":8"#), "{text}");
        assert_eq!(serde_json::from_str::<RunSpec>(&text).unwrap(), told);
        assert!(!text.contains("as_asked"), "an older daemon is told nothing new: {text}");
        let asks: RunSpec = serde_json::from_str(r#"{"as_asked":{"nodes":4}}"#).unwrap();
        assert_eq!(asks.as_asked, Some(RequestedSize { nodes: Some(4) }));
        assert_eq!(
            serde_json::from_str::<RunSpec>(r#"{"as_asked":{}}"#).unwrap().as_asked,
            Some(RequestedSize::default())
        );
        assert_eq!(serde_json::from_str::<RunSpec>(r#"{"as_asked":{"nodes":-1}}"#).unwrap().as_asked, None);
        assert_eq!(
            RunSpec { as_asked: Some(RequestedSize { nodes: Some(0) }), ..asks }.clamp_to_bounds().as_asked,
            None
        );
        // NaN is null in JSON.
        let odd = r#"{"model":{"params_mi":null},"gpus_per_node":-1}"#;
        assert_eq!(serde_json::from_str::<RunSpec>(odd).unwrap(), RunSpec::default());
    }
}
