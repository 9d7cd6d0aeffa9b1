//! What nodes were used for over time: noted round by round, packed by the hour, kept in the store.

mod chunk;
mod map;
mod recorder;
mod spending;
mod uses;

pub use chunk::{ChunkError, Hour};
pub use map::{Asked, Map, PARTS, Planned, Rows, Run, map, sums};
pub use recorder::{HOLDS_SECS, HOUR_SECS, Recorder, Seen, hour_of};
pub use spending::{Holding, MOST_ROWS, Spending};
pub use uses::NodeUse;
