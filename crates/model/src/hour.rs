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
pub struct UsedSecs {
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

impl UsedSecs {
    /// From numbers in the order of its fields.
    pub fn of(parts: [f64; 6]) -> UsedSecs {
        let [main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs] = parts;
        UsedSecs { main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs }
    }

    /// In the order of its fields.
    pub fn parts(&self) -> [f64; 6] {
        let UsedSecs { main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs } = *self;
        [main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs]
    }

    /// Both together.
    pub fn plus(&self, more: &UsedSecs) -> UsedSecs {
        let (mut sums, more) = (self.parts(), more.parts());
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        UsedSecs::of(sums)
    }
}
