//! What all nodes were used for in an hour, as the store keeps it.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// An hour, packed: `timeline` packs and unpacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedHour {
    /// When it began.
    pub from: UnixTime,
    /// All of it.
    pub packed: Vec<u8>,
}

/// Node-seconds by what nodes were used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeUsageSecs {
    /// Main jobs.
    pub main_secs: f64,
    /// Malleable jobs.
    pub malleable_secs: f64,
    /// Idle, and infill could have used it.
    pub idle_secs: f64,
    /// Idle, and the main queue wanted it before it would have been worth anything.
    pub wanted_secs: f64,
    /// Idle, and something forbade that infill used it.
    pub refused_secs: f64,
    /// Down, drained, or switched off.
    pub down_secs: f64,
}

impl NodeUsageSecs {
    /// From numbers in the order of its fields.
    pub fn from_array(parts: [f64; 6]) -> NodeUsageSecs {
        let [main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs] = parts;
        NodeUsageSecs { main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs }
    }

    /// In the order of its fields.
    pub fn to_array(&self) -> [f64; 6] {
        let NodeUsageSecs { main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs } =
            *self;
        [main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs]
    }

    /// Both together.
    pub fn sum_with(&self, more: &NodeUsageSecs) -> NodeUsageSecs {
        let mut sums = self.to_array();
        let more = more.to_array();
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        NodeUsageSecs::from_array(sums)
    }
}
