//! The system's clock. Only the edges read it; all other code gets the time as a parameter.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::UnixTime;

/// The present moment in whole seconds, as Slurm counts.
pub fn now() -> UnixTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}
