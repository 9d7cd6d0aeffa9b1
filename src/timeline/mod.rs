//! What nodes were used for over time: noted round by round, packed by the hour, kept in the store.

mod chunk;
mod recorder;
mod uses;

pub use chunk::{ChunkError, Hour};
pub use recorder::{HOLDS_SECS, HOUR_SECS, Recorder};
pub use uses::NodeUse;
