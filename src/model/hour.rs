//! What all nodes were used for in an hour, as the store keeps it.

use super::UnixTime;

/// An hour, packed: `timeline` packs and unpacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedHour {
    /// When it began.
    pub from: UnixTime,
    /// All of it.
    pub packed: Vec<u8>,
}
