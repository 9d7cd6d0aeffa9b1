//! How long the layers of a model take on one GPU, as its owner has profiled them.

use serde::{Deserialize, Serialize};

use crate::MAX_NAME_CHARS;

/// The version of the format that is read and written.
pub const LAYERS_VERSION: u32 = 1;

/// Most layers of a profile.
pub const MOST_PROFILED_LAYERS: usize = 512;

/// Most samples of a batch that is profiled.
const MOST_BATCH: u32 = 1 << 20;

/// The longest that a layer takes one way, s.
const MOST_SECS: f64 = 3600.0;

/// Most parameters, or bytes of activations, of a layer.
const MOST_OF_LAYER: u64 = 1 << 50;

/// Largest number of bytes of a parameter.
const MOST_ELEMENT_BYTES: u32 = 16;

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfiledLayer {
    /// Seconds of the forward pass.
    pub forward_secs: f64,
    /// Seconds of the backward pass.
    pub backward_secs: f64,
    /// Parameters.
    pub parameters: u64,
    /// Bytes of what it passes on, for the whole batch.
    pub activation_bytes: u64,
}

/// A model's layers, in the order in which they are run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerProfile {
    /// [`LAYERS_VERSION`].
    pub version: u32,
    /// The GPU that they were profiled on, as its driver calls it, or a word that means its type of nodes.
    pub device: String,
    /// Samples of the batch.
    pub batch: u32,
    /// Bytes of a gradient's element.
    pub element_bytes: u32,
    /// The layers.
    pub layers: Vec<ProfiledLayer>,
}

/// Why a profile is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LayersError(String);

impl LayerProfile {
    /// Whether it is what a profile can be.
    ///
    /// # Errors
    /// What is wrong, and in which layer, counted from 1.
    pub fn check_layers(&self) -> Result<(), LayersError> {
        let LayerProfile { version, device, batch, element_bytes, layers } = self;
        let is_name = device.chars().count() <= MAX_NAME_CHARS && !device.chars().any(char::is_control);
        let rules = [
            (*version == LAYERS_VERSION, format!("version is {version}; expected {LAYERS_VERSION}")),
            (is_name, format!("device is longer than {MAX_NAME_CHARS} characters, or not printable")),
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
                "no layer takes any time; expected some seconds".to_owned(),
            ),
        ];
        if let Some((_, what)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(LayersError(what));
        }
        layers
            .iter()
            .enumerate()
            .find_map(|(i, layer): (usize, &ProfiledLayer)| {
                Some(format!("layer {}: {}", i + 1, layer.find_problem()?))
            })
            .map_or(Ok(()), |what| Err(LayersError(what)))
    }

    /// It if it can be, else nothing: what comes over the wire may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        self.check_layers().is_ok()
    }
}

impl ProfiledLayer {
    fn find_problem(&self) -> Option<String> {
        let ProfiledLayer { forward_secs, backward_secs, parameters, activation_bytes } = *self;
        let secs = [("forward_secs", forward_secs), ("backward_secs", backward_secs)];
        let odd = secs.into_iter().find(|(_, secs)| !(0.0..=MOST_SECS).contains(secs));
        let odd = odd.map(|(name, secs)| format!("{name} is {secs}; expected 0 to {MOST_SECS}"));
        let counts = [("parameters", parameters), ("activation_bytes", activation_bytes)];
        let many = counts.into_iter().find(|(_, count)| *count > MOST_OF_LAYER);
        odd.or(many.map(|(name, count)| format!("{name} is {count}; expected {MOST_OF_LAYER} at most")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> LayerProfile {
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
    fn what_no_profile_can_be_is_refused() {
        assert_eq!(sound().check_layers(), Ok(()));
        let says = |change: fn(&mut LayerProfile)| {
            let mut odd = sound();
            change(&mut odd);
            odd.check_layers().unwrap_err().to_string()
        };
        assert_eq!(says(|p| p.version = 2), "version is 2; expected 1");
        assert_eq!(says(|p| p.batch = 0), "batch is 0; expected 1 to 1048576");
        assert!(says(|p| p.device = "a\nb".to_owned()).contains("not printable"));
        assert!(says(|p| p.element_bytes = 99).contains("element_bytes is 99"));
        assert!(says(|p| p.layers.clear()).contains("0 layers"));
        assert!(says(|p| p.layers = vec![p.layers[0]; 513]).contains("513 layers"));
        assert!(says(|p| p.layers[1].forward_secs = -1.0).starts_with("layer 2: forward_secs is -1"));
        assert!(says(|p| p.layers[2].backward_secs = f64::NAN).starts_with("layer 3: backward_secs is NaN"));
        assert!(says(|p| p.layers[0].parameters = u64::MAX).starts_with("layer 1: parameters is"));
        let idle = |p: &mut LayerProfile| {
            p.layers.iter_mut().for_each(|l| (l.forward_secs, l.backward_secs) = (0.0, 0.0));
        };
        assert!(says(idle).contains("no layer takes any time"));
    }
}
