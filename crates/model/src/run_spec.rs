//! The declarations that the lead's agent makes about its job.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::plan_bounds::known_or_default;
use super::{
    AllowedSizes, BatchMode, DeclaredPlan, LayerProfile, ModelFacts, RescaleCosts, ScalingCurve,
    declared_plan,
};

/// The longest grace time that a job may ask for, in seconds. A shrinking job holds its nodes for that time.
pub(crate) const MAX_GRACE_SECS: u32 = 3600;

/// The longest time that the preparation of a node may take, in seconds. A wing holds its node meanwhile.
pub const MAX_SETUP_SECS: u32 = 6 * 3600;

/// The longest name of a profile or hash of a command, in characters.
pub const MAX_NAME_CHARS: usize = 200;

/// Most GPUs, or training processes, on one unit of a job's size.
pub const MOST_GPUS_A_NODE: u32 = 1024;

/// Whether a number is a valid rate: positive and finite.
pub fn is_valid_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

/// The size whose rate a job is to make at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestedSize {
    /// The number of nodes. `None` for the size that the job was submitted with; with several, the smallest.
    #[serde(default)]
    pub nodes: Option<u32>,
}

/// The declarations that the lead's agent makes about its job, from the flags of `infill run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunSpec {
    /// The sizes that the job may have; `None` for those of the submission.
    pub sizes: Option<AllowedSizes>,
    /// The declared throughput curve.
    pub curve: Option<ScalingCurve>,
    /// The declared rescale costs.
    pub costs: Option<RescaleCosts>,
    /// The rate that it is to make at least while others have more than their minimum, in samples a second.
    pub at_least: Option<f64>,
    /// The run whose rate is that minimum: its first plan at the size that it asked for. `None` if the
    /// minimum is a number or missing, and from agents that do not say.
    #[serde(deserialize_with = "known_or_default", skip_serializing_if = "Option::is_none")]
    pub as_asked: Option<RequestedSize>,
    /// The number of failures after which the job fails; earlier ones are retried. Scaling events never
    /// count.
    pub max_restarts: u32,
    /// Seconds that the command gets to save and exit after the rescale signal.
    pub grace_secs: u32,
    /// The name of the profile, if the user gave one.
    pub profile: Option<String>,
    /// Hash of the normalised command line, to recognise recurring jobs.
    pub command_hash: String,
    /// How the work of a step grows with the number of nodes. A word of a newer version is read as
    /// [`BatchMode::Auto`].
    #[serde(deserialize_with = "known_or_auto")]
    pub batch: BatchMode,
    /// The execution plans among which infill chooses, beginning with the first. Empty if the program has
    /// only one.
    pub plans: Vec<DeclaredPlan>,
    /// The owner's facts about the model; `None` if there are none.
    #[serde(deserialize_with = "known_or_default")]
    pub model: Option<ModelFacts>,
    /// The measured times of the model's layers on one GPU; `None` if its owner has not measured them.
    #[serde(deserialize_with = "known_or_default", skip_serializing_if = "Option::is_none")]
    pub layers: Option<Arc<LayerProfile>>,
    /// GPUs, or training processes, on each unit of its size: at size n its plans divide n times this number.
    /// `None` if no plan was declared, if units differ, and from agents that do not say.
    #[serde(deserialize_with = "known_or_default")]
    pub gpus_per_node: Option<u32>,
    /// Whether the lead is a main job that wings extend. Its sizes then count its own nodes as one.
    pub extends: bool,
    /// Most seconds that a wing prepares its node before it says hello; 0 without a preparation.
    #[serde(skip_serializing_if = "is_zero")]
    pub setup_secs: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Reads a batch mode. An unknown one is read as [`BatchMode::Auto`]: it only matters for measurements, so it
/// must not make the job fail.
fn known_or_auto<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BatchMode, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(word.parse().unwrap_or_default())
}

impl RunSpec {
    /// This specification with every value within its bounds. It comes over the network, so it may hold
    /// anything.
    pub fn clamp_to_bounds(self) -> Self {
        RunSpec {
            costs: self.costs.filter(is_valid_costs),
            at_least: self.at_least.filter(|rate| is_valid_rate(*rate)),
            as_asked: self.as_asked.filter(|requested| requested.nodes != Some(0)),
            grace_secs: self.grace_secs.min(MAX_GRACE_SECS),
            profile: self.profile.map(|name| printable_prefix(&name)),
            command_hash: printable_prefix(&self.command_hash),
            plans: declared_plan::keep_valid_plans(self.plans),
            model: self.model.and_then(ModelFacts::without_invalid),
            layers: self.layers.filter(|profile| profile.is_sound()),
            setup_secs: self.setup_secs.min(MAX_SETUP_SECS),
            gpus_per_node: self.gpus_per_node.filter(|gpus| (1..=MOST_GPUS_A_NODE).contains(gpus)),
            ..self
        }
    }
}

