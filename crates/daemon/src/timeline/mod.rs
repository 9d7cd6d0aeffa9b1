//! What nodes were used for over time: noted round by round, packed by the hour, kept in the store.

mod chunk;
mod map;
mod recorder;
mod spending;
mod uses;

pub use chunk::Hour;

pub use chunk::ChunkError;
pub(crate) use map::Asked;
pub(crate) use map::Map;
pub(crate) use map::PARTS;
pub(crate) use map::Planned;
pub(crate) use map::Rows;
pub(crate) use map::Run;
pub(crate) use map::map;
pub use map::sums;
pub(crate) use recorder::HOLDS_SECS;
pub(crate) use recorder::HOUR_SECS;
pub use recorder::Recorder;
pub use recorder::Seen;
pub(crate) use recorder::hour_of;
pub(crate) use spending::Holding;
pub(crate) use spending::MOST_ROWS;
pub(crate) use spending::Spending;
pub use uses::NodeUse;
