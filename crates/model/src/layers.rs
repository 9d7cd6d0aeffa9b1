//! A profile of a model's layers on one GPU, which the job's owner has measured.

use serde::{Deserialize, Serialize};

use crate::MAX_NAME_CHARS;

/// The version of the format that infill reads and writes.
pub const LAYERS_VERSION: u32 = 1;

/// Most layers in a profile.
pub const MOST_PROFILED_LAYERS: usize = 512;

/// Most samples in the profiled batch.
const MOST_BATCH: u32 = 1 << 20;

/// The longest time of a layer in one direction, in seconds.
const MOST_SECS: f64 = 3600.0;

/// Most parameters, or bytes of activations, in a layer.
const MOST_OF_LAYER: u64 = 1 << 50;

/// Most bytes of a parameter.
const MOST_ELEMENT_BYTES: u32 = 16;

/// The measurements of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfiledLayer {
    /// Seconds of the forward pass.
    pub forward_secs: f64,
    /// Seconds of the backward pass.
    pub backward_secs: f64,
    /// The number of parameters.
    pub parameters: u64,
    /// Bytes of the output that it passes to the next layer, for the whole batch.
    pub activation_bytes: u64,
}

/// A model's layers, in the order in which they are run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerProfile {
    /// The version of the format: [`LAYERS_VERSION`].
    pub version: u32,
    /// The GPU of the measurement, as its driver names it, or a word that stands for its node type.
    pub device: String,
    /// Samples in the profiled batch.
    pub batch: u32,
    /// Bytes of one element of a gradient.
    pub element_bytes: u32,
    /// The layers, from first to last.
    pub layers: Vec<ProfiledLayer>,
}

/// The reason why a profile is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LayersError(String);

impl LayerProfile {
    /// Checks that all numbers of the profile are valid.
    ///
    /// # Errors
    /// The problem, and the layer that has it, counted from 1.
    pub fn check_layers(&self) -> Result<(), LayersError> {
        let LayerProfile { version, device, batch, element_bytes, layers } = self;
        let is_valid_name = device.chars().count() <= MAX_NAME_CHARS && !device.chars().any(char::is_control);
        let rules = [
            (*version == LAYERS_VERSION, format!("version is {version}; expected {LAYERS_VERSION}")),
            (is_valid_name, format!("device is longer than {MAX_NAME_CHARS} characters, or not printable")),
            ((1..=MOST_BATCH).contains(batch), format!("batch is {batch}; expected 1 to {MOST_BATCH}")),
            (
                (1..=MOST_ELEMENT_BYTES).contains(element_bytes),
                format!("element_bytes is {element_bytes}; expected 1 to {MOST_ELEMENT_BYTES}"),
            ),
            (
                (1..=MOST_PROFILED_LAYERS).contains(&layers.len()),
                format!("there are {} layers; expected 1 to {MOST_PROFILED_LAYERS}", layers.len()),
            ),
            (
                layers.iter().any(|layer| layer.forward_secs + layer.backward_secs > 0.0),
                "all layers take zero seconds; expected some time".to_owned(),
            ),
        ];
        if let Some((_, problem)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(LayersError(problem));
        }
        for (i, layer) in layers.iter().enumerate() {
            if let Some(problem) = layer.find_problem() {
                return Err(LayersError(format!("layer {}: {problem}", i + 1)));
            }
        }
        Ok(())
    }

    /// Whether the profile is valid. A profile comes over the network, so it may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        self.check_layers().is_ok()
    }
}

impl ProfiledLayer {
    fn find_problem(&self) -> Option<String> {
        let ProfiledLayer { forward_secs, backward_secs, parameters, activation_bytes } = *self;
        for (name, secs) in [("forward_secs", forward_secs), ("backward_secs", backward_secs)] {
            if !(0.0..=MOST_SECS).contains(&secs) {
                return Some(format!("{name} is {secs}; expected 0 to {MOST_SECS}"));
            }
        }
        for (name, count) in [("parameters", parameters), ("activation_bytes", activation_bytes)] {
            if count > MOST_OF_LAYER {
                return Some(format!("{name} is {count}; expected {MOST_OF_LAYER} at most"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid_profile() -> LayerProfile {
        let layer = ProfiledLayer {
            forward_secs: 0.01,
            backward_secs: 0.02,
            parameters: 1000,
            activation_bytes: 4096,
        };
        LayerProfile {
            version: 1,
            device: "a100".to_owned(),
            batch: 4,
            element_bytes: 2,
            layers: vec![layer; 3],
        }
    }

    #[test]
    fn an_invalid_profile_is_refused() {
        assert_eq!(valid_profile().check_layers(), Ok(()));
        assert_eq!(problem_after(|p| p.version = 2), "version is 2; expected 1");
        assert_eq!(problem_after(|p| p.batch = 0), "batch is 0; expected 1 to 1048576");
        assert!(problem_after(|p| p.device = "a\nb".to_owned()).contains("not printable"));
        assert!(problem_after(|p| p.element_bytes = 99).contains("element_bytes is 99"));
        assert!(problem_after(|p| p.layers.clear()).contains("0 layers"));
        assert!(problem_after(|p| p.layers = vec![p.layers[0]; 513]).contains("513 layers"));
        let negative = problem_after(|p| p.layers[1].forward_secs = -1.0);
        assert!(negative.starts_with("layer 2: forward_secs is -1"), "{negative}");
        let nan = problem_after(|p| p.layers[2].backward_secs = f64::NAN);
        assert!(nan.starts_with("layer 3: backward_secs is NaN"), "{nan}");
        let many = problem_after(|p| p.layers[0].parameters = u64::MAX);
        assert!(many.starts_with("layer 1: parameters is"), "{many}");
        let without_time = problem_after(|p| {
            for layer in &mut p.layers {
                layer.forward_secs = 0.0;
                layer.backward_secs = 0.0;
            }
        });
        assert!(without_time.contains("all layers take zero seconds"), "{without_time}");
    }

    /// The problem of a profile that is valid but for one change.
    fn problem_after(change: fn(&mut LayerProfile)) -> String {
        let mut profile = valid_profile();
        change(&mut profile);
        profile.check_layers().unwrap_err().to_string()
    }
}
