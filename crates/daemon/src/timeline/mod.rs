//! What nodes were used for over time: recorded in each round, packed by the hour, kept in the store.

mod job_spans;
mod node_time;
mod node_use;
mod recorder;
mod usage_hour;
mod usage_map;

pub use usage_hour::UsageHour;

pub(crate) use job_spans::{SizeSpan, job_spans};
pub(crate) use node_time::{MAX_HOUR_ROWS, NodeHolding, NodeTimeTracker};
pub use node_use::NodeUse;
pub(crate) use recorder::hour_of;
pub(crate) use recorder::{HOUR_SECS, USE_HOLDS_SECS};
pub use recorder::{HourRecorder, ObservedUse};
pub use usage_hour::UsageHourError;
pub use usage_map::sum_hour;
pub(crate) use usage_map::{
    MapRequest, MapRows, PlannedUse, USE_KINDS, UsageMap, UsageRun, build_map, count_nodes, node_index,
};
