//! The use of all nodes, as the store keeps it by the hour.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// The packed data of an hour. The daemon's `timeline` packs and unpacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedHour {
    /// When the hour began.
    pub from: UnixTime,
    /// The packed data.
    pub packed: Vec<u8>,
}

/// Node-seconds, by the use of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeUsageSecs {
    /// Main jobs ran.
    pub main_secs: f64,
    /// Malleable jobs ran.
    pub malleable_secs: f64,
    /// Idle, and infill could have used them.
    pub idle_secs: f64,
    /// Idle, but the main queue wanted them too soon for infill to use them.
    pub wanted_secs: f64,
    /// Idle, but infill was not allowed to use them.
    pub refused_secs: f64,
    /// Down, drained, or switched off.
    pub down_secs: f64,
}

impl NodeUsageSecs {
    /// From numbers in the order of the fields.
    pub fn from_array(parts: [f64; 6]) -> NodeUsageSecs {
        let [main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs] = parts;
        NodeUsageSecs { main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs }
    }

    /// The numbers in the order of the fields.
    pub fn to_array(&self) -> [f64; 6] {
        let NodeUsageSecs { main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs } =
            *self;
        [main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs]
    }

    /// The sum of both.
    pub fn sum_with(&self, other: &NodeUsageSecs) -> NodeUsageSecs {
        let mut sums = self.to_array();
        for (sum, secs) in sums.iter_mut().zip(other.to_array()) {
            *sum += secs;
        }
        NodeUsageSecs::from_array(sums)
    }
}