/// The first [`MAX_NAME_CHARS`] printable characters of a text.
fn printable_prefix(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

/// Whether each cost is at most a day.
fn is_valid_costs(costs: &RescaleCosts) -> bool {
    [costs.up_secs, costs.down_secs, costs.start_secs].iter().all(|secs| (0.0..=86_400.0).contains(secs))
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
            setup_secs: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_model_and_number_of_gpus_are_left_out() {
        let valid = spec(1500.0, 8);
        assert_eq!(valid.clone().clamp_to_bounds(), valid);
        for invalid in [spec(f64::NAN, 0), spec(-1.0, MOST_GPUS_A_NODE + 1), spec(f64::INFINITY, u32::MAX)] {
            assert_eq!(invalid.clamp_to_bounds(), RunSpec::default());
        }
    }

    fn spec(params_mi: f64, gpus_per_node: u32) -> RunSpec {
        let model = Some(ModelFacts::from_params(params_mi));
        RunSpec { model, gpus_per_node: Some(gpus_per_node), ..RunSpec::default() }
    }

    /// A specification whose layers were measured with this batch.
    fn spec_with_layers(batch: u32) -> RunSpec {
        let layer = r#"{"forward_secs":0.01,"backward_secs":0.02,"parameters":1000,"activation_bytes":4096}"#;
        let text = format!(
            r#"{{"layers":{{"version":1,"device":"NVIDIA A100","batch":{batch},"element_bytes":2,"layers":[{layer}]}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn only_a_valid_profile_of_layers_is_kept() {
        let spec = spec_with_layers(8).clamp_to_bounds();
        let layers = spec.layers.as_ref().map(|profile| (profile.batch, profile.layers.len()));
        assert_eq!(layers, Some((8, 1)));
        assert_eq!(serde_json::from_str::<RunSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
        assert_eq!(spec_with_layers(0).clamp_to_bounds(), RunSpec::default());
        assert!(
            !serde_json::to_string(&RunSpec::default()).unwrap().contains("layers"),
            "older daemons do not know the field"
        );
        let invalid: RunSpec = serde_json::from_str(r#"{"layers":{"version":"new"}}"#).unwrap();
        assert_eq!(invalid, RunSpec::default());
    }

    #[test]
    fn optional_fields_may_be_missing() {
        let read: RunSpec = serde_json::from_str(r#"{"grace_secs":60,"plans":[{"name":"dp2"}]}"#).unwrap();
        assert_eq!((read.model, read.gpus_per_node, read.plans.len()), (None, None, 1));
        let full = RunSpec {
            model: Some(ModelFacts { layers: Some(48), ..ModelFacts::from_params(1500.0) }),
            gpus_per_node: Some(8),
            ..read
        };
        let text = serde_json::to_string(&full).unwrap();
        assert!(text.contains(r#""model":{"params_mi":1500.0,"layers":48},"gpus_per_node":8"#), "{text}");
        assert_eq!(serde_json::from_str::<RunSpec>(&text).unwrap(), full);
        assert!(!text.contains("as_asked"), "older daemons do not know the field: {text}");
        let with_run: RunSpec = serde_json::from_str(r#"{"as_asked":{"nodes":4}}"#).unwrap();
        assert_eq!(with_run.as_asked, Some(RequestedSize { nodes: Some(4) }));
        assert_eq!(
            serde_json::from_str::<RunSpec>(r#"{"as_asked":{}}"#).unwrap().as_asked,
            Some(RequestedSize::default())
        );
        assert_eq!(serde_json::from_str::<RunSpec>(r#"{"as_asked":{"nodes":-1}}"#).unwrap().as_asked, None);
        assert_eq!(
            RunSpec { as_asked: Some(RequestedSize { nodes: Some(0) }), ..with_run }
                .clamp_to_bounds()
                .as_asked,
            None
        );
        let slow = RunSpec { setup_secs: u32::MAX, ..RunSpec::default() }.clamp_to_bounds();
        assert_eq!(slow.setup_secs, MAX_SETUP_SECS);
        assert!(!serde_json::to_string(&RunSpec::default()).unwrap().contains("setup_secs"));
        // NaN is null in JSON.
        let invalid = r#"{"model":{"params_mi":null},"gpus_per_node":-1}"#;
        assert_eq!(serde_json::from_str::<RunSpec>(invalid).unwrap(), RunSpec::default());
    }
}
