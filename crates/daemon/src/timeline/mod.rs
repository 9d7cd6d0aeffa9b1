//! What nodes were used for over time: noted round by round, packed by the hour, kept in the store.

mod chunk;
mod map;
mod recorder;
mod spending;
mod uses;

pub use chunk::Hour;

pub use chunk::ChunkError;
pub use map::sums;
pub(crate) use map::{Asked, Map, PARTS, Planned, Rows, Run, map};
pub(crate) use recorder::hour_of;
pub(crate) use recorder::{HOLDS_SECS, HOUR_SECS};
pub use recorder::{Recorder, Seen};
pub(crate) use spending::{Holding, MOST_ROWS, Spending};
pub use uses::NodeUse;
